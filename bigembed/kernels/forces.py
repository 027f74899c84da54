"""Compiled kernels of maps by attraction and repulsion: each point on a lattice, and one step of each.

The similarity of two points at distance r is w = (1 + r²/ν)^{−ν}: Student's kernel of t-SNE for ν = 1, exp(−r²) of SNE
for ν = ∞, heavier tails below 1 (Kobak et al. 2019). Attraction needs 1/(1 + r²/ν) only. Repulsion is read from a
field on a lattice (:mod:`bigembed.kernels.field`), by cubic B-splines.

Every row is computed by itself, in the order of its edges, and what is added up over rows are integers: the same bytes
for any division of the rows. Importing this imports numba.
"""

from __future__ import annotations

import math

import numpy as np
from numba import njit

from bigembed.blocks.rows import Array

UNIT = 2.0**36
"""A charge of 1 on the lattice: integers have the same sum in any order. A node may hold 2²⁷ rows."""
ENERGY = 2.0**54
"""The unit of Σ p log w, of which Σ p = 1."""
LEAST_GAIN = 0.01


@njit(cache=True, nogil=True, inline="always")
def _stencil(u: float, weights: Array, axis: int) -> int:
    """Weights of the four nodes around u, and the number of the first."""
    first = math.floor(u)
    t = u - first
    s = 1.0 - t
    weights[axis, 0] = s * s * s / 6.0
    weights[axis, 1] = (3.0 * t * t * t - 6.0 * t * t + 4.0) / 6.0
    weights[axis, 2] = (3.0 * s * s * s - 6.0 * s * s + 4.0) / 6.0
    weights[axis, 3] = t * t * t / 6.0
    return int(first) - 1


@njit(cache=True, nogil=True)
def spread(points: Array, axes: tuple[int, ...], spacing: float, low: Array, charges: Array) -> None:
    """Add each point's charge to the nodes around it: ``charges`` int64 (s_0, s_1, s_2), the first node at ``low``.

    ``axes``: (0,) · m; of the three axes of the lattice the last m are used, the others hold one node.
    """
    m = len(axes)
    weights = np.ones((3, 4))
    first = np.zeros(3, np.int64)
    wide0, wide1 = (4 if m > 2 else 1), (4 if m > 1 else 1)
    for i in range(points.shape[0]):
        for c in range(m):
            axis = 3 - m + c
            first[axis] = _stencil(points[i, c] / spacing, weights, axis) - low[axis]
        for a in range(wide0):
            for b in range(wide1):
                outer = weights[0, a] * weights[1, b] * UNIT
                for c in range(4):
                    charges[first[0] + a, first[1] + b, first[2] + c] += np.int64(outer * weights[2, c] + 0.5)


@njit(cache=True, nogil=True)
def field_at(
    point: Array, axes: tuple[int, ...], spacing: float, low: Array, field: Array, weights: Array, first: Array,
    out: Array,
) -> None:  # fmt: skip
    """What the field (s_0, s_1, s_2, m) is at a point (m,) inside the lattice; ``weights``, ``first``: to work in."""
    m, q = len(axes), field.shape[3]
    wide0, wide1 = (4 if m > 2 else 1), (4 if m > 1 else 1)
    out[:] = 0.0
    for c in range(m):
        axis = 3 - m + c
        first[axis] = _stencil(point[c] / spacing, weights, axis) - low[axis]
    for a in range(wide0):
        for b in range(wide1):
            outer = weights[0, a] * weights[1, b]
            for c in range(4):
                weight = outer * weights[2, c]
                for k in range(q):
                    out[k] += weight * field[first[0] + a, first[1] + b, first[2] + c, k]


@njit(cache=True, nogil=True)
def step(
    first: int, last: int, at: int, indptr: Array, columns: Array, weights: Array, points: Array, axes: tuple[int, ...],
    inverse_dof: float, spacing: float, low: Array, field: Array, total: float, options: Array, velocity: Array,
    gains: Array, out: Array,
) -> None:  # fmt: skip
    """One step of the rows ``first:last`` of a block whose row 0 is ``points[at]``.

    ``options``: exaggeration ε, learning rate, momentum, compression λ, longest step, whether gains adapt. The gradient
    is ε Σ_j p_ij (y_i − y_j)/(1 + r²/ν) − Σ_j w_ij (y_i − y_j)/(1 + r²/ν)/Z + λ y_i: seed 000 eq. 19 over 4.
    """
    m = len(axes)
    exaggeration, rate, momentum = options[0], options[1], options[2]
    compression, longest, adaptive = options[3], options[4], options[5] > 0
    stencil, nodes = np.ones((3, 4)), np.zeros(3, np.int64)
    pull, push = np.empty(m), np.empty(m)
    for i in range(first, last):
        own = points[at + i]
        for k in range(m):
            pull[k] = 0.0
        for edge in range(indptr[i], indptr[i + 1]):
            j = columns[edge]
            squared = 0.0
            for k in range(m):
                squared += (own[k] - points[j, k]) ** 2
            weight = weights[edge] / (1.0 + squared * inverse_dof)
            for k in range(m):
                pull[k] += weight * (own[k] - points[j, k])
        field_at(own, axes, spacing, low, field, stencil, nodes, push)
        length = 0.0
        for k in range(m):
            gradient = exaggeration * pull[k] - push[k] / total + compression * own[k]
            if adaptive:
                agree = (gradient > 0) == (velocity[i, k] > 0)
                gains[i, k] = gains[i, k] * 0.8 + LEAST_GAIN if agree else gains[i, k] + 0.2
            velocity[i, k] = momentum * velocity[i, k] - rate * gains[i, k] * gradient
            length += velocity[i, k] ** 2
        shrink = 1.0
        if length > longest * longest:
            shrink = longest / math.sqrt(length)
        for k in range(m):
            velocity[i, k] *= shrink
            out[i, k] = own[k] + velocity[i, k]


@njit(cache=True, nogil=True)
def energy(
    first: int, last: int, at: int, indptr: Array, columns: Array, weights: Array, points: Array, dof: float
) -> int:
    """−Σ p log w over the edges of some rows, in units of 1/:data:`ENERGY`; each row is rounded by itself."""
    total = 0
    for i in range(first, last):
        of_row = 0.0
        for edge in range(indptr[i], indptr[i + 1]):
            j = columns[edge]
            squared = 0.0
            for k in range(points.shape[1]):
                squared += (points[at + i, k] - points[j, k]) ** 2
            of_row += weights[edge] * (dof * math.log1p(squared / dof) if dof < math.inf else squared)
        total += int(of_row * ENERGY + 0.5)
    return total
