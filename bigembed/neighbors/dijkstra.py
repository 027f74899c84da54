"""Dijkstra's algorithm on the rows of one block, compiled: from any rows whose distance has just become smaller.

A distance is the smallest, over all paths, of the lengths summed in float64 from the source on. Such a sum never
decreases along a path, so whatever the order in which rows are relaxed, in however many blocks, the same bits remain.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numba import njit

from bigembed.runtime.blocks import Array
from bigembed.store.matrix import CSRBlock


@dataclass(frozen=True)
class LocalGraph:
    """A symmetric graph: the own rows of a block, then the rows of other blocks (its halo) that they are joined to."""

    indptr: Array
    """int64 (own + halo + 1,)."""
    indices: Array
    """int32."""
    lengths: Array
    """float64 ≥ 0; 0 joins identical rows."""
    own: int


def lengths_of(values: Array, *, squared: bool) -> Array:
    """Edge lengths in float64 of stored values."""
    lengths = values.astype(np.float64)
    return np.sqrt(lengths) if squared else lengths


def local_graph(block: CSRBlock, *, squared: bool, between: tuple[Array, Array, Array] | None = None) -> LocalGraph:
    """The edges of a stored block, and those ``between`` its halo entries: (entry, entry, length), both directions.

    With the halo's own edges a path may run along the border of two blocks without news from the other one.
    """
    own, halo = len(block.indptr) - 1, len(block.halo_rows)
    lengths = lengths_of(block.data, squared=squared)
    row = block.row
    out = np.flatnonzero(block.indices >= own)
    rows, columns, values = [block.indices[out]], [row[out]], [lengths[out]]
    if between is not None:
        rows.append((between[0] + own).astype(np.int32))
        columns.append((between[1] + own).astype(np.int32))
        values.append(between[2])
    far = np.concatenate(rows)
    order = np.argsort(far, kind="stable")
    counts = np.bincount(far - own, minlength=halo)
    return LocalGraph(
        np.concatenate([block.indptr, block.indptr[-1] + np.cumsum(counts)]).astype(np.int64),
        np.concatenate([block.indices, np.concatenate(columns)[order]]),
        np.concatenate([lengths, np.concatenate(values)[order]]),
        own,
    )


class Dijkstra:
    """Shortest paths on one graph, the scratch kept from source to source."""

    def __init__(self, graph: LocalGraph) -> None:
        self.graph = graph
        nodes = len(graph.indptr) - 1
        self._reached = np.empty(nodes, np.float64)
        self._heap = np.empty(nodes, np.int32)
        self._keys = np.empty(nodes, np.float64)
        self._place = np.full(nodes, -1, np.int32)

    def improve(self, distances: Array, changed: Array, nodes: Array, values: Array) -> int:
        """Lower ``distances`` (own,) float64 in place, given distances ``values`` of ``nodes`` (int32, halo included).

        ``changed`` (own,) bool is set where a distance fell. Returns how many own rows were settled.
        """
        graph, reached = self.graph, self._reached
        reached[: graph.own] = distances
        reached[graph.own :] = np.inf
        settled = _settle(
            graph.indptr,
            graph.indices,
            graph.lengths,
            reached,
            changed,
            nodes,
            values,
            self._heap,
            self._keys,
            self._place,
        )
        distances[:] = reached[: graph.own]
        return int(settled)


@njit(cache=True, nogil=True)
def _settle(
    indptr: Array,
    indices: Array,
    lengths: Array,
    reached: Array,
    changed: Array,
    nodes: Array,
    values: Array,
    heap: Array,
    keys: Array,
    place: Array,
) -> Any:
    """Dijkstra from the given nodes; how many own rows (those of ``changed``) were settled.

    The heap has four children a node: ``heap`` holds nodes, ``keys`` their distances, ``place`` where each node is (−1:
    nowhere). One function, since a call for each edge costs three times the work itself; the given nodes are followed
    like the edges of a row at distance 0.
    """
    own, count, settled = changed.shape[0], 0, 0
    targets, costs, low, high, value = nodes, values, 0, nodes.shape[0], 0.0
    while True:
        for e in range(low, high):
            node, key = targets[e], value + costs[e]
            if key < reached[node]:
                reached[node] = key
                at = place[node]
                if at < 0:
                    at = count
                    count += 1
                while at > 0:
                    above = (at - 1) >> 2
                    if keys[above] <= key:
                        break
                    keys[at] = keys[above]
                    heap[at] = heap[above]
                    place[heap[at]] = at
                    at = above
                keys[at] = key
                heap[at] = node
                place[node] = at
        if count == 0:
            return settled
        nearest, value = heap[0], keys[0]
        place[nearest] = -1
        count -= 1
        if count > 0:  # the last one goes to the root, and down to its place
            node, key, at = heap[count], keys[count], 0
            while True:
                child = 4 * at + 1
                if child >= count:
                    break
                least, best = child, keys[child]
                for other in range(child + 1, min(child + 4, count)):
                    if keys[other] < best:
                        least, best = other, keys[other]
                if best >= key:
                    break
                keys[at] = best
                heap[at] = heap[least]
                place[heap[at]] = at
                at = least
            keys[at] = key
            heap[at] = node
            place[node] = at
        if nearest < own:
            changed[nearest] = True
            settled += 1
        targets, costs, low, high = indices, lengths, indptr[nearest], indptr[nearest + 1]
