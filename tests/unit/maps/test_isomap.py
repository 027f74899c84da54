"""Isomap against scikit-learn, against itself by landmarks, and on what is awkward."""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scipy.spatial import procrustes
from sklearn.manifold import Isomap as Reference

import bigembed as be
from bigembed import errors
from bigembed.datasets import dataset
from bigembed.estimator import graph_input as parts
from bigembed.maps import isomap as geodesics
from tests.blocks import blocks_of
from tests.some import a_few


def roll(n: int, noise: float = 0.0, seed: int = 0) -> np.ndarray:
    return dataset("swiss_roll", n=n, noise=noise, seed=seed).rows(0, n).astype(np.float64)


@pytest.fixture(scope="module", autouse=True)
def small_blocks() -> Iterator[None]:
    """Blocks of at most 300 rows, so that everything crosses borders."""
    with blocks_of(300):
        yield


@pytest.fixture(scope="module")
def plain() -> np.ndarray:
    return roll(1000)


GRAPHS = [{"n_neighbors": 10}, {"n_neighbors": None, "radius": 3.0}]


@a_few(1, "graph", GRAPHS, ids=["neighbors", "radius"])
def test_exact_equals_scikit_learn(plain: np.ndarray, graph: dict[str, Any]) -> None:
    theirs = Reference(n_components=2, **graph).fit(plain)
    ours = be.Isomap(2, recall=1.0, solver="exact", tol=1e-10, **graph).fit(plain)
    assert len(ours.graph_.matrix.rows) > 3
    assert procrustes(theirs.embedding_, ours.embedding_)[2] < 1e-12
    np.testing.assert_allclose(ours.eigenvalues_, theirs.kernel_pca_.eigenvalues_, rtol=1e-6)
    np.testing.assert_allclose(ours.reconstruction_error_, theirs.reconstruction_error(), rtol=1e-6)
    np.testing.assert_allclose(np.asarray(ours.dist_matrix_), theirs.dist_matrix_, rtol=1e-6)
    np.testing.assert_allclose(ours.transform(plain[:300]), ours.embedding_[:300], atol=1e-5)
    if "radius" in graph:  # of k neighbors, ours are those of the symmetric graph, theirs the k nearest
        new = roll(100, seed=9)
        assert procrustes(theirs.transform(new), ours.transform(new))[2] < 1e-10
        other = Reference(n_components=2, n_neighbors=None, radius=3.03).fit(plain)
    else:
        other = Reference(n_components=2, n_neighbors=11).fit(plain)
    assert procrustes(other.embedding_, ours.embedding_)[2] > 1e-9  # a control: one neighbor more is seen


def test_all_rows_as_landmarks_are_exact() -> None:
    X = roll(400)
    exact = be.Isomap(2, n_neighbors=12).fit(X)
    every = be.Isomap(2, n_neighbors=12, solver="landmarks", n_landmarks=400, landmarks="uniform").fit(X)
    assert exact.certificate_["solver"] == "exact"
    np.testing.assert_allclose(every.embedding_, exact.embedding_, atol=1e-4)
    np.testing.assert_allclose(every.eigenvalues_, exact.eigenvalues_, rtol=1e-6)
    np.testing.assert_allclose(every.reconstruction_error_, exact.reconstruction_error_, rtol=1e-5)
    few = be.Isomap(2, n_neighbors=12, solver="landmarks", n_landmarks=20).fit(X)
    assert not np.allclose(few.embedding_, exact.embedding_, atol=1e-2)  # a control: 20 are not all


@pytest.fixture(scope="module")
def exact(plain: np.ndarray) -> be.Isomap:
    return be.Isomap(2, n_neighbors=15).fit(plain)


@a_few(1, "landmarks", ["max-min", "uniform"])
def test_landmarks_come_near_to_exact(plain: np.ndarray, exact: be.Isomap, landmarks: str) -> None:
    few = be.Isomap(2, n_neighbors=15, solver="landmarks", n_landmarks=100, landmarks=landmarks).fit(plain)
    assert procrustes(exact.embedding_, few.embedding_)[2] < 1e-3
    assert len(np.unique(few.landmarks_)) == 100
    np.testing.assert_array_equal(few.transform(plain), few.embedding_)  # to the last bit, in any batch
    np.testing.assert_array_equal(few.transform(plain[777:778]), few.embedding_[777:778])
    y = few.embedding_
    np.testing.assert_allclose(y.T @ y, np.diag(few.eigenvalues_), atol=1e-6 * few.eigenvalues_[0])
    np.testing.assert_allclose(y.mean(axis=0), 0, atol=1e-9 * np.abs(y).max())
    geodesic = few.certificate_["geodesics"]
    assert 1 <= geodesic["rounds"] <= 12
    assert geodesic["blocks"] > 3


