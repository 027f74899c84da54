"""Edges of new rows along the graph: those of the fitted row that is nearest to each, without a search.

A new row goes to its block and cell as in a search, to the nearest row there, and along edges to nearer ones inside the
block. It is joined to that row and to all that the graph joins this to. For a fitted row these are its edges, where the
walk ends there; for another one nearly those that a search finds, where the fitted rows lie close together beside the
lengths of their edges, such as means that stand for many rows: at a fraction of the work.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import lru_cache

import numpy as np

from bigembed.neighbors.order import Ordered
from bigembed.neighbors.query import MAX_PAIRS, Along, Index, Joined, locate
from bigembed.runtime.blocks import Array, bounds
from bigembed.stages.runs import Run
from bigembed.store.arrays import read_by_id

SLACK = 1.4
"""Squared length over the larger squared scale of both ends from which on an edge is left out: that of a new row may be
shorter than the one of the row near it."""


def along_graph(index: Index, run: Run, within: str = "") -> Index:
    """The index with the graph of a run, along which new rows then get their edges; itself where that cannot be.

    ``within``: where the scales of the rows are, if edges longer than those of both ends weigh nothing.

    Graphs that another stage has bridged, of metrics that are compared pair by pair, and saved models are searched.
    """
    if index.by is not None or run.kind == "model" or run.has("bridge") or not run.holds("graph"):
        return index
    return replace(index, along=Along(run.matrix("graph"), within, run.fingerprint()))


def join_along(rows: Array, index: Index, along: Along) -> Iterator[tuple[Array, Joined]]:
    """Edges of prepared new rows (n, d), in parts of bounded size: numbers of some rows, and their edges."""
    ordered = Ordered.open(index.order)
    for b, members, cell in near_parts(rows, ordered, index):
        near = read_near(b, ordered, along)
        for low, high in bounds(len(members), max(1, MAX_PAIRS // near.degree)):
            part = members[low:high]
            yield part, near.joined(rows[part], b, cell[low:high], index.n_neighbors)


def near_parts(rows: Array, ordered: Ordered, index: Index) -> Iterator[tuple[int, Array, Array]]:
    """Numbers of the new rows that belong to each block, by their cells, and these: block after block."""
    block, cell = locate(rows, ordered, index.centers)
    order = np.lexsort((cell, block))
    for members in np.split(order, np.flatnonzero(np.diff(block[order])) + 1) if len(order) else []:
        yield int(block[members[0]]), members, cell[members]


@dataclass(frozen=True)
class _Near:
    """The rows of a block with its halo, and the edges of the block."""

    table: Array
    ids: Array
    offsets: Array
    indptr: Array
    indices: Array

    @property
    def degree(self) -> int:
        """Edges of a row, on average."""
        return max(1, len(self.indices) // (len(self.indptr) - 1))

    def nearest(self, rows: Array, cell: Array) -> Array:
        """A row of the block that is near to each new row in these cells of it."""
        from bigembed.neighbors.descent_compiled import nearest_rows  # imports numba: only here

        return nearest_rows(rows, cell, self.offsets, self.indptr, self.indices, self.table)

    def joined(self, rows: Array, b: int, cell: Array, k: int) -> Joined:
        """Edges of new rows in these cells of the block."""
        from bigembed.neighbors.descent_compiled import edge_lengths  # imports numba: only here

        nearest = self.nearest(rows, cell)
        starts = np.concatenate([[0], np.cumsum(np.diff(self.indptr)[nearest])]).astype(np.int64)
        columns, squared, rho = np.empty(starts[-1], np.int64), np.empty(starts[-1], rows.dtype), np.empty(len(rows))
        edge_lengths(rows, nearest, self.indptr, self.indices, self.table, starts, columns, squared, k, rho)
        return Joined(starts, self.ids[columns], squared, rho, np.full(len(rows), b), cell)


@lru_cache(maxsize=2)
def read_near(b: int, ordered: Ordered, along: Along) -> _Near:
    """Read the rows and edges of block b; the last ones that a process has read are kept."""
    matrix, own = along.graph.block(b), ordered.rows(b)
    ids, indptr, indices = matrix.ids(b, ordered.starts), matrix.indptr, matrix.indices
    if along.within:
        scale = read_by_id(f"{along.within}/rho_squared", ordered.starts, ids)
        longest = SLACK * np.maximum(np.repeat(scale[: len(own)], np.diff(indptr)), scale[indices])
        kept = matrix.data <= longest
        indptr, indices = np.concatenate([[0], np.cumsum(kept)])[indptr], indices[kept]
    table = np.concatenate([own, ordered.take(ids[len(own) :])]) if len(ids) > len(own) else own
    return _Near(table, ids, ordered.cells(b)[0], indptr, indices)
