"""The nearest of many centers, by groups of near ones, and sums over the rows of cells, compiled. It imports numba.

Few groups can hold the nearest center of a row: one whose middle is farther than its radius and the nearest center
found so far cannot (the triangle inequality). Where groups leave out little, as they do of rows of many dimensions, a
matrix product is faster: the first rows tell.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numba import njit

from bigembed.distance import rounding
from bigembed.runtime.arithmetic import squared_distance
from bigembed.runtime.blocks import Array

LANES = 16
"""Centers of a group are padded to a multiple of this."""
LEAST = 64
"""Centers from which on they are grouped."""
LEAST_ROWS = 4_096
"""Rows from which on they are: it takes the time of a thousand rows."""
TRIED = 512
"""Rows that tell whether groups leave out enough."""
WORTH = 0.15
"""Share of the centers that may be compared for that."""


@dataclass(frozen=True)
class Groups:
    """Centers (C, d) by groups."""

    middles: Array
    """(d, G padded), a column for each group; infinite behind the last."""
    radii: Array
    """Distance of no center of a group to the middle is larger, (G,)."""
    columns: Array
    """(d, padded), the centers of one group after another; infinite where there is none."""
    starts: Array
    """Where each group begins, (G + 1,)."""
    numbers: Array
    """Number of each center, −1 where there is none."""


def grouped(centers: Array) -> Groups:
    """Some √C groups of centers: those nearest to the means of what is nearest to some of them."""
    count = max(1, round(len(centers) ** 0.5))
    middles = centers[np.linspace(0, len(centers) - 1, count).astype(np.int64)]
    for _ in range(2):
        label = _coarse(centers, middles)
        sizes = np.bincount(label, minlength=count)
        sums = np.stack([np.bincount(label, column, minlength=count) for column in centers.T.astype(np.float64)], 1)
        middles = (sums[sizes > 0] / sizes[sizes > 0, None]).astype(centers.dtype)
        count = len(middles)
    label = _coarse(centers, middles)
    order = np.argsort(label, kind="stable")
    sizes = np.bincount(label, minlength=count)
    padded = -(-sizes // LANES) * LANES
    starts = np.concatenate([[0], np.cumsum(padded)]).astype(np.int64)
    place = np.arange(len(centers)) + np.repeat(starts[:-1] - np.cumsum(sizes) + sizes, sizes)
    columns = np.full((centers.shape[1], starts[-1]), np.inf, centers.dtype)
    columns[:, place] = centers[order].T
    numbers = np.full(starts[-1], -1, np.int64)
    numbers[place] = order
    away = np.sqrt(np.square(centers.astype(np.float64) - middles[label]).sum(axis=1))
    radii = np.zeros(count)
    np.maximum.at(radii, label, away)
    across = np.full((centers.shape[1], -(-count // LANES) * LANES), np.inf, centers.dtype)
    across[:, :count] = middles.T
    return Groups(across, radii, columns, starts, numbers)


def _coarse(centers: Array, middles: Array) -> Array:
    """A middle near each center, by a matrix product."""
    shift = middles.mean(axis=0)
    near = middles - shift
    return np.asarray(np.argmin(np.einsum("ij,ij->i", near, near) - 2 * (centers - shift) @ near.T, axis=1))


def nearest_grouped(rows: Array, centers: Array, labels: Array) -> int:
    """Write the nearest center of each of the first rows, ties to the lowest number, to ``labels`` int64 (n,).

    Returns how many rows those are: all of them; few where groups leave out little; none where there are few.
    """
    if len(centers) < LEAST or len(rows) < LEAST_ROWS:
        return 0
    groups = grouped(centers)
    slack = 4 * rounding(centers.shape[1], rows.dtype)
    tiny = float(np.finfo(rows.dtype).tiny) * centers.shape[1]
    done = 0
    for stop in (min(TRIED, len(rows)), len(rows)):
        part = slice(done, stop)
        looked = _nearest(
            rows[part], centers, groups.middles, groups.radii, groups.columns, groups.starts, groups.numbers, slack,
            tiny, labels[part],
        )  # fmt: skip
        if looked > WORTH * len(centers) * (stop - done):
            return stop
        done = stop
    return done


@njit(cache=True, nogil=True)
def _nearest(
    rows: Array, centers: Array, middles: Array, radii: Array, columns: Array, starts: Array, numbers: Array,
    slack: float, tiny: float, labels: Array,
) -> int:  # fmt: skip
    """Write the labels of rows; how many centers were looked at. Sums are right to a share ``slack`` or ``tiny``."""
    count = radii.shape[0]
    to_middles = np.empty(middles.shape[1], rows.dtype)
    squared = np.empty(columns.shape[1], rows.dtype)
    visited = np.empty(count, np.int64)
    looked = 0
    for m in range(rows.shape[0]):
        _sums(rows, m, middles, 0, middles.shape[1], to_middles)
        first = 0
        for g in range(1, count):
            first = g if to_middles[g] < to_middles[first] else first
        least = _looked(rows, m, columns, starts[first], starts[first + 1], squared)
        bound = np.sqrt(np.float64(least) * (1 + slack) + tiny)
        visited[0], many = first, 1
        for g in range(count):
            if g == first:
                continue
            away = np.sqrt(max(0.0, np.float64(to_middles[g]) * (1 - slack) - tiny)) - radii[g] * (1 + slack)
            if not away > bound:
                low = _looked(rows, m, columns, starts[g], starts[g + 1], squared)
                visited[many] = g
                many += 1
                if low < least:
                    least = low
                    bound = np.sqrt(np.float64(least) * (1 + slack) + tiny)
        limit = np.float64(least) * (1 + 2 * slack) + 2 * tiny
        chosen, best = -1, -1.0  # the distance of a center that is alone is not asked for
        for v in range(many):
            g = visited[v]
            looked += starts[g + 1] - starts[g]
            for p in range(starts[g], starts[g + 1]):
                if not np.float64(squared[p]) <= limit or numbers[p] < 0:
                    continue
                j = numbers[p]
                if chosen < 0:
                    chosen = j
                    continue
                if best < 0:
                    best = squared_distance(rows, m, centers, chosen)
                value = squared_distance(rows, m, centers, j)
                if value < best or (value == best and j < chosen):
                    chosen, best = j, value
        labels[m] = max(chosen, 0)
    return looked


@njit(nogil=True)
def _looked(rows: Array, m: int, columns: Array, start: int, stop: int, squared: Array) -> Any:
    """Squared distances of a row to a range of columns, and the least of them."""
    _sums(rows, m, columns, start, stop, squared)
    least = squared[start]
    for p in range(start + 1, stop):
        least = min(least, squared[p])
    return least


@njit(nogil=True)
def _sums(rows: Array, m: int, columns: Array, start: int, stop: int, squared: Array) -> None:
    """Squared distances of a row to columns, all of them together dimension by dimension."""
    near = squared[start:stop]
    near[:] = 0
    for f in range(rows.shape[1]):
        x, there = rows[m, f], columns[f, start:stop]
        for p in range(near.shape[0]):
            difference = x - there[p]
            near[p] += difference * difference


# ------------------------------------------------------------------------------------------------------------- cells
# Loops over the rows of cells: which lead, how far they are from the centers, their sums; with all arithmetic that of
# the NumPy code of :mod:`bigembed.neighbors.partition`, bit for bit.


@njit(cache=True, nogil=True)
def paired(rows: Array, centers: Array, label: Array) -> Array:
    """Squared distance of each row (m, d) to the center of its cell ``label``, float64 (m,)."""
    squared = np.empty(rows.shape[0])
    for m in range(rows.shape[0]):
        squared[m] = squared_distance(rows, m, centers, label[m])
    return squared


@njit(cache=True, nogil=True)
def add_up(
    rows: Array, weights: Array, weighted: bool, label: Array, squared: Array, centers: Array, counts: Array,
    sums: Array, squares: Array, far: Array,
) -> None:  # fmt: skip
    """Add rows (m, d) in their order to counts (c,), Σ w (x − center) (c, d), Σ w ‖x − center‖² and its maximum."""
    for m in range(rows.shape[0]):
        c = label[m]
        w = weights[m] if weighted else 1.0
        counts[c] += w
        squares[c] += w * squared[m]
        far[c] = max(far[c], squared[m])
        for f in range(rows.shape[1]):
            sums[c, f] += w * (np.float64(rows[m, f]) - np.float64(centers[c, f]))


@njit(cache=True, nogil=True)
def leading(rows: Array, reach: float, most: int) -> Array:
    """Which rows (m, d) lead: as :func:`bigembed.neighbors.partition.leading_rows` chooses them."""
    found = np.empty(min(most, rows.shape[0]), np.int64)
    count = 0
    for i in range(rows.shape[0]):
        if count == found.shape[0]:
            break
        free = True
        for k in range(count):
            if squared_distance(rows, i, rows, found[k]) <= reach:
                free = False
                break
        if free:
            found[count] = i
            count += 1
    return found[:count]
