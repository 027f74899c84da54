"""Nearest rows, distances and ranks in a block: NumPy and compiled code against sorting all pairs."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bigembed.distance.pairwise import paired_squared
from bigembed.quality import compiled
from bigembed.quality.passes import counts_block, distances_block, nearer, nearest_block
from bigembed.runtime.blocks import bounds

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


@settings(max_examples=60)
@given(SHAPES, DTYPES, st.booleans())
def test_nearest_rows_of_blocks_are_those_of_all_pairs(shape, dtype, compiled):
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


@settings(max_examples=60)
@given(SHAPES, DTYPES, st.booleans())
def test_counts_of_blocks_add_up_to_ranks(shape, dtype, compiled):
    rows = draw(*shape, dtype)
    n = len(rows)
    sample, cut = np.arange(0, n, 3), n // 2
    rng = np.random.default_rng(0)
    others = np.stack([rng.choice(np.delete(np.arange(n), i), 5, replace=False) for i in sample])
    order, squared = by_definition(rows, sample)
    parts = slice(0, cut), slice(cut, n)
    limits = sum(distances_block(rows[sample], others, rows[part], part.start) for part in parts)
    np.testing.assert_array_equal(limits, np.take_along_axis(squared, others, 1))
    counts = sum(counts_block(rows[sample], sample, others, limits, rows[part], part.start, compiled) for part in parts)
    np.testing.assert_array_equal(counts, np.take_along_axis(np.argsort(order, axis=1), others, 1))


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_many_tiles(dtype):
    rows = draw(0, 1_700, 17, "normal", dtype)
    sample = np.arange(1_300)
    plain, fast = (nearest_block(rows[sample], sample, rows, 0, 15, compiled) for compiled in (False, True))
    np.testing.assert_array_equal(plain, fast)
    asked = rows[sample], sample, np.roll(plain[0], 1, axis=1)[::-1], plain[1], rows, 0
    np.testing.assert_array_equal(*(counts_block(*asked, compiled) for compiled in (False, True)))


def test_lists_that_are_too_short_say_so():
    ids, squared = nearest_block(np.zeros((1, 2)), np.array([0]), np.ones((2, 2)), 0, 3, False)
    assert ids.tolist() == [[1, -1, -1]]
    assert squared[0, 1:].tolist() == [np.inf, np.inf]


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_tiles_that_are_left_out_hold_nothing_near(dtype):
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
