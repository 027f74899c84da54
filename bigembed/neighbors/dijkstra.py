"""Dijkstra's algorithm on the rows of one block: from any rows whose distance has just become smaller.

A distance is the smallest, over all paths, of the lengths summed in float64 from the source on. Such a sum never
decreases along a path, so whatever the order in which rows are relaxed, in however many blocks, the same bits remain.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

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
        from bigembed.neighbors.dijkstra_compiled import settle  # imports numba: only here

        graph, reached = self.graph, self._reached
        reached[: graph.own] = distances
        reached[graph.own :] = np.inf
        settled = settle(
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
