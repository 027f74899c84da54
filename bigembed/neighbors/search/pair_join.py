"""Compiled kernels of NN-descent by distances of pairs: of sparse rows, and of metrics that are not Euclidean.

Importing this module imports numba. The candidates of a row give pairs, each once as far as is remembered; their
distances have the bits that the search of cells gives them (:mod:`bigembed.distance.metrics`). Of sparse rows, sums
over the columns of one row alone reject first (:mod:`bigembed.distance.sparse_compiled`).
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numba import njit
from scipy.sparse import csr_array

from bigembed.distance.metrics import RowMetric
from bigembed.distance.pair_compiled import compiled, squared_pairs
from bigembed.distance.sparse_compiled import CODES, interval, pair, parts_of, signed_column, sums, term_shared
from bigembed.runtime.blocks import Array, is_sparse

WIDEST = 1 << 22
"""Columns that a scratch row has; more are numbered anew, as far as they occur."""


@njit(cache=True, nogil=True)
def unseen(
    first: int, starts: Array, new: Array, candidates: Array, seen: Array, a: Array, b: Array
) -> tuple[int, int]:  # fmt: skip
    """Pairs of the candidates of each row, from row ``first``, until the output is full; runs of one ``a``.

    ``starts``, ``new``, ``candidates`` and ``seen`` as of :func:`bigembed.neighbors.descent_compiled.join`. Returns
    the next row, and how many pairs there are.
    """
    mask, found = np.uint64(seen.shape[0] - 1), 0
    for v in range(first, new.shape[0]):
        begin, end = starts[v], starts[v + 1]
        if found + new[v] * (end - begin) > a.shape[0]:
            return v, found
        for s in range(begin, begin + new[v]):
            for t in range(s + 1, end):
                one, two = candidates[s], candidates[t]
                low, high = (one, two) if one < two else (two, one)
                key = (np.uint64(low) << np.uint64(32)) | np.uint64(high)
                place = ((key * np.uint64(0x9E3779B97F4A7C15)) >> np.uint64(20)) & mask
                if seen[place] != key:
                    seen[place] = key
                    a[found], b[found] = one, two
                    found += 1
    return new.shape[0], found


@njit(cache=True, nogil=True)
def listed(a: Array, b: Array, values: Array, last: Array, row: Array, other: Array, squared: Array) -> int:
    """Fill ``row``, ``other`` and ``squared`` with what may belong on the list of either row of a pair; how many."""
    found = 0
    for p in range(a.shape[0]):
        value = values[p]
        if value <= last[a[p]]:
            row[found], other[found], squared[found] = a[p], b[p], value
            found += 1
        if value <= last[b[p]]:
            row[found], other[found], squared[found] = b[p], a[p], value
            found += 1
    return found


class PairDistances:
    """Squared distances of pairs of some rows, dense or CSR: by a metric's name, or by a function of the user's."""

    def __init__(self, rows: Any, metric: RowMetric, dtype: str) -> None:
        self.metric, self.dtype, self.width = metric, dtype, rows.shape[1]
        parts = parts_of(rows) if is_sparse(rows) else (rows,)
        self.rows = tuple(np.ascontiguousarray(part) for part in parts)
        self.code = CODES.get(metric.text, -1)
        self.rejecting = _rejecting(self.rows, self.code, rows.shape[1]) if is_sparse(rows) and metric.summed else ()

    def __call__(self, a: Array, b: Array, limits: Array) -> Array:
        """Those of the rows ``a`` and ``b`` (m,): (m,), ∞ for pairs that are known to be beyond their limit."""
        out = np.empty(len(a), self.dtype)
        a, b, limits = (np.ascontiguousarray(each) for each in (a, b, limits))
        if self.metric.own:
            kernel: Any = _own_dense if len(self.rows) == 1 else _own_sparse
            wrong = kernel(compiled(self.metric.function), *self.rows, a, b, out)
            if wrong >= 0:
                self._refuse(int(a[wrong]), int(b[wrong]))
        elif self.metric.function_of_two:
            squared_pairs(self.rows, a, b, self.metric.text, self.width, out)
        else:
            kernel = _sparse if self.rejecting else _dense
            kernel(*self.rows, a, b, limits, *self.rejecting, self.code, float(self.width), out)
        return out

    def _refuse(self, i: int, j: int) -> None:
        """InputError that names the two rows."""
        low, high = min(i, j), max(i, j)
        self.metric.squared(*(_part(self.rows, row, self.width) for row in (low, high)))


def _rejecting(rows: tuple[Array, ...], code: int, width: int) -> tuple[Array, Array, Array, Array, int]:
    """What :func:`_sparse` rejects by: columns as a scratch row has them, sums of the rows, that row, and the column
    that is subtracted, or −1."""
    narrow, columns, signed = rows[1], width, signed_column(code, width)
    if columns > WIDEST:
        present, narrow = np.unique(rows[1], return_inverse=True)
        columns, signed = len(present), len(present) - 1 if signed >= 0 else -1  # (every row has that column)
    narrow = narrow.astype(np.int32, copy=False)
    own, size = sums(rows[0], narrow, rows[2], code, signed)
    return narrow, own, size, np.zeros(columns), signed


def _part(rows: tuple[Array, ...], i: int, width: int) -> Any:
    """One row, as rows are given."""
    if len(rows) == 1:
        return rows[0][i : i + 1]
    indptr, indices, data = rows
    own = slice(int(indptr[i]), int(indptr[i + 1]))
    return csr_array((data[own], indices[own], np.array([0, own.stop - own.start])), shape=(1, width))


@njit(cache=True, nogil=True)
def _sparse(
    starts: Array, columns: Array, values: Array, a: Array, b: Array, limits: Array,
    narrow: Array, own: Array, size: Array, scratch: Array, signed: int, code: int, width: float, out: Array,
) -> None:  # fmt: skip
    one, held = out.dtype.type, -1
    for e in range(a.shape[0]):
        i, j = a[e], b[e]
        if i != held:
            if held >= 0:
                for p in range(starts[held], starts[held + 1]):
                    scratch[narrow[p]] = 0.0
            for p in range(starts[i], starts[i + 1]):
                scratch[narrow[p]] = np.float64(values[p])
            held = i
        low, high = starts[j], starts[j + 1]
        added, shared = 0.0, 1.0  # (of a product it does not say whether anything is shared)
        if code < 3:
            added = -2.0 * _product(scratch, narrow, values, low, high)
        else:
            shared = 0.0
            for p in range(low, high):
                x = scratch[narrow[p]]
                if x != 0.0:
                    y = np.float64(values[p])
                    part = term_shared(code, x, y, narrow[p] == signed)
                    added = max(added, part) if code == 5 else added + part
                    shared += abs(x + y) - abs(x) - abs(y) if code == 7 else 1.0
        entries = float(starts[i + 1] - starts[i] + high - low)
        least, most = interval(code, own[i], own[j], added, shared, size[i] + size[j], entries, width)
        if one(least) > limits[e]:
            out[e] = np.inf
            continue
        if least != most:
            least = pair(columns, values, starts[i], starts[i + 1], columns, values, low, high, code, width)
            least = least if code <= 3 else least * least
        out[e] = one(least)
    if held >= 0:
        for p in range(starts[held], starts[held + 1]):
            scratch[narrow[p]] = 0.0


@njit(cache=True, nogil=True, fastmath={"reassoc", "contract"})
def _product(scratch: Array, columns: Array, values: Array, low: int, high: int) -> float:
    """x·y up to rounding, in whatever order."""
    total = 0.0
    for p in range(low, high):
        total += scratch[columns[p]] * np.float64(values[p])
    return total


@njit(cache=True, nogil=True)
def _dense(rows: Array, a: Array, b: Array, limits: Array, code: int, width: float, out: Array) -> None:
    one = out.dtype.type
    for e in range(a.shape[0]):
        found = _distance(rows[a[e]], rows[b[e]], code, width)
        out[e] = one(found * found)


@njit(cache=True, nogil=True)
def _distance(x: Array, y: Array, code: int, width: float) -> float:
    """A distance of dense rows, summed column by column: the bits of SciPy's."""
    total, below, both, differ = 0.0, 0.0, 0, 0
    if code == 5:
        for f in range(x.shape[0]):
            total = max(total, abs(np.float64(x[f]) - np.float64(y[f])))
        return total
    if code == 4:
        for f in range(x.shape[0]):
            total += abs(np.float64(x[f]) - np.float64(y[f]))
        return total
    if code == 6:
        for f in range(x.shape[0]):
            size = abs(np.float64(x[f])) + abs(np.float64(y[f]))
            if size > 0.0:
                total += abs(np.float64(x[f]) - np.float64(y[f])) / size
        return total
    if code == 7:
        for f in range(x.shape[0]):
            total += abs(np.float64(x[f]) - np.float64(y[f]))
            below += abs(np.float64(x[f]) + np.float64(y[f]))
        return total / below if total > 0.0 else 0.0
    if code == 8:
        for f in range(x.shape[0]):
            differ += x[f] != y[f]
        return differ / width
    for f in range(x.shape[0]):
        differ += (x[f] != 0.0) != (y[f] != 0.0)
        both += x[f] != 0.0 and y[f] != 0.0
    if differ == 0:
        return 0.0
    if code == 9:
        return differ / (both + differ)
    if code == 10:
        return differ / (2.0 * both + differ)
    return 2.0 * differ / (width + differ) if code == 11 else 2.0 * differ / (both + 2.0 * differ)


@njit(nogil=True)
def _own_dense(function: Any, rows: Array, a: Array, b: Array, out: Array) -> int:
    """Distances by a function of the user's, the row of the lower number first; a pair that has none, or −1."""
    for e in range(a.shape[0]):
        found = np.float64(function(rows[min(a[e], b[e])], rows[max(a[e], b[e])]))
        if not 0.0 <= found < np.inf:
            return e
        out[e] = found * found
    return -1


@njit(nogil=True)
def _own_sparse(
    function: Any, starts: Array, columns: Array, values: Array, a: Array, b: Array, out: Array
) -> int:  # fmt: skip
    for e in range(a.shape[0]):
        low, high = min(a[e], b[e]), max(a[e], b[e])
        i, j, k, m = starts[low], starts[low + 1], starts[high], starts[high + 1]
        found = np.float64(function(columns[i:j], values[i:j], columns[k:m], values[k:m]))
        if not 0.0 <= found < np.inf:
            return e
        out[e] = found * found
    return -1
