"""Compiled search of sparse rows in one cell. Importing this module imports numba: only sparse rows do.

The cell is turned round once, into the rows that hold each column; a row then walks through its own columns only, and
has for every row of the cell what they share. That gives sums of the distance up to rounding, which only *reject*: what
may belong into a list is computed as :mod:`bigembed.blocks.metric_pairs` does, column by column. Chebyshev distances
are no sums, and are all computed.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numba import njit

from bigembed.blocks.metric_pairs import CODES, pair
from bigembed.blocks.rows import Array
from bigembed.neighbors.topk import insert


def take_sparse(
    ids: Array, squared: Array, asking: Array, rows: Any, row_ids: Array, others: Any, other_ids: Array, metric: str
) -> None:
    """Take the CSR rows ``others`` into the lists of ``rows[asking]``, in place."""
    order = np.argsort(others.indices, kind="stable")
    holders = np.repeat(np.arange(others.shape[0]), np.diff(others.indptr))[order]
    columns, first = np.unique(others.indices[order], return_index=True)
    turned = columns.astype(np.int64), np.append(first, len(order)), holders, others.data[order]
    own = rows.indptr.astype(np.int64), rows.indices, rows.data
    theirs = others.indptr.astype(np.int64), others.indices, others.data
    code, width = CODES[metric], float(rows.shape[1])
    _take(ids, squared, asking.astype(np.int64), *own, row_ids, *turned, *theirs, other_ids, code, width)


@njit(cache=True, nogil=True)
def term_alone(code: int, x: float, last: bool) -> float:
    """What a column adds in which only one row has an entry."""
    if code <= 3:
        return -x * x if last else x * x
    return abs(x) if code == 4 or code == 7 else 1.0


@njit(cache=True, nogil=True)
def term_shared(code: int, x: float, y: float, last: bool) -> float:
    """What a column adds in which both have one, less what each would add alone."""
    if code <= 3:
        return 2.0 * x * y if last else -2.0 * x * y
    if code == 4 or code == 7:
        return abs(x - y) - abs(x) - abs(y)
    if code == 6:
        return abs(x - y) / (abs(x) + abs(y)) - 2.0
    return (1.0 if x != y else 0.0) - 2.0 if code == 8 else -1.0


@njit(cache=True, nogil=True)
def lower_bound(code: int, total: float, below: float, width: float) -> float:
    """A squared distance from its sums; of sets ``total`` counts the columns of either row, ``below`` those of both."""
    if code <= 3:
        return max(total, 0.0)
    if code == 7:
        total = total / below if below > 0.0 else 0.0
    elif code == 8:
        total = total / width
    elif code >= 9:
        differ = total - below
        if differ <= 0.0:
            return 0.0
        if code == 9:
            total = differ / total
        elif code == 10:
            total = differ / (2.0 * below + differ)
        else:
            total = 2.0 * differ / (width + differ) if code == 11 else 2.0 * differ / (below + 2.0 * differ)
    return max(total, 0.0) ** 2


@njit(cache=True, nogil=True)
def sums(starts: Array, columns: Array, values: Array, code: int, signed: int) -> tuple[Array, Array]:
    """What the columns of each row add alone, and the sum of the sizes; ``signed``: the column that is subtracted."""
    own, size = np.zeros(starts.shape[0] - 1), np.zeros(starts.shape[0] - 1)
    for i in range(own.shape[0]):
        for p in range(starts[i], starts[i + 1]):
            part = term_alone(code, np.float64(values[p]), columns[p] == signed)
            own[i] += part
            size[i] += abs(part)
    return own, size


@njit(cache=True, nogil=True)
def _take(
    ids: Array, squared: Array, asking: Array, starts: Array, columns: Array, values: Array, row_ids: Array,
    held: Array, first: Array, holders: Array, entries: Array, starts2: Array, columns2: Array, values2: Array,
    other_ids: Array, code: int, width: float,
) -> None:  # fmt: skip
    count, k = other_ids.shape[0], squared.shape[1]
    one = squared.dtype.type
    signed = int(width) - 1 if code == 3 else -1
    alone, size = sums(starts2, columns2, values2, code, signed)
    more, shared = np.zeros(count), np.zeros(count)
    for i in asking:
        more[:] = 0.0
        shared[:] = 0.0
        mine, mine_size, at = 0.0, 0.0, 0
        for p in range(starts[i], starts[i + 1]):
            x, column = np.float64(values[p]), columns[p]
            last = column == signed
            part = term_alone(code, x, last)
            mine += part
            mine_size += abs(part)
            at += np.searchsorted(held[at:], column)
            if at < held.shape[0] and held[at] == column:
                for q in range(first[at], first[at + 1]):
                    j, y = holders[q], np.float64(entries[q])
                    more[j] += term_shared(code, x, y, last)
                    shared[j] += abs(x + y) - abs(x) - abs(y) if code == 7 else 1.0
        longest = starts[i + 1] - starts[i] + 64.0
        for j in range(count):
            number = other_ids[j]
            if number == row_ids[i]:
                continue
            slack = 4e-16 * (longest + starts2[j + 1] - starts2[j]) * (mine_size + size[j])
            if code != 5:
                total = mine + alone[j] + more[j]
                below = shared[j]
                if code == 7:
                    below = mine_size + size[j] + shared[j] + slack
                if code < 9:
                    total -= slack
                least = one(lower_bound(code, total, below, width))
                if least > squared[i, k - 1]:
                    continue
                if code >= 9 and least == squared[i, k - 1] and 0 <= ids[i, k - 1] <= number:
                    continue
            found = pair(
                columns, values, starts[i], starts[i + 1], columns2, values2, starts2[j], starts2[j + 1], code, width
            )
            insert(ids[i], squared[i], number, one(found if code <= 3 else found * found))
