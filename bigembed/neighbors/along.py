"""Edges of new rows along the graph: those of the fitted row that is nearest to each, without a search.

A new row goes to its block and cell as in a search, to the nearest row there, and along edges to nearer ones inside the
block. It is joined to that row and to all that the graph joins this to. For a fitted row these are exactly its edges;
for another one nearly those that a search finds, where the fitted rows lie close together beside the lengths of their
edges, such as means that stand for many rows: at a fraction of the work.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import numpy as np

from bigembed.neighbors.order import Ordered
from bigembed.neighbors.query import MAX_PAIRS, Index, Joined, locate
from bigembed.runtime.blocks import Array, bounds
from bigembed.stages.runs import Run
from bigembed.store.matrix import StoredMatrix


def along_graph(index: Index, run: Run) -> Index:
    """The index with the graph of a run, along which new rows then get their edges; itself where that cannot be.

    Graphs that another stage has bridged, of metrics that are compared pair by pair, and saved models are searched.
    """
    if index.by is not None or not run.has("graph") or run.has("bridge") or run.kind == "model":
        return index
    return replace(index, graph=run.matrix("graph"))


def join_along(rows: Array, index: Index, graph: StoredMatrix) -> Iterator[tuple[Array, Joined]]:
    """Edges of prepared new rows (n, d), in parts of bounded size: numbers of some rows, and their edges."""
    ordered = Ordered.open(index.order)
    block, cell = locate(rows, ordered, index.centers)
    for b in np.unique(block).tolist():
        members = np.flatnonzero(block == b)
        matrix = graph.block(b)
        ids = matrix.ids(b, ordered.starts)
        own = ordered.rows(b)
        table = np.concatenate([own, ordered.take(ids[len(own) :])]) if len(ids) > len(own) else own
        offsets, _ = ordered.cells(b)
        degree = max(1, len(matrix.indices) // len(own))
        for low, high in bounds(len(members), max(1, MAX_PAIRS // degree)):
            part = members[low:high]
            yield part, _joined(rows[part], b, cell[part], offsets, matrix.indptr, matrix.indices, table, ids, index)


def _joined(
    rows: Array, b: int, cell: Array, offsets: Array, indptr: Array, indices: Array, table: Array, ids: Array,
    index: Index,
) -> Joined:  # fmt: skip
    from bigembed.neighbors.along_compiled import edge_lengths, nearest_rows  # imports numba: only here

    nearest = nearest_rows(rows, cell, offsets, indptr, indices, table)
    starts = np.concatenate([[0], np.cumsum((indptr[1:] - indptr[:-1])[nearest])]).astype(np.int64)
    columns, squared, rho = np.empty(starts[-1], np.int64), np.empty(starts[-1], rows.dtype), np.empty(len(rows))
    edge_lengths(rows, nearest, indptr, indices, table, starts, columns, squared, index.n_neighbors, rho)
    return Joined(starts, ids[columns], squared, rho, np.full(len(rows), b), cell)
