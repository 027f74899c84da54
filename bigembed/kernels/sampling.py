"""Compiled kernels of maps by attraction along sampled edges and repulsion of sampled rows: one step of each row.

The similarity of two points at distance r is 1/(1 + a r^{2b}). An epoch takes the edges of row i whose turn it is, each
of them w_ij/w_max of the epochs, and for each of these a number of rows drawn from a pool (McInnes et al. 2018,
Algorithm 5 and Appendix). The edge from j to i has the same turns, so that what both of them do to row i is twice what
one does: every row is moved by itself, by the points as they were before the epoch. Random numbers follow from the
epoch, the number of the row and how many it has drawn: nothing depends on how the rows are divided. What is added up
over rows are integers. Importing this imports numba.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numba import njit, uint64

from bigembed.blocks.rows import Array

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
    """A random number of 64 bits for a state of 64 bits (Steele et al. 2014, SplitMix64)."""
    z = uint64(state)
    z = (z ^ (z >> uint64(30))) * uint64(0xBF58476D1CE4E5B9)
    z = (z ^ (z >> uint64(27))) * uint64(0x94D049BB133111EB)
    return z ^ (z >> uint64(31))


@njit(cache=True, nogil=True, inline="always")
def drawn(state: Any, rows: int) -> int:
    """A row of the pool, of fewer than 2³² rows."""
    return int(((number_of(state) >> uint64(32)) * uint64(rows)) >> uint64(32))


@njit(cache=True, nogil=True, inline="always")
def squared_distance(one: Array, other: Array) -> float:
    """‖y − z‖²."""
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
    """Add the repulsion of ``count`` rows of the pool; the state after them. A row at the same place does nothing."""
    for _ in range(count):
        state = uint64(state) + uint64(GOLDEN)
        other = pool[drawn(state, pool.shape[0])]
        squared = squared_distance(one, other)
        if squared > 0.0:
            add_force(out, one, other, 2.0 * strength * b / ((SOFT + squared) * (1.0 + a * squared**b)), 1.0)
    return state


@njit(cache=True, nogil=True, inline="always")
def has_turn(epoch: int, share: float) -> bool:
    """Whether an edge that takes part in this share of the epochs does so in this one."""
    return math.floor((epoch + 1) * share) > math.floor(epoch * share)


@njit(cache=True, nogil=True, inline="always")
def advance(point: Array, force: Array, turns: float, rate: float, out: Array) -> None:
    """One step along the forces of an epoch, over ``turns``: how many edges take part in one, on average."""
    for k in range(point.shape[0]):
        out[k] = point[k] + rate * force[k] / max(1.0, turns)


@njit(cache=True, nogil=True)
def step(
    first: int, last: int, at: int, number: int, indptr: Array, columns: Array, weights: Array, points: Array,
    pool: Array, key: int, options: Array, out: Array,
) -> None:  # fmt: skip
    """One epoch of the rows ``first:last`` of a block whose row 0 is ``points[at]``, and row ``number`` of all.

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
    """What the steps lower, of some rows, in units of 1/:data:`UNIT`; each row is rounded by itself.

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
