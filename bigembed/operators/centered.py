"""Double centering of squared distances: B = −½ H D² H, H = I − 11ᵀ/n (seed 000 §3), of an array larger than memory.

B is never formed. With the row means r of D² a product is B x = −½ (D² x̃ − 1 (rᵀ x̃)), x̃ = Hx: one pass over the
array for any number of vectors.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from operator import add
from typing import Any

import numpy as np

from bigembed.blocks.distances import NAMED, wrong_entries
from bigembed.blocks.rows import Array, bounds
from bigembed.blocks.vectors import VectorSpace, tree_fold
from bigembed.errors import InputError
from bigembed.operators.base import Then, check_names, followed
from bigembed.store.source import RowSource
from bigembed.store.tiles import tiles

VECTOR_ROWS = 2_048
"""Rows of a block of the vectors: what a task walks through, tile by tile."""
ROUNDING = 1e-5
"""Largest share of the root mean square distance of a row that an entry of the diagonal may have; largest share of
‖D²_i‖ by which a row and its column may differ."""


class CenteredOperator:
    """B / s on the vectors of ``space``, s = tr B = ½ Σ_ij D²_ij / n, from a symmetric array of (squared) distances.

    The division makes tolerances relative: eigenvalues of B are s times those of the operator. ``space`` has the rows
    of the array in any blocks. Making it costs one pass: row means, ‖B‖_F, and a check of every entry. Memory of a
    task: a panel of the array (64 MiB, or :data:`VECTOR_ROWS` rows of a chunk's columns), and the vectors whole
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
        self.source = source
        self.space = space
        self.scale = "centered.ones"
        self.squared = squared
        self.passes = 0
        self.bytes_moved = 0
        self._spans = _spans(space.rows)
        self._survey(n)

    def _survey(self, n: int) -> None:
        found = self.space.sweep(
            survey_block,
            writes=[self.scale, "centered.means", "centered.rows", "centered.columns"],
            arguments=(self.source, self._spans, self.squared),
        )
        self.passes += 1
        blocks = range(len(self._spans))
        refuse_entries(found, n)
        parts = np.concatenate([self.space.read("centered.rows", b) for b in blocks])
        means = np.concatenate([self.space.read("centered.means", b)[:, 0] for b in blocks])
        turned = tree_fold((self.space.read("centered.columns", b)[:, 0] for b in blocks), add)
        refuse_asymmetry(parts[:, 0], turned, parts[:, 1])
        refuse_diagonal(parts[:, 2], means)
        fourth = float(parts[:, 1].sum())
        self.space.drop("centered.rows", "centered.columns")
        self.mean = float(means.mean())
        """Mean of D²."""
        self.trace = n * self.mean / 2
        """tr B, the sum of its eigenvalues."""
        inside = fourth - 2 * n * float(means @ means) + (n * self.mean) ** 2
        self.norm = 0.5 * float(np.sqrt(max(0.0, inside)))
        """‖B‖_F."""

    def product(
        self,
        names: Sequence[str],
        into: Sequence[str],
        *,
        then: Then | None = None,
        reads: Sequence[str] = (),
        writes: Sequence[str] = (),
        posts: Sequence[str] = (),
        arguments: Sequence[Any] = (),
    ) -> list[Any]:
        """One pass: see :meth:`bigembed.operators.base.SymmetricOperator.product`."""
        check_names(names, into)
        shared = (self.source, self._spans, self.squared, self.space, self.trace or 1.0)
        results = self.space.sweep(
            product_block,
            reads=(*names, *reads),
            writes=(*into, *writes),
            posts=posts,
            arguments=(shared, tuple(names), then, tuple(arguments)),
        )
        self.passes += 1
        self.bytes_moved += sum(moved for moved, _ in results)
        return [result for _, result in results]


def vector_blocks(n: int) -> tuple[int, ...]:
    """Rows of each block of the vectors over an array of n rows."""
    return tuple(stop - start for start, stop in bounds(n, VECTOR_ROWS))


def _spans(rows: Sequence[int]) -> list[tuple[int, int]]:
    ends = np.cumsum([0, *rows]).tolist()
    return list(pairwise(ends))


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


def product_block(block: int, *arrays: Any) -> tuple[tuple[Array, ...], tuple[int, Any]]:
    """y = −½ (D² x̃ − 1 (rᵀ x̃)) / s for the rows of one block, then whatever else uses x and y."""
    *vectors, shared, names, then, arguments = arrays
    source, spans, squared, space, unit = shared
    xs, extra = vectors[: len(names)], vectors[len(names) :]
    whole = np.concatenate([np.concatenate([space.read(name, b) for b in range(len(spans))]) for name in names], axis=1)
    means = np.concatenate([space.read("centered.means", b) for b in range(len(spans))])
    whole -= whole.mean(axis=0)
    shift = means.T @ whole
    start, stop = spans[block]
    y = np.zeros((stop - start, whole.shape[1]))
    for row, column, values in tiles(source, start, stop):
        if not squared:
            np.square(values, out=values)
        y[row - start : row - start + len(values)] += values @ whole[column : column + values.shape[1]]
    y -= shift
    y *= -0.5 / unit
    arrays, result = followed(block, xs, y, extra, then, arguments)
    return arrays, (whole.nbytes, result)
