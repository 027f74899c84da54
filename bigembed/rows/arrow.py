"""Columns of Arrow as arrays."""

from __future__ import annotations

from typing import Any

import numpy as np

from bigembed.rows.reader import DECIMAL, FLOATS, INTEGERS
from bigembed.runtime.blocks import Array


def values_of(column: Any) -> Array:
    """Return the values of an Arrow column; decimals, and numbers of which some are missing, as floats with NaN there.

    Numbers are taken as they lie in memory, text and booleans as Python objects: Arrow's own conversion, which is left
    for other types, imports pandas, 50 MB of every process that reads.
    """
    kind = str(column.type)
    if kind.startswith(DECIMAL):
        return values_of(column.cast("string").cast("double"))  # (straight to double it rounds more than once)
    if kind in (*FLOATS, *INTEGERS):
        if not column.null_count:
            return np.from_dlpack(column)
        missing = np.from_dlpack(column.is_null().cast("uint8")) > 0
        floats = column if kind in FLOATS else column.cast("double", safe=False)
        entries = [None, floats.buffers()[1]]  # (of what is missing they are arbitrary)
        whole = type(floats).from_buffers(floats.type, len(floats), entries, offset=floats.offset)
        return np.where(missing, np.array(np.nan, whole.type.to_pandas_dtype()), np.from_dlpack(whole))
    if kind in ("string", "large_string", "bool"):
        return np.array(column.to_pylist(), bool if kind == "bool" and not column.null_count else object)
    found: Array = column.to_numpy(zero_copy_only=False)
    return found


def is_list(kind: Any) -> bool:
    """Whether a type of Arrow is one of lists, of any or of one length."""
    return hasattr(kind, "value_field")
