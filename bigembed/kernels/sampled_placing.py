"""Compiled placing of new rows on a map by sampled edges and rows. Importing this imports numba."""

from __future__ import annotations

import numpy as np
from numba import njit

from bigembed.blocks.insertion import insert
from bigembed.blocks.rows import Array
from bigembed.kernels.fuzzy import bandwidth, membership
from bigembed.kernels.sampling import advance, attract, has_turn, number_of, repel


@njit(cache=True, nogil=True)
def place(
    indptr: Array, squared: Array, points: Array, most: int, k: int, connectivity: float, pool: Array, keys: Array,
    options: Array, rate: float,
) -> Array:  # fmt: skip
    """Coordinates of new rows from their edges: ``squared`` distances, by number of row, and ``points`` of the map.

    A row starts at the mean of its ``most`` nearest rows by its memberships, and makes the epochs of ``keys`` as a
    fitted row does (``options`` of :func:`bigembed.kernels.sampling.step`), the learning rate falling from ``rate`` to
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
