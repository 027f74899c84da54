"""The solver of small matrices computes the pairs that are wanted, and the next one."""

from __future__ import annotations

import numpy as np
import pytest
from scipy import linalg

from bigembed.linalg import eigenpairs as dense
from bigembed.linalg.eigenpairs import solve_dense_matrix


def with_spectrum(values, seed=0):
    """A symmetric matrix with these eigenvalues, and its eigenvectors."""
    turn = np.linalg.qr(np.random.default_rng(seed).normal(size=(len(values), len(values))))[0]
    return (turn * values) @ turn.T, turn


@pytest.mark.parametrize("known", [0, 1, 2])
@pytest.mark.parametrize("wanted", [1, 3, 7, "all"])
def test_pairs_gaps_and_residuals_are_those_of_the_whole_spectrum(known, wanted):
    values = np.array([3.0, 2.5, 2.5, 2.5, 1.0, 0.999, 0.5, 0.5, 0.0, -1.0, -1.0, -4.0])
    matrix, turn = with_spectrum(values)
    rest = np.delete(values, np.arange(known))
    m = len(rest) if wanted == "all" else wanted
    found, vectors = solve_dense_matrix(matrix, m, deflate=turn[:, :known] if known else None)
    np.testing.assert_allclose(found.eigenvalues, rest[:m], atol=1e-13)
    everything = np.concatenate([rest, values[:known]])
    apart = np.abs(rest[:m, None] - everything)
    apart[np.arange(m), np.arange(m)] = np.inf
    np.testing.assert_allclose(found.gaps, apart.min(axis=1), atol=1e-13)
    assert found.gap == (pytest.approx(rest[m - 1] - rest[m], abs=1e-13) if m < len(rest) else np.inf)
    np.testing.assert_allclose(vectors.T @ vectors, np.eye(m), atol=1e-13)
    np.testing.assert_allclose(matrix @ vectors, vectors * found.eigenvalues, atol=1e-12)


def test_many_copies_of_an_eigenvalue_are_all_found():
    """The hypercube of dimension 7: 1 − 2j/7 with multiplicity C(7, j)."""
    n = 128
    nodes = np.arange(n)
    matrix = np.array([[bin(i ^ j).count("1") == 1 for j in nodes] for i in nodes]) / 7
    found, vectors = solve_dense_matrix(matrix, 28, deflate=np.full(n, n**-0.5))
    np.testing.assert_allclose(found.eigenvalues, [5 / 7] * 7 + [3 / 7] * 21, atol=1e-13)
    np.testing.assert_allclose(vectors.T @ vectors, np.eye(28), atol=1e-12)


def test_no_more_is_computed(monkeypatch):
    asked, real = [], linalg.eigh

    def eigh(matrix, **options):
        asked.append(options["subset_by_index"])
        return real(matrix, **options)

    monkeypatch.setattr(dense.linalg, "eigh", eigh)
    solve_dense_matrix(with_spectrum(np.arange(50.0))[0], 4)
    assert asked == [(45, 49)]
