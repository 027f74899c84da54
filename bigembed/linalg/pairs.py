"""Matrix-free maps of all pairs of rows, doubly centered: kernel values, and squared distances that are given."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from itertools import pairwise
from operator import add
from typing import Any

import numpy as np

from bigembed.distance import NAMED, refuse_range, wrong_entries
from bigembed.errors import InputError
from bigembed.linalg import Multiply, SymmetricOperator
from bigembed.rows import RowSource
from bigembed.rows.tiles import Tile, tiles
from bigembed.runtime import once
from bigembed.runtime.blocks import Array, bounds, offsets
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
#
# Where rows have weights w of sum ω, H = I − 1wᵀ/ω takes weighted means off, and the symmetric matrix is √w H M Hᵀ √w:
# a row of weight m gives the eigenvalues that m copies of it give, and their eigenvectors, times √w.

VECTOR_ROWS = 2_048
"""Rows of a block of the vectors: what a task walks through, tile by tile."""
MEANS = "pairs.means"
WEIGHTS = "pairs.weights"


class PairsOperator(SymmetricOperator):
    """``factor`` · H M H / ``unit`` on the vectors of ``space``; ``tiles(start, stop)`` gives M of these rows.

    With ``weights`` (n,) of the rows, positive, that is √w H M Hᵀ √w, with weighted means. Memory of a task: a
    tile, and the vectors whole (16·n·width bytes).
    """

    factor = 1.0
    unit = 1.0

    def __init__(
        self, space: VectorSpace, tiles: Callable[[int, int], Iterable[Tile]], weights: Array | None = None
    ) -> None:
        super().__init__(space, "pairs.ones")
        self.tiles, self.weights = tiles, weights
        self.spans = spans_of(space)
        for b, (start, stop) in enumerate(self.spans if weights is not None else ()):
            space.write(WEIGHTS, b, np.asarray(weights)[start:stop, None])

    def survey(self, function: Callable[..., Any], *arguments: Any, writes: Sequence[str] = ()) -> list[dict[str, Any]]:
        """One pass of ``function(block, *arguments)``, which writes ones and row means, then ``writes``."""
        found = self.space.sweep(function, writes=[self.scale, MEANS, *writes], arguments=arguments)
        self.passes += 1
        self.means = assembled(self.space, MEANS)[:, 0]
        """Row means of M (n,)."""
        self.mean = float(self.means.mean() if self.weights is None else np.average(self.means, weights=self.weights))
        """Mean of M."""
        return found

    @property
    def total(self) -> float:
        """The number of rows, or the sum of their weights."""
        return float(len(self.means) if self.weights is None else self.weights.sum())

    @property
    def weighing(self) -> VectorSpace | None:
        """The space that has the weights of the rows; None without them."""
        return None if self.weights is None else self.space

    def multiplier(self, names: Sequence[str]) -> Multiply:
        """M x̃ − 1 (rᵀ x̃), in tiles."""
        scaling = self.factor, self.unit
        weighed = self.weights is not None
        return partial(multiply_block, self.tiles, self.spans, scaling, self.space, tuple(names), weighed)


def spans_of(space: VectorSpace) -> list[tuple[int, int]]:
    """First row of each block, and one past its last."""
    return list(pairwise(offsets(space.rows).tolist()))


def vector_blocks(n: int) -> tuple[int, ...]:
    """Rows of each block of the vectors over n rows."""
    return tuple(stop - start for start, stop in bounds(n, VECTOR_ROWS))


def centered_norm(squares: float, means: Array, weights: Array | None = None) -> float:
    """‖H M H‖_F from Σ M_ij² and the row means r of a symmetric M: ΣM² − 2n Σr² + n² mean(r)², never below 0.

    With weights of the rows that of √w H M Hᵀ √w, from Σ w_i w_j M_ij² and weighted means.
    """
    n = len(means)
    inside = squares - 2 * n * float(means @ means) + (n * float(means.mean())) ** 2
    if weights is not None:
        total = float(weights.sum())
        inside = squares - 2 * total * float(weights @ means**2) + float(weights @ means) ** 2
    return float(np.sqrt(max(0.0, inside)))


def weights_in(space: VectorSpace | None) -> Array | None:
    """Return the weights of all rows, (n,), of a space that has them."""
    return None if space is None else assembled(space, WEIGHTS)[:, 0]


def row_sums(values: Array, weights: Array | None, column: int) -> Array:
    """Return Σ_j M_ij of a tile that begins at a column; with the weights of all rows Σ_j M_ij w_j."""
    if weights is None:
        return np.asarray(values.sum(axis=1))
    return np.asarray(values @ weights[column : column + values.shape[1]])


def multiply_block(
    tiles: Callable[[int, int], Iterable[Tile]],
    spans: Sequence[tuple[int, int]],
    scaling: tuple[float, float],
    space: VectorSpace,
    names: Sequence[str],
    weighed: bool,
    block: int,
    *_: Any,
) -> tuple[Array, int]:
    """M x̃ − 1 (rᵀ x̃) for the rows of one block, times the first of ``scaling``, by the second; with weights √w x
    takes the place of x, and √w times that."""
    whole = np.concatenate([assembled(space, name) for name in names], axis=1)
    weights = weights_in(space if weighed else None)
    if weights is None:
        whole -= whole.mean(axis=0)
    else:
        whole *= np.sqrt(weights)[:, None]
        whole -= np.outer(weights, whole.sum(axis=0) / weights.sum())
    start, stop = spans[block]
    y = np.zeros((stop - start, whole.shape[1]))
    for row, column, values in tiles(start, stop):
        y[row - start : row - start + len(values)] += values @ whole[column : column + values.shape[1]]
    y -= assembled(space, MEANS).T @ whole
    if weights is not None:
        y *= np.sqrt(weights[start:stop])[:, None]
    y *= scaling[0]
    y /= scaling[1]
    return y, whole.nbytes


# -------------------------------------------------------------------------------------------------------- centered
# Double centering of squared distances: B = −½ H D² H, H = I − 11ᵀ/n (seed 000 §3), of an array larger than memory.


class CenteredOperator(PairsOperator):
    """B / s on the vectors of ``space``, s = tr B = ½ Σ_ij D²_ij / n, from a symmetric array of (squared) distances.

    With ``weights`` of the rows √w B √w, of weighted means; s = ½ Σ_ij w_i w_j D²_ij / Σ w. The division makes
    tolerances relative: eigenvalues of B are s times those of the operator. ``space`` has the rows of the array in
    any blocks. Making it costs one pass: row means, ‖B‖_F, and a check of every entry. Memory of a task: a panel of
    the array (64 MiB, or a block of rows of a chunk's columns), and the vectors whole (8·n·width bytes). The chunks
    of the array may be of any shape; each is read about once a pass.

    Raises
    ------
    InputError
        If the array is not square, or has entries that are negative, NaN or infinite, or too large or small for the
        squares of their squares, or a diagonal that is not 0, or is not symmetric (seen by a random vector: D²w −
        (D²)ᵀw). Entries and rows are named.
    """

    def __init__(
        self, source: RowSource, space: VectorSpace, *, squared: bool = False, weights: Array | None = None
    ) -> None:
        n = source.shape[0]
        if source.shape != (n, n) or sum(space.rows) != n:
            raise InputError(f"distances form a square array (n, n); got shape {source.shape}")
        super().__init__(space, partial(squares, source, squared), weights)
        self.squared, columns = squared, ["pairs.rows", "pairs.columns"]
        found = self.survey(survey_block, source, self.spans, squared, self.weighing, writes=columns)
        refuse_entries(found, n, squared)
        parts, turned = once(self._surveyed)
        space.drop("pairs.rows", "pairs.columns")
        refuse_asymmetry(parts[:, 0], turned, parts[:, 1])
        refuse_diagonal(parts[:, 2], self.means)
        self.trace = self.total * self.mean / 2
        """tr B, the sum of its eigenvalues."""
        fourth = float(parts[:, 1].sum() if weights is None else weights @ parts[:, 3])
        self.norm = 0.5 * centered_norm(fourth, self.means, weights)
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
    block: int, source: RowSource, spans: list[tuple[int, int]], squared: bool, weighing: VectorSpace | None = None
) -> tuple[tuple[Array, ...], dict[str, Any]]:
    """Ones and row means (rows, 1); D²w, Σ_j D⁴ and the diagonal of D² (rows, 3), and where the space ``weighing`` has
    weights of the rows, Σ_j D⁴ with these; its part of (D²)ᵀw (n, 1).

    The result counts the rows with entries that no distance has, and names the first of the entries.
    """
    start, stop = spans[block]
    seen, means, weights = Seen(start, stop, source.shape[1]), np.zeros((stop - start, 1)), weights_in(weighing)
    fourth = np.zeros((stop - start, 0 if weights is None else 1))
    for row, column, values in tiles(source, start, stop):
        if not seen.admits(values, row, column):
            continue
        with np.errstate(over="ignore", invalid="ignore"):  # (too large distances are refused when all were seen)
            if not squared:
                np.square(values, out=values)
            own = slice(row - start, row - start + len(values))
            means[own, 0] += row_sums(values, weights, column)
            if weights is not None:
                fourth[own, 0] += row_sums(values**2, weights, column)
            seen.add(values, row, column)
    means /= source.shape[1] if weights is None else weights.sum()
    return (np.ones_like(means), means, np.hstack([seen.rows, fourth]), seen.columns), seen.wrong


# ---------------------------------------------------------------------------------------------------------- kernel
# The centered kernel matrix H K H, H = I − 11ᵀ/n, of rows too many to hold it: computed on the fly, never stored.

ASYMMETRY = 1e-5
"""Largest |(K − Kᵀ) w|_i / ‖K_i‖ of a random w that counts as rounding."""
NAMED_KERNELS = 10

PairFunction = Callable[[Any, Any], Array]


class KernelOperator(PairsOperator):
    """H K H / s on the vectors of ``space``, s = ‖H K H‖_F, K_ij = kernel(x_i, x_j).

    With ``weights`` of the rows √w H K Hᵀ √w, of weighted means. The division makes tolerances relative. A tile is
    a block of ``space`` against another (32 MiB, in those of :func:`bigembed.linalg.pairs.vector_blocks`). Making
    it costs one walk over all pairs (two for ``symmetric=False``, a function that has to prove that it is): row
    means, norms, and a check of every entry. Memory of a task: three tiles, two blocks of rows, and the vectors
    whole (16·n·width bytes).

    Raises
    ------
    InputError
        If the kernel has entries that are NaN or infinite (pairs are named), or is not symmetric (rows are named).
    """

    def __init__(
        self,
        source: RowSource,
        space: VectorSpace,
        kernel: PairFunction,
        *,
        text: str = "",
        symmetric: bool = True,
        weights: Array | None = None,
    ) -> None:
        super().__init__(space, partial(kernel_tiles, source, kernel, spans_of(space)), weights)
        found = self.survey(survey_kernel_block, source, self.spans, kernel, symmetric, self.weighing)
        self.passes += 0 if symmetric else 1
        _refuse(found, text or "function", source.shape[0])
        self.trace = float(tree_sum([part["diagonal"] for part in found])) - self.total * self.mean
        """tr H K H, the sum of its eigenvalues."""
        self.size = float(np.sqrt(tree_sum([part["squares"] for part in found])))
        """‖K‖_F, or that of √w K √w."""
        self.norm = centered_norm(self.size**2, self.means, weights)
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
    block: int,
    source: RowSource,
    spans: Sequence[tuple[int, int]],
    kernel: PairFunction,
    symmetric: bool,
    weighing: VectorSpace | None = None,
) -> tuple[tuple[Array, Array], dict[str, Any]]:
    """Ones and row means (rows, 1) of one block; its part of tr K and Σ K², with the weights of the rows where the
    space ``weighing`` has them; what is wrong with it."""
    weights = weights_in(weighing)
    start, stop = spans[block]
    rows = source.matrix(start, stop)
    sums, squares, weighed, skew = (np.zeros(stop - start) for _ in range(4))
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
        sums += row_sums(tile, weights, first)
        squares += np.einsum("ij,ij->i", tile, tile)
        weighed += 0.0 if weights is None else row_sums(tile**2, weights, first)
        if number == block:
            diagonal = float(np.trace(tile) if weights is None else tile.diagonal() @ weights[start:stop])
        if not symmetric:
            tile -= kernel(others, rows).T
            skew += tile @ np.random.default_rng([0, number]).standard_normal(last - first)
    uneven = np.flatnonzero(~(np.abs(skew) <= ASYMMETRY * np.sqrt(squares)))
    result = {
        "diagonal": diagonal,
        "squares": float(squares.sum() if weights is None else weighed @ weights[start:stop]),
        "wrong": wrong[:NAMED_KERNELS],
        "uneven": len(uneven),
        "first": (uneven[:NAMED_KERNELS] + start).tolist(),
    }
    total = source.shape[0] if weights is None else weights.sum()
    return (np.ones((stop - start, 1)), (sums / total)[:, None]), result


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
