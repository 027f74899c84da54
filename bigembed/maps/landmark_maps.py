"""Functions on all rows from values at landmarks: triangulation, barycentric weights, Nyström and Galerkin
subspaces.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy import linalg
from scipy.sparse import csr_array

from bigembed.maps.kernels import BINARY, LOCAL, NARROW, gaussian_block, local_squared, squared_distances
from bigembed.rows.row_maps import Affine
from bigembed.runtime.blocks import Array

# ----------------------------------------------------------------------------------------------------- barycentric
# Barycentric weights: a row as an affine combination of rows near it (Roweis & Saul 2000, seed 000 §7).

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


# ----------------------------------------------------------------------------------------------------- triangulate
# Landmark MDS: the landmarks by classical scaling, every other row by its distances to them (seed 000 §3).
#
# With Δ the squared distances of L landmarks, B = −½ H Δ H = V Λ Vᵀ, a row with squared distances δ to them lies at
# −½ L^# (δ − μ), where L^# has the rows v_iᵀ/√λ_i and μ is the mean column of Δ (de Silva & Tenenbaum 2004, §2).

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


def centered(squared: Array, mean: Array, weights: Array | None = None) -> Array:
    """B = −½ H Δ H (L, L) from Δ and its mean column; √w B √w with weights, by which the mean is taken, too."""
    found = -0.5 * (squared - mean - mean[:, None] + np.average(mean, weights=weights))
    if weights is not None:
        found *= np.sqrt(np.outer(weights, weights))
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


# --------------------------------------------------------------------------------------------------------- nystrom
# Nyström: eigenvectors on all rows from a kernel with few landmarks, centered as on all rows.
#
# With C = k(X, landmarks) (n, L) and W = k(landmarks, landmarks) the kernel K is replaced by C W⁺ Cᵀ (Williams &
# Seeger 2001), of which the eigenpairs on all n rows are found exactly: with W = Q Σ Qᵀ, ψ(x) = |Σ|^{-1/2} Qᵀ (k(x) −
# k̄), k̄ the mean of k(x) over *all* rows, J = sign Σ and G = Σ_i ψ(x_i) ψ(x_i)ᵀ = U g Uᵀ,
#
#     √g Uᵀ J U √g = Y Λ Yᵀ,      v_l(x) = ψ(x)·U g^{-1/2} y_l,      coordinates √λ_l v_l(x).
#
# The same affine map of k(x) serves rows that were fitted and new ones. J is I for a positive kernel; landmarks that
# say the same (duplicates) make W singular, and its null directions are left out.

RANK = 1e-12
"""Share of the largest eigenvalue of W, and of G, below which a direction is rounding."""
NYSTROM_FLOOR = 1e-10
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
    positive = int(np.sum(values > NYSTROM_FLOOR * np.abs(values).max(initial=0.0)))
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


# -------------------------------------------------------------------------------------------------------- galerkin
# Functions on all rows from values at landmarks: the subspaces in which a large eigenproblem is solved.
#
# Galerkin (Variational Nyström, Vladymyrov & Carreira-Perpiñán 2016; Locally Linear Landmarks, 2013): row i is
# interpolated from its nearest landmarks, x_i ≈ Σ_j P_ij z_j with Σ_j P_ij = 1, and the eigenproblem is solved in the
# span of the columns of P. Nyström: the span is that of the few eigenvectors which the landmarks have by themselves,
# extended to all rows, by the kernel of the graph.

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
    kernel: str
    """Of :data:`~bigembed.maps.kernels.LOCAL`, with ε a pure number; else one ε for all rows, or no scale."""
    epsilon: float
    alpha: float
    truncated: bool = False
    kth: float = 0.0
    """Median squared distance of a row to its k-th neighbor in the graph: one ε grows as that of landmarks does. 0
    where it is not known."""

    def __call__(self, squared: Array, rho: Array, others: Array) -> Array:
        """K (n, L), 0 where neither is near enough to the other; ρ² of the rows, and of the landmarks."""
        if self.kernel == BINARY:
            weights = np.ones(squared.shape)
        elif self.kernel in LOCAL or not self.kth:
            kernel = self.kernel if self.kernel in LOCAL else LOCAL[0]
            scales = np.sqrt(rho)[:, None], np.sqrt(others)[None]
            epsilon = self.epsilon if self.kernel in LOCAL else NARROW
            weights = gaussian_block(local_squared(squared, *scales, kernel), epsilon, truncated=self.truncated)
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
        squared = _symmetric_half(squared_distances(self.points, self.points))
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


def _symmetric_half(matrix: Array) -> Array:
    return np.asarray((matrix + matrix.T) / 2)
