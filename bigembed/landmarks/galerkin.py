"""Functions on all rows from values at landmarks: the subspaces in which a large eigenproblem is solved.

Galerkin (Variational Nyström, Vladymyrov & Carreira-Perpiñán 2016; Locally Linear Landmarks, 2013): row i is
interpolated from its nearest landmarks, x_i ≈ Σ_j P_ij z_j with Σ_j P_ij = 1, and the eigenproblem is solved in the
span of the columns of P. Nyström: the span is that of the few eigenvectors which the landmarks have by themselves,
extended to all rows.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from scipy import linalg
from scipy.sparse import csr_array

from bigembed.blocks.rows import Array
from bigembed.kernels.functions import squared_distances
from bigembed.landmarks.barycentric import barycentric_block
from bigembed.landmarks.nystrom import averaged

NEIGHBORS = 5
"""Landmarks that a row is interpolated from."""
RIDGE = 1e-3
"""Added to the Gram matrix of the differences, as a share of its trace: for rows in fewer dimensions than landmarks."""
TILE_ROWS = 2_048


def barycentric_rows(rows: Array, landmarks: Array) -> Any:
    """P (n, L) as CSR: the weights on the nearest landmarks, summing to 1, that reconstruct each row best.

    w minimizes ‖x − Σ_j w_j z_j‖² + RIDGE·tr(C) ‖w‖² with Σ w = 1, C_jk = (z_j − x)·(z_k − x).

    >>> barycentric_rows(np.array([[0.25]]), np.array([[0.0], [1.0]])).toarray().round(2).tolist()
    [[0.75, 0.25]]
    """
    q = min(NEIGHBORS, len(landmarks))
    ids, weights = np.empty((len(rows), q), np.int64), np.empty((len(rows), q))
    points = np.asarray(landmarks, np.float64)
    for start in range(0, len(rows), TILE_ROWS):
        tile = slice(start, start + TILE_ROWS)
        part = np.asarray(rows[tile], np.float64)
        ids[tile] = nearest(squared_distances(part, points), q)
        weights[tile] = barycentric_block(part, points, ids[tile], RIDGE)
    indptr = np.arange(0, q * len(rows) + 1, q)
    return csr_array((weights.ravel(), ids.ravel(), indptr), shape=(len(rows), len(points)))


def nearest(squared: Array, q: int) -> Array:
    """Columns of the q smallest of each row, ascending, ties by column."""
    if q == squared.shape[1]:
        return np.argsort(squared, axis=1, kind="stable")
    found = np.sort(np.argpartition(squared, q - 1, axis=1)[:, :q], axis=1)
    order = np.argsort(np.take_along_axis(squared, found, axis=1), axis=1, kind="stable")
    return np.take_along_axis(found, order, axis=1)


class LandmarkFunctions:
    """The leading eigenfunctions of the landmarks' own diffusion map (α-normalized, complete), for any row.

    ψ_l(x) = λ_l^{-1} Σ_j p(x, j) ψ_l(j), p(x, j) ∝ exp(−‖x − z_j‖²/ε) q_j^{−α}. ε is the median squared distance of a
    landmark to its fifth neighbor.
    """

    def __init__(self, landmarks: Array, alpha: float, count: int) -> None:
        self.points = np.asarray(landmarks, np.float64)
        squared = squared_distances(self.points, self.points)
        q = min(NEIGHBORS, len(squared) - 1)
        self.epsilon = float(np.median(np.partition(squared, q, axis=1)[:, q]))
        kernel = np.exp(-squared / self.epsilon)
        self.density = kernel.sum(axis=1)
        self.alpha = alpha
        weights = kernel / np.outer(self.density, self.density) ** alpha
        degree = weights.sum(axis=1)
        values, vectors = linalg.eigh(weights / np.sqrt(np.outer(degree, degree)))
        kept = min(count, len(values))
        self.values = values[::-1][:kept].copy()
        self.vectors = vectors[:, ::-1][:, :kept] / np.sqrt(degree)[:, None]

    def __call__(self, rows: Array) -> Array:
        """(n, count); a row far from every landmark has the values of the nearest."""
        out = np.empty((len(rows), len(self.values)))
        for start in range(0, len(rows), TILE_ROWS):
            squared = squared_distances(np.asarray(rows[start : start + TILE_ROWS], np.float64), self.points)
            squared -= squared.min(axis=1, keepdims=True)
            weights = np.exp(-squared / self.epsilon) * self.density**-self.alpha
            out[start : start + TILE_ROWS] = averaged(weights, self.vectors, self.values)
        return out
