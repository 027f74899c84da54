"""The centered matrix of all pairs of rows, H M H, H = I − 11ᵀ/n, never formed: M is given by its tiles.

With the row means r of M a product is H M H x = M x̃ − 1 (rᵀ x̃), x̃ = Hx: one walk over all pairs, for any number of
vectors. A task computes the rows of one block, a tile of M at a time.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from functools import partial
from itertools import pairwise
from typing import Any

import numpy as np

from bigembed.blocks.rows import Array, bounds, offsets
from bigembed.blocks.vector_space import VectorSpace, assembled
from bigembed.operators.base import Multiply, SymmetricOperator
from bigembed.store.rows.tiles import Tile

VECTOR_ROWS = 2_048
"""Rows of a block of the vectors: what a task walks through, tile by tile."""
MEANS = "pairs.means"


class PairsOperator(SymmetricOperator):
    """``factor`` · H M H / ``unit`` on the vectors of ``space``; ``tiles(start, stop)`` gives M of these rows.

    Memory of a task: a tile, and the vectors whole (16·n·width bytes).
    """

    factor = 1.0
    unit = 1.0

    def __init__(self, space: VectorSpace, tiles: Callable[[int, int], Iterable[Tile]]) -> None:
        super().__init__(space, "pairs.ones")
        self.tiles = tiles
        self.spans = spans_of(space)

    def survey(self, function: Callable[..., Any], *arguments: Any, writes: Sequence[str] = ()) -> list[dict[str, Any]]:
        """One pass of ``function(block, *arguments)``, which writes ones and row means, then ``writes``."""
        found = self.space.sweep(function, writes=[self.scale, MEANS, *writes], arguments=arguments)
        self.passes += 1
        self.means = assembled(self.space, MEANS)[:, 0]
        """Row means of M (n,)."""
        self.mean = float(self.means.mean())
        """Mean of M."""
        return found

    def multiplier(self, names: Sequence[str]) -> Multiply:
        """M x̃ − 1 (rᵀ x̃), in tiles."""
        scaling = self.factor, self.unit
        return partial(multiply_block, self.tiles, self.spans, scaling, self.space, tuple(names))


def spans_of(space: VectorSpace) -> list[tuple[int, int]]:
    """First row of each block, and one past its last."""
    return list(pairwise(offsets(space.rows).tolist()))


def vector_blocks(n: int) -> tuple[int, ...]:
    """Rows of each block of the vectors over n rows."""
    return tuple(stop - start for start, stop in bounds(n, VECTOR_ROWS))


def centered_norm(squares: float, means: Array) -> float:
    """‖H M H‖_F from Σ M_ij² and the row means r of a symmetric M: ΣM² − 2n Σr² + n² mean(r)², never below 0."""
    n = len(means)
    inside = squares - 2 * n * float(means @ means) + (n * float(means.mean())) ** 2
    return float(np.sqrt(max(0.0, inside)))


def multiply_block(
    tiles: Callable[[int, int], Iterable[Tile]],
    spans: Sequence[tuple[int, int]],
    scaling: tuple[float, float],
    space: VectorSpace,
    names: Sequence[str],
    block: int,
    *_: Any,
) -> tuple[Array, int]:
    """M x̃ − 1 (rᵀ x̃) for the rows of one block, times the first of ``scaling``, by the second."""
    whole = np.concatenate([assembled(space, name) for name in names], axis=1)
    whole -= whole.mean(axis=0)
    start, stop = spans[block]
    y = np.zeros((stop - start, whole.shape[1]))
    for row, column, values in tiles(start, stop):
        y[row - start : row - start + len(values)] += values @ whole[column : column + values.shape[1]]
    y -= assembled(space, MEANS).T @ whole
    y *= scaling[0]
    y /= scaling[1]
    return y, whole.nbytes
