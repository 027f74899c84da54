"""Compiled kernels of t-SNE: precisions of the affinities, attraction and repulsion, and new rows. Importing this
imports numba.
"""

from __future__ import annotations

import math

import numpy as np
from numba import njit

from bigembed.maps.descent import FINE_UNIT
from bigembed.runtime.arithmetic import insert
from bigembed.runtime.blocks import Array

# ------------------------------------------------------------------------------------------------------ perplexity
# Compiled kernels of the affinities of t-SNE: a precision for each row by its perplexity, and joint probabilities.
#
# p_{j|i} = exp(−β_i (‖x_i − x_j‖² − m_i))/Z_i over the list of row i, m_i its least squared distance, with β_i so
# that the entropy −Σ p log p is log(perplexity) (seed 000 eqs. 13, 14); p_ij = (p_{j|i} + p_{i|j})/2n (eq. 15). The
# list of a row are its edges no farther than its k-th neighbor.
#
# A row of mass w is w rows at one place. So p_{j|i} = w_j exp(…)/Z_i, the entropy is that over the copies, of which
# the others of row i lie at distance 0, and p_ij = w_i w_j (exp(…)/Z_i + exp(…)/Z_j)/2n holds all pairs of copies.
# Masses have mean 1; without weights all are 1, and no row has another copy.

SCALE = 5
"""Numbers that a row's affinities follow from: ρ² and id of its k-th neighbor, β, m, log Z."""
BISECTIONS = 100
WITHIN = 1e-10
"""Of log(perplexity), where the bisection ends."""


@njit(cache=True, nogil=True)
def copies(mass: float, single: float, perplexity: float) -> float:
    """Return what the other copies of a row weigh, one of which weighs ``single``: half of the perplexity at the most,
    so that a heavy row is still drawn to others."""
    return max(0.0, min(mass - single, 0.5 * perplexity))


@njit(cache=True, nogil=True)
def precision(gaps: Array, masses: Array, count: int, own: float, perplexity: float) -> tuple[float, float]:
    """Return β and log Z = log Σ m exp(−β g) for the entropy log(perplexity) of ``count`` gaps ≥ 0, one of which is 0.

    Each gap has the mass m of ``masses``, and is one for each of that many copies; a mass ``own`` has the gap 0. Where
    no β has the entropy, because too few gaps are there or too many are 0, the one that comes nearest: p is then even
    over all, or over those that are 0.
    """
    all_mass, mean = own, 0.0
    for j in range(count):
        all_mass += masses[j]
    for j in range(count):
        mean += masses[j] * gaps[j] / all_mass
    if mean == 0.0 or all_mass <= perplexity:
        return 0.0, math.log(all_mass if all_mass > 0.0 else 1.0)
    target, beta, low, high = math.log(perplexity), 1.0 / mean, 0.0, math.inf
    log_z = 0.0
    for _ in range(BISECTIONS):
        total, weighted = own, 0.0
        for j in range(count):
            weight = masses[j] * math.exp(-beta * gaps[j])
            total += weight
            weighted += weight * gaps[j]
        log_z = math.log(total)
        entropy = log_z + beta * weighted / total
        if abs(entropy - target) < WITHIN or beta * mean > 1e18:
            break
        if entropy > target:
            low = beta
            beta = 2.0 * beta if high == math.inf else 0.5 * (low + high)
        else:
            high = beta
            beta = 0.5 * (low + high)
    return beta, log_z


@njit(cache=True, nogil=True)
def listed(squared: float, number: int, reach: float, last: float) -> bool:
    """Say whether a row at this distance is in the list of another one, whose k-th neighbor is at ``reach``."""
    return squared < reach or (squared == reach and number <= last)


@njit(cache=True, nogil=True)
def calibrate(
    indptr: Array, indices: Array, squared: Array, ids: Array, reach: Array, last: Array, perplexity: float,
    masses: Array, single: float,
) -> Array:  # fmt: skip
    """Return (ρ², id of the k-th neighbor, β, m, log Z) of each row of a block of squared distances, (rows, 5).

    ``masses`` of the rows and of the halo; ``single``, what one copy of a row weighs.
    """
    rows = indptr.shape[0] - 1
    out = np.empty((rows, SCALE))
    widest = 0
    for i in range(rows):
        widest = max(widest, indptr[i + 1] - indptr[i])
    gaps, near = np.empty(widest), np.empty(widest)
    for i in range(rows):
        own = copies(masses[i], single, perplexity)
        count, least = 0, math.inf if own == 0.0 else 0.0
        for edge in range(indptr[i], indptr[i + 1]):
            j = indices[edge]
            if j != i and listed(squared[edge], ids[j], reach[i], last[i]):
                gaps[count], near[count] = squared[edge], masses[j]
                least = min(least, gaps[count])
                count += 1
        for j in range(count):
            gaps[j] -= least
        beta, log_z = precision(gaps, near, count, own, perplexity)
        out[i, 0], out[i, 1], out[i, 2], out[i, 3], out[i, 4] = reach[i], last[i], beta, least, log_z
    return out


