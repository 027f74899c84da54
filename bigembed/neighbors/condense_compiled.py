"""Compiled loops over the rows of cells: which lead, how far they are from the centers, their sums. Importing this
imports numba.

All arithmetic is that of the NumPy code of :mod:`bigembed.neighbors.condense_cells`, bit for bit.
"""

from __future__ import annotations

import numpy as np
from numba import njit

from bigembed.runtime.arithmetic import squared_distance
from bigembed.runtime.blocks import Array


@njit(cache=True, nogil=True)
def paired(rows: Array, centers: Array, label: Array) -> Array:
    """Squared distance of each row (m, d) to the center of its cell ``label``, float64 (m,)."""
    squared = np.empty(rows.shape[0])
    for m in range(rows.shape[0]):
        squared[m] = squared_distance(rows, m, centers, label[m])
    return squared


@njit(cache=True, nogil=True)
def add_up(
    rows: Array, weights: Array, weighted: bool, label: Array, squared: Array, centers: Array, counts: Array,
    sums: Array, squares: Array, far: Array,
) -> None:  # fmt: skip
    """Add rows (m, d) in their order to counts (c,), Σ w (x − center) (c, d), Σ w ‖x − center‖² and its maximum."""
    for m in range(rows.shape[0]):
        c = label[m]
        w = weights[m] if weighted else 1.0
        counts[c] += w
        squares[c] += w * squared[m]
        far[c] = max(far[c], squared[m])
        for f in range(rows.shape[1]):
            sums[c, f] += w * (np.float64(rows[m, f]) - np.float64(centers[c, f]))


@njit(cache=True, nogil=True)
def leading(rows: Array, reach: float, most: int) -> Array:
    """Which rows (m, d) lead: as :func:`bigembed.neighbors.condense_cells.leading_rows` chooses them."""
    found = np.empty(min(most, rows.shape[0]), np.int64)
    count = 0
    for i in range(rows.shape[0]):
        if count == found.shape[0]:
            break
        free = True
        for k in range(count):
            if squared_distance(rows, i, rows, found[k]) <= reach:
                free = False
                break
        if free:
            found[count] = i
            count += 1
    return found[:count]
