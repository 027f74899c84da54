"""Compiled distances between CSR rows: of every pair, lists, counts and bounds. Importing this imports numba."""

from __future__ import annotations

from typing import Any

import numpy as np
from numba import njit

from bigembed.runtime.arithmetic import insert
from bigembed.runtime.blocks import Array

# -------------------------------------------------------------------------------------------------------- every pair
# Distances of every pair of CSR rows. A pair is walked through once, in ascending columns, so that its distance has the
# same bits whatever rows stand near, and whichever of the two comes first.

CODES = {
    name: code
    for code, name in enumerate(
        (
            "euclidean", "cosine", "hellinger", "correlation", "manhattan", "chebyshev", "canberra", "braycurtis",
            "hamming", "jaccard", "dice", "rogerstanimoto", "sokalsneath",
        )
    )
}  # fmt: skip
CODES["spearmanr"] = CODES["correlation"]  # (of ranks)


def parts_of(rows: Any) -> tuple[Array, Array, Array]:
    """Starts, columns and values of CSR rows; columns as int32 where they fit, so that kernels are compiled for one
    type of them."""
    narrow = np.int32 if rows.shape[1] <= np.iinfo(np.int32).max else np.int64
    return rows.indptr.astype(np.int64), rows.indices.astype(narrow, copy=False), rows.data


def sparse_pairs(rows: Any, others: Any, metric: str) -> Array:
    """Distances (m, N) of mapped CSR rows by a named metric; squared ones of those that are Euclidean."""
    out = np.empty((rows.shape[0], others.shape[0]))
    _every(*parts_of(rows), *parts_of(others), CODES[metric], float(rows.shape[1]), out)
    return out


@njit(cache=True, nogil=True)
def _every(
    starts: Array, columns: Array, values: Array, starts2: Array, columns2: Array, values2: Array,
    code: int, width: float, out: Array,
) -> None:  # fmt: skip
    for i in range(out.shape[0]):
        for j in range(out.shape[1]):
            out[i, j] = pair(
                columns, values, starts[i], starts[i + 1], columns2, values2, starts2[j], starts2[j + 1], code, width
            )


@njit(cache=True, nogil=True)
def pair(
    columns: Array, values: Array, at: int, end: int, columns2: Array, values2: Array, at2: int, end2: int,
    code: int, width: float,
) -> float:  # fmt: skip
    """One distance: x and y run over the columns in which either row has an entry.

    What the columns of one row alone add, and of the other, is summed apart from those of both: rows that share
    nothing have the sum of what each adds alone.
    """
    one, two, total, below, both, either = 0.0, 0.0, 0.0, 0.0, 0, 0
    while at < end or at2 < end2:
        x, y = 0.0, 0.0
        column = columns[at] if at < end else columns2[at2]
        if at2 < end2 and columns2[at2] < column:
            column = columns2[at2]
        if at < end and columns[at] == column:
            x = float(values[at])
            at += 1
        if at2 < end2 and columns2[at2] == column:
            y = float(values2[at2])
            at2 += 1
        either += 1
        if code >= 9:
            both += x != 0.0 and y != 0.0
            continue
        term = abs(x - y)
        if code <= 3:
            term *= term if code < 3 or column < width - 1 else -term
        elif code == 5:
            total = max(total, term)
            continue
        elif code == 6:
            term /= abs(x) + abs(y)
        elif code == 8:
            term = 1.0 if term != 0.0 else 0.0
        if y == 0.0:
            one += term
        elif x == 0.0:
            two += term
        else:
            total += term
            below += abs(x + y)
    total += one + two
    if code == 3:
        return max(total, 0.0)
    if code < 7:
        return total
    if code == 7:
        return total / (below + (one + two)) if total > 0.0 else 0.0
    return of_counts(code, total if code == 8 else float(either), float(both), width)


@njit(cache=True, nogil=True)
def of_counts(code: int, total: float, both: float, width: float) -> float:
    """A distance that counts columns: ``total`` those that differ (hamming), else those of either row."""
    if code == 8:
        return total / width
    differ = total - both
    if differ <= 0.0:
        return 0.0
    if code == 9:
        return differ / total
    if code == 10:
        return differ / (2.0 * both + differ)
    return 2.0 * differ / (width + differ) if code == 11 else 2.0 * differ / (both + 2.0 * differ)


# ----------------------------------------------------------------------------------------------------- sparse sums
# Compiled bounds of distances between CSR rows, from sums over their columns.
#
# Some rows are turned round, into the rows that hold each column; another row then walks through its own columns
# only, and has for every one of them what they share. That gives the distance up to rounding, and exactly where they
# share nothing, or where distances are counts. What lies between the bounds is for the caller to compute by
# :func:`pair`.

