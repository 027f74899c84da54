"""LDM and LDM-A: against dense matrices, their invariances, their passes, and what they refuse."""

from __future__ import annotations

import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import bigembed as be
from bigembed.errors import DegenerateWarning, InputError, KernelSignError, OutOfReachError
from bigembed.rows.source import RowSource


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


@pytest.mark.parametrize("solver", ["factored", "lanczos"])
@pytest.mark.parametrize("alpha", [0.0, 0.5, 1.0])
@pytest.mark.parametrize("normalization", ["symmetric", "asymmetric"])
def test_coordinates_are_those_of_the_dense_matrix(normalization: str, alpha: float, solver: str) -> None:
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
def test_scaling_of_coordinates(scaling: str, power: float) -> None:
    X = rows_of()
    plain = be.LinearizedDiffusionMap(7, scaling="eigenvector", order="magnitude").fit(X)
    scaled = be.LinearizedDiffusionMap(7, scaling=scaling, order="magnitude").fit(X)
    assert (plain.eigenvalues_ < 0).sum() == 1
    sign = np.where((plain.eigenvalues_ < 0) & (power == 1), -1, 1)
    factor = sign * np.abs(plain.eigenvalues_) ** power
    np.testing.assert_allclose(scaled.embedding_, plain.embedding_ * factor, rtol=1e-9, atol=1e-15)


def test_both_solvers_agree_on_the_negative_eigenvalue() -> None:
    X = rows_of()
    exact = be.LinearizedDiffusionMap(7, order="magnitude").fit(X)
    by_passes = be.LinearizedDiffusionMap(7, order="magnitude", solver="lanczos", tol=1e-11).fit(X)
    assert (exact.eigenvalues_ < 0).sum() == 1
    np.testing.assert_allclose(by_passes.eigenvalues_, exact.eigenvalues_, atol=1e-13)
    assert apart(by_passes.embedding_, exact.embedding_) < 1e-6
    assert by_passes.certificate_["passes"] > exact.certificate_["passes"]


def test_the_origin_as_center_squeezes_the_spectrum() -> None:
    X = rows_of() + 30
    values = dense(X, 4 * (X**2).sum(axis=1).max(), 0.0)[0]
    ldm = be.LinearizedDiffusionMap(3, center=False).fit(X)
    np.testing.assert_allclose(ldm.eigenvalues_, values[:3], atol=1e-13)
    assert be.LinearizedDiffusionMap(3).fit(X).eigenvalues_[0] > 10 * ldm.eigenvalues_[0]


@pytest.mark.parametrize("alpha", [0.0, 1.0])
@pytest.mark.parametrize("solver", ["factored", "lanczos"])
def test_a_scale_for_each_row(alpha: float, solver: str) -> None:
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


def test_scales_by_density() -> None:
    X = rows_of()
    C = X - X.mean(axis=0)
    enough = 4 * (C**2).sum(axis=1).max()
    q = (1 - ((X[:, None] - X[None]) ** 2).sum(axis=2) / enough).sum(axis=1)
    highest = (1 - (C**2).sum(axis=1) / enough).sum()
    ldm = be.LinearizedDiffusionMap(4, epsilon="density", beta=2.0, scaling="eigenvector").fit(X)
    values, v, _ = dense(X, enough * (highest / q) ** 2, 0.0)
    np.testing.assert_allclose(ldm.eigenvalues_, values[:4], atol=1e-14)
    assert apart(ldm.embedding_, v[:, :4]) < 1e-9
    assert np.array_equal(ldm.transform(X[7:90]), ldm.embedding_[7:90])


@settings(max_examples=12)
@given(
    unit=st.sampled_from([1e-5, 1.0, 1e5]),
    shift=st.floats(-1e3, 1e3),
    alpha=st.sampled_from([0.0, 0.5, 1.0]),
    seed=st.integers(0, 100),
)
def test_units_place_and_direction_do_not_matter(unit: float, shift: float, alpha: float, seed: int) -> None:
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


@settings(max_examples=12)
@given(counts=st.lists(st.integers(0, 3), min_size=40, max_size=40), alpha=st.sampled_from([0.0, 1.0]))
def test_a_weight_is_a_number_of_equal_rows(counts: list[int], alpha: float) -> None:
    counts[:8] = [1, 2, 1, 2, 1, 1, 3, 1]
    X = rows_of(40, 3)
    weighted = be.LinearizedDiffusionMap(2, alpha=alpha, outside="nan").fit(X, sample_weight=np.array(counts))
    repeated = be.LinearizedDiffusionMap(2, alpha=alpha).fit(np.repeat(X, counts, axis=0))
    np.testing.assert_allclose(weighted.eigenvalues_, repeated.eigenvalues_, rtol=1e-10)
    assert apart(np.repeat(weighted.embedding_, counts, axis=0), repeated.embedding_) < 1e-8


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


