"""The compiled union of edges is that of the sort, and both are the symmetric graph."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bigembed.neighbors.graph_blocks import outbox_block, senders_of
from bigembed.neighbors.graph_stages import join_block, reverse_block, union_block, union_compiled
from bigembed.store.arrays import read_array, write_array
from bigembed.store.exchange import Exchange


def lists(seed: int, n: int, k: int, dtype: type) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Lists of a random graph with symmetric values (some of them 0), and the dense joined matrix."""
    generator = np.random.default_rng(seed)
    ids = np.array([generator.permutation(np.delete(np.arange(n), i))[:k] for i in range(n)], np.int64).reshape(n, k)
    values = np.abs(generator.integers(0, 5, size=(n, n))).astype(dtype)
    values = np.maximum(values, values.T)
    joined = np.zeros((n, n), bool)
    np.put_along_axis(joined, ids, True, axis=1)
    joined |= joined.T | np.eye(n, dtype=bool)
    np.fill_diagonal(values, 0)
    return ids, np.take_along_axis(values, ids, axis=1), np.where(joined, values, np.nan)


def cut(generator: np.random.Generator, n: int) -> list[int]:
    return [0, *np.sort(generator.choice(np.arange(1, n), min(3, n - 1), replace=False)).tolist(), n]


@settings(max_examples=12)
@given(st.integers(0, 99), st.integers(3, 60), st.integers(1, 9), st.sampled_from([np.float32, np.float64]))
def test_the_blocks_are_the_dense_graph(tmp_path_factory, seed, n, k, dtype):
    ids, squared, joined = lists(seed, n, min(k, n - 1), dtype)
    starts = cut(np.random.default_rng(seed), n)
    blocks = range(len(starts) - 1)
    path = tmp_path_factory.mktemp("union")
    exchange = Exchange(str(path / "exchange"))
    for b in blocks:
        write_array(f"{path}/neighbors/{b}", ids[starts[b] : starts[b + 1]])
        write_array(f"{path}/squared/{b}", squared[starts[b] : starts[b + 1]])
    shared = {"lists": str(path), "starts": starts, "exchange": exchange}
    senders = senders_of([reverse_block(b, **shared) for b in blocks])
    assert all(b not in senders[b] for b in blocks)  # what stays at home does not travel
    found = [join_block(b, senders[b], **shared, out=f"{path}/out/") for b in blocks]
    assert sum(part["edges"] for part in found) == np.count_nonzero(~np.isnan(joined)) - n
    assert sum(part["zero_edges"] for part in found) == np.count_nonzero(joined == 0) - n
    askers = senders_of([part["halo_of"] for part in found])
    for b in blocks:
        out = f"{path}/out"
        near = np.arange(starts[b], starts[b + 1])
        source, offsets = read_array(f"{out}/halo_sources/{b}"), read_array(f"{out}/halo_offsets/{b}")
        far = np.repeat(np.array(starts)[source], np.diff(offsets)) + read_array(f"{out}/halo_rows/{b}")
        indptr, indices = read_array(f"{out}/indptr/{b}"), read_array(f"{out}/indices/{b}")
        dense = np.full((len(near), n), np.nan)
        dense[np.repeat(near - starts[b], np.diff(indptr)), np.concatenate([near, far])[indices]] = read_array(
            f"{out}/squared/{b}"
        )
        np.testing.assert_array_equal(dense, joined[starts[b] : starts[b + 1]])
        assert (np.diff(indices)[np.setdiff1d(np.arange(len(indices) - 1), indptr[1:-1] - 1)] > 0).all()
        outbox_block(b, askers[b], exchange=exchange, out=f"{out}/")
        assert read_array(f"{out}/outbox_destinations/{b}").tolist() == askers[b]


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize(("n", "k"), [(2, 1), (40, 39), (900, 7)])
def test_compiled_or_not_the_block_is_the_same(n, k, dtype):
    ids, squared, _ = lists(n, n, k, dtype)
    starts = [0, n // 3, n - n // 4, n] if n > 2 else [0, 1, 2]
    edge = np.dtype([("row", np.int32), ("source", np.int64), ("squared", dtype)])
    source, place = np.divmod(np.arange(n * k), k)
    for b in range(len(starts) - 1):
        inside = (ids.ravel() >= starts[b]) & (ids.ravel() < starts[b + 1])
        outside = (source < starts[b]) | (source >= starts[b + 1])
        chosen = np.flatnonzero(inside & outside)
        received = np.empty(len(chosen), edge)
        received["row"] = ids.ravel()[chosen] - starts[b]
        received["source"] = source[chosen]
        received["squared"] = squared[source[chosen], place[chosen]]
        own = slice(starts[b], starts[b + 1])
        expected = union_block(b, ids[own], squared[own], received, starts)
        got = union_compiled(b, ids[own], squared[own], received, starts)
        for name in ("indptr", "indices", "data", "halo_sources", "halo_offsets", "halo_rows"):
            a, e = getattr(got, name), getattr(expected, name)
            assert a.dtype == e.dtype
            np.testing.assert_array_equal(a, e)
