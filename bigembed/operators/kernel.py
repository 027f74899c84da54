"""The centered kernel matrix H K H, H = I − 11ᵀ/n, of rows too many to hold it: computed on the fly, never stored.

With the row means r of K a product is H K H x = K x̃ − 1 (rᵀ x̃), x̃ = Hx: one walk over all pairs of row blocks, for
any number of vectors. A task computes one block of rows against all blocks, a tile of K at a time.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from bigembed.blocks.rows import Array, bounds
from bigembed.blocks.vectors import VectorSpace, tree_sum
from bigembed.errors import InputError
from bigembed.operators.base import Then, check_names, followed
from bigembed.store.source import RowSource

TILE_ROWS = 2_048
"""Rows of a block of vectors, and of a tile of K (32 MiB in float64)."""
ASYMMETRY = 1e-5
"""Largest |(K − Kᵀ) w|_i / ‖K_i‖ of a random w that counts as rounding."""
NAMED = 10

PairFunction = Callable[[Any, Any], Array]


class KernelOperator:
    """H K H / s on the vectors of ``space``, s = ‖H K H‖_F, K_ij = kernel(x_i, x_j).

    The division makes tolerances relative. ``space`` has the rows in blocks of :data:`TILE_ROWS`
    (:func:`vector_blocks`). Making it costs one walk over all pairs (two for ``symmetric=False``, a function that has
    to prove that it is): row means, norms, and a check of every entry. Memory of a task: three tiles of 32 MiB, two
    blocks of rows, and the vectors whole (16·n·width bytes).

    Raises
    ------
    InputError : the kernel has entries that are NaN or infinite (pairs named), or is not symmetric (rows named).
    """

    def __init__(
        self, source: RowSource, space: VectorSpace, kernel: PairFunction, *, text: str = "", symmetric: bool = True
    ) -> None:
        if tuple(space.rows) != vector_blocks(source.shape[0]):
            raise InputError("the vectors of a kernel operator lie in the blocks of vector_blocks(n)")
        self.source, self.space, self.kernel = source, space, kernel
        self.scale = "kernel.ones"
        self.passes = 0
        self.bytes_moved = 0
        self._survey(text or "function", symmetric)

    def _survey(self, text: str, symmetric: bool) -> None:
        found = self.space.sweep(
            survey_block, writes=[self.scale, "kernel.means"], arguments=(self.source, self.kernel, symmetric)
        )
        self.passes += 1 if symmetric else 2
        _refuse(found, text, self.source.shape[0])
        n = self.source.shape[0]
        means = np.concatenate([self.space.read("kernel.means", b)[:, 0] for b in range(len(self.space.rows))])
        self.mean = float(means.mean())
        """Mean of K."""
        self.trace = float(tree_sum([part["diagonal"] for part in found])) - n * self.mean
        """tr H K H, the sum of its eigenvalues."""
        self.size = float(np.sqrt(tree_sum([part["squares"] for part in found])))
        """‖K‖_F."""
        self.norm = centered_norm(self.size**2, means)
        """‖H K H‖_F."""

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
        shared = (self.source, self.kernel, self.space, self.norm or 1.0)
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
    """Rows of each block of the vectors over n rows."""
    return tuple(stop - start for start, stop in bounds(n, TILE_ROWS))


def centered_norm(squares: float, means: Array) -> float:
    """‖H K H‖_F from Σ K_ij² and the row means r of a symmetric K: ΣK² − 2n Σr² + n² mean(r)², never below 0."""
    n = len(means)
    inside = squares - 2 * n * float(means @ means) + (n * float(means.mean())) ** 2
    return float(np.sqrt(max(0.0, inside)))


def survey_block(
    block: int, source: RowSource, kernel: PairFunction, symmetric: bool
) -> tuple[tuple[Array, Array], dict[str, Any]]:
    """Ones and row means (rows, 1) of one block; its part of tr K and Σ K²; what is wrong with it."""
    spans = bounds(source.shape[0], TILE_ROWS)
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


def product_block(block: int, *arrays: Any) -> tuple[tuple[Array, ...], tuple[int, Any]]:
    """y = (K x̃ − 1 (rᵀ x̃)) / s for the rows of one block, then whatever else uses x and y."""
    *vectors, shared, names, then, arguments = arrays
    source, kernel, space, unit = shared
    xs, extra = vectors[: len(names)], vectors[len(names) :]
    spans = bounds(source.shape[0], TILE_ROWS)
    numbers = range(len(spans))
    whole = np.concatenate([np.concatenate([space.read(name, b) for b in numbers]) for name in names], axis=1)
    means = np.concatenate([space.read("kernel.means", b) for b in numbers])
    whole -= whole.mean(axis=0)
    start, stop = spans[block]
    rows = source.matrix(start, stop)
    y = np.zeros((stop - start, whole.shape[1]))
    for first, last in spans:
        y += kernel(rows, source.matrix(first, last)) @ whole[first:last]
    y -= means.T @ whole
    y /= unit
    arrays, result = followed(block, xs, y, extra, then, arguments)
    return arrays, (whole.nbytes, result)
