"""Sweep A of LOBPCG on some rows of a block, compiled: see :func:`bigembed.eigen.sweeps.update_block`.

Rows are taken in tiles that stay in the cache, with products of small matrices in registers (a row of 15 columns took
330 ns with calls of BLAS, 210 with these). What is read of a tile is read before anything of it is written, so that the
results may take the place of the vectors they are made of. Importing this imports numba.
"""

from __future__ import annotations

import numpy as np
from numba import njit, types

from bigembed.blocks.rows import Array
from bigembed.blocks.simd import add_row, weighted_rows
from bigembed.blocks.tile_product import LANES, add_product, move, settle_lanes

TILE = 128
"""Rows."""

_read = types.Array(types.float64, 2, "C", readonly=True)
_line = types.Array(types.float64, 1, "C", readonly=True)
_write = types.Array(types.float64, 2, "C")
_single = types.Array(types.float32, 2, "C")
_read_single = types.Array(types.float32, 2, "C", readonly=True)
_labels = types.Array(types.int64, 1, "C", readonly=True)
_basis = types.Array(types.float32, 2, "C", readonly=True)


@njit(nogil=True)
def _padded(a: Array, width: int) -> Array:
    """The columns of a, and columns of zeros up to ``width``."""
    out = np.zeros((len(a), width))
    out[:, : a.shape[1]] = a
    return out


@njit(nogil=True)
def _add_rows(out: Array, a: Array, begin: int, c: Array) -> None:
    """out ← out + a c for as many rows of a from ``begin`` on."""
    width = a.shape[1]
    add_product(out, a.reshape(-1), begin * width, width, 1, len(out), width, c)


@njit(nogil=True)
def _add_inner(out: Array, a: Array, begin: int, b: Array) -> None:
    """out ← out + aᵀ b with the rows of a from ``begin`` on."""
    width = a.shape[1]
    add_product(out, a.reshape(-1), begin * width, 1, width, width, len(b), b)