@njit(cache=True, nogil=True)
def _conditional(squared: float, number: int, scale: Array) -> float:
    """Return p_{j|i} of one copy of the row numbered j, of row i of this scale."""
    if not listed(squared, number, scale[0], scale[1]):
        return 0.0
    return math.exp(-scale[2] * (squared - scale[3]) - scale[4])


@njit(cache=True, nogil=True)
def joint(
    indptr: Array, indices: Array, squared: Array, ids: Array, scales: Array, n: int, masses: Array, single: float,
    perplexity: float,
) -> tuple[Array, float, float]:  # fmt: skip
    """Return p_ij of the edges of a block, float32, Σ p_ij and Σ p_ij log(p_ij/w_i w_j), by the scales and masses of
    rows and halo. The sums are those over all pairs of copies, also of one row."""
    out = np.zeros(len(squared), np.float32)
    total, plogp = 0.0, 0.0
    for i in range(indptr.shape[0] - 1):
        for edge in range(indptr[i], indptr[i + 1]):
            j = indices[edge]
            if j == i:
                continue
            value = np.float64(squared[edge])
            mine, theirs = _conditional(value, ids[j], scales[i]), _conditional(value, ids[i], scales[j])
            out[edge] = masses[i] * masses[j] * (mine + theirs) / (2.0 * n)
            p = np.float64(out[edge])
            if p > 0.0:
                total += p
                plogp += p * math.log(p / (masses[i] * masses[j]))
        own = copies(masses[i], single, perplexity)
        if own > 0.0:
            each = math.exp(-scales[i, 4]) / n
            total += masses[i] * own * each
            plogp += masses[i] * own * each * math.log(each)
    return out, total, plogp


# ---------------------------------------------------------------------------------------------------------- forces
# Compiled kernels of maps by attraction and repulsion: each point on a lattice, and one step of each.
#
# The similarity of two points at distance r is w = (1 + r²/ν)^{−ν}: Student's kernel of t-SNE for ν = 1, exp(−r²) of
# SNE for ν = ∞, heavier tails below 1 (Kobak et al. 2019). Attraction needs 1/(1 + r²/ν) only. Repulsion is read from
# a field on a lattice (:mod:`bigembed.maps.tsne.descent`), by cubic B-splines.
#
# Every row is computed by itself, in the order of its edges, and what is added up over rows are integers: the same
# bytes for any division of the rows.

UNIT = 2.0**36
"""A charge of 1 on the lattice: integers have the same sum in any order. A node may hold 2²⁷ rows."""
LEAST_GAIN = 0.01


@njit(cache=True, nogil=True, inline="always")
def _stencil(u: float, weights: Array, axis: int) -> int:
    """Set the weights of the four nodes around u, and return the number of the first."""
    first = math.floor(u)
    t = u - first
    s = 1.0 - t
    weights[axis, 0] = s * s * s / 6.0
    weights[axis, 1] = (3.0 * t * t * t - 6.0 * t * t + 4.0) / 6.0
    weights[axis, 2] = (3.0 * s * s * s - 6.0 * s * s + 4.0) / 6.0
    weights[axis, 3] = t * t * t / 6.0
    return int(first) - 1


@njit(cache=True, nogil=True)
def spread_charges(
    points: Array, axes: tuple[int, ...], spacing: float, low: Array, charges: Array, masses: Array
) -> None:
    """Add each point's mass to the nodes around it: ``charges`` int64 (s_0, s_1, s_2), the first node at ``low``.

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
                outer = weights[0, a] * weights[1, b] * UNIT * masses[i]
                for c in range(4):
                    charges[first[0] + a, first[1] + b, first[2] + c] += np.int64(outer * weights[2, c] + 0.5)


@njit(cache=True, nogil=True)
def field_at(
    point: Array, axes: tuple[int, ...], spacing: float, low: Array, field: Array, weights: Array, first: Array,
    out: Array,
) -> None:  # fmt: skip
    """Set ``out`` to the field (s_0, s_1, s_2, m) at a point (m,) inside the lattice; ``weights``, ``first``: to work
    in."""
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
    inverse_dof: float, spacing: float, low: Array, field: Array, total: float, options: Array, masses: Array,
    velocity: Array, gains: Array, out: Array,
) -> None:  # fmt: skip
    """Make one step of the rows ``first:last`` of a block whose row 0 is ``points[at]``.

    ``options``: exaggeration ε, learning rate, momentum, compression λ, longest step, whether gains adapt. The gradient
    is ε Σ_j p_ij (y_i − y_j)/(1 + r²/ν) − Σ_j w_ij (y_i − y_j)/(1 + r²/ν)/Z + λ y_i: seed 000 eq. 19 over 4. Of a row
    of a mass (``masses`` of the block) it is that of one copy: p_ij over the mass.
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
            gradient = exaggeration * pull[k] / masses[i] - push[k] / total + compression * own[k]
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
    """Return −Σ p log w over the edges of some rows, in units of 1/:data:`FINE_UNIT`; each row is rounded by itself."""
    total = 0
    for i in range(first, last):
        of_row = 0.0
        for edge in range(indptr[i], indptr[i + 1]):
            j = columns[edge]
            squared = 0.0
            for k in range(points.shape[1]):
                squared += (points[at + i, k] - points[j, k]) ** 2
            of_row += weights[edge] * (dof * math.log1p(squared / dof) if dof < math.inf else squared)
        total += int(of_row * FINE_UNIT + 0.5)
    return total


