"""Sums of the compiled kernels, each in one fixed order on any machine, and lists of the nearest. Imports numba."""

from __future__ import annotations

from typing import Any

import numpy as np
from numba import njit

from bigembed.runtime.blocks import Array


@njit(nogil=True)
def _square(a: Array, i: int, b: Array, j: int, f: int) -> float:
    difference = np.float64(a[i, f]) - np.float64(b[j, f])
    return difference * difference


@njit(nogil=True)
def squared_distance(a: Array, i: int, b: Array, j: int) -> float:
    """‖a_i − b_j‖² in float64, summed in eight parts as :func:`bigembed.distance.pairwise.paired_squared` does."""
    d = a.shape[1]
    rest = d % 8
    whole = d - rest
    s0, s1, s2, s3, s4, s5, s6, s7 = 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0
    for f in range(0, whole, 8):
        s0 += _square(a, i, b, j, f)
        s1 += _square(a, i, b, j, f + 1)
        s2 += _square(a, i, b, j, f + 2)
        s3 += _square(a, i, b, j, f + 3)
        s4 += _square(a, i, b, j, f + 4)
        s5 += _square(a, i, b, j, f + 5)
        s6 += _square(a, i, b, j, f + 6)
        s7 += _square(a, i, b, j, f + 7)
    s0 += _square(a, i, b, j, whole) if rest > 0 else 0.0
    s1 += _square(a, i, b, j, whole + 1) if rest > 1 else 0.0
    s2 += _square(a, i, b, j, whole + 2) if rest > 2 else 0.0
    s3 += _square(a, i, b, j, whole + 3) if rest > 3 else 0.0
    s4 += _square(a, i, b, j, whole + 4) if rest > 4 else 0.0
    s5 += _square(a, i, b, j, whole + 5) if rest > 5 else 0.0
    s6 += _square(a, i, b, j, whole + 6) if rest > 6 else 0.0
    return ((s0 + s4) + (s2 + s6)) + ((s1 + s5) + (s3 + s7))


@njit(nogil=True)
def add_row(out: Any, at: Any, value: Any, x: Any, x_at: Any) -> None:
    """Row ``at`` of out ← itself + value · row ``x_at`` of x, in float64."""
    for c in range(x.shape[1]):
        out[at, c] += np.float64(value) * x[x_at, c]


@njit(cache=True, nogil=True)
def insert(ids: Array, squared: Array, number: int, value: Any) -> None:
    """Put (value, number) in its place of one list, if it belongs there and is not there already."""
    p = squared.shape[0] - 1
    if value > squared[p] or (value == squared[p] and ids[p] >= 0 and number >= ids[p]):
        return
    q = p
    while q > 0 and (squared[q - 1] > value or ids[q - 1] < 0):
        q -= 1
    while q > 0 and squared[q - 1] == value and ids[q - 1] > number:
        q -= 1
    if q > 0 and squared[q - 1] == value and ids[q - 1] == number:
        return
    while p > q:
        squared[p] = squared[p - 1]
        ids[p] = ids[p - 1]
        p -= 1
    squared[q] = value
    ids[q] = number
