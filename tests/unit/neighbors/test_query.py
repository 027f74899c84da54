"""New rows of a graph, and candidates in one space that are ordered in another."""

from __future__ import annotations

from pathlib import Path

import dask.array as da
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import bigembed as be
from bigembed.distance import paired_squared
from bigembed.errors import InputError, RecallWarning, StaleError
from bigembed.neighbors import components as module
from bigembed.neighbors import query
from bigembed.neighbors.components import embedded_block, nearest_embedded
from bigembed.neighbors.order import Ordered
from bigembed.neighbors.query import join_batches, join_rows, locate
from bigembed.neighbors.search import exact_neighbors, recall_at, rerank
from bigembed.neighbors.search.by_metric import reverse_cells, reverse_every
from bigembed.neighbors.search.every_block import StoredCells
from bigembed.neighbors.search.probes import group_probes, pack_probes, probe_block, probe_rows, unpack_probes
from bigembed.neighbors.search.rerank import compiled_pair_distances, pair_distances
from bigembed.runtime.blocks import Array, owner_of
from bigembed.store.arrays import read_array, write_array
from tests.blocks import graph_blocks
from tests.unit.neighbors.test_graph import dense, index_of
from tests.unit.neighbors.test_search import DTYPES, KINDS, draw_rows, ordered_cells, probes_of


def all_squared(x, y):
    left, right = np.divmod(np.arange(len(x) * len(y)), len(y))
    return paired_squared(x[left], y[right]).reshape(len(x), len(y)).astype(x.dtype)


def edges_of(joined):
    row = np.repeat(np.arange(len(joined.rho)), np.diff(joined.indptr))
    return {(int(i), int(j)): float(value) for i, j, value in zip(row, joined.ids, joined.squared, strict=True)}


@pytest.fixture(scope="module")
def built():
    with graph_blocks():
        return be.build_neighbor_graph(draw_rows(3, 1500, 4, "normal").astype(np.float32), 6, recall=0.9)


def by_definition(rows, graph):
    """Row by row: the k nearest in the probed cells, and the rows that probe its cell and have it within reach."""
    run, index, k = graph.run, index_of(graph), graph.n_neighbors
    ordered = Ordered.open(run.path("order"))
    cells = StoredCells(ordered)
    whole = np.concatenate([ordered.rows(b) for b in range(len(ordered.blocks))])
    rho = np.concatenate([read_array(run.path("search", f"rho_squared/{b}")) for b in range(len(ordered.blocks))])
    cell_of = np.repeat(np.arange(len(cells.sizes)), cells.sizes)
    lists = np.concatenate([read_array(run.path("shortlist", f"shortlist/{b}")) for b in range(len(ordered.blocks))])
    offsets = cells.starts
    probed = probe_block(whole, offsets, lists, cells.centers, index.n_probes, cells.sizes, k + 1)
    block, cell = locate(rows, ordered, index.centers)
    home = cells.block_starts[block] + cell
    squared, out = all_squared(rows, whole), {}
    for i, row in enumerate(rows):
        mine = probe_block(
            row[None], np.array([0, 1]), lists[home[i]][None], cells.centers, index.n_probes, cells.sizes, k + 1
        )
        candidates = np.flatnonzero(np.isin(cell_of, mine))
        near = candidates[np.lexsort((candidates, squared[i, candidates]))][:k]
        theirs = np.flatnonzero((squared[i] < rho) & (probed == home[i]).any(axis=1))
        out |= {(i, int(j)): float(squared[i, j]) for j in np.union1d(near, theirs)}
    return out


