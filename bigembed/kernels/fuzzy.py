"""Compiled kernels of the memberships of UMAP: a bandwidth for each row by its list of neighbors, their fuzzy union.

a_{j|i} = exp(−max(0, d_ij − ρ_i)/σ_i) over the list of row i, ρ_i the distance to its nearest neighbor that is not at
the same place, and σ_i so that Σ_j a_{j|i} = log₂(k + 1) for k neighbors (McInnes et al. 2018, §3.1; umap-learn counts
the row itself: its k is k + 1 here). w_ij = a_{j|i} + a_{i|j} − a_{j|i} a_{i|j}. The list of a row are its edges no
farther than its k-th neighbor. Importing this imports numba.
"""

from __future__ import annotations

import math

import numpy as np
from numba import njit

from bigembed.blocks.rows import Array
from bigembed.kernels.perplexity import listed

SCALE = 4
"""Numbers that a row's memberships follow from: ρ² and id of its k-th neighbor, ρ, σ."""
BISECTIONS = 64
WITHIN = 1e-9
"""Of log₂(k + 1), where the bisection ends."""
LEAST = 1e-3
"""Of the mean distance in the list of a row, itself included: the smallest σ."""


@njit(cache=True, nogil=True)
def bandwidth(distances: Array, count: int, k: int, connectivity: float) -> tuple[float, float]:
    """ρ and σ of a row from the first ``count`` of its distances, which are put in ascending order.

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
    """a of a row at this distance."""
    return math.exp(-max(0.0, distance - rho) / sigma)


@njit(cache=True, nogil=True)
def calibrate(
    indptr: Array, indices: Array, squared: Array, ids: Array, reach: Array, last: Array, k: int, connectivity: float
) -> Array:
    """(ρ² and id of the k-th neighbor, ρ, σ) of each row of a block of squared distances, (rows, 4)."""
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
    """w_ij of the edges of a block, float32: of union and intersection ``mix`` and 1 − ``mix``.

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
