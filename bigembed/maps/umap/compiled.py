"""Compiled kernels of UMAP: memberships, attraction along sampled edges, and new rows. Importing this imports numba."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numba import njit, uint64

from bigembed.maps.tsne.compiled import listed
from bigembed.runtime.blocks import Array
from bigembed.runtime.sums import insert

# ----------------------------------------------------------------------------------------------------------- fuzzy
# Compiled kernels of the memberships of UMAP: a bandwidth for each row by its list of neighbors, their fuzzy union.
#
# a_{j|i} = exp(−max(0, d_ij − ρ_i)/σ_i) over the list of row i, ρ_i the distance to its nearest neighbor that is not
# at the same place, and σ_i so that Σ_j a_{j|i} = log₂(k + 1) for k neighbors (McInnes et al. 2018, §3.1; umap-learn
# counts the row itself: its k is k + 1 here). w_ij = a_{j|i} + a_{i|j} − a_{j|i} a_{i|j}. The list of a row are its
# edges no farther than its k-th neighbor.

SCALE = 4
"""Numbers that a row's memberships follow from: ρ² and id of its k-th neighbor, ρ, σ."""
BISECTIONS = 64
WITHIN = 1e-9
"""Of log₂(k + 1), where the bisection ends."""
LEAST = 1e-3
"""Of the mean distance in the list of a row, itself included: the smallest σ."""


@njit(cache=True, nogil=True)
def bandwidth(distances: Array, count: int, k: int, connectivity: float) -> tuple[float, float]:
    """Return ρ and σ of a row from the first ``count`` of its distances, which are put in ascending order.

    ``connectivity``: ρ is the distance to the neighbor of this number, between two of them in between. Where too few
    neighbors are listed for any σ it is infinite, and all memberships are 1.
    """
    near = distances[:count]
    near.sort()
    first, rho = 0, 0.0
    while first < count and near[first] == 0.0:
        first += 1
    apart = count - first
    if apart > 0:
        whole = math.floor(connectivity)
        rho = near[first + min(whole, apart) - 1]
        if whole < apart:
            rho += (connectivity - whole) * (near[first + whole] - rho)
    target = math.log2(k + 1.0)
    if count <= target:
        return rho, math.inf
    low, high, sigma = 0.0, math.inf, 1.0 if rho == 0.0 else rho
    for _ in range(BISECTIONS):
        total = 0.0
        for j in range(count):
            total += math.exp(-max(0.0, near[j] - rho) / sigma)
        if abs(total - target) < WITHIN:
            break
        if total > target:
            high = sigma
            sigma = 0.5 * (low + high)
        else:
            low = sigma
            sigma = 2.0 * sigma if high == math.inf else 0.5 * (low + high)
    return rho, max(sigma, LEAST * near.sum() / (count + 1), np.finfo(np.float64).tiny)


@njit(cache=True, nogil=True)
def membership(distance: float, rho: float, sigma: float) -> float:
    """Return the membership a of a row at this distance."""
    return math.exp(-max(0.0, distance - rho) / sigma)


@njit(cache=True, nogil=True)
def calibrate(
    indptr: Array, indices: Array, squared: Array, ids: Array, reach: Array, last: Array, k: int, connectivity: float
) -> Array:
    """Return (ρ² and id of the k-th neighbor, ρ, σ) of each row of a block of squared distances, (rows, 4)."""
    rows = indptr.shape[0] - 1
    out = np.empty((rows, SCALE))
    widest = 0
    for i in range(rows):
        widest = max(widest, indptr[i + 1] - indptr[i])
    distances = np.empty(widest)
    for i in range(rows):
        count = 0
        for edge in range(indptr[i], indptr[i + 1]):
            j = indices[edge]
            if j != i and listed(squared[edge], ids[j], reach[i], last[i]):
                distances[count] = math.sqrt(squared[edge])
                count += 1
        out[i, 0], out[i, 1] = reach[i], last[i]
        out[i, 2], out[i, 3] = bandwidth(distances, count, k, connectivity)
    return out


@njit(cache=True, nogil=True)
def union(indptr: Array, indices: Array, squared: Array, ids: Array, scales: Array, mix: float) -> Array:
    """Return w_ij of the edges of a block, float32: of union and intersection ``mix`` and 1 − ``mix``.

    ``scales`` of its rows, then of its halo.
    """
    out = np.zeros(len(squared), np.float32)
    for i in range(indptr.shape[0] - 1):
        for edge in range(indptr[i], indptr[i + 1]):
            j = indices[edge]
            if j == i:
                continue
            value, mine, theirs = squared[edge], 0.0, 0.0
            distance = math.sqrt(value)
            if listed(value, ids[j], scales[i, 0], scales[i, 1]):
                mine = membership(distance, scales[i, 2], scales[i, 3])
            if listed(value, ids[i], scales[j, 0], scales[j, 1]):
                theirs = membership(distance, scales[j, 2], scales[j, 3])
            both = mine * theirs
            out[edge] = mix * (mine + theirs - both) + (1.0 - mix) * both
    return out


