"""Compiled placing of new rows on a map that stays as it is. Importing this imports numba."""

from __future__ import annotations

import numpy as np
from numba import njit

from bigembed.blocks.insertion import insert
from bigembed.blocks.rows import Array
from bigembed.kernels.forces import field_at
from bigembed.kernels.perplexity import precision

ITERATIONS = 250
SHARE = 0.5
"""Of a step to where the attraction of a row would balance the repulsion as it is."""
SETTLED = 1e-7
"""Length of a step at which a row is placed."""
FIRST = 5
"""Nearest rows, at whose median a row starts."""


@njit(cache=True, nogil=True)
def place(
    indptr: Array, squared: Array, points: Array, most: int, perplexity: float, inverse_dof: float, spacing: float,
    low: Array, field: Array, ratio: float, box: Array, axes: tuple[int, ...],
) -> Array:  # fmt: skip
    """Coordinates of new rows from their edges: ``squared`` distances, by number of row, and ``points`` of the map.

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
    for i in range(n):
        count, least = min(most, indptr[i + 1] - indptr[i]), np.inf
        order[:], gaps[:] = -1, np.inf
        for e in range(indptr[i], indptr[i + 1]):
            least = min(least, squared[e])
            insert(order[:count], gaps[:count], e, squared[e])
        for j in range(count):
            gaps[j] -= least
            for k in range(m):
                near[j, k] = points[order[j], k]
        y = out[i]
        for k in range(m):
            y[k] = near[0, k] if least == 0.0 else _median(near[: min(count, FIRST), k])
        if least == 0.0:
            continue
        beta, log_z = precision(gaps, count, perplexity)
        for j in range(count):
            p[j] = np.exp(-beta * gaps[j] - log_z)
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
    """Of a few; NumPy's, which puts many in order, takes seconds to compile."""
    count = len(values)
    numbers, ascending = np.full(count, -1, np.int64), np.full(count, np.inf)
    for j in range(count):
        insert(numbers, ascending, j, values[j])
    return float((ascending[(count - 1) // 2] + ascending[count // 2]) / 2)
