"""α-normalization of a kernel by blocks: K_ij / (q_i q_j)^α (seed 003; seed 000 eqs. 53–56)."""

from __future__ import annotations

import numpy as np

from bigembed.blocks.csr import CSRBlock, products
from bigembed.blocks.rows import Array


def row_sums(indptr: Array, data: Array) -> Array:
    """Σ_j of each row of a CSR block in float64, in the order of the stored entries; empty rows give 0."""
    sums = np.zeros(len(indptr) - 1)
    filled = np.flatnonzero(np.diff(indptr))
    if len(filled):
        sums[filled] = np.add.reduceat(data.astype(np.float64), indptr[filled])
    return sums


def normalize_block(block: CSRBlock, weights: Array, q: Array, halo_q: Array, alpha: float) -> Array:
    """K_ij / (q_i q_j)^α. The product q_i q_j is taken first, so the result is symmetric to the last bit.

    α = 0 leaves K. The right normalization K Q^{-α} of seed 000 (eq. 55) gives the same Markov
    matrix after its rows are normalized, since q_i^{−α} cancels there.
    """
    if alpha == 0:
        return weights
    both = products(block, q, halo_q)
    both **= alpha
    return np.divide(weights, both, out=both)
