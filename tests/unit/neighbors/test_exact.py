"""Exact lists: the k smallest of (squared distance, id), whatever the tiles and the order of arrival."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bigembed.distance.pairwise import paired_squared
from bigembed.neighbors.exact import approximate_squared, empty_lists, exact_block, update_lists


def by_definition(rows, k):
    """Sort every row's pairs (squared distance, id) by brute force."""
    n = len(rows)
    left, right = np.divmod(np.arange(n * n), n)
    squared = paired_squared(rows[left], rows[right]).reshape(n, n).astype(rows.dtype)
    ids = np.full((n, k), -1)
    nearest = np.full((n, k), np.inf, rows.dtype)
    for i in range(n):
        others = np.delete(np.arange(n), i)
        order = others[np.lexsort((others, squared[i, others]))][:k]
        ids[i, : len(order)], nearest[i, : len(order)] = order, squared[i, order]
    return ids, nearest


def draw_rows(seed, n, d, kind, dtype=np.float32):
    generator = np.random.default_rng(seed)
    rows = generator.normal(size=(n, d))
    if kind == "grid":
        rows = generator.integers(0, 3, size=(n, d))
    elif kind == "equal":
        rows = np.ones((n, d)) * 0.1
    elif kind == "offset":
        rows = rows * 1e-3 + 1e3
    elif kind == "duplicates":
        rows = rows[generator.integers(0, max(1, n // 4), n)]
    return rows.astype(dtype)


KINDS = st.sampled_from(["normal", "grid", "equal", "offset", "duplicates"])
DTYPES = st.sampled_from([np.float32, np.float64])


@pytest.mark.parametrize("d", [1, 3, 7, 8, 9, 16, 65])
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_paired_squared_sums_eight_lanes_and_a_tree(d, dtype):
    """s_l = Σ (a_j − b_j)² over j ≡ l mod 8, then ((s0+s4)+(s2+s6)) + ((s1+s5)+(s3+s7)); to the last bit."""
    a, b = np.random.default_rng(d).normal(size=(2, 20, d)).astype(dtype)
    for i in range(20):
        s = [0.0] * 8
        for j in range(d):
            t = float(a[i, j]) - float(b[i, j])
            s[j % 8] += t * t
        expected = ((s[0] + s[4]) + (s[2] + s[6])) + ((s[1] + s[5]) + (s[3] + s[7]))
        assert paired_squared(a[i : i + 1], b[i : i + 1])[0] == expected
        assert paired_squared(b, a)[i] == expected


@settings(max_examples=40)
@given(st.integers(0, 99), st.integers(1, 40), st.integers(1, 20), KINDS, DTYPES, st.floats(-6, 6))
def test_approximate_squared_is_within_its_bound(seed, n, d, kind, dtype, log_scale):
    rows = (draw_rows(seed, n, d, kind) * 10**log_scale).astype(dtype)
    approximate, slack = approximate_squared(rows[:3], rows)
    for i in range(min(3, n)):
        exact = paired_squared(np.repeat(rows[i : i + 1], n, axis=0), rows)
        assert (np.abs(approximate[i] - exact) <= slack[i]).all()


@settings(max_examples=40)
@given(st.integers(0, 99), st.integers(1, 60), st.integers(1, 12), st.integers(1, 8), KINDS, DTYPES)
def test_exact_block_is_the_definition(seed, n, d, k, kind, dtype):
    rows = draw_rows(seed, n, d, kind, dtype)
    for got, expected in zip(exact_block(rows, k), by_definition(rows, k)):
        np.testing.assert_array_equal(got, expected)


@settings(max_examples=30)
@given(st.integers(0, 99), KINDS, st.integers(1, 9))
def test_lists_do_not_depend_on_pieces(seed, kind, k):
    rows = draw_rows(seed, 200, 3, kind)
    numbers = np.arange(200)
    generator = np.random.default_rng(seed)
    ids, squared = empty_lists(200, k, rows.dtype)
    for part in np.array_split(generator.permutation(200), generator.integers(1, 9)):
        update_lists(ids, squared, rows, numbers, rows[part], part)
        update_lists(ids, squared, rows, numbers, rows[part[:5]], part[:5])  # given twice, taken once
    expected = exact_block(rows, k)
    np.testing.assert_array_equal(ids, expected[0])
    np.testing.assert_array_equal(squared, expected[1])


def test_fewer_rows_than_neighbors_leave_places_empty():
    ids, squared = exact_block(np.arange(3.0)[:, None], 4)
    np.testing.assert_array_equal(ids, [[1, 2, -1, -1], [0, 2, -1, -1], [1, 0, -1, -1]])
    np.testing.assert_array_equal(squared[0], [1, 4, np.inf, np.inf])
