"""Compiled lists and counts of CSR rows against each other by distance. Importing this module imports numba.

Bounds from sums over shared columns (:mod:`bigembed.blocks.sparse_sums`) decide nearly all; the distances of the others
are computed column by column, so that what comes out is exact.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numba import njit

from bigembed.blocks.insertion import insert
from bigembed.blocks.metric_pairs import CODES, pair
from bigembed.blocks.rows import Array
from bigembed.blocks.sparse_sums import interval, parts_of, shared_sums, signed_column, sums, term_alone, turned

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
def _alone(columns: Array, values: Array, code: int, signed: int) -> tuple[float, float]:
    """:func:`~bigembed.blocks.sparse_sums.sums` of one row."""
    own, size = 0.0, 0.0
    for p in range(columns.shape[0]):
        part = term_alone(code, np.float64(values[p]), columns[p] == signed)
        own = max(own, part) if code == 5 else own + part
        size += abs(part)
    return own, size


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
