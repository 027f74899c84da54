"""Rows of diag(s) W diag(s) x, compiled. Importing this imports numba."""

from __future__ import annotations

from typing import Any

import numpy as np
from numba import njit, types

from bigembed.blocks.rows import Array
from bigembed.blocks.simd import weighted_rows

_line = types.Array(types.float64, 1, "C", readonly=True)
_write = types.Array(types.float64, 2, "C")
_pointer = types.Array(types.int64, 1, "C", readonly=True)
_index = types.Array(types.int32, 1, "C", readonly=True)


def _signature(stored: types.Type, kind: types.Type) -> Any:
    values, vectors = types.Array(stored, 1, "C", readonly=True), types.Array(kind, 2, "C", readonly=True)
    return types.void(types.intp, types.intp, _pointer, _index, values, _line, vectors, vectors, _write)


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
        for e in range(count):
            value[e] = s[i] * data[start + e] * s[index[start + e]]
        weighted_rows(out, i, value, 0, count, index, start, x, far)
