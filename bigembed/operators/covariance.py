"""The covariance of rows as a matrix-free map on vectors of features: C V = Xcᵀ (w ∘ (Xc V)) / f, Xc = X − 1mᵀ.

For features too many for a d × d matrix. The vectors (d, b) are in memory, the rows stay in the store; one
product is one pass over the rows, whatever b. Sparse rows are not made dense: the mean enters through
Xc V = X V − 1(mᵀV).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from bigembed.blocks.moments import tiles
from bigembed.blocks.rows import Array, is_sparse
from bigembed.blocks.vector_space import MemorySpace
from bigembed.operators.base import Multiply, SymmetricOperator
from bigembed.store.blockwise.exchange import Exchange
from bigembed.store.rows.passes import Parts, reduce_rows
from bigembed.store.rows.row_blocks import RowBlock
from bigembed.store.rows.source import RowSource


class CovarianceOperator(SymmetricOperator):
    """C on the vectors of ``space`` (one block of d rows); ``freedom`` is the divisor f = W − 1.

    Memory of a task: a tile of rows and 3·8·d·b bytes; of the coordinating process 8·d bytes a column of every
    named vector. Rows that were not checked before must be finite.
    """

    def __init__(self, source: RowSource, mean: Array, freedom: float, exchange: Exchange) -> None:
        super().__init__(MemorySpace(sizes=(int(source.shape[1]),)), "scale")
        self.source, self.mean, self.freedom, self.exchange = source, mean, freedom, exchange
        self.space.write(self.scale, 0, np.ones((len(mean), 1)))

    def multiplier(self, names: Sequence[str]) -> Multiply:
        """A pass over the rows; the vectors are in this process, in one block."""

        def multiply(block: int, scale: Array, xs: Sequence[Array], halos: Sequence[Array]) -> tuple[Array, int]:
            y = self._times(np.concatenate(xs, axis=1))
            return y, y.nbytes

        return multiply

    def _times(self, vectors: Array) -> Array:
        self.exchange.put("operand", 0, {"vectors": vectors, "mean": self.mean})
        found = reduce_rows(
            self.source,
            covariance_block,
            self.exchange,
            partial_bytes=vectors.nbytes,
            label="covariance",
            operand=self.exchange,
        )
        self.exchange.drop("operand")
        return found["product"] / self.freedom


def covariance_block(block: RowBlock, *, operand: Exchange) -> Parts:
    """Σ w (x − m)((x − m)ᵀV) over one block."""
    vectors, mean = operand.get_many("operand", 0, ["vectors", "mean"])
    return {"product": centered_product(block.rows, block.weights, mean, vectors)}


def centered_product(rows: Any, weights: Array | None, mean: Array, vectors: Array) -> Array:
    """(X − 1mᵀ)ᵀ (w ∘ ((X − 1mᵀ) V)), (d, b), for dense or CSR rows.

    >>> centered_product(np.array([[1.0], [3.0]]), None, np.array([2.0]), np.array([[5.0]])).tolist()
    [[10.0]]
    """
    if is_sparse(rows):
        inner = rows @ vectors - mean @ vectors
        inner = inner if weights is None else inner * weights[:, None]
        return np.asarray(rows.T @ inner - np.outer(mean, inner.sum(axis=0)))
    total = np.zeros(vectors.shape)
    spans = tiles(rows)
    tile = np.empty((spans[0][1], rows.shape[1]))
    for start, stop in spans:
        part = tile[: stop - start]
        part[...] = rows[start:stop]
        part -= mean
        inner = part @ vectors
        if weights is not None:
            inner *= weights[start:stop, None]
        total += part.T @ inner
    return total
