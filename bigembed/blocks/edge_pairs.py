"""A number for each edge of a block, from what both of its rows have; compiled. Importing this imports numba.

Columns from len(own) on are the rows of ``far``. The bytes are those of NumPy's operations in the same order.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numba import njit, types

from bigembed.blocks.rows import Array


def _read(kind: types.Type) -> Any:
    return types.Array(kind, 1, "C", readonly=True)


_line = _read(types.float64)
_SIGNATURE = types.void(_read(types.int64), _read(types.int32), _line, _line, types.Array(types.float64, 1, "C"))


@njit(_SIGNATURE, cache=True, nogil=True)
def products(indptr: Array, indices: Array, own: Array, far: Array, out: Array) -> None:
    """x_i x_j"""
    rows = len(own)
    for i in range(rows):
        for e in range(indptr[i], indptr[i + 1]):
            j = np.intp(indices[e])
            out[e] = own[i] * (own[j] if j < rows else far[j - rows])


@njit(_SIGNATURE, cache=True, nogil=True)
def mean_squares(indptr: Array, indices: Array, own: Array, far: Array, out: Array) -> None:
    """(x_i² + x_j²) / 2"""
    rows = len(own)
    for i in range(rows):
        for e in range(indptr[i], indptr[i + 1]):
            j = np.intp(indices[e])
            other = own[j] if j < rows else far[j - rows]
            out[e] = (own[i] * own[i] + other * other) / 2
