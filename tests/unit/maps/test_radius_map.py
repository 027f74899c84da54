"""Diffusion maps of a graph of a radius with one scale, against closed forms and the complete kernel."""

from __future__ import annotations

import warnings
from pathlib import Path
from typing import Any

import dask.array as da
import numpy as np
import pytest

import bigembed as be
from bigembed.errors import ComponentsWarning, DegenerateWarning, InputError, PlanError
from bigembed.runtime import blocks as canonical

pytestmark = [
    pytest.mark.filterwarnings("ignore::bigembed.errors.LocalizedWarning"),
    pytest.mark.filterwarnings("ignore::bigembed.errors.MapWarning"),
]
EPSILON = 0.5
EDGE = float(np.sqrt(4.5 * EPSILON))
"""Where a truncated kernel of this scale ends (seed 000 §9.6)."""


@pytest.fixture
def small_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    """Blocks of at most 300 rows."""
    monkeypatch.setattr(canonical, "MAX_BLOCK_ROWS", 300)
    monkeypatch.setattr(canonical, "MIN_BLOCK_ROWS", 100)


def cloud(n: int = 400) -> np.ndarray:
    return np.random.default_rng(0).uniform(-2, 2, size=(n, 3))


def circle(angle: np.ndarray) -> np.ndarray:
    return np.column_stack([np.cos(angle), np.sin(angle)])


def uneven(n: int) -> np.ndarray:
    """Angles with density ∝ 1 + (9/11) cos, ten times as high on one side as on the other."""
    grid = np.linspace(0, 2 * np.pi, 10_001)
    share = (grid + 9 / 11 * np.sin(grid)) / (2 * np.pi)
    return np.interp((np.arange(n) + 0.5) / n, share, grid)


def test_equals_the_truncated_complete_kernel(small_blocks: None) -> None:
    X = cloud()
    within = be.DiffusionMap(4, radius=EDGE, epsilon=EPSILON, t=0, tol=1e-9).fit(X)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(canonical, "MAX_BLOCK_ROWS", 10_000)
        every = be.DiffusionMap(4, n_neighbors=None, epsilon=EPSILON, truncated=True, t=0, tol=1e-9).fit(X)
    assert len(within.graph_.matrix.rows) > 1
    np.testing.assert_allclose(within.eigenvalues_, every.eigenvalues_, atol=1e-7)
    np.testing.assert_allclose(within.embedding_, every.embedding_, atol=1e-4)
    shorter = be.DiffusionMap(4, radius=0.9 * EDGE, epsilon=EPSILON / 1.3, t=0).fit(X)  # a control
    assert np.abs(shorter.eigenvalues_ - every.eigenvalues_).max() > 1e-2


@pytest.mark.parametrize("alpha", [0.0, 1.0])
def test_even_circle(alpha: float) -> None:
    X = circle(np.linspace(0, 2 * np.pi, 1_500, endpoint=False))
    dm = be.DiffusionMap(2, radius=0.3, epsilon=0.02, alpha=alpha).fit(X)
    np.testing.assert_allclose(dm.generator_eigenvalues_, 1, rtol=0.03)
    assert dm.certificate_["dimension"]["value"] == pytest.approx(1, abs=0.1)
    assert dm.certificate_["bandwidth"]["dimension"] == pytest.approx(1.2, abs=0.1)  # by the sums, and curvature


def explained(embedding: np.ndarray, angle: np.ndarray) -> float:
    """The lesser R² of the cosine and the sine from the coordinates."""
    columns, target = np.column_stack([np.ones(len(angle)), embedding]), circle(angle)
    rest = target - columns @ np.linalg.lstsq(columns, target, rcond=None)[0]
    return float((1 - rest.var(axis=0) / target.var(axis=0)).min())


def test_the_density_of_a_circle_does_not_show() -> None:
    angle = uneven(1_500)
    X = circle(angle)
    within = be.DiffusionMap(2, radius=0.3, epsilon=0.02, alpha=1.0).fit(X)
    assert explained(within.embedding_, angle) > 0.999
    np.testing.assert_allclose(within.generator_eigenvalues_, 1, rtol=0.06)
    plain = be.DiffusionMap(2, radius=0.3, epsilon=0.02, alpha=0.0).fit(X)
    assert explained(plain.embedding_, angle) < 0.99  # a control: the plain walk follows the density
    named = be.DiffusionMap(2, radius=0.3, epsilon=0.02, target="laplace-beltrami").fit(X)
    assert explained(named.embedding_, angle) > 0.999
    np.testing.assert_allclose(named.generator_eigenvalues_, 1, rtol=0.06)