TABLED = 1 << 17
"""Columns that are looked up in a table; among more, those that occur are searched."""


def signed_column(code: int, width: int) -> int:
    """The column whose square is subtracted, or −1."""
    return width - 1 if code == CODES["correlation"] else -1


def turned(rows: Any) -> tuple[Array, Array, Array, Array, Array]:
    """CSR rows by columns: ``place`` of each column (−1: nobody has it) or, of very many, the columns ``held``; and
    from ``first`` of a place on, the ``holders`` with their ``entries``."""
    starts, columns, values = parts_of(rows)
    if rows.shape[1] <= TABLED:
        place = np.full(rows.shape[1], -1, np.int32)
        return place, columns[:0], *_turn(starts, columns, values, place)
    held, narrow = np.unique(columns, return_inverse=True)
    place = np.full(len(held), -1, np.int32)
    return place[:0], held, *_turn(starts, narrow.astype(np.int32), values, place)


@njit(cache=True, nogil=True)
def _turn(starts: Array, columns: Array, values: Array, place: Array) -> tuple[Array, Array, Array]:
    for column in columns:
        place[column] += 1
    found = 0
    first = np.zeros(min(place.shape[0], columns.shape[0]) + 1, np.int64)
    for column in range(place.shape[0]):
        if place[column] >= 0:
            first[found + 1] = first[found] + place[column] + 1
            place[column] = found
            found += 1
    at = first[:found].copy()
    holders, entries = np.empty(columns.shape[0], np.int32), np.empty(columns.shape[0])
    for i in range(starts.shape[0] - 1):
        for p in range(starts[i], starts[i + 1]):
            q = at[place[columns[p]]]
            holders[q], entries[q] = i, values[p]
            at[place[columns[p]]] += 1
    return first, holders, entries


@njit(cache=True, nogil=True)
def term_alone(code: int, x: float, last: bool) -> float:
    """What a column adds in which only one row has an entry; of Chebyshev's the largest one counts."""
    if code <= 3:
        return -x * x if last else x * x
    return abs(x) if code == 4 or code == 5 or code == 7 else 1.0


@njit(cache=True, nogil=True)
def term_shared(code: int, x: float, y: float, last: bool) -> float:
    """What a column adds in which both have one, less what each would add alone."""
    if code <= 3:
        return 2.0 * x * y if last else -2.0 * x * y
    if code == 5:
        return abs(x - y)
    if code == 4 or code == 7:
        return abs(x - y) - abs(x) - abs(y)
    if code == 6:
        return abs(x - y) / (abs(x) + abs(y)) - 2.0
    return (1.0 if x != y else 0.0) - 2.0 if code == 8 else -1.0


@njit(cache=True, nogil=True)
def sums(starts: Array, columns: Array, values: Array, code: int, signed: int) -> tuple[Array, Array]:
    """What the columns of each row add alone, and the sum of the sizes; ``signed``: the column that is subtracted."""
    own, size = np.zeros(starts.shape[0] - 1), np.zeros(starts.shape[0] - 1)
    for i in range(own.shape[0]):
        low, high = starts[i], starts[i + 1]
        own[i], size[i] = _alone(columns[low:high], values[low:high], code, signed)
    return own, size


@njit(cache=True, nogil=True)
def _alone(columns: Array, values: Array, code: int, signed: int) -> tuple[float, float]:
    """:func:`sums` of one row."""
    own, size = 0.0, 0.0
    for p in range(columns.shape[0]):
        part = term_alone(code, np.float64(values[p]), columns[p] == signed)
        own = max(own, part) if code == 5 else own + part
        size += abs(part)
    return own, size


@njit(cache=True, nogil=True)
def shared_sums(
    columns: Array, values: Array, place: Array, held: Array, first: Array, holders: Array, entries: Array,
    code: int, signed: int, more: Array,
) -> None:  # fmt: skip
    """Fill ``more`` (n, 2) with what the columns that one row shares with each of the turned rows add, and with their
    number (braycurtis: with the sum of |x + y| − |x| − |y|)."""
    more[:] = 0.0
    for p in range(columns.shape[0]):
        column = columns[p]
        at = place[column] if place.shape[0] else _searched(held, column)
        if at < 0:
            continue
        x, last = np.float64(values[p]), column == signed
        if code <= 3:
            x = 2.0 * x if last else -2.0 * x
            for q in range(first[at], first[at + 1]):
                more[holders[q], 0] += x * entries[q]
                more[holders[q], 1] += 1.0
            continue
        for q in range(first[at], first[at + 1]):
            j, y = holders[q], entries[q]
            part = term_shared(code, x, y, last)
            more[j, 0] = max(more[j, 0], part) if code == 5 else more[j, 0] + part
            more[j, 1] += abs(x + y) - abs(x) - abs(y) if code == 7 else 1.0


