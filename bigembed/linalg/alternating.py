"""The two steps of an alternating walk, in either order, over the edges of two matrices: A = ½ N (W₁W₂ + W₂W₁) N.

The product of two sparse matrices has the edges of two steps, some hundreds a row, and is never formed.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any

import numpy as np

from bigembed.linalg.operator import Multiply, SymmetricOperator, Then, compiled_product
from bigembed.runtime.blocks import Array, stripes
from bigembed.runtime.executors import run_on_idle_threads
from bigembed.store.matrix import BlockMatrix, CSRBlock
from bigembed.store.vector_space import VectorSpace

MIDDLE = "alternating"
"""The vector between the two steps: W₂ N x beside W₁ N x."""


class AlternatingOperator(SymmetricOperator):
    """A = ½ N (W₁W₂ + W₂W₁) N on the vectors of ``space``, of two symmetric matrices over the same structure.

    ``scale`` names N, shape (rows, 1), posted. A product walks over both matrices twice.
    """

    halos = True

    def __init__(self, first: BlockMatrix, second: BlockMatrix, space: VectorSpace, scale: str = "scale") -> None:
        super().__init__(space, scale)
        self.first, self.second = first, second

    def multiplier(self, names: Sequence[str]) -> Multiply:
        """½ N (W₁ y + W₂ z) of the vector of that name, y beside z."""
        return partial(second_step_block, self.first, self.second)

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
        descending: bool = False,
    ) -> list[Any]:
        """y = A x for every vector x of ``names``, stored under ``into``, as :meth:`SymmetricOperator.product`."""
        given = (self.scale, *names)
        steps = self.first, self.second, len(names)
        moved = self.space.sweep(
            first_step_block, reads=given, halos=given, writes=[MIDDLE], posts=[MIDDLE], arguments=steps
        )
        self.passes, self.bytes_moved = self.passes + 1, self.bytes_moved + sum(moved)
        found = self._sweep(
            alternated_block,
            reads=(self.scale, MIDDLE, *names, *reads),
            halos=(self.scale, MIDDLE),
            writes=(*into, *writes),
            posts=posts,
            arguments=(self.multiplier([MIDDLE]), len(names), then, tuple(arguments)),
            descending=descending,
        )
        self.space.drop(MIDDLE)
        return found


def times_block(stored: CSRBlock, own: Array, halo: Array) -> Array:
    """W x for the rows of one block, of x (rows, b) of its rows and (h, b) of its halo."""
    y, full = np.empty(own.shape), np.ones(len(own) + len(halo))
    data = stored.data if stored.data.dtype in (np.float32, np.float64) else stored.data.astype(np.float64)
    given = (stored.indptr.astype(np.int64), stored.indices.astype(np.int32, copy=False), data, full)
    x, far = np.ascontiguousarray(own), np.ascontiguousarray(halo)
    run_on_idle_threads([partial(compiled_product(), *stripe, *given, x, far, y) for stripe in stripes(len(own))])
    return y


def first_step_block(block: int, scale: Array, *rest: Any) -> tuple[tuple[Array], int]:
    """W₂ N x beside W₁ N x of one block; bytes that came from other blocks."""
    *vectors, first, second, count = rest
    xs, (far_scale, *far) = vectors[:count], vectors[count:]
    own, halo = scale * np.hstack(xs), far_scale * np.hstack(far)
    steps = [times_block(matrix.block(block), own, halo) for matrix in (second, first)]
    return (np.hstack(steps),), far_scale.nbytes + halo.nbytes


def second_step_block(
    first: BlockMatrix, second: BlockMatrix, block: int, scale: Array, xs: Sequence[Array], halos: Sequence[Array]
) -> tuple[Array, int]:
    """½ N (W₁ y + W₂ z) of one block, y beside z."""
    halo = halos[1]
    both = zip((first, second), np.split(xs[0], 2, axis=1), np.split(halo, 2, axis=1), strict=True)
    one, other = (times_block(matrix.block(block), own, far) for matrix, own, far in both)
    return 0.5 * scale * (one + other), halo.nbytes


def alternated_block(block: int, scale: Array, middle: Array, *rest: Any) -> tuple[tuple[Array, ...], tuple[int, Any]]:
    """y = A x for the rows of one block, cut as the x are, then whatever else uses x and y."""
    *vectors, far_scale, far, multiply, count, then, arguments = rest
    xs, extra = vectors[:count], vectors[count:]
    y, moved = multiply(block, scale, [middle], [far_scale, far])
    widths = np.cumsum([x.shape[1] for x in xs])
    ys = [np.ascontiguousarray(part) for part in np.split(y, widths[:-1], axis=1)]
    if then is None:
        return tuple(ys), (moved, None)
    written, result = then(block, *xs, *ys, *extra, *arguments)
    return (*ys, *written), (moved, result)
