"""What every eigensolver returns."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import Any

import numpy as np

from bigembed.blocks.rows import Array


class Reason(StrEnum):
    """Why a solver stopped."""

    CONVERGED = "converged"
    MAX_PASSES = "max passes"
    STAGNATED = "stagnated"


@dataclass(frozen=True)
class EigenResult:
    """Eigenpairs A v = λ v of a symmetric operator, the m largest except the deflated ones."""

    eigenvalues: Array
    """(m,) descending."""
    vectors: Any
    """Name of the vectors in the space, (rows, m) per block, orthonormal; the largest |entry| is positive."""
    residuals: Array
    """(m,) explicit ‖Av − λv‖: from a product with the very vectors returned."""
    gap: float
    """λ_m minus the largest eigenvalue left out; r / gap bounds the sine of the angle to the subspace."""
    gaps: Array
    """(m,) distance of each eigenvalue to the nearest other one, the deflated included."""
    orthogonality: float
    """max |VᵀV − I|."""
    passes: int
    """Walks over the matrix, everything counted."""
    bytes_moved: int
    """Bytes of vector rows that crossed block borders for products."""
    iterations: int
    converged: bool
    reason: Reason
    advice: str
    """What to do when not converged; empty otherwise."""
    lowest: float = float("nan")
    """The smallest Ritz value met, where the solver sees one: the smallest eigenvalue is not above it."""

    @property
    def sin_theta(self) -> float:
        """Bound on the sine of the largest angle to the true subspace, sin θ ≤ ‖r‖ / gap (at most 1)."""
        size = float(np.linalg.norm(self.residuals))
        return min(1.0, size / self.gap) if self.gap > 0 else 1.0


ADVICE = {
    Reason.CONVERGED: "",
    Reason.MAX_PASSES: "The residuals were still falling: raise max_passes, or tol if this is enough.",
    Reason.STAGNATED: (
        "The residuals stopped falling: raise tol, ask for a number of components that ends at a gap of the "
        "spectrum, or raise n_neighbors if the graph hangs together by a few weak edges."
    ),
}


def gaps_of(eigenvalues: Array, others: Array) -> Array:
    """Distance of each eigenvalue to the nearest other among ``eigenvalues`` and ``others``; ∞ if alone."""
    everything = np.concatenate([eigenvalues, others])
    apart = np.abs(eigenvalues[:, None] - everything[None, :])
    apart[np.arange(len(eigenvalues)), np.arange(len(eigenvalues))] = np.inf
    return np.asarray(apart.min(axis=1)) if len(eigenvalues) else np.zeros(0)


def extremes(columns: Array) -> Array:
    """(2, width): the largest |entry| of each column in one block, and the sign of the first such entry."""
    if not len(columns):
        return np.stack([np.full(columns.shape[1], -1.0), np.ones(columns.shape[1])])
    where = np.argmax(np.abs(columns), axis=0)
    entry = columns[where, np.arange(columns.shape[1])]
    return np.stack([np.abs(entry), np.where(entry < 0, -1.0, 1.0)])


def signs_of(parts: list[Array]) -> Array:
    """Sign of the largest |entry| of each column over all blocks; among equal ones the first row decides."""
    stacked = np.stack(parts)
    winner = np.argmax(stacked[:, 0], axis=0)
    return np.asarray(stacked[winner, 1, np.arange(stacked.shape[2])])
