"""Candidates in one space, order in another: against dense references."""

from __future__ import annotations

from pathlib import Path

import dask.array as da
import numpy as np
import pytest

import bigembed as be
from bigembed.errors import InputError, RecallWarning, StaleError
from bigembed.neighbors.search import rerank
from bigembed.neighbors.search.recall import exact_neighbors, recall_at
from bigembed.neighbors.search.rerank import block_cells, compiled_pair_distances, pair_distances
from bigembed.runtime.blocks import Array

from .test_graph import dense

pytestmark = [
    pytest.mark.filterwarnings("ignore::bigembed.errors.RecallWarning"),
    pytest.mark.filterwarnings("ignore::bigembed.errors.MapWarning"),
]


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


@pytest.mark.parametrize("dtype", [np.float64, np.float32])
def test_a_small_graph_is_that_of_the_definition(dtype: type) -> None:
    X, Z = spaces(400, dtype=dtype)
    graph = be.build_neighbor_graph(X, 6, candidates=Z, n_candidates=30)
    np.testing.assert_allclose(dense(graph), hybrid(X, Z, 6, 30), rtol=1e-5)
    assert not np.array_equal(np.isfinite(dense(graph)), np.isfinite(hybrid(X, Z, 6, 20)))  # a control
    assert graph.n_features == 12
    assert graph.n_neighbors == 6


def test_across_blocks_it_is_the_same(small_blocks: None, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rerank, "EXACT_ROWS", 0)
    X, Z = spaces(1500)
    graph = be.build_neighbor_graph(X, 6, candidates=Z, n_candidates=30, recall=1.0)
    assert len(graph.matrix.rows) > 3
    np.testing.assert_allclose(dense(graph), hybrid(X, Z, 6, 30))
    lazy = be.build_neighbor_graph(
        da.from_array(X, chunks=(217, 5)), 6, candidates=da.from_array(Z, chunks=(400, 2)), n_candidates=30, recall=1.0
    )
    np.testing.assert_array_equal(dense(lazy), dense(graph))


def test_wide_rows_come_in_smaller_blocks_than_their_candidates(small_blocks: None) -> None:
    cell_starts = np.array([0, 190, 400, 580, 800, 990, 1000, 1500])
    found = block_cells(cell_starts, np.array([0, 5, 7]), 400)
    assert found.tolist() == [0, 1, 3, 5, 6, 7]
    assert block_cells(cell_starts, np.array([0, 5, 7]), 10_000).tolist() == [0, 5, 7]


def test_recall_is_that_of_the_space_that_orders() -> None:
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


def test_recall_in_a_third_space() -> None:
    X, Z = spaces(500)
    Y = X[:, :6]
    graph = be.build_neighbor_graph(Y, 10, candidates=Z, n_candidates=40)
    found = graph.recall_in(X, rows=500)
    near = np.argsort(squared_of(Z), axis=1, kind="stable")[:, :40]
    inside = np.take_along_axis(squared_of(Y), near, 1)
    lists = np.take_along_axis(near, np.argsort(inside, axis=1, kind="stable")[:, :10], 1)
    true = np.argsort(squared_of(X), axis=1, kind="stable")[:, :10]
    assert found.recall == pytest.approx(recall_at(lists, true).mean())
    assert found.rows == 500
    plain = be.build_neighbor_graph(Z, 10).recall_in(X, rows=500)
    assert plain.recall < found.recall - 0.05  # a control: without the second space it is worse
    assert be.build_neighbor_graph(X, 10).recall_in(X).recall == 1.0
    assert abs(graph.recall_in(X, rows=200).recall - found.recall) < 4 * graph.recall_in(X, rows=200).standard_error


def test_a_graph_serves_as_candidates_and_as_a_graph() -> None:
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


def test_it_is_kept_and_resumed(tmp_path: Path) -> None:
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


def test_what_cannot_be() -> None:
    X, Z = spaces(100)
    with pytest.raises(InputError, match="among 99 rows, X has 100"):
        be.build_neighbor_graph(X, 5, candidates=Z[:99])
    with pytest.raises(InputError, match="n_neighbors=20 of n_candidates=10"):
        be.build_neighbor_graph(X, 20, candidates=Z, n_candidates=10)
    with pytest.raises(InputError, match="from 1 to 99"):
        exact_neighbors(X, np.arange(3), 100)
    with pytest.raises(InputError, match="numbered 0 to 99"):
        exact_neighbors(X, np.array([100]), 3)


def test_compiled_distances_have_the_same_bits() -> None:
    generator = np.random.default_rng(0)
    for dtype in (np.float32, np.float64):
        rows, others = (generator.normal(size=(n, 37)).astype(dtype) for n in (50, 60))
        i, j = generator.integers(0, 50, 500), generator.integers(0, 60, 500)
        np.testing.assert_array_equal(compiled_pair_distances(rows, others, i, j), pair_distances(rows, others, i, j))


def test_exact_neighbors_of_some_rows(small_blocks: None) -> None:
    X = np.random.default_rng(1).integers(0, 9, (1200, 3)).astype(np.float32)  # many ties: the smaller number wins
    numbers = np.array([1100, 0, 450, 7])
    ids, squared = exact_neighbors(da.from_array(X, chunks=(333, 2)), numbers, 12)
    wanted = squared_of(X)[numbers]
    np.testing.assert_array_equal(ids, np.argsort(wanted, axis=1, kind="stable")[:, :12])
    np.testing.assert_array_equal(squared, np.sort(wanted, axis=1)[:, :12].astype(np.float32))
