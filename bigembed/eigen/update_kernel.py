"""Sweep A of LOBPCG on some rows of a block, compiled: see :func:`bigembed.eigen.sweeps.update_block`.

Rows are taken in tiles that stay in the cache: products of small matrices are calls of BLAS, what is done to each row
is written out. What is read of a tile is read before anything of it is written, so that the results may take the place
of the vectors they are made of. Importing this imports numba.
"""

from __future__ import annotations

import numpy as np
from numba import njit, types

from bigembed.blocks.rows import Array
from bigembed.blocks.simd import add_row, weighted_rows

TILE = 512
"""Rows."""
PATTERN = 32
"""Rows that are scaled by columns at a time."""

_read = types.Array(types.float64, 2, "C", readonly=True)
_line = types.Array(types.float64, 1, "C", readonly=True)
_write = types.Array(types.float64, 2, "C")
_single = types.Array(types.float32, 2, "C")
_labels = types.Array(types.int64, 1, "C", readonly=True)
_basis = types.Array(types.float32, 2, "C", readonly=True)


@njit(nogil=True)
def _combined(a: Array, ca: Array, b: Array, cb: Array, out: Array, spare: Array) -> None:
    """out ← a ca + b cb, where either may have no columns."""
    out[:] = 0
    if a.shape[1]:
        np.dot(a, ca, out)
    if b.shape[1]:
        np.dot(b, cb, spare)
        out += spare


@njit(nogil=True)
def _add_inner(a: Array, b: Array, target: Array, at: int, spare: Array) -> None:
    """Columns of target, from ``at`` on, += aᵀb."""
    np.dot(a.T, b, spare)
    target[:, at : at + b.shape[1]] += spare


@njit(nogil=True)
def _joined(x: Array, q: Array, ax: Array, aq: Array, r: Array, values: Array, inverse: Array, sums: Array) -> None:
    """x ← x + q, ax ← ax + aq, r ← ax − x · values, sums ← sums + r², q ← q · inverse, aq ← aq · inverse."""
    for k in range(len(x)):
        x[k] += q[k]
        ax[k] += aq[k]
        r[k] = ax[k] - x[k] * values[k]
        sums[k] += r[k] * r[k]
        q[k] *= inverse[k]
        aq[k] *= inverse[k]


@njit(
    types.void(
        types.intp, types.intp, *[_read] * 2, _basis, *[_read] * 3, *[_read] * 3, _read, *[_read] * 4, _line, _line,
        _line, _labels, _basis, _read, *[_write] * 2, _single, *[_write] * 2, *[_write] * 4,
    ),
    cache=True, nogil=True,
)  # fmt: skip
def update(
    start: int, stop: int, x: Array, p: Array, w: Array, ax: Array, ap: Array, aw: Array,
    cx: Array, cp: Array, cw: Array, t: Array, drift: Array, drift_rest: Array, along: Array, along_rest: Array,
    values: Array, inverse: Array, weight: Array, label: Array, basis: Array, y: Array,
    new_x: Array, new_p: Array, new_w: Array, new_ax: Array, new_ap: Array,
    gram: Array, form: Array, overlap: Array, squares: Array,
) -> None:  # fmt: skip
    """Rows start … stop − 1; adds to gram Wᵀ[X P W], form Wᵀ[SX SP], overlap Tᵀ[X P W] and squares.

    X' = X cx + Q, P' = Q · inverse, Q = P cp + W cw, less T times the drift; the images alike; R = SX' − X'Λ;
    W' = R · weight + P_c y, rounded to single precision, as which W is read and written.
    """
    m, functions, known = cx.shape[1], basis.shape[1], t.shape[1]
    tiles = np.empty((6, TILE, m))
    flat = tiles.reshape(6, -1)
    wide = np.empty((TILE, w.shape[1]))
    product, part = np.empty((m, m)), np.empty((known, m))
    scale, level, sums = np.empty(PATTERN * m), np.empty(PATTERN * m), np.zeros(PATTERN * m)
    for k in range(PATTERN):
        scale[k * m : k * m + m] = inverse
        level[k * m : k * m + m] = values
    moved = new_p.shape[1] > 0
    ids = np.arange(len(y))
    for begin in range(start, stop, TILE):
        end = min(begin + TILE, stop)
        rows = end - begin
        bx, q, bax, aq, r = tiles[0, :rows], tiles[1, :rows], tiles[2, :rows], tiles[3, :rows], tiles[4, :rows]
        wide[:rows] = w[begin:end]
        _combined(p[begin:end], cp, wide[:rows], cw, q, r)
        _combined(ap[begin:end], cp, aw[begin:end], cw, aq, r)
        np.dot(x[begin:end], cx, bx)
        np.dot(ax[begin:end], cx, bax)
        for i in range(rows):
            for k in range(known):
                share = -t[begin + i, k]
                add_row(q, i, share, drift_rest, k)
                add_row(bx, i, share, drift, k)
                add_row(aq, i, share, along_rest, k)
                add_row(bax, i, share, along, k)
        for first in range(0, rows * m, PATTERN * m):
            last = min(first + PATTERN * m, rows * m)
            _joined(
                flat[0, first:last], flat[1, first:last], flat[2, first:last], flat[3, first:last], flat[4, first:last],
                level, scale, sums,
            )  # fmt: skip
        new_x[begin:end] = bx
        new_ax[begin:end] = bax
        if moved:
            new_p[begin:end] = q
            new_ap[begin:end] = aq
        z = tiles[5, :rows]
        for i in range(rows):
            a = label[begin + i]
            if a < 0:
                z[i] = 0
                continue
            weighted_rows(
                z, i, basis.reshape(-1), (begin + i) * functions, (begin + i + 1) * functions, ids,
                (a - begin - i) * functions, y, y,
            )  # fmt: skip
            add_row(z, i, weight[begin + i], r, i)
        new_w[begin:end] = z
        z[:] = new_w[begin:end]
        parts = (bx, q, z)
        for k in range(3):
            if k != 1 or moved:
                at = (k if moved else k // 2) * m
                _add_inner(z, parts[k], gram, at, product)
                if known:
                    _add_inner(t[begin:end], parts[k], overlap, at, part)
        _add_inner(z, bax, form, 0, product)
        if moved:
            _add_inner(z, aq, form, m, product)
    for k in range(PATTERN):
        for c in range(m):
            squares[0, c] += sums[k * m + c]


@njit(types.void(_labels, _basis, _read, _write), cache=True, nogil=True)
def restrict(label: Array, basis: Array, x: Array, out: Array) -> None:
    """out ← P_cᵀ x, rows in their order."""
    functions = basis.shape[1]
    out[:] = 0
    for i in range(len(label)):
        for f in range(functions if label[i] >= 0 else 0):
            add_row(out, label[i] * functions + f, basis[i, f], x, i)


@njit(types.void(_labels, _basis, _read, _write), cache=True, nogil=True)
def prolong(label: Array, basis: Array, y: Array, out: Array) -> None:
    """out ← P_c y."""
    functions = basis.shape[1]
    ids = np.arange(len(y))
    for i in range(len(label)):
        if label[i] < 0:
            out[i] = 0
        else:
            start = i * functions
            weighted_rows(out, i, basis.reshape(-1), start, start + functions, ids, label[i] * functions - start, y, y)
