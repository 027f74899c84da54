"""Nyström: eigenvectors on all rows from a kernel with few landmarks, centered as on all rows.

With C = k(X, landmarks) (n, L) and W = k(landmarks, landmarks) the kernel K is replaced by C W⁺ Cᵀ (Williams & Seeger
2001), of which the eigenpairs on all n rows are found exactly: with W = Q Σ Qᵀ, ψ(x) = |Σ|^{-1/2} Qᵀ (k(x) − k̄), k̄ the
mean of k(x) over *all* rows, J = sign Σ and G = Σ_i ψ(x_i) ψ(x_i)ᵀ = U g Uᵀ,

    √g Uᵀ J U √g = Y Λ Yᵀ,      v_l(x) = ψ(x)·U g^{-1/2} y_l,      coordinates √λ_l v_l(x).

The same affine map of k(x) serves rows that were fitted and new ones. J is I for a positive kernel; landmarks that say
the same (duplicates) make W singular, and its null directions are left out.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from scipy import linalg

from bigembed.blocks.rows import Array

RANK = 1e-12
"""Share of the largest eigenvalue of W, and of G, below which a direction is rounding."""
FLOOR = 1e-10
"""Share of the largest eigenvalue of the kernel below which an eigenvalue gives no coordinate."""


@dataclass(frozen=True)
class KernelMap:
    """Coordinates y = (k(x) − mean) matrix, and the eigenvalues they belong to."""

    mean: Array
    """(L,): the mean of k(x) over the fitted rows."""
    matrix: Array
    """(L, m)."""
    values: Array
    """(m,) eigenvalues of the centered kernel, descending, all positive."""
    rank: int
    """Directions of the landmarks that are not rounding."""
    lowest: float
    """Smallest eigenvalue of the centered kernel: below 0 where it is not positive."""
    next: float
    """Largest eigenvalue left out (0 if none is)."""


def centered_map(between: Array, mean: Array, scatter: Array, n_components: int) -> KernelMap:
    """The map of at most m coordinates from W (L, L), k̄ (L,) and S = Σ_i (k(x_i) − k̄)(k(x_i) − k̄)ᵀ (L, L).

    Fewer are returned where fewer eigenvalues are above :data:`FLOOR` of the largest |eigenvalue|; none if all rows
    are the same to the kernel.
    """
    sigma, q = linalg.eigh((between + between.T) / 2)
    good = np.abs(sigma) > RANK * len(sigma) * np.abs(sigma).max(initial=0.0)
    whiten, sign = q[:, good] / np.sqrt(np.abs(sigma[good])), np.sign(sigma[good])
    g, u = linalg.eigh(_symmetric(whiten.T @ scatter @ whiten)) if good.any() else (np.zeros(0), np.zeros((0, 0)))
    large = g > RANK * len(g) * max(float(g.max(initial=0.0)), np.finfo(np.float64).tiny)
    g, u = g[large], u[:, large]
    if not len(g):
        return KernelMap(mean, np.zeros((len(mean), 0)), np.zeros(0), int(good.sum()), 0.0, 0.0)
    root = np.sqrt(g)
    values, y = linalg.eigh(_symmetric(root[:, None] * (u.T @ (sign[:, None] * u)) * root))
    values, y = values[::-1], y[:, ::-1]
    positive = int(np.sum(values > FLOOR * np.abs(values).max(initial=0.0)))
    kept = min(n_components, positive)
    matrix = whiten @ (u / root) @ (y[:, :kept] * np.sqrt(values[:kept]))
    left = float(max(values[kept], 0.0)) if len(values) > kept else 0.0
    return KernelMap(mean, matrix, values[:kept].copy(), int(good.sum()), float(values.min(initial=0.0)), left)


def averaged(weights: Array, values: Array, eigenvalues: Array) -> Array:
    """ψ_l(x) = λ_l^{-1} Σ_j p(x, j) ψ_l(j), p = weights (n, L) scaled to row sums 1; 0 where λ_l = 0 or a row has none.

    >>> averaged(np.array([[1.0, 3.0]]), np.array([[0.0], [4.0]]), np.array([0.5])).tolist()
    [[6.0]]
    """
    total = weights.sum(axis=1, keepdims=True)
    return divided((weights @ values) / np.where(total > 0, total, 1.0), eigenvalues)


def divided(mean: Array, eigenvalues: Array) -> Array:
    """Averages over λ, where λ ≠ 0."""
    return np.asarray(np.where(eigenvalues == 0, 0.0, mean / np.where(eigenvalues == 0, 1.0, eigenvalues)))


def _symmetric(matrix: Array) -> Array:
    return np.asarray((matrix + matrix.T) / 2)
