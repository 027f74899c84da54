"""Sweeps over a symmetric block matrix A = L + D + Lᵀ: what a multigrid cycle does on one level, compiled.

Vectors are (unknowns, columns), of a multiple of :data:`~bigembed.blocks.tile_product.LANES` columns. Rows are taken
one after the other on one thread, so that the bytes of a result depend on nothing else. The blocks of a row lie
transposed, so that a column of one is read in a line, and a sum over them stays in registers (a cycle on 31 000
unknowns, 7 blocks a row: 14 ms for 37 with a call of BLAS for each row). Importing this imports numba. (What is
compiled is kept on disk only if no function stands inside of another that others name.)
"""

from __future__ import annotations

import numpy as np
from numba import njit

from bigembed.blocks.rows import Array
from bigembed.blocks.tile_product import add_product


@njit(cache=True, nogil=True)
def add_blocks(out: Array, at: int, blocks: Array, index: Array, start: int, stop: int, x: Array) -> None:
    """Rows of out from ``at`` on ← themselves + Σ_e blocks_e x_index[e] for e = start … stop − 1, in this order."""
    p, width = blocks.shape[1], x.shape[1]
    for e in range(start, stop):
        add_product(out, at * width, blocks, e * p * p, 1, p, p, p, x, index[e] * p * width, width)


@njit(cache=True, nogil=True)
def add_solved(x: Array, a: int, inverse: Array, right: Array, r: Array) -> None:
    """x_a ← x_a + D_a⁻¹ (right_a − r); r is written over."""
    p, width = inverse.shape[1], x.shape[1]
    for i in range(p):
        for k in range(width):
            r[i, k] = right[a * p + i, k] - r[i, k]
    add_product(x, a * p * width, inverse, a * p * p, p, 1, p, p, r, 0, width)


@njit(cache=True, nogil=True)
def forward(pointer: Array, index: Array, blocks: Array, inverse: Array, right: Array, x: Array) -> None:
    """x ← (L + D)⁻¹ r, block Gauss–Seidel from zero."""
    r = np.empty((inverse.shape[1], x.shape[1]), x.dtype)
    x[:] = 0
    for a in range(len(pointer) - 1):
        stop = pointer[a]
        while index[stop] < a:
            stop += 1
        r[:] = 0
        add_blocks(r, 0, blocks, index, pointer[a], stop, x)
        add_solved(x, a, inverse, right, r)


@njit(cache=True, nogil=True)
def backward(pointer: Array, index: Array, blocks: Array, inverse: Array, right: Array, x: Array) -> None:
    """x ← x + (D + Lᵀ)⁻¹ (r − A x), in the other direction: the adjoint of :func:`forward`."""
    r = np.empty((inverse.shape[1], x.shape[1]), x.dtype)
    for a in range(len(pointer) - 2, -1, -1):
        r[:] = 0
        add_blocks(r, 0, blocks, index, pointer[a], pointer[a + 1], x)
        add_solved(x, a, inverse, right, r)


@njit(cache=True, nogil=True)
def rest(pointer: Array, index: Array, blocks: Array, x: Array, out: Array) -> None:
    """out ← −Lᵀ x, which is r − A x after :func:`forward`."""
    out[:] = 0
    for a in range(len(pointer) - 1):
        start = pointer[a]
        while index[start] < a:
            start += 1
        add_blocks(out, a * blocks.shape[1], blocks, index, start + 1, pointer[a + 1], x)
    out *= -1


@njit(cache=True, nogil=True)
def product(pointer: Array, index: Array, blocks: Array, x: Array, out: Array) -> None:
    """out ← A x, in the precision of x."""
    out[:] = 0
    for a in range(len(pointer) - 1):
        add_blocks(out, a * blocks.shape[1], blocks, index, pointer[a], pointer[a + 1], x)


@njit(cache=True, nogil=True)
def restrict(label: Array, functions: Array, x: Array, out: Array) -> None:
    """out ← Qᵀ x, with the functions Q of the aggregates and the larger aggregate of each."""
    (p, q), width = functions.shape[1:], x.shape[1]
    out[:] = 0
    for a in range(len(label)):
        add_product(out, label[a] * q * width, functions, a * p * q, 1, q, q, p, x, a * p * width, width)


@njit(cache=True, nogil=True)
def prolong(label: Array, functions: Array, y: Array, x: Array) -> None:
    """x ← x + Q y."""
    (p, q), width = functions.shape[1:], x.shape[1]
    for a in range(len(label)):
        add_product(x, a * p * width, functions, a * p * q, q, 1, p, q, y, label[a] * q * width, width)


@njit(cache=True, nogil=True)
def galerkin(
    first: int, last: int, starts: Array, order: Array, label: Array, pointer: Array, index: Array, blocks: Array,
    functions: Array, wide: Array, below: Array, columns: Array, out: Array,
) -> None:  # fmt: skip
    """The rows first … last − 1 of QᵀAQ, transposed, in ``out``: their blocks stand at below[first] … in ``columns``.

    Those of one row at a time are summed, in double precision. ``wide``: the rows of Q in double precision, with
    columns of zeros up to a multiple of the lanes.
    """
    (p, q), width = functions.shape[1:], wide.shape[1]
    half, place, most = np.empty((p, width)), np.empty(len(below) - 1, np.int64), 0
    for s in range(first, last):
        most = max(most, below[s + 1] - below[s])
    sums = np.empty((most * q, width))
    for s in range(first, last):
        count = below[s + 1] - below[s]
        for t in range(count):
            place[columns[below[s] + t]] = t
        sums[: count * q] = 0
        for a in order[starts[s] : starts[s + 1]]:
            for e in range(pointer[a], pointer[a + 1]):
                half[:] = 0
                add_blocks(half, 0, blocks, index, e, e + 1, wide)
                add_product(sums, place[label[index[e]]] * q * width, functions, a * p * q, 1, q, q, p, half, 0, width)
        for t in range(count):
            out[below[s] + t] = sums[t * q : t * q + q, :q].T
