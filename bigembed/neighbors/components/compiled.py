"""Compiled loops over the edges of a block, for :mod:`bigembed.neighbors.components.connected`.

Importing it imports numba.

An edge joins its rows if its value is above the product of what is given of both; every edge does where that is
negative. All arrays are contiguous.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numba import njit, types

from bigembed.blocks.rows import Array


def _read(kind: types.Type) -> Any:
    return types.Array(kind, 1, "C", readonly=True)


_KINDS = (types.float32, types.float64)
_EDGES = _read(types.int64), _read(types.int32)
_line, _names = _read(types.float64), _read(types.int64)
_found = types.Array(types.int64, 1, "C")


@njit([types.void(*_EDGES, _read(kind), _line, _found) for kind in _KINDS], cache=True, nogil=True)
def first_joined(indptr: Array, indices: Array, data: Array, least: Array, first: Array) -> None:
    """Write the first row of the component of each row, by the edges within the block (columns below len(least)).

    The matrix is symmetric: edges to rows before are enough.
    """
    every = len(least) > 0 and least[0] < 0
    for i in range(len(least)):
        first[i] = i
        for e in range(indptr[i], indptr[i + 1]):
            j = np.intp(indices[e])
            if j < i and (every or data[e] > least[i] * least[j]):
                a, b = i, j
                while first[a] != a:
                    first[a] = first[first[a]]
                    a = first[a]
                while first[b] != b:
                    first[b] = first[first[b]]
                    b = first[b]
                if a < b:
                    first[b] = a
                else:
                    first[a] = b
    for i in range(len(least)):
        first[i] = first[first[i]]  # (that of a row before, which is done)


@njit(
    [types.intp(*_EDGES, _read(kind), _line, _line, _names, _names, _found, _found) for kind in _KINDS],
    cache=True,
    nogil=True,
)
def links(
    indptr: Array, indices: Array, data: Array, least: Array, far_least: Array, name: Array, far_name: Array,
    near: Array, far: Array,
) -> int:  # fmt: skip
    """Write the pairs of names that edges to the halo (columns from len(least) on) join, without the pair before.

    Returns how many they are; ``near`` and ``far`` have room for one of each such edge.
    """
    rows, every, count = len(least), len(least) > 0 and least[0] < 0, 0
    for i in range(rows):
        for e in range(indptr[i], indptr[i + 1]):
            h = np.intp(indices[e]) - rows
            if h < 0 or not (every or data[e] > least[i] * far_least[h]):
                continue
            if count > 0 and near[count - 1] == name[i] and far[count - 1] == far_name[h]:
                continue
            near[count] = name[i]
            far[count] = far_name[h]
            count += 1
    return count
