"""Compiled union of a block's edges. Importing this module imports numba: only large problems do.

No sort: edges that are turned round by counting come out ascending, and turned round twice they are
the lists they were, in ascending order. What is left is to merge two ascending lists a row.
"""

from __future__ import annotations

import numpy as np
from numba import njit

from bigembed.blocks.rows import Array


@njit(cache=True, nogil=True)
def union(
    columns: Array, squared: Array, crossing: Array, width: int, rows: Array, sources: Array, received: Array
) -> tuple[Array, Array, Array]:
    """Rows of a symmetric graph: own edges, the same reversed, those received, and the diagonal.

    ``columns`` int32 (m, k) are the lists in local columns, below m for rows of the block, below
    ``width`` for others; ``squared`` (m, k) are their values, and ``crossing`` the flat positions of the
    columns ≥ m, by ascending column. ``rows`` int32 (r,), ``sources`` int32 (r,) and ``received`` (r,) are
    reversed edges of other blocks, their local columns ``sources`` ascending for each row. Returns indptr
    int64 (m + 1,), indices int32, ascending in each row, and values. An edge found from both ends has
    the same value at both, and is kept once.
    """
    m, k = columns.shape
    back, back_columns, back_values = _reversed(columns, squared, width, rows, sources, received)
    own_columns, own_values = _ascending(columns, squared, crossing, width, back, back_columns, back_values)
    indptr = np.zeros(m + 1, dtype=np.int64)
    indices = np.empty(back[m] + m * k, dtype=np.int32)
    data = np.empty(back[m] + m * k, dtype=squared.dtype)
    out = 0
    for i in range(m):
        a, b = i * (k + 1), back[i]
        while True:
            own, other = own_columns[a], back_columns[b]
            own_value, other_value = own_values[a], back_values[b]  # both, so that no branch is guessed wrong
            column = min(own, other)
            if column == width:
                break
            indices[out], data[out] = column, own_value if own <= other else other_value
            a += np.int64(own <= other)
            b += np.int64(other <= own)
            out += 1
        indptr[i + 1] = out
    return indptr, indices[:out], data[:out]


@njit(cache=True, nogil=True)
def _reversed(
    columns: Array, squared: Array, width: int, rows: Array, sources: Array, received: Array
) -> tuple[Array, Array, Array]:
    """For each row, ascending: those of the block that list it, itself, those received; then ``width``."""
    m, k = columns.shape
    first = np.zeros(m + 1, dtype=np.int64)
    for i in range(m):
        first[i + 1] += 2
        for t in range(k):
            if columns[i, t] < m:
                first[columns[i, t] + 1] += 1
    for e in range(rows.shape[0]):
        first[rows[e] + 1] += 1
    for i in range(m):
        first[i + 1] += first[i]
    place = first[:-1].copy()
    ends = np.empty(first[m], dtype=np.int32)
    values = np.empty(first[m], dtype=squared.dtype)
    for i in range(m):
        ends[place[i]], values[place[i]] = i, 0
        place[i] += 1
        for t in range(k):
            j = columns[i, t]
            if j < m:
                ends[place[j]], values[place[j]] = i, squared[i, t]
                place[j] += 1
    for e in range(rows.shape[0]):
        i = rows[e]
        ends[place[i]], values[place[i]] = sources[e], received[e]
        place[i] += 1
    for i in range(m):
        ends[place[i]] = width
    return first, ends, values


@njit(cache=True, nogil=True)
def _ascending(
    columns: Array, squared: Array, crossing: Array, width: int, back: Array, back_columns: Array, back_values: Array
) -> tuple[Array, Array]:
    """The list of each row by ascending column, then ``width``: k + 1 entries a row."""
    m, k = columns.shape
    place = np.arange(m) * (k + 1)
    ends = np.empty(m * (k + 1), dtype=np.int32)
    values = np.empty(m * (k + 1), dtype=squared.dtype)
    for j in range(m):
        for e in range(back[j], back[j + 1]):
            i = back_columns[e]
            if i >= m:  # received, and the end
                break
            if i != j:
                ends[place[i]], values[place[i]] = j, back_values[e]
                place[i] += 1
    for e in crossing:
        i, t = e // k, e % k
        ends[place[i]], values[place[i]] = columns[i, t], squared[i, t]
        place[i] += 1
    for i in range(m):
        ends[place[i]] = width
    return ends, values
