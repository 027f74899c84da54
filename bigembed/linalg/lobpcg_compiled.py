"""Compiled sweeps of LOBPCG and blocks of its Galerkin matrix. Importing this imports numba."""

from __future__ import annotations

from typing import Any

import numpy as np
from numba import njit, types

from bigembed.runtime.arithmetic import LANES, add_inner, add_product, add_row, add_rows, move, weighted_rows
from bigembed.runtime.blocks import Array

# --------------------------------------------------------------------------------------------------- update kernel
# Sweep A of LOBPCG on some rows of a block, compiled: see :func:`bigembed.linalg.lobpcg_sweeps.update_block`.
#
# Rows are taken in tiles that stay in the cache, with products of small matrices in registers (a row of 15 columns
# took 330 ns with calls of BLAS, 210 with these). What is read of a tile is read before anything of it is written, so
# that the results may take the place of the vectors they are made of.

TILE = 32
"""Rows."""

_read = types.Array(types.float64, 2, "C", readonly=True)
_line = types.Array(types.float64, 1, "C", readonly=True)
_write = types.Array(types.float64, 2, "C")
_single = types.Array(types.float32, 2, "C")
_read_single = types.Array(types.float32, 2, "C", readonly=True)
_labels = types.Array(types.int64, 1, "C", readonly=True)
_basis = types.Array(types.float32, 2, "C", readonly=True)


@njit(nogil=True)
def _padded(a: Array, width: int, factor: float) -> Array:
    """The columns of a times ``factor``, and columns of zeros up to ``width``."""
    out = np.zeros((len(a), width))
    for i in range(len(a)):  # (an array given to a slice takes a second to compile: the message of an error is, too)
        for c in range(a.shape[1]):
            out[i, c] = factor * a[i, c]
    return out


@njit(nogil=True)
def _add_columns(out: Array, at: int, a: Array, begin: int, rows: int, columns: int) -> None:
    """Columns of out from ``at`` on ← themselves + the first of the rows of a from ``begin`` on."""
    for i in range(rows):
        for c in range(columns):
            out[i, at + c] += a[begin + i, c]


@njit(nogil=True)
def _add_squares(sums: Array, x: Array, rows: int, width: int) -> None:
    """sums ← sums + the squares of the columns of some rows, row by row, eight columns at a time."""
    for c in range(0, width, LANES):
        s0, s1, s2, s3 = sums[c], sums[c + 1], sums[c + 2], sums[c + 3]
        s4, s5, s6, s7 = sums[c + 4], sums[c + 5], sums[c + 6], sums[c + 7]
        for p in range(c, c + rows * width, width):
            s0 += x[p] * x[p]
            s1 += x[p + 1] * x[p + 1]
            s2 += x[p + 2] * x[p + 2]
            s3 += x[p + 3] * x[p + 3]
            s4 += x[p + 4] * x[p + 4]
            s5 += x[p + 5] * x[p + 5]
            s6 += x[p + 6] * x[p + 6]
            s7 += x[p + 7] * x[p + 7]
        sums[c], sums[c + 1], sums[c + 2], sums[c + 3] = s0, s1, s2, s3
        sums[c + 4], sums[c + 5], sums[c + 6], sums[c + 7] = s4, s5, s6, s7


@njit(nogil=True)
def _scale_and_subtract(out: Array, x: Array, factor: Array, a: Array, count: int) -> None:
    """The first numbers of out ← those of x times those of factor − those of a."""
    for c in range(count):
        out[c] = x[c] * factor[c] - a[c]


@njit(nogil=True)
def _add_scaled(out: Array, x: Array, factor: Array, count: int) -> None:
    """The first numbers of out ← themselves + those of x times those of factor."""
    for c in range(count):
        out[c] += x[c] * factor[c]


@njit(nogil=True)
def _scale(out: Array, factor: Array, count: int) -> None:
    """The first numbers of out ← themselves times those of factor."""
    for c in range(count):
        out[c] *= factor[c]


@njit(nogil=True)
def _add_sums(gram: Array, overlap: Array, products: Array, overlaps: Array, m: int, moved: bool) -> None:
    """Sums over the rows of a stripe, Wᵀ and Tᵀ of [X P W], without the columns of zeros."""
    at, width, known = 0, products.shape[1], len(overlap)
    for k in range(3):
        if moved or k != 1:
            _add_columns(gram, at, products, k * width, m, m)
            _add_columns(overlap, at, overlaps, k * known, known, m)
            at += m


