"""Masked arrays: what lies under a mask is not data."""

from __future__ import annotations

from typing import Any

import numpy as np

from bigembed.errors import InputError

NAMED = 10
"""Offending rows named in an error."""


def unmasked(values: Any, start: int = 0, what: str = "rows") -> Any:
    """The values of an array that may be masked; InputError that names the rows where entries are masked.

    ``start`` numbers the first row.

    >>> unmasked(np.ma.array([[1.0, 2.0]], mask=[[False, False]])).tolist()
    [[1.0, 2.0]]
    """
    if not isinstance(values, np.ma.MaskedArray):
        return values
    mask = np.ma.getmaskarray(values)
    if mask.any():
        bad = np.flatnonzero(mask.reshape(len(mask), -1).any(axis=1)) if mask.ndim else np.zeros(1, int)
        raise InputError(
            f"{what} hold masked entries, which are not numbers: {int(mask.sum())} in {len(bad)} rows; the first are "
            f"rows {(bad[:NAMED] + start).tolist()}. Drop these rows, or fill the entries (filled; the step 'missing')"
        )
    return np.asarray(values.data)


def nan_dtype(dtype: Any) -> np.dtype[Any]:
    """The dtype of the same numbers that has NaN besides.

    >>> nan_dtype("int16"), nan_dtype("int64"), nan_dtype("float32")
    (dtype('float32'), dtype('float64'), dtype('float32'))
    """
    dtype = np.dtype(dtype)
    small = np.can_cast(dtype, np.float32)
    return dtype if dtype.kind == "f" else np.dtype(np.float32 if small else np.float64)


def without_mask(values: Any) -> Any:
    """The values of an array that may be masked, or of a lazy Dask array of such, with NaN for what is masked.

    >>> without_mask(np.ma.array([[1, 2]], mask=[[False, True]])).tolist()
    [[1.0, nan]]
    """
    if hasattr(values, "dask"):
        return values.map_blocks(without_mask, dtype=values.dtype, meta=np.empty((0,) * values.ndim, values.dtype))
    if not isinstance(values, np.ma.MaskedArray):
        return values
    return np.ma.filled(values.astype(nan_dtype(values.dtype)), np.nan)
