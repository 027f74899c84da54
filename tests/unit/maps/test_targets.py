"""What the walk tends to: spectra of uneven samples against closed forms and fine grids; the kernel on a k-graph."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import pytest
from scipy.integrate import quad
from scipy.linalg import eigh

import bigembed as be
from bigembed.errors import InputError
from bigembed.maps.kernels import DRIFT, NARROW, cut_moment, local_squared

pytestmark = [
    pytest.mark.filterwarnings("ignore::bigembed.errors.HarmonicWarning"),
    pytest.mark.filterwarnings("ignore::bigembed.errors.SeparationWarning"),
    pytest.mark.filterwarnings("ignore::bigembed.errors.MapWarning"),
]
TILT = 9 / 11  # 1 + TILT cos θ: density ratio 10
N = 4_096


def angles(u: np.ndarray, tilt: float = TILT) -> np.ndarray:
    """Quantiles of the density ∝ 1 + tilt cos θ."""
    grid = np.linspace(0, 2 * np.pi, 20_001)
    return np.interp(u, (grid + tilt * np.sin(grid)) / (2 * np.pi), grid)


def sample(name: str) -> np.ndarray:
    """Random rows of density ratio 10."""
    u, v = np.random.default_rng(0).uniform(size=(N, 2)).T
    turn, other = angles(u), 2 * np.pi * v
    circle, even = np.column_stack([np.cos(turn), np.sin(turn)]), np.column_stack([np.cos(other), np.sin(other)])
    if name == "circle":
        return circle
    if name == "torus":
        return np.hstack([circle, even])
    z = np.linspace(-1, 1, 20_001)
    height = np.interp(u, ((z + 1) + TILT * (z**2 - 1) / 2) / 2, z)
    return np.column_stack([even * np.sqrt(1 - height**2)[:, None], height])


def levels(values: np.ndarray, multiplicities: list[int]) -> np.ndarray:
    ends = np.cumsum([0, *multiplicities])
    return np.array([values[a:b].mean() for a, b in pairwise(ends.tolist())])


TRUTH = {
    "circle": ([1, 4, 9, 16, 25, 36], [2] * 6),
    "sphere": ([2, 6, 12], [3, 5, 7]),
    "torus": ([1, 2, 4, 5], [4, 4, 4, 8]),
}


@pytest.mark.parametrize("name", ["circle", "sphere", pytest.param("torus", marks=pytest.mark.slow)])
def test_laplace_beltrami_whatever_the_density(name: str) -> None:
    truth, multiplicities = TRUTH[name]
    fitted = be.DiffusionMap(sum(multiplicities), target="laplace-beltrami").fit(sample(name))
    found = levels(fitted.generator_eigenvalues_, multiplicities)
    np.testing.assert_allclose(found / found[0], np.array(truth) / truth[0], rtol=0.05)
    np.testing.assert_allclose(found, truth, rtol=0.06)
    assert fitted.certificate_["dimension"]["value"] == pytest.approx(1 if name == "circle" else 2, abs=0.25)


def test_without_a_target_the_rows_are_even_and_the_torus_is_another() -> None:
    truth, multiplicities = TRUTH["torus"]
    fitted = be.DiffusionMap(sum(multiplicities)).fit(sample("torus"))
    found = levels(fitted.generator_eigenvalues_, multiplicities)
    assert np.abs(found / found[0] - truth)[1:].max() > 0.1


@pytest.mark.parametrize(
    ("bandwidth", "target"),
    [
        ("adaptive", "fokker-planck"),
        ("fixed", "random-walk"),
        pytest.param("adaptive", "random-walk", marks=pytest.mark.slow),
        pytest.param("fixed", "fokker-planck", marks=pytest.mark.slow),
    ],
)
def test_drift_against_a_fine_grid(target: str, bandwidth: str) -> None:
    """−p^{−c} (p^c f′)′ = μ f on a circle of density p ∝ 1 + cos θ/2."""
    cells, tilt = 800, 0.5
    at = 2 * np.pi * (np.arange(cells) + 0.5) / cells
    step, weight = 2 * np.pi / cells, (1 + tilt * np.cos(at)) ** DRIFT[target]
    between = (weight + np.roll(weight, -1)) / 2 / step**2
    stiffness = np.diag(between + np.roll(between, 1))
    ends = np.arange(cells), np.roll(np.arange(cells), -1)
    stiffness[ends] -= between
    stiffness[ends[::-1]] -= between
    truth = eigh(stiffness, np.diag(weight), eigvals_only=True, subset_by_index=[1, 4])
    turn = angles(np.random.default_rng(1).uniform(size=N), tilt)
    rows = np.column_stack([np.cos(turn), np.sin(turn)])
    if bandwidth == "adaptive":
        fitted = be.DiffusionMap(4, target=target, n_neighbors=120).fit(rows)
        few = be.DiffusionMap(4, target=target).fit(rows).generator_eigenvalues_
        np.testing.assert_allclose(few / few.mean(), truth / truth.mean(), rtol=0.05)  # scatter of q: one factor
    else:
        fitted = be.DiffusionMap(4, target=target, bandwidth="fixed", n_neighbors=300, epsilon=0.004).fit(rows)
    np.testing.assert_allclose(fitted.generator_eigenvalues_, truth, rtol=0.08)


@pytest.mark.parametrize("dimension", [1.0, 2.0, 3.5, 10.0])
def test_cut_moment_is_that_of_the_integrals(dimension: float) -> None:
    for reach in (0.3, 1.0, 4.0):
        second, mass = (
            quad(lambda r, p=p: r ** (dimension - 1 + p) * np.exp(-(r**2)), 0, np.sqrt(reach))[0] for p in (2, 0)
        )
        assert cut_moment(dimension, reach) == pytest.approx(2 / dimension * second / mass)


@pytest.mark.parametrize(("bandwidth", "left"), [("fixed", 0.51), ("adaptive", 0.77), ("self-tuned", 0.51)])
def test_the_end_of_the_kernel_at_the_last_neighbor_is_corrected(bandwidth: str, left: float) -> None:
    """A regular circle: 4(1 − λ)/ε is a part of the eigenvalue; with the moment of the kernel as it is cut, all of it.

    The part is the cut moment in one dimension: at e⁻¹, or at e⁻² with half of the scale.
    """
    assert cut_moment(1.0, 2.0 if bandwidth == "adaptive" else 1.0) == pytest.approx(left, abs=0.01)
    turn = 2 * np.pi * np.arange(2_400) / 2_400
    rows = np.column_stack([np.cos(turn), np.sin(turn)])
    fitted = be.DiffusionMap(2, bandwidth=bandwidth, n_neighbors=200).fit(rows)
    scale = 1.0 if bandwidth == "fixed" else fitted.certificate_["bandwidth"]["median_kth"]
    np.testing.assert_allclose(fitted.generator_eigenvalues_ / scale, 1.0, rtol=0.03)
    np.testing.assert_allclose(4 * (1 - fitted.eigenvalues_) / fitted.epsilon_ / scale, left, rtol=0.05)


def test_no_edge_of_the_adaptive_kernel_is_weak() -> None:
    rng = np.random.default_rng(0)
    a, b = rng.lognormal(0, 4, (2, 1_000))
    apart = np.maximum(a, b) * rng.uniform(size=1_000)
    there, back = local_squared(apart**2, a, b, "adaptive"), local_squared(apart**2, b, a, "adaptive")
    np.testing.assert_array_equal(there, back)
    assert np.exp(-there / NARROW).min() >= np.exp(-4)


UNEVEN = np.random.default_rng(3).normal(size=(500, 3)) ** 3
PARTS = np.vstack([UNEVEN[:300] / 50, UNEVEN[300:] / 50 + 40, [[500.0, 0, 0], [500.1, 0, 0]]])
REPEATED = np.vstack([UNEVEN[:400], UNEVEN[:1].repeat(30, axis=0)])
"""31 copies of one row, more than it has neighbors: which of the others they join to is decided by their numbers."""


@pytest.mark.filterwarnings("ignore::bigembed.errors.BigembedWarning")
@pytest.mark.parametrize("parameters", [{}, {"target": "laplace-beltrami"}, {"components": "bridge"}, {"t": 3}])
@pytest.mark.parametrize("rows", [UNEVEN, PARTS, REPEATED], ids=["uneven", "parts and an island", "repeated"])
def test_fitted_rows_come_back_and_new_ones_by_themselves(rows: np.ndarray, parameters: dict) -> None:
    fitted = be.DiffusionMap(4, n_neighbors=10, **parameters).fit(rows)
    again, largest = fitted.transform(rows), np.abs(fitted.embedding_).max()
    kept = slice(None) if rows is not REPEATED else slice(1, 400)
    close = 1e-4 if "components" in parameters else 1e-5  # rows at the end of a bridge are placed without it
    np.testing.assert_allclose(again[kept], fitted.embedding_[kept], atol=close * largest)
    assert np.unique(again[400:430], axis=0).shape[0] == (1 if rows is REPEATED else 30)
    np.testing.assert_allclose(again, fitted.embedding_, atol=0.05 * largest)
    new = np.vstack([rows[::25] + 0.01, [[1e4, 0, 0]]])
    together = fitted.transform(new)
    assert np.isfinite(together).all()
    np.testing.assert_array_equal(np.vstack([fitted.transform(row[None]) for row in new]), together)


def test_what_a_target_cannot_go_with() -> None:
    for wrong in (
        {"target": "laplace"},
        {"target": "random-walk", "alpha": 0.5},
        {"target": "random-walk", "solver": "landmarks"},
        {"dimension": 0},
        {"dimension": "two"},
        {"n_components": "all"},
        {"n_components": 0},
        {"bandwidth": "local"},
    ):
        with pytest.raises(InputError, match=next(iter(wrong if "alpha" not in wrong else {"alpha": 0}))):
            be.DiffusionMap(**wrong).fit(UNEVEN)
    with pytest.raises(InputError, match="Give dimension as a number"):
        be.DiffusionMap(1, n_neighbors=1, target="random-walk").fit(UNEVEN)


@pytest.mark.filterwarnings("ignore::bigembed.errors.DegenerateWarning")
def test_evenly_spaced_rows_are_said_where_a_target_is_named() -> None:
    def fit(turn: np.ndarray) -> be.DiffusionMap:
        return be.DiffusionMap(2, target="laplace-beltrami").fit(np.column_stack([np.cos(turn), np.sin(turn)]))

    even = fit(2 * np.pi * np.arange(500) / 500)
    random = fit(2 * np.pi * np.random.default_rng(0).uniform(size=500))
    assert even.generator_eigenvalues_[0] > 1.1  # 1 in the limit
    assert any("evenly spaced" in said for said in even.certificate_["warnings"]["degenerate"])
    assert not random.certificate_["warnings"]["degenerate"]