@njit(
    types.void(
        types.intp, types.intp, *[_read] * 2, *[_read_single] * 4, *[_read] * 9, *[_line] * 3, _labels, _basis, _read,
        *[_write] * 2, *[_single] * 3, *[_write] * 3,
    ),
    cache=True, nogil=True,
)  # fmt: skip
def update(
    start: int, stop: int, x: Array, p: Array, w: Array, r: Array, lp: Array, lw: Array,
    cx: Array, cp: Array, cw: Array, turn: Array, t: Array, drift: Array, drift_rest: Array, along: Array,
    along_rest: Array, left: Array, inverse: Array, weight: Array, label: Array, basis: Array, y: Array,
    new_x: Array, new_p: Array, new_w: Array, new_r: Array, new_lp: Array,
    gram: Array, overlap: Array, squares: Array,
) -> None:  # fmt: skip
    """Rows start … stop − 1; adds to gram Wᵀ[X P W], to overlap Tᵀ[X P W], and to squares those of R.

    With Q = P cp + W cw − T drift_rest and LQ = LP cp + LW cw − T along_rest,

        X' = X cx + Q − T drift,  R' = X turn + R cx + Q · left − LQ − T along,  P' = Q · inverse,  LP' = LQ · inverse,
        W' = R' · weight + P_c y.

    R, LP, W and LW are read and written in single precision. ``y`` and the tiles have columns of zeros up to a multiple
    of what a processor takes at a time.
    """
    m, width, functions, known = cx.shape[1], y.shape[1], basis.shape[1], t.shape[1]
    cx, turn = _padded(cx, width, 1.0), _padded(turn, width, 1.0)
    cp, cw = _padded(cp, width, 1.0), _padded(cw, width, 1.0)
    drift, drift_rest = _padded(drift, width, -1.0), _padded(drift_rest, width, -1.0)
    along, along_rest = _padded(along, width, -1.0), _padded(along_rest, width, -1.0)
    tiles, size = np.zeros((5 * TILE, width)), TILE * width  # X, Q, R, LQ, W, one below the other
    products, overlaps = np.zeros((3 * width, width)), np.zeros((3 * known, width))
    lefts, masses, weights = np.zeros(size), np.zeros(size), np.empty(size)  # (a copy for each row of a tile)
    sums, moved = np.zeros(width), new_p.shape[1] > 0
    for i in range(TILE):
        for c in range(m):
            lefts[i * width + c], masses[i * width + c] = left[c], inverse[c]
    flat = tiles.reshape(-1)
    q, residual, lq, new = flat[size:], flat[2 * size :], flat[3 * size :], flat[4 * size :]
    for begin in range(start, stop, TILE):
        rows = min(begin + TILE, stop) - begin
        count = rows * width
        for c in range(count):
            q[c], lq[c], new[c] = 0.0, 0.0, 0.0
        add_rows(tiles, TILE, p, begin, rows, cp)
        add_rows(tiles, TILE, w, begin, rows, cw)
        add_rows(tiles, 3 * TILE, lp, begin, rows, cp)
        add_rows(tiles, 3 * TILE, lw, begin, rows, cw)
        add_rows(tiles, TILE, t, begin, rows, drift_rest)
        add_rows(tiles, 3 * TILE, t, begin, rows, along_rest)
        for c in range(count):
            flat[c] = q[c]
        _scale_and_subtract(residual, q, lefts, lq, count)
        add_rows(tiles, 0, x, begin, rows, cx)
        add_rows(tiles, 0, t, begin, rows, drift)
        add_rows(tiles, 2 * TILE, x, begin, rows, turn)
        add_rows(tiles, 2 * TILE, r, begin, rows, cx)
        add_rows(tiles, 2 * TILE, t, begin, rows, along)
        for i in range(rows):
            a, at = label[begin + i], (begin + i) * functions
            for c in range(width):
                weights[i * width + c] = weight[begin + i] if a >= 0 else 0.0
            if a >= 0:
                row, there = (4 * TILE + i) * width, a * functions * width
                add_product(tiles, row, basis, at, 0, 1, 1, functions, y, there, width)
        _add_scaled(new, residual, weights, count)
        _scale(q, masses, count)
        _scale(lq, masses, count)
        _add_squares(sums, residual, rows, width)
        move(new_x, begin, 0, tiles, 0, rows, m)
        move(new_r, begin, 0, tiles, 2 * TILE, rows, m)
        move(new_w, begin, 0, tiles, 4 * TILE, rows, m)
        move(tiles, 4 * TILE, 0, new_w, begin, rows, m)
        if moved:
            move(new_p, begin, 0, tiles, TILE, rows, m)
            move(new_lp, begin, 0, tiles, 3 * TILE, rows, m)
        for k in range(3):
            if moved or k != 1:
                part = (4 if k == 2 else k) * TILE
                add_inner(products, k * width, tiles, 4 * TILE, rows, tiles, part)
                add_inner(overlaps, k * known, t, begin, rows, tiles, part)
    _add_sums(gram, overlap, products, overlaps, m, moved)
    for c in range(m):
        squares[0, c] += sums[c]


