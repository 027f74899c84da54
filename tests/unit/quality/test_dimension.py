"""Intrinsic dimension where it is known."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from scipy.spatial import cKDTree

from bigembed.quality.dimension import Dimension, Estimate, intrinsic_dimension
from bigembed.store.arrays import write_array


def stored(home: Path, squared: np.ndarray, blocks: int = 2) -> Dimension:
    for b, part in enumerate(np.array_split(squared.astype(np.float32), blocks)):
        write_array(home / f"squared/{b}", part)
    return intrinsic_dimension(str(home / "squared"), blocks)


def lists(rows: np.ndarray, k: int = 10, period: float | None = None) -> np.ndarray:
    return cKDTree(rows, boxsize=period).query(rows, k + 1)[0][:, 1:] ** 2


def off(found: Estimate, truth: float) -> float:
    """Distance to the truth in standard errors."""
    assert found.value is not None
    assert found.standard_error is not None
    return (found.value - truth) / found.standard_error


@pytest.mark.parametrize("d", [1, 2, 3, 5, 10])
def test_tori_have_their_dimension(tmp_path: Path, d: int) -> None:
    """No edges, even density: both estimates without bias."""
    n = 1500 if d < 10 else 800
    found = stored(tmp_path, lists(np.random.default_rng(d).uniform(size=(n, d)), period=1.0))
    assert abs(off(found.two_nearest, d)) < 2.5
    assert abs(off(found.likelihood, d)) < 2.5
    assert found.two_nearest.standard_error == pytest.approx(d * np.sqrt(2 / (0.9 * n)), rel=0.15)


SPHERES = {1: (0, 0), 2: (0, 0), 3: (0, 0), 5: (0.1, 0.13), 10: (0.8, 1.0)}
CUBES = {1: (0, 0), 2: (0.03, 0.03), 3: (0.08, 0.14), 5: (0.4, 0.5), 10: (1.4, 1.8)}
"""What 1200 rows, k = 10, estimate too low by curvature and edges: means of 16 other draws."""


@pytest.mark.parametrize(("sphere", "d"), [(True, d) for d in SPHERES] + [(False, d) for d in CUBES])
def test_spheres_and_cubes_have_the_bias_that_is_known(tmp_path: Path, sphere: bool, d: int) -> None:
    rows = np.random.default_rng(d).uniform(size=(1200, d))
    if sphere:
        rows = np.random.default_rng(d).normal(size=(1200, d + 1))
        rows /= np.linalg.norm(rows, axis=1)[:, None]
    found, (two, likelihood) = stored(tmp_path, lists(rows)), (SPHERES if sphere else CUBES)[d]
    assert abs(off(found.two_nearest, d - two)) < 3
    assert abs(off(found.likelihood, d - likelihood)) < 3


def test_the_standard_error_is_that_of_many_draws(tmp_path: Path) -> None:
    draws = [
        stored(tmp_path / str(s), lists(np.random.default_rng(s).uniform(size=(300, 2)), period=1.0), 1)
        for s in range(30)
    ]
    for name in ("two_nearest", "likelihood"):
        scores = [off(getattr(draw, name), 2) for draw in draws]
        assert 0.6 < np.sqrt(np.mean(np.square(scores))) < 1.4, name


@pytest.mark.parametrize("blocks", [1, 3, 8])
def test_the_same_bytes_for_any_blocks(tmp_path: Path, blocks: int) -> None:
    squared = lists(np.random.default_rng(0).normal(size=(400, 3)))
    assert stored(tmp_path / "many", squared, blocks) == stored(tmp_path / "one", squared, 1)


def test_outlying_ratios_weigh_no_more_than_others(tmp_path: Path) -> None:
    squared = lists(np.random.default_rng(0).uniform(size=(1000, 2)))
    squared[:40, 0] *= 1e-12  # near-duplicates: r₂/r₁ of a million
    plain = 1000 / (0.5 * np.log(squared[:, 1] / squared[:, 0])).sum()
    found = stored(tmp_path, squared).two_nearest.value
    assert plain < 1.0
    assert found == pytest.approx(2.0, rel=0.2)


def test_duplicates_ties_and_short_lists_are_defined(tmp_path: Path) -> None:
    squared = lists(np.random.default_rng(0).uniform(size=(500, 2)))
    doubled = np.concatenate([squared, np.zeros((100, 10))])
    found, alone = stored(tmp_path / "doubled", doubled), stored(tmp_path / "alone", squared)
    assert found.duplicates == 100
    assert (found.two_nearest, found.likelihood) == (alone.two_nearest, alone.likelihood)
    nothing = Estimate(None, None, 0)
    assert stored(tmp_path / "same", np.zeros((20, 5))) == Dimension(nothing, nothing, 20)
    ties = stored(tmp_path / "ties", np.ones((20, 5)))
    assert (ties.two_nearest, ties.likelihood) == (Estimate(None, None, 20), Estimate(None, None, 20))
    single = stored(tmp_path / "single", squared[:, :1])
    assert (single.two_nearest.value, single.likelihood.value) == (None, None)
    unfound = np.where(np.arange(500)[:, None] < 30, np.inf, squared)
    assert stored(tmp_path / "unfound", unfound).two_nearest.rows == 470
