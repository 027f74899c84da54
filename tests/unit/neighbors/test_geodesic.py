"""Shortest paths along a graph."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scipy.sparse import csr_array
from scipy.sparse.csgraph import dijkstra

import bigembed as be
from bigembed.datasets import dataset
from bigembed.neighbors import geodesic
from bigembed.neighbors.geodesic import found_distances, found_slots, groups_of, shortest_paths
from bigembed.runtime import blocks as rows
from bigembed.store.arrays import read_array
from bigembed.store.exchange import Exchange
from bigembed.store.files import read_sealed
from tests.blocks import blocks_of, graph_blocks
from tests.executors import Killed, executor, maps
from tests.operator_views import memory_matrix
from tests.some import a_few


def paths(matrix: Any, sources: np.ndarray, root: Path, **options: Any) -> tuple[np.ndarray, dict[str, Any]]:
    """Distances (L, n) in internal order, and what was counted."""
    exchange = Exchange(str(root))
    found = shortest_paths(matrix, sources, exchange, **options)
    groups = list(groups_of(sources))
    out = np.full((len(sources), sum(matrix.rows)), np.nan)
    start = 0
    for b, (count, slots) in enumerate(zip(matrix.rows, found_slots(len(matrix.rows), exchange), strict=True)):
        for group, distances in zip(groups, found_distances(b, slots, groups, count, exchange), strict=True):
            out[group[:, 0], start : start + count] = distances
        start += count
    return out, found


def relaxed(lengths: np.ndarray, source: int) -> np.ndarray:
    """Bellman's iteration on a dense matrix of lengths, inf where there is no edge."""
    distances = np.full(len(lengths), np.inf)
    distances[source] = 0
    while True:
        lower = np.minimum(distances, (distances[:, None] + lengths).min(axis=0))
        if (lower == distances).all():
            return distances
        distances = lower


@pytest.fixture(scope="module")
def roll() -> Iterator[be.NeighborGraph]:
    with blocks_of(400, rows.MIN_BLOCK_ROWS):
        yield be.build_neighbor_graph(dataset("swiss_roll", n=3000).rows(0, 3000), 8)


SOURCES = np.array([2999, 0, 1500, 17, 17, 1501, 800, 2200, 2201, 2202, 5])
"""In no order, one of them twice."""