@njit(cache=True, nogil=True)
def _searched(held: Array, column: int) -> int:
    """The place of a column among those held, or −1."""
    at = np.searchsorted(held, column)
    return int(at) if at < held.shape[0] and held[at] == column else -1


@njit(cache=True, nogil=True)
def interval(
    code: int, own: float, other: float, more: float, shared: float, sizes: float, entries: float, width: float
) -> tuple[float, float]:
    """Bounds of a squared distance from what two rows add alone and ``more``; equal ones are the distance itself.

    ``shared`` is as of :func:`shared_sums`, ``sizes`` and ``entries`` are those of both rows.
    """
    total = own + other + more
    if code >= 8:
        value = of_counts(code, total, shared, width)
        return value * value, value * value
    if code == 5:
        low, high = max(more, abs(own - other)), max(more, max(own, other))
        if shared == 0.0:
            low = high
        return low * low, high * high
    alone = more == 0.0 and shared == 0.0
    slack = 0.0 if alone else 4e-16 * (entries + 64.0) * sizes
    low, high = max(total - slack, 0.0), max(total + slack, 0.0)
    if code <= 3:
        return low, high
    if code == 7:
        if alone:
            low = high = 1.0 if total > 0.0 else 0.0
        else:
            below = sizes + shared
            low = low / (below + slack) * (1.0 - 1e-15) if below + slack > 0.0 else 0.0
            high = high / (below - slack) * (1.0 + 1e-15) if below > slack else np.inf
    return low * low, high * high


# ---------------------------------------------------------------------------------------------------- sparse lists
# Compiled lists and counts of CSR rows against each other by distance.
#
# Bounds from sums over shared columns decide nearly all; the distances of the others are computed column by column, so
# that what comes out is exact.

BINS = 1 << 16
"""Of a histogram of squared distances: the upper half of their float32 bit pattern."""


def take_sparse(
    ids: Array, squared: Array, asking: Array, rows: Any, row_ids: Array, others: Any, other_ids: Array, metric: str
) -> None:
    """Take the CSR rows ``others`` into the lists of ``rows[asking]``, in place."""
    mine: tuple[Any, ...] = asking.astype(np.int64), *parts_of(rows), row_ids.astype(np.int64, copy=False)
    _take(*(ids, squared, *mine, *_others(others, metric), other_ids.astype(np.int64, copy=False)))


def count_sparse(
    ends: Array, numbers: Array, queries: Any, query_ids: Array, rows: Any, start: int, metric: str, counts: Array
) -> None:
    """Add to ``counts`` (s, p) how many of the CSR ``rows`` ``start``, … come before each (end, number) in the order of
    distance from a query, itself left out; both (s, p), and ascend along each row."""
    _count(*(ends, numbers, *parts_of(queries), query_ids, *_others(rows, metric), start, counts))


def bins_sparse(
    queries: Any, query_ids: Array, rows: Any, row_ids: Array, metric: str, dtype: Any, unit: int, bins: Array
) -> None:
    """Count squared distances, in units of 4ᵘ (u = ``unit``), in ``bins``; that of a row and itself as 0."""
    kept: tuple[Any, ...] = row_ids, np.zeros(0, dtype), np.ldexp(1.0, -2 * unit), bins
    _bins(*(*parts_of(queries), query_ids, *_others(rows, metric), *kept))


def _others(rows: Any, metric: str) -> tuple[Any, ...]:
    """What the kernels know of the rows that others are compared with."""
    code, width, parts = CODES[metric], rows.shape[1], parts_of(rows)
    signed = signed_column(code, width)
    return (*turned(rows), *parts, *sums(*parts, code, signed), code, signed, float(width))


