"""Compiled walk to the fitted row nearest to a new one, and the lengths of its edges. Importing this imports numba."""

from __future__ import annotations

from typing import Any

import numpy as np
from numba import njit

from bigembed.runtime.blocks import Array
from bigembed.runtime.sums import squared_distance

SPACING = 4
STEPS = 8
"""Rows that a walk goes along, at the most."""


@njit(cache=True, nogil=True)
def nearest_rows(rows: Array, cell: Array, offsets: Array, indptr: Array, indices: Any, table: Array) -> Array:
    """A near one among the n fitted rows of a block for each new row (m, d), int64 (m,).

    It begins at the nearest in the ``cell`` (m,), whose rows begin at ``offsets``, and goes to a nearer one along an
    edge as long as there is one in the block; ``table`` holds the rows of the block, then its halo.
    """
    n, found = indptr.shape[0] - 1, np.empty(rows.shape[0], np.int64)
    for m in range(rows.shape[0]):
        best, least = offsets[cell[m]], np.inf
        for j in range(offsets[cell[m]], offsets[cell[m] + 1], SPACING):
            value = squared_distance(rows, m, table, j)
            if value < least:
                best, least = j, value
        for _ in range(STEPS):
            here = best
            for e in range(indptr[here], indptr[here + 1]):
                j = indices[e]
                if j < n:
                    value = squared_distance(rows, m, table, j)
                    if value < least or (value == least and j < best):
                        best, least = j, value
            if best == here:
                break
        found[m] = best
    return found


@njit(cache=True, nogil=True)
def edge_lengths(
    rows: Array, nearest: Array, indptr: Array, indices: Any, table: Array, starts: Array, columns: Array,
    squared: Array, k: int, reach: Array,
) -> None:  # fmt: skip
    """Squared lengths of the edges of each new row, those of its ``nearest`` row: the other ends go to ``columns``.

    ``starts`` (m + 1,): where the edges of each begin. ``reach`` (m,): the k-th smallest length of a row, one of 0,
    that is to the row itself, left out.
    """
    longest = 0
    for m in range(rows.shape[0]):
        longest = max(longest, starts[m + 1] - starts[m])
    lengths = np.empty(longest)
    for m in range(rows.shape[0]):
        first, at = indptr[nearest[m]], starts[m]
        count = starts[m + 1] - at
        twin = 0
        for e in range(count):
            j = indices[first + e]
            columns[at + e] = j
            squared[at + e] = squared_distance(rows, m, table, j)
            lengths[e] = squared[at + e]
            if lengths[e] == 0:
                twin = 1
        if count > k + twin:
            reach[m] = np.sqrt(np.sort(lengths[:count])[k + twin - 1])
        else:
            reach[m] = np.sqrt(np.max(lengths[:count]))
