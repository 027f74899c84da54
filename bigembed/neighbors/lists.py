"""Lists of nearest rows out of a neighbor graph, as other libraries take them: of its own rows, and of new ones."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from bigembed.errors import InputError
from bigembed.neighbors.order import Ordered
from bigembed.neighbors.query import Fitted, index_of, locate
from bigembed.neighbors.survey import Shape, prepare, refuse_inadmissible
from bigembed.rows.input import row_source
from bigembed.runtime.blocks import Array, bounds, map_blocks
from bigembed.store.arrays import read_array

if TYPE_CHECKING:
    from bigembed.neighbors.graph import NeighborGraph

QUERIED = 16_384
"""New rows that are looked up at a time."""


def lists_of(graph: NeighborGraph, k: int | None = None) -> tuple[Array, Array]:
    """Return the k nearest rows of each row, itself not counted: numbers (n, k) int64 and distances (n, k) float64.

    They are directed, nearest first, and in the order of the input; n·k entries in this process.
    """
    wanted = _checked(graph, k, graph.n_neighbors)
    ordered, original = Ordered.open(graph.run.path("order")), graph.original_ids()
    indices, distances = np.empty((graph.n, wanted), np.int64), np.empty((graph.n, wanted))
    for b in range(len(ordered.blocks)):
        ids, squared = (read_array(graph.run.path("search", f"{name}/{b}"))[:, :wanted] for name in LISTS)
        indices[ordered.ids(b)] = original[ids]
        distances[ordered.ids(b)] = np.sqrt(squared.astype(np.float64))
    return indices, distances


LISTS = ("neighbors", "squared")


def query_of(graph: NeighborGraph, rows: Any, k: int | None = None) -> tuple[Array, Array]:
    """Return the k nearest rows of the graph for each of other rows: numbers (m, k) int64 and distances (m, k).

    A row that the graph has is its own nearest one, at distance 0.
    """
    wanted = _checked(graph, k, None if graph.n_neighbors is None else graph.n_neighbors + 1)
    source, _ = row_source(rows, graph.run.root / "exchange", "query", sparse=graph.shape.sparse)
    if len(source.shape) != 2 or source.shape[1] != graph.n_features:
        raise InputError(f"query: rows of {graph.n_features} columns are needed; got shape {source.shape}")
    found = map_blocks(
        query_block, bounds(source.shape[0], QUERIED), source=source, graph=graph, shape=graph.shape, k=wanted
    )
    original = graph.original_ids()
    none = np.zeros((0, wanted))
    indices = np.concatenate([none.astype(np.int64), *(ids for ids, _ in found)])
    return original[indices], np.concatenate([none, *(distances for _, distances in found)])


def query_block(start: int, stop: int, *, source: Any, graph: NeighborGraph, shape: Shape, k: int) -> Any:
    """The nearest rows, by internal ids, of some of the rows of a source, and their distances."""
    rows = source.read(start, stop)
    if not np.isfinite(rows.data if hasattr(rows, "tocsr") else rows).all():
        raise InputError(f"query: some of the rows {start} to {stop - 1} hold NaN or infinity")
    refuse_inadmissible(rows, shape)
    given, index = prepare(rows, shape), index_of(graph.run, shape)
    fitted = Fitted(index)
    block, cell = locate(given, fitted.cells.ordered, index.centers)
    home = fitted.cells.block_starts[block] + cell
    order = np.argsort(home, kind="stable")
    found = fitted.search(given[order], home[order])
    ids, squared = np.empty((stop - start, k), np.int64), np.empty((stop - start, k))
    ids[order], squared[order] = found.ids[:, :k], found.squared[:, :k]
    return ids, np.sqrt(squared)


def _checked(graph: NeighborGraph, k: int | None, most: int | None) -> int:
    """How many neighbors are asked for; InputError where a graph has no lists, or shorter ones."""
    if graph.n_neighbors is None or not graph.run.has("search"):
        rule = "joins all rows within a radius" if graph.n_neighbors is None else "has no lists of its own"
        raise InputError(f"this graph {rule}; lists are of a graph of k nearest neighbors that was built of rows")
    assert most is not None
    wanted = graph.n_neighbors if k is None else int(k)
    if not 1 <= wanted <= most:
        raise InputError(f"k={k}; lists of this graph hold up to {most} rows. Build it with a larger n_neighbors")
    return wanted
