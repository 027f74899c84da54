"""Compiled kernels of the cell search. Importing this module imports numba: only large problems do.

Their arithmetic is that of :mod:`bigembed.neighbors.exact`, bit for bit: no fused or reordered sums.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numba import njit

from bigembed.blocks.rows import Array


@njit(cache=True, nogil=True, inline="always")  # type: ignore[misc]
def _exact(a: Array, i: int, b: Array, j: int) -> Any:
    """‖a_i − b_j‖² as :func:`bigembed.neighbors.exact.paired_squared` sums it."""
    d = a.shape[1]
    s0 = s1 = s2 = s3 = s4 = s5 = s6 = s7 = 0.0
    whole = d - d % 8
    for f in range(0, whole, 8):
        t0 = np.float64(a[i, f]) - np.float64(b[j, f])
        t1 = np.float64(a[i, f + 1]) - np.float64(b[j, f + 1])
        t2 = np.float64(a[i, f + 2]) - np.float64(b[j, f + 2])
        t3 = np.float64(a[i, f + 3]) - np.float64(b[j, f + 3])
        t4 = np.float64(a[i, f + 4]) - np.float64(b[j, f + 4])
        t5 = np.float64(a[i, f + 5]) - np.float64(b[j, f + 5])
        t6 = np.float64(a[i, f + 6]) - np.float64(b[j, f + 6])
        t7 = np.float64(a[i, f + 7]) - np.float64(b[j, f + 7])
        s0 += t0 * t0
        s1 += t1 * t1
        s2 += t2 * t2
        s3 += t3 * t3
        s4 += t4 * t4
        s5 += t5 * t5
        s6 += t6 * t6
        s7 += t7 * t7
    for f in range(whole, d):
        t = np.float64(a[i, f]) - np.float64(b[j, f])
        lane = f - whole
        if lane == 0:
            s0 += t * t
        elif lane == 1:
            s1 += t * t
        elif lane == 2:
            s2 += t * t
        elif lane == 3:
            s3 += t * t
        elif lane == 4:
            s4 += t * t
        elif lane == 5:
            s5 += t * t
        else:
            s6 += t * t
    return ((s0 + s4) + (s2 + s6)) + ((s1 + s5) + (s3 + s7))


@njit(cache=True, nogil=True)  # type: ignore[misc]
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
    how many there are.
    """
    d = rows.shape[1]
    last = squared.shape[1] - 1
    count = 0
    for m in range(index.shape[0]):
        i = index[m]
        total = norms[0] * 0
        for f in range(d):
            t = rows[i, f] - center[f]
            shifted[count, f] = t
        for f in range(d):
            total += shifted[count, f] * shifted[count, f]
        length = np.sqrt(np.float64(total))
        gap = length - radius
        reach = length + radius
        if gap > 0 and gap * gap - 4 * rounding * reach * reach > squared[i, last]:
            continue
        norms[count] = total
        kept[count] = i
        count += 1
    return count


@njit(cache=True, nogil=True)  # type: ignore[misc]
def _select(products: Array, m: int, norms: Array, best: Array) -> Any:
    """The len(best)-th smallest of products[m] + norms."""
    size = best.shape[0]
    best[:] = np.inf
    for j in range(norms.shape[0]):
        v = products[m, j] + norms[j]
        if v < best[size - 1]:
            p = size - 1
            while p > 0 and best[p - 1] > v:
                best[p] = best[p - 1]
                p -= 1
            best[p] = v
    return best[size - 1]


@njit(cache=True, nogil=True, inline="always")  # type: ignore[misc]
def _insert(ids: Array, squared: Array, i: int, number: int, value: Any) -> None:
    """Put (value, number) in its place of list i, if it belongs there and is not there already."""
    p = squared.shape[1] - 1
    if value > squared[i, p] or (value == squared[i, p] and ids[i, p] >= 0 and number >= ids[i, p]):
        return
    q = p
    while q > 0 and (squared[i, q - 1] > value or ids[i, q - 1] < 0):
        q -= 1
    while q > 0 and squared[i, q - 1] == value and ids[i, q - 1] > number:
        q -= 1
    if q > 0 and squared[i, q - 1] == value and ids[i, q - 1] == number:
        return
    while p > q:
        squared[i, p] = squared[i, p - 1]
        ids[i, p] = ids[i, p - 1]
        p -= 1
    squared[i, q] = value
    ids[i, q] = number


@njit(cache=True, nogil=True)  # type: ignore[misc]
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
    best: Array,
    ids: Array,
    squared: Array,
) -> None:
    """Take candidates into the lists of the rows ``kept``; products[m, j] = −2 x̃_m·ỹ_j.

    What exceeds the last distance of a list by more than the rounding bound is rejected; the rest
    is computed exactly. ``best`` is scratch of k + 1 entries.
    """
    n = candidate_norms.shape[0]
    last = squared.shape[1] - 1
    one = candidate_norms.dtype.type
    for m in range(products.shape[0]):
        i = kept[m]
        own = np.float64(norms[m])
        reach = np.sqrt(own) + radius
        slack = rounding * reach * reach
        bound = np.float64(squared[i, last]) + slack - own
        if bound == np.inf and n > last + 1:
            bound = np.float64(_select(products, m, candidate_norms, best)) + 2 * slack
        limit = one(bound)
        for start in range(0, n, 16):
            stop = min(start + 16, n)
            near = 0
            if stop == start + 16:
                for j in range(start, start + 16):
                    near += not (products[m, j] + candidate_norms[j] > limit)
            else:
                near = 1
            if near == 0:
                continue
            for j in range(start, stop):
                if products[m, j] + candidate_norms[j] > limit:
                    continue
                number = candidate_ids[j]
                if number == row_ids[i]:
                    continue
                if squared[i, last] == 0 and number > ids[i, last]:
                    continue
                value = one(_exact(rows, i, candidates, j))
                _insert(ids, squared, i, number, value)
                bound = min(bound, np.float64(squared[i, last]) + slack - own)
                limit = one(bound)


@njit(cache=True, nogil=True)  # type: ignore[misc]
def group_by_cell(cells: Array, n_cells: int) -> tuple[Array, Array]:
    """Rows (T per row, cells (n, T) in [0, n_cells) or −1) grouped by cell: offsets, rows ascending."""
    offsets = np.zeros(n_cells + 1, dtype=np.int64)
    for i in range(cells.shape[0]):
        for t in range(cells.shape[1]):
            if cells[i, t] >= 0:
                offsets[cells[i, t] + 1] += 1
    for c in range(n_cells):
        offsets[c + 1] += offsets[c]
    place = offsets[:-1].copy()
    grouped = np.empty(offsets[n_cells], dtype=np.int32)
    for i in range(cells.shape[0]):
        for t in range(cells.shape[1]):
            c = cells[i, t]
            if c >= 0:
                grouped[place[c]] = i
                place[c] += 1
    return offsets, grouped
