"""Sweeps over a symmetric block matrix A = L + D + Lᵀ: what a multigrid cycle does on one level, compiled.

Vectors are (unknowns, columns). Rows are taken one after the other on one thread, so that the bytes of a result depend
on nothing else. The blocks of a row lie transposed under each other: in a sweep their product with what stands at the
columns of the row, gathered, is one call of BLAS (three to four times faster than block by block). Importing this
imports numba. (What is compiled is kept on disk only if no function stands inside of another that others name.)
"""

from __future__ import annotations

import numpy as np
from numba import njit

from bigembed.blocks.rows import Array


@njit(cache=True, nogil=True)
def add(out: Array, block: Array, x: Array, sign: float) -> None:
    """out ← out ± block x."""
    for s in range(block.shape[0]):
        for u in range(block.shape[1]):
            v = out.dtype.type(sign * block[s, u])
            for c in range(out.shape[1]):
                out[s, c] += v * x[u, c]


@njit(cache=True, nogil=True)
def gathered(index: Array, start: int, stop: int, x: Array, near: Array, p: int) -> Array:
    """The rows of x at the columns of some blocks, in ``near``."""
    for e in range(start, stop):
        for i in range(p):
            for k in range(x.shape[1]):
                near[(e - start) * p + i, k] = x[index[e] * p + i, k]
    return near[: (stop - start) * p]


@njit(cache=True, nogil=True)
def room(pointer: Array, p: int, x: Array) -> Array:
    """What holds the rows of x at the columns of any row of blocks."""
    return np.empty((np.diff(pointer).max() * p, x.shape[1]), x.dtype)


@njit(cache=True, nogil=True)
def forward(pointer: Array, index: Array, blocks: Array, inverse: Array, right: Array, x: Array) -> None:
    """x ← (L + D)⁻¹ r, block Gauss–Seidel from zero."""
    p = inverse.shape[1]
    rows, near = blocks.reshape(-1, p), room(pointer, p, x)
    r = np.empty((p, x.shape[1]), x.dtype)
    for a in range(len(pointer) - 1):
        start, stop = pointer[a], pointer[a]
        while index[stop] < a:
            stop += 1
        r[:] = 0
        if start < stop:
            np.dot(rows[start * p : stop * p].T, gathered(index, start, stop, x, near, p), r)
        np.dot(inverse[a], right[a * p : a * p + p] - r, x[a * p : a * p + p])


@njit(cache=True, nogil=True)
def backward(pointer: Array, index: Array, blocks: Array, inverse: Array, right: Array, x: Array) -> None:
    """x ← x + (D + Lᵀ)⁻¹ (r − A x), in the other direction: the adjoint of :func:`forward`."""
    p = inverse.shape[1]
    rows, near = blocks.reshape(-1, p), room(pointer, p, x)
    r = np.empty((p, x.shape[1]), x.dtype)
    for a in range(len(pointer) - 2, -1, -1):
        start, stop = pointer[a], pointer[a + 1]
        np.dot(rows[start * p : stop * p].T, gathered(index, start, stop, x, near, p), r)
        x[a * p : a * p + p] += np.dot(inverse[a], right[a * p : a * p + p] - r)


@njit(cache=True, nogil=True)
def rest(pointer: Array, index: Array, blocks: Array, x: Array, out: Array) -> None:
    """out ← −Lᵀ x, which is r − A x after :func:`forward`."""
    p = blocks.shape[1]
    rows, near = blocks.reshape(-1, p), room(pointer, p, x)
    out[:] = 0
    for a in range(len(pointer) - 1):
        start, stop = pointer[a], pointer[a + 1]
        while index[start] < a:
            start += 1
        start += 1
        if start < stop:
            np.dot(rows[start * p : stop * p].T, gathered(index, start, stop, x, near, p), out[a * p : a * p + p])
    out *= -1


@njit(cache=True, nogil=True)
def remainder(pointer: Array, index: Array, blocks: Array, right: Array, x: Array, out: Array) -> None:
    """out ← r − A x, all in the precision of the blocks."""
    p = blocks.shape[1]
    rows, near = blocks.reshape(-1, p), room(pointer, p, x)
    for a in range(len(pointer) - 1):
        start, stop = pointer[a], pointer[a + 1]
        np.dot(rows[start * p : stop * p].T, gathered(index, start, stop, x, near, p), out[a * p : a * p + p])
    for i in range(len(out)):
        for k in range(out.shape[1]):
            out[i, k] = right[i, k] - out[i, k]


@njit(cache=True, nogil=True)
def product(pointer: Array, index: Array, blocks: Array, x: Array, out: Array) -> None:
    """out ← A x, in the precision of x."""
    p = blocks.shape[1]
    out[:] = 0
    for a in range(len(pointer) - 1):
        for e in range(pointer[a], pointer[a + 1]):
            j = index[e]
            add(out[a * p : a * p + p], blocks[e].T, x[j * p : j * p + p], 1.0)


@njit(cache=True, nogil=True)
def restrict(label: Array, functions: Array, x: Array, out: Array) -> None:
    """out ← Qᵀ x, with the functions Q of the aggregates and the larger aggregate of each."""
    p, q = functions.shape[1:]
    out[:] = 0
    for a in range(len(label)):
        add(out[label[a] * q : label[a] * q + q], functions[a].T, x[a * p : a * p + p], 1.0)


@njit(cache=True, nogil=True)
def prolong(label: Array, functions: Array, y: Array, x: Array) -> None:
    """x ← x + Q y."""
    p, q = functions.shape[1:]
    for a in range(len(label)):
        add(x[a * p : a * p + p], functions[a], y[label[a] * q : label[a] * q + q], 1.0)


@njit(cache=True, nogil=True)
def galerkin(
    first: int, last: int, starts: Array, order: Array, label: Array, pointer: Array, index: Array, blocks: Array,
    functions: Array, below: Array, columns: Array, out: Array,
) -> None:  # fmt: skip
    """The rows first … last − 1 of QᵀAQ, transposed, in ``out``: their blocks stand at below[first] … in ``columns``.

    Those of one row at a time are summed, in double precision.
    """
    p, q = functions.shape[1:]
    place, half = np.empty(len(below) - 1, np.int64), np.empty((p, q))
    sums = np.empty((np.diff(below[first : last + 1]).max(), q, q))
    for s in range(first, last):
        count = below[s + 1] - below[s]
        for t in range(count):
            place[columns[below[s] + t]] = t
        sums[:count] = 0
        for a in order[starts[s] : starts[s + 1]]:
            for e in range(pointer[a], pointer[a + 1]):
                half[:] = 0
                add(half, blocks[e].T, functions[index[e]], 1.0)
                add(sums[place[label[index[e]]]], functions[a].T, half, 1.0)
        for t in range(count):
            out[below[s] + t] = sums[t].T
