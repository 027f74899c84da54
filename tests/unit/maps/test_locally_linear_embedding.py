"""Locally linear embedding against scikit-learn, by landmarks against the truth, and on what is awkward."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pytest
from scipy.linalg import subspace_angles
from scipy.sparse import csr_array
from scipy.stats import spearmanr
from sklearn.datasets import make_swiss_roll
from sklearn.manifold import LocallyLinearEmbedding as Reference

import bigembed as be
from bigembed import errors
from bigembed.linalg import smallest
from bigembed.maps import lle as stages
from bigembed.maps.lle import solve as exact
from bigembed.maps.lle.solve import closed_groups
from tests.blocks import blocks_of
from tests.some import a_few


@pytest.fixture(scope="module", autouse=True)
def small_blocks() -> Iterator[None]:
    """Blocks of at most 300 rows, so that everything crosses borders."""
    with blocks_of(300):
        yield


def roll(n: int, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    """Rows of a swiss roll, and how far along it each lies."""
    X, t = make_swiss_roll(n, random_state=seed)
    return X, (t * np.sqrt(1 + t * t) + np.arcsinh(t)) / 2


def test_coordinates_are_those_of_scikit_learn() -> None:
    X, _ = roll(900)
    ours = be.LocallyLinearEmbedding(3, n_neighbors=10, recall=1.0).fit(X)
    assert len(ours.graph_.matrix.rows) > 2
    theirs = Reference(n_components=3, n_neighbors=10, eigen_solver="dense").fit(X)
    assert subspace_angles(ours.embedding_, theirs.embedding_).max() < 1e-6
    np.testing.assert_allclose(np.abs(ours.embedding_), 30 * np.abs(theirs.embedding_), atol=1e-5)
    assert ours.reconstruction_error_ == pytest.approx(theirs.reconstruction_error_, rel=1e-6)
    other = Reference(n_components=3, n_neighbors=10, reg=2e-3, eigen_solver="dense").fit(X)
    assert subspace_angles(ours.embedding_, other.embedding_).max() > 1e-4  # a control
    new = X[:40] + 0.01
    turned = 30 * theirs.transform(new) * np.sign((ours.embedding_ * theirs.embedding_).sum(axis=0))
    np.testing.assert_allclose(ours.transform(new), turned, atol=1e-5)
    assert ours.certificate_["posed"]["well_posed"]
    assert ours.certificate_["solver"] == "exact"


def test_landmarks_unroll_what_they_are_taken_from() -> None:
    X, along = roll(3_000)
    found = be.LocallyLinearEmbedding(solver="landmarks", n_landmarks=1_000).fit(X)
    assert abs(spearmanr(found.embedding_[:, 0], along).statistic) > 0.995
    assert abs(spearmanr(be.PCA(2).fit_transform(X)[:, 0], along).statistic) < 0.9  # a control
    assert found.landmarks_.shape == (1_000, 3)
    first = [part["first_eigenvalue_of_all_rows"] / part["first_eigenvalue"] for part in [found.certificate_["posed"]]]
    assert first == [pytest.approx(1 / 9)]
    graph = be.build_neighbor_graph(X, 12)
    again = be.LocallyLinearEmbedding(solver="landmarks", n_landmarks=1_000).fit(graph)
    assert abs(spearmanr(again.embedding_[:, 0], along).statistic) > 0.995
    np.testing.assert_array_equal(again.transform(X[:50]), again.embedding_[:50])


def test_graphs_without_lists_of_neighbors_are_refused() -> None:
    X, _ = roll(100)
    near = np.array([[1], [0], [1]])
    for given in (
        be.open_graph(near, distances=np.ones((3, 1))),
        csr_array(np.eye(5)),
        be.build_neighbor_graph(X, None, radius=9.0),
        be.build_neighbor_graph(X, None),
    ):
        with pytest.raises(
            errors.InputTypeError, match=r"k nearest rows|reads rows, and this is a graph \(open_graph\)"
        ):
            be.LocallyLinearEmbedding().fit(given)


@pytest.mark.filterwarnings("ignore::bigembed.errors.BigembedWarning")
@a_few(1, "solver", ["exact", "landmarks"])
def test_parts_are_told_apart_and_islands_placed(solver: str) -> None:
    X, _ = roll(400)
    X = np.concatenate([X, X[:250] + 100, X[:6] - 100])
    X = np.column_stack([X, np.zeros(len(X))])  # (as many columns as coordinates)
    with pytest.warns(errors.ComponentsWarning, match="2 parts that no neighbors join"):
        found = be.LocallyLinearEmbedding(4, n_neighbors=5, solver=solver, n_landmarks=656).fit(X)
    Y = found.embedding_
    assert np.ptp(Y[:400, 0]) == np.ptp(Y[400:650, 0]) == 0 != Y[0, 0] - Y[400, 0]
    assert (np.asarray(found.labels_) < 0).sum() == 6
    nearest = np.argmin(((X[650:, None] - X[:650]) ** 2).sum(axis=2), axis=1)
    np.testing.assert_array_equal(Y[650:], Y[nearest])
    np.testing.assert_allclose((Y[:650] ** 2).mean(axis=0), 1)
    with pytest.raises(errors.DisconnectedGraphError, match="3 connected components"):
        be.LocallyLinearEmbedding(n_neighbors=5, solver=solver, n_landmarks=656, components="error").fit(X)


@pytest.mark.filterwarnings("ignore::bigembed.errors.BigembedWarning")
def test_rows_that_repeat_more_often_than_they_have_neighbors_are_named() -> None:
    X, _ = roll(300)
    X = np.concatenate([X, np.repeat(X[:2], 10, axis=0)])
    with pytest.warns(
        errors.DegenerateWarning, match=r"2 groups of rows whose neighbors .*one holds the rows (0, 300|1, 310), "
    ):
        found = be.LocallyLinearEmbedding(n_neighbors=8).fit(X)
    assert (found.embedding_[300:310] == found.embedding_[0]).all()
    by_landmarks = be.LocallyLinearEmbedding(n_neighbors=8, solver="landmarks").fit(X)
    assert by_landmarks.certificate_["warnings"]["degenerate"] == [
        "n_landmarks=320: 300 different rows were found among those looked at (the others are duplicates); these are "
        "the landmarks"
    ]


def test_what_cannot_be_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    X, _ = roll(60)
    for solver in ("exact", "landmarks"):
        with pytest.raises(errors.InputError, match=r"n_components=4: .* these rows have 3\. Ask for at most 3"):
            be.LocallyLinearEmbedding(4, solver=solver, n_landmarks=40).fit(X)
    with pytest.raises(errors.InputError, match=r"n_components=4: .* these rows have 3"):
        be.LocallyLinearEmbedding(4).fit(be.build_neighbor_graph(X, n_neighbors=8))
    assert be.LocallyLinearEmbedding(3, solver="exact").fit(X).n_components_ == 3
    monkeypatch.setattr(exact, "EXACT_ROWS", 50)
    with pytest.raises(errors.PlanError, match=r"n ≤ 50; got n = 60. Use solver='landmarks'"):
        be.LocallyLinearEmbedding(solver="exact").fit(X)


def test_closed_groups_are_those_without_a_way_out() -> None:
    ids = np.array([[1, 2], [0, 2], [0, 1], [0, 4], [5, 6], [4, 6], [4, 5], [6, 2]])
    assert [group.tolist() for group in closed_groups(ids)] == [[0, 1, 2], [4, 5, 6]]
    assert smallest.MOST_BYTES >= 8 * stages.AUTO_ROWS**2  # "auto" is never refused
