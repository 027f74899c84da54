"""Solvers of small matrices, and parts of the large ones."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import linalg, sparse
from scipy.linalg import subspace_angles
from scipy.optimize import nnls

from bigembed.errors import PlanError
from bigembed.linalg import eigenpairs as dense
from bigembed.linalg.eigenpairs import leading_pairs, solve_dense_matrix
from bigembed.linalg.moments import merge_moments, moments_block
from bigembed.linalg.nonnegative import nonnegative_rows
from bigembed.linalg.smallest import smallest_pairs


def with_spectrum(values, seed=0):
    """A symmetric matrix with these eigenvalues, and its eigenvectors."""
    turn = np.linalg.qr(np.random.default_rng(seed).normal(size=(len(values), len(values))))[0]
    return (turn * values) @ turn.T, turn


class TestDense:
    """The solver of small matrices computes the pairs that are wanted, and the next one."""

    @pytest.mark.parametrize("known", [0, 1, 2])
    @pytest.mark.parametrize("wanted", [1, 3, 7, "all"])
    def test_pairs_gaps_and_residuals_are_those_of_the_whole_spectrum(self, known, wanted):
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

    def test_many_copies_of_an_eigenvalue_are_all_found(self):
        """The hypercube of dimension 7: 1 − 2j/7 with multiplicity C(7, j)."""
        n = 128
        nodes = np.arange(n)
        matrix = np.array([[bin(i ^ j).count("1") == 1 for j in nodes] for i in nodes]) / 7
        found, vectors = solve_dense_matrix(matrix, 28, deflate=np.full(n, n**-0.5))
        np.testing.assert_allclose(found.eigenvalues, [5 / 7] * 7 + [3 / 7] * 21, atol=1e-13)
        np.testing.assert_allclose(vectors.T @ vectors, np.eye(28), atol=1e-12)


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


class TestKrylov:
    """Eigenpairs from the Krylov space of a random block: those of the whole spectrum, every copy, or none at all."""

    @pytest.mark.parametrize("order", ["as it is", "random"])
    @pytest.mark.parametrize("name", CASES)
    def test_leading_pairs_are_those_of_the_whole_spectrum(self, name, order):
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
    def test_nothing_is_reduced_where_the_space_is_small(self, name, monkeypatch):
        matrix, m = CASES[name]
        monkeypatch.setattr(dense, "_reduced", None)
        found, _ = solve_dense_matrix(matrix, m)
        assert (found.residuals <= 2e-12 * found.eigenvalues[0]).all()

    def test_a_spectrum_without_gaps_is_reduced(self):
        """A ring: 1 − λ grows from (2π/n)²/2, and the space would have to be that of all rows."""
        n = 600
        ring = sparse.diags_array([0.5, 0.5, 0.5, 0.5], offsets=[1, -1, n - 1, 1 - n], shape=(n, n)).tocsr()
        trivial = np.full((n, 1), n**-0.5)
        assert leading_pairs(ring, 3, trivial) is None
        found, _ = solve_dense_matrix(ring, 4, deflate=trivial)
        np.testing.assert_allclose(found.eigenvalues, np.cos(2 * np.pi / n * np.array([1, 1, 2, 2])), atol=1e-14)

    @pytest.mark.parametrize(("n", "m"), [(399, 3), (500, 42)])
    def test_few_rows_and_many_pairs_are_reduced(self, n, m):
        assert leading_pairs(np.eye(n), m, np.zeros((n, 0))) is None


def path_laplacian(n: int) -> sparse.csr_array:
    """L of a path; L² has the eigenvalues (2 − 2 cos(πl/n))² and the eigenvectors cos(πl(i + ½)/n)."""
    steps = sparse.diags_array([-np.ones(n), np.ones(n - 1)], offsets=(0, 1), shape=(n - 1, n))
    return (steps.T @ steps).tocsr()


class TestSmallest:
    """The smallest eigenpairs of AᵀA against closed forms, where AᵀA formed has lost them."""

    def test_vectors_are_right_where_eigenvalues_are_near_rounding(self) -> None:
        n, l = 6_000, np.arange(1, 4)
        found = smallest_pairs(path_laplacian(n), 3)
        exact = np.cos(np.pi * np.outer(np.arange(n) + 0.5, l) / n) * np.sqrt(2 / n)
        values = (2 - 2 * np.cos(np.pi * l / n)) ** 2  # the first is 7.5e-14
        np.testing.assert_allclose(found.values, values, rtol=1e-6)
        assert found.converged
        assert np.abs(np.abs(np.einsum("ij,ij->j", found.vectors, exact)) - 1).max() < 1e-9
        assert found.turns.max() < 1e-6
        assert found.values[0] < 100 * np.finfo(float).eps * found.norm  # of AᵀA formed nothing would be left

    def test_a_dense_matrix_has_the_same_eigenpairs(self) -> None:
        rng = np.random.default_rng(0)
        dense = rng.normal(size=(120, 80))
        dense -= dense.mean(axis=1, keepdims=True)
        found = smallest_pairs(sparse.csr_array(dense), 4)
        values, vectors = np.linalg.eigh(dense.T @ dense)
        np.testing.assert_allclose(found.values, values[1:5], rtol=1e-8)
        assert subspace_angles(found.vectors, vectors[:, 1:5]).max() < 1e-7
        assert subspace_angles(found.vectors, vectors[:, 2:6]).max() > 1e-1  # a control
        np.testing.assert_allclose(found.vectors.sum(axis=0), 0, atol=1e-12)

    def test_every_copy_of_an_eigenvalue_is_found(self) -> None:
        four = sparse.block_diag([path_laplacian(200)] * 4, format="csr")
        found = smallest_pairs(sparse.csr_array(four), 5)
        first = (2 - 2 * np.cos(np.pi / 200)) ** 2
        np.testing.assert_allclose(found.values, [0, 0, 0, first, first], rtol=1e-6, atol=1e-20)

    def test_a_factor_that_does_not_fit_is_refused_before_it_is_made(self) -> None:
        with pytest.raises(PlanError, match=r"need a factor of .* MiB .* solver='landmarks'"):
            smallest_pairs(path_laplacian(1_000), 2, most_bytes=20_000)


def problem(n: int, m: int, d: int, seed: int) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(seed)
    return rng.random((n, d)), rng.random((m, d)) * (rng.random((m, d)) < 0.5)


class TestNonnegative:
    """Nonnegative least squares against SciPy's active set, and what a descent promises."""

    @settings(max_examples=10)
    @given(st.integers(1, 6), st.integers(6, 12), st.integers(0, 10_000))
    def test_rows_are_those_of_the_active_set_method(self, m: int, d: int, seed: int) -> None:
        X, H = problem(5, m, d, seed)
        found = nonnegative_rows(X @ H.T, H @ H.T)
        assert (found >= 0).all()
        for x, w in zip(X, found):
            exact = nnls(H.T, x)[1]
            assert np.linalg.norm(x - w @ H) <= exact + 1e-7

    def test_no_sweep_raises_the_objective(self) -> None:
        X, H = problem(50, 8, 12, 1)
        cross, gram = X @ H.T, H @ H.T
        w = np.random.default_rng(2).random((50, 8))
        values = [np.linalg.norm(X - w @ H) ** 2]
        for _ in range(20):
            w = nonnegative_rows(cross, gram, w, sweeps=1)
            values.append(np.linalg.norm(X - w @ H) ** 2)
        assert (np.diff(values) <= 1e-12 * values[0]).all()
        assert values[-1] < 0.5 * values[0]

    def test_a_row_does_not_see_the_others(self) -> None:
        X, H = problem(40, 5, 9, 3)
        cross, gram = X @ H.T, H @ H.T
        assert np.array_equal(nonnegative_rows(cross, gram)[7:9], nonnegative_rows(cross[7:9], gram))

    def test_an_empty_component_has_no_weight(self) -> None:
        X, H = problem(6, 3, 7, 4)
        H[1] = 0
        assert not nonnegative_rows(X @ H.T, H @ H.T, np.ones((6, 3)))[:, 1].any()


