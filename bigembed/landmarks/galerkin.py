"""Functions on all rows from values at landmarks: the subspaces in which a large eigenproblem is solved.

Galerkin (Variational Nyström, Vladymyrov & Carreira-Perpiñán 2016; Locally Linear Landmarks, 2013): row i is
interpolated from its nearest landmarks, x_i ≈ Σ_j P_ij z_j with Σ_j P_ij = 1, and the eigenproblem is solved in the
span of the columns of P. Nyström: the span is that of the few eigenvectors which the landmarks have by themselves,
extended to all rows, by the kernel of the graph.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy import linalg
from scipy.sparse import csr_array

from bigembed.blocks.rows import Array
from bigembed.kernels.functions import squared_distances
from bigembed.kernels.gaussian import BINARY, LOCAL, NARROW, gaussian_block, local_squared
from bigembed.landmarks.barycentric import barycentric_block
from bigembed.landmarks.nystrom import averaged

NEIGHBORS = 5
"""Landmarks that a row is interpolated from."""
RIDGE = 1e-3
"""Added to the Gram matrix of the differences, as a share of its trace: for rows in fewer dimensions than landmarks."""
ROUNDING = 1e-9
"""Share by which the squared distance of two rows may differ, one or the other way round."""
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


@dataclass(frozen=True)
class LandmarkKernel:
    """The kernel of a graph of k neighbors, for landmarks: between each and its k nearest ones, with their scales.

    Where every row is a landmark it is that of the graph, so that its eigenvectors are, too.
    """

    neighbors: int
    rule: str
    """Of :data:`~bigembed.kernels.gaussian.LOCAL`, with ε a pure number; else one ε for all rows, or no scale."""
    epsilon: float
    alpha: float
    truncated: bool = False
    kth: float = 0.0
    """Median squared distance of a row to its k-th neighbor in the graph: one ε grows as that of landmarks does. 0
    where it is not known."""

    def __call__(self, squared: Array, rho: Array, others: Array) -> Array:
        """K (n, L), 0 where neither is near enough to the other; ρ² of the rows, and of the landmarks."""
        if self.rule == BINARY:
            weights = np.ones(squared.shape)
        elif self.rule in LOCAL or not self.kth:
            rule = self.rule if self.rule in LOCAL else LOCAL[0]
            scales = np.sqrt(rho)[:, None], np.sqrt(others)[None]
            epsilon = self.epsilon if self.rule in LOCAL else NARROW
            weights = gaussian_block(local_squared(squared, *scales, rule), epsilon, truncated=self.truncated)
        else:
            epsilon = self.epsilon * max(1.0, float(np.median(others)) / self.kth)
            weights = gaussian_block(squared, epsilon, truncated=self.truncated)
        return np.where(squared <= (1 + ROUNDING) * np.maximum(rho[:, None], others[None]), weights, 0.0)


class LandmarkFunctions:
    """The leading eigenfunctions of the landmarks' own diffusion map (α-normalized, by the kernel of the graph), for
    any row; the first one is constant.

    ψ_l(x) = λ_l^{-1} Σ_j p(x, j) ψ_l(j), p(x, j) ∝ k(x, j) q_j^{−α}; of a row that is a landmark its own entries.
    """

    def __init__(self, landmarks: Array, kernel: LandmarkKernel, count: int) -> None:
        self.points, self.kernel = np.asarray(landmarks, np.float64), kernel
        self.neighbors = min(kernel.neighbors, len(self.points) - 1)
        squared = _symmetric(squared_distances(self.points, self.points))
        np.fill_diagonal(squared, 0.0)
        self.reach = np.partition(squared, self.neighbors, axis=1)[:, self.neighbors]
        weights = kernel(squared, self.reach, self.reach)
        self.density = weights.sum(axis=1)
        weights /= np.outer(self.density, self.density) ** kernel.alpha
        degree = weights.sum(axis=1)
        root = np.sqrt(degree / degree.sum())
        normal = weights / np.sqrt(np.outer(degree, degree)) - 2.0 * np.outer(root, root)  # (1 becomes −1, the last)
        kept = min(count, len(degree)) - 1
        values, vectors = linalg.eigh(normal, subset_by_index=[len(degree) - kept, len(degree) - 1])
        self.values = np.append(1.0, values[::-1])
        self.vectors = np.column_stack([np.ones(len(degree)), vectors[:, ::-1] / root[:, None]])

    @property
    def width(self) -> int:
        """How many functions there are."""
        return len(self.values)

    def __call__(self, rows: Array) -> Array:
        """(n, count)."""
        out = np.empty((len(rows), len(self.values)))
        for start in range(0, len(rows), TILE_ROWS):
            part = np.asarray(rows[start : start + TILE_ROWS], np.float64)
            squared, tile = squared_distances(part, self.points), np.arange(len(part))
            own = np.argmin(squared, axis=1)
            same = (part == self.points[own]).all(axis=1)
            squared[tile[same], own[same]] = 0.0
            reach = np.partition(squared, self.neighbors - 1, axis=1)[:, self.neighbors - 1]
            weights = self.kernel(squared, np.where(same, self.reach[own], reach), self.reach)
            weights *= self.density**-self.kernel.alpha
            out[start : start + TILE_ROWS] = averaged(weights, self.vectors, self.values)
        return out


class WithHalf:
    """The functions of the landmarks, and then those of half of them: how far these differ shows what is missing."""

    def __init__(self, whole: LandmarkFunctions, half: LandmarkFunctions) -> None:
        self.whole, self.half = whole, half

    @property
    def width(self) -> int:
        """How many functions there are of all landmarks."""
        return self.whole.width

    def __call__(self, rows: Array) -> Array:
        """(n, both)."""
        return np.hstack([self.whole(rows), self.half(rows)])


def _symmetric(matrix: Array) -> Array:
    return np.asarray((matrix + matrix.T) / 2)
