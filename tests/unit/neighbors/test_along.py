"""Edges of new rows along the graph: those of the fitted row near each, beside those that a search finds."""

from __future__ import annotations

import numpy as np
import pytest

import bigembed as be
from bigembed.neighbors.along import along_graph
from bigembed.neighbors.given.query import join_parts
from bigembed.neighbors.query import Index, Joined, in_row_order
from tests.blocks import graph_blocks
from tests.unit.neighbors.test_graph import index_of
from tests.unit.neighbors.test_query import edges_of


@pytest.fixture(scope="module")
def built() -> tuple[np.ndarray, be.NeighborGraph]:
    rows = np.random.default_rng(0).uniform(size=(1_500, 3)).astype(np.float32)
    with graph_blocks():
        return rows, be.build_neighbor_graph(rows, 8)


def joined(rows: np.ndarray, index: Index) -> Joined:
    return in_row_order(list(join_parts(rows, index)), rows.dtype)


def test_fitted_rows_have_their_edges(built: tuple[np.ndarray, be.NeighborGraph]) -> None:
    rows, graph = built
    index = index_of(graph)
    searched = joined(rows, index)
    quick = joined(rows, along_graph(index, graph.run))
    np.testing.assert_array_equal(quick.block, searched.block)
    ends = [np.split(one.ids, one.indptr[1:-1]) for one in (quick, searched)]
    same = np.array([np.array_equal(np.sort(a), np.sort(b)) for a, b in zip(*ends, strict=True)])
    assert same.mean() > 0.99  # (a walk may end beside a row)
    assert np.mean(quick.rho == searched.rho) > 0.95
    assert set(edges_of(quick).items()) >= set(edges_of(joined(rows[:1], along_graph(index, graph.run))).items())


def test_new_rows_have_nearly_those_that_are_found(built: tuple[np.ndarray, be.NeighborGraph]) -> None:
    rows, graph = built
    new = (rows[:300] + 0.01 * np.random.default_rng(1).normal(size=(300, 3))).astype(np.float32)
    index = index_of(graph)
    along = along_graph(index, graph.run)
    quick, searched = (set(edges_of(joined(new, one))) for one in (along, index))
    assert len(quick & searched) > 0.8 * len(searched)
    alone = joined(new[7:8], along)
    own = {key[1]: value for key, value in edges_of(joined(new, along)).items() if key[0] == 7}
    assert {key[1]: value for key, value in edges_of(alone).items()} == own
