"""Nonnegative factorization of the linearized kernel against the n × n matrix."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import bigembed as be
from bigembed.errors import ConvergenceWarning, InputError, KernelSignError, OutOfReachError
from bigembed.maps.linearized.factors import objective, stepped
from tests.executors import passes_in


def rows_of(n: int = 240, d: int = 5, seed: int = 0) -> np.ndarray:
    rng = np.random.default_rng(seed)
    centers = 4 * np.eye(3, d)
    return centers[np.arange(n) % 3] + 0.3 * rng.standard_normal((n, d))


def dense(X: np.ndarray, normalization: str, alpha: float = 0.0) -> np.ndarray:
    epsilon = 4 * ((X - X.mean(axis=0)) ** 2).sum(axis=1).max()
    kernel = 1 - ((X[:, None] - X[None]) ** 2).sum(axis=2) / epsilon
    if normalization == "none":
        return kernel
    q = kernel.sum(axis=1)
    walk = kernel / np.outer(q, q) ** alpha
    degree = walk.sum(axis=1)
    return walk / np.sqrt(np.outer(degree, degree))


def never_rises(values: np.ndarray) -> bool:
    return bool((np.diff(values) <= 0).all())


@pytest.mark.parametrize("solver", ["als", "mu"])
@pytest.mark.parametrize("init", ["nndsvda", "random"])
@pytest.mark.parametrize(("normalization", "alpha"), [("symmetric", 0.0), ("symmetric", 1.0), ("none", 0.0)])
@pytest.mark.filterwarnings("ignore::bigembed.errors.ConvergenceWarning")
def test_the_objective_is_that_of_the_matrix_and_never_rises(
    normalization: str, alpha: float, init: str, solver: str
) -> None:
    X = rows_of()
    kernel = dense(X, normalization, alpha)
    assert kernel.min() >= 0
    found = be.LinearizedDiffusionNMF(
        4, normalization=normalization, alpha=alpha, init=init, solver=solver, max_iter=40
    ).fit(X)
    assert never_rises(found.objectives_)
    assert len(found.objectives_) == found.n_iter_ + 1
    assert (found.embedding_ >= 0).all()
    error = np.linalg.norm(kernel - found.embedding_ @ found.embedding_.T)
    assert found.reconstruction_err_ == pytest.approx(error, rel=1e-6)
    assert found.certificate_["relative_error"] == pytest.approx(error / np.linalg.norm(kernel), rel=1e-6)
    assert found.certificate_["relative_error"] < 0.2
    other = dense(X, "symmetric" if normalization == "none" else "none")
    assert abs(np.linalg.norm(other - found.embedding_ @ found.embedding_.T) - error) > 0.01 * error


def test_als_comes_closer_in_fewer_passes() -> None:
    X = rows_of()
    with pytest.warns(ConvergenceWarning, match="max_iter=100"):
        slow = be.LinearizedDiffusionNMF(3, solver="mu", init="random", tol=0, max_iter=100).fit(X)
    fast = be.LinearizedDiffusionNMF(3, solver="als", init="random", max_iter=100).fit(X)
    assert fast.n_iter_ < 50
    assert fast.reconstruction_err_ < slow.reconstruction_err_


@settings(max_examples=30)
@given(st.integers(0, 10_000), st.integers(1, 6), st.floats(0.1, 10))
def test_a_careful_step_cannot_raise_the_objective(seed: int, m: int, size: float) -> None:
    """From starts of any size, where the multiplicative step can."""
    rng = np.random.default_rng(seed)
    kernel = dense(rng.standard_normal((25, 3)), "symmetric")
    h = size * rng.random((25, m))
    after = stepped(h, kernel @ h, h.T @ h, "careful")
    before, now = (np.linalg.norm(kernel - x @ x.T) for x in (h, after))
    assert now <= before * (1 + 1e-12)


def test_the_multiplicative_step_can_raise_it_from_a_start_of_the_wrong_size() -> None:
    kernel = dense(rows_of(40), "symmetric")
    h = 1e-2 * np.random.default_rng(0).random((40, 2))
    after = stepped(h, kernel @ h, h.T @ h, "mu")
    assert np.linalg.norm(kernel - after @ after.T) > np.linalg.norm(kernel - h @ h.T)
    small = h * np.sqrt((h * (kernel @ h)).sum() / np.linalg.norm(h.T @ h) ** 2)
    after = stepped(small, kernel @ small, small.T @ small, "mu")
    assert np.linalg.norm(kernel - after @ after.T) < np.linalg.norm(kernel - small @ small.T)


def test_a_rejected_step_is_taken_again_carefully(monkeypatch: pytest.MonkeyPatch) -> None:
    kinds: list[str] = []

    def wild(h: np.ndarray, image: np.ndarray, gram: np.ndarray, kind: str) -> np.ndarray:
        kinds.append(kind)
        return 3 * h if kind == "als" else stepped(h, image, gram, kind)

    monkeypatch.setattr("bigembed.maps.linearized.factors.stepped", wild)
    with pytest.warns(ConvergenceWarning):
        found = be.LinearizedDiffusionNMF(3, max_iter=4).fit(rows_of())
    assert kinds == ["als", "careful"] * 4
    assert never_rises(found.objectives_)
    assert found.certificate_["careful_steps"] == 4


def test_objective_from_small_matrices() -> None:
    rng = np.random.default_rng(0)
    z, h = rng.random((30, 4)), rng.random((30, 2))
    core = np.diag([1.0, -1.0, 1.0, 1.0])
    kernel, gram = z @ core @ z.T, z.T @ z
    whole = np.trace(core @ gram @ core @ gram)
    found = objective(whole, z.T @ h, core @ z.T @ h, h.T @ h)
    assert found == pytest.approx(np.linalg.norm(kernel - h @ h.T) ** 2)
    assert objective(whole, z.T @ h, z.T @ h, h.T @ h) != pytest.approx(found)


def test_groups_are_found_and_new_rows_join_them() -> None:
    X = rows_of()
    found = be.LinearizedDiffusionNMF(3, tol=1e-7, max_iter=2000).fit(X)
    belongs = found.embedding_.argmax(axis=1)
    assert all(len(set(belongs[group::3])) == 1 for group in range(3))
    assert len(set(belongs)) == 3
    np.testing.assert_allclose(found.transform(X), found.embedding_, atol=0.02 * found.embedding_.max())
    assert np.array_equal(found.transform(X[9:20]), found.transform(X)[9:20])
    fresh = rows_of(seed=5)
    assert np.array_equal(found.transform(fresh).argmax(axis=1), belongs)


def test_a_pass_an_iteration(monkeypatch: pytest.MonkeyPatch) -> None:
    made = passes_in(monkeypatch, "linearized.passes", "descent")
    found = be.LinearizedDiffusionNMF(3).fit(rows_of())
    assert found.certificate_["careful_steps"] == 0
    steps = ["step_block"] * found.n_iter_
    assert made == ["moments_of_block", "spread_block", "gram_block", "start_block", *steps]
    assert found.certificate_["passes"] == len(made)


def test_order_and_units_of_rows_do_not_matter() -> None:
    X = rows_of()
    order = np.random.default_rng(2).permutation(len(X))
    one = be.LinearizedDiffusionNMF(3).fit(X)
    other = be.LinearizedDiffusionNMF(3).fit(1e5 * X[order] + 7)
    np.testing.assert_allclose(other.embedding_, one.embedding_[order], atol=1e-6)


def test_what_is_refused() -> None:
    X = rows_of()
    with pytest.raises(KernelSignError):
        be.LinearizedDiffusionNMF(epsilon=1.0).fit(X)
    with pytest.raises(InputError, match="all rows are equal"):
        be.LinearizedDiffusionNMF().fit(np.ones((9, 2)))
    with pytest.raises(InputError, match="between 1 and n_samples"):
        be.LinearizedDiffusionNMF(10).fit(X[:9])
    with pytest.raises(InputError, match=r"normalization=.*solver=.*init="):
        be.LinearizedDiffusionNMF(normalization="no", solver="no", init="no").fit(X)
    found = be.LinearizedDiffusionNMF(3).fit(X)
    with pytest.raises(OutOfReachError, match="1 of 2 rows"):
        found.transform(np.concatenate([X[:1], 1e3 + X[:1]]))
