"""Small operators as SciPy and formulas know them: a matrix cut into blocks, a view of an operator, its symmetry."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from scipy import sparse
from scipy.sparse.linalg import LinearOperator

from bigembed.errors import InputError
from bigembed.linalg import SymmetricOperator
from bigembed.runtime.blocks import Array, offsets
from bigembed.store.matrix import CSRBlock, MemoryMatrix, halo_of
from bigembed.store.vector_space import assembled, tree_sum


def memory_matrix(matrix: Any, bounds: Sequence[tuple[int, int]]) -> MemoryMatrix:
    """Cut a SciPy sparse matrix into blocks of the rows ``[start, stop)``, in order and without gaps."""
    csr = sparse.csr_array(matrix)
    n = csr.shape[0]
    edges = [start for start, _ in bounds] + [bounds[-1][1] if bounds else 0]
    if csr.shape != (n, n) or edges[0] != 0 or edges[-1] != n or [stop for _, stop in bounds] != edges[1:]:
        raise InputError(f"bounds {list(bounds)} do not cut a matrix of shape {csr.shape} into consecutive row blocks")
    return MemoryMatrix(tuple(_cut(csr, start, stop, np.asarray(edges)) for start, stop in bounds))


def _cut(csr: Any, start: int, stop: int, edges: Array) -> CSRBlock:
    part = csr[start:stop].tocsr()
    columns = part.indices.astype(np.int64)
    own = (columns >= start) & (columns < stop)
    far = np.unique(columns[~own])
    local = np.where(own, columns - start, stop - start + np.searchsorted(far, columns))
    part = sparse.csr_array(
        (part.data, local.astype(np.int32), part.indptr), shape=(stop - start, stop - start + len(far))
    )
    part.sort_indices()
    return CSRBlock(part.indptr.astype(np.int64), part.indices.astype(np.int32), part.data, *halo_of(edges, far))


def as_linear_operator(operator: SymmetricOperator) -> LinearOperator:
    """A SciPy view, in memory: for tests and small n. Every product of it is a pass."""
    space = operator.space
    start = offsets(space.rows)
    n = int(start[-1])

    def matmat(x: Array) -> Array:
        columns = np.asarray(x, np.float64).reshape(n, -1)
        space.sweep(_scatter_block, writes=["view.x"], posts=["view.x"], arguments=(columns, start))
        operator.product(["view.x"], ["view.y"])
        y = assembled(space, "view.y")
        space.drop("view.x", "view.y")
        return y

    def matvec(x: Array) -> Array:
        return matmat(x)[:, 0]

    return LinearOperator((n, n), matvec=matvec, matmat=matmat, rmatvec=matvec, rmatmat=matmat, dtype=np.float64)


def dot_test(operator: SymmetricOperator, seed: int = 0) -> float:
    """|⟨Au, v⟩ − ⟨u, Av⟩| / (‖Au‖ ‖v‖) for random u, v: zero up to rounding for a symmetric map. One pass."""
    space = operator.space
    space.sweep(_random_block, writes=["dot.x"], posts=["dot.x"], arguments=(space.rows, seed))
    parts = operator.product(["dot.x"], ["dot.y"], then=_moments_block)
    xy, yy, xx = tree_sum([np.stack(part) for part in parts])
    space.drop("dot.x", "dot.y")
    size = np.sqrt(yy[0, 0] * xx[1, 1])
    return float(abs(xy[0, 1] - xy[1, 0]) / size) if size else 0.0


def _scatter_block(block: int, columns: Array, start: Array) -> tuple[tuple[Array], None]:
    return (columns[start[block] : start[block + 1]],), None


def _random_block(block: int, rows: tuple[int, ...], seed: int) -> tuple[tuple[Array], None]:
    return (np.random.default_rng([seed, block]).standard_normal((rows[block], 2)),), None


def _moments_block(block: int, x: Array, y: Array) -> tuple[tuple[()], tuple[Array, Array, Array]]:
    return (), (x.T @ y, y.T @ y, x.T @ x)
