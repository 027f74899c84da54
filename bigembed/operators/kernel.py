"""The centered kernel matrix H K H, H = I − 11ᵀ/n, of rows too many to hold it: computed on the fly, never stored."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Any

import numpy as np

from bigembed.blocks.rows import Array
from bigembed.blocks.vector_space import VectorSpace, tree_sum
from bigembed.errors import InputError
from bigembed.operators.pairs import PairsOperator, centered_norm, spans_of
from bigembed.store.rows.source import RowSource
from bigembed.store.rows.tiles import Tile

ASYMMETRY = 1e-5
"""Largest |(K − Kᵀ) w|_i / ‖K_i‖ of a random w that counts as rounding."""
NAMED = 10

PairFunction = Callable[[Any, Any], Array]


class KernelOperator(PairsOperator):
    """H K H / s on the vectors of ``space``, s = ‖H K H‖_F, K_ij = kernel(x_i, x_j).

    The division makes tolerances relative. A tile is a block of ``space`` against another (32 MiB, in those of
    :func:`bigembed.operators.pairs.vector_blocks`). Making it costs one walk over all pairs (two for
    ``symmetric=False``, a function that has to prove that it is): row means, norms, and a check of every entry. Memory
    of a task: three tiles, two blocks of rows, and the vectors whole (16·n·width bytes).

    Raises
    ------
    InputError : the kernel has entries that are NaN or infinite (pairs named), or is not symmetric (rows named).
    """

    def __init__(
        self, source: RowSource, space: VectorSpace, kernel: PairFunction, *, text: str = "", symmetric: bool = True
    ) -> None:
        super().__init__(space, partial(kernel_tiles, source, kernel, spans_of(space)))
        found = self.survey(survey_block, source, self.spans, kernel, symmetric)
        self.passes += 0 if symmetric else 1
        _refuse(found, text or "function", source.shape[0])
        self.trace = float(tree_sum([part["diagonal"] for part in found])) - source.shape[0] * self.mean
        """tr H K H, the sum of its eigenvalues."""
        self.size = float(np.sqrt(tree_sum([part["squares"] for part in found])))
        """‖K‖_F."""
        self.norm = centered_norm(self.size**2, self.means)
        """‖H K H‖_F."""
        self.unit = self.norm or 1.0


def kernel_tiles(
    source: RowSource, kernel: PairFunction, spans: Sequence[tuple[int, int]], start: int, stop: int
) -> Iterator[Tile]:
    """Rows ``start:stop`` of K, a block of columns at a time."""
    rows = source.matrix(start, stop)
    for first, last in spans:
        yield Tile(start, first, kernel(rows, source.matrix(first, last)))


def survey_block(
    block: int, source: RowSource, spans: Sequence[tuple[int, int]], kernel: PairFunction, symmetric: bool
) -> tuple[tuple[Array, Array], dict[str, Any]]:
    """Ones and row means (rows, 1) of one block; its part of tr K and Σ K²; what is wrong with it."""
    start, stop = spans[block]
    rows = source.matrix(start, stop)
    sums, squares, skew = np.zeros(stop - start), np.zeros(stop - start), np.zeros(stop - start)
    diagonal, wrong = 0.0, []
    for number, (first, last) in enumerate(spans):
        others = source.matrix(first, last)
        tile = kernel(rows, others)
        if not np.isfinite(tile).all():
            row, column = np.nonzero(~np.isfinite(tile))
            wrong += list(zip((row[:NAMED] + start).tolist(), (column[:NAMED] + first).tolist(), strict=True))
            continue
        sums += tile.sum(axis=1)
        squares += np.einsum("ij,ij->i", tile, tile)
        if number == block:
            diagonal = float(np.trace(tile))
        if not symmetric:
            tile -= kernel(others, rows).T
            skew += tile @ np.random.default_rng([0, number]).standard_normal(last - first)
    uneven = np.flatnonzero(~(np.abs(skew) <= ASYMMETRY * np.sqrt(squares)))
    result = {
        "diagonal": diagonal,
        "squares": float(squares.sum()),
        "wrong": wrong[:NAMED],
        "uneven": len(uneven),
        "first": (uneven[:NAMED] + start).tolist(),
    }
    return (np.ones((stop - start, 1)), (sums / source.shape[0])[:, None]), result


def _refuse(found: list[dict[str, Any]], text: str, n: int) -> None:
    if wrong := [pair for part in found for pair in part["wrong"]][:NAMED]:
        pairs = ", ".join(f"row {i} with row {j}" for i, j in wrong)
        raise InputError(
            f"kernel={text}: gives NaN or infinity, first for {pairs}. A kernel is finite for every pair of rows; "
            "scale the columns, or mend the function"
        )
    if count := sum(part["uneven"] for part in found):
        first = [row for part in found for row in part["first"]][:NAMED]
        raise InputError(
            f"kernel={text}: is not symmetric, k(x, y) ≠ k(y, x), for {count} of {n} rows, first rows {first}. Give "
            "(k(x, y) + k(y, x)) / 2"
        )
