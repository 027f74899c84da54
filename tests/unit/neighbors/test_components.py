"""Components of weights whose weak edges join nothing, across blocks, against SciPy."""

from itertools import pairwise

import numpy as np
import pytest
from scipy.sparse import csr_array
from scipy.sparse.csgraph import connected_components

from bigembed.neighbors import components
from bigembed.neighbors.components import RESOLVED, find_components
from bigembed.store.arrays import read_array, write_array
from bigembed.store.exchange import Exchange
from bigembed.store.matrix import CSRBlock, MemoryMatrix, halo_of


def blocks_of(matrix: csr_array, starts: list[int]) -> MemoryMatrix:
    """A symmetric matrix by blocks of rows."""
    blocks = []
    for start, stop in pairwise(starts):
        part = matrix[start:stop]
        far = np.unique(part.indices[(part.indices < start) | (part.indices >= stop)])
        place = stop - start + np.searchsorted(far, part.indices)
        indices = np.where((part.indices >= start) & (part.indices < stop), part.indices - start, place)
        indices = indices.astype(np.int32)
        order = np.lexsort((indices, np.repeat(np.arange(stop - start), np.diff(part.indptr))))
        halo = halo_of(starts, far.astype(np.int64))
        blocks.append(CSRBlock(part.indptr.astype(np.int64), indices[order], part.data[order], *halo))
    return MemoryMatrix(tuple(blocks))


@pytest.mark.parametrize("compiled", [0, components.COMPILED])
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("seed", range(3))
def test_weak_edges_join_nothing(
    seed: int, dtype: type, compiled: int, tmp_path: object, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(components, "COMPILED", compiled)
    rng = np.random.default_rng(seed)
    n, starts = 120, [0, 50, 51, 90, 120]
    i, j = rng.integers(0, n, (2, 130))
    weight = np.where(rng.random(130) < 0.4, 1e-12, 1.0) * rng.uniform(0.5, 1, 130)
    matrix = csr_array((weight.astype(dtype), (i, j)), shape=(n, n))
    matrix = csr_array(matrix.maximum(matrix.T) + 2 * csr_array((np.ones(n, dtype), (range(n), range(n)))))
    degree = np.asarray(matrix.sum(axis=1), np.float64)
    for b, (start, stop) in enumerate(pairwise(starts)):
        write_array(f"{tmp_path}/degree/{b}", degree[start:stop])
    found = find_components(
        blocks_of(matrix, starts), Exchange(f"{tmp_path}/exchange"), f"{tmp_path}/", degree=f"{tmp_path}/degree"
    )
    row = np.repeat(np.arange(n), np.diff(matrix.indptr))
    joins = matrix.data > RESOLVED * np.sqrt(degree[row] * degree[matrix.indices])
    count, member = connected_components(csr_array((joins[joins], (row[joins], matrix.indices[joins])), shape=(n, n)))
    sizes, first = np.bincount(member), np.unique(member, return_index=True)[1]
    rank = np.empty(count, int)
    rank[np.lexsort((first, -sizes))] = np.arange(count)
    labels = np.concatenate([read_array(f"{tmp_path}/labels/{b}") for b in range(len(starts) - 1)])
    assert 0 < (~joins).sum() < len(joins)
    assert found["components"] == count
    assert found["sizes"] == np.sort(sizes)[::-1].tolist()
    np.testing.assert_array_equal(labels, rank[member])
