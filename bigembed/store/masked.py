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
            f"rows {(bad[:NAMED] + start).tolist()}. Drop these rows, or fill the entries (filled)"
        )
    return np.asarray(values.data)
