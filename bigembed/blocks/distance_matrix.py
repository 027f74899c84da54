"""Whether a square array holds distances: finite, nonnegative, 0 on the diagonal, symmetric; seen tile by tile.

Symmetry is seen by a random vector w: D²w and (D²)ᵀw are equal row by row, up to rounding, only where the rows of the
array equal its columns.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from bigembed.blocks.distances import NAMED, refuse_range, wrong_entries
from bigembed.blocks.rows import Array
from bigembed.errors import InputError

ROUNDING = 1e-5
"""Largest share of the root mean square distance of a row that an entry of the diagonal may have; largest share of
‖D²_i‖ by which a row and its column may differ."""


class Seen:
    """What the tiles of the rows ``start:stop`` of an array (n, n) show."""

    def __init__(self, start: int, stop: int, n: int) -> None:
        self.start = start
        self.vector = np.random.default_rng(0).standard_normal(n)
        self.rows = np.zeros((stop - start, 3))
        """D²w, Σ_j D⁴ and the diagonal of D²."""
        self.columns = np.zeros((n, 1))
        """The part of these rows in (D²)ᵀw."""
        self.entries: list[tuple[int, int, float]] = []
        self.bad: set[int] = set()
        self.largest = 0.0

    def admits(self, values: Array, row: int, column: int) -> bool:
        """Whether all entries of a tile may be distances; those that may not are noted."""
        wrong = wrong_entries(values, row, column)
        if wrong:
            self.entries += wrong
            self.bad.update((np.flatnonzero(~((values >= 0) & np.isfinite(values)).all(axis=1)) + row).tolist())
        else:
            self.largest = max(self.largest, float(values.max(initial=0.0)))
        return not wrong

    def add(self, squares: Array, row: int, column: int) -> None:
        """Take the squares of a tile that was admitted."""
        own, others = slice(row - self.start, row - self.start + len(squares)), slice(column, column + squares.shape[1])
        self.rows[own, 0] += squares @ self.vector[others]
        self.rows[own, 1] += np.einsum("ij,ij->i", squares, squares)
        self.columns[others, 0] += self.vector[row : row + len(squares)] @ squares
        inside = np.arange(max(row, column), min(row + len(squares), column + squares.shape[1]))
        self.rows[inside - self.start, 2] = squares[inside - row, inside - column]

    @property
    def wrong(self) -> dict[str, Any]:
        """The rows with entries that no distance has, and the first of the entries; the largest of the others."""
        return {"entries": sorted(self.entries)[:NAMED], "rows": sorted(self.bad), "largest": self.largest}


def refuse_entries(found: Sequence[dict[str, Any]], n: int, squared: bool = False) -> None:
    """InputError where tasks saw entries that no distance has (squared, if that was given), or too large ones."""
    rows = [row for part in found for row in part["rows"]]
    if rows:
        entries = ", ".join(f"({i}, {j}): {value:g}" for part in found for i, j, value in part["entries"][:NAMED])
        raise InputError(
            f"{len(rows)} of {n} rows of the distances hold NaN, infinity or a negative number; distances are finite "
            f"and ≥ 0; the first are rows {rows[:NAMED]}; entries {entries[:300]}"
        )
    largest = max((part.get("largest", 0.0) for part in found), default=0.0)
    refuse_range(float(np.sqrt(largest)) if squared else largest, "the distances given")


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
