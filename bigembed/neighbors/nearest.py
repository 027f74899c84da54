"""Compiled choice of the nearest centers, one or many. Importing this module imports numba: only large problems do.

A matrix product tells which centers can be nearest; where it leaves a choice, distances are computed
exactly, in the arithmetic of :mod:`bigembed.neighbors.exact`, bit for bit. All arrays are contiguous.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from numba import njit

from bigembed.blocks.rows import Array
from bigembed.neighbors.exact import rounding
from bigembed.neighbors.lanes import lowest_bit, near_bits, squared_distance

_WIDTH = 16
"""Centers are padded to a multiple of this; padding has infinite norm."""
_TILE_ENTRIES = 1 << 18


def nearest(rows: Array, centers: Array) -> Array:
    """Nearest center (C, d) of each row (n, d), ties to the lowest number: int64 (n,)."""
    labels = np.empty(len(rows), dtype=np.int64)
    for part, products, norms, slack in _tiles(rows, centers):
        _label(products, norms, slack, rows[part], centers, labels[part])
    return labels


def nearest_lists(ids: Array, squared: Array, rows: Array, centers: Array, numbers: Array) -> None:
    """Fill the lists (n, k), ordered by (squared distance, number), with the nearest of k or more centers (C, d).

    ``ids`` int64 and ``squared`` begin as :func:`~bigembed.neighbors.exact.empty_lists`; ``numbers`` int64 (C,).
    """
    last = ids.shape[1] - 1
    for part, products, norms, slack in _tiles(rows, centers):
        limit = np.partition(products + norms, last, axis=1)[:, last] + slack
        _fill(products, norms, limit.astype(norms.dtype), rows[part], centers, numbers, ids[part], squared[part])


def _tiles(rows: Array, centers: Array) -> Iterator[tuple[slice, Array, Array, Array]]:
    """Tiles of rows with products and norms, so that products[m, j] + norms[j] is ‖x_m − y_j‖² − ‖x_m‖².

    Two of these compare rightly where they differ by more than slack[m]. Of the columns, a multiple of
    :data:`_WIDTH`, those behind the last center have infinite norm.
    """
    n, d = centers.shape
    padded = -(-n // _WIDTH) * _WIDTH
    near, norms = np.zeros((padded, d), rows.dtype), np.full(padded, np.inf, rows.dtype)
    height = max(16, _TILE_ENTRIES // padded)
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
def _fill(
    products: Array, norms: Array, limit: Array, rows: Array, centers: Array, numbers: Array, ids: Array, squared: Array
) -> None:
    """Insert the exact distances of all centers within the limit into the lists of a tile."""
    n, d = centers.shape
    width, last = products.shape[1], ids.shape[1] - 1
    one = norms.dtype.type
    for m in range(products.shape[0]):
        for start in range(0, width, _WIDTH):
            bits = near_bits(products, m * width + start, norms, start, limit[m])
            while bits != 0:
                j = start + lowest_bit(bits)
                bits &= bits - np.uint32(1)
                if j >= n:
                    continue
                number, value = numbers[j], one(squared_distance(rows, m * d, centers, j * d, d))
                if ids[m, last] >= 0 and (
                    value > squared[m, last] or (value == squared[m, last] and number > ids[m, last])
                ):
                    continue
                p = last
                while p > 0 and (
                    ids[m, p - 1] < 0
                    or value < squared[m, p - 1]
                    or (value == squared[m, p - 1] and number < ids[m, p - 1])
                ):
                    ids[m, p], squared[m, p] = ids[m, p - 1], squared[m, p - 1]
                    p -= 1
                ids[m, p], squared[m, p] = number, value
