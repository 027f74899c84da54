"""The graph of all rows within a radius, against every pair."""

from __future__ import annotations

import shutil
from collections import namedtuple

import numpy as np
import pytest
from scipy.spatial.distance import cdist

import bigembed as be
from bigembed.errors import InputError, PlanError
from bigembed.neighbors import radius
from bigembed.neighbors.given import query as radius_query
from bigembed.neighbors.given.query import join_within, radius_index_of

from .test_graph import dense


def wanted(X: np.ndarray, within: float) -> np.ndarray:
    """Dense lengths, inf where there is no edge."""
    lengths = cdist(X.astype(float), X.astype(float))
    lengths[lengths > within] = np.inf
    np.fill_diagonal(lengths, np.inf)
    return lengths


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("d", [1, 3, 9])
def test_every_pair_within_the_radius_and_no_other(small_blocks: None, dtype: type, d: int) -> None:
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


def test_rows_at_the_very_radius_are_joined(small_blocks: None) -> None:
    X = np.stack(np.meshgrid(*[np.arange(12.0)] * 3), axis=-1).reshape(-1, 3)
    graph = be.build_neighbor_graph(X, radius=1.0)
    assert graph.edges == 3 * 2 * 12 * 12 * 11
    assert be.build_neighbor_graph(X, radius=0.999).edges == 0


def test_identical_rows_are_joined_at_length_zero(small_blocks: None) -> None:
    X = np.repeat(np.random.default_rng(0).normal(size=(300, 2)), 3, axis=0)
    graph = be.build_neighbor_graph(X, radius=1e-9)
    assert graph.edges == 900 * 2
    assert graph.run.results("graph")["zero_edges"] == 1800


def test_a_new_row_is_joined_to_all_within_the_radius_in_any_batch(
    small_blocks: None, monkeypatch: pytest.MonkeyPatch
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
    monkeypatch.setattr(radius_query, "MAX_PAIRS", 100)
    parts = list(join_within(new, index))
    assert len(parts) > 1
    np.testing.assert_array_equal(np.concatenate([part.ids for _, part in parts]), together.ids)


def test_too_many_edges_are_refused_before_they_are_written(monkeypatch: pytest.MonkeyPatch) -> None:
    X = np.random.default_rng(0).normal(size=(2000, 3))
    monkeypatch.setattr(radius, "BLOCK_EDGES", 100_000)
    with pytest.raises(PlanError, match=r"radius=2 joins a row to .* others on average.*radius=\S+ would join") as e:
        be.build_neighbor_graph(X, radius=2.0)
    proposed = float(str(e.value).split("radius=")[2].split()[0])
    graph = be.build_neighbor_graph(X, radius=proposed)
    assert 10 < graph.edges / 2000 < 22
    Usage = namedtuple("Usage", "total used free")
    monkeypatch.setattr(shutil, "disk_usage", lambda _: Usage(0, 0, 1000))
    with pytest.raises(PlanError, match="free"):
        be.build_neighbor_graph(X, radius=proposed)


def test_a_dense_spot_that_the_sample_does_not_see_stops_the_block(monkeypatch: pytest.MonkeyPatch) -> None:
    generator = np.random.default_rng(0)
    X = np.concatenate([generator.normal(size=(400, 2)) * 1e-6, generator.normal(size=(4000, 2)) * 100])
    monkeypatch.setattr(radius, "BLOCK_EDGES", 100_000)
    monkeypatch.setattr(radius, "_refuse", lambda *_: None)
    with pytest.raises(PlanError, match="densest"):
        be.build_neighbor_graph(X, radius=0.01)


@pytest.mark.parametrize("bad", [0.0, -1.0, np.inf, np.nan])
def test_a_radius_is_a_number_above_zero(bad: float) -> None:
    with pytest.raises(InputError, match="radius"):
        be.build_neighbor_graph(np.zeros((5, 2)), radius=bad)
