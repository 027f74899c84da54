"""Linearized kernel PCA is PCA is classical MDS (seed 004 §2.3, §2.4)."""

from __future__ import annotations

import numpy as np
import pytest

import bigembed as be
from bigembed.errors import InputError


def rows_of(n: int = 300, d: int = 6) -> np.ndarray:
    rng = np.random.default_rng(0)
    return rng.standard_normal((n, d)) * np.linspace(2, 0.5, d) + 5


def doubly_centered(matrix: np.ndarray) -> np.ndarray:
    centered = np.eye(len(matrix)) - 1 / len(matrix)
    return centered @ matrix @ centered


def apart(found: np.ndarray, wanted: np.ndarray) -> float:
    signs = np.sign((found * wanted).sum(axis=0))
    return float(np.abs(found * signs - wanted).max() / np.abs(wanted).max())


@pytest.mark.parametrize("epsilon", [2.0, 50.0, "auto", "bessel"])
def test_pairs_of_the_doubly_centered_linearized_kernel(epsilon: float | str) -> None:
    X = rows_of()
    found = be.LinearizedKernelPCA(4, epsilon=epsilon).fit(X)
    squared = ((X[:, None] - X[None]) ** 2).sum(axis=2)
    values, vectors = np.linalg.eigh(doubly_centered(1 - squared / found.epsilon_))
    values, vectors = values[::-1][:4], vectors[:, ::-1][:, :4]
    np.testing.assert_allclose(found.eigenvalues_, values, rtol=1e-10)
    assert apart(found.embedding_, vectors * np.sqrt(values)) < 1e-9
    unit = be.LinearizedKernelPCA(4, epsilon=epsilon, scaling="eigenvector").fit(X).embedding_
    assert apart(unit, vectors) < 1e-9
    full = be.LinearizedKernelPCA(4, epsilon=epsilon, scaling="eigenvalue").fit(X).embedding_
    assert apart(full, vectors * values) < 1e-9
    assert apart(unit, vectors * values) > 0.1


def test_with_two_it_is_pca_and_classical_mds() -> None:
    X = rows_of()
    coordinates = be.LinearizedKernelPCA(3, epsilon=2.0).fit_transform(X)
    np.testing.assert_allclose(coordinates, be.PCA(3).fit_transform(X), atol=1e-10)
    squared = ((X[:, None] - X[None]) ** 2).sum(axis=2)
    values, vectors = np.linalg.eigh(-0.5 * doubly_centered(squared))
    assert apart(coordinates, vectors[:, ::-1][:, :3] * np.sqrt(values[::-1][:3])) < 1e-9
    other = be.LinearizedKernelPCA(3, epsilon=3.0).fit_transform(X)
    assert apart(other, coordinates) > 0.1


def test_with_bessels_correction_the_eigenvalues_are_variances() -> None:
    X = rows_of()
    found = be.LinearizedKernelPCA(5, epsilon="bessel").fit(X)
    assert found.epsilon_ == 2 * (len(X) - 1)
    np.testing.assert_allclose(found.eigenvalues_, be.PCA(5).fit(X).explained_variance_, rtol=1e-12)


def test_new_rows_and_back() -> None:
    X = rows_of()
    for scaling in ("sqrt", "eigenvector", "eigenvalue"):
        found = be.LinearizedKernelPCA(None, epsilon="auto", scaling=scaling).fit(X)
        assert np.array_equal(found.transform(X[20:33]), found.embedding_[20:33])
        np.testing.assert_allclose(found.inverse_transform(found.embedding_), X, atol=1e-9)
    assert found.certificate_["passes"] == 2


def test_a_weight_is_a_number_of_equal_rows() -> None:
    X = rows_of(60, 3)
    counts = np.random.default_rng(1).integers(0, 4, 60)
    for epsilon in (2.0, "auto", "bessel"):
        weighted = be.LinearizedKernelPCA(2, epsilon=epsilon).fit(X, sample_weight=counts)
        repeated = be.LinearizedKernelPCA(2, epsilon=epsilon).fit(np.repeat(X, counts, axis=0))
        np.testing.assert_allclose(weighted.eigenvalues_, repeated.eigenvalues_, rtol=1e-10)


def test_what_is_refused() -> None:
    with pytest.raises(InputError, match="all rows are equal"):
        be.LinearizedKernelPCA(epsilon="auto").fit(np.ones((10, 3)))
    with pytest.raises(InputError, match="must be between 1 and"):
        be.LinearizedKernelPCA(5).fit(rows_of(10, 3))
    with pytest.raises(InputError, match=r"epsilon=.*scaling="):
        be.LinearizedKernelPCA(epsilon=-1, scaling="no").fit(rows_of())
