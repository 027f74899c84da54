"""Compiled choice of the rows that open cells of their own. Importing this imports numba."""

from __future__ import annotations

import numpy as np
from numba import njit

from bigembed.runtime.blocks import Array
from bigembed.runtime.sums import squared_distance


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