# --- disconnected graphs -------------------------------------------------------------------------


@pytest.fixture(scope="module")
def apart() -> np.ndarray:
    """Two pieces of a surface (700 and 300 rows), and a lone row near the second."""
    generator = np.random.default_rng(0)
    pieces = [generator.uniform(size=(n, 2)) * [8, 4] + [40 * k, 0] for k, n in enumerate((700, 300))]
    return generator.permutation(np.concatenate([*pieces, [[60.0, 2.0]]]))


SOLVERS = [{"solver": "exact"}, {"solver": "landmarks", "n_landmarks": 60}]
APART: dict[str, Any] = {"n_neighbors": None, "radius": 1.0}


@cache
def exactly(rows: bytes) -> np.ndarray:
    return np.asarray(be.Isomap(2, **APART, solver="exact").fit(np.frombuffer(rows).reshape(-1, 2)).embedding_)


def exact_part(apart: np.ndarray, mine: np.ndarray) -> np.ndarray:
    """The map of some of the rows alone; made once."""
    return exactly(apart[mine].tobytes())


@pytest.mark.parametrize("solver", SOLVERS, ids=["exact", "landmarks"])
def test_an_error_lists_the_components(apart: np.ndarray, solver: dict[str, Any]) -> None:
    with pytest.raises(errors.DisconnectedGraphError, match="3 connected components, of 700, 300, 1 rows"):
        be.Isomap(2, components="error", **APART, **solver).fit(apart)


@a_few(1, "solver", SOLVERS, ids=["exact", "landmarks"])
def test_by_default_parts_are_joined_and_islands_placed(apart: np.ndarray, solver: dict[str, Any]) -> None:
    with pytest.warns(errors.ComponentsWarning) as said:
        found = be.Isomap(2, **APART, **solver).fit(apart)
    assert [str(one.message)[:60] for one in said if one.category is errors.ComponentsWarning] == [
        "the rows fall into 2 parts that no neighbors join, of 700, 3",
        "1 row in 1 island (components of fewer than 11 rows) has the",
    ]
    island = found.labels_ == -1
    assert np.bincount(found.labels_ + 1).tolist() == [1, 700, 300]
    assert found.certificate_["components"] == 3
    assert found.certificate_["bridge"]["bridges"] == 1
    whole = be.Isomap(2, components="bridge", **APART, **solver).fit(apart[~island])
    assert procrustes(whole.embedding_, found.embedding_[~island])[2] < (1e-10 if "exact" in solver.values() else 1e-3)
    placed = {tuple(row) for row in found.embedding_[~island]}
    assert all(tuple(row) in placed for row in found.embedding_[island])
    np.testing.assert_allclose(found.transform(apart), found.embedding_, atol=1e-4)


@a_few(1, "solver", SOLVERS, ids=["exact", "landmarks"])
def test_the_largest_component_and_every_row_gets_a_place(apart: np.ndarray, solver: dict[str, Any]) -> None:
    with pytest.warns(errors.ComponentsWarning, match="3 components"):
        found = be.Isomap(2, components="largest", **APART, **solver).fit(apart)
    assert np.isfinite(found.embedding_).all()
    big = found.labels_ == 0
    assert big.sum() == 700
    assert found.certificate_["filled_rows"] == 301
    alone = exact_part(apart, big)
    assert procrustes(alone, found.embedding_[big])[2] < (1e-10 if solver["solver"] == "exact" else 1e-2)
    placed = {tuple(row) for row in found.embedding_[big]}
    assert all(tuple(row) in placed for row in found.embedding_[~big])
    np.testing.assert_allclose(found.transform(apart), found.embedding_, atol=1e-4)


