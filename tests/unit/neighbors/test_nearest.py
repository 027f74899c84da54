"""The compiled choice of nearest centers is the one by definition, bit for bit."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bigembed.distance.pairwise import paired_squared
from bigembed.neighbors import compiled as nearest
from bigembed.neighbors.exact import empty_lists, update_lists
from bigembed.neighbors.partition import assign_block

from .test_exact import DTYPES, KINDS, draw_rows


def exact(rows, centers):
    return np.stack([paired_squared(rows, np.broadcast_to(c, rows.shape)) for c in centers], axis=1)


@settings(max_examples=40)
@given(st.integers(0, 99), st.integers(1, 150), st.integers(1, 70), st.sampled_from([1, 3, 21]), KINDS, DTYPES)
def test_the_nearest_center_is_that_of_the_exact_distances(seed, n, c, d, kind, dtype):
    rows = draw_rows(seed, n + c, d, kind, dtype)
    rows, centers = rows[:n], rows[n:]
    expected = exact(rows, centers).argmin(axis=1)  # ties to the lowest number
    np.testing.assert_array_equal(nearest.nearest(rows, centers), expected)
    numbers = np.arange(n)
    np.testing.assert_array_equal(
        assign_block(rows, numbers, centers, compiled=True), assign_block(rows, numbers, centers)
    )


@pytest.mark.parametrize("tile", [1, 1 << 18])
@settings(max_examples=25)
@given(st.integers(0, 99), st.integers(1, 60), st.integers(1, 80), st.sampled_from([1, 3, 21]), KINDS, DTYPES)
def test_lists_are_those_of_the_reference_in_any_tiles(tile, seed, n, c, d, kind, dtype):
    rows = draw_rows(seed, n + c, d, kind, dtype)
    rows, centers = rows[:n], rows[n:]
    for k in {1, c, max(1, c // 3)}:
        expected, squared = empty_lists(n, k, dtype)
        update_lists(expected, squared, rows, np.full(n, -1), centers, np.arange(c))
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(nearest, "_LIST_TILE_ENTRIES", tile)
            np.testing.assert_array_equal(nearest.nearest_lists(rows, centers, k), expected)


def test_without_the_rounding_bound_rows_far_from_zero_go_wrong(monkeypatch):
    """A control: what the matrix product alone says is not enough."""
    generator = np.random.default_rng(0)
    centers = (generator.integers(-3, 4, size=(60, 3)) + 1000.0 * generator.integers(0, 2, size=(60, 1))).astype("f4")
    rows = (generator.integers(-3, 4, size=(500, 3)) + 1000.0).astype("f4")
    expected = exact(rows, centers).argmin(axis=1)
    np.testing.assert_array_equal(nearest.nearest(rows, centers), expected)
    monkeypatch.setattr(nearest, "rounding", lambda d, dtype: 0.0)
    assert (nearest.nearest(rows, centers) != expected).any()
