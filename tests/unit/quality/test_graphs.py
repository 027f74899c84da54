"""What is known of graphs and rows: degrees, dimension, nearest rows and ranks."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.spatial import cKDTree

from bigembed.distance import paired_squared
from bigembed.quality import compiled
from bigembed.quality.coordinates import EffectiveDegrees, effective_degrees
from bigembed.quality.dimension import Dimension, Estimate, intrinsic_dimension
from bigembed.quality.passes import counts_block, distances_block, nearer, nearest_block
from bigembed.runtime.blocks import bounds
from bigembed.store.arrays import write_array


def stored(home: Path, q: np.ndarray, blocks: int, **more: float) -> EffectiveDegrees:
    for b, part in enumerate(np.array_split(q, blocks)):
        write_array(home / f"q/{b}", part)
    return effective_degrees(str(home / "q"), blocks, **more)


class TestDegrees:
    """Effective degrees against a kernel written out."""

    def test_a_row_cut_off_is_found(self, tmp_path: Path) -> None:
        x = np.append(np.linspace(0, 1, 50), 9.0)
        q = np.exp(-((x[:, None] - x) ** 2) / 0.01).sum(axis=1)
        found = stored(tmp_path, q, 3)
        assert (found.smallest, found.row, found.below, found.first) == (0.0, 50, 1, (50,))

    @pytest.mark.parametrize("blocks", [1, 2, 7])
    def test_the_same_for_any_blocks(self, tmp_path: Path, blocks: int) -> None:
        q = 1 + np.random.default_rng(0).uniform(0, 1, 200)
        found = stored(tmp_path, q, blocks)
        low = np.flatnonzero(q - 1 < 0.1)
        assert (found.smallest, found.row) == ((q - 1).min(), int(q.argmin()))
        assert (found.below, found.first) == (len(low), tuple(low[:10]))


def stored_of_dimension(home: Path, squared: np.ndarray, blocks: int = 2) -> Dimension:
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


SPHERES = {1: (0, 0), 2: (0, 0), 3: (0, 0), 5: (0.1, 0.13), 10: (0.8, 1.0)}
CUBES = {1: (0, 0), 2: (0.03, 0.03), 3: (0.08, 0.14), 5: (0.4, 0.5), 10: (1.4, 1.8)}
"""What 1200 rows, k = 10, estimate too low by curvature and edges: means of 16 other draws."""


class TestDimension:
    """Intrinsic dimension where it is known."""

    @pytest.mark.parametrize("d", [1, 2, 3, 5, 10])
    def test_tori_have_their_dimension(self, tmp_path: Path, d: int) -> None:
        """No edges, even density: both estimates without bias."""
        n = 1500 if d < 10 else 800
        found = stored_of_dimension(tmp_path, lists(np.random.default_rng(d).uniform(size=(n, d)), period=1.0))
        assert abs(off(found.two_nearest, d)) < 2.5
        assert abs(off(found.likelihood, d)) < 2.5
        assert found.two_nearest.standard_error == pytest.approx(d * np.sqrt(2 / (0.9 * n)), rel=0.15)

    @pytest.mark.parametrize(("sphere", "d"), [(True, d) for d in SPHERES] + [(False, d) for d in CUBES])
    def test_spheres_and_cubes_have_the_bias_that_is_known(self, tmp_path: Path, sphere: bool, d: int) -> None:
        rows = np.random.default_rng(d).uniform(size=(1200, d))
        if sphere:
            rows = np.random.default_rng(d).normal(size=(1200, d + 1))
            rows /= np.linalg.norm(rows, axis=1)[:, None]
        found, (two, likelihood) = stored_of_dimension(tmp_path, lists(rows)), (SPHERES if sphere else CUBES)[d]
        assert abs(off(found.two_nearest, d - two)) < 3
        assert abs(off(found.likelihood, d - likelihood)) < 3

    def test_the_standard_error_is_that_of_many_draws(self, tmp_path: Path) -> None:
        draws = [
            stored_of_dimension(
                tmp_path / str(s), lists(np.random.default_rng(s).uniform(size=(300, 2)), period=1.0), 1
            )
            for s in range(30)
        ]
        for name in ("two_nearest", "likelihood"):
            scores = [off(getattr(draw, name), 2) for draw in draws]
            assert 0.6 < np.sqrt(np.mean(np.square(scores))) < 1.4, name

    @pytest.mark.parametrize("blocks", [1, 3, 8])
    def test_the_same_bytes_for_any_blocks(self, tmp_path: Path, blocks: int) -> None:
        squared = lists(np.random.default_rng(0).normal(size=(400, 3)))
        assert stored_of_dimension(tmp_path / "many", squared, blocks) == stored_of_dimension(
            tmp_path / "one", squared, 1
        )

    def test_outlying_ratios_weigh_no_more_than_others(self, tmp_path: Path) -> None:
        squared = lists(np.random.default_rng(0).uniform(size=(1000, 2)))
        squared[:40, 0] *= 1e-12  # near-duplicates: r₂/r₁ of a million
        plain = 1000 / (0.5 * np.log(squared[:, 1] / squared[:, 0])).sum()
        found = stored_of_dimension(tmp_path, squared).two_nearest.value
        assert plain < 1.0
        assert found == pytest.approx(2.0, rel=0.2)

    def test_duplicates_ties_and_short_lists_are_defined(self, tmp_path: Path) -> None:
        squared = lists(np.random.default_rng(0).uniform(size=(500, 2)))
        doubled = np.concatenate([squared, np.zeros((100, 10))])
        found, alone = (
            stored_of_dimension(tmp_path / "doubled", doubled),
            stored_of_dimension(tmp_path / "alone", squared),
        )
        assert found.duplicates == 100
        assert (found.two_nearest, found.likelihood) == (alone.two_nearest, alone.likelihood)
        nothing = Estimate(None, None, 0)
        assert stored_of_dimension(tmp_path / "same", np.zeros((20, 5))) == Dimension(nothing, nothing, 20)
        ties = stored_of_dimension(tmp_path / "ties", np.ones((20, 5)))
        assert (ties.two_nearest, ties.likelihood) == (Estimate(None, None, 20), Estimate(None, None, 20))
        single = stored_of_dimension(tmp_path / "single", squared[:, :1])
        assert (single.two_nearest.value, single.likelihood.value) == (None, None)
        unfound = np.where(np.arange(500)[:, None] < 30, np.inf, squared)
        assert stored_of_dimension(tmp_path / "unfound", unfound).two_nearest.rows == 470


KINDS = st.sampled_from(["normal", "lattice", "same", "far", "offset", "huge"])
SHAPES = st.tuples(st.integers(0, 99), st.integers(12, 90), st.sampled_from([1, 2, 9, 21]), KINDS)
DTYPES = st.sampled_from([np.float32, np.float64])


def draw(seed, n, d, kind, dtype):
    rows = np.random.default_rng(seed).normal(size=(n, d))
    made = {
        "lattice": np.round(rows),
        "same": np.zeros_like(rows),
        "far": rows * 1e-9 + (np.arange(n) == 5)[:, None],
        "offset": rows + 1e6,
        "huge": rows * 1e18,
    }
    return made.get(kind, rows).astype(dtype)


def by_definition(rows, sample):
    """All rows in the order of (squared distance, number) from each sampled row, itself last; and the distances."""
    squared = np.stack([paired_squared(np.broadcast_to(rows[i], rows.shape), rows) for i in sample])
    squared[np.arange(len(sample)), sample] = np.inf
    return np.argsort(squared, axis=1, kind="stable"), squared


class TestLists:
    """Nearest rows, distances and ranks in a block: NumPy and compiled code against sorting all pairs."""

    @settings(max_examples=30)
    @given(SHAPES, DTYPES, st.booleans())
    def test_nearest_rows_of_blocks_are_those_of_all_pairs(self, shape, dtype, compiled):
        rows = draw(*shape, dtype)
        sample, k, cut = np.arange(0, len(rows), 3), 4, len(rows) // 2
        order, squared = by_definition(rows, sample)
        halves = [
            nearest_block(rows[sample], sample, rows[part], part.start, k, compiled)
            for part in (slice(0, cut), slice(cut, len(rows)))
        ]
        ids, found = nearer(*halves[0], *halves[1])
        np.testing.assert_array_equal(ids, order[:, :k])
        np.testing.assert_array_equal(found, np.take_along_axis(squared, ids, 1))

    @settings(max_examples=30)
    @given(SHAPES, DTYPES, st.booleans())
    def test_counts_of_blocks_add_up_to_ranks(self, shape, dtype, compiled):
        rows = draw(*shape, dtype)
        n = len(rows)
        sample, cut = np.arange(0, n, 3), n // 2
        rng = np.random.default_rng(0)
        others = np.stack([rng.choice(np.delete(np.arange(n), i), 5, replace=False) for i in sample])
        order, squared = by_definition(rows, sample)
        parts = slice(0, cut), slice(cut, n)
        limits = sum(distances_block(rows[sample], others, rows[part], part.start) for part in parts)
        np.testing.assert_array_equal(limits, np.take_along_axis(squared, others, 1))
        counts = sum(
            counts_block(rows[sample], sample, others, limits, rows[part], part.start, compiled) for part in parts
        )
        np.testing.assert_array_equal(counts, np.take_along_axis(np.argsort(order, axis=1), others, 1))

    def test_lists_that_are_too_short_say_so(self):
        ids, squared = nearest_block(np.zeros((1, 2)), np.array([0]), np.ones((2, 2)), 0, 3, False)
        assert ids.tolist() == [[1, -1, -1]]
        assert squared[0, 1:].tolist() == [np.inf, np.inf]

    @pytest.mark.parametrize("dtype", [np.float32, np.float64])
    def test_tiles_that_are_left_out_hold_nothing_near(self, dtype):
        # Whole numbers along a line, so that limits lie at the borders of tiles, and another line far away.
        along = np.concatenate([np.arange(2_048), 1e6 + np.arange(500)])
        rows = np.column_stack([along, np.zeros(len(along))]).astype(dtype)
        sample, k = np.arange(3, len(rows), 127), 6
        order, squared = by_definition(rows, sample)
        ids, found = nearest_block(rows[sample], sample, rows, 0, k, True)
        np.testing.assert_array_equal(ids, order[:, :k])
        np.testing.assert_array_equal(found, np.take_along_axis(squared, ids, 1))
        counts = counts_block(rows[sample], sample, ids, found, rows, 0, True)
        np.testing.assert_array_equal(counts, np.broadcast_to(np.arange(k), counts.shape))
        looked_at, center = 0, np.empty(2, dtype)
        for first, last in bounds(len(rows), compiled.TILE):
            radius = compiled.ball(rows, first, last, center)
            assert np.linalg.norm(rows[first:last] - center, axis=1).max() <= radius * (1 + 1e-6)
            looked_at += len(compiled.within(rows[sample], found[:, -1], center, radius, 1e-6))
        assert len(sample) <= looked_at < 1.5 * len(sample)  # (of five tiles)
