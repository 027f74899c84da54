"""Forces of maps by sampled edges and rows, and by densities, on one point at a time. Importing this imports numba."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numba import njit, uint64

from bigembed.runtime.blocks import Array

# -------------------------------------------------------------------------------------------------------- sampling
# Compiled kernels of maps by attraction along sampled edges and repulsion of sampled rows: one step of each row.
#
# The similarity of two points at distance r is 1/(1 + a r^{2b}). An epoch takes the edges of row i whose turn it is,
# each of them w_ij/w_max of the epochs, and for each of these a number of rows drawn from a pool (McInnes et al.
# 2018, Algorithm 5 and Appendix). The edge from j to i has the same turns, so that what both of them do to row i is
# twice what one does: every row is moved by itself, by the points as they were before the epoch. Random numbers
# follow from the epoch, the number of the row and how many it has drawn: nothing depends on how the rows are divided.
# What is added up over rows are integers.
#
# Where rows have masses (weights: how many rows each stands for), an edge to row j counts m_j times, in its attraction
# and in what it draws, and the pool holds rows by their mass.

LONGEST = 4.0
"""Of each coordinate of a force."""
SOFT = 0.001
"""Added to r² of a repulsion."""
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
def shortened(value: float) -> float:
    """Return a coordinate of a force, cut to at most :data:`LONGEST`."""
    return min(LONGEST, max(-LONGEST, value))


@njit(cache=True, nogil=True, inline="always")
def add_force(out: Array, one: Array, other: Array, factor: float, times: float) -> None:
    """Add ``times`` factor·(y − z), each coordinate cut to at most :data:`LONGEST` first."""
    for k in range(one.shape[0]):
        out[k] += times * shortened(factor * (one[k] - other[k]))


@njit(cache=True, nogil=True, inline="always")
def attract(out: Array, one: Array, other: Array, a: float, b: float, mass: float) -> None:
    """Add the attraction of a sampled edge to a row of this mass, from both of its ends."""
    squared = squared_distance(one, other)
    if squared > 0.0:
        power = squared**b
        add_force(out, one, other, -2.0 * a * b * power / squared / (1.0 + a * power), 2.0 * mass)


@njit(cache=True, nogil=True, inline="always")
def repel(
    out: Array, one: Array, pool: Array, state: Any, count: int, a: float, b: float, strength: float, mass: float
) -> Any:
    """Add the repulsion of ``count`` rows of the pool, none of rows at the same place, and return the next state.

    ``mass``: how often.
    """
    for _ in range(count):
        state = uint64(state) + uint64(GOLDEN)
        other = pool[drawn(state, pool.shape[0])]
        squared = squared_distance(one, other)
        if squared > 0.0:
            add_force(out, one, other, 2.0 * strength * b / ((SOFT + squared) * (1.0 + a * squared**b)), mass)
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


# --------------------------------------------------------------------------------------------------------- density
# The term of densMAP: how far a row's neighbors are on the map shall follow how far they are among the rows.
#
# R_i is the logarithm of the mean w_ij d_ij² over the edges of row i, standardized, and r_i that of the mean φ_ij
# ‖y_i − y_j‖² (Narayan, Berger, Cho 2021, eqs. 4 and 5). Their correlation is raised: with s² the variance of r and c
# its covariance with R, what row i wants of r_i is u_i = R_i − c (r_i − mean r)/s², and the force along an edge is
# (strength/w_ij) φ_ij (u_i (1 − b(1 − φ))/e^{r_i} + u_i t)/Σφ_i + (the same of row j), t = a b r^{2(b−1)} φ_ij. As in
# umap-learn it has the share of the epochs that the edge has (here: that part of the force in each epoch, so that
# nothing is left to chance), and is cut as any other. The pull of a row is (u/Σφ, e^{−r}).

SMALL = 1e-8
"""Added to a mean squared distance on the map."""
LEAST_WEIGHT, STRENGTH, MEAN, VARIANCE, COVARIANCE, FRACTION, ORIGINAL, DEVIATION, OFFSET = range(9)
"""Places in the numbers of a term of densities: the least w of an edge that counts; its strength, 0 where it is none;
mean and variance of r, its covariance with R; the share of the epochs in which it acts; mean and deviation of the
logarithms that R is made of, and what is added to mean squared distances before."""


@njit(cache=True, nogil=True, inline="always")
def add_density_force(
    force: Array, own: Array, other: Array, w: float, share: float, mine: Array, theirs: Array, a: float, b: float,
    strength: float,
) -> None:  # fmt: skip
    """Add the force along an edge of weight ``w`` that two rows want by their pulls, from both of its ends.

    ``share``: that of the epochs in which the edge takes part, times the mass of the other row.
    """
    squared = squared_distance(own, other)
    if squared > 0.0:
        power = squared**b
        phi = 1.0 / (1.0 + a * power)
        slope, term = 1.0 - b * (1.0 - phi), a * b * power / squared * phi
        wanted = mine[0] * (slope * mine[1] + term) + theirs[0] * (slope * theirs[1] + term)
        add_force(force, own, other, strength * phi * wanted / w, 2.0 * share)


@njit(cache=True, nogil=True, inline="always")
def map_radius(
    own: Array, first: int, last: int, columns: Array, weights: Array, points: Array, a: float, b: float, least: float,
    masses: Array,
) -> tuple[float, float]:  # fmt: skip
    """Return r of a row, and Σφ, over its edges ``first:last`` of at least the weight ``least``, by their masses."""
    total, spread = 0.0, 0.0
    for edge in range(first, last):
        if weights[edge] >= least:
            squared = squared_distance(own, points[columns[edge]])
            phi = 1.0 / (1.0 + a * squared**b)
            if len(masses):
                phi *= masses[columns[edge]]
            total += phi
            spread += phi * squared
    if total == 0.0:
        return math.log(SMALL), 1.0
    return math.log(SMALL + spread / total), total


@njit(cache=True, nogil=True)
def radius_of_new(distances: Array, weights: Array, masses: Array, total: float, density: Array) -> float:
    """Return R of a new row by its edges, whose ``weights`` times masses add up to ``total``."""
    spread = 0.0
    for j in range(len(distances)):
        spread += weights[j] * masses[j] * distances[j] ** 2
    return float((math.log(density[OFFSET] + spread / total) - density[ORIGINAL]) / density[DEVIATION])


@njit(cache=True, nogil=True)
def density_of_new(
    force: Array, own: Array, near: Array, weights: Array, masses: Array, pulls: Array, radius: float, a: float,
    b: float, density: Array,
) -> None:  # fmt: skip
    """Add the forces of densities on a new row by its edges: of R = ``radius``, among points of these ``pulls``."""
    total, spread = 0.0, 0.0
    for j in range(len(near)):
        squared = squared_distance(own, near[j])
        phi = masses[j] / (1.0 + a * squared**b)
        total += phi
        spread += phi * squared
    mean = SMALL + spread / total
    wanted = radius - density[COVARIANCE] * (math.log(mean) - density[MEAN]) / density[VARIANCE]
    mine = np.array([wanted / total, 1.0 / mean])
    for j in range(len(near)):
        w = weights[j]
        if w >= density[LEAST_WEIGHT]:
            add_density_force(force, own, near[j], w, w * masses[j], mine, pulls[j], a, b, density[STRENGTH])
