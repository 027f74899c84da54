"""NMF of rows: the objective never rises, the weights are optimal, it keeps up with scikit-learn."""

from __future__ import annotations

import warnings

import numpy as np
import pytest
from scipy import sparse
from scipy.optimize import nnls
from sklearn.decomposition import NMF as InMemory

import bigembed as be
from bigembed.errors import ConvergenceWarning, InputError
from bigembed.maps.nmf import nndsvd, singular_vectors, unlike
from tests.some import a_few


def rows_of(n: int = 300, d: int = 20, m: int = 5, noise: float = 0.1, seed: int = 0) -> np.ndarray:
    rng = np.random.default_rng(seed)
    parts = rng.random((n, m)) * (rng.random((n, m)) < 0.6), rng.random((m, d)) * (rng.random((m, d)) < 0.6)
    return parts[0] @ parts[1] + noise * rng.random((n, d))


def never_rises(values: np.ndarray) -> bool:
    return bool((np.diff(values) <= 1e-12 * values[0]).all())


@a_few(3, "init", [None, "nndsvd", "nndsvda", "nndsvdar", "random"])
def test_the_objective_never_rises_and_is_the_error(init: str | None) -> None:
    X = rows_of()
    nmf = be.NMF(5, init=init).fit(X)
    assert never_rises(nmf.objectives_)
    assert not never_rises(nmf.objectives_[::-1])
    assert len(nmf.objectives_) == nmf.n_iter_ + 1
    error = np.linalg.norm(X - nmf.embedding_ @ nmf.components_)
    assert nmf.reconstruction_err_ == pytest.approx(error, rel=1e-12)
    assert (nmf.components_ >= 0).all()
    assert (nmf.embedding_ >= 0).all()


@a_few(1, "init", ["nndsvda", "random"])
def test_it_is_as_good_as_scikit_learns(init: str) -> None:
    X = rows_of()
    ours = be.NMF(5, init=init, tol=1e-6, max_iter=500).fit(X)
    theirs = InMemory(5, init=init, tol=1e-4, max_iter=2000, random_state=0).fit(X)
    assert ours.reconstruction_err_ <= 1.03 * theirs.reconstruction_err_
    assert be.NMF(4, init=init).fit(X).reconstruction_err_ > 1.1 * theirs.reconstruction_err_


def test_starting_components_are_scikit_learns() -> None:
    """NNDSVD, whose weights scikit-learn keeps too; here they are solved for."""
    from sklearn.decomposition._nmf import _initialize_nmf

    X = rows_of()
    vectors, sigma = singular_vectors(X.T @ X, 5)
    u = X @ vectors
    masses = np.stack([(np.maximum(u, 0) ** 2).sum(axis=0), (np.minimum(u, 0) ** 2).sum(axis=0)])
    wanted = _initialize_nmf(X, 5, init="nndsvd", random_state=0)[1]
    np.testing.assert_allclose(nndsvd(vectors, sigma, masses), wanted, atol=0.02 * wanted.max())
    assert np.abs(nndsvd(vectors, sigma, masses[::-1]) - wanted).max() > 0.1 * wanted.max()


def test_weights_are_the_nonnegative_least_squares_solution() -> None:
    X = rows_of()
    nmf = be.NMF(5).fit(X)
    for x, w in zip(X[:20], nmf.embedding_):
        np.testing.assert_allclose(w, nnls(nmf.components_.T, x)[0], atol=1e-6)
    assert np.array_equal(nmf.transform(X[40:45]), nmf.embedding_[40:45])
    np.testing.assert_allclose(nmf.inverse_transform(nmf.embedding_), nmf.embedding_ @ nmf.components_)


def test_a_start_of_ones_own() -> None:
    X = rows_of()
    first = be.NMF(5).fit(X)
    second = be.NMF(5, init=first.components_).fit(X)
    assert second.n_iter_ < first.n_iter_
    assert second.reconstruction_err_ <= first.reconstruction_err_
    with pytest.raises(InputError, match="array of starting components"):
        be.NMF(5, init=-first.components_).fit(X)


def test_degenerate_rows() -> None:
    zeros = be.NMF(2).fit(np.zeros((10, 3)))
    assert zeros.reconstruction_err_ == 0
    equal = be.NMF(2).fit(np.full((10, 3), 2.0))
    assert equal.reconstruction_err_ < 1e-6
    wide = be.NMF(3).fit(rows_of(8, 40))
    assert wide.embedding_.shape == (8, 3)
    assert be.NMF(7, init="random").fit(rows_of(5, 6)).components_.shape == (7, 6)


def test_new_rows_that_are_negative_are_refused() -> None:
    X = rows_of()
    with pytest.raises(InputError, match="Negative values"):
        be.NMF().fit(X).transform(-X)


def test_an_early_stop_is_said() -> None:
    with pytest.warns(ConvergenceWarning, match="max_iter=2"):
        short = be.NMF(5, max_iter=2).fit(rows_of())
    assert short.certificate_["converged"] is False
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        be.NMF(5, tol=0.01).fit(rows_of())


def test_sparse_rows_are_those_rows() -> None:
    X = rows_of() * (np.random.default_rng(1).random((300, 20)) < 0.2)
    dense, thin = be.NMF(3).fit(X), be.NMF(3).fit(sparse.csr_array(X))
    np.testing.assert_allclose(thin.components_, dense.components_, atol=1e-6)
    assert thin.reconstruction_err_ == pytest.approx(dense.reconstruction_err_, rel=1e-9)
    np.testing.assert_allclose(thin.transform(sparse.csr_array(X[:9])), dense.embedding_[:9], atol=1e-6)
    assert np.abs(thin.components_ - be.NMF(3).fit(X[:200]).components_).max() > 1e-3


@a_few(1, "kind", [np.asarray, sparse.csr_array])
def test_no_component_of_a_random_start_is_lost(kind):
    """A 6 × 4 matrix is W H exactly with 4 components (H = I): the error of every seed is near 0, never that of 3."""
    rows = np.abs(np.random.default_rng(0).standard_normal((6, 4)))
    for seed in range(12):
        nmf = be.NMF(4, init="random", random_state=seed, max_iter=1000).fit(kind(rows))
        assert nmf.reconstruction_err_ < 0.01
        assert nmf.certificate_["empty_components"] == 0
        assert np.all(np.diff(nmf.objectives_) <= 1e-12)
    one_less = be.NMF(3, init="random", max_iter=1000).fit(rows)
    assert one_less.reconstruction_err_ > 0.1  # control


def test_lost_components_are_made_of_different_rows():
    """Of (5, 0), (4, 0), (0, 1) the first and the third: the second adds nothing to the first."""
    rest = np.array([[5.0, -1.0], [4.0, 0.0], [0.0, 1.0]])
    assert unlike(rest, 2).tolist() == [[5.0, 0.0], [0.0, 1.0]]
    assert unlike(rest, 3).tolist() == [[5.0, 0.0], [0.0, 1.0]]
    assert unlike(-np.ones((2, 2)), 1).shape == (0, 2)
