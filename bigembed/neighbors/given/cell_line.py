"""Cells of a graph on a line, cut into blocks: pairs along heavy edges, pairs of pairs, and so on.

Parts are joined as long as they fit into one block; what has grown then is a group. Groups are joined in the same way
without a limit. The leaves of this tree, from left to right, are the line, and blocks are groups that follow each other
on it: a block is a few parts of the graph, each of which hangs together.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy import sparse

from bigembed.blocks.rows import Array, offsets

STALLED = 0.99
"""A round that leaves more than this share of the parts is the last one (the leaves of a star pair with nothing)."""


@dataclass(frozen=True)
class Limits:
    """What a block holds at most."""

    nodes: int
    entries: int


@dataclass(frozen=True)
class Parts:
    """Parts of a graph: how near they are to each other, a symmetric CSR array without a diagonal, and their sizes."""

    graph: Any
    nodes: Array
    entries: Array

    def joined(self, pair: Array, count: int) -> Parts:
        """The parts that pairs of these are."""
        gather = sparse.csr_array((np.ones(len(pair)), (np.arange(len(pair)), pair)), shape=(len(pair), count))
        graph = (gather.T @ self.graph @ gather).tocsr()
        graph.setdiag(0)
        graph.eliminate_zeros()
        sizes = (np.bincount(pair, values, count).astype(np.int64) for values in (self.nodes, self.entries))
        return Parts(graph, *sizes)


def along_a_line(cells: Parts, most: Limits) -> tuple[Array, Array]:
    """Numbers of the cells from left to right, and where on the line blocks begin, with the number of cells.

    A block is within the limits unless it is a single cell.

    >>> path = sparse.csr_array(np.eye(6, k=2) + np.eye(6, k=-2))  # 0-2-4 and 1-3-5
    >>> ones = np.ones(6, np.int64)
    >>> line, starts = along_a_line(Parts(path, ones, ones), Limits(2, 2))
    >>> [part.tolist() for part in np.split(line, starts[1:-1])]
    [[0, 2], [4], [1, 3], [5]]
    """
    levels, groups = _grown(cells, most)
    above, roots = _grown(groups, Limits(int(cells.nodes.sum()), int(cells.entries.sum())))
    place = _leaves(np.arange(len(roots.nodes)), above)
    line = np.argsort(place)
    cuts = _cut(groups.nodes[line], groups.entries[line], most)
    group = np.arange(len(cells.nodes))
    for pair in levels:
        group = pair[group]
    held = np.bincount(group, minlength=len(line))[line]
    return np.argsort(_leaves(place, levels)), offsets(held)[cuts]


def _grown(parts: Parts, most: Limits) -> tuple[list[Array], Parts]:
    """The part that each part becomes, round by round, and the last parts."""
    from bigembed.neighbors.given.compiled_cells import matched  # imports numba: only here

    levels: list[Array] = []
    while True:
        graph = parts.graph
        graph.sort_indices()
        sizes = parts.nodes, parts.entries
        pair, count = matched(graph.indptr, graph.indices, graph.data, *sizes, most.nodes, most.entries)
        if count > STALLED * len(pair):
            return levels, parts
        levels.append(pair)
        parts = parts.joined(pair, count)


def _leaves(place: Array, levels: list[Array]) -> Array:
    """Places of the parts that were there before some rounds, from those after them."""
    for pair in reversed(levels):
        order = np.argsort(place[pair], kind="stable")
        place = np.empty(len(pair), np.int64)
        place[order] = np.arange(len(pair))
    return place


def _cut(nodes: Array, entries: Array, most: Limits) -> Array:
    """Where runs within the limits begin, each as long as it can be, and the number of all.

    >>> _cut(np.array([2, 2, 9, 1, 1]), np.zeros(5, np.int64), Limits(4, 4)).tolist()
    [0, 2, 3, 5]
    """
    sums, cuts = (np.cumsum(nodes), np.cumsum(entries)), [0]
    while cuts[-1] < len(nodes):
        low = cuts[-1]
        ends = [
            int(np.searchsorted(total, (total[low - 1] if low else 0) + limit, side="right"))
            for total, limit in zip(sums, (most.nodes, most.entries), strict=True)
        ]
        cuts.append(max(low + 1, min(ends)))
    return np.array(cuts)
