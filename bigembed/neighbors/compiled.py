"""Compiled loops over centers and over the edges of a block: nearest centers, union, components, cells. Importing
this imports numba.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
from numba import njit, types

from bigembed.distance import rounding
from bigembed.neighbors.centers_compiled import nearest_grouped
from bigembed.runtime.arithmetic import squared_distance
from bigembed.runtime.blocks import Array

# --------------------------------------------------------------------------------------------------------- nearest
# Compiled choice of the nearest centers, one or many.
#
# Groups of centers leave most of them out, or a matrix product shows which can be nearest; where that leaves a choice,
# distances are computed exactly, in the arithmetic of :mod:`bigembed.neighbors`, bit for bit. All arrays are
# contiguous.

_WIDTH = 16
"""Centers are padded to a multiple of this; padding has infinite norm."""
_TILE_ENTRIES = 1 << 18
_LIST_TILE_ENTRIES = 1 << 19


def nearest(rows: Array, centers: Array) -> Array:
    """Nearest center (C, d) of each row (n, d), ties to the lowest number: int64 (n,)."""
    labels = np.empty(len(rows), dtype=np.int64)
    done = nearest_grouped(rows, centers, labels)
    if done < len(rows):
        rest, left = rows[done:], labels[done:]
        for part, products, norms, slack in _tiles(rest, centers, _TILE_ENTRIES):
            _label(products, norms, slack, rest[part], centers, left[part])
    return labels


def nearest_lists(rows: Array, centers: Array, length: int) -> Array:
    """The ``length`` nearest of the centers (C, d), C ≥ ``length``, of each row (n, d): int64 (n, ``length``).

    Ordered by squared distance in the dtype of the rows, ties by number.
    """
    lists = np.empty((len(rows), length), dtype=np.int64)
    for part, products, norms, slack in _tiles(rows, centers, _LIST_TILE_ENTRIES):
        limit = np.partition(products + norms, length - 1, axis=1)[:, length - 1] + slack
        numbers, squared = _candidates(products, norms, limit.astype(norms.dtype), rows[part], centers)
        order = np.argsort(squared, axis=1, kind="stable")[:, :length]  # numbers ascend
        lists[part] = np.take_along_axis(numbers, order, axis=1)
    return lists


def _tiles(rows: Array, centers: Array, entries: int) -> Iterator[tuple[slice, Array, Array, Array]]:
    """Tiles of rows with products and norms, so that products[m, j] + norms[j] is ‖x_m − y_j‖² − ‖x_m‖².

    Two of these compare rightly where they differ by more than slack[m]. Of the columns, a multiple of
    :data:`_WIDTH`, those behind the last center have infinite norm.
    """
    n, d = centers.shape
    padded = -(-n // _WIDTH) * _WIDTH
    near, norms = np.zeros((padded, d), rows.dtype), np.full(padded, np.inf, rows.dtype)
    height = max(16, entries // padded)
    products = np.empty((min(height, len(rows)), padded), rows.dtype)
    with np.errstate(over="ignore", invalid="ignore"):
        shift = centers.mean(axis=0)  # shifted rows lose less to rounding
        np.subtract(centers, shift, out=near[:n])
        norms[:n] = np.einsum("ij,ij->i", near[:n], near[:n])
        near *= -2
        radius = np.sqrt(float(norms[:n].max()))
        for start in range(0, len(rows), height):
            part = slice(start, start + height)
            x = rows[part] - shift
            reach = np.sqrt(np.einsum("ij,ij->i", x, x).astype(np.float64)) + radius
            slack = 2 * rounding(d, rows.dtype) * reach * reach
            yield part, np.matmul(x, near.T, out=products[: len(x)]), norms, slack


@njit(cache=True, nogil=True)
def _label(products: Array, norms: Array, slack: Array, rows: Array, centers: Array, labels: Array) -> None:
    """Labels of the rows of a tile."""
    n, width = centers.shape[0], products.shape[1]
    one = norms.dtype.type
    lows = np.empty(_WIDTH, norms.dtype)
    for m in range(products.shape[0]):
        lows[:] = np.inf
        for start in range(0, width, _WIDTH):
            p, q = products[m, start : start + _WIDTH], norms[start : start + _WIDTH]
            for t in range(_WIDTH):
                v = p[t] + q[t]
                lows[t] = v if v < lows[t] else lows[t]
        limit = one(np.float64(lows.min()) + slack[m])
        chosen, best = -1, -1.0  # the distance of a center that is alone is not asked for
        for j in range(n):
            if products[m, j] + norms[j] > limit:
                continue
            if chosen < 0:
                chosen = j
                continue
            if best < 0:
                best = squared_distance(rows, m, centers, chosen)
            value = squared_distance(rows, m, centers, j)
            if value < best:
                chosen, best = j, value
        labels[m] = chosen


@njit(cache=True, nogil=True)
def _candidates(products: Array, norms: Array, limit: Array, rows: Array, centers: Array) -> tuple[Array, Array]:
    """All centers within the limit of each row of a tile: numbers int32, ascending, and exact squared distances.

    Filled up with infinite distances to the length of the longest.
    """
    n, height = centers.shape[0], products.shape[0]
    one = norms.dtype.type
    longest = 0
    for m in range(height):
        count = 0
        for j in range(n):
            count += not products[m, j] + norms[j] > limit[m]
        longest = max(longest, count)
    numbers = np.zeros((height, longest), dtype=np.int32)
    squared = np.full((height, longest), np.inf, dtype=norms.dtype)
    for m in range(height):
        count = 0
        for j in range(n):
            if products[m, j] + norms[j] > limit[m]:
                continue
            numbers[m, count] = j
            squared[m, count] = one(squared_distance(rows, m, centers, j))
            count += 1
    return numbers, squared


# ----------------------------------------------------------------------------------------------------------- edges
# Compiled union of a block's edges.
#
# No sort: edges that are turned round by counting come out ascending, and turned round twice they are the lists they
# were, in ascending order. What is left is to merge two ascending lists a row.


@njit(cache=True, nogil=True)
def union(
    columns: Array, squared: Array, crossing: Array, width: int, rows: Array, sources: Array, received: Array
) -> tuple[Array, Array, Array]:
    """Rows of a symmetric graph: own edges, the same reversed, those received, and the diagonal.

    ``columns`` int32 (m, k) are the lists in local columns, below m for rows of the block, below
    ``width`` for others; ``squared`` (m, k) are their values, and ``crossing`` the flat positions of the
    columns ≥ m, by ascending column. ``rows`` int32 (r,), ``sources`` int32 (r,) and ``received`` (r,) are
    reversed edges of other blocks, their local columns ``sources`` ascending for each row. Returns indptr
    int64 (m + 1,), indices int32, ascending in each row, and values. An edge found from both ends has
    the same value at both, and is kept once.
    """
    m, k = columns.shape
    back, back_columns, back_values = _reversed(columns, squared, width, rows, sources, received)
    own_columns, own_values = _ascending(columns, squared, crossing, width, back, back_columns, back_values)
    indptr = np.zeros(m + 1, dtype=np.int64)
    indices = np.empty(back[m] + m * k, dtype=np.int32)
    data = np.empty(back[m] + m * k, dtype=squared.dtype)
    out = 0
    for i in range(m):
        a, b = i * (k + 1), back[i]
        while True:
            own, other = own_columns[a], back_columns[b]
            own_value, other_value = own_values[a], back_values[b]  # both, so that no branch is guessed wrong
            column = min(own, other)
            if column == width:
                break
            indices[out], data[out] = column, own_value if own <= other else other_value
            a += np.int64(own <= other)
            b += np.int64(other <= own)
            out += 1
        indptr[i + 1] = out
    return indptr, indices[:out], data[:out]


@njit(cache=True, nogil=True)
def _reversed(
    columns: Array, squared: Array, width: int, rows: Array, sources: Array, received: Array
) -> tuple[Array, Array, Array]:
    """For each row, ascending: those of the block that list it, itself, those received; then ``width``."""
    m, k = columns.shape
    first = np.zeros(m + 1, dtype=np.int64)
    for i in range(m):
        first[i + 1] += 2
        for t in range(k):
            if columns[i, t] < m:
                first[columns[i, t] + 1] += 1
    for e in range(rows.shape[0]):
        first[rows[e] + 1] += 1
    for i in range(m):
        first[i + 1] += first[i]
    place = first[:-1].copy()
    ends = np.empty(first[m], dtype=np.int32)
    values = np.empty(first[m], dtype=squared.dtype)
    for i in range(m):
        ends[place[i]], values[place[i]] = i, 0
        place[i] += 1
        for t in range(k):
            j = columns[i, t]
            if j < m:
                ends[place[j]], values[place[j]] = i, squared[i, t]
                place[j] += 1
    for e in range(rows.shape[0]):
        i = rows[e]
        ends[place[i]], values[place[i]] = sources[e], received[e]
        place[i] += 1
    for i in range(m):
        ends[place[i]] = width
    return first, ends, values


@njit(cache=True, nogil=True)
def _ascending(
    columns: Array, squared: Array, crossing: Array, width: int, back: Array, back_columns: Array, back_values: Array
) -> tuple[Array, Array]:
    """The list of each row by ascending column, then ``width``: k + 1 entries a row."""
    m, k = columns.shape
    place = np.arange(m) * (k + 1)
    ends = np.empty(m * (k + 1), dtype=np.int32)
    values = np.empty(m * (k + 1), dtype=squared.dtype)
    for j in range(m):
        for e in range(back[j], back[j + 1]):
            i = back_columns[e]
            if i >= m:  # received, and the end
                break
            if i != j:
                ends[place[i]], values[place[i]] = j, back_values[e]
                place[i] += 1
    for e in crossing:
        i, t = e // k, e % k
        ends[place[i]], values[place[i]] = columns[i, t], squared[i, t]
        place[i] += 1
    for i in range(m):
        ends[place[i]] = width
    return ends, values


# -------------------------------------------------------------------------------------------------------- compiled
# Compiled loops over the edges of a block, for :mod:`bigembed.neighbors.components`.
#
# Importing it imports numba.
#
# An edge joins its rows if its value is above the product of what is given of both; every edge does where that is
# negative. All arrays are contiguous.


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


# -------------------------------------------------------------------------------------------------- compiled cells
# Compiled loops over the edges of a graph and of its cells, which only large graphs use.


@njit(cache=True, nogil=True)
def nearest_cells(indptr: Array, indices: Array, near: Array, cell: Array) -> Array:
    """The cell of each row: its own if it has one, else that of the largest sum of ``near`` among its neighbors.

    ``cell`` int64 are those of all columns, −1 for none; of equal sums the lowest cell. The sums of a row are kept
    under a hash of the cell.
    """
    rows = len(indptr) - 1
    widest = 1
    for i in range(rows):
        widest = max(widest, indptr[i + 1] - indptr[i])
    places = 2
    while places < 2 * widest:
        places *= 2
    names, sums = np.full(places, -1, np.int64), np.zeros(places)
    used = np.empty(widest, np.int64)
    out = np.empty(rows, np.int64)
    for i in range(rows):
        out[i] = cell[i]
        if cell[i] >= 0:
            continue
        count = 0
        for e in range(indptr[i], indptr[i + 1]):
            c = cell[indices[e]]
            if c < 0:
                continue
            place = ((c * 0x9E3779B1) >> 15) & (places - 1)
            while names[place] != c and names[place] >= 0:
                place = (place + 1) & (places - 1)
            if names[place] < 0:
                names[place], used[count] = c, place
                count += 1
            sums[place] += near[e]
        best = -1.0
        for u in range(count):
            place = used[u]
            if sums[place] > best or (sums[place] == best and names[place] < out[i]):
                best, out[i] = sums[place], names[place]
            names[place], sums[place] = -1, 0.0
    return out


@njit(cache=True, nogil=True)
def matched(
    indptr: Array, indices: Array, near: Array, nodes: Array, entries: Array, most: int, most_entries: int
) -> tuple[Array, int]:
    """Pairs of nodes of a symmetric graph along heavy edges, small nodes first: the pair of each, and how many pairs.

    Each takes the free neighbor of the heaviest edge relative to √(size · size), if both together have at most ``most``
    nodes and ``most_entries`` entries; one without is a pair by itself.
    """
    count = len(nodes)
    pair = np.full(count, -1, np.int64)
    pairs = 0
    for i in np.argsort(nodes, kind="mergesort"):
        if pair[i] >= 0:
            continue
        best, heaviest = -1, 0.0
        for e in range(indptr[i], indptr[i + 1]):
            j = indices[e]
            if j != i and pair[j] < 0 and nodes[i] + nodes[j] <= most and entries[i] + entries[j] <= most_entries:
                weight = near[e] / np.sqrt(float(nodes[i]) * float(nodes[j]))
                if weight > heaviest:
                    best, heaviest = j, weight
        pair[i] = pairs
        if best >= 0:
            pair[best] = pairs
        pairs += 1
    return pair, pairs
