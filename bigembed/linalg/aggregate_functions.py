"""The functions on each aggregate, compiled: the lowest eigenvectors of a small matrix by inverse iteration.

Only their span is used, and smooth functions near to the eigenvectors serve as well. :data:`STEPS` steps of

    Z ← (N + δI)⁻¹ Z,    Z ⟂ u,

from a fixed block of random columns, some more than are wanted, and Rayleigh–Ritz at the end (N Z = Z_before − δ Z
costs no product). A step is one Cholesky factor's worth of triangular solves; the factor takes n³/6 operations, where
the reduction to tridiagonal form takes eight times as many. Importing this imports numba.
"""

from __future__ import annotations

import numpy as np
from numba import njit, types

from bigembed.runtime.arithmetic import add_inner, add_row, add_rows, weighted_rows
from bigembed.runtime.blocks import Array

SHIFT = 1e-5
"""δ."""
STEPS = 2
DEPENDENT, CANCELLED = 1e-14, 1e-8
"""Share of the squared length of a column that is left without its part along the columns before it: below the first it
counts as dependent on them, below the second it is orthogonalized against them again."""

_matrix = types.Array(types.float64, 2, "C")
_read = types.Array(types.float64, 2, "C", readonly=True)
_line = types.Array(types.float64, 1, "C", readonly=True)
_write = types.Array(types.float64, 1, "C")
_count = types.Array(types.int64, 1, "C")
_places = types.Array(types.int64, 1, "C", readonly=True)
_index = types.Array(types.int32, 1, "C", readonly=True)
_blocks = types.Array(types.float32, 3, "C", readonly=True)
_functions = types.Array(types.float32, 3, "C")
_basis = types.Array(types.float32, 2, "C")


@njit(types.float64(_matrix, _write, _count), cache=True, nogil=True)
def factored(a: Array, inverse: Array, ids: Array) -> float:
    """a ← its Cholesky factor L, and Lᵀ above; the inverse of its diagonal, 0 where a column depends on those before.

    Returns the smallest share of a diagonal entry that was left. ``ids``: 0, 1, 2, …
    """
    n, flat, least = len(a), a.reshape(-1), 1.0
    sums = np.empty((1, n))
    for i in range(n):
        whole = a[i, i]
        weighted_rows(sums, 0, flat, i * n, i * n + i, ids, -i * n, a, a, i)
        left = (whole - sums[0, i]) / whole if whole > 0 else 0.0
        least = min(least, left)
        inverse[i] = 1 / np.sqrt(left * whole) if left > DEPENDENT else 0.0
        for j in range(i, n):
            a[i, j] = (a[i, j] - sums[0, j]) * inverse[i]
            a[j, i] = a[i, j]
    return least


@njit(nogil=True)
def _forward(a: Array, inverse: Array, ids: Array, z: Array, sums: Array) -> None:
    """z ← L⁻¹ z with what :func:`factored` left."""
    n, flat = len(a), a.reshape(-1)
    for i in range(n):
        weighted_rows(sums, i, flat, i * n, i * n + i, ids, -i * n, z, z, 0)
        for k in range(z.shape[1]):
            z[i, k] = (z[i, k] - sums[i, k]) * inverse[i]


@njit(nogil=True)
def _backward(a: Array, inverse: Array, ids: Array, z: Array, sums: Array) -> None:
    """z ← L⁻ᵀ z."""
    n, flat = len(a), a.reshape(-1)
    for i in range(n - 1, -1, -1):
        weighted_rows(sums, i, flat, i * n + i + 1, i * n + n, ids, -i * n, z, z, 0)
        for k in range(z.shape[1]):
            z[i, k] = (z[i, k] - sums[i, k]) * inverse[i]


@njit(nogil=True)
def _project_out(unit: Array, z: Array) -> None:
    """z ← z − u uᵀz, twice, for what rounding leaves."""
    for _ in range(2):
        along = np.zeros((1, z.shape[1]))
        for i in range(len(unit)):
            add_row(along, 0, unit[i], z, i)
        for i in range(len(unit)):
            add_row(z, i, -unit[i], along, 0)


@njit(nogil=True)
def _inner(a: Array, b: Array) -> Array:
    """aᵀb."""
    out = np.zeros((a.shape[1], b.shape[1]))
    add_inner(out, 0, a, 0, len(a), b, 0)
    return out


@njit(nogil=True)
def _mixed(z: Array, by: Array) -> Array:
    """z by."""
    out = np.zeros((len(z), by.shape[1]))
    add_rows(out, 0, z, 0, len(z), by)
    return out


@njit(nogil=True)
def _identity(q: int) -> Array:
    out = np.zeros((q, q))
    for i in range(q):
        out[i, i] = 1.0
    return out


@njit(nogil=True)
def _transposed(a: Array) -> Array:
    out = np.empty((a.shape[1], len(a)))
    for i in range(len(a)):
        for k in range(a.shape[1]):
            out[k, i] = a[i, k]
    return out


@njit(nogil=True)
def _scaled(x: Array) -> tuple[Array, float]:
    """x divided by its length, and that."""
    total, out = 0.0, np.empty(len(x))
    for value in x:
        total += value * value
    length = np.sqrt(total)
    for i in range(len(x)):
        out[i] = x[i] / length
    return out, length


@njit(nogil=True)
def _orthonormal(z: Array, ids: Array, sums: Array) -> tuple[Array, Array]:
    """z L⁻ᵀ with zᵀz = L Lᵀ, and L⁻ᵀ; a column that depends on those before it becomes 0. Twice where much cancels."""
    q = z.shape[1]
    whole = _identity(q)
    for _ in range(2):
        gram, inverse, by = _inner(z, z), np.empty(q), _identity(q)
        least = factored(gram, inverse, ids)
        _forward(gram, inverse, ids, by, sums)
        by = _transposed(by)
        z, whole = _mixed(z, by), _mixed(whole, by)
        if least > CANCELLED:
            break
    return z, whole


