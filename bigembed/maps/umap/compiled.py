"""Compiled kernels of UMAP: memberships, attraction along sampled edges, and new rows. Importing this imports numba."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numba import njit, uint64

from bigembed.maps.descent import UNIT
from bigembed.maps.tsne.compiled import listed
from bigembed.maps.umap.forces import (
    FRACTION,
    GOLDEN,
    LEAST_WEIGHT,
    SOFT,
    STRENGTH,
    add_density_force,
    advance,
    attract,
    density_of_new,
    drawn,
    has_turn,
    map_radius,
    number_of,
    radius_of_new,
    repel,
    shortened,
    squared_distance,
)
from bigembed.runtime.arithmetic import insert
from bigembed.runtime.blocks import Array

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


# ----------------------------------------------------------------------------------------------------------- steps
# One step of each row, and what the steps lower.

DRAWN = 16
"""Rows that a row is compared with where the cross-entropy is measured."""


@njit(cache=True, nogil=True, inline="always")
def plane_forces(
    force: Array, own: Array, first: int, last: int, columns: Array, weights: Array, points: Array, pool: Array,
    state: Any, options: Array, masses: Array, scratch: Array,
) -> float:  # fmt: skip
    """Add the forces of :func:`sampled_forces` on a row of two coordinates, to the last bit."""
    a, b, strength, draws = options[0], options[1], options[2], int(options[3])
    largest, epoch, rows = options[4], int(options[5]), pool.shape[0]
    x, y, to_x, to_y, turns = own[0], own[1], force[0], force[1], 0.0
    for edge in range(first, last):
        j = columns[edge]
        share, mass = weights[edge] / largest, 1.0
        if len(masses):
            mass = masses[j]
        turns += share * mass
        if has_turn(epoch, share):
            for k in range(draws):
                state = uint64(state) + uint64(GOLDEN)
                other = drawn(state, rows)
                apart_x, apart_y = x - pool[other, 0], y - pool[other, 1]
                scratch[k, 0], scratch[k, 1] = apart_x, apart_y
                scratch[k, 2] = apart_x * apart_x + apart_y * apart_y
            apart_x, apart_y = x - points[j, 0], y - points[j, 1]
            squared = apart_x * apart_x + apart_y * apart_y
            if squared > 0.0:
                power = squared**b
                factor, times = -2.0 * a * b * power / squared / (1.0 + a * power), 2.0 * mass
                to_x += times * shortened(factor * apart_x)
                to_y += times * shortened(factor * apart_y)
            for k in range(draws):
                squared = scratch[k, 2]
                if squared > 0.0:
                    factor = 2.0 * strength * b / ((SOFT + squared) * (1.0 + a * squared**b))
                    to_x += mass * shortened(factor * scratch[k, 0])
                    to_y += mass * shortened(factor * scratch[k, 1])
    force[0], force[1] = to_x, to_y
    return turns


@njit(cache=True, nogil=True, inline="always")
def sampled_forces(
    force: Array, own: Array, first: int, last: int, columns: Array, weights: Array, points: Array, pool: Array,
    state: Any, options: Array, masses: Array, scratch: Array,
) -> float:  # fmt: skip
    """Add the forces of those edges of a row that have their turn, and of what these draw; how many have, on average.

    Its edges are ``first:last``; ``options`` and ``masses`` as :func:`step` has them; ``scratch`` (rows drawn, 3). In a
    plane the rows that an edge draws are read all at once, and then their powers taken: the same numbers in the same
    order in half of the time.
    """
    a, b, strength, draws = options[0], options[1], options[2], int(options[3])
    if len(own) == 2:
        return plane_forces(force, own, first, last, columns, weights, points, pool, state, options, masses, scratch)
    largest, epoch = options[4], int(options[5])
    turns = 0.0
    for edge in range(first, last):
        share, mass = weights[edge] / largest, 1.0
        if len(masses):
            mass = masses[columns[edge]]
        turns += share * mass
        if has_turn(epoch, share):
            attract(force, own, points[columns[edge]], a, b, mass)
            state = repel(force, own, pool, state, draws, a, b, strength, mass)
    return turns


@njit(cache=True, nogil=True)
def step(
    first: int, last: int, at: int, number: int, indptr: Array, columns: Array, weights: Array, points: Array,
    pool: Array, masses: Array, key: int, options: Array, out: Array,
) -> None:  # fmt: skip
    """Make one epoch of the rows ``first:last`` of a block whose row 0 is ``points[at]``, and row ``number`` of all.

    ``options``: a, b, strength of repulsion, rows drawn for an edge, largest weight, epoch, learning rate, and what
    share of its turns the forces on a row are divided by. ``key``: of the epoch's random numbers. ``masses`` of the
    rows and of the halo, as the points have them; none where all are 1.
    """
    force, scratch = np.empty(points.shape[1]), np.empty((int(options[3]), 3))
    for i in range(first, last):
        own = points[at + i]
        force[:] = 0.0
        state = number_of(uint64(key) + uint64(number + i) * uint64(GOLDEN))
        start, stop = indptr[i], indptr[i + 1]
        turns = sampled_forces(force, own, start, stop, columns, weights, points, pool, state, options, masses, scratch)
        advance(own, force, options[7] * turns, options[6], out[i])


@njit(cache=True, nogil=True)
def density_step(
    first: int, last: int, at: int, number: int, indptr: Array, columns: Array, weights: Array, points: Array,
    pool: Array, masses: Array, key: int, options: Array, pulls: Array, density: Array, part: int, parts: int,
    out: Array, radii: Array,
) -> None:  # fmt: skip
    """Make a part of an epoch as :func:`step` does, with the forces of densities where ``density`` says that they act.

    Of each row those of every edge ``parts`` after the one before, from ``part`` on; the largest weight in ``options``
    is ``parts`` times what it is. ``pulls`` of the rows and of the halo. ``radii`` (rows, 2) become r and Σφ of the
    points as they are, if they are not empty.
    """
    a, b, largest, least, strength = options[0], options[1], options[4], density[LEAST_WEIGHT], density[STRENGTH]
    force, scratch = np.empty(points.shape[1]), np.empty((int(options[3]), 3))
    for i in range(first, last):
        own, start, stop = points[at + i], indptr[i], indptr[i + 1]
        force[:] = 0.0
        state = number_of(uint64(key) + uint64(number + i) * uint64(GOLDEN))
        turns = sampled_forces(force, own, start, stop, columns, weights, points, pool, state, options, masses, scratch)
        if strength > 0.0:
            for edge in range(start + part, stop, parts):
                w, j = weights[edge], columns[edge]
                if w >= least:
                    share = parts * w / largest
                    if len(masses):
                        share *= masses[j]
                    add_density_force(force, own, points[j], w, share, pulls[at + i], pulls[j], a, b, strength)
        if len(radii):
            radii[i, 0], radii[i, 1] = map_radius(own, start, stop, columns, weights, points, a, b, least, masses)
        advance(own, force, options[7] * turns, options[6], out[i])


@njit(cache=True, nogil=True)
def map_radii(
    first: int, last: int, indptr: Array, columns: Array, weights: Array, points: Array, a: float, b: float,
    least: float, masses: Array, out: Array,
) -> None:  # fmt: skip
    """Write r and Σφ of some rows of a block, (rows, 2)."""
    for i in range(first, last):
        start, stop = indptr[i], indptr[i + 1]
        out[i, 0], out[i, 1] = map_radius(points[i], start, stop, columns, weights, points, a, b, least, masses)


@njit(cache=True, nogil=True)
def cross_entropy(
    first: int, last: int, at: int, number: int, indptr: Array, columns: Array, weights: Array, points: Array,
    pool: Array, masses: Array, key: int, options: Array,
) -> int:  # fmt: skip
    """Return what the steps lower, of some rows, in units of 1/:data:`UNIT`; each row is rounded by itself.

    −Σ_ij m_i m_j w_ij (log φ_ij + γ·draws·mean_k log(1 − φ_ik)), φ = 1/(1 + a r^{2b}), k over :data:`DRAWN` rows of the
    pool.
    """
    a, b, strength, draws = options[0], options[1], options[2], options[3]
    total = 0
    for i in range(first, last):
        own, of_row, mass, far = points[at + i], 0.0, 0.0, 0.0
        for edge in range(indptr[i], indptr[i + 1]):
            w = np.float64(weights[edge])
            if len(masses):
                w *= masses[at + i] * masses[columns[edge]]
            mass += w
            of_row += w * math.log1p(a * squared_distance(own, points[columns[edge]]) ** b)
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
    options: Array, rate: float, masses: Array, pulls: Array, density: Array,
) -> Array:  # fmt: skip
    """Return coordinates of new rows by their edges: ``squared`` distances by number of row, ``points`` of the map.

    A row starts at the mean of its ``most`` nearest rows by its memberships, and makes the epochs of ``keys`` as a
    fitted row does (``options`` of :func:`step`), the learning rate falling from ``rate`` to
    0. The random numbers are the same for every row. One that equals fitted rows is where the first of them is.
    ``masses`` of the points are empty where all are 1. ``pulls`` of the points and ``density`` are as
    :func:`density_of_new` has them; both empty where a map has no term of densities.
    """
    m, n, epochs = points.shape[1], indptr.shape[0] - 1, len(keys)
    a, b, strength, draws = options[0], options[1], options[2], int(options[3])
    out = np.empty((n, m))
    order, distances, weights = np.empty(most, np.int64), np.empty(most), np.empty(most)
    near, force, moved, near_pulls = np.empty((most, m)), np.empty(m), np.empty(m), np.empty((most, 2))
    near_masses = np.ones(most)
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
            if len(masses):
                near_masses[j] = masses[order[j]]
            total += weights[j] * near_masses[j]
            for c in range(m):
                y[c] += weights[j] * near_masses[j] * near[j, c]
        for c in range(m):
            y[c] /= total
        radius = 0.0
        if len(density):
            for j in range(count):
                near_pulls[j] = pulls[order[j]]
            radius = radius_of_new(distances[:count], weights, near_masses, total, density)
        for epoch in range(epochs):
            state = number_of(keys[epoch])
            force[:] = 0.0
            for j in range(count):
                if has_turn(epoch, weights[j]):
                    attract(force, y, near[j], a, b, near_masses[j])
                    state = repel(force, y, pool, state, draws, a, b, strength, near_masses[j])
            if len(density) and (epoch + 1) / epochs > 1.0 - density[FRACTION]:
                density_of_new(force, y, near[:count], weights, near_masses, near_pulls, radius, a, b, density)
            advance(y, force, 2.0 * total, rate * (1.0 - epoch / epochs), moved)
            for c in range(m):
                y[c] = moved[c]
    return out


@njit(cache=True, nogil=True)
def own_memberships(indptr: Array, squared: Array, most: int, k: int, connectivity: float) -> Array:
    """Return the memberships of new rows on their edges, from ``squared`` distances: 0 beyond the ``most`` nearest."""
    out = np.zeros(len(squared))
    order, distances = np.empty(most, np.int64), np.empty(most)
    for i in range(indptr.shape[0] - 1):
        count = min(most, indptr[i + 1] - indptr[i])
        order[:], distances[:] = -1, np.inf
        for e in range(indptr[i], indptr[i + 1]):
            insert(order[:count], distances[:count], e, squared[e])
        near = np.sqrt(distances[:count])
        rho, sigma = bandwidth(near.copy(), count, k, connectivity)
        for j in range(count):
            out[order[j]] = membership(near[j], rho, sigma)
    return out


@njit(cache=True, nogil=True)
def place_by_weights(
    indptr: Array, weights: Array, points: Array, pool: Array, keys: Array, options: Array, rate: float, masses: Array
) -> Array:  # fmt: skip
    """Return coordinates of new rows by the ``weights`` of their edges, as :func:`place` does by their lengths."""
    m, n, epochs = points.shape[1], indptr.shape[0] - 1, len(keys)
    a, b, strength, draws = options[0], options[1], options[2], int(options[3])
    out, force, moved = np.zeros((n, m)), np.empty(m), np.empty(m)
    for i in range(n):
        y, total = out[i], 0.0
        for e in range(indptr[i], indptr[i + 1]):
            share = weights[e]
            if len(masses):
                share *= masses[e]
            total += share
            for c in range(m):
                y[c] += share * points[e, c]
        for c in range(m):
            y[c] /= total
        for epoch in range(epochs):
            state = number_of(keys[epoch])
            force[:] = 0.0
            for e in range(indptr[i], indptr[i + 1]):
                if has_turn(epoch, weights[e]):
                    mass = masses[e] if len(masses) else 1.0
                    attract(force, y, points[e], a, b, mass)
                    state = repel(force, y, pool, state, draws, a, b, strength, mass)
            advance(y, force, 2.0 * total, rate * (1.0 - epoch / epochs), moved)
            for c in range(m):
                y[c] = moved[c]
    return out
