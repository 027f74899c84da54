"""Compiled loops over the edges of a graph and of its cells. Importing it imports numba: only large graphs do."""

from __future__ import annotations

import numpy as np
from numba import njit

from bigembed.blocks.rows import Array


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
