"""Compiled kernels of the cell search. Importing this imports numba."""

from __future__ import annotations

from typing import Any

import numpy as np
from numba import njit

from bigembed.runtime.arithmetic import insert, squared_distance
from bigembed.runtime.blocks import Array

# ------------------------------------------------------------------------------------------------------------ topk
# Compiled kernels of the cell search.
#
# Their arithmetic is that of :mod:`bigembed.neighbors`, bit for bit. All arrays are contiguous.

WIDTH = 16
"""Candidates come padded to a multiple of this; padding has infinite norm."""


@njit(cache=True, nogil=True, fastmath={"reassoc", "contract"})
def gather(
    rows: Array,
    index: Array,
    center: Array,
    radius: float,
    rounding: float,
    squared: Array,
    shifted: Array,
    norms: Array,
    kept: Array,
) -> int:
    """Copy the rows ``index`` minus ``center`` into ``shifted``, except rows whose list is out of reach.

    A row is out of reach when even the nearest point of the ball of ``radius`` around the center is
    farther than the last of its list. Fills ``norms`` (squared) and ``kept`` (row numbers), returns
    how many there are. Sums may be reordered: the rounding bound covers every order.
    """
    last = squared.shape[1] - 1
    count = 0
    for m in range(index.shape[0]):
        row, target = rows[index[m]], shifted[count]
        total = norms.dtype.type(0)
        for f in range(rows.shape[1]):
            t = row[f] - center[f]
            target[f] = t
            total += t * t
        length = np.sqrt(np.float64(total))
        gap = length - radius
        reach = length + radius
        if gap > 0 and gap * gap - 4 * rounding * reach * reach > squared[index[m], last]:
            continue
        norms[count] = total
        kept[count] = index[m]
        count += 1
    return count


@njit(cache=True, nogil=True)
def _reachable(products: Array, norms: Array, n: int, lows: Array, best: Array) -> Any:
    """An upper bound of the len(best)-th smallest of products + norms (n entries), n ≥ len(best).

    The len(best)-th smallest of the minima of groups, where groups are enough; otherwise exactly.
    """
    size = best.shape[0]
    groups = lows.shape[0]
    best[:] = np.inf
    if n >= 2 * groups:
        lows[:] = np.inf
        for start in range(0, n - groups + 1, groups):
            p, q = products[start : start + groups], norms[start : start + groups]
            for t in range(groups):
                v = p[t] + q[t]
                lows[t] = v if v < lows[t] else lows[t]
        n = groups
    else:
        lows = products[:n] + norms[:n]
    for j in range(n):
        v = lows[j]
        if v < best[size - 1]:
            p = size - 1
            while p > 0 and best[p - 1] > v:
                best[p] = best[p - 1]
                p -= 1
            best[p] = v
    return best[size - 1]


@njit(cache=True, nogil=True)
def _within(products: Array, norms: Array, limit: Any) -> Any:
    """How many of products + norms are not above the limit. Sixteen at a time: a processor takes a fifth of the time
    that it takes to look at them one by one."""
    count = np.int32(0)
    for j in range(products.shape[0]):
        count += np.int32(0) if products[j] + norms[j] > limit else np.int32(1)
    return count


@njit(cache=True, nogil=True)
def update(
    products: Array,
    candidate_norms: Array,
    candidates: Array,
    candidate_ids: Array,
    rows: Array,
    row_ids: Array,
    kept: Array,
    norms: Array,
    radius: float,
    rounding: float,
    lows: Array,
    best: Array,
    ids: Array,
    squared: Array,
) -> None:
    """Take candidates into the lists of the rows ``kept``; products[m, j] = −2 x̃_m·ỹ_j.

    What exceeds the last distance of a list by more than the rounding bound is rejected; the rest is
    computed exactly. ``lows`` and ``best`` (k + 1 entries) are scratch.
    """
    n = candidate_ids.shape[0]
    last = squared.shape[1] - 1
    one = candidate_norms.dtype.type
    for m in range(products.shape[0]):
        i = kept[m]
        distances, numbers = squared[i], ids[i]
        own = np.float64(norms[m])
        reach = np.sqrt(own) + radius
        slack = rounding * reach * reach
        bound = np.float64(distances[last]) + slack - own
        if bound == np.inf and n > last + 1:
            bound = np.float64(_reachable(products[m], candidate_norms, n, lows, best)) + 2 * slack
        limit = one(bound)
        if _within(products[m], candidate_norms, limit) == 0:
            continue
        for j in range(n):
            if products[m, j] + candidate_norms[j] > limit:
                continue
            number = candidate_ids[j]
            if number == row_ids[i] or (distances[last] == 0 and number > numbers[last]):
                continue
            value = one(squared_distance(rows, i, candidates, j))
            insert(numbers, distances, number, value)
            bound = min(bound, np.float64(distances[last]) + slack - own)
            limit = one(bound)


@njit(cache=True, nogil=True)
def distances_of_pairs(rows: Array, others: Array, i: Array, j: Array, out: Array) -> None:
    """out[p] = ‖rows[i[p]] − others[j[p]]‖², rounded to the dtype of ``out``."""
    one = out.dtype.type
    for p in range(i.shape[0]):
        out[p] = one(squared_distance(rows, i[p], others, j[p]))


@njit(cache=True, nogil=True)
def group(probes: Array, low: int, high: int) -> tuple[Array, Array]:
    """Rows that probe each of the cells low…high: offsets, and the rows, ascending, of each cell."""
    offsets = np.zeros(high - low + 2, dtype=np.int64)
    for i in range(probes.shape[0]):
        for t in range(probes.shape[1]):
            if probes[i, t] >= 0:
                offsets[probes[i, t] - low + 1] += 1
    for c in range(high - low + 1):
        offsets[c + 1] += offsets[c]
    place = offsets[:-1].copy()
    rows = np.empty(offsets[-1], dtype=np.int32)
    for i in range(probes.shape[0]):
        for t in range(probes.shape[1]):
            if probes[i, t] >= 0:
                c = probes[i, t] - low
                rows[place[c]] = i
                place[c] += 1
    return offsets, rows


# -------------------------------------------------------------------------------------------------- compiled query
# Compiled reverse search and ranking of cells.
#
# Each call does a whole piece, for the groups compared are small where new rows are few. Arithmetic as in
# :mod:`bigembed.neighbors.search.compiled`.

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
    one = candidate_norms.dtype.type
    count = 0
    for m in range(products.shape[0]):
        i = kept[m]
        own = np.float64(norms[m])
        reach = np.sqrt(own) + radius
        limit = one(np.float64(limits[i, 0]) + 2 * rounding * reach * reach - own)
        for j in range(first, last):
            if products[m, j - first] + candidate_norms[j - first] > limit:
                continue
            value = one(squared_distance(rows, i, new, j))
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
            value = squared_distance(rows, i, centers, cells[s])
            insert(place[:count], squared[:count], s, value)
        near[:size] = False
        for s in range(count):
            near[place[s]] = True
        at = 0
        for s in range(size):
            if near[s]:
                probes[i, at] = cells[s]
                at += 1
