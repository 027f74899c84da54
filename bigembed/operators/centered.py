"""Double centering of squared distances: B = −½ H D² H, H = I − 11ᵀ/n (seed 000 §3), of an array larger than memory."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from operator import add
from typing import Any

import numpy as np

from bigembed.blocks.distances import NAMED, wrong_entries
from bigembed.blocks.rows import Array
from bigembed.blocks.vector_space import VectorSpace, assembled, tree_fold
from bigembed.errors import InputError
from bigembed.operators.pairs import PairsOperator, centered_norm
from bigembed.store.source import RowSource
from bigembed.store.tiles import Tile, tiles

ROUNDING = 1e-5
"""Largest share of the root mean square distance of a row that an entry of the diagonal may have; largest share of
‖D²_i‖ by which a row and its column may differ."""


class CenteredOperator(PairsOperator):
    """B / s on the vectors of ``space``, s = tr B = ½ Σ_ij D²_ij / n, from a symmetric array of (squared) distances.

    The division makes tolerances relative: eigenvalues of B are s times those of the operator. ``space`` has the rows
    of the array in any blocks. Making it costs one pass: row means, ‖B‖_F, and a check of every entry. Memory of a
    task: a panel of the array (64 MiB, or a block of rows of a chunk's columns), and the vectors whole
    (8·n·width bytes). The chunks of the array may be of any shape; each is read about once a pass.

    Raises
    ------
    InputError : the array is not square, or has entries that are negative, NaN or infinite, or a diagonal that is not
        0, or it is not symmetric (seen by a random vector: D²w − (D²)ᵀw); entries and rows are named.
    """

    def __init__(self, source: RowSource, space: VectorSpace, *, squared: bool = False) -> None:
        n = source.shape[0]
        if source.shape != (n, n) or sum(space.rows) != n:
            raise InputError(f"distances form a square array (n, n); got shape {source.shape}")
        super().__init__(space, partial(squares, source, squared))
        self.squared = squared
        found = self.survey(survey_block, source, self.spans, squared, writes=["pairs.rows", "pairs.columns"])
        refuse_entries(found, n)
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
    vector = np.random.default_rng(0).standard_normal(source.shape[1])
    rows, means, columns = np.zeros((stop - start, 3)), np.zeros((stop - start, 1)), np.zeros((source.shape[1], 1))
    entries: list[tuple[int, int, float]] = []
    bad: set[int] = set()
    for row, column, values in tiles(source, start, stop):
        if wrong := wrong_entries(values, row, column):
            entries += wrong
            bad.update((np.flatnonzero(~((values >= 0) & np.isfinite(values)).all(axis=1)) + row).tolist())
            continue
        if not squared:
            np.square(values, out=values)
        own, others = slice(row - start, row - start + len(values)), slice(column, column + values.shape[1])
        means[own, 0] += values.sum(axis=1)
        rows[own, 0] += values @ vector[others]
        rows[own, 1] += np.einsum("ij,ij->i", values, values)
        columns[others, 0] += vector[row : row + len(values)] @ values
        inside = np.arange(max(row, column), min(row + len(values), column + values.shape[1]))
        rows[inside - start, 2] = values[inside - row, inside - column]
    means /= source.shape[1]
    return (np.ones_like(means), means, rows, columns), {"entries": sorted(entries)[:NAMED], "rows": sorted(bad)}


def refuse_entries(found: list[dict[str, Any]], n: int) -> None:
    """InputError where blocks saw entries that no distance has."""
    rows = [row for part in found for row in part["rows"]]
    if rows:
        entries = ", ".join(f"({i}, {j}): {value:g}" for part in found for i, j, value in part["entries"][:NAMED])
        raise InputError(
            f"{len(rows)} of {n} rows of the distances hold NaN, infinity or a negative number; distances are finite "
            f"and ≥ 0; the first are rows {rows[:NAMED]}; entries {entries[:300]}"
        )


def refuse_diagonal(diagonal: Array, means: Array) -> None:
    """InputError where a row has a distance to itself (squares given) beyond rounding."""
    rows = np.flatnonzero(diagonal > ROUNDING**2 * means)
    if len(rows):
        raise InputError(
            f"{len(rows)} of {len(diagonal)} rows have a nonzero distance to themselves; the diagonal is 0; the first "
            f"are rows {rows[:NAMED].tolist()}, with {np.sqrt(diagonal[rows[0]]):.4g}. Is it a similarity?"
        )


def refuse_asymmetry(product: Array, turned: Array, fourth: Array) -> None:
    """InputError where D²w and (D²)ᵀw of a random vector w differ: the rows that are not equal to their column."""
    apart = np.abs(product - turned)
    rows = np.flatnonzero(apart > ROUNDING * np.sqrt(fourth))
    if len(rows):
        share = float(np.max(apart[rows] / np.sqrt(np.maximum(fourth[rows], np.finfo(float).tiny))))
        raise InputError(
            f"the distances are not symmetric: {len(rows)} of {len(product)} rows differ from their columns, by up to "
            f"{share:.2g} of the row; the first are rows {rows[:NAMED].tolist()}. Give (D + D.T) / 2"
        )
