"""The matrix-free operator of the linearized diffusion map against seed 004's formulas and the factored solver."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import pytest

from bigembed.linalg.lanczos import solve_factored, solve_lanczos
from bigembed.linalg.operator import FactoredOperator
from bigembed.maps.linearized.kernel import LinearizedKernel
from bigembed.runtime.blocks import bounds
from bigembed.store.vector_space import MemorySpace
from tests.operator_views import as_linear_operator, dot_test


@dataclass(frozen=True)
class Held:
    """Features of rows held in this process."""

    X: np.ndarray
    kernel: LinearizedKernel
    block: int

    @property
    def size(self) -> int:
        return self.kernel.size

    @property
    def rows(self) -> tuple[int, ...]:
        return tuple(stop - start for start, stop in bounds(len(self.X), self.block))

    def tiles(self, block: int) -> Iterator[tuple[slice, np.ndarray]]:
        return self.kernel.tiles(self.X[block * self.block : (block + 1) * self.block])


def held(n: int, d: int, kind: str = "global", block: int = 150) -> Held:
    rng = np.random.default_rng(0)
    X = rng.standard_normal((n, d)) * np.linspace(2, 0.5, d)
    epsilon = 4 * ((X - X.mean(axis=0)) ** 2).sum(axis=1).max()
    return Held(X, LinearizedKernel(X.mean(axis=0), epsilon, kind), block)


def operator_of(features: Held, scale: np.ndarray) -> FactoredOperator:
    space = MemorySpace(sizes=features.rows)
    for b, (start, stop) in enumerate(bounds(len(features.X), features.block)):
        space.write("scale", b, scale[start:stop, None])
    return FactoredOperator(features, features.kernel.core, space)


def seed_formula(features: Held, scale: np.ndarray, v: np.ndarray) -> np.ndarray:
    """Seed 004 eq. 12, term by term."""
    R, epsilon = features.X - features.kernel.center, features.kernel.epsilon
    square = (R**2).sum(axis=1)
    return (
        scale * (1 - square / epsilon) * (scale @ v)
        - scale * (square @ (scale * v)) / epsilon
        + 2 / epsilon * scale * (R @ (R.T @ (scale * v)))
    )


def degrees(features: Held) -> np.ndarray:
    u = features.kernel.features(features.X)
    return u @ (features.kernel.core @ u.sum(axis=0)[:, None])[:, 0]


def test_products_are_those_of_the_formula() -> None:
    features = held(400, 6)
    scale = degrees(features) ** -0.5
    view = as_linear_operator(operator_of(features, scale))
    v = np.random.default_rng(1).standard_normal(400)
    wanted = seed_formula(features, scale, v)
    np.testing.assert_allclose(view @ v, wanted, atol=1e-12)
    assert np.abs(seed_formula(features, np.ones(400), v) - wanted).max() > 1e-3


def test_the_operator_is_symmetric_and_counts_its_walks() -> None:
    features = held(400, 6)
    operator = operator_of(features, degrees(features) ** -0.5)
    assert dot_test(operator) < 1e-14
    assert operator.passes == 2
    assert operator.bytes_moved == 2 * len(features.rows) * 8 * features.size * 2

    class Crooked(FactoredOperator):
        """M replaced by a matrix that is not symmetric."""

    wrong = Crooked(features, np.triu(np.ones((8, 8))), operator.space)
    assert dot_test(wrong) > 1e-3


@pytest.mark.parametrize("d", [3, 30])
def test_lanczos_agrees_with_the_factored_solver(d: int) -> None:
    features = held(500, d)
    q = degrees(features)
    operator = operator_of(features, q**-0.5)
    for b, (start, stop) in enumerate(bounds(500, 150)):
        operator.space.write("trivial", b, np.sqrt(q / q.sum())[start:stop, None])
    by_passes = solve_lanczos(operator, 3, tol=1e-11, deflate="trivial")
    u = features.kernel.features(features.X)
    first = (features.kernel.core @ u.sum(axis=0)[:, None])[:, 0]
    exact = solve_factored((u / q[:, None]).T @ u, features.kernel.core, 3, 500, deflate=first / np.sqrt(q.sum()))
    assert by_passes.converged
    np.testing.assert_allclose(by_passes.eigenvalues, exact.eigenvalues, atol=1e-13)
    v = np.concatenate([operator.space.read("V", b) for b in range(len(features.rows))])
    w = (u @ exact.coefficients) / np.sqrt(q)[:, None]
    np.testing.assert_allclose(np.abs(v.T @ w), np.eye(3), atol=1e-9)
    assert np.abs(np.abs(v.T @ w[::-1]) - np.eye(3)).max() > 0.1


def test_the_linear_kernel_is_the_operator_of_pca() -> None:
    """Seed 004 eq. 8."""
    features = held(300, 5, "linear")
    C, epsilon = features.X - features.kernel.center, features.kernel.epsilon
    view = as_linear_operator(operator_of(features, np.ones(300)))
    v = np.random.default_rng(2).standard_normal((300, 2))
    np.testing.assert_allclose(view @ v, 2 / epsilon * C @ (C.T @ v), atol=1e-13)
