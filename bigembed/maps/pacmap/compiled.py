"""Compiled kernels of PaCMAP: the three kinds of pairs, one step of each row, the loss, and new rows. Imports numba."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numba import njit, uint64

from bigembed.maps.descent import UNIT
from bigembed.maps.tsne.compiled import listed
from bigembed.maps.umap.forces import GOLDEN, drawn, number_of
from bigembed.runtime.arithmetic import insert, squared_distance
from bigembed.runtime.blocks import Array

# ------------------------------------------------------------------------------------------------------ near pairs
# The near pairs of row i are those of its neighbors j for which d²_ij/(σ_i σ_j) is smallest, σ_i the mean distance to
# its 4th to 6th neighbor (Wang et al. 2021, §4.1). What an edge weighs is how many of its ends chose it: 0, 1 or 2.

FIRST, LAST = 3, 6
"""Neighbors from the nearest, counted from 0, whose mean distance is σ: the 4th to the 6th."""
LEAST = 1e-10
"""The smallest σ."""


@njit(cache=True, nogil=True)
def sizes(indptr: Array, indices: Array, squared: Array, ids: Array, reach: Array, last: Array) -> Array:
    """Return ρ² and id of the k-th neighbor, and σ, of each row of a block of squared distances, (rows, 3)."""
    rows = indptr.shape[0] - 1
    out = np.empty((rows, 3))
    numbers, distances = np.empty(LAST, np.int64), np.empty(LAST)
    for i in range(rows):
        numbers[:], distances[:], count = -1, np.inf, 0
        for edge in range(indptr[i], indptr[i + 1]):
            j = indices[edge]
            if j != i and listed(squared[edge], ids[j], reach[i], last[i]):
                insert(numbers, distances, ids[j], squared[edge])
                count += 1
        stop = min(count, LAST)
        start = min(FIRST, max(0, stop - 1))
        total = 0.0
        for e in range(start, stop):
            total += math.sqrt(distances[e])
        out[i, 0], out[i, 1] = reach[i], last[i]
        out[i, 2] = max(LEAST, total / max(1, stop - start))
    return out


@njit(cache=True, nogil=True)
def limits(indptr: Array, indices: Array, squared: Array, ids: Array, scale: Array, count: int) -> Array:
    """Return ``scale`` of the rows, and the scaled distance and the id of the last of ``count`` near pairs, (rows, 5).

    ``scale`` as :func:`sizes` has it, of the rows of the block, then of its halo.
    """
    rows = indptr.shape[0] - 1
    out = np.empty((rows, 5))
    numbers, distances = np.empty(count, np.int64), np.empty(count)
    for i in range(rows):
        numbers[:], distances[:] = -1, np.inf
        for edge in range(indptr[i], indptr[i + 1]):
            j = indices[edge]
            if j != i and listed(squared[edge], ids[j], scale[i, 0], scale[i, 1]):
                insert(numbers, distances, ids[j], np.float64(squared[edge]) / (scale[i, 2] * scale[j, 2]))
        out[i, :3] = scale[i]
        out[i, 3], out[i, 4] = distances[count - 1], numbers[count - 1]
    return out


@njit(cache=True, nogil=True)
def chosen(indptr: Array, indices: Array, squared: Array, ids: Array, limit: Array) -> Array:
    """Return how many ends of each edge of a block chose it, float32; ``limit`` as :func:`limits` has it."""
    out = np.zeros(len(squared), np.float32)
    for i in range(indptr.shape[0] - 1):
        for edge in range(indptr[i], indptr[i + 1]):
            j = indices[edge]
            if j == i:
                continue
            value = squared[edge]
            scaled = np.float64(value) / (limit[i, 2] * limit[j, 2])
            if listed(value, ids[j], limit[i, 0], limit[i, 1]) and _within(scaled, ids[j], limit[i]):
                out[edge] += 1
            if listed(value, ids[i], limit[j, 0], limit[j, 1]) and _within(scaled, ids[i], limit[j]):
                out[edge] += 1
    return out


@njit(cache=True, nogil=True, inline="always")
def _within(scaled: float, number: int, limit: Array) -> bool:
    return bool(limit[4] < 0 or scaled < limit[3] or (scaled == limit[3] and number <= limit[4]))


# ----------------------------------------------------------------------------------------------------- drawn pairs
# Mid-near pairs: of six rows that are drawn the second nearest. Further pairs: rows that are drawn and no near pairs.
# Both are drawn from the pool, by random numbers that follow from the number of the row.

CANDIDATES = 6
TRIES = 32
"""Draws of a row until it is taken though it is a near pair, or stands there already: where there are few rows."""


@njit(cache=True, nogil=True, inline="always")
def _state(key: int, row: int) -> Any:
    return number_of(uint64(key) + uint64(row) * uint64(GOLDEN))


@njit(cache=True, nogil=True)
def draw_candidates(key: int, number: int, own: int, rows: int, pool: int, out: Array) -> None:
    """Fill ``out`` (rows, draws, candidates) with rows of the pool, those of a draw different.

    ``number`` is that of the first row; ``own`` its number in the pool, or −1 if the pool is a sample of all rows.
    """
    for i in range(rows):
        state, self_at = _state(key, number + i), own + i if own >= 0 else -1
        for t in range(out.shape[1]):
            for c in range(out.shape[2]):
                for _ in range(TRIES):
                    state = uint64(state) + uint64(GOLDEN)
                    found, fresh = drawn(state, pool), True
                    for before in range(c):
                        fresh = fresh and out[i, t, before] != found
                    if fresh and found != self_at:
                        break
                out[i, t, c] = found


@njit(cache=True, nogil=True)
def draw_further(key: int, number: int, own: int, indptr: Array, near: Array, pool: int, out: Array) -> None:
    """Fill ``out`` (rows, draws) with rows of the pool: where this has all rows, none of the near pairs of a row.

    ``near``: the numbers of the rows that these are, by ``indptr``.
    """
    for i in range(out.shape[0]):
        state = _state(key, number + i)
        for t in range(out.shape[1]):
            for _ in range(TRIES):
                state = uint64(state) + uint64(GOLDEN)
                found, fresh = drawn(state, pool), True
                if own >= 0:
                    fresh = found != own + i
                    for e in range(indptr[i], indptr[i + 1]):
                        fresh = fresh and near[e] != found
                if fresh:
                    break
            out[i, t] = found


@njit(cache=True, nogil=True)
def compare(rows: Array, drawn_rows: Array, first: int, candidates: Array, out: Array) -> None:
    """Fill in the squared distances to those ``candidates`` that are rows ``first``, … of the pool."""
    flat, squared = candidates.reshape(candidates.shape[0], -1), out.reshape(out.shape[0], -1)
    one, stop = out.dtype.type, first + drawn_rows.shape[0]
    for i in range(flat.shape[0]):
        for c in range(flat.shape[1]):
            at = int(flat[i, c])
            if first <= at < stop:
                squared[i, c] = one(squared_distance(rows, i, drawn_rows, at - first))


@njit(cache=True, nogil=True)
def second_nearest(candidates: Array, squared: Array) -> Array:
    """Return of each draw the second nearest candidate (the only one where there is one), (rows, draws)."""
    rows, draws, count = candidates.shape
    out = np.empty((rows, draws), candidates.dtype)
    for i in range(rows):
        for t in range(draws):
            best, second = 0, -1
            for c in range(1, count):
                value = squared[i, t, c]
                if value < squared[i, t, best]:
                    best, second = c, best
                elif second < 0 or value < squared[i, t, second]:
                    second = c
            out[i, t] = candidates[i, t, max(second, 0)]
    return out


# ------------------------------------------------------------------------------------------------------------ step
# With d̃ = 1 + ‖y_i − y_j‖² the loss is w_near Σ d̃/(10 + d̃) + w_mid Σ d̃/(10⁴ + d̃) + w_far Σ 1/(1 + d̃), over the three
# kinds of pairs (Wang et al. 2021, eq. 1). A pair pulls at both of its ends, and is known at both: every row is moved
# by itself, by the points as they were before.

NEAR, MID = 10.0, 10_000.0
BETA1, BETA2, TINY = 0.9, 0.999, 1e-7
"""Of Adam (Kingma & Ba 2015)."""


@njit(cache=True, nogil=True, inline="always")
def _pull(own: Array, other: Array, kind: int, weight: float, force: Array) -> None:
    """Add the gradient of one pair to ``force``."""
    total = 1.0
    for k in range(own.shape[0]):
        difference = own[k] - other[k]
        total += difference * difference
    if kind == 0:
        factor = weight * 2.0 * NEAR / ((NEAR + total) * (NEAR + total))
    elif kind == 1:
        factor = weight * 2.0 * MID / ((MID + total) * (MID + total))
    else:
        factor = -weight * 2.0 / ((1.0 + total) * (1.0 + total))
    for k in range(own.shape[0]):
        force[k] += factor * (own[k] - other[k])


@njit(cache=True, nogil=True, inline="always")
def _adam(point: Array, force: Array, first: Array, second: Array, rate: float, out: Any, one: Any, two: Any) -> None:
    """Make one step of Adam; ``rate`` has the corrections of the moments."""
    for k in range(point.shape[0]):
        one[k] = first[k] + (1.0 - BETA1) * (force[k] - first[k])
        two[k] = second[k] + (1.0 - BETA2) * (force[k] * force[k] - second[k])
        out[k] = point[k] - rate * one[k] / (math.sqrt(two[k]) + TINY)


@njit(cache=True, nogil=True)
def step(
    start: int, stop: int, indptr: Array, columns: Array, weights: Array, points: Array, pool: Array,
    mid_starts: Array, mid: Array, far_starts: Array, far: Array, first: Array, second: Array, options: Array,
    out: Array, one: Array, two: Array,
) -> None:  # fmt: skip
    """Make one step of the rows ``start:stop`` of a block, whose points are the first of ``points``, then its halo.

    ``mid`` and ``far``: rows of the pool, by ``mid_starts`` and ``far_starts``; ``options``: weights of the three kinds
    of pairs, and the rate.
    """
    near, middle, further, rate = options[0], options[1], options[2], options[3]
    if points.shape[1] == 2:
        _step_in_plane(start, stop, indptr, columns, weights, points, pool, mid_starts, mid, far_starts, far, first,
                       second, options, out, one, two)  # fmt: skip
        return
    force = np.empty(points.shape[1])
    for i in range(start, stop):
        own = points[i]
        force[:] = 0.0
        for edge in range(indptr[i], indptr[i + 1]):
            _pull(own, points[columns[edge]], 0, near * weights[edge], force)
        if middle > 0.0:
            for t in range(mid_starts[i], mid_starts[i + 1]):
                _pull(own, pool[mid[t]], 1, middle, force)
        for t in range(far_starts[i], far_starts[i + 1]):
            _pull(own, pool[far[t]], 2, further, force)
        _adam(own, force, first[i], second[i], rate, out[i], one[i], two[i])


@njit(cache=True, nogil=True)
def _step_in_plane(
    start: int, stop: int, indptr: Array, columns: Array, weights: Array, points: Array, pool: Array,
    mid_starts: Array, mid: Array, far_starts: Array, far: Array, first: Array, second: Array, options: Array,
    out: Array, one: Array, two: Array,
) -> None:  # fmt: skip
    """:func:`step` for two coordinates, which are in registers."""
    near, middle, further, rate = options[0] * 2.0 * NEAR, options[1] * 2.0 * MID, options[2] * 2.0, options[3]
    force = np.empty(2)
    for i in range(start, stop):
        x, y = points[i, 0], points[i, 1]
        u, v = 0.0, 0.0
        for edge in range(indptr[i], indptr[i + 1]):
            j = columns[edge]
            a, b = x - points[j, 0], y - points[j, 1]
            total = NEAR + 1.0 + a * a + b * b
            factor = near * weights[edge] / (total * total)
            u += factor * a
            v += factor * b
        if middle > 0.0:
            for t in range(mid_starts[i], mid_starts[i + 1]):
                j = np.int64(mid[t])
                a, b = x - pool[j, 0], y - pool[j, 1]
                total = MID + 1.0 + a * a + b * b
                factor = middle / (total * total)
                u += factor * a
                v += factor * b
        for t in range(far_starts[i], far_starts[i + 1]):
            j = np.int64(far[t])
            a, b = x - pool[j, 0], y - pool[j, 1]
            total = 2.0 + a * a + b * b
            factor = further / (total * total)
            u -= factor * a
            v -= factor * b
        force[0], force[1] = u, v
        _adam(points[i], force, first[i], second[i], rate, out[i], one[i], two[i])


@njit(cache=True, nogil=True, inline="always")
def _distance(own: Array, other: Array) -> float:
    total = 1.0
    for k in range(own.shape[0]):
        difference = own[k] - other[k]
        total += difference * difference
    return total


@njit(cache=True, nogil=True)
def loss(
    start: int, stop: int, indptr: Array, columns: Array, weights: Array, points: Array, pool: Array,
    mid_starts: Array, mid: Array, far_starts: Array, far: Array, options: Array,
) -> int:  # fmt: skip
    """Return the loss of some rows in units of 1/:data:`UNIT`, half of each pair; each row is rounded by itself."""
    near, middle, further = options[0], options[1], options[2]
    total = 0
    for i in range(start, stop):
        own, of_row = points[i], 0.0
        for edge in range(indptr[i], indptr[i + 1]):
            value = _distance(own, points[columns[edge]])
            of_row += near * weights[edge] * value / (NEAR + value)
        for t in range(mid_starts[i], mid_starts[i + 1]):
            value = _distance(own, pool[mid[t]])
            of_row += middle * value / (MID + value)
        for t in range(far_starts[i], far_starts[i + 1]):
            of_row += further / (1.0 + _distance(own, pool[far[t]]))
        total += int(0.5 * of_row * UNIT + 0.5)
    return total


# -------------------------------------------------------------------------------------------------------- new rows


@njit(cache=True, nogil=True)
def place(
    indptr: Array, squared: Array, points: Array, most: int, pool: Array, draws: int, key: int, options: Array
) -> Array:
    """Return coordinates of new rows by their edges: ``squared`` distances by number of row, ``points`` of the map.

    A row starts at the mean of its ``most`` nearest rows, its near pairs, chosen by both ends, and makes steps among
    the fitted rows, which stay: ``options`` of each as :func:`step` has them. The rows of the pool that it is pushed
    from are the same for every row. One that equals fitted rows is where the first of them is.
    """
    m, n = points.shape[1], indptr.shape[0] - 1
    out = np.empty((n, m))
    order, distances = np.empty(most, np.int64), np.empty(most)
    force, first, second = np.empty(m), np.empty(m), np.empty(m)
    far = np.empty(draws, np.int64)
    state = number_of(uint64(key))
    for t in range(draws):
        state = uint64(state) + uint64(GOLDEN)
        far[t] = drawn(state, pool.shape[0])
    for i in range(n):
        count = min(most, indptr[i + 1] - indptr[i])
        order[:], distances[:] = -1, np.inf
        for e in range(indptr[i], indptr[i + 1]):
            insert(order[:count], distances[:count], e, squared[e])
        y = out[i]
        if distances[0] == 0.0:
            y[:] = points[order[0]]
            continue
        y[:] = 0.0
        for j in range(count):
            for k in range(m):
                y[k] += points[order[j], k] / count
        first[:], second[:] = 0.0, 0.0
        for turn in range(len(options)):
            force[:] = 0.0
            for j in range(count):
                _pull(y, points[order[j]], 0, 2.0 * options[turn, 0], force)
            for t in range(draws):
                _pull(y, pool[far[t]], 2, options[turn, 2], force)
            _adam(y, force, first, second, options[turn, 3], y, first, second)
    return out
