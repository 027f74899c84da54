"""Whether new sparse rows are of the kind that was fitted: which columns they fill, how many, and with what.

Of sparse rows the columns say little one by one, for most are empty; and their files have no names for them. What an
accident changes is seen in all of them together: rows fill columns that many rows fill, and after another order of the
columns they fill any. So of every column its place among all by popularity is kept, and a few figures of the rows.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from scipy import sparse

from bigembed.runtime.blocks import Array

FILLED = "filled"
"""Name of the stage that keeps it."""
PLACES = "places"
"""Name of the array (d,) with the place of each column by how many rows fill it: the share of columns that fewer do."""
TAILS = {"entries": (0.05, 0.5, 0.99), "size": (0.01, 0.5, 0.99)}
"""Quantiles of the fitted rows that are kept of what is counted of each, beside the least and the largest. With .01 for
entries, nine tenths of which were lost, 33 of 60 user × item matrices were told, with .05 51: many rows have few."""
MOST = 0.5
"""Share of the new rows that lie beyond an outer quantile, on one side, from which they are unlike …"""
TIMES = 2.0
"""… if their median is so many times that of the fitted ones, or such a part."""
LEAST = 20
"""New rows from which that is asked. All of fewer have to lie outside of all fitted values, by as many times as these
lie apart."""
NEARER = 0.5
"""Where new rows have lost more of what sets the columns that rows fill apart from columns drawn at random, they are
unlike …"""
ERRORS = 4.0
"""… if that is so many standard errors, of rows that may all be of one kind.

