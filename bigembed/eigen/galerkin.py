"""Blocks of the Galerkin matrix Pᵀ(I − A)P, row by row of A, compiled. Importing this imports numba."""

from __future__ import annotations

from typing import Any

import numpy as np
from numba import njit, types

from bigembed.blocks.rows import Array
from bigembed.blocks.simd import add_row

_tuple: Any = types.Tuple
_places = types.Array(types.int64, 1, "C", readonly=True)
_index = types.Array(types.int32, 1, "C", readonly=True)
_data = types.Array(types.float64, 1, "C", readonly=True)
_basis = types.Array(types.float64, 2, "C", readonly=True)
_columns = types.Array(types.int64, 1, "C")
_blocks = types.Array(types.float64, 3, "C")


@njit(
    types.void(
        types.intp, types.intp, _places, _places, _places, _places, _index, _data, _basis, _places, _columns, _blocks
    ),
    cache=True, nogil=True,
)  # fmt: skip
def inner_blocks(
    first: int, last: int, starts: Array, order: Array, label: Array, pointer: Array, index: Array, data: Array,
    basis: Array, place: Array, columns: Array, blocks: Array,
) -> None:  # fmt: skip
    """Those of the aggregates first … last − 1 with aggregates of the block, themselves first: from place[a] on their
    columns and the blocks.

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
        _places, _places, _places, _index, _data, _places, types.int64, _basis, _basis
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
