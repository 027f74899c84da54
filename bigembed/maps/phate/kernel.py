"""The alpha-decay kernel of PHATE on the edges of a graph of nearest neighbors."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from bigembed.maps.map_stages import EdgeWeights
from bigembed.runtime.blocks import Array
from bigembed.store.matrix import CSRBlock
from bigembed.store.vector_space import tree_sum

THRESHOLD = 1e-4
"""Smaller weights are 0."""


def decayed(squared: Array, scale: Array, decay: float) -> Array:
    """exp(−(r/ε)^decay) of squared distances and squared scales; 0 below :data:`THRESHOLD`, and 1 at distance 0.

    >>> decayed(np.array([0.0, 1.0, 4.0]), np.array([0.0, 1.0, 1.0]), 2.0).round(4).tolist()
    [1.0, 0.3679, 0.0183]
    """
    squared = squared.astype(np.float64)
    with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
        weights = np.exp(-((squared / scale) ** (decay / 2)))
    return np.where(squared == 0, 1.0, np.where(weights < THRESHOLD, 0.0, weights))


def kth_squared(indptr: Array, squared: Array, k: int | Array) -> Array:
    """The k-th smallest squared distance of each row of a CSR block, k an integer or one for each row, counted from 0;
    of a row with fewer ones its largest, and where that is 0 its smallest that is not (0 if all are)."""
    count = np.diff(indptr)
    row = np.repeat(np.arange(len(count)), count)
    order = np.lexsort((squared, row))
    found = np.append(squared[order].astype(np.float64), 0.0)
    zeros = np.bincount(row, weights=squared == 0, minlength=len(count)).astype(np.int64)
    last = np.maximum(count - 1, 0)
    place = np.minimum(np.maximum(k, zeros), last)
    return np.where(count > 0, found[indptr[:-1] + place], 0.0)


@dataclass(frozen=True)
class AlphaDecay(EdgeWeights):
    """K_ij = (exp(−(r/ε_i)^decay) + exp(−(r/ε_j)^decay))/2, ε the distance to the k-th neighbor of a row."""

    k: int
    decay: float
    numbers: ClassVar = 2
    operations: ClassVar = 60

    def scales(self, block: CSRBlock, ids: Array, reach: Array, last: Array, k: int) -> Array:
        """Return ε² of each row, and ρ², where its list of neighbors ends."""
        return np.column_stack([kth_squared(block.indptr, block.data, self.k), reach])

    def weigh(self, block: CSRBlock, ids: Array, scales: Array) -> tuple[Array, float, float]:
        """Return K_ij, Σ K, and the sum of what the kernel of each row still is where its list ends."""
        rows = len(block.indptr) - 1
        scale, reach = scales[:, 0], scales[:rows, 1]
        own = decayed(block.data, np.repeat(scale[:rows], np.diff(block.indptr)), self.decay)
        weights = ((own + decayed(block.data, scale[block.indices], self.decay)) / 2).astype(np.float32)
        ended = decayed(np.where(np.isfinite(reach), reach, 0.0), scale[:rows], self.decay)
        cut = np.where(np.isfinite(reach) & (reach > 0), ended, 0.0)
        return weights, float(weights.sum(dtype=np.float64)), float(cut.sum())

    def unit(self, total: float, largest: float) -> float:
        """Return 1: weights of a user are not taken."""
        return 1.0

    def figures(self, weights: Array) -> tuple[float, float]:
        """Return Σ w, and 0."""
        return float(weights.sum(dtype=np.float64)), 0.0

    def results(self, figures: list[tuple[float, float]], k: int | None) -> dict[str, Any]:
        """Return Σ K and what was cut, over all blocks, and the neighbors that were listed."""
        mass, cut = (float(tree_sum([part[i] for part in figures])) for i in range(2))
        return {"n_neighbors": k, "mass": mass, "cut": cut}
