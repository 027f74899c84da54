"""Geodesic distances and shortest paths as a person asks for them."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import pytest
from scipy.sparse.csgraph import dijkstra

import bigembed as be
from bigembed.errors import InputError
from tests.blocks import graph_blocks


@pytest.fixture(scope="module")
def built() -> be.NeighborGraph:
    with graph_blocks():
        return be.build_neighbor_graph(np.random.default_rng(0).normal(size=(1200, 2)), 6)


@pytest.fixture
def graph(built: be.NeighborGraph, small_blocks: None) -> be.NeighborGraph:
    return built


def test_distances_are_those_of_scipy_in_the_order_of_the_input(graph: be.NeighborGraph) -> None:
    wanted = dijkstra(graph.to_scipy(), indices=[5, 1100, 5])
    np.testing.assert_array_equal(be.geodesic_distances(graph, [5, 1100, 5]), wanted)
    np.testing.assert_array_equal(be.geodesic_distances(graph, 5), wanted[0])
    assert not list(graph.run.root.glob("geodesics-*"))


def test_a_path_is_made_of_edges_that_add_up_to_the_distance(graph: be.NeighborGraph) -> None:
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


def test_a_path_through_identical_rows_ends(small_blocks: None) -> None:
    X = np.repeat(np.arange(40.0)[:, None], 5, axis=0)
    graph = be.build_neighbor_graph(X, 6)
    length, rows = be.shortest_path(graph, 2, 197)
    assert length == 39.0
    assert len(set(rows.tolist())) == len(rows)
    steps = [abs(X[a] - X[b]).item() for a, b in pairwise(rows)]
    assert sum(steps) == 39.0
    assert be.shortest_path(graph, 0, 4)[0] == 0.0
    near, lengths = np.array([[1, -1], [0, 2], [1, 3], [2, -1]]), np.array([[1.0, 0], [1, 0], [0, 1], [1, 0]])
    chain = be.build_neighbor_graph(be.open_graph(near, distances=lengths))  # only one of two that are alike leads on
    assert be.shortest_path(chain, 0, 3)[1].tolist() == [0, 1, 2, 3]


def test_what_is_not_joined_has_no_path() -> None:
    X = np.concatenate([np.random.default_rng(0).normal(size=(50, 2)) + 100 * k for k in range(2)])
    graph = be.build_neighbor_graph(X, 4)
    length, rows = be.shortest_path(graph, 0, 99)
    assert length == np.inf
    assert rows.tolist() == []
    assert np.isinf(be.geodesic_distances(graph, 0)[50:]).all()


@pytest.mark.parametrize(("rows", "message"), [([0, 1200], r"\[1200\]"), (-1, "outside"), (1.5, "integers")])
def test_rows_that_are_none_are_named(graph: be.NeighborGraph, rows: object, message: str) -> None:
    with pytest.raises(InputError, match=message):
        be.geodesic_distances(graph, rows)
