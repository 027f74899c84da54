"""The functions on each aggregate, compiled, with LAPACK called from there: any number of threads at a time.

SciPy's wrappers of LAPACK hold the lock of the interpreter, and take as long as a matrix of 50 rows. Importing this
imports numba.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from llvmlite import binding  # type: ignore[import-untyped]
from numba import njit, types
from numba.extending import get_cython_function_address

from bigembed.blocks.rows import Array

binding.add_symbol("bigembed_dsyevr", get_cython_function_address("scipy.linalg.cython_lapack", "dsyevr"))
_dsyevr: Any = types.ExternalFunction("bigembed_dsyevr", types.void(*[types.intp] * 21))

_matrix = types.Array(types.float64, 2, "C")
_line = types.Array(types.float64, 1, "C", readonly=True)
_places = types.Array(types.int64, 1, "C", readonly=True)
_basis = types.Array(types.float32, 2, "C")


@njit(types.intp(_matrix, _line, _matrix), cache=True, nogil=True)
def lowest_beside(matrix: Array, unit: Array, rows: Array) -> int:
    """rows ← ``unit``, which a positive semidefinite matrix of norm at most 2 maps to 0, and its next eigenvectors.

    In ascending order; the matrix is written over. Returns what LAPACK does, 0 as a rule.
    """
    n, count = len(unit), len(rows) - 1
    rows[0] = unit
    if not count:
        return 0
    for i in range(n):
        for j in range(n):
            matrix[i, j] += 4.0 * unit[i] * unit[j]
    letters = np.array([ord("V"), ord("I"), ord("L")], np.uint8)
    sizes = np.array([n, 1, count, 0, 26 * n, 10 * n, 0], np.int32)
    reals, values, support = np.zeros(3), np.empty(n), np.empty(2 * n, np.int32)
    work, integers = np.empty(26 * n), np.empty(10 * n, np.int32)
    held = (sizes, letters, reals, values, support, work, integers)  # (an array is freed after its last use)
    text, size, real = letters.ctypes.data, sizes.ctypes.data, reals.ctypes.data
    _dsyevr(
        text, text + 1, text + 2, size, matrix.ctypes.data, size, real, real + 8, size + 4, size + 8, real + 16,
        size + 12, values.ctypes.data, rows[1:].ctypes.data, size, support.ctypes.data, work.ctypes.data, size + 16,
        integers.ctypes.data, size + 20, size + 24,
    )  # fmt: skip
    return int(held[0][6])


@njit(
    types.intp(
        types.intp, types.intp, _places, _places, _places, _places, _places, _places, _line, _line, _basis
    ),
    cache=True, nogil=True,
)  # fmt: skip
def fill_basis(
    first: int, last: int, bounds: Array, order: Array, place: Array, label: Array, pointer: Array, index: Array,
    data: Array, scale: Array, basis: Array,
) -> int:  # fmt: skip
    """Rows of the basis that belong to the aggregates first … last − 1, members order[bounds[a] : bounds[a + 1]].

    The matrix is in CSR form, and ``place`` the place of each row in its aggregate. Returns what LAPACK does.
    """
    for a in range(first, last):
        members = order[bounds[a] : bounds[a + 1]]
        n = len(members)
        root, neumann = 1 / scale[members], np.zeros((n, n))
        for i in range(n):
            row, total = members[i], 0.0
            for e in range(pointer[row], pointer[row + 1]):
                j = index[e]
                if label[j] == a and j != row:
                    neumann[i, place[j]] = -data[e]
                    total += data[e] * root[place[j]]
            neumann[i, i] = total / root[i]
        rows = np.empty((min(basis.shape[1], n), n))
        info = lowest_beside(neumann, root / np.sqrt(np.sum(root**2)), rows)
        if info:
            return info
        for k in range(len(rows)):
            for i in range(n):
                basis[members[i], k] = rows[k, i]
    return 0
