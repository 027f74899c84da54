"""Matrix-free maps of all pairs of rows, doubly centered: kernel values, and squared distances that are given."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from itertools import pairwise
from operator import add
from typing import Any

import numpy as np

from bigembed.distance.pairwise import NAMED, refuse_range, wrong_entries
from bigembed.errors import InputError
from bigembed.linalg.operator import Multiply, SymmetricOperator
from bigembed.rows.source import RowSource, Tile, tiles
from bigembed.runtime.blocks import Array, bounds, offsets
from bigembed.runtime.runtime import once
from bigembed.store.vector_space import VectorSpace, assembled, tree_fold, tree_sum

# ------------------------------------------------------------------------------------------------- distance matrix
# Whether a square array holds distances: finite, nonnegative, 0 on the diagonal, symmetric; seen tile by tile.
#
# Symmetry is seen by a random vector w: D²w and (D²)ᵀw are equal row by row, up to rounding, only where the rows of
# the array equal its columns.

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


# ----------------------------------------------------------------------------------------------------------- pairs
# The centered matrix of all pairs of rows, H M H, H = I − 11ᵀ/n, never formed: M is given by its tiles.
#
# With the row means r of M a product is H M H x = M x̃ − 1 (rᵀ x̃), x̃ = Hx: one walk over all pairs, for any number
# of vectors. A task computes the rows of one block, a tile of M at a time.

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


# -------------------------------------------------------------------------------------------------------- centered
# Double centering of squared distances: B = −½ H D² H, H = I − 11ᵀ/n (seed 000 §3), of an array larger than memory.


class CenteredOperator(PairsOperator):
    """B / s on the vectors of ``space``, s = tr B = ½ Σ_ij D²_ij / n, from a symmetric array of (squared) distances.

    The division makes tolerances relative: eigenvalues of B are s times those of the operator. ``space`` has the rows
    of the array in any blocks. Making it costs one pass: row means, ‖B‖_F, and a check of every entry. Memory of a
    task: a panel of the array (64 MiB, or a block of rows of a chunk's columns), and the vectors whole
    (8·n·width bytes). The chunks of the array may be of any shape; each is read about once a pass.

    Raises
    ------
    InputError
        If the array is not square, or has entries that are negative, NaN or infinite, or too large or small for the
        squares of their squares, or a diagonal that is not 0, or is not symmetric (seen by a random vector: D²w −
        (D²)ᵀw). Entries and rows are named.
    """

    def __init__(self, source: RowSource, space: VectorSpace, *, squared: bool = False) -> None:
        n = source.shape[0]
        if source.shape != (n, n) or sum(space.rows) != n:
            raise InputError(f"distances form a square array (n, n); got shape {source.shape}")
        super().__init__(space, partial(squares, source, squared))
        self.squared = squared
        found = self.survey(survey_block, source, self.spans, squared, writes=["pairs.rows", "pairs.columns"])
        refuse_entries(found, n, squared)
        parts, turned = once(self._surveyed)
        space.drop("pairs.rows", "pairs.columns")
        refuse_asymmetry(parts[:, 0], turned, parts[:, 1])
        refuse_diagonal(parts[:, 2], self.means)
        self.trace = n * self.mean / 2
        """tr B, the sum of its eigenvalues."""
        self.norm = 0.5 * centered_norm(float(parts[:, 1].sum()), self.means)
        """‖B‖_F."""
        self.factor = -0.5 / (self.trace or 1.0)

    def _surveyed(self) -> tuple[Array, Array]:
        """What the survey found of each row, and the sums of the columns."""
        parts = assembled(self.space, "pairs.rows")
        turned = tree_fold((self.space.read("pairs.columns", b)[:, 0] for b in range(len(self.space.rows))), add)
        return parts, turned


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


# ---------------------------------------------------------------------------------------------------------- kernel
# The centered kernel matrix H K H, H = I − 11ᵀ/n, of rows too many to hold it: computed on the fly, never stored.

ASYMMETRY = 1e-5
"""Largest |(K − Kᵀ) w|_i / ‖K_i‖ of a random w that counts as rounding."""
NAMED_KERNELS = 10

PairFunction = Callable[[Any, Any], Array]


class KernelOperator(PairsOperator):
    """H K H / s on the vectors of ``space``, s = ‖H K H‖_F, K_ij = kernel(x_i, x_j).

    The division makes tolerances relative. A tile is a block of ``space`` against another (32 MiB, in those of
    :func:`bigembed.linalg.pairs.vector_blocks`). Making it costs one walk over all pairs (two for
    ``symmetric=False``, a function that has to prove that it is): row means, norms, and a check of every entry. Memory
    of a task: three tiles, two blocks of rows, and the vectors whole (16·n·width bytes).

    Raises
    ------
    InputError
        If the kernel has entries that are NaN or infinite (pairs are named), or is not symmetric (rows are named).
    """

    def __init__(
        self, source: RowSource, space: VectorSpace, kernel: PairFunction, *, text: str = "", symmetric: bool = True
    ) -> None:
        super().__init__(space, partial(kernel_tiles, source, kernel, spans_of(space)))
        found = self.survey(survey_kernel_block, source, self.spans, kernel, symmetric)
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


def survey_kernel_block(
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
            wrong += list(
                zip((row[:NAMED_KERNELS] + start).tolist(), (column[:NAMED_KERNELS] + first).tolist(), strict=True)
            )
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
        "wrong": wrong[:NAMED_KERNELS],
        "uneven": len(uneven),
        "first": (uneven[:NAMED_KERNELS] + start).tolist(),
    }
    return (np.ones((stop - start, 1)), (sums / source.shape[0])[:, None]), result


def _refuse(found: list[dict[str, Any]], text: str, n: int) -> None:
    if wrong := [pair for part in found for pair in part["wrong"]][:NAMED_KERNELS]:
        pairs = ", ".join(f"row {i} with row {j}" for i, j in wrong)
        raise InputError(
            f"kernel={text}: gives NaN or infinity, first for {pairs}. A kernel is finite for every pair of rows; "
            "scale the columns, or mend the function"
        )
    if count := sum(part["uneven"] for part in found):
        first = [row for part in found for row in part["first"]][:NAMED_KERNELS]
        raise InputError(
            f"kernel={text}: is not symmetric, k(x, y) ≠ k(y, x), for {count} of {n} rows, first rows {first}. Give "
            "(k(x, y) + k(y, x)) / 2"
        )
