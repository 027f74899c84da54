"""The smallest eigenpairs of AᵀA against closed forms, where AᵀA formed has lost them."""

from __future__ import annotations

import numpy as np
import pytest
from scipy import sparse
from scipy.linalg import subspace_angles

from bigembed.errors import PlanError
from bigembed.linalg.smallest import smallest_pairs


def path_laplacian(n: int) -> sparse.csr_array:
    """L of a path; L² has the eigenvalues (2 − 2 cos(πl/n))² and the eigenvectors cos(πl(i + ½)/n)."""
    steps = sparse.diags_array([-np.ones(n), np.ones(n - 1)], offsets=(0, 1), shape=(n - 1, n))
    return (steps.T @ steps).tocsr()


def test_vectors_are_right_where_eigenvalues_are_near_rounding() -> None:
    n, l = 6_000, np.arange(1, 4)
    found = smallest_pairs(path_laplacian(n), 3)
    exact = np.cos(np.pi * np.outer(np.arange(n) + 0.5, l) / n) * np.sqrt(2 / n)
    values = (2 - 2 * np.cos(np.pi * l / n)) ** 2  # the first is 7.5e-14
    np.testing.assert_allclose(found.values, values, rtol=1e-6)
    assert found.converged
    assert np.abs(np.abs(np.einsum("ij,ij->j", found.vectors, exact)) - 1).max() < 1e-9
    assert found.turns.max() < 1e-6
    assert found.values[0] < 100 * np.finfo(float).eps * found.norm  # of AᵀA formed nothing would be left


def test_a_dense_matrix_has_the_same_eigenpairs() -> None:
    rng = np.random.default_rng(0)
    dense = rng.normal(size=(120, 80))
    dense -= dense.mean(axis=1, keepdims=True)
    found = smallest_pairs(sparse.csr_array(dense), 4)
    values, vectors = np.linalg.eigh(dense.T @ dense)
    np.testing.assert_allclose(found.values, values[1:5], rtol=1e-8)
    assert subspace_angles(found.vectors, vectors[:, 1:5]).max() < 1e-7
    assert subspace_angles(found.vectors, vectors[:, 2:6]).max() > 1e-1  # a control
    np.testing.assert_allclose(found.vectors.sum(axis=0), 0, atol=1e-12)


def test_every_copy_of_an_eigenvalue_is_found() -> None:
    four = sparse.block_diag([path_laplacian(200)] * 4, format="csr")
    found = smallest_pairs(sparse.csr_array(four), 5)
    first = (2 - 2 * np.cos(np.pi / 200)) ** 2
    np.testing.assert_allclose(found.values, [0, 0, 0, first, first], rtol=1e-6, atol=1e-20)


def test_a_factor_that_does_not_fit_is_refused_before_it_is_made() -> None:
    with pytest.raises(PlanError, match=r"need a factor of .* MiB .* solver='landmarks'"):
        smallest_pairs(path_laplacian(1_000), 2, most_bytes=20_000)
