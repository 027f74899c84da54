"""Edges of new rows along the graph: those of the fitted row near each, beside those that a search finds."""

from __future__ import annotations

import warnings
from dataclasses import fields, replace
from typing import Any

import numpy as np
import pytest

import bigembed as be
from bigembed.estimator import run_of
from bigembed.maps.walk.along import Averages, averages_along
from bigembed.maps.walk.extension import _average, averaged, model_of
from bigembed.neighbors.given.query import along_graph, join_parts
from bigembed.neighbors.query import Index, Joined, in_row_order
from tests.blocks import graph_blocks
from tests.some import a_few
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


@a_few(
    2,
    "given",
    [
        {"weights": True}, {"target": "laplace-beltrami"}, {"bandwidth": "self-tuned", "components": "largest"},
        {"epsilon": 0.05, "bandwidth": "fixed", "truncated": True}, {"normalization": "bistochastic"},
        {"weights": True, "bandwidth": "fixed", "alpha": 0.5},
    ],
    ids=lambda given: "-".join(map(str, given)),
)  # fmt: skip
def test_compiled_averages_are_those_of_arrays_of_edges(given: dict[str, Any]) -> None:
    draw = np.random.default_rng(3)
    rows = draw.uniform(size=(900, 3)).astype(np.float32) + 4 * (np.arange(900) % 3 == 0)[:, None].astype(np.float32)
    weighed = {"sample_weight": draw.integers(1, 6, 900)} if given.get("weights") else {}
    parameters = {name: value for name, value in given.items() if name != "weights"}
    with graph_blocks(), warnings.catch_warnings():
        warnings.simplefilter("ignore")  # (two parts)
        fitted = be.DiffusionMap(2, n_neighbors=8, **parameters).fit(rows, **weighed)
    run, model = run_of(fitted), model_of(run_of(fitted))
    assert isinstance(model.index, Index)
    index = along_graph(model.index, run, model.search if model.bandwidth.within else "")
    new = np.concatenate([rows[:200], rows[200:500] + 0.02 * draw.normal(size=(300, 3))]).astype(np.float32)
    quick = in_order(averages_along(new, index, averaged(model), model.bandwidth, model.epsilon, model.by_mass))
    arrays = in_order((part, _average(edges, model)) for part, edges in join_parts(new, index))
    np.testing.assert_array_equal(quick.home, arrays.home)
    assert (quick.home >= 0).any()
    np.testing.assert_allclose(quick.total, arrays.total, rtol=1e-12)
    np.testing.assert_allclose(quick.mean, arrays.mean, rtol=1e-10, atol=1e-12)
    if model.unit is not None:
        np.testing.assert_allclose(quick.rho, arrays.rho, rtol=1e-12)
    lighter = replace(model, epsilon=0.9 * model.epsilon)
    off = in_order((part, _average(edges, lighter)) for part, edges in join_parts(new, index))
    assert not np.allclose(quick.total, off.total, rtol=1e-3)


def in_order(parts: Any) -> Averages:
    """Averages of all rows, in their order."""
    members, found = zip(*parts, strict=True)
    order = np.argsort(np.concatenate(members))
    return Averages(*(np.concatenate([getattr(one, f.name) for one in found])[order] for f in fields(Averages)))