def test_a_graph_serves_and_sigma_is_a_scale(small_blocks: None) -> None:
    X = cloud()
    graph = be.build_neighbor_graph(X, radius=EDGE)
    one, two = (be.DiffusionMap(2, **scale) for scale in ({"epsilon": EPSILON}, {"sigma": np.sqrt(EPSILON / 2)}))
    direct = be.DiffusionMap(2, radius=EDGE, epsilon=EPSILON).fit(da.from_array(X, chunks=(77, 3)))
    np.testing.assert_array_equal(one.fit(graph).embedding_, np.asarray(direct.embedding_))
    np.testing.assert_allclose(two.fit(graph).embedding_, one.embedding_, atol=1e-8)


@pytest.mark.parametrize("asked", [{}, {"target": "fokker-planck"}, {"alpha": 0.3}, {"metric": "cosine"}], ids=str)
def test_fitted_rows_come_back_and_new_ones_lie_between(small_blocks: None, asked: dict[str, Any]) -> None:
    X = np.abs(cloud(700))
    scale = {"radius": 0.4, "epsilon": 0.03} if "metric" in asked else {"radius": EDGE / 2, "epsilon": EPSILON / 4}
    dm = be.DiffusionMap(3, t=0, tol=1e-9, **scale, **asked).fit(X)
    np.testing.assert_allclose(dm.transform(X), dm.embedding_, atol=1e-5)
    new = X[:50] * 1.01
    there = dm.transform(new)
    assert np.abs(there - dm.embedding_[:50]).max() < 0.5
    far = dm.transform(X[:1] + 1e3)  # out of reach of all: the place of the nearest row
    assert "metric" in asked or (np.abs(far - dm.embedding_).max(axis=1) < 1e-12).any()


@pytest.mark.parametrize("target", [None, "laplace-beltrami"])
def test_rows_without_neighbors_are_islands(target: str | None) -> None:
    X = np.concatenate([cloud(), [[30.0, 0, 0], [0, -30.0, 0]]])
    with pytest.warns(ComponentsWarning, match="2 rows in 2 islands"):
        dm = be.DiffusionMap(2, radius=EDGE, epsilon=EPSILON, target=target).fit(X)
    assert dm.labels_.tolist() == [0] * 400 + [-1] * 2
    assert np.isfinite(dm.embedding_).all()
    nearest = [np.argmin(((X[:400] - row) ** 2).sum(axis=1)) for row in X[400:]]
    np.testing.assert_array_equal(dm.embedding_[400:], dm.embedding_[nearest])
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        joined = be.DiffusionMap(2, radius=EDGE, epsilon=EPSILON, components="bridge").fit(X)
    assert joined.certificate_["components"] == 1


def test_landmarks_and_pages(tmp_path: Path) -> None:
    X = circle(np.linspace(0, 2 * np.pi, 600, endpoint=False))
    dm = be.DiffusionMap(2, radius=0.3, epsilon=0.02, solver="landmarks", n_landmarks=150).fit(X)
    np.testing.assert_allclose(dm.generator_eigenvalues_, 1, rtol=0.05)
    assert dm.certificate_["density"]["radius"] == 0.3


def test_a_kernel_cut_where_it_is_not_small_warns() -> None:
    with pytest.warns(DegenerateWarning, match=r"radius=1 ends the kernel where it is 0\.14, .* at least 1\.414"):
        be.DiffusionMap(2, radius=1.0, epsilon=0.5).fit(cloud())


@pytest.mark.parametrize(
    ("asked", "said"),
    [
        ({"radius": 0.5}, "epsilon='auto'.*number.*one scale"),
        ({"radius": 0.5, "epsilon": "median"}, "epsilon='median'.*number"),
        ({"radius": 0.5, "epsilon": 0.1, "bandwidth": "adaptive"}, "bandwidth='adaptive'.*one scale"),
        ({"radius": 0.5, "epsilon": 0.1, "bandwidth": "self-tuned", "target": "random-walk"}, "bandwidth"),
        ({"radius": -0.5, "epsilon": 0.1}, "radius=-0.5"),
    ],
    ids=str,
)
def test_refusals(asked: dict[str, Any], said: str) -> None:
    with pytest.raises(InputError, match=said):
        be.DiffusionMap(2, **asked).fit(cloud())


def test_refusals_of_a_graph_and_of_too_many_edges(monkeypatch: pytest.MonkeyPatch) -> None:
    graph = be.build_neighbor_graph(cloud(), radius=1.0)
    for asked in ({}, {"epsilon": 0.1, "bandwidth": "self-tuned"}, {"bandwidth": "fixed"}):
        with pytest.raises(InputError, match="graph of a radius has one scale"):
            be.DiffusionMap(2, **asked).fit(graph)
    monkeypatch.setattr("bigembed.neighbors.radius.BLOCK_EDGES", 1_000)
    with pytest.raises(PlanError, match="would join"):
        be.DiffusionMap(2, radius=1.0, epsilon=0.2).fit(cloud())
