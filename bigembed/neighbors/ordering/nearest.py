"""Compiled choice of the nearest centers, one or many. Importing this module imports numba: only large problems do.

A matrix product shows which centers can be nearest; where it leaves a choice, distances are computed
exactly, in the arithmetic of :mod:`bigembed.neighbors.exact`, bit for bit. All arrays are contiguous.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from numba import njit

from bigembed.blocks.rows import Array
from bigembed.blocks.simd import lowest_bit, near_bits, squared_distance
from bigembed.blocks.squared import rounding

_WIDTH = 16
"""Centers are padded to a multiple of this; padding has infinite norm."""
_TILE_ENTRIES = 1 << 18
_LIST_TILE_ENTRIES = 1 << 19


def nearest(rows: Array, centers: Array) -> Array:
    """Nearest center (C, d) of each row (n, d), ties to the lowest number: int64 (n,)."""
    labels = np.empty(len(rows), dtype=np.int64)
    for part, products, norms, slack in _tiles(rows, centers, _TILE_ENTRIES):
        _label(products, norms, slack, rows[part], centers, labels[part])
    return labels


def nearest_lists(rows: Array, centers: Array, length: int) -> Array:
    """The ``length`` nearest of the centers (C, d), C ≥ ``length``, of each row (n, d): int64 (n, ``length``).

    Ordered by squared distance in the dtype of the rows, ties by number.
    """
    lists = np.empty((len(rows), length), dtype=np.int64)
    for part, products, norms, slack in _tiles(rows, centers, _LIST_TILE_ENTRIES):
        limit = np.partition(products + norms, length - 1, axis=1)[:, length - 1] + slack
        numbers, squared = _candidates(products, norms, limit.astype(norms.dtype), rows[part], centers)
        order = np.argsort(squared, axis=1, kind="stable")[:, :length]  # numbers ascend
        lists[part] = np.take_along_axis(numbers, order, axis=1)
    return lists


def _tiles(rows: Array, centers: Array, entries: int) -> Iterator[tuple[slice, Array, Array, Array]]:
    """Tiles of rows with products and norms, so that products[m, j] + norms[j] is ‖x_m − y_j‖² − ‖x_m‖².

    Two of these compare rightly where they differ by more than slack[m]. Of the columns, a multiple of
    :data:`_WIDTH`, those behind the last center have infinite norm.
    """
    n, d = centers.shape
    padded = -(-n // _WIDTH) * _WIDTH
    near, norms = np.zeros((padded, d), rows.dtype), np.full(padded, np.inf, rows.dtype)
    height = max(16, entries // padded)
    products = np.empty((min(height, len(rows)), padded), rows.dtype)
    with np.errstate(over="ignore", invalid="ignore"):
        shift = centers.mean(axis=0)  # shifted rows lose less to rounding
        np.subtract(centers, shift, out=near[:n])
        norms[:n] = np.einsum("ij,ij->i", near[:n], near[:n])
        near *= -2
        radius = np.sqrt(float(norms[:n].max()))
        for start in range(0, len(rows), height):
            part = slice(start, start + height)
            x = rows[part] - shift
            reach = np.sqrt(np.einsum("ij,ij->i", x, x).astype(np.float64)) + radius
            slack = 2 * rounding(d, rows.dtype) * reach * reach
            yield part, np.matmul(x, near.T, out=products[: len(x)]), norms, slack


@njit(cache=True, nogil=True)
def _label(products: Array, norms: Array, slack: Array, rows: Array, centers: Array, labels: Array) -> None:
    """Labels of the rows of a tile."""
    n, d = centers.shape
    width = products.shape[1]
    one = norms.dtype.type
    lows = np.empty(_WIDTH, norms.dtype)
    for m in range(products.shape[0]):
        lows[:] = np.inf
        for start in range(0, width, _WIDTH):
            p, q = products[m, start : start + _WIDTH], norms[start : start + _WIDTH]
            for t in range(_WIDTH):
                v = p[t] + q[t]
                lows[t] = v if v < lows[t] else lows[t]
        limit = one(np.float64(lows.min()) + slack[m])
        chosen, best = -1, -1.0  # the distance of a center that is alone is not asked for
        for start in range(0, width, _WIDTH):
            bits = near_bits(products, m * width + start, norms, start, limit)
            while bits != 0:
                j = start + lowest_bit(bits)
                bits &= bits - np.uint32(1)
                if j >= n:
                    continue
                if chosen < 0:
                    chosen = j
                    continue
                if best < 0:
                    best = squared_distance(rows, m * d, centers, chosen * d, d)
                value = squared_distance(rows, m * d, centers, j * d, d)
                if value < best:
                    chosen, best = j, value
        labels[m] = chosen


@njit(cache=True, nogil=True)
def _candidates(products: Array, norms: Array, limit: Array, rows: Array, centers: Array) -> tuple[Array, Array]:
    """All centers within the limit of each row of a tile: numbers int32, ascending, and exact squared distances.

    Filled up with infinite distances to the length of the longest.
    """
    n, d = centers.shape
    height, width = products.shape
    one = norms.dtype.type
    longest = 0
    for m in range(height):
        count = 0
        for start in range(0, width, _WIDTH):
            bits = near_bits(products, m * width + start, norms, start, limit[m])
            while bits != 0:
                count += start + lowest_bit(bits) < n
                bits &= bits - np.uint32(1)
        longest = max(longest, count)
    numbers = np.zeros((height, longest), dtype=np.int32)
    squared = np.full((height, longest), np.inf, dtype=norms.dtype)
    for m in range(height):
        count = 0
        for start in range(0, width, _WIDTH):
            bits = near_bits(products, m * width + start, norms, start, limit[m])
            while bits != 0:
                j = start + lowest_bit(bits)
                bits &= bits - np.uint32(1)
                if j < n:
                    numbers[m, count] = j
                    squared[m, count] = one(squared_distance(rows, m * d, centers, j * d, d))
                    count += 1
    return numbers, squared
