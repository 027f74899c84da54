"""Compiled reverse search and ranking of cells. Importing this module imports numba: only large problems do.

Each call does a whole piece, for the groups compared are small where new rows are few. Arithmetic as in
:mod:`bigembed.neighbors.search.topk`.
"""

from __future__ import annotations

import numpy as np
from numba import njit

from bigembed.blocks.insertion import insert
from bigembed.blocks.rows import Array
from bigembed.blocks.simd import lowest_bit, near_bits, squared_distance
from bigembed.neighbors.search.topk import WIDTH, gather

_ROWS = 1024
_CANDIDATES = 256


@njit(cache=True, nogil=True)
def reverse(
    starts: Array,
    stops: Array,
    asking: Array,
    offsets: Array,
    new: Array,
    centers: Array,
    rows: Array,
    limits: Array,
    rounding: float,
) -> tuple[Array, Array, Array]:
    """Pairs of a row and a new row within its limit, in the cells that it probes.

    The rows ``asking[starts[c]:stops[c]]`` (numbers in ``rows`` (n, d) with ``limits`` (n, 1)) are compared with the
    new rows ``offsets[c]:offsets[c + 1]`` of cell c with center ``centers[c]``. Returns row, new row, squared distance.
    """
    d = rows.shape[1]
    shifted, norms = np.empty((_ROWS, d), rows.dtype), np.empty(_ROWS, rows.dtype)
    kept = np.empty(_ROWS, np.int32)
    near, near_norms = np.empty((_CANDIDATES, d), rows.dtype), np.empty(_CANDIDATES, rows.dtype)
    products = np.empty(_ROWS * _CANDIDATES, rows.dtype)
    room = 4 * _ROWS * _CANDIDATES
    row, candidate, squared = np.empty(room, np.int32), np.empty(room, np.int32), np.empty(room, rows.dtype)
    found = 0
    for c in range(starts.shape[0]):
        for first in range(offsets[c] if stops[c] > starts[c] else offsets[c + 1], offsets[c + 1], _CANDIDATES):
            last = min(first + _CANDIDATES, offsets[c + 1])
            width = (last - first + WIDTH - 1) // WIDTH * WIDTH
            radius = _shift(new, first, last, centers[c], near[:width], near_norms[:width])
            for at in range(starts[c], stops[c], _ROWS):
                part = asking[at : min(at + _ROWS, stops[c])]
                count = gather(rows, part, centers[c], radius, rounding, limits, shifted, norms, kept)
                if count == 0:
                    continue
                block = products[: count * width].reshape((count, width))
                np.dot(shifted[:count], near[:width].T, block)
                if found + count * width > room:
                    room = 2 * room + count * width
                    row, candidate, squared = _longer(row, room), _longer(candidate, room), _longer(squared, room)
                found += within(
                    block,
                    near_norms,
                    new,
                    first,
                    last,
                    rows,
                    kept,
                    norms,
                    limits,
                    radius,
                    rounding,
                    row[found:],
                    candidate[found:],
                    squared[found:],
                )
    return row[:found].copy(), candidate[:found].copy(), squared[:found].copy()


@njit(cache=True, nogil=True, fastmath={"reassoc", "contract"})
def _shift(new: Array, first: int, last: int, center: Array, near: Array, norms: Array) -> float:
    """−2 ỹ for ỹ = y − center, and ‖ỹ‖², padded with zero rows of infinite norm; returns the largest ‖ỹ‖."""
    largest = norms.dtype.type(0)
    for j in range(near.shape[0]):
        if first + j >= last:
            near[j, :] = 0
            norms[j] = np.inf
            continue
        total = norms.dtype.type(0)
        for f in range(near.shape[1]):
            t = new[first + j, f] - center[f]
            near[j, f] = -2 * t
            total += t * t
        norms[j] = total
        largest = max(largest, total)
    return float(np.sqrt(np.float64(largest)))


@njit(cache=True, nogil=True)
def _longer(array: Array, room: int) -> Array:
    out = np.empty(room, array.dtype)
    for i in range(array.shape[0]):
        out[i] = array[i]
    return out


@njit(cache=True, nogil=True)
def within(
    products: Array,
    candidate_norms: Array,
    new: Array,
    first: int,
    last: int,
    rows: Array,
    kept: Array,
    norms: Array,
    limits: Array,
    radius: float,
    rounding: float,
    out_row: Array,
    out_candidate: Array,
    out_squared: Array,
) -> int:
    """Pairs of a row ``kept[m]`` and a new row first + j with ‖x − y‖² ≤ the row's limit; products[m, j] = −2 x̃_m·ỹ_j.

    What exceeds the limit by more than the rounding bound is rejected; the rest is computed exactly.
    Fills the last three arrays and returns how many pairs there are.
    """
    width, d = products.shape[1], rows.shape[1]
    one = candidate_norms.dtype.type
    count = 0
    for m in range(products.shape[0]):
        i = kept[m]
        own = np.float64(norms[m])
        reach = np.sqrt(own) + radius
        limit = one(np.float64(limits[i, 0]) + 2 * rounding * reach * reach - own)
        for start in range(0, width, WIDTH):
            bits = near_bits(products, m * width + start, candidate_norms, start, limit)
            while bits != 0:
                j = first + start + lowest_bit(bits)
                bits &= bits - np.uint32(1)
                if j >= last:
                    continue
                value = one(squared_distance(rows, i * d, new, j * d, d))
                if value <= limits[i, 0]:
                    out_row[count] = i
                    out_candidate[count] = j
                    out_squared[count] = value
                    count += 1
    return count


@njit(cache=True, nogil=True)
def nearest_cells(rows: Array, home: Array, listed: Array, wanted: Array, centers: Array, probes: Array) -> None:
    """Fill ``probes`` (n, T) with the nearest cells on each row's list, by number: exact, ties to the lower number.

    ``home`` (n,) is the row's list among ``listed`` (C, S) int32, ascending, what is missing behind and out of range;
    ``wanted`` (C,) how many of it. Probes begin as −1.
    """
    d = rows.shape[1]
    place, squared = np.empty(probes.shape[1], np.int64), np.empty(probes.shape[1])
    near = np.empty(listed.shape[1], np.bool_)
    for i in range(rows.shape[0]):
        cells = listed[home[i]]
        size = 0
        while size < cells.shape[0] and cells[size] < centers.shape[0]:
            size += 1
        count = min(wanted[home[i]], size)
        if count == size:
            for s in range(size):
                probes[i, s] = cells[s]
            continue
        place[:count], squared[:count] = -1, np.inf
        for s in range(size):
            value = squared_distance(rows, i * d, centers, cells[s] * d, d)
            insert(place[:count], squared[:count], s, value)
        near[:size] = False
        for s in range(count):
            near[place[s]] = True
        at = 0
        for s in range(size):
            if near[s]:
                probes[i, at] = cells[s]
                at += 1