@njit(nogil=True)
def _add_sums(gram: Array, form: Array, overlap: Array, products: Array, overlaps: Array, m: int, moved: bool) -> None:
    """Sums over the rows of a stripe, zᵀ of [X P SX SP W] and Tᵀ of [X P W], without the columns of zeros."""
    at = 0
    for k in range(3):
        if moved or k != 1:
            gram[:, at : at + m] += products[4 if k == 2 else k, :m, :m]
            overlap[:, at : at + m] += overlaps[k, :, :m]
            if k < 2:
                form[:, at : at + m] += products[2 + k, :m, :m]
            at += m


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
    W' = R · weight + P_c y, rounded to single precision, as which W is read and written. ``y`` and the tiles have
    columns of zeros up to a multiple of what a processor takes at a time.
    """
    m, width, functions, known = cx.shape[1], y.shape[1], basis.shape[1], t.shape[1]
    cx, cp, cw = _padded(cx, width), _padded(cp, width), _padded(cw, width)
    drift, drift_rest = _padded(-drift, width), _padded(-drift_rest, width)
    along, along_rest = _padded(-along, width), _padded(-along_rest, width)
    tiles = np.empty((6, TILE, width))
    flat, size = tiles.reshape(-1), TILE * width
    products, overlaps = np.zeros((5, width, width)), np.zeros((3, known, width))
    limits = np.zeros(3 * width)
    limits[:m], limits[width : width + m] = values, inverse
    moved, functions_of = new_p.shape[1] > 0, basis.reshape(-1)
    out_x, out_p, out_w, out_ax, out_ap = (
        new_x.reshape(-1), new_p.reshape(-1), new_w.reshape(-1), new_ax.reshape(-1), new_ap.reshape(-1)
    )  # fmt: skip
    residuals, ends = tiles[4], tiles[5]
    for begin in range(start, stop, TILE):
        end = min(begin + TILE, stop)
        rows = end - begin
        bx, q, bax, aq, z = tiles[0, :rows], tiles[1, :rows], tiles[2, :rows], tiles[3, :rows], tiles[5, :rows]
        q[:], aq[:], z[:] = 0, 0, 0
        _add_rows(q, p, begin, cp)
        _add_rows(q, w, begin, cw)
        _add_rows(aq, ap, begin, cp)
        _add_rows(aq, aw, begin, cw)
        if known:
            _add_rows(q, t, begin, drift_rest)
            _add_rows(aq, t, begin, along_rest)
        bx[:], bax[:] = q, aq
        _add_rows(bx, x, begin, cx)
        _add_rows(bax, ax, begin, cx)
        if known:
            _add_rows(bx, t, begin, drift)
            _add_rows(bax, t, begin, along)
        for i in range(rows):
            for c in range(0, width, LANES):
                settle_lanes(flat, i * width + c, size, limits, c, width)
            a = label[begin + i]
            if a >= 0:
                add_product(ends, functions_of, (begin + i) * functions, 0, 1, 1, functions, y, i, a * functions)
                add_row(ends, i, weight[begin + i], residuals, i)
            row = (begin + i) * m
            move(out_x, row, flat, i * width, m)
            move(out_ax, row, flat, 2 * size + i * width, m)
            move(out_w, row, flat, 5 * size + i * width, m)
            move(flat, 5 * size + i * width, out_w, row, m)
            if moved:
                move(out_p, row, flat, size + i * width, m)
                move(out_ap, row, flat, 3 * size + i * width, m)
        for k in range(5):
            part = tiles[5 if k == 4 else k, :rows]
            if moved or k % 2 == 0:
                _add_inner(products[k], z, 0, part)
                if known and (k < 2 or k == 4):
                    _add_inner(overlaps[k % 3 + k // 4], t, begin, part)
    _add_sums(gram, form, overlap, products, overlaps, m, moved)
    squares[0] += limits[2 * width : 2 * width + m]


@njit([types.void(_labels, _labels, _basis, x, _write) for x in (_read, _read_single)], cache=True, nogil=True)
def restrict(starts: Array, order: Array, basis: Array, x: Array, out: Array) -> None:
    """out ← P_cᵀ x, by aggregates: the rows of a are order[starts[a] : starts[a + 1]]."""
    functions, columns = basis.shape[1], x.shape[1]
    width = -(-columns // LANES) * LANES
    near, own, sums = np.zeros((TILE, width)), np.empty((TILE, functions), np.float32), np.empty((functions, width))
    target, given = out.reshape(-1), x.reshape(-1)
    flat, flat_own, flat_sums = near.reshape(-1), own.reshape(-1), sums.reshape(-1)
    for a in range(len(starts) - 1):
        sums[:] = 0
        for begin in range(starts[a], starts[a + 1], TILE):
            rows = min(TILE, starts[a + 1] - begin)
            for r in range(rows):
                i = order[begin + r]
                move(flat, r * width, given, i * columns, columns)
                for f in range(functions):
                    own[r, f] = basis[i, f]
            add_product(sums, flat_own, 0, 1, functions, functions, rows, near)
        for f in range(functions):
            move(target, (a * functions + f) * columns, flat_sums, f * width, columns)


@njit([types.void(types.intp, types.intp, x, _read, _write) for x in (_read, _read_single)], cache=True, nogil=True)
def inner(start: int, stop: int, x: Array, y: Array, out: Array) -> None:
    """out ← out + xᵀy over the rows start … stop − 1, of as many columns each.

    ``out`` has rows and columns of zeros up to a multiple of what a processor takes at a time.
    """
    columns, width = x.shape[1], len(out)
    left, right = np.zeros((TILE, width)), np.zeros((TILE, width))
    flat_left, flat_right, flat_x, flat_y = left.reshape(-1), right.reshape(-1), x.reshape(-1), y.reshape(-1)
    for begin in range(start, stop, TILE):
        rows = min(TILE, stop - begin)
        for r in range(rows):
            move(flat_left, r * width, flat_x, (begin + r) * columns, columns)
            move(flat_right, r * width, flat_y, (begin + r) * columns, columns)
        add_product(out, flat_left, 0, 1, width, width, rows, right)


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


@njit(types.void(_read, types.intp, _read, _read, _read, _read, _write, types.intp, types.intp), cache=True, nogil=True)
def combine(
    a: Array, first: int, rest: Array, c: Array, t: Array, drift: Array, out: Array, at: int, columns: int
) -> None:
    """Columns at … at + columns − 1 of out ← [a_first … rest] c + t drift, with all columns of ``rest``.

    c and drift have columns of zeros up to a multiple of what a processor takes at a time.
    """
    width, here, whole = c.shape[1], a.shape[1], out.shape[1]
    count = len(c) - rest.shape[1]
    beyond = c[count:]
    tile, target = np.empty((TILE, width)), out.reshape(-1)
    flat = tile.reshape(-1)
    for begin in range(0, len(out), TILE):
        rows = min(TILE, len(out) - begin)
        tile[:rows] = 0
        add_product(tile, a.reshape(-1), begin * here + first, here, 1, rows, count, c)
        _add_rows(tile[:rows], rest, begin, beyond)
        _add_rows(tile[:rows], t, begin, drift)
        for i in range(rows):
            move(target, (begin + i) * whole + at, flat, i * width, columns)