# --------------------------------------------------------------------------------------------------------- placing
# Compiled places of new rows on a map that stays as it is.

ITERATIONS = 250
SHARE = 0.5
"""Of a step to where the attraction of a row would balance the repulsion as it is."""
SETTLED = 1e-7
"""Length of a step at which a row is placed."""
FIRST = 5
"""Nearest rows, at whose median a row starts."""


@njit(cache=True, nogil=True)
def place(
    indptr: Array, squared: Array, points: Array, masses: Array, most: int, perplexity: float, inverse_dof: float,
    spacing: float, low: Array, field: Array, ratio: float, box: Array, axes: tuple[int, ...],
) -> Array:  # fmt: skip
    """Return coordinates of new rows by their edges: ``squared`` distances by number of row, ``points`` of the map and
    their ``masses``.

    Each row has y with Σ_j p_j (y − y_j)/(1 + r²/ν) = n/Z Σ_j w_j (y − y_j)/(1 + r²/ν): the forces that a fitted row
    would have there, the left one over its ``most`` nearest rows, p of the given perplexity, the right one over all
    rows (``field``; ``ratio`` is n/Z). A row that equals fitted ones is where the first of them is. ``box`` (2, m) of
    the map holds all.
    """
    m, n = len(axes), indptr.shape[0] - 1
    out = np.empty((n, m))
    stencil, nodes = np.ones((3, 4)), np.zeros(3, np.int64)
    push, moved, p = np.empty(m), np.empty(m), np.empty(most)
    order, gaps, near = np.empty(most, np.int64), np.empty(most), np.empty((most, m))
    weighing = np.empty(most)
    for i in range(n):
        count, least = min(most, indptr[i + 1] - indptr[i]), np.inf
        order[:], gaps[:] = -1, np.inf
        for e in range(indptr[i], indptr[i + 1]):
            least = min(least, squared[e])
            insert(order[:count], gaps[:count], e, squared[e])
        for j in range(count):
            gaps[j] -= least
            weighing[j] = masses[order[j]]
            for k in range(m):
                near[j, k] = points[order[j], k]
        y = out[i]
        for k in range(m):
            y[k] = near[0, k] if least == 0.0 else _median(near[: min(count, FIRST), k])
        if least == 0.0:
            continue
        beta, log_z = precision(gaps, weighing, count, 0.0, perplexity)
        for j in range(count):
            p[j] = weighing[j] * np.exp(-beta * gaps[j] - log_z)
        for _ in range(ITERATIONS):
            total, length = 0.0, 0.0
            field_at(y, axes, spacing, low, field, stencil, nodes, push)
            for k in range(m):
                moved[k] = ratio * push[k]
            for j in range(count):
                r = 0.0
                for k in range(m):
                    r += (y[k] - near[j, k]) ** 2
                weight = p[j] / (1.0 + r * inverse_dof)
                total += weight
                for k in range(m):
                    moved[k] -= weight * (y[k] - near[j, k])
            for k in range(m):
                moved[k] = min(box[1, k], max(box[0, k], y[k] + SHARE * moved[k] / total))
                length = max(length, abs(moved[k] - y[k]))
                y[k] = moved[k]
            if length < SETTLED:
                break
    return out


@njit(cache=True, nogil=True)
def _median(values: Array) -> float:
    """Return the median of a few; NumPy's, which puts many in order, takes seconds to compile."""
    count = len(values)
    numbers, ascending = np.full(count, -1, np.int64), np.full(count, np.inf)
    for j in range(count):
        insert(numbers, ascending, j, values[j])
    return float((ascending[(count - 1) // 2] + ascending[count // 2]) / 2)