# -------------------------------------------------------------------------------------------------------- sampling
# Compiled kernels of maps by attraction along sampled edges and repulsion of sampled rows: one step of each row.
#
# The similarity of two points at distance r is 1/(1 + a r^{2b}). An epoch takes the edges of row i whose turn it is,
# each of them w_ij/w_max of the epochs, and for each of these a number of rows drawn from a pool (McInnes et al.
# 2018, Algorithm 5 and Appendix). The edge from j to i has the same turns, so that what both of them do to row i is
# twice what one does: every row is moved by itself, by the points as they were before the epoch. Random numbers
# follow from the epoch, the number of the row and how many it has drawn: nothing depends on how the rows are divided.
# What is added up over rows are integers.

LONGEST = 4.0
"""Of each coordinate of a force."""
SOFT = 0.001
"""Added to r² of a repulsion."""
DRAWN = 16
"""Rows that a row is compared with where the cross-entropy is measured."""
UNIT = 2.0**24
"""Of the cross-entropy of a row, as an integer."""
GOLDEN = 0x9E3779B97F4A7C15


@njit(cache=True, nogil=True, inline="always")
def number_of(state: Any) -> Any:
    """Return a random number of 64 bits for a state of 64 bits (Steele et al. 2014, SplitMix64)."""
    z = uint64(state)
    z = (z ^ (z >> uint64(30))) * uint64(0xBF58476D1CE4E5B9)
    z = (z ^ (z >> uint64(27))) * uint64(0x94D049BB133111EB)
    return z ^ (z >> uint64(31))


@njit(cache=True, nogil=True, inline="always")
def drawn(state: Any, rows: int) -> int:
    """Return a row of the pool, of fewer than 2³² rows."""
    return int(((number_of(state) >> uint64(32)) * uint64(rows)) >> uint64(32))


@njit(cache=True, nogil=True, inline="always")
def squared_distance(one: Array, other: Array) -> float:
    """Return ‖y − z‖²."""
    total = 0.0
    for k in range(one.shape[0]):
        total += (one[k] - other[k]) ** 2
    return total


@njit(cache=True, nogil=True, inline="always")
def add_force(out: Array, one: Array, other: Array, factor: float, times: float) -> None:
    """Add ``times`` factor·(y − z), each coordinate cut to at most :data:`LONGEST` first."""
    for k in range(one.shape[0]):
        out[k] += times * min(LONGEST, max(-LONGEST, factor * (one[k] - other[k])))


@njit(cache=True, nogil=True, inline="always")
def attract(out: Array, one: Array, other: Array, a: float, b: float) -> None:
    """Add the attraction of a sampled edge, from both of its ends."""
    squared = squared_distance(one, other)
    if squared > 0.0:
        power = squared**b
        add_force(out, one, other, -2.0 * a * b * power / squared / (1.0 + a * power), 2.0)


@njit(cache=True, nogil=True, inline="always")
def repel(out: Array, one: Array, pool: Array, state: Any, count: int, a: float, b: float, strength: float) -> Any:
    """Add the repulsion of ``count`` rows of the pool, none of rows at the same place, and return the next state."""
    for _ in range(count):
        state = uint64(state) + uint64(GOLDEN)
        other = pool[drawn(state, pool.shape[0])]
        squared = squared_distance(one, other)
        if squared > 0.0:
            add_force(out, one, other, 2.0 * strength * b / ((SOFT + squared) * (1.0 + a * squared**b)), 1.0)
    return state


@njit(cache=True, nogil=True, inline="always")
def has_turn(epoch: int, share: float) -> bool:
    """Say whether an edge that takes part in this share of the epochs does so in this one."""
    return math.floor((epoch + 1) * share) > math.floor(epoch * share)


@njit(cache=True, nogil=True, inline="always")
def advance(point: Array, force: Array, turns: float, rate: float, out: Array) -> None:
    """Make one step along the forces of an epoch, over ``turns``: how many edges take part in one, on average."""
    for k in range(point.shape[0]):
        out[k] = point[k] + rate * force[k] / max(1.0, turns)


