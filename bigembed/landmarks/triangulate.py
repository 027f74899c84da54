"""Landmark MDS: the landmarks by classical scaling, every other row by its distances to them (seed 000 §3).

With Δ the squared distances of L landmarks, B = −½ H Δ H = V Λ Vᵀ, a row with squared distances δ to them lies at
−½ L^# (δ − μ), where L^# has the rows v_iᵀ/√λ_i and μ is the mean column of Δ (de Silva & Tenenbaum 2004, §2).
"""

from __future__ import annotations

import numpy as np
from scipy import linalg

from bigembed.blocks.affine import Affine
from bigembed.blocks.rows import Array

FLOOR = 1e-10
"""Eigenvalues below this share of the largest are rounding."""


def triangulated(distances: Array, found: Affine) -> Array:
    """Coordinates (n, m) of rows by their distances (n, L), not squared; each row the same whatever the batch."""
    return found(np.square(distances, dtype=np.float64))


def classical(squared: Array, n_components: int) -> tuple[Affine, Array]:
    """The map of landmarks with squared distances Δ (L, L), and all eigenvalues of B, descending (L,).

    Coordinates are kept of the at most m eigenvalues above :data:`FLOOR` of the largest; the others are zero columns.
    """
    mean = squared.mean(axis=0)
    values, vectors = linalg.eigh(centered(squared, mean))
    values, vectors = values[::-1].copy(), vectors[:, ::-1]
    floor = FLOOR * max(float(values[0]), 0.0)
    return scaled(mean, values[:n_components], vectors[:, :n_components], n_components, floor), values


def centered(squared: Array, mean: Array) -> Array:
    """B = −½ H Δ H (L, L) from Δ and its mean column."""
    found = -0.5 * (squared - mean - mean[:, None] + mean.mean())
    return np.asarray((found + found.T) / 2)


def scaled(mean: Array, values: Array, vectors: Array, n_components: int, floor: float) -> Affine:
    """The map of eigenpairs of B: the columns −½ v_i/√λ_i, and zero columns where λ_i is not above ``floor``."""
    good = values > floor
    matrix = np.zeros((len(mean), n_components))
    matrix[:, np.flatnonzero(good)] = -0.5 * vectors[:, good] / np.sqrt(values[good])
    return Affine(mean, matrix, np.zeros(n_components))


def principal_axes(count: float, total: Array, products: Array) -> tuple[Array, Array, Array]:
    """Rotation (m, m) and offset (m,) to principal axes about the mean, and the sums of squares along them, descending.

    From the number of rows, Σ y (m,) and Σ y yᵀ (m, m).
    """
    mean = total / max(count, 1)
    scatter = products - count * np.outer(mean, mean)
    values, vectors = linalg.eigh((scatter + scatter.T) / 2)
    turn = vectors[:, ::-1]
    return turn, -mean @ turn, np.maximum(values[::-1], 0.0)
