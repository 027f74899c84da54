"""Barycentric weights: a row as an affine combination of rows near it (Roweis & Saul 2000, seed 000 §7)."""

from __future__ import annotations

import numpy as np

from bigembed.blocks.rows import Array

ENTRIES = 1 << 20
"""Numbers of a tile of differences."""


def barycentric_block(rows: Array, points: Array, ids: Array, ridge: float) -> Array:
    """Weights (n, q) on the points (p, d) of numbers ``ids`` (n, q), summing to 1, that reconstruct each row best.

    w minimizes ‖x − Σ_j w_j z_j‖² + ridge·tr(C)·‖w‖² with Σ w = 1, C_jk = (z_j − x)·(z_k − x) (seed 000 eq. 3):
    w ∝ (C + ridge·tr(C) I)⁻¹ 1, and equal weights where all the points equal the row. In float64.

    >>> barycentric_block(np.array([[0.25]]), np.array([[0.0], [1.0]]), np.array([[0, 1]]), 1e-3).round(2).tolist()
    [[0.75, 0.25]]
    """
    count, q = ids.shape
    out = np.empty((count, q))
    step = max(1, ENTRIES // max(1, q * rows.shape[1]))
    for start in range(0, count, step):
        part = slice(start, start + step)
        out[part] = affine_weights(points[ids[part]] - rows[part, None], ridge)
    return out


def affine_weights(difference: Array, ridge: float) -> Array:
    """w (n, q) of :func:`barycentric_block` from the differences z_j − x (n, q, d)."""
    q = difference.shape[1]
    gram = np.einsum("nqd,npd->nqp", difference, difference)
    added = ridge * np.einsum("nqq->n", gram)
    gram[:, np.arange(q), np.arange(q)] += np.where(added > 0, added, 1.0)[:, None]
    solved = np.linalg.solve(gram, np.ones((len(gram), q, 1)))[:, :, 0]
    return np.asarray(solved / solved.sum(axis=1, keepdims=True))
