"""The stored graph: edges, components, radius, and the query against it."""

from __future__ import annotations

import shutil
from collections import namedtuple
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.sparse import csr_array
from scipy.sparse.csgraph import connected_components
from scipy.spatial.distance import cdist

import bigembed as be
from bigembed.distance import paired_squared
from bigembed.errors import InputError, PlanError, RecallWarning
from bigembed.maps.graph_rows import Repeats
from bigembed.neighbors import components, query, radius
from bigembed.neighbors.components import RESOLVED, _smallest, find_components
from bigembed.neighbors.given.query import join_within, radius_index_of
from bigembed.neighbors.graph_blocks import outbox_block, senders_of
from bigembed.neighbors.graph_stages import join_block, reverse_block, union_block, union_compiled
from bigembed.neighbors.order import scatter_block
from bigembed.neighbors.partition import assign_block, balanced_centers, cells_block, kmeans
from bigembed.neighbors.query import Index, join_rows
from bigembed.neighbors.search import ground_truth as expected_recall
from bigembed.neighbors.search import probes
from bigembed.neighbors.search import probes as shortlist
from bigembed.neighbors.survey import Shape, prepare, shape_in
from bigembed.rows import RowBlock
from bigembed.store.arrays import read_array, write_array
from bigembed.store.exchange import Exchange
from bigembed.store.matrix import CSRBlock, MemoryMatrix, StoredMatrix, halo_of, write_structure, write_values
from tests.some import a_few


def reference(X: np.ndarray, k: int) -> np.ndarray:
    """Dense symmetric k-nearest graph of distances, ties by id; inf where there is no edge."""
    squared = ((X[:, None].astype(float) - X[None].astype(float)) ** 2).sum(axis=2)
    np.fill_diagonal(squared, np.inf)
    near = np.argsort(squared, axis=1, kind="stable")[:, :k]
    joined = np.zeros(squared.shape, bool)
    np.put_along_axis(joined, near, True, axis=1)
    return np.where(joined | joined.T, np.sqrt(squared), np.inf)


def dense(graph: be.NeighborGraph) -> np.ndarray:
    out = np.full((graph.n, graph.n), np.inf)
    sparse = graph.to_scipy().tocoo()
    out[sparse.row, sparse.col] = sparse.data
    return out


def index_of(graph: be.NeighborGraph) -> Index:
    return query.index_of(graph.run, shape_in(graph.run.results("survey")))