Made rows of 180 kinds (users × items with groups and drift, counts of cell types, words of several languages; 50 to
60 000 columns, counts, marks and TF-IDF): of 1 to 5 000 rows at random, or later ones, of the same kind none was warned
of, of those of one group 7 of some 3 000, whose few columns hardly any other group fills. Of 50 permuted rows or more
45 of 60 were told with users, 49 with cells and all with words; most that were missed (6 of 8 that
were looked at) have rows that differ among themselves, by four deviations, more than they do from chance.
"""
CHANCE = 1e-6
"""Chance of rows that all hold one value below which they are unlike."""


def places_of(counts: Array) -> Array:
    """Places (d,) of columns, from 0 to 1, by how many rows fill each; equal ones share the middle of theirs.

    >>> places_of(np.array([5, 0, 9, 0])).tolist()
    [0.625, 0.25, 0.875, 0.25]
    """
    from scipy.stats import rankdata

    return np.asarray((rankdata(counts) - 0.5) / max(1, len(counts)), np.float32)


def kind_of(rows: Any) -> tuple[Array, dict[str, Any]]:
    """What is kept of fitted rows (m, d), CSR: the places of the columns, and figures of the rows as plain numbers.

    ``columns``: their number. ``entries`` and ``size``: the least, three quantiles and the largest of how many columns
    a row fills, and of the mean of their absolute values. ``varied``: the share of rows with several values among those
    of two entries or more. ``place``: the mean place of the columns that a row fills, by the popularity among the other
    half of the rows, with the variances ``between`` rows and ``within`` a row.
    """
    rows = without_zeros(rows)
    half = np.random.default_rng(0).permutation(rows.shape[0]) % 2 == 0
    looked = [_place(rows[own], places_of(filled_counts(rows[~own]))) for own in (half, ~half)]
    mean, variance, count = (np.concatenate(parts) for parts in zip(*looked, strict=True))
    several = count > 1
    within, between = 0.0, 0.0
    if several.any():
        within = float(variance[several].mean())
        between = max(0.0, float(mean[several].var() - np.mean(variance[several] / count[several])))
    figures: dict[str, Any] = {name: _five(values, TAILS[name]) for name, values in _counted(rows).items()}
    return places_of(filled_counts(rows)), figures | {
        "columns": rows.shape[1],
        "varied": _varied(rows)[0],
        "place": float(mean.mean()) if len(mean) else 0.5,
        "between": between,
        "within": within,
    }


def unlike_sparse(
    rows: Any, places: Array, kind: Mapping[str, Any], *, sized: bool = True, valued: bool = True
) -> dict[str, Any]:
    """In what new rows (m, d), CSR, are unlike those fitted; empty where they are not.

    ``columns``: the mean places of the columns that new rows fill, and that fitted ones fill; ``entries`` and ``size``
    (where ``sized``): the medians of new and of fitted rows, and the outer quantiles of these; ``varied`` (where
    ``valued``): the shares of rows with several values.

    >>> fitted = sparse.random_array((400, 50), density=0.1, rng=0, format="csr")
    >>> places, kind = kind_of(fitted)
    >>> unlike_sparse(fitted[:50], places, kind)
    {}
    >>> list(unlike_sparse(1000 * fitted[:50], places, kind))
    ['size']
    """
    rows = without_zeros(rows)
    found: dict[str, Any] = {}
    if misplaced := _misplaced(rows, places, kind):
        found["columns"] = misplaced
    for name, values in _counted(rows).items():
        if (sized or name != "size") and (moved := _moved(values, kind[name])):
            found[name] = moved
    share, count = _varied(rows)
    alike = share == 0 and (1 - kind["varied"]) ** count < CHANCE
    if valued and (alike or (kind["varied"] == 0 and share > MOST and count >= LEAST)):
        found["varied"] = [share, kind["varied"]]
    return found


def without_zeros(rows: Any) -> Any:
    """CSR rows of which every stored entry is a value."""
    if np.all(rows.data != 0):
        return rows
    found = sparse.csr_array(rows, copy=True)
    found.eliminate_zeros()
    return found


def filled_counts(rows: Any) -> Array:
    """How many rows fill each column, (d,)."""
    return np.bincount(rows.indices, minlength=rows.shape[1])


def _misplaced(rows: Any, places: Array, kind: Mapping[str, Any]) -> list[float]:
    """The mean place of the columns that new rows fill, and of fitted ones, where the first is much nearer to chance.

    The variance between rows does not fall with their number: new rows may all be of one group of those fitted.
    """
    mean, _, count = _place(rows, places)
    if not len(mean):
        return []
    error = np.sqrt(kind["between"] + kind["within"] * float(np.mean(1 / count)) / len(count))
    lost = kind["place"] - float(mean.mean())
    gone = lost > max(NEARER * (kind["place"] - 0.5), ERRORS * error)
    return [float(mean.mean()), kind["place"]] if gone else []


def _place(rows: Any, places: Array) -> tuple[Array, Array, Array]:
    """Mean and variance of the places of the columns that each row fills, and how many; of rows that fill some."""
    count = np.diff(rows.indptr)
    some = np.flatnonzero(count)
    if not len(some):
        return np.zeros(0), np.zeros(0), np.zeros(0)
    count, starts, values = count[some], rows.indptr[some], places[rows.indices].astype(np.float64)
    mean = np.add.reduceat(values, starts) / count
    square = np.add.reduceat(values**2, starts) / count
    return mean, np.maximum(square - mean**2, 0) * count / np.maximum(1, count - 1), count


def _counted(rows: Any) -> dict[str, Array]:
    """How many columns each row fills, and of those that fill some the mean of the absolute values."""
    count = np.diff(rows.indptr)
    some = np.flatnonzero(count)
    total = np.add.reduceat(np.abs(rows.data).astype(np.float64), rows.indptr[some]) if len(some) else np.zeros(0)
    return {"entries": count.astype(np.float64), "size": total / count[some]}


def _varied(rows: Any) -> tuple[float, int]:
    """The share of rows with several values among those of two entries or more, and how many these are."""
    some = np.flatnonzero(np.diff(rows.indptr) > 1)
    if not len(some):
        return 0.0, 0
    row = np.repeat(np.arange(rows.shape[0]), np.diff(rows.indptr))
    first = np.zeros(rows.shape[0], rows.dtype)
    first[some] = rows.data[rows.indptr[some]]
    other = np.bincount(row[rows.data != first[row]], minlength=rows.shape[0])[some] > 0
    return float(other.mean()), len(some)


def _five(values: Array, tails: tuple[float, ...]) -> list[float]:
    """The least, three quantiles and the largest of some values; nothing of none."""
    return np.quantile(values, [0, *tails, 1]).tolist() if len(values) else []


def _moved(values: Array, fitted: list[float]) -> list[float]:
    """The median of new values, and the outer quantiles and the median of fitted ones, where most lie beyond."""
    if not (len(values) and fitted):
        return []
    low, least, middle, most, high = fitted
    median = float(np.median(values))
    if len(values) >= LEAST:
        share = max(float(np.mean(values > most)), float(np.mean(values < least)))
        is_moved = share > MOST and not middle / TIMES < median < middle * TIMES
    else:
        apart = max(TIMES, high / low) if low > 0 else np.inf
        is_moved = bool((values > high * apart).all() or (values < low / apart).all())
    return [median, middle, least, most] if is_moved else []
