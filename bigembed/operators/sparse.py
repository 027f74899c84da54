"""A sparse symmetric matrix by row blocks, scaled on both sides: A = diag(s) W diag(s).

With s = d^{-1/2} on the rows of one component and 0 elsewhere this is S = D^{-1/2} W D^{-1/2}
(seed 000 eq. 31, seed 001 eq. 2) restricted to that component.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache, partial
from typing import Any

import numpy as np
from scipy import sparse

from bigembed.blocks.csr import BlockMatrix, CSRBlock
from bigembed.blocks.rows import Array
from bigembed.blocks.stripes import spread, stripes
from bigembed.blocks.vector_space import VectorSpace
from bigembed.errors import InputError
from bigembed.operators.base import BlockOperator, Multiply


class SparseOperator(BlockOperator):
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
        super().__init__(space, scale)
        self.matrix = matrix
        self.entries = partial(scaled_block, matrix)

    def multiplier(self, names: Sequence[str]) -> Multiply:
        """s ∘ (W (s ∘ x))."""
        return partial(multiply_block, self.matrix)


def multiply_block(
    matrix: BlockMatrix, block: int, scale: Array, xs: Sequence[Array], halos: Sequence[Array]
) -> tuple[Array, int]:
    """(s W s) x for the rows of one block."""
    far_scale, *far = halos
    stored = matrix.block(block)
    x, halo = (np.ascontiguousarray(parts[0] if len(parts) == 1 else np.hstack(parts)) for parts in (xs, far))
    y = np.empty((len(scale), x.shape[1]))
    data = stored.data if stored.data.dtype in (np.float32, np.float64) else stored.data.astype(np.float64)
    full = np.concatenate([scale, far_scale])[:, 0]
    given = (stored.indptr.astype(np.int64), stored.indices.astype(np.int32, copy=False), data, full, x, halo, y)
    spread([partial(_compiled(), *stripe, *given) for stripe in stripes(len(scale))])
    return y, sum(part.nbytes for part in halos)


@cache
def _compiled() -> Any:
    from bigembed.operators.row_product import scaled_product  # imports numba: only here

    return scaled_product


def scaled_block(matrix: BlockMatrix, block: int, scale: Array, far_scale: Array) -> tuple[Any, Array, Array]:
    """The scaled rows of A in one block; source block and row of each halo entry."""
    stored = matrix.block(block)
    rows = _csr(stored, len(scale))
    full = np.concatenate([scale, far_scale])[:, 0]
    data = np.repeat(scale[:, 0], np.diff(rows.indptr)) * rows.data.astype(np.float64) * full[rows.indices]
    scaled = sparse.csr_array((data, rows.indices, rows.indptr), shape=rows.shape)
    source = np.repeat(stored.halo_sources, np.diff(stored.halo_offsets))
    return scaled, source, stored.halo_rows


def _csr(stored: CSRBlock, rows: int) -> Any:
    shape = (rows, rows + len(stored.halo_rows))
    return sparse.csr_array((stored.data, stored.indices, stored.indptr), shape=shape)
