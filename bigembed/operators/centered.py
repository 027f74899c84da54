"""Double centering of squared distances: B = −½ H D² H, H = I − 11ᵀ/n (seed 000 §3), of an array larger than memory."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from operator import add
from typing import Any

import numpy as np

from bigembed.blocks.distance_matrix import Seen, refuse_asymmetry, refuse_diagonal, refuse_entries
from bigembed.blocks.rows import Array
from bigembed.blocks.vector_space import VectorSpace, assembled, tree_fold
from bigembed.errors import InputError
from bigembed.operators.pairs import PairsOperator, centered_norm
from bigembed.store.rows.source import RowSource
from bigembed.store.rows.tiles import Tile, tiles


class CenteredOperator(PairsOperator):
    """B / s on the vectors of ``space``, s = tr B = ½ Σ_ij D²_ij / n, from a symmetric array of (squared) distances.

    The division makes tolerances relative: eigenvalues of B are s times those of the operator. ``space`` has the rows
    of the array in any blocks. Making it costs one pass: row means, ‖B‖_F, and a check of every entry. Memory of a
    task: a panel of the array (64 MiB, or a block of rows of a chunk's columns), and the vectors whole
    (8·n·width bytes). The chunks of the array may be of any shape; each is read about once a pass.

    Raises
    ------
    InputError : the array is not square, or has entries that are negative, NaN or infinite, or too large or small for
        the squares of their squares, or a diagonal that is not 0, or it is not symmetric (seen by a random vector:
        D²w − (D²)ᵀw); entries and rows are named.
    """

    def __init__(self, source: RowSource, space: VectorSpace, *, squared: bool = False) -> None:
        n = source.shape[0]
        if source.shape != (n, n) or sum(space.rows) != n:
            raise InputError(f"distances form a square array (n, n); got shape {source.shape}")
        super().__init__(space, partial(squares, source, squared))
        self.squared = squared
        found = self.survey(survey_block, source, self.spans, squared, writes=["pairs.rows", "pairs.columns"])
        refuse_entries(found, n, squared)
        parts = assembled(space, "pairs.rows")
        turned = tree_fold((space.read("pairs.columns", b)[:, 0] for b in range(len(space.rows))), add)
        refuse_asymmetry(parts[:, 0], turned, parts[:, 1])
        refuse_diagonal(parts[:, 2], self.means)
        space.drop("pairs.rows", "pairs.columns")
        self.trace = n * self.mean / 2
        """tr B, the sum of its eigenvalues."""
        self.norm = 0.5 * centered_norm(float(parts[:, 1].sum()), self.means)
        """‖B‖_F."""
        self.factor = -0.5 / (self.trace or 1.0)


def squares(source: RowSource, squared: bool, start: int, stop: int) -> Iterator[Tile]:
    """Tiles of D²."""
    for tile in tiles(source, start, stop):
        if not squared:
            np.square(tile.values, out=tile.values)
        yield tile


def survey_block(
    block: int, source: RowSource, spans: list[tuple[int, int]], squared: bool
) -> tuple[tuple[Array, ...], dict[str, Any]]:
    """Ones and row means (rows, 1); D²w, Σ_j D⁴ and the diagonal of D² (rows, 3); its part of (D²)ᵀw (n, 1).

    The result counts the rows with entries that no distance has, and names the first of the entries.
    """
    start, stop = spans[block]
    seen, means = Seen(start, stop, source.shape[1]), np.zeros((stop - start, 1))
    for row, column, values in tiles(source, start, stop):
        if not seen.admits(values, row, column):
            continue
        with np.errstate(over="ignore", invalid="ignore"):  # (too large distances are refused when all were seen)
            if not squared:
                np.square(values, out=values)
            means[row - start : row - start + len(values), 0] += values.sum(axis=1)
            seen.add(values, row, column)
    means /= source.shape[1]
    return (np.ones_like(means), means, seen.rows, seen.columns), seen.wrong
