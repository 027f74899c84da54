"""UMAP: the forces of its formulas, as good as umap-learn's. What t-SNE has, too: test_descending_maps.py."""

from __future__ import annotations

import warnings

import numpy as np
import pytest
from sklearn.manifold import trustworthiness

import bigembed as be
from bigembed.errors import DegenerateWarning, InputError, MapWarning
from bigembed.maps.umap.compiled import has_turn, number_of, step
from tests.unit.maps.digits import digits

pytestmark = pytest.mark.filterwarnings("ignore::bigembed.errors.MapWarning")


def log_similarity(one: np.ndarray, other: np.ndarray, a: float, b: float) -> tuple[float, float]:
    """log φ and log(1 − φ), with what softens the latter."""
    squared = ((one - other) ** 2).sum()
    phi = 1 / (1 + a * squared**b)
    return float(np.log(phi)), float(np.log(1 - phi))


def test_a_step_is_along_the_gradient_of_the_cross_entropy() -> None:
    """Two edges, one of which has its turn, and one row of the pool: by differences of the logarithms."""
    a, b, points = 1.58, 0.9, np.array([[0.3, -0.2], [1.5, 0.4], [-1.0, 2.0]])
    drawn = np.array([[3.0, 1.0]])
    indptr, columns, weights = np.array([0, 2]), np.array([1, 2]), np.array([1.0, 0.4], np.float32)
    moved = np.empty((1, 2))
    step(0, 1, 0, 0, indptr, columns, weights, points, drawn, 5, np.array([a, b, 1.0, 3, 1.0, 0, 0.5]), moved)
    gradient, h = np.zeros(2), 1e-6
    for k in range(2):
        shift = h * np.eye(2)[k]
        for sign in (1, -1):
            near = log_similarity(points[0] + sign * shift, points[1], a, b)[0]
            far = log_similarity(points[0] + sign * shift, drawn[0], a, b)[1]
            gradient[k] += sign * (2 * near + 3 * far) / (2 * h)
    expected = points[0] + 0.5 * gradient / 1.4
    np.testing.assert_allclose(moved[0], expected, atol=1e-4)
    assert np.abs(moved[0] - (2 * points[0] - expected)).max() > 0.1


def test_an_edge_takes_part_in_its_share_of_the_epochs_and_rows_are_drawn_evenly() -> None:
    for share in (1.0, 0.37, 0.005, 0.001):
        assert sum(has_turn(epoch, share) for epoch in range(500)) == int(500 * share)
    found = np.array([int(number_of(np.uint64(state * 77))) >> 60 for state in range(16_000)])
    assert np.abs(np.bincount(found, minlength=16) - 1_000).max() < 150


def test_it_keeps_neighbors_as_umap_learn_does() -> None:
    """Of these rows umap-learn 0.5.12 has trustworthiness .9861 to .9865 (three seeds, 16 neighbors with the row)."""
    X, y = digits(1_000)
    umap = be.UMAP().fit(X)
    kept = trustworthiness(X, umap.embedding_, n_neighbors=15)
    assert kept > 0.9861 - 0.01
    assert trustworthiness(X, be.PCA(2).fit_transform(X), n_neighbors=15) < kept - 0.1
    near = ((umap.embedding_[:, None] - umap.embedding_[None]) ** 2).sum(axis=-1) + np.diag(np.full(len(y), np.inf))
    assert (y[near.argmin(axis=1)] == y).mean() > 0.93
    assert umap.cross_entropies_[-1] < umap.cross_entropies_[0]
    assert umap.certificate_["start"] == "spectral"


def test_parts_start_from_principal_coordinates_and_stay_apart() -> None:
    X = digits(200)[0]
    X = np.concatenate([X[:100], X[100:] + 200])
    umap = be.UMAP(n_neighbors=8, n_epochs=100).fit(X)
    assert umap.certificate_["start"] == "pca"
    left, right = umap.embedding_[:100], umap.embedding_[100:]
    assert np.linalg.norm(left.mean(axis=0) - right.mean(axis=0)) > left.std() + right.std()


def test_what_cannot_be_mapped_is_said() -> None:
    X = digits(40)[0]
    with pytest.warns(DegenerateWarning, match="n_neighbors=50, and there are 40 rows: 39 were taken"):
        umap = be.UMAP(n_neighbors=50, n_epochs=5).fit(X)
    assert umap.n_neighbors_ == 39
    for wrong, said in (
        ({"min_dist": 2.0}, "min_dist=2.0; allowed: at most spread, which is 1"),
        ({"local_connectivity": 0.5}, "local_connectivity=0.5; allowed: a number ≥ 1"),
        ({"init": None}, "init=None; allowed: 'auto', 'pca', 'spectral', 'random'"),
        ({"n_neighbors": 1}, "n_neighbors=1; allowed"),
    ):
        with pytest.raises(InputError, match=said):
            be.UMAP(**wrong).fit(X)  # type: ignore[arg-type]
    assert be.UMAP(n_neighbors=2, n_epochs=5).fit(X[:3]).embedding_.shape == (3, 2)
    with pytest.warns(DegenerateWarning, match="there are 2 rows: 1 were taken"):
        assert be.UMAP(n_epochs=5).fit(X[:2]).certificate_["start"] == "pca"


def test_a_random_start_comes_as_far_in_as_many_epochs() -> None:
    """umap-learn 0.5.12 has .983 after 100 epochs of these rows from a random start."""
    X = digits(900)[0]
    umap = be.UMAP(n_neighbors=14, init="random", n_epochs=100).fit(X)
    assert trustworthiness(X, umap.embedding_, n_neighbors=15) > 0.975


def test_a_fold_is_a_warning() -> None:
    """The halves of a sphere on each other; a map of rows of many dimensions is none."""
    X = np.random.default_rng(0).normal(size=(1_500, 3))
    X /= np.linalg.norm(X, axis=1, keepdims=True)
    with pytest.warns(MapWarning, match="neighbors are together, but lie on top of rows from elsewhere"):
        be.UMAP(init=3 * X[:, :2], n_epochs=10).fit(X)
    with warnings.catch_warnings():
        warnings.simplefilter("error", MapWarning)
        be.UMAP(n_epochs=100).fit(digits(600)[0])
