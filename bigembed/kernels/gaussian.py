"""Gaussian weights of the edges of one block, fixed or self-tuned, truncated if asked."""

from __future__ import annotations

import numpy as np

from bigembed.blocks.csr import CSRBlock
from bigembed.blocks.rows import Array


def gaussian_block(squared: Array, epsilon: float, *, truncated: bool = False) -> Array:
    """k = exp(−r²/ε) (seed 000 §9.2); with ``truncated`` zero where r ≥ 3√(ε/2) (seed 000 §9.6, step 1).

    >>> gaussian_block(np.array([0.0, 1.0]), 1.0).round(3).tolist()
    [1.0, 0.368]
    """
    squared = squared.astype(np.float64)
    weights = np.exp(-squared / epsilon)
    return np.where(squared < 4.5 * epsilon, weights, 0.0) if truncated else weights


def self_tuned_block(block: CSRBlock, rho: Array, halo_rho: Array) -> Array:
    """Squared distances over ρ_i ρ_j (Cheng & Wu): to be divided by ε as usual.

    ``rho`` is the distance to the k-th neighbor, (rows,), and that of the halo rows.
    """
    every = np.concatenate([rho, halo_rho])
    own = np.repeat(rho, np.diff(block.indptr))
    return np.asarray(block.data.astype(np.float64) / (own * every[block.indices]))
