"""Compiled kernels of multigrid: sweeps of relaxation, and the matching of rows to aggregates. Importing this
imports numba.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numba import njit, types

from bigembed.runtime.arithmetic import add_product
from bigembed.runtime.blocks import Array

# ------------------------------------------------------------------------------------------------------ relaxation
# Sweeps over a symmetric block matrix A = L + D + Lᵀ: what a multigrid cycle does on one level, compiled.
#
# Vectors are (unknowns, columns), of a multiple of :data:`~bigembed.runtime.arithmetic.LANES` columns. Rows are
# taken one after the other on one thread, so that the bytes of a result depend on nothing else. The blocks of a row
# lie transposed, so that a column of one is read in a line, and a sum over them stays in registers (a cycle on 31 000
# unknowns, 7 blocks a row: 14 ms for 37 with a call of BLAS for each row). (What is
# compiled is kept on disk only if no function stands inside of another that others name.)


@njit(cache=True, nogil=True)
def add_blocks(out: Array, at: int, blocks: Array, index: Array, start: int, stop: int, x: Array) -> None:
    """Rows of out from ``at`` on ← themselves + Σ_e blocks_e x_index[e] for e = start … stop − 1, in this order."""
    p, width = blocks.shape[1], x.shape[1]
    for e in range(start, stop):
        add_product(out, at * width, blocks, e * p * p, 1, p, p, p, x, index[e] * p * width, width)


@njit(cache=True, nogil=True)
def add_solved(x: Array, a: int, inverse: Array, right: Array, r: Array) -> None:
    """x_a ← x_a + D_a⁻¹ (right_a − r); r is written over."""
    p, width = inverse.shape[1], x.shape[1]
    for i in range(p):
        for k in range(width):
            r[i, k] = right[a * p + i, k] - r[i, k]
    add_product(x, a * p * width, inverse, a * p * p, p, 1, p, p, r, 0, width)


@njit(cache=True, nogil=True)
def forward(pointer: Array, index: Array, blocks: Array, inverse: Array, right: Array, x: Array) -> None:
    """x ← (L + D)⁻¹ r, block Gauss–Seidel from zero."""
    r = np.empty((inverse.shape[1], x.shape[1]), x.dtype)
    x[:] = 0
    for a in range(len(pointer) - 1):
        stop = pointer[a]
        while index[stop] < a:
            stop += 1
        r[:] = 0
        add_blocks(r, 0, blocks, index, pointer[a], stop, x)
        add_solved(x, a, inverse, right, r)


@njit(cache=True, nogil=True)
def backward(pointer: Array, index: Array, blocks: Array, inverse: Array, right: Array, x: Array) -> None:
    """x ← x + (D + Lᵀ)⁻¹ (r − A x), in the other direction: the adjoint of :func:`forward`."""
    r = np.empty((inverse.shape[1], x.shape[1]), x.dtype)
    for a in range(len(pointer) - 2, -1, -1):
        r[:] = 0
        add_blocks(r, 0, blocks, index, pointer[a], pointer[a + 1], x)
        add_solved(x, a, inverse, right, r)


@njit(cache=True, nogil=True)
def rest(pointer: Array, index: Array, blocks: Array, x: Array, out: Array) -> None:
    """out ← −Lᵀ x, which is r − A x after :func:`forward`."""
    out[:] = 0
    for a in range(len(pointer) - 1):
        start = pointer[a]
        while index[start] < a:
            start += 1
        add_blocks(out, a * blocks.shape[1], blocks, index, start + 1, pointer[a + 1], x)
    out *= -1


@njit(cache=True, nogil=True)
def product(pointer: Array, index: Array, blocks: Array, x: Array, out: Array) -> None:
    """out ← A x, in the precision of x."""
    out[:] = 0
    for a in range(len(pointer) - 1):
        add_blocks(out, a * blocks.shape[1], blocks, index, pointer[a], pointer[a + 1], x)


@njit(cache=True, nogil=True)
def restrict(label: Array, functions: Array, x: Array, out: Array) -> None:
    """out ← Qᵀ x, with the functions Q of the aggregates and the larger aggregate of each."""
    (p, q), width = functions.shape[1:], x.shape[1]
    out[:] = 0
    for a in range(len(label)):
        add_product(out, label[a] * q * width, functions, a * p * q, 1, q, q, p, x, a * p * width, width)


@njit(cache=True, nogil=True)
def prolong(label: Array, functions: Array, y: Array, x: Array) -> None:
    """x ← x + Q y."""
    (p, q), width = functions.shape[1:], x.shape[1]
    for a in range(len(label)):
        add_product(x, a * p * width, functions, a * p * q, q, 1, p, q, y, label[a] * q * width, width)


@njit(cache=True, nogil=True)
def galerkin(
    first: int, last: int, starts: Array, order: Array, label: Array, pointer: Array, index: Array, blocks: Array,
    functions: Array, wide: Array, below: Array, columns: Array, out: Array,
) -> None:  # fmt: skip
    """The rows first … last − 1 of QᵀAQ, transposed, in ``out``: their blocks stand at below[first] … in ``columns``.

    Those of one row at a time are summed, in double precision. ``wide``: the rows of Q in double precision, with
    columns of zeros up to a multiple of the lanes.
    """
    (p, q), width = functions.shape[1:], wide.shape[1]
    half, place, most = np.empty((p, width)), np.empty(len(below) - 1, np.int64), 0
    for s in range(first, last):
        most = max(most, below[s + 1] - below[s])
    sums = np.empty((most * q, width))
    for s in range(first, last):
        count = below[s + 1] - below[s]
        for t in range(count):
            place[columns[below[s] + t]] = t
        sums[: count * q] = 0
        for a in order[starts[s] : starts[s + 1]]:
            for e in range(pointer[a], pointer[a + 1]):
                half[:] = 0
                add_blocks(half, 0, blocks, index, e, e + 1, wide)
                add_product(sums, place[label[index[e]]] * q * width, functions, a * p * q, 1, q, q, p, half, 0, width)
        for t in range(count):
            out[below[s] + t] = sums[t * q : t * q + q, :q].T


# -------------------------------------------------------------------------------------------------------- matching
# What aggregation does to the rows of a sparse matrix, compiled: matching, joining, members, crossing edges.
#
# Matrices are in CSR form; columns from the number of rows on belong to other blocks and are left out, and so are
# rows without members.

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
