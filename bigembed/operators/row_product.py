"""Rows of diag(s) W diag(s) x, compiled. Importing this imports numba."""

from __future__ import annotations

import numpy as np
from numba import njit, types

from bigembed.blocks.rows import Array
from bigembed.blocks.simd import weighted_rows

_line = types.Array(types.float64, 1, "C", readonly=True)
_read = types.Array(types.float64, 2, "C", readonly=True)
_write = types.Array(types.float64, 2, "C")
_pointer = types.Array(types.int64, 1, "C", readonly=True)
_index = types.Array(types.int32, 1, "C", readonly=True)


@njit(
    [
        types.void(_pointer, _index, types.Array(kind, 1, "C", readonly=True), _line, _read, _read, _write)
        for kind in (types.float32, types.float64)
    ],
    cache=True,
    nogil=True,
)
def scaled_product(pointer: Array, index: Array, data: Array, s: Array, x: Array, far: Array, out: Array) -> None:
    """out_i ← Σ_j (s_i w_ij s_j) x_j in the order of the entries; columns from len(x) on are the rows of ``far``."""
    value = np.empty(max(1, np.diff(pointer).max()))
    for i in range(len(out)):
        start, count = pointer[i], pointer[i + 1] - pointer[i]
        for e in range(count):
            value[e] = s[i] * data[start + e] * s[index[start + e]]
        weighted_rows(out, i, value, 0, count, index, start, x, far)
