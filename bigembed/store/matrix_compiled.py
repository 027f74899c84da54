"""Compiled loops over the entries of a block of sparse rows. Importing this imports numba."""

from __future__ import annotations

from typing import Any

import numpy as np
from numba import njit, types

from bigembed.runtime.arithmetic import weighted_rows
from bigembed.runtime.blocks import Array

# ------------------------------------------------------------------------------------------------------ edge pairs
# A number for each edge of a block, from what both of its rows have; compiled.
#
# Columns from len(own) on are the rows of ``far``. The bytes are those of NumPy's operations in the same order.


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


# ----------------------------------------------------------------------------------------------------- row product
# Rows of diag(s) W diag(s) x, compiled.

_product_line = types.Array(types.float64, 1, "C", readonly=True)
_write = types.Array(types.float64, 2, "C")
_pointer = types.Array(types.int64, 1, "C", readonly=True)
_index = types.Array(types.int32, 1, "C", readonly=True)


def _signature(stored: types.Type, kind: types.Type) -> Any:
    values, vectors = types.Array(stored, 1, "C", readonly=True), types.Array(kind, 2, "C", readonly=True)
    return types.void(types.intp, types.intp, _pointer, _index, values, _product_line, vectors, vectors, _write)


_KINDS = (types.float32, types.float64)


@njit([_signature(stored, kind) for stored in _KINDS for kind in _KINDS], cache=True, nogil=True)
def scaled_product(
    first: int, last: int, pointer: Array, index: Array, data: Array, s: Array, x: Array, far: Array, out: Array
) -> None:
    """out_i ← Σ_j (s_i w_ij s_j) x_j in the order of the entries, for the rows first … last − 1.

    Columns from len(x) on are the rows of ``far``. Sums are in double precision, whatever that of x is.
    """
    longest = 0
    for i in range(first, last):
        longest = max(longest, pointer[i + 1] - pointer[i])
    value = np.empty(longest)
    for i in range(first, last):
        start, count = pointer[i], pointer[i + 1] - pointer[i]
        near, held, own = index[start : start + count], data[start : start + count], s[i]
        for e in range(count):  # (views and numbers without a sign: no look whether a place is counted from the end)
            value[e] = own * held[e] * s[np.uint32(near[e])]
        weighted_rows(out, i, value, 0, count, index, start, x, far, 0)
