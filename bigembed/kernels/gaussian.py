"""Gaussian weights of the edges of one block: one scale for all rows, or scales that follow their density."""

from __future__ import annotations

import numpy as np

from bigembed.blocks.csr import CSRBlock, mean_squares, products
from bigembed.blocks.rows import Array

LOCAL = ("adaptive", "self-tuned")
"""Kernels whose scale is that of the two rows, and not one number."""
BINARY = "binary"
"""Weight 1 for every edge: the heat kernel after infinite time (seed 000 §9.3)."""
NARROW = 0.5
"""ε of the adaptive kernel: standard deviation ρ/2 (Haghverdi et al. 2016), e⁻² at the k-th neighbor of like rows.

Measured in ``benchmarks/default_maps.py --scales`` against other ε, scales and α.
"""
TRUNCATED = 4.5
"""Squared distance over ε at which a truncated kernel ends: (3√(ε/2))² (seed 000 §9.6, step 1)."""


def gaussian_block(squared: Array, epsilon: float, *, truncated: bool = False, least: float = 0.0) -> Array:
    """k = exp(−r²/ε) (seed 000 §9.2); with ``truncated`` zero where r ≥ 3√(ε/2) (seed 000 §9.6, step 1).

    ``least``: no weight is smaller.

    >>> gaussian_block(np.array([0.0, 1.0]), 1.0).round(3).tolist()
    [1.0, 0.368]
    """
    weights = np.divide(squared, -epsilon, dtype=np.float64)
    np.exp(weights, out=weights)
    if least:
        np.maximum(weights, least, out=weights)
    return np.where(squared < TRUNCATED * epsilon, weights, 0.0) if truncated else weights


def local_squared(squared: Array, rho: Array, other: Array, rule: str) -> Array:
    """Squared distances in units of the scales ρ of their two rows, to be divided by ε.

    "self-tuned" (Zelnik-Manor & Perona; Cheng & Wu): r²/(ρ_i ρ_j). "adaptive": r²/((ρ_i² + ρ_j²)/2), the denominator
    that Haghverdi et al. 2016 take for single cells. With ρ the distance to the k-th neighbor an edge has
    r ≤ max(ρ_i, ρ_j), so what is divided is at most 2 and the adaptive kernel at least e^(−2/ε) on every edge, e⁻⁴ with
    :data:`NARROW`: no row is cut off, however far it lies.
    Where ρ varies smoothly the two have the same limit.

    >>> local_squared(np.array([4.0]), np.array([1.0]), np.array([7.0]), "adaptive").tolist()
    [0.16]
    """
    scale = rho * other if rule == "self-tuned" else (rho**2 + other**2) / 2
    return np.asarray(squared.astype(np.float64) / scale)


def local_squared_block(block: CSRBlock, rho: Array, halo_rho: Array, rule: str) -> Array:
    """:func:`local_squared` of the edges of a block: ``rho`` (rows,), and that of the halo rows."""
    scale = (products if rule == "self-tuned" else mean_squares)(block, rho, halo_rho)
    return np.divide(block.data, scale, out=scale)
