"""Rayleigh–Ritz in a basis that need not be orthonormal, from its Gram matrices alone."""

from __future__ import annotations

import numpy as np
from scipy import linalg

from bigembed.blocks.rows import Array

SMALLEST = 1e-8
"""Directions of the scaled basis with a smaller mass eigenvalue are dropped: they magnify rounding by its −½ power."""


def rayleigh_ritz(gram: Array, form: Array, lead: int, smallest: float = SMALLEST) -> tuple[Array, Array]:
    """Largest Ritz values of A in the span of B, and coefficients C with CᵀGC = I.

    gram G = BᵀB, form H = BᵀAB; the first ``lead`` columns (near Ritz vectors) are orthonormalized
    first and the others against them, so that the accuracy of the leading ones does not suffer from
    a badly conditioned rest. Columns are scaled to unit mass; directions of mass below ``smallest`` go.
    """
    size = np.sqrt(np.maximum(np.diag(gram), 0.0))
    scale = np.where(size > 0, 1 / np.where(size > 0, size, 1), 0.0)
    gram = _symmetric(gram * scale[:, None] * scale)
    form = _symmetric(form * scale[:, None] * scale)
    unit = np.eye(len(gram))
    basis = _whitened(gram, unit[:, :lead], smallest)
    rest = unit[:, lead:]
    for _ in range(2):
        rest = rest - basis @ (basis.T @ (gram @ rest))
    mass = np.sqrt(np.maximum(np.einsum("ij,ij->j", rest, gram @ rest), 0.0))
    rest = rest[:, mass > np.sqrt(smallest)] / mass[mass > np.sqrt(smallest)]
    basis = np.concatenate([basis, _whitened(gram, rest, smallest)], axis=1)
    basis = _whitened(gram, basis, smallest)
    values, turn = linalg.eigh(_symmetric(basis.T @ form @ basis))
    return values[::-1].copy(), scale[:, None] * (basis @ turn[:, ::-1])


def _whitened(gram: Array, basis: Array, smallest: float) -> Array:
    if not basis.shape[1]:
        return basis
    mass, turn = linalg.eigh(_symmetric(basis.T @ gram @ basis))
    kept = mass > smallest * max(1.0, float(mass[-1]))
    return np.asarray(basis @ (turn[:, kept] / np.sqrt(mass[kept])))


def _symmetric(matrix: Array) -> Array:
    return np.asarray((matrix + matrix.T) / 2)
