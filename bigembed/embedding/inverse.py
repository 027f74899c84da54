"""From coordinates back to rows by a linear map: in memory for arrays in memory, else lazily, block by block."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from bigembed.blocks.affine import Affine
from bigembed.blocks.rows import Array
from bigembed.errors import InputError
from bigembed.store.inputs.input import in_memory
from bigembed.store.rows.given import as_array
from bigembed.store.rows.opening import open_array


def inverse(estimator: Any, X: Any, matrix: Array, offset: Array | float = 0.0) -> Any:
    """Rows Aᵀy + b of coordinates of any kind: NumPy for arrays in memory, a lazy Dask array otherwise."""
    m, d = matrix.shape
    return rows_of(estimator, X, Affine(None, np.ascontiguousarray(matrix), np.broadcast_to(offset, d)), m, d)


def rows_of(estimator: Any, X: Any, back: Callable[[Any], Array], m: int, d: int) -> Any:
    """What ``back`` makes of coordinates (k, m), rows (k, d); InputError where they are not m."""
    held = in_memory(X)
    given: Any = as_array(X, "coordinates") if held else open_array(X)
    if given.ndim != 2 or given.shape[1] != m:
        raise InputError(
            f"coordinates have shape {given.shape}, but {type(estimator).__name__} has {m}: shape (k, {m}) is needed"
        )
    if given.dtype.kind not in "buif":
        raise InputError(f"coordinates have dtype {given.dtype}; numbers are needed (bool, int, uint or float)")
    if held:
        return converted(given, back)
    dtype = kind_of(given.dtype)
    whole = given.rechunk({1: m})
    return whole.map_blocks(converted, back, dtype=dtype, chunks=(whole.chunks[0], (d,)), meta=np.empty((0, 0), dtype))


def converted(coordinates: Any, back: Callable[[Any], Array]) -> Array:
    """Rows of coordinates in memory; float32 for float32, else float64."""
    given = np.asarray(coordinates)
    return back(given).astype(kind_of(given.dtype), copy=False)


def kind_of(dtype: Any) -> np.dtype[Any]:
    """The dtype of what follows from numbers of this one."""
    return np.dtype(np.float32 if dtype == np.float32 else np.float64)
