"""Linearized diffusion maps, and their nonnegative factors."""

from __future__ import annotations

import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import bigembed as be
from bigembed.errors import ConvergenceWarning, DegenerateWarning, InputError, KernelSignError, OutOfReachError
from bigembed.maps.linearized.factors import step_factors
from bigembed.rows import RowSource
from tests.some import a_few


def rows_of(n: int = 400, d: int = 6, seed: int = 0) -> np.ndarray:
    rng = np.random.default_rng(seed)
    return rng.standard_normal((n, d)) * np.linspace(2, 0.5, d) + rng.standard_normal(d)


def dense(X: np.ndarray, epsilon: Any, alpha: float) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Eigenvalues beside the trivial one, v (Σ v² = 1) and ψ (Σ π ψ² = 1), from the n × n matrices themselves."""
    scale = np.broadcast_to(np.asarray(epsilon, float), (len(X),))
    kernel = 1 - ((X[:, None] - X[None]) ** 2).sum(axis=2) / np.sqrt(np.outer(scale, scale))
    q = kernel.sum(axis=1)
    walk = kernel / np.outer(q, q) ** alpha
    degree = walk.sum(axis=1)
    values, vectors = np.linalg.eigh(walk / np.sqrt(np.outer(degree, degree)))
    values, vectors = values[::-1][1:], vectors[:, ::-1][:, 1:]
    markov = walk / degree[:, None]
    right = vectors * np.sqrt(degree.sum() / degree)[:, None]
    assert np.abs(markov @ right[:, :3] - right[:, :3] * values[:3]).max() < 1e-12
    return values, vectors, right


def apart(found: np.ndarray, wanted: np.ndarray) -> float:
    """Largest difference of columns up to their signs, over the largest entry."""
    signs = np.sign((found * wanted).sum(axis=0))
    return float(np.abs(found * signs - wanted).max() / np.abs(wanted).max())


class Counted:
    """Rows read from sources of all rows, as a multiple of them."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, n: int) -> None:
        self.n, self.rows = n, 0
        original = RowSource.read

        def read(source: RowSource, start: int, stop: int) -> Any:
            self.rows += stop - start if source.shape[0] == n else 0
            return original(source, start, stop)

        monkeypatch.setattr(RowSource, "read", read)

    def passes(self) -> float:
        found, self.rows = self.rows / self.n, 0
        return found


