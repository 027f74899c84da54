"""Compiled kernels of the cell search. Importing this module imports numba: only large problems do.

Their arithmetic is that of :mod:`bigembed.neighbors.exact`, bit for bit. All arrays are contiguous.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numba import njit

from bigembed.blocks.insertion import insert
from bigembed.blocks.rows import Array
from bigembed.blocks.simd import lowest_bit, near_bits, squared_distance

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


@njit(cache=True, nogil=True, fastmath={"reassoc", "contract"})
def residuals(reduced: Array, norms: Array) -> float:
    """Fill the last column of ``reduced`` with √(norm − ‖the columns before‖²); returns the largest of them."""
    largest = 0.0
    last = reduced.shape[1] - 1
    for m in range(reduced.shape[0]):
        total = norms.dtype.type(0)
        for f in range(last):
            total += reduced[m, f] * reduced[m, f]
        outside = np.sqrt(max(0.0, float(norms[m]) - float(total)))
        reduced[m, last] = outside
        largest = max(largest, outside)
    return largest


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
    root: float,
    outside: Array,
    farthest: float,
    lows: Array,
    best: Array,
    ids: Array,
    squared: Array,
) -> None:
    """Take candidates into the lists of the rows ``kept``; products[m, j] = −2 x̃_m·ỹ_j.

    What exceeds the last distance of a list by more than the rounding bound is rejected; the rest is
    computed exactly. ``lows`` and ``best`` (k + 1 entries) are scratch. With a basis the products are
    those of reduced rows, lower bounds: ``root`` > 0 is the basis's, ``outside`` (m,) the rows' parts
    outside it, ``farthest`` the largest of the candidates'.
    """
    n, width, d = candidate_ids.shape[0], products.shape[1], rows.shape[1]
    last = squared.shape[1] - 1
    one = candidate_norms.dtype.type
    for m in range(products.shape[0]):
        i = kept[m]
        distances, numbers = squared[i], ids[i]
        own = np.float64(norms[m])
        reach = np.sqrt(own) + radius
        slack = rounding * reach * reach + root * reach * max(np.float64(outside[m]), farthest)
        bound = np.float64(distances[last]) + slack - own
        if bound == np.inf and n > last + 1 and root == 0:  # a lower bound says nothing about what is reachable
            bound = np.float64(_reachable(products[m], candidate_norms, n, lows, best)) + 2 * slack
        limit = one(bound)
        for start in range(0, width, WIDTH):
            bits = near_bits(products, m * width + start, candidate_norms, start, limit)
            while bits != 0:
                j = start + lowest_bit(bits)
                bits &= bits - np.uint32(1)
                if j >= n or products[m, j] + candidate_norms[j] > limit:
                    continue
                number = candidate_ids[j]
                if number == row_ids[i] or (distances[last] == 0 and number > numbers[last]):
                    continue
                value = one(squared_distance(rows, i * d, candidates, j * d, d))
                insert(numbers, distances, number, value)
                bound = min(bound, np.float64(distances[last]) + slack - own)
                limit = one(bound)


@njit(cache=True, nogil=True)
def distances_of_pairs(rows: Array, others: Array, i: Array, j: Array, out: Array) -> None:
    """out[p] = ‖rows[i[p]] − others[j[p]]‖², rounded to the dtype of ``out``."""
    d = rows.shape[1]
    one = out.dtype.type
    for p in range(i.shape[0]):
        out[p] = one(squared_distance(rows, i[p] * d, others, j[p] * d, d))


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
