"""Eigenpairs from the Krylov space of a random block: those of the whole spectrum, every copy, or none at all."""

from __future__ import annotations

import numpy as np
import pytest
from scipy import linalg, sparse

from bigembed.linalg import eigenpairs as dense
from bigembed.linalg.eigenpairs import leading_pairs, solve_dense_matrix


def hypercube(d):
    nodes = np.arange(1 << d)
    row, column = np.tile(nodes, d), np.concatenate([nodes ^ (1 << bit) for bit in range(d)])
    return sparse.csr_array((np.full(len(row), 1 / d), (row, column)))


def hamming(d, q):
    """Rows that differ in one of d letters out of q: eigenvalue 1 − jq/(d(q − 1)), C(d, j)(q − 1)^j times."""
    letters = np.stack(np.meshgrid(*[np.arange(q)] * d, indexing="ij"), axis=-1).reshape(-1, d)
    apart = (letters[:, None] != letters).sum(axis=2)
    return (apart == 1) / (d * (q - 1))


def bipartite(a, b):
    """√(ab) and −√(ab), and 0 for the others."""
    whole = np.zeros((a + b, a + b))
    whole[:a, a:] = whole[a:, :a] = 1.0
    return whole


def gaussian(n, d, seed=0):
    rows = np.random.default_rng(seed).normal(size=(n, d))
    kernel = np.exp(-((rows[:, None] - rows) ** 2).sum(axis=2) / 4)
    root = np.sqrt(kernel.sum(axis=1))
    return kernel / np.outer(root, root)


def groups(n, parts):
    """Blocks of ones, nearly apart."""
    return np.kron(np.eye(parts), np.full((n // parts, n // parts), parts / n)) + 1e-3 / n


CASES = {
    "hypercube": (hypercube(9), 9),
    "hypercube, a part": (hypercube(9), 4),
    "hamming": (hamming(3, 8), 21),
    "bipartite": (bipartite(200, 300), 4),
    "gaussian": (gaussian(500, 3), 6),
    "groups": (groups(600, 6), 5),
    "large numbers": (1e100 * gaussian(450, 2), 3),
    "small numbers": (1e-100 * gaussian(450, 2), 3),
}


@pytest.mark.parametrize("order", ["as it is", "random"])
@pytest.mark.parametrize("name", CASES)
def test_leading_pairs_are_those_of_the_whole_spectrum(name, order):
    matrix, m = CASES[name]
    n = matrix.shape[0]
    if order == "random":
        mixed = np.random.default_rng(1).permutation(n)
        matrix = matrix[mixed][:, mixed]
    whole = matrix.toarray() if sparse.issparse(matrix) else matrix
    values, vectors = linalg.eigh(whole)
    size, trivial = np.abs(values).max(), vectors[:, -1:]
    found, pairs = leading_pairs(matrix, m + 1, trivial)
    np.testing.assert_allclose(found, values[-2 : -m - 3 : -1], rtol=0, atol=1e-13 * size)
    np.testing.assert_allclose(whole @ pairs, pairs * found, rtol=0, atol=2e-12 * size)
    basis = np.column_stack([trivial, pairs])
    np.testing.assert_allclose(basis.T @ basis, np.eye(m + 2), atol=1e-10)
    again = leading_pairs(matrix, m + 1, trivial)
    np.testing.assert_array_equal(again[1], pairs)


@pytest.mark.parametrize("name", CASES)
def test_nothing_is_reduced_where_the_space_is_small(name, monkeypatch):
    matrix, m = CASES[name]
    monkeypatch.setattr(dense, "_reduced", None)
    found, _ = solve_dense_matrix(matrix, m)
    assert (found.residuals <= 2e-12 * found.eigenvalues[0]).all()


def test_a_spectrum_without_gaps_is_reduced():
    """A ring: 1 − λ grows from (2π/n)²/2, and the space would have to be that of all rows."""
    n = 600
    ring = sparse.diags_array([0.5, 0.5, 0.5, 0.5], offsets=[1, -1, n - 1, 1 - n], shape=(n, n)).tocsr()
    trivial = np.full((n, 1), n**-0.5)
    assert leading_pairs(ring, 3, trivial) is None
    found, _ = solve_dense_matrix(ring, 4, deflate=trivial)
    np.testing.assert_allclose(found.eigenvalues, np.cos(2 * np.pi / n * np.array([1, 1, 2, 2])), atol=1e-14)


@pytest.mark.parametrize(("n", "m"), [(399, 3), (500, 42)])
def test_few_rows_and_many_pairs_are_reduced(n, m):
    assert leading_pairs(np.eye(n), m, np.zeros((n, 0))) is None
