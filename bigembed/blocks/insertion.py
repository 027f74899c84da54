"""A row into an ordered list of the nearest, compiled. Importing this module imports numba."""

from __future__ import annotations

from typing import Any

from numba import njit

from bigembed.blocks.rows import Array


@njit(cache=True, nogil=True)
def insert(ids: Array, squared: Array, number: int, value: Any) -> None:
    """Put (value, number) in its place of one list, if it belongs there and is not there already."""
    p = squared.shape[0] - 1
    if value > squared[p] or (value == squared[p] and ids[p] >= 0 and number >= ids[p]):
        return
    q = p
    while q > 0 and (squared[q - 1] > value or ids[q - 1] < 0):
        q -= 1
    while q > 0 and squared[q - 1] == value and ids[q - 1] > number:
        q -= 1
    if q > 0 and squared[q - 1] == value and ids[q - 1] == number:
        return
    while p > q:
        squared[p] = squared[p - 1]
        ids[p] = ids[p - 1]
        p -= 1
    squared[q] = value
    ids[q] = number
