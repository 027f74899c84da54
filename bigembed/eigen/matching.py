"""What aggregation does to the rows of a sparse matrix, compiled: matching, joining, members, crossing edges.

Matrices are in CSR form; columns from the number of rows on belong to other blocks and are left out, and so are rows
without members. Importing this imports numba.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numba import njit, types

from bigembed.blocks.rows import Array

_tuple: Any = types.Tuple
_pointer = types.Array(types.int64, 1, "C", readonly=True)
_index = types.Array(types.int32, 1, "C", readonly=True)
_data = types.Array(types.float64, 1, "C", readonly=True)
_count = types.Array(types.int64, 1, "C")
_matrix = (_pointer, _index, _data)


@njit(_tuple((_count, types.int64))(*_matrix, _data, types.float64), cache=True, nogil=True)
def match(pointer: Array, index: Array, data: Array, members: Array, limit: float) -> tuple[Array, int]:
    """Number of the pair of each row, and of pairs: each row in turn is matched with the unmatched neighbor of the
    heaviest edge relative to √(members · members), if both have ``limit`` members at most."""
    n = len(pointer) - 1
    pair = np.full(n, -1, np.int64)
    count = 0
    for i in range(n):
        if pair[i] >= 0 or members[i] == 0:
            continue
        best, heaviest = -1, 0.0
        for e in range(pointer[i], pointer[i + 1]):
            j = index[e]
            if j < n and j != i and pair[j] < 0 and 0 < members[j] <= limit - members[i]:
                weight = data[e] * data[e] / members[j]
                if weight > heaviest:
                    best, heaviest = j, weight
        pair[i] = count
        if best >= 0:
            pair[best] = count
        count += 1
    return pair, count


@njit(_tuple((_count, types.int64))(*_matrix, _data, types.float64), cache=True, nogil=True)
def absorb(pointer: Array, index: Array, data: Array, members: Array, limit: float) -> tuple[Array, int]:
    """The same of small rows, with less than a quarter of ``limit`` members: each joins the neighbor of the heaviest
    edge, up to 1.25 · ``limit``."""
    n = len(pointer) - 1
    root = np.arange(n)
    total = members.copy()
    for i in range(n):
        if members[i] >= limit / 4 or members[i] == 0 or root[i] != i:
            continue
        best, heaviest = -1, 0.0
        for e in range(pointer[i], pointer[i + 1]):
            j = index[e]
            if j >= n or members[j] == 0:
                continue
            while root[j] != j:
                j = root[j]
            if j != i and total[i] + total[j] <= 1.25 * limit and data[e] > heaviest:
                best, heaviest = j, data[e]
        if best >= 0:
            root[i] = best
            total[best] += total[i]
    number = np.full(n, -1, np.int64)
    pair = np.full(n, -1, np.int64)
    count = 0
    for i in range(n):
        if members[i] == 0:
            continue
        j = i
        while root[j] != j:
            j = root[j]
        if number[j] < 0:
            number[j] = count
            count += 1
        pair[i] = number[j]
    return pair, count


@njit(
    _tuple((_count, types.Array(types.int32, 1, "C"), types.Array(types.float64, 1, "C")))(
        *_matrix, _pointer, types.int64
    ),
    cache=True, nogil=True,
)  # fmt: skip
def joined(pointer: Array, index: Array, data: Array, pair: Array, count: int) -> tuple[Array, Array, Array]:
    """The matrix of the pairs: sums over the entries between two of them, in the order in which they come."""
    n = len(pointer) - 1
    first, second = np.full(count, -1, np.int64), np.full(count, -1, np.int64)
    for i in range(n):
        if pair[i] >= 0:
            if first[pair[i]] < 0:
                first[pair[i]] = i
            else:
                second[pair[i]] = i
    starts, place = np.zeros(count + 1, np.int64), np.full(count, -1, np.int64)
    columns, sums = np.empty(len(index), np.int32), np.empty(len(index))
    at = 0
    for c in range(count):
        for i in (first[c], second[c]):
            if i < 0:
                continue
            for e in range(pointer[i], pointer[i + 1]):
                j = index[e]
                if j >= n or pair[j] < 0 or pair[j] == c:
                    continue
                if place[pair[j]] < starts[c]:
                    place[pair[j]] = at
                    columns[at], sums[at] = pair[j], data[e]
                    at += 1
                else:
                    sums[place[pair[j]]] += data[e]
        starts[c + 1] = at
    return starts, columns[:at], sums[:at]


@njit(_tuple((_count, _count))(_pointer, types.int64), cache=True, nogil=True)
def grouped(label: Array, count: int) -> tuple[Array, Array]:
    """Where the rows of each label begin in the order of labels, and those rows; rows of label −1 are left out."""
    starts = np.zeros(count + 1, np.int64)
    for a in label:
        if a >= 0:
            starts[a + 1] += 1
    for a in range(count):
        starts[a + 1] += starts[a]
    order, at = np.empty(starts[count], np.int64), starts.copy()
    for i in range(len(label)):
        if label[i] >= 0:
            order[at[label[i]]] = i
            at[label[i]] += 1
    return starts, order


@njit(
    _tuple((_count, types.Array(types.int32, 1, "C")))(_pointer, _pointer, _pointer, _pointer, _index),
    cache=True, nogil=True,
)  # fmt: skip
def touched(starts: Array, order: Array, label: Array, pointer: Array, index: Array) -> tuple[Array, Array]:
    """The aggregates that each aggregate has entries with, in CSR form, ascending; no column is of another block."""
    count = len(starts) - 1
    seen, below = np.full(count, -1, np.int64), np.zeros(count + 1, np.int64)
    for a in range(count):
        below[a + 1] = below[a]
        for i in order[starts[a] : starts[a + 1]]:
            for e in range(pointer[i], pointer[i + 1]):
                b = label[index[e]]
                if seen[b] != a:
                    seen[b] = a
                    below[a + 1] += 1
    columns, at = np.empty(below[count], np.int32), 0
    seen[:] = -1
    for a in range(count):
        for i in order[starts[a] : starts[a + 1]]:
            for e in range(pointer[i], pointer[i + 1]):
                b = label[index[e]]
                if seen[b] != a:
                    seen[b] = a
                    columns[at] = b
                    at += 1
        columns[below[a] : at].sort()
    return below, columns


@njit(_tuple((_count, types.int64))(_pointer, _pointer, _pointer, *_matrix, types.int64), cache=True, nogil=True)
def touching(
    starts: Array, order: Array, label: Array, pointer: Array, index: Array, data: Array, columns: int
) -> tuple[Array, int]:
    """Aggregates that each one touches inside the block, with itself; pairs of an aggregate and a row of another
    block that it touches."""
    n, count = len(label), len(starts) - 1
    seen, across = np.full(columns, -1, np.int64), 0
    found = np.zeros(count, np.int64)
    for a in range(count):
        seen[a], found[a] = a, 1
        for i in order[starts[a] : starts[a + 1]]:
            for e in range(pointer[i], pointer[i + 1]):
                j = index[e]
                if j < n and label[j] >= 0 and seen[label[j]] != a:
                    seen[label[j]] = a
                    found[a] += 1
                elif j >= n and data[e] != 0 and seen[j] != a:
                    seen[j] = a
                    across += 1
    return found, across


@njit(
    _tuple((_count, types.Array(types.int32, 1, "C"), types.Array(types.float64, 1, "C")))(*_matrix),
    cache=True, nogil=True,
)  # fmt: skip
def crossing(pointer: Array, index: Array, data: Array) -> tuple[Array, Array, Array]:
    """The entries that are not 0 in columns of other blocks, which are counted from 0."""
    n, at = len(pointer) - 1, 0
    for e in range(len(index)):
        at += index[e] >= n and data[e] != 0
    starts, columns, values = np.zeros(n + 1, np.int64), np.empty(at, np.int32), np.empty(at)
    at = 0
    for i in range(n):
        for e in range(pointer[i], pointer[i + 1]):
            if index[e] >= n and data[e] != 0:
                columns[at], values[at] = index[e] - n, data[e]
                at += 1
        starts[i + 1] = at
    return starts, columns, values
