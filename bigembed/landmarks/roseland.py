"""Diffusion by way of landmarks (Roseland; Shen & Wu 2022): x → landmark → y, without a neighbor graph.

With W = k(X, landmarks) (n, L), s = Wᵀ1, d = W s and D = diag(d), the walk D⁻¹ W Wᵀ has the eigenvalues σ² and right
eigenvectors ψ = D^{-1/2} u of the singular triples D^{-1/2} W = Σ u σ vᵀ. G = Wᵀ D⁻¹ W = V σ² Vᵀ is small, and

    ψ_l(x) = √(1ᵀd) · (w(x)·v_l) / (σ_l · w(x)·s),

normalized to Σ π ψ² = 1, π = d/Σd. σ₀ = 1 with v₀ = s/‖s‖ is the constant, and is left out. w(x) may be scaled, so a
Gaussian is taken relative to the nearest landmark and never underflows: a row far from all has its values.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy.sparse.csgraph import connected_components

from bigembed.blocks.rows import Array
from bigembed.eigen.base import EigenResult, extremes
from bigembed.eigen.dense import solve_dense_matrix
from bigembed.kernels.functions import squared_distances

NEIGHBORS = 3
"""epsilon="auto" is the median squared distance of a landmark to its neighbor of this rank."""
RANK = 1e-12
"""σ² below this is rounding."""

PairFunction = Callable[[Any, Any], Array]


@dataclass(frozen=True)
class Walk:
    """w(x): a Gaussian of scale ε, or a function of two blocks of rows that is finite and ≥ 0."""

    epsilon: float
    function: PairFunction | None = None

    def __call__(self, rows: Any, landmarks: Array) -> tuple[Array, Array]:
        """w(x)/c (n, L) with a largest entry of 1, and c (n,); of a function w itself and 1."""
        if self.function is not None:
            return self.function(rows, landmarks), np.ones(len(rows))
        squared = squared_distances(np.asarray(rows, np.float64), np.asarray(landmarks, np.float64))
        near = squared.min(axis=1)
        squared -= near[:, None]
        squared /= -self.epsilon
        return np.exp(squared, out=squared), np.exp(-near / self.epsilon)


def auto_epsilon(landmarks: Array) -> float:
    """Median over the landmarks of the squared distance to the third nearest other (the farthest of fewer)."""
    squared = squared_distances(np.asarray(landmarks, np.float64), np.asarray(landmarks, np.float64))
    q = min(NEIGHBORS, len(squared) - 1)
    return float(np.median(np.partition(squared, q, axis=1)[:, q]))


def sums_block(weights: Array, scale: Array) -> Array:
    """The part of s = Wᵀ1 of one block: Σ c_i w̃_i."""
    return np.asarray(weights.T @ scale)


def gram_block(weights: Array, scale: Array, sums: Array) -> tuple[Array, Array]:
    """The part of G = Σ w_i w_iᵀ/d_i of one block, and w̃·s (n,): d_i = c_i (w̃_i·s), so a factor c_i is left in G."""
    reached = weights @ sums
    factor = np.sqrt(scale / np.where(reached > 0, reached, 1.0))
    scaled = weights * factor[:, None]
    return scaled.T @ scaled, reached


def landmark_parts(gram: Array) -> int:
    """Into how many parts the landmarks fall, between which nobody walks."""
    return int(connected_components(gram > 0, directed=False)[0])


def spectrum(gram: Array, sums: Array, n_components: int) -> tuple[EigenResult, Array]:
    """σ² descending and the matrix (L, m) of ψ(x) = (w(x)·matrix)/(w(x)·s), signs by the largest |entry| of v."""
    result, vectors = solve_dense_matrix(gram, n_components, deflate=sums / np.linalg.norm(sums))
    values = np.maximum(result.eigenvalues, 0.0)
    good = values > RANK
    root = np.sqrt(np.where(good, values, 1.0))
    matrix = np.where(good, vectors * extremes(vectors)[1] / root, 0.0) * np.linalg.norm(sums)
    return result, matrix


def coordinates_block(weights: Array, sums: Array, matrix: Array) -> Array:
    """ψ(x) (n, m); 0 for a row that reaches no landmark."""
    reached = weights @ sums
    return np.asarray((weights @ matrix) / np.where(reached > 0, reached, 1.0)[:, None])


def change_of_half(weights: Array, gram: Array, sums: Array, values: Array, matrix: Array) -> tuple[float, float]:
    """What every second landmark makes of the same rows: the largest change of λ, as a share of min(λ, 1 − λ), and the
    sine of the largest angle between the spans of ψ_1, …, ψ_m on the landmarks (by the mass that reaches these).

    ``weights`` (L, L) of the landmarks with each other, G of half of them, s, and what :func:`spectrum` found.
    """
    m = len(values)
    if len(gram) <= m or landmark_parts(gram) > 1:
        return 1.0, 1.0
    fewer, halved = spectrum(gram, sums[::2], m)
    moved = np.abs(fewer.eigenvalues - values) / np.maximum(np.minimum(values, 1 - values), RANK)
    mass = np.sqrt(sums)[:, None]
    spans = (coordinates_block(weights, sums, matrix), coordinates_block(weights[:, ::2], sums[::2], halved))
    first, second = (np.linalg.qr(mass * span)[0] for span in spans)
    return float(moved.max()), float(np.linalg.norm(first - second @ (second.T @ first), 2))