@pytest.mark.parametrize("n_components", [2, 30])
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
    parameters: dict[str, Any], fit: int, n_components: int, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    X = rows_of(5000, 32)
    np.save(tmp_path / "rows.npy", X)
    counted = Counted(monkeypatch, len(X))
    ldm = be.LinearizedDiffusionMap(n_components, **parameters).fit(tmp_path / "rows.npy")
    assert counted.passes() == fit + 1  # to judge the map rows of a few blocks are read, here there is one
    assert ldm.certificate_["passes"] == fit
    ldm.embedding_.compute(scheduler="synchronous")
    assert counted.passes() == 1


def test_scales_given_beside_the_rows_take_four_passes_and_the_output_one(monkeypatch: pytest.MonkeyPatch) -> None:
    X = rows_of(3000, 5)
    counted = Counted(monkeypatch, len(X))
    ldm = be.LinearizedDiffusionMap(2).fit(X, epsilons=np.full(len(X), 1e4))
    assert ldm.certificate_["passes"] == 4
    assert counted.passes() == 2 * 4 + 1  # rows and their scales; of drawn rows the scales, from their block
    assert np.isfinite(ldm.embedding_).all()
    assert counted.passes() == 2


def test_another_scaling_goes_on_from_the_same_run(tmp_path: Path) -> None:
    X = rows_of()
    plain = be.LinearizedDiffusionMap(3, alpha=0.5, workdir=tmp_path / "run.zarr").fit(X).embedding_
    again = be.LinearizedDiffusionMap(3, alpha=0.5, scaling="sqrt", workdir=tmp_path / "run.zarr").fit(X)
    fresh = be.LinearizedDiffusionMap(3, alpha=0.5, scaling="sqrt").fit(X)
    assert np.array_equal(again.embedding_, fresh.embedding_)
    assert not np.allclose(again.embedding_, plain)


def test_linear_part_is_the_map_near_the_center() -> None:
    X = rows_of()
    ldm = be.LinearizedDiffusionMap(3, alpha=0.5).fit(X)
    near = ldm.mean_ + 1e-4 * (X - X.mean(axis=0))
    linear = ldm.offset_ + (near - ldm.mean_) @ ldm.components_.T
    slope = np.abs(linear - ldm.offset_).max()
    assert np.abs(ldm.transform(near) - linear).max() < 1e-3 * slope
    assert np.abs(ldm.transform(X) - ldm.offset_ - (X - ldm.mean_) @ ldm.components_.T).max() > 1e-3


def test_components_that_do_not_exist_are_zero_and_said() -> None:
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


@pytest.mark.parametrize("value", [0.1, 1e8 + 0.1, 1e-30])
def test_equal_rows_are_refused(value: float) -> None:
    with pytest.raises(InputError, match="all rows are equal"):
        be.LinearizedDiffusionMap().fit(np.full((1000, 4), value))


def test_rows_equal_off_the_origin_have_a_kernel_of_ones() -> None:
    with pytest.warns(DegenerateWarning, match="2 of 2 components do not exist"):
        be.LinearizedDiffusionMap(center=False).fit(np.full((50, 3), 2.0))
    with pytest.raises(InputError, match="all rows are zero"):
        be.LinearizedDiffusionMap(center=False).fit(np.zeros((50, 3)))


def test_one_row_and_two() -> None:
    with pytest.raises(InputError, match=r"1 sample\(s\)"):
        be.LinearizedDiffusionMap(1).fit(np.ones((1, 3)))
    ldm = be.LinearizedDiffusionMap(1).fit(np.array([[0.0, 0.0], [2.0, 0.0]]))
    np.testing.assert_allclose(ldm.eigenvalues_, [1.0])
    with pytest.raises(InputError, match="no more eigenvalues besides the trivial one"):
        be.LinearizedDiffusionMap(2).fit(np.array([[0.0, 0.0], [2.0, 0.0]]))


@pytest.mark.parametrize("solver", ["factored", "lanczos"])
def test_a_scale_that_is_too_small(solver: str) -> None:
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


def test_new_rows_out_of_reach() -> None:
    X = rows_of()
    far = np.concatenate([X[:3], X[:1] + 100 * np.sqrt(((X - X.mean(axis=0)) ** 2).sum(axis=1).max())])
    ldm = be.LinearizedDiffusionMap(2).fit(X)
    with pytest.raises(OutOfReachError, match=r"1 of 4 rows .* the first are rows \[3\]"):
        ldm.transform(far)
    marked = be.LinearizedDiffusionMap(2, outside="nan").fit(X).transform(far)
    assert np.isnan(marked[3]).all()
    assert np.array_equal(marked[:3], ldm.transform(X[:3]))


def test_parameters_out_of_range_are_listed_together() -> None:
    with pytest.raises(InputError) as caught:
        be.LinearizedDiffusionMap(
            0, normalization="both", epsilon="best", beta=-1, scaling="no", order="up", solver="magic", outside="drop"
        ).fit(rows_of())
    for name in ("n_components", "normalization", "epsilon", "beta", "scaling", "order", "solver", "outside"):
        assert f"{name}=" in str(caught.value)
    with pytest.raises(InputError, match="both given"):
        be.LinearizedDiffusionMap(epsilon=3.0).fit(rows_of(), epsilons=np.ones(400))
