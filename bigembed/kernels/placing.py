"""Compiled placing of new rows on a map that stays as it is. Importing this imports numba."""

from __future__ import annotations

import numpy as np
from numba import njit

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
    for i in range(n):
        mine = squared[indptr[i] : indptr[i + 1]].astype(np.float64)
        order = np.argsort(mine, kind="mergesort")[:most]
        near = points[indptr[i] + order]
        if mine[order[0]] == 0.0:
            out[i] = near[0]
            continue
        gaps = mine[order] - mine[order[0]]
        beta, log_z = precision(gaps, len(gaps), perplexity)
        for j in range(len(gaps)):
            p[j] = np.exp(-beta * gaps[j] - log_z)
        y = out[i]
        for k in range(m):
            y[k] = np.median(near[:FIRST, k])
        for _ in range(ITERATIONS):
            total, length = 0.0, 0.0
            field_at(y, axes, spacing, low, field, stencil, nodes, push)
            for k in range(m):
                moved[k] = ratio * push[k]
            for j in range(len(gaps)):
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
