"""Compiled kernels of :mod:`bigembed.quality.passes`, with its results bit for bit. Importing this imports numba.

Of a tile of rows and a ``part`` of the queries there are ``products`` (m, w) = −2 x·y, the ``own`` norms ‖x‖² (m,) and
``norms`` ‖y‖² (w,), all about one center. With a = ‖x‖² + ‖y‖² − 2 x·y the exact squared distance lies within ``slack``
(‖x‖² + ‖y‖²) of a, because (‖x‖ + ‖y‖)² ≤ 2 (‖x‖² + ‖y‖²). What that leaves open is computed exactly. All arrays are
contiguous.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numba import njit

from bigembed.runtime.arithmetic import squared_distance
from bigembed.runtime.blocks import Array

TILE = 512
"""Rows."""
_TINY = float(np.finfo(np.float64).tiny)


@njit(cache=True, nogil=True)
def ball(rows: Array, first: int, last: int, center: Array) -> float:
    """Radius of a ball that holds the rows ``first:last``; its ``center`` (d,), their mean, is written."""
    d = rows.shape[1]
    mean = np.zeros(d)
    for i in range(first, last):
        for f in range(d):
            mean[f] += rows[i, f]
    for f in range(d):
        center[f] = mean[f] / (last - first)
    farthest = 0.0
    for i in range(first, last):
        apart = _apart(rows, i, center)
        farthest = apart if not apart <= farthest else farthest
    return float(np.sqrt(farthest + d * _TINY))  # (of squares below it nothing is left)


@njit(cache=True, nogil=True)
def within(queries: Array, limits: Array, center: Array, radius: float, slack: float) -> Array:
    """Which queries may have a row of the ball within their limits, squared distances (s,)."""
    out = np.empty(queries.shape[0], np.int64)
    count = 0
    for m in range(queries.shape[0]):
        apart = np.sqrt(_apart(queries, m, center)) * (1.0 - slack) - radius * (1.0 + slack)
        if not apart > np.sqrt(limits[m]) * (1.0 + slack):
            out[count] = m
            count += 1
    return out[:count]


@njit(cache=True, nogil=True)
def _apart(rows: Array, i: int, center: Array) -> float:
    """Squared distance of a row to a center."""
    total = 0.0
    for f in range(rows.shape[1]):
        difference = np.float64(rows[i, f]) - np.float64(center[f])
        total += difference * difference
    return total


@njit(cache=True, nogil=True)
def shifted(rows: Array, places: Array, center: Array, out: Array, norms: Array) -> None:
    """Write y − center of the rows at some places, and its squared length."""
    for m in range(out.shape[0]):
        total = rows.dtype.type(0.0)
        for f in range(out.shape[1]):
            value = rows[places[m], f] - center[f]
            total += value * value
            out[m, f] = value
        norms[m] = total


@njit(cache=True, nogil=True)
def _lowered(norms: Array, slack: float) -> Array:
    """(1 − slack) ‖y‖², what a lower bound takes of it."""
    one = norms.dtype.type
    out = np.empty_like(norms)
    for j in range(norms.shape[0]):
        out[j] = norms[j] * one(1.0 - slack) if slack < 1.0 else one(-np.inf)
    return out


@njit(cache=True, nogil=True)
def _bound(limit: float, own: Any, slack: float) -> float:
    """What −2 x·y + (1 − slack) ‖y‖² may not exceed if the distance may still be within the limit."""
    return limit - (1.0 - slack) * np.float64(own)


@njit(cache=True, nogil=True)
def nearest(
    products: Array, own: Array, norms: Array, slack: float, queries: Array, query_ids: Array, part: Array,
    rows: Array, first: int, start: int, ids: Array, squared: Array,
) -> None:  # fmt: skip
    """Take the rows of a tile, whose numbers exceed all before them, into the lists of some queries, in place."""
    last, size = ids.shape[1] - 1, min(TILE, rows.shape[0] - first)
    one = norms.dtype.type
    lowered = _lowered(norms, slack)
    for at in range(products.shape[0]):
        m = part[at]
        limit = one(_bound(squared[m, last], own[at], slack))
        for j in range(size):
            if products[at, j] + lowered[j] > limit or start + first + j == query_ids[m]:
                continue
            value = squared_distance(queries, m, rows, first + j)
            if not value < squared[m, last]:
                continue
            p = last
            while p > 0 and squared[m, p - 1] > value:
                squared[m, p] = squared[m, p - 1]
                ids[m, p] = ids[m, p - 1]
                p -= 1
            squared[m, p] = value
            ids[m, p] = start + first + j
            limit = one(_bound(squared[m, last], own[at], slack))


@njit(cache=True, nogil=True)
def count(
    products: Array, own: Array, norms: Array, slack: float, queries: Array, query_ids: Array, part: Array,
    rows: Array, first: int, start: int, limits: Array, numbers: Array, counts: Array,
) -> None:  # fmt: skip
    """Add to ``counts`` of some queries how many rows of a tile come before each (limit, number), which ascend."""
    k, size = limits.shape[1], min(TILE, rows.shape[0] - first)
    one = norms.dtype.type
    lowered = _lowered(norms, slack)
    bins = np.zeros(k + 1, np.int64)
    for at in range(products.shape[0]):
        m = part[at]
        ends = limits[m]
        bins[:] = 0
        reach = one(_bound(ends[k - 1], own[at], slack))
        for j in range(size):
            number = start + first + j
            if products[at, j] + lowered[j] > reach or number == query_ids[m]:
                continue
            base = np.float64(own[at]) + np.float64(norms[j])
            middle, room = np.float64(products[at, j]) + base, slack * base
            low, high = 0, 0
            for c in range(k):
                low += ends[c] < middle - room
                high += ends[c] <= middle + room
            if not room < np.inf or middle != middle:
                low, high = 0, k
            if low < high:
                value = squared_distance(queries, m, rows, first + j)
                while low < high and (ends[low] < value or (ends[low] == value and numbers[m, low] <= number)):
                    low += 1
            bins[low] += 1
        total = 0
        for c in range(k):
            total += bins[c]
            counts[m, c] += total