def merged(rows, cuts, weights=None):
    parts = [
        moments_block(rows[a:b], None if weights is None else weights[a:b])
        for a, b in zip([0, *cuts], [*cuts, rows.shape[0]], strict=True)
    ]
    total = parts[0]
    for part in parts[1:]:
        total = merge_moments(total, part)
    return total


class TestMoments:
    """Moments of blocks against NumPy, and what a naive formula would lose."""

    @pytest.mark.parametrize("mean", [0.0, 1e8])
    def test_a_mean_far_from_zero_costs_no_digits(self, mean):
        rows = np.random.default_rng(0).normal(size=(5000, 6)) + mean
        found = merged(rows, [1, 700, 4999])
        centered = rows - rows.mean(axis=0)
        np.testing.assert_allclose(found["scatter"], centered.T @ centered, rtol=1e-7, atol=1e-4)
        if mean:  # a control: the uncentered formula fails by far
            naive = rows.T @ rows - len(rows) * np.outer(rows.mean(axis=0), rows.mean(axis=0))
            assert np.abs(naive - centered.T @ centered).max() > 1

    def test_weights_are_numbers_of_equal_rows(self):
        generator = np.random.default_rng(2)
        rows, weights = generator.normal(size=(300, 4)), generator.integers(0, 4, 300).astype(float)
        found, wanted = merged(rows, [50, 51], weights), moments_block(rows.repeat(weights.astype(int), axis=0))
        np.testing.assert_allclose(found["scatter"], wanted["scatter"])
        np.testing.assert_allclose(found["mean"], wanted["mean"])
        assert found["weight"] == wanted["weight"]
        assert found["count"] == np.count_nonzero(weights)

    def test_a_block_without_weight_adds_nothing(self):
        rows = np.random.default_rng(3).normal(size=(10, 2))
        weights = np.r_[np.zeros(5), np.ones(5)]
        np.testing.assert_allclose(merged(rows, [5], weights)["scatter"], moments_block(rows[5:])["scatter"])

    @pytest.mark.parametrize("weighted", [False, True])
    def test_sparse_rows_and_the_diagonal_agree_with_dense(self, weighted):
        rows = sparse.random(400, 7, density=0.2, random_state=0, format="csr")
        weights = np.random.default_rng(4).random(400) if weighted else None
        dense = moments_block(rows.toarray(), weights)
        thin = moments_block(rows, weights)
        np.testing.assert_allclose(thin["scatter"], dense["scatter"], atol=1e-12)
        for part in (rows, rows.toarray()):
            diagonal = moments_block(part, weights, diagonal=True)["scatter"]
            np.testing.assert_allclose(diagonal, np.diag(dense["scatter"]), atol=1e-12)
