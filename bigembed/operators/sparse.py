"""A sparse symmetric matrix by row blocks, scaled on both sides: A = diag(s) W diag(s).

With s = d^{-1/2} on the rows of one component and 0 elsewhere this is S = D^{-1/2} W D^{-1/2}
(seed 000 eq. 31, seed 001 eq. 2) restricted to that component.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from scipy import sparse

from bigembed.blocks.csr import BlockMatrix
from bigembed.blocks.rows import Array
from bigembed.blocks.vectors import VectorSpace
from bigembed.errors import InputError
from bigembed.operators.base import Then, check_names, followed


class SparseOperator:
    """A = diag(s) W diag(s) on the vectors of ``space``; ``scale`` names s, shape (rows, 1), posted.

    A pass reads the matrix once, and of the vectors the own rows and the halo rows of a block.
    Memory of a block task: the block of W, and 8·(rows + halo)·width bytes twice.
    """

    def __init__(self, matrix: BlockMatrix, space: VectorSpace, scale: str = "scale") -> None:
        if tuple(matrix.rows) != tuple(space.rows):
            raise InputError(
                f"the matrix has blocks of {tuple(matrix.rows)} rows, the space of {tuple(space.rows)}; "
                "make the space over the rows of the matrix"
            )
        self.matrix = matrix
        self.space = space
        self.scale = scale
        self.passes = 0
        self.bytes_moved = 0
        self.cache: dict[str, Any] = {}

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
        """One pass: see :meth:`bigembed.operators.base.BlockOperator.product`."""
        check_names(names, into)
        results = self.space.sweep(
            product_block,
            reads=(self.scale, *names, *reads),
            halos=(self.scale, *names),
            writes=(*into, *writes),
            posts=posts,
            arguments=(self.matrix, len(names), len(reads), then, tuple(arguments)),
        )
        return self._count(results)

    def walk(
        self,
        function: Then,
        *,
        reads: Sequence[str] = (),
        writes: Sequence[str] = (),
        posts: Sequence[str] = (),
        arguments: Sequence[Any] = (),
    ) -> list[Any]:
        """One pass: see :meth:`bigembed.operators.base.BlockOperator.walk`."""
        results = self.space.sweep(
            walk_block,
            reads=(self.scale, *reads),
            halos=(self.scale,),
            writes=writes,
            posts=posts,
            arguments=(self.matrix, len(reads), function, tuple(arguments)),
        )
        return self._count(results)

    def _count(self, results: list[Any]) -> list[Any]:
        self.passes += 1
        self.bytes_moved += sum(moved for moved, _ in results)
        return [result for _, result in results]


def product_block(block: int, *arrays: Any) -> tuple[tuple[Array, ...], tuple[int, Any]]:
    """y = s ∘ (W (s ∘ x)) for the rows of one block, then whatever else uses x and y."""
    *vectors, matrix, count, reading, then, arguments = arrays
    scale, xs, extra = vectors[0], vectors[1 : 1 + count], vectors[1 + count : 1 + count + reading]
    far_scale, *far = vectors[1 + count + reading :]
    own, halo = np.concatenate(xs, axis=1), np.concatenate(far, axis=1)
    rows = _csr(matrix.block(block), len(scale))
    y = scale * (rows @ np.concatenate([scale * own, far_scale * halo]))
    arrays, result = followed(block, xs, y, extra, then, arguments)
    return arrays, (halo.nbytes + far_scale.nbytes, result)


def walk_block(block: int, *arrays: Any) -> tuple[Sequence[Array], tuple[int, Any]]:
    """Hand the scaled rows of A to ``function``."""
    *vectors, matrix, reading, function, arguments = arrays
    scale, extra, far_scale = vectors[0], vectors[1 : 1 + reading], vectors[1 + reading]
    stored = matrix.block(block)
    rows = _csr(stored, len(scale))
    full = np.concatenate([scale, far_scale])[:, 0]
    data = np.repeat(scale[:, 0], np.diff(rows.indptr)) * rows.data.astype(np.float64) * full[rows.indices]
    scaled = sparse.csr_array((data, rows.indices, rows.indptr), shape=rows.shape)
    source = np.repeat(stored.halo_sources, np.diff(stored.halo_offsets))
    written, result = function(block, (scaled, source, stored.halo_rows), scale, *extra, *arguments)
    return written, (far_scale.nbytes, result)


def _csr(stored: Any, rows: int) -> Any:
    shape = (rows, rows + len(stored.halo_rows))
    return sparse.csr_array((stored.data, stored.indices, stored.indptr), shape=shape)