@njit(cache=True, nogil=True)
def _take(
    ids: Array, squared: Array, asking: Array, starts: Array, columns: Array, values: Array, row_ids: Array,
    place: Array, held: Array, first: Array, holders: Array, entries: Array,
    starts2: Array, columns2: Array, values2: Array, alone: Array, size: Array, code: int, signed: int, width: float,
    other_ids: Array,
) -> None:  # fmt: skip
    count, last = other_ids.shape[0], squared.shape[1] - 1
    one = squared.dtype.type
    more, widest = np.zeros((count, 2)), 0
    largest = size.max() if count else 0.0
    for j in range(count):
        widest = max(widest, starts2[j + 1] - starts2[j])
    for i in asking:
        low, high = starts[i], starts[i + 1]
        own, own_size = _alone(columns[low:high], values[low:high], code, signed)
        shared_sums(columns[low:high], values[low:high], place, held, first, holders, entries, code, signed, more)
        slack = 5e-16 * (high - low + widest + 64.0) * (own_size + largest)
        bar = _bar(squared[i, last], one, code) + slack - own
        for j in range(count):
            if alone[j] + more[j, 0] > bar:
                continue
            number = other_ids[j]
            if number == row_ids[i]:
                continue
            least, most = interval(
                code, own, alone[j], more[j, 0], more[j, 1], own_size + size[j],
                float(high - low + starts2[j + 1] - starts2[j]), width,
            )  # fmt: skip
            if one(least) > squared[i, last]:
                continue
            if least == most and one(least) == squared[i, last] and 0 <= ids[i, last] <= number:
                continue
            if least != most:
                least = pair(columns, values, low, high, columns2, values2, starts2[j], starts2[j + 1], code, width)
                least = least if code <= 3 else least * least
            insert(ids[i], squared[i], number, one(least))
            bar = _bar(squared[i, last], one, code) + slack - own


@njit(cache=True, nogil=True)
def _bar(last: float, one: Any, code: int) -> float:
    """What the sums of a pair may come to, but for rounding, if it belongs on a list that ends at ``last``."""
    if code == 5 or code > 6:
        return np.inf
    most = np.float64(np.nextafter(one(last), one(np.inf)))
    return most if code <= 3 else np.sqrt(most) * (1.0 + 1e-15)


@njit(cache=True, nogil=True)
def _count(
    ends: Array, numbers: Array, starts: Array, columns: Array, values: Array, query_ids: Array,
    place: Array, held: Array, first: Array, holders: Array, entries: Array,
    starts2: Array, columns2: Array, values2: Array, alone: Array, size: Array, code: int, signed: int, width: float,
    start: int, counts: Array,
) -> None:  # fmt: skip
    count, k = alone.shape[0], ends.shape[1]
    more, bins = np.zeros((count, 2)), np.zeros(k + 1, np.int64)
    for i in range(ends.shape[0]):
        a, b = starts[i], starts[i + 1]
        own, own_size = _alone(columns[a:b], values[a:b], code, signed)
        shared_sums(columns[a:b], values[a:b], place, held, first, holders, entries, code, signed, more)
        bins[:] = 0
        for j in range(count):
            low, high = interval(
                code, own, alone[j], more[j, 0], more[j, 1], own_size + size[j],
                float(b - a + starts2[j + 1] - starts2[j]), width,
            )  # fmt: skip
            if low > ends[i, k - 1] or start + j == query_ids[i]:
                continue
            at = 0
            while at < k and ends[i, at] < low:
                at += 1
            if at < k and ends[i, at] <= high:
                if low != high:
                    low = pair(columns, values, a, b, columns2, values2, starts2[j], starts2[j + 1], code, width)
                    low = low if code <= 3 else low * low
                while at < k and (ends[i, at] < low or (ends[i, at] == low and numbers[i, at] <= start + j)):
                    at += 1
            bins[at] += 1
        total = 0
        for c in range(k):
            total += bins[c]
            counts[i, c] += total


@njit(cache=True, nogil=True)
def _bins(
    starts: Array, columns: Array, values: Array, query_ids: Array,
    place: Array, held: Array, first: Array, holders: Array, entries: Array,
    starts2: Array, columns2: Array, values2: Array, alone: Array, size: Array, code: int, signed: int, width: float,
    row_ids: Array, as_kept: Array, scale: float, bins: Array,
) -> None:  # fmt: skip
    count, one = alone.shape[0], as_kept.dtype.type
    more, bits = np.zeros((count, 2)), np.zeros(2, np.float32)
    upper = bits.view(np.uint32)
    for i in range(query_ids.shape[0]):
        a, b = starts[i], starts[i + 1]
        own, own_size = _alone(columns[a:b], values[a:b], code, signed)
        shared_sums(columns[a:b], values[a:b], place, held, first, holders, entries, code, signed, more)
        for j in range(count):
            low, high = interval(
                code, own, alone[j], more[j, 0], more[j, 1], own_size + size[j],
                float(b - a + starts2[j + 1] - starts2[j]), width,
            )  # fmt: skip
            if row_ids[j] == query_ids[i]:
                low = high = 0.0
            bits[0], bits[1] = np.float64(one(low)) * scale, np.float64(one(high)) * scale
            if upper[0] >> 16 != upper[1] >> 16:
                low = pair(columns, values, a, b, columns2, values2, starts2[j], starts2[j + 1], code, width)
                bits[0] = np.float64(one(low if code <= 3 else low * low)) * scale
            bins[upper[0] >> 16] += 1
