"""From coordinates back to rows by a linear map: in memory for arrays in memory, else lazily, block by block."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from bigembed.blocks.affine import affine_block
from bigembed.blocks.rows import Array
from bigembed.errors import InputError
from bigembed.store.arrays import open_array
from bigembed.store.input import in_memory


@dataclass(frozen=True)
class Inverse:
    """Rows x = Aᵀy + b of coordinates y; float32 for float32, else float64."""

    matrix: Array
    """A (m, d)."""
    offset: Array
    """b (d,)."""

    def __call__(self, coordinates: Any) -> Array:
        """Rows (k, d) of coordinates (k, m)."""
        given = np.asarray(coordinates)
        rows = affine_block(given, np.zeros(len(self.matrix)), self.matrix) + self.offset
        return rows.astype(kind_of(given.dtype), copy=False)


def inverse(estimator: Any, X: Any, matrix: Array, offset: Array | float = 0.0) -> Any:
    """Rows of coordinates of any kind: NumPy for arrays in memory, a lazy Dask array otherwise.

    Raises InputError unless the coordinates are as many as the matrix has rows.
    """
    m, d = matrix.shape
    back = Inverse(np.ascontiguousarray(matrix), np.broadcast_to(offset, d))
    held = in_memory(X)
    rows: Any = np.asarray(X) if held else open_array(X)
    if rows.ndim != 2 or rows.shape[1] != m:
        raise InputError(
            f"coordinates have shape {rows.shape}, but {type(estimator).__name__} has {m}: shape (k, {m}) is needed"
        )
    if held:
        return back(rows)
    dtype = kind_of(rows.dtype)
    return rows.rechunk({1: m}).map_blocks(
        back, dtype=dtype, chunks=(rows.chunks[0], (d,)), meta=np.empty((0, 0), dtype)
    )


def kind_of(dtype: Any) -> np.dtype[Any]:
    """The dtype of what follows from numbers of this one."""
    return np.dtype(np.float32 if dtype == np.float32 else np.float64)
