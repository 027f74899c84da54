"""Whether new rows are of the kind that was fitted: column by column, and by how near the fitted rows are.

A map places any row somewhere, rows in other units or with fill values as well. So of every column four numbers are
kept, of the rows that the map was judged by: the least and the largest value, and two quantiles between them. Where a
model finds the fitted rows near new ones, their distances are compared with those of fitted rows among themselves.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from bigembed.quality.figures import LISTED, fills_figure
from bigembed.runtime.blocks import Array

LIMITS = "limits"
"""Name of the array with the limits of the columns, (4, d): least, quantile, quantile, largest."""
REACH = "reach"
"""Name of the array with the distances (k,) within which nearly all fitted rows have their first, …, k-th neighbor."""
GROUPED = "grouped"
"""Name of the array (d,) that says of which columns the rows that were looked at may not show the range, bool."""
RANK = 5
"""The neighbor by which new rows are compared with fitted ones."""
NEARLY_ALL = 0.99
FARTHER, OUTSIDE = 1.5, 0.25
"""Times that distance beyond which a new row lies outside, and the share of such rows above which a warning says so."""
TAILS = 0.005, 0.995
"""The two quantiles."""
MOST = 0.5
"""Share of the new rows beyond a quantile, on one side, above which a column is unlike."""
LEAST = 20
"""New rows from which that is asked. All of fewer have to lie outside of all fitted values, by as much as these lie
apart."""
SMALL = 0.02
"""Part of what a column holds below which all values are where they are in other units, 0 … 1 for 0 … 255 say."""
AWAY, TAIL, KNOWN = 1.5, 3.0, 200
"""Ranges of the fitted values beyond whose end a value is far away (1 is the end itself). How many are counted at the
most where the tail is not known: of fewer fitted rows than these, or where nearly all hold one value."""
POINTS, CHANCE = 0.1, 1e-4
"""How much larger a share of missing values is, at the least, where a warning says so; how often chance may say it."""
ROUNDED = 1e-5
"""What rounding to float32 and back may change, as a part of the largest absolute value."""


@dataclass(frozen=True)
class Far:
    """Where a column lies far beyond the fitted rows."""

    rows: list[int]
    """Numbers of the rows in which it does, among those that were looked at."""
    times: float
    """How far at the most, in ranges of the fitted values: 1 is where these end."""


def column_limits(sample: Array, low: Array, high: Array) -> Array:
    """Limits (4, d) of sampled rows (s, d); ``low`` and ``high`` (d,) are those of all rows that were looked at.

    >>> column_limits(np.arange(1001.0)[:, None], np.array([-5.0]), np.array([2000.0])).ravel().tolist()
    [-5.0, 5.0, 995.0, 2000.0]
    """
    with np.errstate(over="ignore", invalid="ignore"):  # (numbers near the largest ones)
        tails = np.quantile(sample.astype(np.float64), TAILS, axis=0)
    return np.stack([low, *tails, high]).astype(np.float64)


def grouped_columns(sample: Array, blocks: Array) -> Array:
    """Which columns (d,) differ between the blocks (s,) that sampled rows (s, d) are of, beyond chance: as those that
    a file is sorted by do, so that blocks that were not drawn may hold values that no drawn one has.

    Of the values, without their tails, the mean of each block is compared with that of all (χ², far in its tail).
    Columns in which nearly all rows hold one value cannot be judged, and count as such.

    >>> rows = np.stack([np.arange(400.0), np.arange(400) % 7.0], axis=1)
    >>> grouped_columns(rows, np.arange(400) // 100).tolist()
    [True, False]
    """
    with np.errstate(over="ignore", invalid="ignore", divide="ignore"):
        values = np.clip(sample.astype(np.float64), *np.quantile(sample.astype(np.float64), TAILS, axis=0))
        values = (values - values.mean(axis=0)) / values.std(axis=0)
        members = blocks == np.unique(blocks)[:, None]
        sums = np.square(members @ values) / members.sum(axis=1)[:, None]
        free = len(members) - 1
        return np.asarray(~(sums.sum(axis=0) < free + 6 * np.sqrt(2 * free) + 10))


def reach_of(squared: Array) -> Array:
    """Distances (k,) within which 99 of 100 rows have their neighbors, of squared distances (s, k), ascending.

    >>> reach_of(np.square(np.arange(1, 102.0))[:, None]).tolist()
    [100.0]
    """
    return np.asarray(np.quantile(np.sqrt(squared.astype(np.float64)), NEARLY_ALL, axis=0))


def outside(indptr: Array, squared: Array, reach: Array, unrelated: float = np.inf) -> float:
    """The share of new rows that lie outside of the fitted ones.

    ``indptr`` and ``squared``: of each new row the squared distances to fitted rows near it (CSR). Outside is a row
    whose 5th nearest is farther than 1.5 times the distance within which 99 of 100 fitted rows have theirs, or, where
    distances end at that of ``unrelated`` rows, than halfway from there to that end.
    """
    rank = min(RANK, len(reach), int(np.diff(indptr).min(initial=RANK)))
    if len(indptr) < 2 or rank < 1:
        return 0.0
    parts = np.split(squared, indptr[1:-1])
    own = np.sqrt(np.array([np.partition(part, rank - 1)[rank - 1] for part in parts], np.float64))
    near = float(reach[rank - 1])
    limit = FARTHER * near if near >= unrelated else min(FARTHER * near, (near + unrelated) / 2)
    return float(np.mean(own > limit))


def more_missing(new: Array, m: int, fitted: Array, n: int) -> Array:
    """In which columns far more values are missing among m new rows than among n fitted ones, bool (d,).

    ``new`` and ``fitted`` (d,): how many. The shares are more than :data:`POINTS` apart, and by chance, m of all n + m
    rows drawn anew, no column of d has so many with a probability of :data:`CHANCE` (Hoeffding 1963, theorems 1 and 4).

    >>> more_missing(np.array([12, 4]), 40, np.array([20, 20]), 1_000).tolist()
    [True, False]
    """
    share, known, together = new / max(m, 1), fitted / max(n, 1), (new + fitted) / max(n + m, 1)
    with np.errstate(divide="ignore", invalid="ignore"):
        there, gone = share * np.log(share / together), (1 - share) * np.log((1 - share) / (1 - together))
    apart = m * (np.nan_to_num(there) + np.nan_to_num(gone))
    return np.asarray((share - known > POINTS) & (apart > np.log(len(new) / CHANCE)))


def unlike_columns(rows: Array, limits: Array) -> dict[str, Any]:
    """In which columns new rows (m, d) are unlike those fitted; empty where they are in none.

    ``moved``: columns in which more than half of the rows lie above the .995-quantile of the fitted ones, or more than
    half below the .005-quantile, the farthest first, at most :data:`LISTED` of ``moved_count``; ``median`` of the new
    rows and ``least`` and ``most`` of the fitted ones in the first. ``fills``: columns in which one value far beyond
    all others, and beyond all fitted ones, stands again and again (:func:`bigembed.quality.figures.fills_figure`).
    ``small``: in half of the columns no value, of twenty rows at least, is a fiftieth of the quantiles; the part.

    >>> limits = column_limits(np.linspace(0, 30, 500)[:, None], np.array([0.0]), np.array([30.0]))
    >>> unlike_columns(np.linspace(0, 30, 50)[:, None], limits)
    {}
    >>> unlike_columns(np.linspace(273, 303, 50)[:, None], limits)["moved"]
    [0]
    """
    with np.errstate(over="ignore", invalid="ignore"):  # (numbers near the largest ones)
        return _unlike(rows, *limits)


def _unlike(rows: Array, low: Array, least: Array, most: Array, high: Array) -> dict[str, Any]:
    apart, slack = high - low, ROUNDED * np.maximum(abs(low), abs(high))
    slack = np.where(apart > 0, slack, slack.max())  # (a constant that steps take away leaves its rounding)
    if len(rows) >= LEAST:
        above, below = ((rows > most + slack).mean(axis=0), (rows < least - slack).mean(axis=0))
        moved = np.maximum(above, below) > MOST
    else:
        above, below = ((rows > high + apart + slack).all(axis=0), (rows < low - apart - slack).all(axis=0))
        moved = (above | below) & (least < most)
    found: dict[str, Any] = {}
    if moved.any():
        middle = np.median(rows, axis=0)
        scale = np.where(apart > 0, apart, np.maximum(slack, np.finfo(float).tiny))
        far = np.where(moved, np.maximum(middle - high, low - middle) / scale, -np.inf)
        order = np.argsort(-far, kind="stable")[: int(moved.sum())]
        first = order[0]
        found = {
            "moved": order[:LISTED].tolist(),
            "moved_count": len(order),
            "median": float(middle[first]),
            "least": float(low[first]),
            "most": float(high[first]),
        }
    fills = [
        column
        for column in fills_figure(rows).get("fills", [])
        if rows[:, column].max() > high[column] + slack[column] or rows[:, column].min() < low[column] - slack[column]
    ]
    small = _part(rows, np.maximum(abs(least), abs(most)))
    return found | ({"fills": fills} if fills else {}) | ({"small": small} if 0 < small < SMALL else {})


def far_columns(rows: Array, limits: Array, fitted: int) -> dict[int, Far]:
    """Columns in which some new rows (m, d) lie far beyond all ``fitted`` ones that the limits are of.

    More of them than by chance (:data:`CHANCE`, all columns together): of m new rows the k largest values are all
    beyond s fitted ones with a probability of (m/(m + s))^k at the most, whatever the distribution. At c ranges there
    are fewer by a factor of c, as in a tail of Pareto with exponent 1, which is heavier than amounts and counts have.

    >>> limits = column_limits(np.linspace(0, 30, 500)[:, None], np.array([0.0]), np.array([30.0]))
    >>> far_columns(np.array([[3.0]] * 97 + [[3_000.0]] * 3), limits, 500)
    {0: Far(rows=[97, 98, 99], times=100.0)}
    >>> far_columns(np.array([[3.0]] * 99 + [[60.0]]), limits, 500)
    {}
    """
    low, least, most, high = limits
    apart, chance = high - low, np.log(CHANCE / (2 * max(1, rows.shape[1])))
    most_counted = np.where((fitted >= KNOWN) & (least < most), np.inf, TAIL)
    found: dict[int, Far] = {}
    with np.errstate(over="ignore", invalid="ignore", divide="ignore"):  # (constant columns say nothing)
        sides = [1 + np.where(apart > 0, beyond / apart, -np.inf) for beyond in (rows - high, low - rows)]
        columns = [np.flatnonzero(_unlikely(times, fitted, most_counted) < chance) for times in sides]
    for column in np.union1d(*columns).tolist():
        times = np.maximum(*(side[:, column] for side in sides))
        found[column] = Far(np.flatnonzero(times > AWAY).tolist(), float(times.max()))
    return found


def _unlikely(times: Array, fitted: int, most_counted: Array) -> Array:
    """The logarithm of the least probability (d,) that chance puts so many of the rows so many ``times`` (m, d) far."""
    odds = len(times) / max(1, fitted)
    largest = np.minimum(-np.sort(-times, axis=0), most_counted)
    each = np.where(largest > AWAY, np.arange(1, len(times) + 1)[:, None] * np.log(odds / (largest + odds)), 0)
    return np.asarray(each.min(axis=0, initial=0))


def _part(rows: Array, size: Array) -> float:
    """Of columns in which rows have values, the largest one over what the fitted rows hold; the median column."""
    largest = abs(rows).max(axis=0, initial=0)
    there = (largest > 0) & (size > 0)
    return float(np.median(largest[there] / size[there])) if len(rows) >= LEAST and there.any() else 0.0