class TestLinearizedDiffusionMap:
    """LDM and LDM-A: against dense matrices, their invariances, their passes, and what they refuse."""

    @pytest.mark.parametrize("solver", ["factored", "lanczos"])
    @a_few(2, "alpha", [0.0, 0.5, 1.0])
    @pytest.mark.parametrize("normalization", ["symmetric", "asymmetric"])
    def test_coordinates_are_those_of_the_dense_matrix(self, normalization: str, alpha: float, solver: str) -> None:
        X = rows_of()
        ldm = be.LinearizedDiffusionMap(
            5, normalization=normalization, alpha=alpha, scaling="eigenvector", solver=solver, tol=1e-11
        ).fit(X)
        assert ldm.epsilon_ == pytest.approx(4 * ((X - X.mean(axis=0)) ** 2).sum(axis=1).max(), rel=1e-14)
        values, v, psi = dense(X, ldm.epsilon_, alpha)
        np.testing.assert_allclose(ldm.eigenvalues_, values[:5], atol=1e-14)
        wanted, other = (v, psi) if normalization == "symmetric" else (psi, v)
        assert apart(ldm.embedding_, wanted[:, :5]) < 1e-9
        assert apart(ldm.embedding_, other[:, :5]) > 1e-2

    @pytest.mark.parametrize(("scaling", "power"), [("eigenvector", 0.0), ("sqrt", 0.5), ("eigenvalue", 1.0)])
    def test_scaling_of_coordinates(self, scaling: str, power: float) -> None:
        X = rows_of()
        plain = be.LinearizedDiffusionMap(7, scaling="eigenvector", order="magnitude").fit(X)
        scaled = be.LinearizedDiffusionMap(7, scaling=scaling, order="magnitude").fit(X)
        assert (plain.eigenvalues_ < 0).sum() == 1
        sign = np.where((plain.eigenvalues_ < 0) & (power == 1), -1, 1)
        factor = sign * np.abs(plain.eigenvalues_) ** power
        np.testing.assert_allclose(scaled.embedding_, plain.embedding_ * factor, rtol=1e-9, atol=1e-15)

    @a_few(1, "alpha", [0.0, 1.0])
    @pytest.mark.parametrize("solver", ["factored", "lanczos"])
    def test_a_scale_for_each_row(self, alpha: float, solver: str) -> None:
        X = rows_of()
        enough = 4 * ((X - X.mean(axis=0)) ** 2).sum(axis=1).max()
        epsilons = enough * np.random.default_rng(1).uniform(1, 3, len(X))
        ldm = be.LinearizedDiffusionMap(4, alpha=alpha, scaling="eigenvector", solver=solver, tol=1e-11)
        ldm.fit(X, epsilons=epsilons)
        values, v, _ = dense(X, epsilons, alpha)
        np.testing.assert_allclose(ldm.eigenvalues_, values[:4], atol=1e-14)
        assert apart(ldm.embedding_, v[:, :4]) < 1e-9
        assert np.array_equal(ldm.transform(X[:50], epsilons=epsilons[:50]), ldm.embedding_[:50])
        assert np.abs(ldm.transform(X[:50], epsilons=np.full(50, enough)) - ldm.embedding_[:50]).max() > 1e-6
        with pytest.raises(InputError, match="was fitted with epsilons: new rows need theirs"):
            ldm.transform(X)
        with pytest.raises(InputError, match="was fitted without epsilons; leave them out"):
            be.LinearizedDiffusionMap().fit(X).transform(X, epsilons=epsilons)
        with pytest.raises(InputError, match="must be positive and finite"):
            ldm.transform(X, epsilons=np.full(len(X), -1.0))
        with pytest.raises(InputError, match="one number a row"):
            ldm.transform(X, epsilons=epsilons[:5])

    @settings(max_examples=6)
    @given(
        unit=st.sampled_from([1e-5, 1.0, 1e5]),
        shift=st.floats(-1e3, 1e3),
        alpha=st.sampled_from([0.0, 0.5, 1.0]),
        seed=st.integers(0, 100),
    )
    def test_units_place_and_direction_do_not_matter(self, unit: float, shift: float, alpha: float, seed: int) -> None:
        rng = np.random.default_rng(seed)
        X = rows_of(80, 4, seed)
        turn = np.linalg.qr(rng.standard_normal((4, 4)))[0]
        order = rng.permutation(80)
        one = be.LinearizedDiffusionMap(3, alpha=alpha).fit(X)
        other = be.LinearizedDiffusionMap(3, alpha=alpha).fit((unit * (X @ turn + shift))[order])
        np.testing.assert_allclose(other.eigenvalues_, one.eigenvalues_, rtol=1e-8)
        assert apart(other.embedding_, one.embedding_[order]) < 1e-5
        stretched = be.LinearizedDiffusionMap(3, alpha=alpha).fit(X * [1, 1, 1, 3])
        assert np.abs(stretched.eigenvalues_ - one.eigenvalues_).max() > 1e-3

    @a_few(1, "n_components", [2, 30])
    @pytest.mark.parametrize(
        ("parameters", "fit"),
        [
            ({}, 3),
            ({"alpha": 1.0}, 4),
            ({"alpha": 0.5, "normalization": "asymmetric"}, 4),
            ({"center": False}, 2),
            ({"epsilon": 1e4}, 3),
            ({"epsilon": "density"}, 4),
        ],
    )
    def test_passes_over_the_rows(
        self, parameters: dict[str, Any], fit: int, n_components: int, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
    ) -> None:
        X = rows_of(5000, 32)
        np.save(tmp_path / "rows.npy", X)
        counted = Counted(monkeypatch, len(X))
        ldm = be.LinearizedDiffusionMap(n_components, **parameters).fit(tmp_path / "rows.npy")
        assert counted.passes() == fit + 1  # to judge the map rows of a few blocks are read, here there is one
        assert ldm.certificate_["passes"] == fit
        ldm.embedding_.compute(scheduler="synchronous")
        assert counted.passes() == 1

    def test_scales_given_beside_the_rows_take_four_passes_and_the_output_one(
        self, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        X = rows_of(3000, 5)
        counted = Counted(monkeypatch, len(X))
        ldm = be.LinearizedDiffusionMap(2).fit(X, epsilons=np.full(len(X), 1e4))
        assert ldm.certificate_["passes"] == 4
        assert counted.passes() == 2 * 4 + 1  # rows and their scales; of drawn rows the scales, from their block
        assert np.isfinite(ldm.embedding_).all()
        assert counted.passes() == 2

    def test_components_that_do_not_exist_are_zero_and_said(self) -> None:
        rng = np.random.default_rng(0)
        flat = rng.standard_normal((200, 2)) @ rng.standard_normal((2, 6))
        with pytest.warns(DegenerateWarning, match="3 of 5 components do not exist"):
            ldm = be.LinearizedDiffusionMap(5).fit(flat)
        assert (ldm.eigenvalues_[:2] > 0).all()
        assert not ldm.eigenvalues_[2:].any()
        assert not ldm.embedding_[:, 2:].any()
        few = np.repeat([[0.0, 0, 0], [1, 0, 0], [0, 1, 0]], 5, axis=0)
        with pytest.warns(DegenerateWarning, match="fewer distinct rows"):
            be.LinearizedDiffusionMap(3).fit(few)
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            be.LinearizedDiffusionMap(2).fit(few)

    @pytest.mark.parametrize("solver", ["factored", "lanczos"])
    def test_a_scale_that_is_too_small(self, solver: str) -> None:
        X = rows_of()
        squared = ((X[:, None] - X[None]) ** 2).sum(axis=2)
        with pytest.raises(KernelSignError, match="entry of"):
            be.LinearizedDiffusionMap(epsilon=0.7 * squared.max(), solver=solver).fit(X)
        with pytest.raises(KernelSignError, match="row sum"):
            be.LinearizedDiffusionMap(epsilon=0.1 * squared.mean(), solver=solver).fit(X)
        with pytest.raises(KernelSignError, match="row sum"):
            be.LinearizedDiffusionMap(epsilon=0.1 * squared.mean(), alpha=1.0, solver=solver).fit(X)
        with pytest.warns(DegenerateWarning, match="not seen to be negative"):
            ldm = be.LinearizedDiffusionMap(epsilon=1.001 * squared.max(), solver=solver).fit(X)
        assert ldm.certificate_["kernel_nonnegative"] == "not disproved"
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            ldm = be.LinearizedDiffusionMap(epsilon=4.1 * squared.max(), solver=solver).fit(X)
        assert ldm.certificate_["kernel_nonnegative"] == "proved"


def rows_of_linearized_diffusion_nmf(n: int = 240, d: int = 5, seed: int = 0) -> np.ndarray:
    rng = np.random.default_rng(seed)
    centers = 4 * np.eye(3, d)
    return centers[np.arange(n) % 3] + 0.3 * rng.standard_normal((n, d))


def dense_of_linearized_diffusion_nmf(X: np.ndarray, normalization: str, alpha: float = 0.0) -> np.ndarray:
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


class TestLinearizedDiffusionNMF:
    """Nonnegative factorization of the linearized kernel against the n × n matrix."""

    @pytest.mark.parametrize("solver", ["als", "mu"])
    @pytest.mark.parametrize("init", ["nndsvda", "random"])
    @a_few(1, ("normalization", "alpha"), [("symmetric", 0.0), ("symmetric", 1.0), ("none", 0.0)])
    @pytest.mark.filterwarnings("ignore::bigembed.errors.ConvergenceWarning")
    def test_the_objective_is_that_of_the_matrix_and_never_rises(
        self, normalization: str, alpha: float, init: str, solver: str
    ) -> None:
        X = rows_of_linearized_diffusion_nmf()
        kernel = dense_of_linearized_diffusion_nmf(X, normalization, alpha)
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
        other = dense_of_linearized_diffusion_nmf(X, "symmetric" if normalization == "none" else "none")
        assert abs(np.linalg.norm(other - found.embedding_ @ found.embedding_.T) - error) > 0.01 * error

    def test_als_comes_closer_in_fewer_passes(self) -> None:
        X = rows_of_linearized_diffusion_nmf()
        with pytest.warns(ConvergenceWarning, match="max_iter=100"):
            slow = be.LinearizedDiffusionNMF(3, solver="mu", init="random", tol=0, max_iter=100).fit(X)
        fast = be.LinearizedDiffusionNMF(3, solver="als", init="random", max_iter=100).fit(X)
        assert fast.n_iter_ < 50
        assert fast.reconstruction_err_ < slow.reconstruction_err_

    @settings(max_examples=15)
    @given(st.integers(0, 10_000), st.integers(1, 6), st.floats(0.1, 10))
    def test_a_careful_step_cannot_raise_the_objective(self, seed: int, m: int, size: float) -> None:
        """From starts of any size, where the multiplicative step can."""
        rng = np.random.default_rng(seed)
        kernel = dense_of_linearized_diffusion_nmf(rng.standard_normal((25, 3)), "symmetric")
        h = size * rng.random((25, m))
        after = step_factors(h, kernel @ h, h.T @ h, "careful")
        before, now = (np.linalg.norm(kernel - x @ x.T) for x in (h, after))
        assert now <= before * (1 + 1e-12)

    def test_a_rejected_step_is_taken_again_carefully(self, monkeypatch: pytest.MonkeyPatch) -> None:
        kinds: list[str] = []

        def wild(h: np.ndarray, image: np.ndarray, gram: np.ndarray, kind: str) -> np.ndarray:
            kinds.append(kind)
            return 3 * h if kind == "als" else step_factors(h, image, gram, kind)

        monkeypatch.setattr("bigembed.maps.linearized.factors.step_factors", wild)
        with pytest.warns(ConvergenceWarning):
            found = be.LinearizedDiffusionNMF(3, max_iter=4).fit(rows_of_linearized_diffusion_nmf())
        assert kinds == ["als", "careful"] * 4
        assert never_rises(found.objectives_)
        assert found.certificate_["careful_steps"] == 4

    def test_groups_are_found_and_new_rows_join_them(self) -> None:
        X = rows_of_linearized_diffusion_nmf()
        found = be.LinearizedDiffusionNMF(3, tol=1e-7, max_iter=2000).fit(X)
        belongs = found.embedding_.argmax(axis=1)
        assert all(len(set(belongs[group::3])) == 1 for group in range(3))
        assert len(set(belongs)) == 3
        np.testing.assert_allclose(found.transform(X), found.embedding_, atol=0.02 * found.embedding_.max())
        assert np.array_equal(found.transform(X[9:20]), found.transform(X)[9:20])
        fresh = rows_of_linearized_diffusion_nmf(seed=5)
        assert np.array_equal(found.transform(fresh).argmax(axis=1), belongs)

    def test_new_rows_out_of_reach(self) -> None:
        X = rows_of_linearized_diffusion_nmf()
        found = be.LinearizedDiffusionNMF(3).fit(X)
        with pytest.raises(OutOfReachError, match="1 of 2 rows"):
            found.transform(np.concatenate([X[:1], 1e3 + X[:1]]))
