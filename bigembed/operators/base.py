"""What a solver needs of a linear map: products with named block vectors, counted as passes.

One **pass** is one walk over the matrix with a block of vectors, whatever their number.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Protocol

import numpy as np
from scipy.sparse.linalg import LinearOperator

from bigembed.blocks.rows import Array, offsets
from bigembed.blocks.vectors import VectorSpace, tree_sum
from bigembed.errors import InputError

Then = Callable[..., tuple[Sequence[Array], Any]]


class SymmetricOperator(Protocol):
    """A symmetric map on the vectors of a space, known by its products; the largest eigenvalues are wanted."""

    space: VectorSpace
    scale: str
    """Named vector (rows, 1): zero marks rows outside the operator's domain, where vectors stay zero."""
    passes: int
    bytes_moved: int

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
        ...


class BlockOperator(SymmetricOperator, Protocol):
    """A symmetric map whose entries can be walked over as well."""

    cache: dict[str, Any]
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
        ...


def check_names(names: Sequence[str], into: Sequence[str]) -> None:
    """InputError unless a product has one name for each result."""
    if isinstance(names, str) or isinstance(into, str) or len(names) != len(into):
        raise InputError(f"names and into are two lists of one length; got {names!r} and {into!r}")


def followed(
    block: int, xs: Sequence[Array], y: Array, extra: Sequence[Array], then: Then | None, arguments: Sequence[Any]
) -> tuple[tuple[Array, ...], Any]:
    """The end of a product on one block: y = A x cut as the x were, and what ``then`` makes of it in the same sweep."""
    widths = np.cumsum([x.shape[1] for x in xs])
    ys = [np.ascontiguousarray(part) for part in np.split(y, widths[:-1], axis=1)]
    if then is None:
        return tuple(ys), None
    written, result = then(block, *xs, *ys, *extra, *arguments)
    return (*ys, *written), result


def as_linear_operator(operator: SymmetricOperator) -> LinearOperator:
    """A SciPy view, in memory: for tests and small n. Every product of it is a pass."""
    space = operator.space
    start = offsets(space.rows)
    n = int(start[-1])

    def matmat(x: Array) -> Array:
        columns = np.asarray(x, np.float64).reshape(n, -1)
        space.sweep(_scatter_block, writes=["view.x"], posts=["view.x"], arguments=(columns, start))
        operator.product(["view.x"], ["view.y"])
        y = np.concatenate([space.read("view.y", b) for b in range(len(space.rows))])
        space.drop("view.x", "view.y")
        return y

    def matvec(x: Array) -> Array:
        return matmat(x)[:, 0]

    return LinearOperator((n, n), matvec=matvec, matmat=matmat, rmatvec=matvec, rmatmat=matmat, dtype=np.float64)


def dot_test(operator: SymmetricOperator, seed: int = 0) -> float:
    """|⟨Au, v⟩ − ⟨u, Av⟩| / (‖Au‖ ‖v‖) for random u, v: zero up to rounding for a symmetric map. One pass."""
    space = operator.space
    space.sweep(_random_block, writes=["dot.x"], posts=["dot.x"], arguments=(space.rows, seed))
    parts = operator.product(["dot.x"], ["dot.y"], then=_moments_block)
    xy, yy, xx = tree_sum([np.stack(part) for part in parts])
    space.drop("dot.x", "dot.y")
    size = np.sqrt(yy[0, 0] * xx[1, 1])
    return float(abs(xy[0, 1] - xy[1, 0]) / size) if size else 0.0


def _scatter_block(block: int, columns: Array, start: Array) -> tuple[tuple[Array], None]:
    return (columns[start[block] : start[block + 1]],), None


def _random_block(block: int, rows: tuple[int, ...], seed: int) -> tuple[tuple[Array], None]:
    return (np.random.default_rng([seed, block]).standard_normal((rows[block], 2)),), None


def _moments_block(block: int, x: Array, y: Array) -> tuple[tuple[()], tuple[Array, Array, Array]]:
    return (), (x.T @ y, y.T @ y, x.T @ x)
