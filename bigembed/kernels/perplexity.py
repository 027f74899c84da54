"""Compiled kernels of the affinities of t-SNE: a precision for each row by its perplexity, and joint probabilities.

p_{j|i} = exp(−β_i (‖x_i − x_j‖² − m_i))/Z_i over the list of row i, m_i its least squared distance, with β_i so that
the entropy −Σ p log p is log(perplexity) (seed 000 eqs. 13, 14); p_ij = (p_{j|i} + p_{i|j})/2n (eq. 15). The list of a
row are its edges no farther than its k-th neighbor. Importing this imports numba.
"""

from __future__ import annotations

import math

import numpy as np
from numba import njit

from bigembed.blocks.rows import Array

SCALE = 5
"""Numbers that a row's affinities follow from: ρ² and id of its k-th neighbor, β, m, log Z."""
BISECTIONS = 100
WITHIN = 1e-10
"""Of log(perplexity), where the bisection ends."""


@njit(cache=True, nogil=True)
def precision(gaps: Array, count: int, perplexity: float) -> tuple[float, float]:
    """β and log Z = log Σ exp(−β g) of the entropy log(perplexity), for gaps g ≥ 0, the first ``count``, one of them 0.

    Where no β has it, because too few gaps are there or too many are 0, the one that comes nearest: p is then even over
    all, or over those that are 0.
    """
    mean = 0.0
    for j in range(count):
        mean += gaps[j] / count
    if mean == 0.0 or count <= perplexity:
        return 0.0, math.log(max(count, 1))
    target, beta, low, high = math.log(perplexity), 1.0 / mean, 0.0, math.inf
    log_z = 0.0
    for _ in range(BISECTIONS):
        total, weighted = 0.0, 0.0
        for j in range(count):
            weight = math.exp(-beta * gaps[j])
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
    """Whether a row at this distance is in the list of another one, whose k-th neighbor is at ``reach``."""
    return squared < reach or (squared == reach and number <= last)


@njit(cache=True, nogil=True)
def calibrate(
    indptr: Array, indices: Array, squared: Array, ids: Array, reach: Array, last: Array, perplexity: float
) -> Array:
    """(ρ², id of the k-th neighbor, β, m, log Z) of each row of a block of squared distances, (rows, 5)."""
    rows = indptr.shape[0] - 1
    out = np.empty((rows, SCALE))
    widest = 0
    for i in range(rows):
        widest = max(widest, indptr[i + 1] - indptr[i])
    gaps = np.empty(widest)
    for i in range(rows):
        count, least = 0, math.inf
        for edge in range(indptr[i], indptr[i + 1]):
            j = indices[edge]
            if j != i and listed(squared[edge], ids[j], reach[i], last[i]):
                gaps[count] = squared[edge]
                least = min(least, gaps[count])
                count += 1
        for j in range(count):
            gaps[j] -= least
        beta, log_z = precision(gaps, count, perplexity)
        out[i, 0], out[i, 1], out[i, 2], out[i, 3], out[i, 4] = reach[i], last[i], beta, least, log_z
    return out


@njit(cache=True, nogil=True)
def _conditional(squared: float, number: int, scale: Array) -> float:
    """p_{j|i} of the row numbered j, of row i of this scale."""
    if not listed(squared, number, scale[0], scale[1]):
        return 0.0
    return math.exp(-scale[2] * (squared - scale[3]) - scale[4])


@njit(cache=True, nogil=True)
def joint(
    indptr: Array, indices: Array, squared: Array, ids: Array, scales: Array, n: int
) -> tuple[Array, float, float]:
    """p_ij of the edges of a block, float32, Σ p_ij and Σ p_ij log p_ij; ``scales`` of its rows, then of its halo."""
    out = np.zeros(len(squared), np.float32)
    total, plogp = 0.0, 0.0
    for i in range(indptr.shape[0] - 1):
        for edge in range(indptr[i], indptr[i + 1]):
            j = indices[edge]
            if j == i:
                continue
            value = np.float64(squared[edge])
            mine, theirs = _conditional(value, ids[j], scales[i]), _conditional(value, ids[i], scales[j])
            out[edge] = (mine + theirs) / (2.0 * n)
            p = np.float64(out[edge])
            if p > 0.0:
                total += p
                plogp += p * math.log(p)
    return out, total, plogp