@njit(types.void(_matrix, _line, _read, _matrix), cache=True, nogil=True)
def fill_lowest_orthogonal(matrix: Array, unit: Array, start: Array, rows: Array) -> None:
    """rows ← ``unit``, which a positive semidefinite matrix of norm at most 2 maps to 0, and orthonormal functions
    near to its next eigenvectors, in ascending order of their Rayleigh quotients.

    ``start``: random columns, a multiple of what a processor takes at a time, and at least as many rows as the matrix
    has, which is written over.
    """
    n, count = len(unit), len(rows) - 1
    for i in range(n):
        rows[0, i] = unit[i]
    if not count:
        return
    q = start.shape[1]
    ids = np.arange(max(n, q))
    z, sums, inverse = start[:n].copy(), np.empty((max(n, q), q)), np.empty(n)
    for i in range(n):
        for k in range(n - 1, q):
            z[i, k] = 0.0
    before, by = z, np.zeros((q, q))
    for i in range(n):
        matrix[i, i] += SHIFT
    factored(matrix, inverse, ids)
    for _ in range(STEPS):
        before = z.copy()
        _forward(matrix, inverse, ids, z, sums)
        _backward(matrix, inverse, ids, z, sums)
        _project_out(unit, z)
        z, by = _orthonormal(z, ids, sums)
    form = _mixed(_inner(z, before), by)
    for i in range(q):
        if by[i, i] == 0:
            for k in range(q):
                form[i, k], form[k, i] = 0.0, 0.0
            form[i, i] = 1 / SHIFT
    for i in range(q):
        for k in range(i + 1):
            form[i, k] = (form[i, k] + form[k, i]) / 2
            form[k, i] = form[i, k]
    z = _mixed(z, np.ascontiguousarray(np.linalg.eigh(form)[1]))
    for k in range(count):
        for i in range(n):
            rows[1 + k, i] = z[i, k]


@njit(
    types.void(
        types.intp, types.intp, _places, _places, _places, _places, _places, _index, _line, _line, _read, _basis
    ),
    cache=True, nogil=True,
)  # fmt: skip
def fill_basis(
    first: int, last: int, bounds: Array, order: Array, place: Array, label: Array, pointer: Array, index: Array,
    data: Array, scale: Array, start: Array, basis: Array,
) -> None:  # fmt: skip
    """Rows of the basis that belong to the aggregates first … last − 1, members order[bounds[a] : bounds[a + 1]].

    The matrix is in CSR form (columns from len(label) on are left out), and ``place`` the place of each row in its
    aggregate.
    """
    for a in range(first, last):
        members = order[bounds[a] : bounds[a + 1]]
        n = len(members)
        root, neumann = np.empty(n), np.zeros((n, n))
        for i in range(n):
            root[i] = 1 / scale[members[i]]
        for i in range(n):
            row, total = members[i], 0.0
            for e in range(pointer[row], pointer[row + 1]):
                j = index[e]
                if j < len(label) and label[j] == a and j != row:
                    neumann[i, place[j]] = -data[e]
                    total += data[e] * root[place[j]]
            neumann[i, i] = total / root[i]
        rows = np.empty((min(basis.shape[1], n), n))
        fill_lowest_orthogonal(neumann, _scaled(root)[0], start, rows)
        for k in range(len(rows)):
            for i in range(n):
                basis[members[i], k] = rows[k, i]


@njit(
    types.void(types.intp, types.intp, *[_places] * 5, _index, _blocks, _read, _read, _functions, _matrix),
    cache=True, nogil=True,
)  # fmt: skip
def fill_joined(
    first: int, last: int, bounds: Array, order: Array, place: Array, label: Array, pointer: Array, index: Array,
    blocks: Array, constant: Array, start: Array, functions: Array, joined: Array,
) -> None:  # fmt: skip
    """The functions of the larger aggregates first … last − 1 of a block matrix, and their constants, by its Neumann
    matrices (see :mod:`bigembed.linalg.multigrid`)."""
    p = constant.shape[1]
    v = np.empty(p)
    for s in range(first, last):
        members = order[bounds[s] : bounds[s + 1]]
        n = len(members) * p
        matrix, root = np.zeros((n, n)), np.empty(n)
        for i in range(len(members)):
            a = members[i]
            for u in range(p):
                root[i * p + u] = constant[a, u]
            for e in range(pointer[a], pointer[a + 1]):
                b = index[e]
                if label[b] == s:
                    for u in range(p):
                        for c in range(p):
                            matrix[i * p + c, place[b] * p + u] += blocks[e, u, c] / 2
                            matrix[place[b] * p + u, i * p + c] += blocks[e, u, c] / 2
                    continue
                mass = 0.0
                for c in range(p):
                    v[c] = 0
                    for u in range(p):
                        v[c] -= blocks[e, u, c] * constant[b, u]
                    mass += v[c] * constant[a, c]
                for u in range(p if mass > 0 else 0):
                    for c in range(p):
                        matrix[i * p + u, i * p + c] -= v[u] * v[c] / mass
        unit, joined[s, 0] = _scaled(root)
        rows = np.empty((min(functions.shape[2], n), n))
        fill_lowest_orthogonal(matrix, unit, start, rows)
        for k in range(len(rows)):
            for i in range(len(members)):
                for u in range(p):
                    functions[members[i], u, k] = rows[k, i * p + u]
