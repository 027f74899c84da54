"""Many epochs in one task that holds the weights: the same bytes as by blocks, without the store between them."""

from __future__ import annotations

import numpy as np

from bigembed.blocks.rows import Array
from bigembed.embedding.held_rows import HeldRows, held_weights
from bigembed.embedding.sampling.options import SamplingOptions, chosen
from bigembed.store.blockwise.exchange import Exchange
from bigembed.store.blockwise.matrix import StoredMatrix


def held_epochs(
    *, weights: StoredMatrix, exchange: Exchange, asked: SamplingOptions, largest: float, span: tuple[int, int]
) -> int:
    """The epochs of a span; the cross-entropy as an integer."""
    first, last = span
    held = _Held(weights, exchange, asked, largest, first)
    for epoch in range(first, last):
        held.move(epoch)
    found = held.cross_entropy(last)
    held.leave(last)
    if last == asked.n_epochs:
        held_weights.cache_clear()
    return found


class _Held(HeldRows):
    """Points, and those of them that may be drawn."""

    def __init__(
        self, weights: StoredMatrix, exchange: Exchange, asked: SamplingOptions, largest: float, epoch: int
    ) -> None:
        super().__init__(weights, exchange, asked.n_components, epoch)
        self.asked, self.largest = asked, largest

    def pool(self, epoch: int) -> Array:
        """All points that may be drawn in an epoch."""
        rows, by_block = self.weights.rows, np.split(self.points, self.starts[1:-1])
        return np.concatenate([points[chosen(b, rows, self.asked.seed, epoch)] for b, points in enumerate(by_block)])

    def move(self, epoch: int) -> None:
        """One epoch of all rows."""
        from bigembed.kernels.sampling import step  # imports numba: only here

        pool, key, options = self.pool(epoch), self.asked.key(epoch), self.asked.at(epoch, self.largest)

        def moved(part: tuple[int, int, int]) -> None:
            b, first, last = part
            step(
                first, last, self.starts[b], self.starts[b], *self.edges[b], self.points, pool, key, options,
                self.own(b),
            )  # fmt: skip

        self.each(moved, self.parts)
        self.swap()

    def cross_entropy(self, epoch: int) -> int:
        """Of the map as it is, as an integer."""
        from bigembed.kernels.sampling import cross_entropy

        pool, key, options = self.pool(epoch), self.asked.key(epoch), self.asked.at(epoch, self.largest)

        def of_part(part: tuple[int, int, int]) -> int:
            b, first, last = part
            return cross_entropy(
                first, last, self.starts[b], self.starts[b], *self.edges[b], self.points, pool, key, options
            )

        return sum(self.each(of_part, self.parts))
