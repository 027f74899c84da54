"""From coordinates back to rows by a linear map: in memory for arrays in memory, else lazily, block by block."""

from __future__ import annotations

from collections.abc import Callable
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
    """Rows Aᵀy + b of coordinates of any kind: NumPy for arrays in memory, a lazy Dask array otherwise."""
    m, d = matrix.shape
    return rows_of(estimator, X, Inverse(np.ascontiguousarray(matrix), np.broadcast_to(offset, d)), m, d)


def rows_of(estimator: Any, X: Any, back: Callable[[Any], Array], m: int, d: int) -> Any:
    """What ``back`` makes of coordinates (k, m), rows (k, d); InputError where they are not m."""
    held = in_memory(X)
    given: Any = np.asarray(X) if held else open_array(X)
    if given.ndim != 2 or given.shape[1] != m:
        raise InputError(
            f"coordinates have shape {given.shape}, but {type(estimator).__name__} has {m}: shape (k, {m}) is needed"
        )
    if held:
        return back(given)
    dtype = kind_of(given.dtype)
    whole = given.rechunk({1: m})
    return whole.map_blocks(back, dtype=dtype, chunks=(whole.chunks[0], (d,)), meta=np.empty((0, 0), dtype))


def kind_of(dtype: Any) -> np.dtype[Any]:
    """The dtype of what follows from numbers of this one."""
    return np.dtype(np.float32 if dtype == np.float32 else np.float64)