@njit([types.void(_labels, _labels, _basis, x, _write) for x in (_read, _read_single)], cache=True, nogil=True)
def restrict(starts: Array, order: Array, basis: Array, x: Array, out: Array) -> None:
    """out ← P_cᵀ x, by aggregates: the rows of a are order[starts[a] : starts[a + 1]]."""
    functions, columns = basis.shape[1], x.shape[1]
    width = -(-columns // LANES) * LANES
    near, own, sums = np.zeros((TILE, width)), np.empty((TILE, functions), np.float32), np.empty((functions, width))
    for a in range(len(starts) - 1):
        for f in range(functions):
            for c in range(width):
                sums[f, c] = 0.0
        for begin in range(starts[a], starts[a + 1], TILE):
            rows = min(TILE, starts[a + 1] - begin)
            for r in range(rows):
                i = order[begin + r]
                move(near, r, 0, x, i, 1, columns)
                for f in range(functions):
                    own[r, f] = basis[i, f]
            add_inner(sums, 0, own, 0, rows, near, 0)
        move(out, a * functions, 0, sums, 0, functions, columns)


@njit(types.void(types.intp, types.intp, *[_read] * 2, _read_single, _read, _single, _write), cache=True, nogil=True)
def image(start: int, stop: int, x: Array, p: Array, w: Array, y: Array, kept: Array, out: Array) -> None:
    """out ← out + [x p w]ᵀy over the rows start … stop − 1, and there kept ← w − y.

    Each of the three has as many columns as y, or none. ``out`` has their rows below each other, and rows and columns
    of zeros up to a multiple of what a processor takes at a time.
    """
    columns, width = y.shape[1], out.shape[1]
    left, right = np.zeros((TILE, width)), np.zeros((TILE, width))
    for begin in range(start, stop, TILE):
        rows = min(TILE, stop - begin)
        move(right, 0, 0, y, begin, rows, columns)
        move(left, 0, 0, x, begin, rows, columns)
        add_inner(out, 0, left, 0, rows, right, 0)
        if p.shape[1]:
            move(left, 0, 0, p, begin, rows, columns)
            add_inner(out, width, left, 0, rows, right, 0)
        move(left, 0, 0, w, begin, rows, columns)
        add_inner(out, 2 * width, left, 0, rows, right, 0)
        for r in range(rows):
            for c in range(columns):
                kept[begin + r, c] = left[r, c] - right[r, c]


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
            shift = label[i] * functions - start
            weighted_rows(out, i, basis.reshape(-1), start, start + functions, ids, shift, y, y, 0)


@njit(types.void(_read, types.intp, _read, _read, _read, _read, _write, types.intp, types.intp), cache=True, nogil=True)
def combine(
    a: Array, first: int, rest: Array, c: Array, t: Array, drift: Array, out: Array, at: int, columns: int
) -> None:
    """Columns at … at + columns − 1 of out ← [a_first … rest] c + t drift, with all columns of ``rest``.

    c and drift have columns of zeros up to a multiple of what a processor takes at a time.
    """
    width, here = c.shape[1], a.shape[1]
    count, beyond = len(c) - rest.shape[1], rest.shape[1]
    tile = np.empty((TILE, width))
    for begin in range(0, len(out), TILE):
        rows = min(TILE, len(out) - begin)
        for r in range(rows):
            for k in range(width):
                tile[r, k] = 0.0
        add_product(tile, 0, a, begin * here + first, here, 1, rows, count, c, 0, width)
        add_product(tile, 0, rest, begin * beyond, beyond, 1, rows, beyond, c, count * width, width)
        add_rows(tile, 0, t, begin, rows, drift)
        move(out, begin, at, tile, 0, rows, columns)


# -------------------------------------------------------------------------------------------------------- galerkin
# Blocks of the Galerkin matrix Pᵀ(I − A)P, row by row of A, compiled.

_tuple: Any = types.Tuple
_places = types.Array(types.int64, 1, "C", readonly=True)
_index = types.Array(types.int32, 1, "C", readonly=True)
_data = types.Array(types.float64, 1, "C", readonly=True)
_galerkin_basis = types.Array(types.float64, 2, "C", readonly=True)
_columns = types.Array(types.int64, 1, "C")
_blocks = types.Array(types.float64, 3, "C")


@njit(
    types.void(
        types.intp, types.intp, _places, _places, _places, _places,
        _index, _data, _galerkin_basis, _places, _columns, _blocks,
    ),
    cache=True, nogil=True,
)  # fmt: skip
def inner_blocks(
    first: int, last: int, starts: Array, order: Array, label: Array, pointer: Array, index: Array, data: Array,
    basis: Array, place: Array, columns: Array, blocks: Array,
) -> None:  # fmt: skip
    """Galerkin blocks of aggregates a = first … last − 1 with aggregates of the same block of rows: their columns and
    values from place[a] on, the diagonal block first.

    Row i of A P is gathered by the aggregates that it touches before its products with row i of P.
    """
    n, p = len(label), basis.shape[1]
    slot, touched = np.full(len(starts) - 1, -1, np.int64), np.full(len(starts) - 1, -1, np.int64)
    image, near, flat = np.zeros((len(starts) - 1, p)), np.empty(len(starts) - 1, np.int64), blocks.reshape(-1, p)
    for a in range(first, last):
        slot[a], at = place[a], place[a] + 1
        columns[place[a]] = a
        flat[place[a] * p : place[a + 1] * p] = 0
        for i in order[starts[a] : starts[a + 1]]:
            count, near[0], touched[a] = 1, a, i
            for s in range(p):
                image[a, s] = -basis[i, s]
            for e in range(pointer[i], pointer[i + 1]):
                j = index[e]
                if j >= n or label[j] < 0:
                    continue
                b = label[j]
                if touched[b] != i:
                    touched[b], near[count] = i, b
                    count += 1
                    image[b] = 0
                    if slot[b] < place[a]:
                        slot[b], columns[at] = at, b
                        at += 1
                add_row(image, b, data[e], basis, j)
            for k in range(count):
                b = near[k]
                for s in range(p):
                    add_row(flat, slot[b] * p + s, -basis[i, s], image, b)


@njit(
    _tuple((types.Array(types.int64, 2, "C"), _blocks))(
        _places, _places, _places, _index, _data, _places, types.int64, _galerkin_basis, _galerkin_basis
    ),
    cache=True, nogil=True,
)  # fmt: skip
def cross_blocks(
    starts: Array, order: Array, pointer: Array, index: Array, data: Array, theirs: Array, total: int, basis: Array,
    far: Array,
) -> tuple[Array, Array]:  # fmt: skip
    """Pairs (own aggregate, aggregate of another block) and −P_iᵀ A_ij P_j.

    ``theirs``: the aggregate, of ``total``, of each row of other blocks; ``far``: its functions.
    """
    p, count = basis.shape[1], len(starts) - 1
    seen, at = np.full(total, -1, np.int64), 0
    for a in range(count):
        for i in order[starts[a] : starts[a + 1]]:
            for e in range(pointer[i], pointer[i + 1]):
                if seen[theirs[index[e]]] != a:
                    seen[theirs[index[e]]] = a
                    at += 1
    pairs, blocks = np.empty((at, 2), np.int64), np.zeros((at, p, p))
    flat = blocks.reshape(-1, p)
    seen[:] = -1
    at = 0
    for a in range(count):
        begin = at
        for i in order[starts[a] : starts[a + 1]]:
            for e in range(pointer[i], pointer[i + 1]):
                b = theirs[index[e]]
                if seen[b] < begin:
                    seen[b] = at
                    pairs[at, 0], pairs[at, 1] = a, b
                    at += 1
                for s in range(p):
                    add_row(flat, seen[b] * p + s, -data[e] * basis[i, s], far, index[e])
    return pairs, blocks