class TestGeodesic:
    """Shortest paths in rounds over blocks, against Dijkstra's algorithm on the whole graph."""

    def test_the_same_bits_as_dijkstra_on_the_whole_graph(self, roll: be.NeighborGraph, tmp_path: Path) -> None:
        got, found = paths(roll.matrix, SOURCES, tmp_path)
        assert found["blocks"] > 6
        ids = roll.original_ids()
        wanted = dijkstra(roll.to_scipy(), indices=ids[SOURCES])[:, ids]
        np.testing.assert_array_equal(got, wanted)
        straight = roll.to_scipy()
        straight.data = straight.data.astype(np.float32).astype(np.float64)
        assert not (dijkstra(straight, indices=ids[SOURCES])[:, ids] == wanted).all()  # a control: the bits are seen

    @a_few(2, "group", [1, 3, 64])
    def test_any_grouping_gives_the_same_bits(
        self, roll: be.NeighborGraph, tmp_path: Path, group: int, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        wanted, _ = paths(roll.matrix, SOURCES, tmp_path / "a")
        monkeypatch.setattr(geodesic, "GROUP", group)
        np.testing.assert_array_equal(paths(roll.matrix, SOURCES, tmp_path / "b")[0], wanted)

    def test_identical_rows_are_at_distance_zero(self, small_blocks: None, tmp_path: Path) -> None:
        X = np.random.default_rng(0).normal(size=(300, 2))
        X = np.repeat(X, 4, axis=0)
        graph = be.build_neighbor_graph(X, 6)
        assert graph.run.results("graph")["zero_edges"] > 0
        ids = graph.original_ids()
        got, _ = paths(graph.matrix, np.array([3, 700]), tmp_path)
        lengths = np.full((len(X), len(X)), np.inf)
        matrix, starts = graph.matrix, np.cumsum([0, *graph.matrix.rows])
        for b in range(len(matrix.rows)):
            block = matrix.block(b)
            far = np.repeat(starts[block.halo_sources], np.diff(block.halo_offsets)) + block.halo_rows
            column = np.concatenate([np.arange(starts[b], starts[b + 1]), far])[block.indices]
            row = np.repeat(np.arange(starts[b], starts[b + 1]), np.diff(block.indptr))
            lengths[row, column] = np.sqrt(block.data)
        np.testing.assert_array_equal(got, [relaxed(lengths, 3), relaxed(lengths, 700)])
        same = (X[ids] == X[ids[3]]).all(axis=1)
        assert same.sum() == 4
        assert (got[0, same] == 0).all()

    def test_what_cannot_be_reached_is_at_infinity(self, tmp_path: Path) -> None:
        lengths = csr_array(np.array([[0, 2.0, 0, 0], [2.0, 0, 0, 0], [0, 0, 0, 1.5], [0, 0, 1.5, 0]]))
        matrix = memory_matrix(lengths, [(0, 1), (1, 3), (3, 4)])
        got, _ = paths(matrix, np.array([0, 3]), tmp_path, squared=False)
        np.testing.assert_array_equal(got, [[0, 2, np.inf, np.inf], [np.inf, np.inf, 1.5, 0]])
        squared, _ = paths(matrix, np.array([0]), tmp_path / "squared", squared=True)
        assert squared[0, 1] == np.sqrt(2.0)

    def test_a_killed_run_goes_on_from_the_last_whole_round(
        self, roll: be.NeighborGraph, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(geodesic, "GROUP", 4)
        wanted, whole = paths(roll.matrix, SOURCES, tmp_path / "whole")
        with executor(maps("round_block", 2)[0]), pytest.raises(Killed):
            shortest_paths(roll.matrix, SOURCES, Exchange(str(tmp_path / "killed")))
        run, later = maps()
        with executor(run):
            got, found = paths(roll.matrix, SOURCES, tmp_path / "killed")
        np.testing.assert_array_equal(got, wanted)
        assert found == whole
        assert later == {"round_block": whole["rounds"] - 1}  # nothing before the second round was done again

    def test_what_tells_of_all_blocks_is_read_once_not_by_the_task_of_each(
        self, roll: be.NeighborGraph, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        wanted, _ = paths(roll.matrix, SOURCES, tmp_path / "paths")
        read: list[Any] = []
        monkeypatch.setattr(geodesic, "read_sealed", lambda path: read.append(path) or read_sealed(path))
        out = f"{tmp_path}/"
        between = geodesic.keep_distances(roll.matrix.rows, SOURCES, Exchange(str(tmp_path / "paths")), out)
        assert len(read) == 1
        kept = [read_array(f"{out}distances/{b}") for b in range(len(roll.matrix.rows))]
        np.testing.assert_array_equal(np.concatenate(kept).T, wanted.astype(np.float32))
        np.testing.assert_allclose(between, wanted[:, SOURCES])


@pytest.fixture(scope="module")
def built() -> be.NeighborGraph:
    with graph_blocks():
        return be.build_neighbor_graph(np.random.default_rng(0).normal(size=(1200, 2)), 6)


class TestShortestPaths:
    """Geodesic distances and shortest paths as a person asks for them."""

    @pytest.fixture
    def graph(self, built: be.NeighborGraph, small_blocks: None) -> be.NeighborGraph:
        return built

    def test_distances_are_those_of_scipy_in_the_order_of_the_input(self, graph: be.NeighborGraph) -> None:
        wanted = dijkstra(graph.to_scipy(), indices=[5, 1100, 5])
        np.testing.assert_array_equal(be.geodesic_distances(graph, [5, 1100, 5]), wanted)
        np.testing.assert_array_equal(be.geodesic_distances(graph, 5), wanted[0])
        assert not list(graph.run.root.glob("geodesics-*"))

    def test_a_path_is_made_of_edges_that_add_up_to_the_distance(self, graph: be.NeighborGraph) -> None:
        matrix, distances = graph.to_scipy(), be.geodesic_distances(graph, 7)
        for goal in (0, 300, 1199):
            length, rows = be.shortest_path(graph, goal, 7)
            assert rows[0] == goal
            assert rows[-1] == 7
            steps = [matrix[[a], [b]].item() for a, b in pairwise(rows)]
            assert min(steps) > 0
            assert sum(steps) == pytest.approx(length, rel=1e-12)
            assert length == distances[goal]
        assert len(be.shortest_path(graph, 0, 300)[1]) > 3
        assert be.shortest_path(graph, 3, 3)[1].tolist() == [3]

    def test_a_path_through_identical_rows_ends(self, small_blocks: None) -> None:
        X = np.repeat(np.arange(40.0)[:, None], 5, axis=0)
        graph = be.build_neighbor_graph(X, 6)
        length, rows = be.shortest_path(graph, 2, 197)
        assert length == 39.0
        assert len(set(rows.tolist())) == len(rows)
        steps = [abs(X[a] - X[b]).item() for a, b in pairwise(rows)]
        assert sum(steps) == 39.0
        assert be.shortest_path(graph, 0, 4)[0] == 0.0
        near, lengths = np.array([[1, -1], [0, 2], [1, 3], [2, -1]]), np.array([[1.0, 0], [1, 0], [0, 1], [1, 0]])
        chain = be.build_neighbor_graph(
            be.open_graph(near, distances=lengths)
        )  # only one of two that are alike leads on
        assert be.shortest_path(chain, 0, 3)[1].tolist() == [0, 1, 2, 3]

    def test_what_is_not_joined_has_no_path(self) -> None:
        X = np.concatenate([np.random.default_rng(0).normal(size=(50, 2)) + 100 * k for k in range(2)])
        graph = be.build_neighbor_graph(X, 4)
        length, rows = be.shortest_path(graph, 0, 99)
        assert length == np.inf
        assert rows.tolist() == []
        assert np.isinf(be.geodesic_distances(graph, 0)[50:]).all()