@njit(cache=True, nogil=True)
def step(
    first: int, last: int, at: int, number: int, indptr: Array, columns: Array, weights: Array, points: Array,
    pool: Array, key: int, options: Array, out: Array,
) -> None:  # fmt: skip
    """Make one epoch of the rows ``first:last`` of a block whose row 0 is ``points[at]``, and row ``number`` of all.

    ``options``: a, b, strength of repulsion, rows drawn for an edge, largest weight, epoch, learning rate. ``key``: of
    the epoch's random numbers.
    """
    a, b, strength, draws = options[0], options[1], options[2], int(options[3])
    largest, epoch, rate = options[4], int(options[5]), options[6]
    force = np.empty(points.shape[1])
    for i in range(first, last):
        own = points[at + i]
        force[:] = 0.0
        turns = 0.0
        state = number_of(uint64(key) + uint64(number + i) * uint64(GOLDEN))
        for edge in range(indptr[i], indptr[i + 1]):
            share = weights[edge] / largest
            turns += share
            if has_turn(epoch, share):
                attract(force, own, points[columns[edge]], a, b)
                state = repel(force, own, pool, state, draws, a, b, strength)
        advance(own, force, turns, rate, out[i])


@njit(cache=True, nogil=True)
def cross_entropy(
    first: int, last: int, at: int, number: int, indptr: Array, columns: Array, weights: Array, points: Array,
    pool: Array, key: int, options: Array,
) -> int:  # fmt: skip
    """Return what the steps lower, of some rows, in units of 1/:data:`UNIT`; each row is rounded by itself.

    −Σ_ij w_ij (log φ_ij + γ·draws·mean_k log(1 − φ_ik)), φ = 1/(1 + a r^{2b}), k over :data:`DRAWN` rows of the pool.
    """
    a, b, strength, draws = options[0], options[1], options[2], options[3]
    total = 0
    for i in range(first, last):
        own, of_row, mass, far = points[at + i], 0.0, 0.0, 0.0
        for edge in range(indptr[i], indptr[i + 1]):
            mass += weights[edge]
            of_row += weights[edge] * math.log1p(a * squared_distance(own, points[columns[edge]]) ** b)
        state = number_of(uint64(key) + uint64(number + i) * uint64(GOLDEN))
        for _ in range(DRAWN):
            state = uint64(state) + uint64(GOLDEN)
            squared = squared_distance(own, pool[drawn(state, pool.shape[0])])
            if squared > 0.0:
                far += math.log1p(1.0 / (a * squared**b))
        total += int((of_row + strength * draws * mass * far / DRAWN) * UNIT + 0.5)
    return total


# ------------------------------------------------------------------------------------------------- sampled placing
# Compiled places of new rows on a map by sampled edges and rows.


@njit(cache=True, nogil=True)
def place(
    indptr: Array, squared: Array, points: Array, most: int, k: int, connectivity: float, pool: Array, keys: Array,
    options: Array, rate: float,
) -> Array:  # fmt: skip
    """Return coordinates of new rows by their edges: ``squared`` distances by number of row, ``points`` of the map.

    A row starts at the mean of its ``most`` nearest rows by its memberships, and makes the epochs of ``keys`` as a
    fitted row does (``options`` of :func:`step`), the learning rate falling from ``rate`` to
    0. The random numbers are the same for every row. One that equals fitted rows is where the first of them is.
    """
    m, n, epochs = points.shape[1], indptr.shape[0] - 1, len(keys)
    a, b, strength, draws = options[0], options[1], options[2], int(options[3])
    out = np.empty((n, m))
    order, distances, weights = np.empty(most, np.int64), np.empty(most), np.empty(most)
    near, force, moved = np.empty((most, m)), np.empty(m), np.empty(m)
    for i in range(n):
        count = min(most, indptr[i + 1] - indptr[i])
        order[:], distances[:] = -1, np.inf
        for e in range(indptr[i], indptr[i + 1]):
            insert(order[:count], distances[:count], e, squared[e])
        for j in range(count):
            distances[j] = np.sqrt(distances[j])
            for c in range(m):
                near[j, c] = points[order[j], c]
        if distances[0] == 0.0:
            for c in range(m):
                out[i, c] = near[0, c]
            continue
        rho, sigma = bandwidth(distances, count, k, connectivity)
        y, total = out[i], 0.0
        y[:] = 0.0
        for j in range(count):
            weights[j] = membership(distances[j], rho, sigma)
            total += weights[j]
            for c in range(m):
                y[c] += weights[j] * near[j, c]
        for c in range(m):
            y[c] /= total
        for epoch in range(epochs):
            state = number_of(keys[epoch])
            force[:] = 0.0
            for j in range(count):
                if has_turn(epoch, weights[j]):
                    attract(force, y, near[j], a, b)
                    state = repel(force, y, pool, state, draws, a, b, strength)
            advance(y, force, 2.0 * total, rate * (1.0 - epoch / epochs), moved)
            for c in range(m):
                y[c] = moved[c]
    return out
