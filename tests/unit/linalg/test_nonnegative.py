"""Nonnegative least squares against SciPy's active set, and what a descent promises."""

from __future__ import annotations

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.optimize import nnls

from bigembed.linalg.nonnegative import nonnegative_rows


def problem(n: int, m: int, d: int, seed: int) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(seed)
    return rng.random((n, d)), rng.random((m, d)) * (rng.random((m, d)) < 0.5)


@settings(max_examples=20)
@given(st.integers(1, 6), st.integers(6, 12), st.integers(0, 10_000))
def test_rows_are_those_of_the_active_set_method(m: int, d: int, seed: int) -> None:
    X, H = problem(5, m, d, seed)
    found = nonnegative_rows(X @ H.T, H @ H.T)
    assert (found >= 0).all()
    for x, w in zip(X, found):
        exact = nnls(H.T, x)[1]
        assert np.linalg.norm(x - w @ H) <= exact + 1e-7


def test_unconstrained_least_squares_would_be_another_answer() -> None:
    X, H = problem(5, 4, 8, 0)
    found = nonnegative_rows(X @ H.T, H @ H.T)
    free = np.linalg.lstsq(H.T, X.T, rcond=None)[0].T
    assert (free < -1e-3).any()
    assert np.abs(found - free).max() > 1e-3


def test_no_sweep_raises_the_objective() -> None:
    X, H = problem(50, 8, 12, 1)
    cross, gram = X @ H.T, H @ H.T
    w = np.random.default_rng(2).random((50, 8))
    values = [np.linalg.norm(X - w @ H) ** 2]
    for _ in range(20):
        w = nonnegative_rows(cross, gram, w, sweeps=1)
        values.append(np.linalg.norm(X - w @ H) ** 2)
    assert (np.diff(values) <= 1e-12 * values[0]).all()
    assert values[-1] < 0.5 * values[0]


def test_a_row_does_not_see_the_others() -> None:
    X, H = problem(40, 5, 9, 3)
    cross, gram = X @ H.T, H @ H.T
    assert np.array_equal(nonnegative_rows(cross, gram)[7:9], nonnegative_rows(cross[7:9], gram))


def test_an_empty_component_has_no_weight() -> None:
    X, H = problem(6, 3, 7, 4)
    H[1] = 0
    assert not nonnegative_rows(X @ H.T, H @ H.T, np.ones((6, 3)))[:, 1].any()
