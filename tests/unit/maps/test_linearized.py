"""The linearized kernel, and linearized kernel PCA."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import reduce
from typing import Any

import numpy as np
import pytest

import bigembed as be
from bigembed.linalg.lanczos import FactoredResult, solve_factored
from bigembed.maps import linearized
from bigembed.rows import RowBlock
from bigembed.rows.passes import Parts
from bigembed.runtime.blocks import bounds
from tests.some import a_few


def rows_of(n: int, d: int, seed: int = 0) -> np.ndarray:
    rng = np.random.default_rng(seed)
    return rng.standard_normal((n, d)) * np.linspace(1, 0.3, d) + rng.standard_normal(d)


def dense_kernel(X: np.ndarray, epsilon: Any) -> np.ndarray:
    """1 − D²/ε_ij, ε_ij = √(ε_i ε_j), straight from the differences."""
    squared = ((X[:, None, :] - X[None, :, :]) ** 2).sum(axis=2)
    scale = np.broadcast_to(np.asarray(epsilon, float), (len(X),))
    return 1 - squared / np.sqrt(np.outer(scale, scale))


def dense_pairs(kernel: np.ndarray, alpha: float, mass: np.ndarray | None = None) -> tuple[np.ndarray, np.ndarray, Any]:
    """All eigenpairs of S but the trivial one, descending; v with Σ m v² = 1, ψ with Σ π ψ² = 1."""
    m = np.ones(len(kernel)) if mass is None else mass
    w = (kernel @ m) ** -alpha
    walk = kernel * np.outer(w, w)
    d = walk @ m
    s = walk * np.outer(np.sqrt(m / d), np.sqrt(m / d))
    values, vectors = np.linalg.eigh((s + s.T) / 2)
    values, vectors = values[::-1][1:], vectors[:, ::-1][:, 1:] / np.sqrt(m)[:, None]
    return values, vectors, vectors * np.sqrt((m * d).sum() / d)[:, None]


@dataclass
class Small:
    """The passes over rows in memory, block by block."""

    X: np.ndarray
    kernel: linearized.LinearizedKernel
    alpha: float
    mass: np.ndarray | None = None
    epsilons: np.ndarray | None = None
    block: int = 97

    def blocks(self) -> list[RowBlock]:
        aligned = {"weights": self.mass, "epsilons": self.epsilons}
        return [
            RowBlock(number, i, self.X[i:j], {name: v[i:j] for name, v in aligned.items() if v is not None})
            for number, (i, j) in enumerate(bounds(len(self.X), self.block))
        ]

    def summed(self, function: Any, **fixed: Any) -> Parts:
        return reduce(linearized.combine_sums, [function(block, **fixed) for block in self.blocks()])

    def solve(self, m: int, order: str = "algebraic") -> tuple[FactoredResult, linearized.Normalization, float]:
        kernel, core = self.kernel, self.kernel.core
        plain = linearized.Normalization(self.alpha, None, None)
        first = core @ self.summed(linearized.total_block, kernel=kernel, given=plain)["total"]
        given = linearized.Normalization(self.alpha, first, first)
        if self.alpha:
            total = self.summed(linearized.total_block, kernel=kernel, given=given)["total"]
            given = replace(given, second=core @ total)
        found = self.summed(linearized.gram_block, kernel=kernel, given=given, far=np.zeros(kernel.size))
        degrees = float(found["degrees"])
        n = len(self.X) if self.mass is None else int((self.mass > 0).sum())
        trivial = given.second / np.sqrt(degrees)
        return solve_factored(found["gram"], core, m, n, deflate=trivial, order=order), given, degrees

    def coordinates(self, m: int, symmetric: bool) -> tuple[np.ndarray, np.ndarray]:
        result, given, degrees = self.solve(m)
        found = linearized.LinearizedMap(self.kernel, given, result.coefficients, degrees, symmetric)
        return result.eigenvalues, found.coordinates(self.X, self.epsilons)


def spread(X: np.ndarray, center: np.ndarray, mass: np.ndarray | None = None) -> Parts:
    return linearized.spread_block(RowBlock(0, 0, X, {} if mass is None else {"weights": mass}), center)


def automatic(X: np.ndarray, mass: np.ndarray | None = None) -> linearized.LinearizedKernel:
    center = np.average(X, axis=0, weights=mass)
    return linearized.LinearizedKernel(center, 4 * float(spread(X, center, mass)["radius"]))


def same_up_to_sign(a: np.ndarray, b: np.ndarray, tol: float) -> bool:
    signs = np.sign((a * b).sum(axis=0))
    return bool(np.abs(a * signs - b).max() <= tol * np.abs(b).max())


def positive(values: np.ndarray) -> int:
    return int((values > 1e-12).sum())


class TestLinearized:
    """The linearized kernel and its few-feature solution against dense matrices."""

    @pytest.mark.parametrize("alpha", [0.0, 0.5, 1.0])
    @a_few(2, ("n", "d"), [(400, 3), (500, 10), (600, 30)])
    def test_pairs_are_those_of_the_dense_matrix(self, n: int, d: int, alpha: float) -> None:
        X = rows_of(n, d)
        kernel = automatic(X)
        values, vectors, right = dense_pairs(dense_kernel(X, kernel.epsilon), alpha)
        m = positive(values)
        assert m == d  # the negative eigenvalue of M takes one of the d + 1
        for symmetric, wanted in ((True, vectors), (False, right)):
            found, coordinates = Small(X, kernel, alpha).coordinates(m, symmetric)
            np.testing.assert_allclose(found, values[:m], rtol=0, atol=1e-14)
            assert same_up_to_sign(coordinates, wanted[:, :m], 1e-9)
        # Wrong answers: the other normalization, and vectors of another α.
        assert not same_up_to_sign(coordinates / np.linalg.norm(coordinates, axis=0), vectors[:, :m], 1e-9)
        other = dense_pairs(dense_kernel(X, kernel.epsilon), alpha + 0.25)
        assert np.abs(other[0][:m] - found).max() > 1e-10

    @pytest.mark.parametrize("alpha", [0.0, 1.0])
    def test_point_wise_scales_are_exact_at_rank_d_plus_three(self, alpha: float) -> None:
        X = rows_of(400, 10)
        base = automatic(X)
        epsilons = base.epsilon * np.random.default_rng(1).uniform(1, 4, len(X))
        kernel = replace(base, kind="given")
        dense = dense_kernel(X, epsilons)
        u = kernel.features(X, epsilons)
        np.testing.assert_allclose(u @ (kernel.core @ u.T), dense, atol=1e-13)
        assert np.linalg.matrix_rank(dense) == 10 + 3
        values, vectors, _ = dense_pairs(dense, alpha)
        m = positive(values)
        found, coordinates = Small(X, kernel, alpha, epsilons=epsilons).coordinates(m, True)
        np.testing.assert_allclose(found, values[:m], rtol=0, atol=1e-14)
        assert same_up_to_sign(coordinates, vectors[:, :m], 1e-9)
        assert np.abs(dense_pairs(dense_kernel(X, epsilons.mean()), alpha)[0][:m] - found).max() > 1e-6

    @pytest.mark.parametrize("shift", [0.0, 1.3])
    def test_scales_by_density_follow_the_row_sums(self, shift: float) -> None:
        X = rows_of(300, 5)
        center = X.mean(axis=0) + shift
        epsilon = 4 * float(spread(X, center)["radius"])
        z = np.sqrt(2 / epsilon) * (X - center)
        s = 0.5 * (z**2).sum(axis=1)
        scales = linearized.DensityScales(s.mean(), z.mean(axis=0), 1.5)
        kernel = linearized.LinearizedKernel(center, epsilon, "density", scales)
        q = dense_kernel(X, epsilon).sum(axis=1)
        # The largest row sum that any point could have is at the mean of the rows.
        at_mean = (1 - ((X - X.mean(axis=0)) ** 2).sum(axis=1) / epsilon).sum()
        own = epsilon * (at_mean / q) ** 1.5
        u = kernel.features(X)
        np.testing.assert_allclose(u @ (kernel.core @ u.T), dense_kernel(X, own), atol=1e-12)
        assert (u @ (kernel.core @ u.T)).min() >= 0
        assert own.min() >= epsilon * (1 - 1e-12)

    def test_rank_deficient_rows(self) -> None:
        rng = np.random.default_rng(3)
        X = rng.standard_normal((400, 3)) @ rng.standard_normal((3, 10))
        kernel = automatic(X)
        result, *_ = Small(X, kernel, 0.0).solve(8)
        values = dense_pairs(dense_kernel(X, kernel.epsilon), 0.0)[0]
        assert result.rank == 5
        np.testing.assert_allclose(result.eigenvalues[:3], values[:3], atol=1e-14)
        # Algebraic order: the null space comes before the negative eigenvalue, with coordinates 0.
        assert result.eigenvalues[3:].tolist() == [0.0] * 5
        assert not result.coefficients[:, 3:].any()
        by_size = Small(X, kernel, 0.0).solve(8, "magnitude")[0]
        np.testing.assert_allclose(by_size.eigenvalues[:4], values[np.argsort(-np.abs(values))[:4]], atol=1e-14)
        assert (by_size.eigenvalues < 0).sum() == 1

    def test_equal_rows_have_the_trivial_pair_alone(self) -> None:
        X = np.full((40, 3), 2.0)
        kernel = linearized.LinearizedKernel(np.zeros(3), 4 * 12.0)
        result, *_ = Small(X, kernel, 1.0).solve(2)
        assert result.rank == 1
        assert result.eigenvalues.tolist() == [0.0, 0.0]

    @pytest.mark.parametrize("symmetric", [True, False])
    def test_rows_beyond_the_reach_are_marked(self, symmetric: bool) -> None:
        X = rows_of(100, 3)
        kernel = automatic(X)
        result, given, degrees = Small(X, kernel, 0.5).solve(2)
        found = linearized.LinearizedMap(kernel, given, result.coefficients, degrees, symmetric)
        assert np.isnan(found.coordinates(X.mean(axis=0) + 3 * np.sqrt(kernel.epsilon) * np.eye(3))).all()
        assert np.isfinite(found.coordinates(X)).all()

    @pytest.mark.parametrize("symmetric", [True, False])
    @pytest.mark.parametrize("alpha", [0.0, 0.5, 1.0])
    @pytest.mark.parametrize("kind", ["global", "density", "given"])
    def test_the_linear_part_is_the_slope_at_the_center(self, kind: str, alpha: float, symmetric: bool) -> None:
        X = rows_of(300, 4)
        center = X.mean(axis=0) + 0.2  # off the mean, so that the degrees have a slope as well
        epsilon = 4 * float(spread(X, center)["radius"])
        z = np.sqrt(2 / epsilon) * (X - center)
        scales = (
            None
            if kind != "density"
            else linearized.DensityScales(0.5 * float((z**2).sum(axis=1).mean()), z.mean(axis=0), 1.0)
        )
        kernel = linearized.LinearizedKernel(center, epsilon, kind, scales)
        epsilons = np.full(300, epsilon) if kind == "given" else None
        result, given, degrees = Small(X, kernel, alpha, epsilons=epsilons).solve(3)
        found = linearized.LinearizedMap(kernel, given, result.coefficients, degrees, symmetric)
        linear, offset = found.linear_part()
        step = 1e-4 * np.sqrt(epsilon)
        at = np.full(9, epsilon) if kind == "given" else None
        around = found.coordinates(center + step * np.concatenate([np.zeros((1, 4)), np.eye(4), -np.eye(4)]), at)
        np.testing.assert_allclose(around[0], offset, rtol=1e-12, atol=1e-15)
        slope = ((around[1:5] - around[5:]) / (2 * step)).T
        np.testing.assert_allclose(linear, slope, atol=1e-6 * np.abs(linear).max())
        assert np.abs(np.sqrt(2 / epsilon) * result.coefficients[-4:].T - slope).max() > 1e-4 * np.abs(slope).max()


def rows_of_linearized_kernel_pca(n: int = 300, d: int = 6) -> np.ndarray:
    rng = np.random.default_rng(0)
    return rng.standard_normal((n, d)) * np.linspace(2, 0.5, d) + 5


def doubly_centered(matrix: np.ndarray) -> np.ndarray:
    centered = np.eye(len(matrix)) - 1 / len(matrix)
    return centered @ matrix @ centered


def apart(found: np.ndarray, wanted: np.ndarray) -> float:
    signs = np.sign((found * wanted).sum(axis=0))
    return float(np.abs(found * signs - wanted).max() / np.abs(wanted).max())


class TestLinearizedKernelPCA:
    """Linearized kernel PCA is PCA is classical MDS (seed 004 §2.3, §2.4)."""

    @a_few(2, "epsilon", [2.0, 50.0, "auto", "bessel"])
    def test_pairs_of_the_doubly_centered_linearized_kernel(self, epsilon: float | str) -> None:
        X = rows_of_linearized_kernel_pca()
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

    def test_with_two_it_is_pca_and_classical_mds(self) -> None:
        X = rows_of_linearized_kernel_pca()
        coordinates = be.LinearizedKernelPCA(3, epsilon=2.0).fit_transform(X)
        np.testing.assert_allclose(coordinates, be.PCA(3).fit_transform(X), atol=1e-10)
        squared = ((X[:, None] - X[None]) ** 2).sum(axis=2)
        values, vectors = np.linalg.eigh(-0.5 * doubly_centered(squared))
        assert apart(coordinates, vectors[:, ::-1][:, :3] * np.sqrt(values[::-1][:3])) < 1e-9
        other = be.LinearizedKernelPCA(3, epsilon=3.0).fit_transform(X)
        assert apart(other, coordinates) > 0.1