class TestQuery:
    """Edges of new rows against their definition, and each part of the query against brute force."""

    @pytest.fixture
    def graph(self, small_blocks, built):
        return built

    def test_new_rows_are_joined_as_defined(self, graph):
        rows = draw_rows(4, 120, 4, "normal").astype(np.float32)
        joined = join_rows(rows, index_of(graph))
        expected = by_definition(rows, graph)
        assert edges_of(joined) == expected
        nearest_only = sum(min(6, int(size)) for size in np.diff(joined.indptr))
        assert (
            len(expected) > nearest_only
        )  # a control: without the rows that reach the new ones, edges would be missing

    def test_a_crowded_batch_is_divided_and_gives_the_same(self, graph, monkeypatch):
        index = index_of(graph)
        rows = draw_rows(5, 200, 4, "normal").astype(np.float32)
        whole = join_rows(rows, index)
        monkeypatch.setattr(query, "MAX_PAIRS", 100)
        parts = list(join_batches(rows, index))
        assert len(parts) > 3
        assert sorted(np.concatenate([members for members, _ in parts]).tolist()) == list(range(200))
        divided = join_rows(rows, index)
        for name in ("indptr", "ids", "squared", "rho", "block", "cell"):
            np.testing.assert_array_equal(getattr(divided, name), getattr(whole, name))

    def test_rows_that_do_not_probe_their_own_cell_still_find_their_twin(self, graph, monkeypatch):
        index, ordered = index_of(graph), Ordered.open(graph.run.path("order"))
        rows = ordered.rows(0)[:30]
        probes = query.Fitted._probes

        def without_home(self, rows, home):
            found = probes(self, rows, home)
            return np.where(found == home[:, None], -1, found)

        monkeypatch.setattr(query.Fitted, "_probes", without_home)
        joined = join_rows(rows, index)
        for i in range(30):
            mine = slice(joined.indptr[i], joined.indptr[i + 1])
            assert joined.squared[mine][joined.ids[mine] == i] == 0

    @settings(max_examples=12)
    @given(st.integers(0, 99), st.integers(1, 60), st.sampled_from([1, 3, 21]), KINDS, DTYPES)
    def test_the_reverse_search_finds_all_pairs_within_reach(self, seed, m, d, kind, dtype):
        rows, cells = ordered_cells(draw_rows(seed, 200, d, kind, dtype), 24)
        new, homes = ordered_cells(draw_rows(seed + 1, m, d, kind, dtype), 8)
        _, probes = probes_of(rows, cells, 3, 5)
        probes = (probes % (len(homes.numbers) + 1)).astype(np.int32)  # some cells are nobody's
        squared = all_squared(rows, new)
        limits = np.sort(squared, axis=1)[:, min(3, m - 1)].copy()
        home = np.repeat(homes.numbers, np.diff(homes.offsets))
        within = squared <= limits[:, None]
        probed = (probes[:, :, None] == home).any(axis=1)
        for found, expected in (
            (reverse_cells(rows, limits, group_probes(probes), homes), within & probed),
            (reverse_every(rows, limits, new), within),
        ):
            pairs = set(zip(found[0].tolist(), found[1].tolist(), strict=True))
            assert pairs == set(zip(*(part.tolist() for part in np.nonzero(expected)), strict=True))
            np.testing.assert_array_equal(found[2], squared[found[0], found[1]])
        assert ((squared < limits[:, None]) != within).any()  # a control: ties count

    @pytest.mark.parametrize("kind", ["normal", "grid", "equal"])
    @pytest.mark.parametrize("least", [1, 90])
    def test_compiled_probes_are_those_of_the_search_and_pack_into_bytes(self, kind, least):
        rows, cells = ordered_cells(draw_rows(2, 400, 3, kind), 16)
        shortlist, _ = probes_of(rows, cells, 4, 9)
        shortlist = shortlist.copy()
        shortlist[::3, 7:] = -1
        sizes = np.diff(cells.offsets)
        expected = probe_block(rows, cells.offsets, shortlist, cells.centers, 4, sizes, least)
        home = np.repeat(np.arange(len(sizes)), sizes)
        got = probe_rows(rows, home, shortlist, cells.centers, 4, sizes, least)
        np.testing.assert_array_equal(got, expected[:, : got.shape[1]])
        assert (expected[:, got.shape[1] :] == -1).all()
        packed = pack_probes(expected, cells.offsets, shortlist)
        assert packed.dtype == np.uint8
        np.testing.assert_array_equal(unpack_probes(packed, cells.offsets, shortlist), expected)

    @pytest.mark.parametrize("compiled", [False, True])
    def test_the_nearest_embedded_row_is_exact(self, graph, monkeypatch, tmp_path, compiled):
        ordered = Ordered.open(graph.run.path("order"))
        label = np.random.default_rng(0).integers(0, 3, graph.n)
        for b, (start, stop) in enumerate(zip(ordered.starts, ordered.starts[1:], strict=False)):
            write_array(tmp_path / "labels" / str(b), label[start:stop])
        monkeypatch.setattr(module, "EXACT_ROWS", 0 if compiled else 10_000)
        monkeypatch.setattr(module, "_NEAREST_CELLS", 10_000)  # all: then it is the nearest of all rows
        rows = draw_rows(6, 70, 4, "normal").astype(np.float32)
        block, cell = locate(rows, ordered, index_of(graph).centers)
        whole = np.concatenate([ordered.rows(b) for b in range(len(ordered.blocks))])
        squared = np.where(label == 0, all_squared(rows, whole), np.inf)
        got = nearest_embedded(ordered, str(tmp_path / "labels"), rows, block, cell)
        np.testing.assert_array_equal(got, squared.argmin(axis=1))
        monkeypatch.setattr(module, "_NEAREST_CELLS", 1)
        few = nearest_embedded(ordered, str(tmp_path / "labels"), rows, block, cell)
        assert (label[few] == 0).all()
        assert (few != got).any()  # a control: one cell is not enough
        blocks, fixed = range(len(ordered.blocks)), {"ordered": ordered, "labels": str(tmp_path / "labels"), "parts": 1}
        embedded = np.concatenate([embedded_block(b, **fixed) for b in blocks])
        full = np.zeros(len(embedded), bool)
        full[owner_of(StoredCells(ordered).starts, np.flatnonzero(label == 0))] = True
        np.testing.assert_array_equal(embedded, full)
        told = nearest_embedded(ordered, str(tmp_path / "labels"), rows, block, cell, embedded=embedded)
        np.testing.assert_array_equal(told, few)

    def test_runs_of_cells_hold_what_was_asked_for(self, graph, monkeypatch):
        cells = StoredCells(Ordered.open(graph.run.path("order")))
        wanted = np.array([0, 1, 5, len(cells.sizes) - 1])
        for gap in (0, 1 << 20):
            monkeypatch.setattr("bigembed.neighbors.search.every_block.GAP_BYTES", gap)
            pieces = list(cells.spans(wanted))
            numbers = np.concatenate([piece.cells.numbers for piece in pieces])
            assert len(set(numbers.tolist())) == len(numbers)
            assert set(wanted.tolist()) <= set(numbers.tolist())
            if gap == 0:
                np.testing.assert_array_equal(numbers, wanted)
            for piece in pieces:
                rows = cells.ordered.rows(piece.block)[piece.start : piece.stop]
                np.testing.assert_array_equal(piece.cells.rows, rows)
                assert piece.cells.ids[0] == cells.ordered.starts[piece.block] + piece.start
        last = int(cells.block_of(wanted[-1:])[0])
        first = next(cells.spans(wanted, np.array([last])))
        assert first.block == last