@a_few(1, "solver", SOLVERS, ids=["exact", "landmarks"])
def test_each_component_by_itself(apart: np.ndarray, solver: dict[str, Any]) -> None:
    with pytest.warns(errors.ComponentsWarning):
        found = be.Isomap(2, components="per-component", **APART, **solver).fit(apart)
    assert found.eigenvalues_.shape == (2, 2)
    assert (found.embedding_[found.labels_ == 2] == 0).all()
    for c in range(2):
        mine = found.labels_ == c
        alone = exact_part(apart, mine)
        assert procrustes(alone, found.embedding_[mine])[2] < (1e-10 if "exact" in solver.values() else 1e-2)
        np.testing.assert_allclose(found.embedding_[mine].mean(axis=0), 0, atol=1e-4)
    np.testing.assert_allclose(found.transform(apart), found.embedding_, atol=1e-4)


@a_few(1, "solver", SOLVERS, ids=["exact", "landmarks"])
def test_bridges_keep_their_true_length(apart: np.ndarray, solver: dict[str, Any]) -> None:
    found = be.Isomap(1, components="bridge", **APART, **solver).fit(apart)
    assert found.certificate_["components"] == 1
    assert found.certificate_["bridge"]["bridges"] == 2
    along = np.corrcoef(found.embedding_[:, 0], apart[:, 0])[0, 1]
    assert abs(along) > 0.999  # 32 between the pieces is kept
    ends = [int(np.argmin(apart[:, 0])), int(np.argmax(apart[:, 0]))]
    assert found.shortest_path(*ends)[0] == pytest.approx(60, rel=0.05)


def test_many_components_are_not_embedded_one_by_one(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(parts, "MAX_SOLVED", 3)
    X = np.concatenate([np.random.default_rng(k).normal(size=(20, 2)) + 100 * k for k in range(5)])
    with pytest.raises(errors.DisconnectedGraphError, match="at most 3"):
        be.Isomap(1, n_neighbors=3, components="per-component").fit(X)


# --- awkward data and parameters -----------------------------------------------------------------


@a_few(1, "solver", SOLVERS, ids=["exact", "landmarks"])
def test_identical_rows_get_one_place(solver: dict[str, Any]) -> None:
    X = np.repeat(roll(200), 3, axis=0)
    found = be.Isomap(2, n_neighbors=24, **solver).fit(X)
    np.testing.assert_allclose(found.embedding_[0::3], found.embedding_[2::3], atol=1e-4)
    single = be.Isomap(2, n_neighbors=8, solver="exact").fit(X[::3])
    assert procrustes(found.embedding_[::3], single.embedding_)[2] < 1e-2


@pytest.mark.parametrize("solver", SOLVERS, ids=["exact", "landmarks"])
def test_dimensions_that_are_not_there_are_zero_and_said(solver: dict[str, Any]) -> None:
    line = np.linspace(0, 9, 200)[:, None] ** 1.1
    with pytest.warns(errors.DegenerateWarning, match="fewer than 2 eigenvalues are positive"):
        found = be.Isomap(2, n_neighbors=2, **solver).fit(line)
    assert abs(np.corrcoef(found.embedding_[:, 0], line[:, 0])[0, 1]) > 0.9999999
    assert np.abs(found.embedding_[:, 1]).max() < 1e-2


def test_few_distinct_landmarks_are_said() -> None:
    X = np.repeat(np.random.default_rng(0).normal(size=(12, 2)), 20, axis=0)
    with pytest.warns(errors.DegenerateWarning, match="12 landmarks of 40"):
        be.Isomap(2, n_neighbors=30, solver="landmarks", n_landmarks=40, components="bridge").fit(X)


def test_more_rows_than_pairs_can_be_kept_of_are_refused_with_a_proposal(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(geodesics, "EXACT_ROWS", 100)
    with pytest.raises(errors.PlanError, match="solver='landmarks'"):
        be.Isomap(solver="exact").fit(roll(200))


def test_noise_that_makes_shortcuts_is_said() -> None:
    X = np.random.default_rng(0).normal(size=(400, 12))
    with pytest.warns(errors.DegenerateWarning, match="far from those of points in space"):
        be.Isomap(20, n_neighbors=3, components="bridge").fit(X)


# --- one graph, models, resume -------------------------------------------------------------------


def test_paths_of_a_saved_model_are_those_of_its_graph(plain: np.ndarray, tmp_path: Path) -> None:
    be.Isomap(2).fit(plain[:300]).save(tmp_path / "model.zarr")
    with pytest.raises(errors.InputTypeError, match="saved model"):
        be.load(tmp_path / "model.zarr").shortest_path(0, 1)