class TestGraph:
    """The stored graph against dense references, and the query against the graph."""

    @pytest.mark.parametrize("dtype", [np.float64, np.float32, np.float16, np.uint8, np.int64])
    def test_a_small_graph_is_exact(self, dtype: type) -> None:
        X = (np.random.default_rng(0).normal(size=(300, 4)) * 20 + 100).astype(dtype)
        graph = be.build_neighbor_graph(X, 7)
        assert graph.recall == 1.0
        if np.issubdtype(dtype, np.integer) or dtype == np.float16:  # ties: the lengths agree, whatever the choice
            np.testing.assert_allclose(
                np.sort(dense(graph), axis=1)[:, :7], np.sort(reference(X, 7), axis=1)[:, :7], rtol=1e-6
            )
        else:
            np.testing.assert_allclose(dense(graph), reference(X, 7), rtol=1e-6)

    def test_across_blocks_the_graph_is_that_of_the_probed_cells_and_recall_is_measured(
        self, small_blocks: None
    ) -> None:
        X = np.random.default_rng(0).normal(size=(1500, 3))
        graph = be.build_neighbor_graph(X, 8, recall=0.95)
        assert len(graph.matrix.rows) > 3
        wanted, got = np.isfinite(reference(X, 8)), np.isfinite(dense(graph))
        assert (got & wanted).sum() / wanted.sum() >= 0.95
        assert graph.recall >= 0.95
        assert graph.recall < 0.9999  # a control: with few probes something is missed, and is seen
        everything = be.build_neighbor_graph(X, 8, recall=1.0)
        np.testing.assert_allclose(dense(everything), reference(X, 8))
        assert everything.recall == 1.0

    @pytest.mark.parametrize("dtype", ["uint8", "int16", "int32", "float16", "bool"])
    def test_narrow_rows_are_stored_as_they_came_and_the_graph_is_that_of_wide_ones(
        self, small_blocks: None, dtype: str
    ) -> None:
        X = np.random.default_rng(2).integers(0, 2 if dtype == "bool" else 100, (900, 12)).astype(dtype)
        wide = X.astype(np.float64 if dtype == "int32" else np.float32)
        graph, other = be.build_neighbor_graph(X, 6), be.build_neighbor_graph(wide, 6)
        for path, kind in ((graph.run.path("order", "rows/0"), dtype), (other.run.path("order", "rows/0"), wide.dtype)):
            assert read_array(path).dtype == kind
        np.testing.assert_array_equal(graph.original_ids(), other.original_ids())
        for b in range(len(graph.matrix.rows)):
            for one, same in zip(vars(graph.matrix.block(b)).values(), vars(other.matrix.block(b)).values()):
                assert one.dtype == same.dtype
                np.testing.assert_array_equal(one, same)
        scaled = be.build_neighbor_graph(X[:, :8] + np.ones(8, X.dtype), 6, metric="cosine")  # (a control)
        assert read_array(scaled.run.path("order", "rows/0")).dtype in (np.float32, np.float64)

    @pytest.mark.parametrize(("dtype", "value"), [("uint8", 0.5), ("uint8", 256), ("int16", -(1 << 15) - 1)])
    def test_rows_that_a_narrow_dtype_would_change_are_not_written(
        self, dtype: str, value: float, tmp_path: Path
    ) -> None:
        write_array(tmp_path / "centers", np.zeros((1, 2), np.float32))
        shape, exchange = Shape(3, 2, "float32", "euclidean"), Exchange(str(tmp_path / "exchange"))
        rows = np.array([[1, 2], [3, 4], [5, value]], np.float32)
        given = {"dtype": np.dtype(dtype), "centers": str(tmp_path / "centers"), "exchange": exchange}
        with pytest.raises(InputError, match=rf"declared as {dtype}.*in row 12, {float(value)}"):
            scatter_block(RowBlock(0, 10, rows), shape=shape, **given)
        scatter_block(RowBlock(0, 10, rows[:2]), shape=shape, **given)

    @pytest.mark.parametrize(("columns", "dtype"), [(1 << 16, "uint16"), ((1 << 16) + 1, "int32")])
    def test_columns_are_written_in_16_bits_where_these_are_enough(
        self, columns: int, dtype: str, tmp_path: Path
    ) -> None:
        far = np.arange(columns - 2, dtype=np.int32)
        starts, last = [0, 2, columns], np.array([0, columns - 1, 1], np.int32)
        block = CSRBlock(np.array([0, 2, 3]), last, np.ones(3, np.float32), *halo_of(starts, far + 2))
        write_structure(str(tmp_path), 0, block)
        write_values(str(tmp_path / "squared"), 0, block.data)
        assert read_array(tmp_path / "indices" / "0").dtype == dtype
        found = StoredMatrix(str(tmp_path), str(tmp_path / "squared"), (2, columns - 2), "").block(0)
        assert found.indices.dtype == np.int32
        np.testing.assert_array_equal(found.indices, last)

    def test_rows_that_repeat_others_are_those_of_edges_of_length_0(self, small_blocks: None) -> None:
        X = np.random.default_rng(3).normal(size=(900, 3))
        X[500:800] = X[100:400]
        X[820:830] = X[100]
        graph = be.build_neighbor_graph(X, 6)
        matrix, ids = graph.matrix, graph.original_ids()
        starts, found = np.cumsum([0, *matrix.rows]), {}
        for b in range(len(matrix.rows)):
            stored = Repeats(graph.run.path("graph", "repeats"), ())
            earlier = Repeats("", tuple(starts.tolist()), matrix)  # (a version that did not write them down)
            for one, other in zip(stored.block(b), earlier.block(b), strict=True):
                np.testing.assert_array_equal(one, other)
            rows, firsts = stored.block(b)
            found |= dict(zip((rows + starts[b]).tolist(), firsts.tolist(), strict=True))
        assert len(found) == 310
        assert all(first < row and (X[ids[row]] == X[ids[first]]).all() for row, first in found.items())

    @pytest.mark.parametrize("data", ["plain", "duplicates", "grid", "longer lists"])
    def test_a_row_of_the_training_set_is_joined_exactly_as_in_the_graph(
        self, small_blocks: None, data: str, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        if data == "longer lists":
            monkeypatch.setattr(shortlist, "SHORTLIST", 2)
            monkeypatch.setattr(expected_recall, "LONGER", (3, 4))
            monkeypatch.setattr(probes, "BYTE", 2)  # (a bit for each cell of a list)
        generator = np.random.default_rng(1)
        X = generator.normal(size=(900, 3)).astype(np.float32)
        if data == "duplicates":
            X[300:600] = X[:300]
        if data == "grid":
            X = np.stack(np.meshgrid(*[np.arange(10.0)] * 3), axis=-1).reshape(-1, 3)[:900].astype(np.float32)
        graph = be.build_neighbor_graph(X, 6, recall=0.96 if data == "longer lists" else 0.9)
        assert ("shortlist" in graph.run.results("search")) == (data == "longer lists")
        matrix, starts, ids = graph.matrix, np.cumsum([0, *graph.matrix.rows]), graph.original_ids()
        joined = join_rows(prepare(X[ids], Shape(900, 3, "float32", "euclidean")), index_of(graph))
        seen: set[bytes] = set()
        for b, count in enumerate(matrix.rows):
            block = matrix.block(b)
            own = np.arange(starts[b], starts[b + 1])
            far = np.repeat(starts[block.halo_sources], np.diff(block.halo_offsets)) + block.halo_rows
            column = np.concatenate([own, far])[block.indices]
            for row in range(count):
                i = starts[b] + row
                if X[ids[i]].tobytes() in seen:
                    continue  # of identical rows a query is the one with the lowest internal id
                seen.add(X[ids[i]].tobytes())
                mine = slice(block.indptr[row], block.indptr[row + 1])
                theirs = slice(joined.indptr[i], joined.indptr[i + 1])
                order = np.argsort(column[mine])
                np.testing.assert_array_equal(joined.ids[theirs], column[mine][order])
                np.testing.assert_array_equal(joined.squared[theirs], block.data[mine][order])

    def test_components_agree_with_scipy(self, small_blocks: None, tmp_path: object) -> None:
        generator = np.random.default_rng(3)
        X = np.concatenate(
            [generator.normal(size=(size, 2)) + 50 * number for number, size in enumerate((500, 300, 90, 20))]
        )
        graph = be.build_neighbor_graph(X[generator.permutation(len(X))], 5)
        out = f"{tmp_path}/"
        found = find_components(graph.matrix, Exchange(f"{out}exchange"), out)
        count, labels = connected_components(graph.to_scipy(), directed=False)
        assert found["components"] == count
        assert found["sizes"] == sorted(np.bincount(labels).tolist(), reverse=True)

    @pytest.mark.parametrize(
        ("X", "message"),
        [
            (np.zeros((0, 3)), "0 sample"), (np.zeros((5, 0)), "0 feature"), (np.zeros(5), "2D array"),
            (np.full((50, 2), np.nan), "NaN"), (np.full((50, 2), np.inf), "infinity"),
            (np.zeros((5, 2)), "n_neighbors=15"), (np.zeros((1, 2)), "n_samples = 1"),
        ],
    )  # fmt: skip
    def test_bad_rows_are_named(self, X: np.ndarray, message: str) -> None:
        with pytest.raises(InputError, match=message):
            be.build_neighbor_graph(X, 15)

    def test_rows_of_zeros_have_no_cosine(self) -> None:
        X = np.ones((50, 3))
        X[[7, 9]] = 0
        with pytest.raises(InputError, match=r"rows \[7, 9\]"):
            be.build_neighbor_graph(X, 5, metric="cosine")

    def test_a_recall_below_the_target_is_a_warning(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr("bigembed.neighbors.search.ground_truth.choose_probes", lambda curve, target, pairs: 1)
        X = np.random.default_rng(0).normal(size=(9_000, 12)).astype("f4")
        with pytest.warns(
            RecallWarning, match=r"recall of the neighbor graph is 0\.\d+ ± .* below the target 0.99"
        ) as caught:
            graph = be.build_neighbor_graph(X, 8)
        assert graph.recall < 0.99
        assert caught[0].filename == __file__


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


class TestEdges:
    """The compiled union of edges is that of the sort, and both are the symmetric graph."""

    @settings(max_examples=6)
    @given(st.integers(0, 99), st.integers(3, 60), st.integers(1, 9), st.sampled_from([np.float32, np.float64]))
    def test_the_blocks_are_the_dense_graph(self, tmp_path_factory, seed, n, k, dtype):
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
    def test_compiled_or_not_the_block_is_the_same(self, n, k, dtype):
        ids, squared, _ = lists(n, n, k, dtype)
        starts = [0, n // 3, n - n // 4, n] if n > 2 else [0, 1, 2]
        source, place = np.divmod(np.arange(n * k), k)
        for b in range(len(starts) - 1):
            inside = (ids.ravel() >= starts[b]) & (ids.ravel() < starts[b + 1])
            outside = (source < starts[b]) | (source >= starts[b + 1])
            chosen = np.flatnonzero(inside & outside)
            row = (ids.ravel()[chosen] - starts[b]).astype(np.int32)
            received = [row, source[chosen], squared[source[chosen], place[chosen]]]
            own = slice(starts[b], starts[b + 1])
            expected = union_block(b, ids[own], squared[own], received, starts)
            got = union_compiled(b, ids[own].copy(), squared[own], received, starts)
            for name in ("indptr", "indices", "data", "halo_sources", "halo_offsets", "halo_rows"):
                a, e = getattr(got, name), getattr(expected, name)
                assert a.dtype == e.dtype
                np.testing.assert_array_equal(a, e)


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


class TestComponents:
    """Components of weights whose weak edges join nothing, across blocks, against SciPy."""

    @pytest.mark.parametrize("compiled", [0, components.COMPILED])
    @pytest.mark.parametrize("dtype", [np.float32, np.float64])
    @pytest.mark.parametrize("seed", range(3))
    def test_weak_edges_join_nothing(
        self, seed: int, dtype: type, compiled: int, tmp_path: object, monkeypatch: pytest.MonkeyPatch
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
        count, member = connected_components(
            csr_array((joins[joins], (row[joins], matrix.indices[joins])), shape=(n, n))
        )
        sizes, first = np.bincount(member), np.unique(member, return_index=True)[1]
        rank = np.empty(count, int)
        rank[np.lexsort((first, -sizes))] = np.arange(count)
        labels = np.concatenate([read_array(f"{tmp_path}/labels/{b}") for b in range(len(starts) - 1)])
        assert 0 < (~joins).sum() < len(joins)
        assert found["components"] == count
        assert found["sizes"] == np.sort(sizes)[::-1].tolist()
        np.testing.assert_array_equal(labels, rank[member])


def wanted(X: np.ndarray, within: float) -> np.ndarray:
    """Dense lengths, inf where there is no edge."""
    lengths = cdist(X.astype(float), X.astype(float))
    lengths[lengths > within] = np.inf
    np.fill_diagonal(lengths, np.inf)
    return lengths


class TestRadius:
    """The graph of all rows within a radius, against every pair."""

    @a_few(1, "dtype", [np.float32, np.float64])
    @pytest.mark.parametrize("d", [1, 3, 9])
    def test_every_pair_within_the_radius_and_no_other(self, small_blocks: None, dtype: type, d: int) -> None:
        X = (np.random.default_rng(0).normal(size=(1500, d)) * 3 + 50).astype(dtype)
        within = float(np.quantile(cdist(X[:200], X[:200]), 0.02))
        graph = be.build_neighbor_graph(X, radius=within)
        assert len(graph.matrix.rows) > 3
        assert graph.radius == within
        assert graph.n_neighbors is None
        assert graph.recall == 1.0
        got, true = dense(graph), wanted(X, within)
        np.testing.assert_array_equal(np.isfinite(got), np.isfinite(true))
        np.testing.assert_allclose(got, true, rtol=1e-6)
        assert graph.edges == np.isfinite(true).sum()
        assert not (np.isfinite(got) == np.isfinite(wanted(X, 1.01 * within))).all()  # a control: a little more is seen

    def test_rows_at_the_very_radius_are_joined(self, small_blocks: None) -> None:
        X = np.stack(np.meshgrid(*[np.arange(12.0)] * 3), axis=-1).reshape(-1, 3)
        graph = be.build_neighbor_graph(X, radius=1.0)
        assert graph.edges == 3 * 2 * 12 * 12 * 11
        assert be.build_neighbor_graph(X, radius=0.999).edges == 0

    def test_a_new_row_is_joined_to_all_within_the_radius_in_any_batch(
        self, small_blocks: None, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        generator = np.random.default_rng(1)
        X, new = generator.normal(size=(1200, 3)), generator.normal(size=(60, 3)) * 1.5
        graph = be.build_neighbor_graph(X, radius=0.4)
        ids, index = graph.original_ids(), radius_index_of(graph.run)
        [(order, together)] = join_within(new, index)
        lengths = cdist(new, X[ids])
        assert sorted(order) == list(range(60))
        for at, i in enumerate(order):
            mine = slice(together.indptr[at], together.indptr[at + 1])
            np.testing.assert_array_equal(together.ids[mine], np.flatnonzero(lengths[i] <= 0.4))
            [(_, alone)] = join_within(new[i : i + 1], index)
            np.testing.assert_array_equal(alone.squared, together.squared[mine])
        assert (np.diff(together.indptr) == 0).any()  # far rows are joined to none
        [(order, own)] = join_within(X[ids[:50]], index)
        assert (own.squared[own.ids == np.repeat(order, np.diff(own.indptr))] == 0).all()
        monkeypatch.setattr(query, "MAX_PAIRS", 100)
        parts = list(join_within(new, index))
        assert len(parts) > 1
        np.testing.assert_array_equal(np.concatenate([part.ids for _, part in parts]), together.ids)

    def test_too_many_edges_are_refused_before_they_are_written(self, monkeypatch: pytest.MonkeyPatch) -> None:
        X = np.random.default_rng(0).normal(size=(2000, 3))
        monkeypatch.setattr(radius, "BLOCK_EDGES", 100_000)
        with pytest.raises(
            PlanError, match=r"radius=2 joins a row to .* others on average.*radius=\S+ would join"
        ) as e:
            be.build_neighbor_graph(X, radius=2.0)
        proposed = float(str(e.value).split("radius=")[2].split()[0])
        graph = be.build_neighbor_graph(X, radius=proposed)
        assert 10 < graph.edges / 2000 < 22
        Usage = namedtuple("Usage", "total used free")
        monkeypatch.setattr(shutil, "disk_usage", lambda _: Usage(0, 0, 1000))
        with pytest.raises(PlanError, match="free"):
            be.build_neighbor_graph(X, radius=proposed)

    def test_a_dense_spot_that_the_sample_does_not_see_stops_the_block(self, monkeypatch: pytest.MonkeyPatch) -> None:
        generator = np.random.default_rng(0)
        X = np.concatenate([generator.normal(size=(400, 2)) * 1e-6, generator.normal(size=(4000, 2)) * 100])
        monkeypatch.setattr(radius, "BLOCK_EDGES", 100_000)
        monkeypatch.setattr(radius, "_refuse", lambda *_: None)
        with pytest.raises(PlanError, match="densest"):
            be.build_neighbor_graph(X, radius=0.01)


def nearest_by_definition(rows, centers):
    squared = np.stack([paired_squared(rows, np.broadcast_to(c, rows.shape)) for c in centers], axis=1)
    return squared.argmin(axis=1), squared


class TestPartition:
    """Partitions and cells: sizes, nearest centers exactly, independence of the batch, degenerate rows."""

    @pytest.fixture
    def blobs(self):
        generator = np.random.default_rng(0)
        centers = generator.normal(size=(6, 4)) * 20
        labels = np.repeat(np.arange(6), 100)
        return (centers[labels] + generator.normal(size=(600, 4))).astype(np.float32), labels

    def test_kmeans_means_are_fixed_points(self, blobs):
        """At convergence every center is the mean of the rows nearest to it."""
        rows, _ = blobs
        centers = kmeans(rows, 6, 1, iterations=60)
        labels, _ = nearest_by_definition(rows, centers)
        for c in range(6):
            np.testing.assert_allclose(centers[c], rows[labels == c].mean(axis=0), rtol=1e-4, atol=1e-4)
        np.testing.assert_array_equal(centers, kmeans(rows, 6, 1, iterations=60))

    @pytest.mark.parametrize("dtype", [np.float32, np.float64])
    def test_assign_block_is_the_nearest_center_in_any_batch(self, dtype):
        generator = np.random.default_rng(3)
        rows = generator.integers(-3, 4, size=(500, 3)).astype(dtype) + dtype(1000)
        centers = np.unique(generator.integers(-3, 4, size=(40, 3)), axis=0).astype(dtype) + dtype(1000)
        centers = centers[generator.permutation(len(centers))]
        expected, _ = nearest_by_definition(rows, centers)  # argmin: ties to the lowest number
        numbers = np.arange(500)
        labels = assign_block(rows, numbers, centers)
        assert labels.dtype == np.int32
        np.testing.assert_array_equal(labels, expected)
        one_by_one = [assign_block(rows[i : i + 1], numbers[i : i + 1], centers)[0] for i in range(100)]
        np.testing.assert_array_equal(one_by_one, expected[:100])

    def test_balanced_centers_fit_the_largest_share(self, blobs):
        rows, _ = blobs
        uneven = np.concatenate([rows, np.repeat(rows[:1], 900, axis=0)])  # 60 % of the sample is one point
        centers = balanced_centers(uneven, 5, 0.15, seed=0)
        counts = np.bincount(assign_block(uneven, np.arange(len(uneven)), centers), minlength=len(centers))
        assert counts.max() <= 0.15 * len(uneven)
        assert len(centers) >= 7
        copies = (centers == rows[0]).all(axis=1).sum()
        assert copies >= 4

    @pytest.mark.parametrize("kind", ["blobs", "equal", "line", "few"])
    def test_cells_partition_the_rows(self, kind, blobs):
        generator = np.random.default_rng(1)
        rows = {
            "blobs": blobs[0],
            "equal": np.full((700, 3), 0.1, np.float32),
            "line": generator.random((1000, 1)),
            "few": blobs[0][:3],
        }[kind]
        order, offsets, centers = cells_block(rows, 32, seed=0)
        np.testing.assert_array_equal(np.sort(order), np.arange(len(rows)))
        sizes = np.diff(offsets)
        assert offsets[0] == 0
        assert offsets[-1] == len(rows)
        assert sizes.min() > 0
        assert sizes.max() <= 64
        assert centers.shape == (len(sizes), rows.shape[1])
        assert centers.dtype == rows.dtype
        _, squared = nearest_by_definition(rows, centers)
        for c, (start, stop) in enumerate(pairwise(offsets)):
            mine = order[start:stop]
            assert (np.diff(mine) > 0).all()  # as given inside a cell
            assert (squared[mine, c] == squared[mine].min(axis=1)).all()
        for again, first in zip(cells_block(rows, 32, seed=0), (order, offsets, centers)):
            np.testing.assert_array_equal(again, first)


@given(st.lists(st.sampled_from([0, 1, 2, np.inf, np.nan]), min_size=1, max_size=30), st.integers(1, 40))
def test_the_smallest_are_those_of_a_stable_sort(values: list[float], count: int) -> None:
    array = np.array(values, np.float32)
    expected = np.argsort(array, kind="stable")[:count]
    np.testing.assert_array_equal(_smallest(array, count), expected)