def squared_of(X: Array) -> Array:
    squared = ((X[:, None].astype(float) - X[None].astype(float)) ** 2).sum(axis=2)
    np.fill_diagonal(squared, np.inf)
    return squared


def hybrid(X: Array, Z: Array, k: int, candidates: int) -> Array:
    """Distances of the symmetric graph: of the nearest rows by Z the k nearest by X."""
    squared = squared_of(X)
    near = np.argsort(squared_of(Z), axis=1, kind="stable")[:, :candidates]
    inside = np.full(squared.shape, np.inf)
    np.put_along_axis(inside, near, np.take_along_axis(squared, near, 1), 1)
    chosen = np.argsort(inside, axis=1, kind="stable")[:, :k]
    joined = np.zeros(squared.shape, bool)
    np.put_along_axis(joined, chosen, True, axis=1)
    return np.where(joined | joined.T, np.sqrt(squared), np.inf)


def spaces(n: int, d: int = 12, m: int = 3, dtype: type = np.float64) -> tuple[Array, Array]:
    generator = np.random.default_rng(0)
    X = generator.normal(size=(n, d)) * np.geomspace(1, 0.3, d)
    return X.astype(dtype), X[:, :m].astype(dtype)


@pytest.mark.filterwarnings("ignore::bigembed.errors.RecallWarning")
class TestRerank:
    """Candidates in one space, order in another: against dense references."""

    def test_across_blocks_it_is_the_same(self, small_blocks: None, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(rerank, "EXACT_ROWS", 0)
        X, Z = spaces(1500)
        lazy = da.from_array(X, chunks=(217, 5)), da.from_array(Z, chunks=(400, 2))
        graph = be.build_neighbor_graph(lazy[0], 6, candidates=lazy[1], n_candidates=30, recall=1.0)
        assert len(graph.matrix.rows) > 3
        np.testing.assert_allclose(dense(graph), hybrid(X, Z, 6, 30))

    def test_recall_is_that_of_the_space_that_orders(self) -> None:
        X, Z = spaces(600)
        graph = be.build_neighbor_graph(X, 8, candidates=Z, n_candidates=40)
        told = graph.run.results("recall")
        true = np.argsort(squared_of(X), axis=1, kind="stable")[:, :8]
        near = np.argsort(squared_of(Z), axis=1, kind="stable")[:, :40]
        numbers = graph.original_ids()[np.asarray(be.open_array(graph.run.path("witness", "ids")))]
        assert told["recall_before"] == pytest.approx(recall_at(near[numbers, :8], true[numbers]).mean())
        assert told["recall_of_candidates"] == pytest.approx(recall_at(near[numbers], true[numbers]).mean())
        assert told["recall"] == told["recall_of_candidates"]  # ordering by the truth finds all that is there
        assert told["recall_before"] + 0.1 < told["recall"] < 0.99
        assert "Raise n_candidates (40)" in told["advice"]
        everything = be.build_neighbor_graph(X, 8, candidates=Z, n_candidates=599)
        assert everything.recall == 1.0
        assert everything.run.results("recall")["advice"] == ""

    def test_a_graph_serves_as_candidates_and_as_a_graph(self) -> None:
        X, Z = spaces(500)
        given = be.build_neighbor_graph(Z, 30)
        graph = be.build_neighbor_graph(X, 6, candidates=given)
        np.testing.assert_array_equal(dense(graph), dense(be.build_neighbor_graph(X, 6, candidates=Z, n_candidates=30)))
        with pytest.warns(RecallWarning, match="Raise n_candidates"):
            dm = be.DiffusionMap(n_components=2, components="bridge").fit(graph)
        assert dm.embedding_.shape == (500, 2)
        assert dm.certificate_["recall"]["recall"] == graph.recall
        with pytest.raises(InputError, match="30 a row"):
            be.build_neighbor_graph(X, 6, candidates=given, n_candidates=31)
        with pytest.raises(TypeError, match="candidates in another space"):
            dm.transform(X[:3])

    def test_it_is_kept_and_resumed(self, tmp_path: Path) -> None:
        X, Z = spaces(400)
        first = be.build_neighbor_graph(X, 6, candidates=Z, n_candidates=30, workdir=tmp_path / "graph")
        stamps = {path: path.stat().st_mtime_ns for path in tmp_path.rglob("manifest/*.json")}
        assert len(stamps) > 5
        again = be.build_neighbor_graph(X, 6, candidates=Z, n_candidates=30, workdir=tmp_path / "graph")
        assert {path: path.stat().st_mtime_ns for path in tmp_path.rglob("manifest/*.json")} == stamps
        before, recall = dense(first), first.recall
        np.testing.assert_array_equal(dense(again), before)
        other = be.build_neighbor_graph(X, 6, candidates=2 * Z[:, ::-1], n_candidates=30, workdir=tmp_path / "graph")
        np.testing.assert_allclose(dense(other), before)
        with pytest.raises(StaleError, match="since it was opened"):
            first.to_scipy()
        wider = be.build_neighbor_graph(X, 6, candidates=Z, n_candidates=60, workdir=tmp_path / "graph")
        assert wider.recall > recall

    def test_what_cannot_be(self) -> None:
        X, Z = spaces(100)
        with pytest.raises(InputError, match="among 99 rows, X has 100"):
            be.build_neighbor_graph(X, 5, candidates=Z[:99])
        with pytest.raises(InputError, match="n_neighbors=20 of n_candidates=10"):
            be.build_neighbor_graph(X, 20, candidates=Z, n_candidates=10)
        with pytest.raises(InputError, match="from 1 to 99"):
            exact_neighbors(X, np.arange(3), 100)
        with pytest.raises(InputError, match="numbered 0 to 99"):
            exact_neighbors(X, np.array([100]), 3)

    def test_compiled_distances_have_the_same_bits(self) -> None:
        generator = np.random.default_rng(0)
        for dtype in (np.float32, np.float64):
            rows, others = (generator.normal(size=(n, 37)).astype(dtype) for n in (50, 60))
            i, j = generator.integers(0, 50, 500), generator.integers(0, 60, 500)
            np.testing.assert_array_equal(
                compiled_pair_distances(rows, others, i, j), pair_distances(rows, others, i, j)
            )
