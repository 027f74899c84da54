"""What a solver needs of a linear map: products with named block vectors, counted as passes.

One **pass** is one walk over the matrix with a block of vectors, whatever their number.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from bigembed.blocks.rows import Array
from bigembed.blocks.vector_space import VectorSpace
from bigembed.errors import InputError

Then = Callable[..., tuple[Sequence[Array], Any]]
Multiply = Callable[[int, Array, Sequence[Array], Sequence[Array]], tuple[Array, int]]
"""``(block, scale, xs, halos of scale and xs) -> (A x of the block, bytes that came from other blocks)``; picklable."""


class SymmetricOperator(ABC):
    """A symmetric map on the vectors of ``space``, known by its products; the largest eigenvalues are wanted.

    ``scale`` names a vector (rows, 1): zero marks rows outside the operator's domain, where vectors stay zero.
    """

    halos = False
    """Whether a product needs rows of other blocks, those of the halo list of a block."""

    def __init__(self, space: VectorSpace, scale: str) -> None:
        self.space = space
        self.scale = scale
        self.passes = 0
        self.bytes_moved = 0

    @abstractmethod
    def multiplier(self, names: Sequence[str]) -> Multiply:
        """What multiplies one block of the vectors of these names."""

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
        """One pass: y = A x for every posted vector x of ``names``, stored under ``into``.

        ``then(block, *xs, *ys, *read arrays, *arguments) -> (arrays for writes, result)`` runs in
        the same sweep; its results are returned in block order.
        """
        if isinstance(names, str) or isinstance(into, str) or len(names) != len(into):
            raise InputError(f"names and into are two lists of one length; got {names!r} and {into!r}")
        return self._sweep(
            product_block,
            reads=(self.scale, *names, *reads),
            halos=(self.scale, *names) if self.halos else (),
            writes=(*into, *writes),
            posts=posts,
            arguments=(self.multiplier(names), len(names), len(reads), then, tuple(arguments)),
        )

    def _sweep(self, function: Then, **what: Any) -> list[Any]:
        results = self.space.sweep(function, **what)
        self.passes += 1
        self.bytes_moved += sum(moved for moved, _ in results)
        return [result for _, result in results]


class BlockOperator(SymmetricOperator):
    """A symmetric map whose entries can be walked over as well."""

    halos = True
    entries: Callable[[int, Array, Array], tuple[Any, Array, Array]]
    """``(block, scale, halo of scale) -> rows``, as :meth:`walk` hands them on; picklable."""

    def __init__(self, space: VectorSpace, scale: str) -> None:
        super().__init__(space, scale)
        self.cache: dict[str, Any] = {}
        """What a solver can make again from the space, and keeps while it runs."""

    def walk(
        self,
        function: Then,
        *,
        reads: Sequence[str] = (),
        writes: Sequence[str] = (),
        posts: Sequence[str] = (),
        arguments: Sequence[Any] = (),
    ) -> list[Any]:
        """One pass at the matrix itself: ``function(block, rows, scale, *read arrays, *arguments)``.

        ``rows`` is (the block of A as a SciPy CSR array over own columns, then halo entries; the
        source block of each halo entry; its row in that block).
        """
        return self._sweep(
            walk_block,
            reads=(self.scale, *reads),
            halos=(self.scale,),
            writes=writes,
            posts=posts,
            arguments=(self.entries, function, tuple(arguments)),
        )


def product_block(block: int, scale: Array, *rest: Any) -> tuple[tuple[Array, ...], tuple[int, Any]]:
    """y = A x for the rows of one block, cut as the x are, then whatever else uses x and y."""
    *vectors, multiply, count, reading, then, arguments = rest
    xs, extra, halos = vectors[:count], vectors[count : count + reading], vectors[count + reading :]
    y, moved = multiply(block, scale, xs, halos)
    widths = np.cumsum([x.shape[1] for x in xs])
    ys = [np.ascontiguousarray(part) for part in np.split(y, widths[:-1], axis=1)]
    if then is None:
        return tuple(ys), (moved, None)
    written, result = then(block, *xs, *ys, *extra, *arguments)
    return (*ys, *written), (moved, result)


def walk_block(block: int, scale: Array, *rest: Any) -> tuple[Sequence[Array], tuple[int, Any]]:
    """Hand the rows of A to ``function``."""
    *extra, halo, entries, function, arguments = rest
    written, result = function(block, entries(block, scale, halo), scale, *extra, *arguments)
    return written, (halo.nbytes, result)
