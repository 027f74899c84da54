"""A symmetric map of low rank, never formed: A = N U M Uᵀ N (seed 004 eqs. 8, 9, 12).

U has a row of features for each row of the data, M is small, N a diagonal. With the features of the
linearized Gaussian kernel and N = (K1)^{-1/2} this is the operator of the linearized diffusion map,

    L_i(v) = N_i (1 − r_i²/ε) Σ_j N_j v_j − N_i Σ_j (r_j²/ε) N_j v_j + (2/ε) N_i x_i · Σ_j x_j N_j v_j,

and with centered rows and N = 1 that of PCA, in O(n d) for a vector. A product walks over the rows
twice: for the sums Uᵀ N v, and for U M of them.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import partial
from typing import Any, Protocol

import numpy as np

from bigembed.blocks.rows import Array
from bigembed.blocks.vector_space import VectorSpace, tree_sum
from bigembed.operators.base import Multiply, SymmetricOperator


class Features(Protocol):
    """A picklable handle of U: makes the features of a block inside a worker, a few rows at a time."""

    @property
    def size(self) -> int:
        """Columns of U."""
        ...

    def tiles(self, block: int) -> Iterator[tuple[slice, Array]]:
        """(which rows of the block, their features) along the block."""
        ...


class Middle(Protocol):
    """M, as a product."""

    def __matmul__(self, right: Array, /) -> Array:
        """M a."""
        ...


class FactoredOperator(SymmetricOperator):
    """A = N U M Uᵀ N on the vectors of ``space``; ``scale`` names N, shape (rows, 1).

    Memory of a block task: the vectors of the block and one tile of U. Every block leaves its share of
    UᵀNX, 8·size·width bytes, which is counted in ``bytes_moved`` there and back. ``passes`` counts walks over the
    rows: two a product.
    """

    def __init__(self, features: Features, core: Middle, space: VectorSpace, scale: str = "scale") -> None:
        super().__init__(space, scale)
        self.features = features
        self.core = core

    def gather(self, names: Sequence[str]) -> Array:
        """UᵀN X for the vectors of ``names`` beside each other, (size, width): one walk."""
        parts = self.space.sweep(gather_block, reads=(self.scale, *names), arguments=(self.features, len(names)))
        self.passes += 1
        self.bytes_moved += 2 * sum(part.nbytes for part in parts)
        return np.asarray(tree_sum(parts))

    def multiplier(self, names: Sequence[str]) -> Multiply:
        """The second walk of a product: N U (M UᵀN X), with the middle of it at hand."""
        return partial(spread_block, self.features, self.core @ self.gather(names))


def gather_block(block: int, scale: Array, *rest: Any) -> tuple[tuple[()], Array]:
    """UᵀN X of one block."""
    *vectors, features, count = rest
    scaled = scale * np.concatenate(vectors[:count], axis=1)
    total = np.zeros((features.size, scaled.shape[1]))
    for part, u in features.tiles(block):
        total += u.T @ scaled[part]
    return (), total


def spread_block(
    features: Features, middle: Array, block: int, scale: Array, xs: Sequence[Array], halos: Sequence[Array]
) -> tuple[Array, int]:
    """Y = N U (M UᵀN X) of one block."""
    y = np.empty((len(scale), middle.shape[1]))
    for part, u in features.tiles(block):
        y[part] = u @ middle
    y *= scale
    return y, 0
