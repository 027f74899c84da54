"""Edges of new rows along a graph, in the graph of given distances, and in that of a radius."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any

import numpy as np

from bigembed.distance import paired_squared, refuse_distances
from bigembed.errors import InputError
from bigembed.neighbors import descent_walk, given, query
from bigembed.neighbors.given.distances import TASK_ROWS, Rule
from bigembed.neighbors.order import KEPT_BYTES, CellReader, Ordered
from bigembed.neighbors.radius import EDGES_PLANNED, DenseIndex, join_every, near_cells, pairs_within
from bigembed.neighbors.search.by_metric import Cells, by_metric
from bigembed.neighbors.survey import Shape
from bigembed.runtime.blocks import Array, bounds, is_sparse
from bigembed.stages import Run
from bigembed.store.arrays import read_array, read_by_id

# ----------------------------------------------------------------------------------------------------- along a graph
# Edges of new rows along the graph: those of the fitted row that is nearest to each, without a search.
#
# A new row goes to its block and cell as in a search, to the nearest row there, and along edges to nearer ones inside
# the block. It is joined to the row where this walk ends, and to all rows that the graph joins to that one. For a
# fitted row these are its own edges, if the walk ends at the row itself. For another one they are nearly those that a
# search finds, at a fraction of the work, where fitted rows lie much closer together than their edges are long, such as
# means that stand for many rows.

SLACK = 1.4
"""Squared length over the larger squared scale of both ends from which on an edge is left out: that of a new row may be
shorter than the one of the row near it."""


def along_graph(index: query.Index, run: Run, within: str = "") -> query.Index:
    """The index with the graph of a run, along which new rows then get their edges; itself where that cannot be.

    ``within``: where the scales of the rows are, if edges longer than those of both ends weigh nothing.

    Graphs that another stage has bridged, of metrics that are compared pair by pair, and saved models are searched.
    """
    if index.by is not None or run.kind == "model" or run.has("bridge") or not run.holds("graph"):
        return index
    return replace(index, along=query.Along(run.matrix("graph"), within, run.fingerprint()))


def join_along(rows: Array, index: query.Index, along: query.Along) -> Iterator[tuple[Array, query.Joined]]:
    """Edges of prepared new rows (n, d), in parts of bounded size: numbers of some rows, and their edges."""
    ordered = Ordered.open(index.order)
    for b, members, cell in near_parts(rows, ordered, index):
        near = read_near(b, ordered, along)
        for low, high in bounds(len(members), max(1, query.MAX_PAIRS // near.degree)):
            part = members[low:high]
            yield part, near.joined(rows[part], b, cell[low:high], index.n_neighbors)


def near_parts(rows: Array, ordered: Ordered, index: query.Index) -> Iterator[tuple[int, Array, Array]]:
    """Numbers of the new rows that belong to each block, by their cells, and these: block after block."""
    block, cell = query.locate(rows, ordered, index.centers)
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

    def joined(self, rows: Array, b: int, cell: Array, k: int) -> query.Joined:
        """Edges of new rows in these cells of the block."""
        from bigembed.neighbors.descent_compiled import edge_lengths  # imports numba: only here

        nearest = self.nearest(rows, cell)
        starts = np.concatenate([[0], np.cumsum(np.diff(self.indptr)[nearest])]).astype(np.int64)
        columns, squared, rho = np.empty(starts[-1], np.int64), np.empty(starts[-1], rows.dtype), np.empty(len(rows))
        edge_lengths(rows, nearest, self.indptr, self.indices, self.table, starts, columns, squared, k, rho)
        return query.Joined(starts, self.ids[columns], squared, rho, np.full(len(rows), b), cell)


@lru_cache(maxsize=2)
def read_near(b: int, ordered: Ordered, along: query.Along) -> _Near:
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


# ----------------------------------------------------------------------------------------------------------- query
# Edges of new rows in a graph of given distances: the new rows are their distances to the fitted ones.

HELD_BYTES = 64 << 20
"""Of the distances that are compared at a time, with what is found among them."""


@dataclass(frozen=True)
class GivenIndex:
    """How rows of distances to the fitted ones are joined to them."""

    order: str
    rule: Rule
    placed: int = 0
    """Blocks of the input, of a graph whose nodes are in an order of their own."""
    lists: str = ""
    """Where the reach of the fitted rows is, of which those that a new row is nearest to are joined to it, too; empty
    where a new row is joined to its own nearest rows alone."""
    pieces: int = 0
    """In how many pieces it lies there."""

    @property
    def n_neighbors(self) -> int:
        """Neighbors of a row; of a radius those that a plan counts with."""
        return self.rule.per_row

    def internal(self, nodes: Array) -> Array:
        """Nodes of the graph for nodes of the input."""
        if not self.placed:
            return nodes
        return np.concatenate([read_array(f"{self.order}/places/{b}") for b in range(self.placed)])[nodes]

    def reach(self) -> tuple[Array, Array]:
        """Squared length and other end of the last edge in the list of each row of the input."""
        pieces = range(self.pieces)
        squared, last = ([read_array(f"{self.lists}/{name}/{b}") for b in pieces] for name in ("reach", "last"))
        return np.concatenate(squared), np.concatenate(last)


def given_index_of(run: Run, both: bool) -> GivenIndex:
    """The index of a graph of given distances, from its run or a saved model; ``both``: whether fitted rows join new
    ones to themselves, too."""
    order, survey, graph = run.results("order"), run.results("survey"), run.results("graph")
    known = graph if "reach" in graph else order
    rule = Rule(known["n_neighbors"], known["radius"])
    where, pieces = "survey", -(-survey["n"] // TASK_ROWS)
    if "reach" in graph:  # of edges, not of all distances
        where, pieces = "edges" if run.has("edges") else "graph", graph["reach"]
    lists = run.path(where) if both and rule.n_neighbors is not None else ""
    return GivenIndex(run.path("order"), rule, order.get("placed", 0), lists, pieces)


def join_given_parts(rows: Any, index: GivenIndex) -> Iterator[tuple[Array, query.Joined]]:
    """Edges of new rows of distances (m, n), some rows at a time: their numbers, and their edges."""
    for start, stop in bounds(rows.shape[0], max(1, HELD_BYTES // (40 * rows.shape[1]))):
        yield np.arange(start, stop), join_given(rows[start:stop], index, start)


def join_given(rows: Any, index: GivenIndex, first: int = 0) -> query.Joined:
    """Edges of new rows, of which ``rows`` (m, n) holds the distances to all fitted rows, or, sparse, to some of them.

    ``first`` is the number of the first one.
    """
    values, none = _lengths(rows, first), np.zeros(rows.shape[0], np.int64)
    if index.lists:
        found = query.joined_of(_both(values, index), index.n_neighbors, none, none)
        row, column, squared = np.repeat(np.arange(len(values)), np.diff(found.indptr)), found.ids, found.squared
        indptr, rho = found.indptr, found.rho
    else:
        row, column, squared = _own(values, index.rule)
        indptr = np.searchsorted(row, np.arange(len(values) + 1)).astype(np.int64)
        rho = none.astype(np.float64)
    ids = index.internal(column)
    if index.placed:
        order = np.lexsort((ids, row))
        ids, squared = ids[order], squared[order]
    return query.Joined(indptr, ids, squared, rho, none, none)


def _lengths(rows: Any, first: int) -> Array:
    """Distances (m, n) float64, those that sparse rows do not store infinite; InputError for what is no distance."""
    if not is_sparse(rows):
        refuse_distances(rows, None, first)
        return np.asarray(rows, np.float64)
    values, counts = np.full(rows.shape, np.inf), np.diff(rows.indptr)
    if not counts.all():
        raise InputError(
            f"the distances given: row {first + int(np.argmin(counts))} stores none. A sparse row of distances stores "
            "those to the fitted rows near it, 0 for one that it equals"
        )
    row = np.repeat(np.arange(len(counts)), counts)
    values[row, rows.indices] = np.where(np.isposinf(rows.data), np.nan, rows.data)
    stored = values[row, rows.indices]
    if len(wrong := np.flatnonzero(~(stored >= 0))):
        i, j, value = row[wrong[0]], rows.indices[wrong[0]], rows.data[wrong[0]]
        raise InputError(
            f"the distances given: the distance of row {first + i} to the known row {j} is {value:g}; distances are "
            "finite and ≥ 0"
        )
    return values


def _own(values: Array, rule: Rule) -> tuple[Array, Array, Array]:
    """The edges that the rule takes of each row: row, column and squared length."""
    row, column = np.nonzero(np.isfinite(values))
    row, column, length = rule.of(row, column, values[row, column])
    return row, column, np.square(length)


def _both(values: Array, index: GivenIndex) -> query.Found:
    """Candidates of the edges of new rows: their nearest fitted rows, and those to which they are near enough."""
    k = min(index.n_neighbors + 1, values.shape[1])
    limits, kappa = index.reach()
    squared = np.square(values)
    ids = np.empty((len(values), k), np.int64)
    for i, row in enumerate(squared):
        near = np.flatnonzero(row <= np.partition(row, k - 1)[k - 1])
        ids[i] = near[np.argsort(row[near], kind="stable")[:k]]
    new, column = np.nonzero(squared <= limits)
    tied = squared[new, column] == limits[column]
    reverse = new, column, squared[new, column], np.where(tied, kappa[column], descent_walk.NOBODY)
    nearest = np.take_along_axis(squared, ids, axis=1)
    twin = np.where(nearest[:, 0] == 0, ids[:, 0], descent_walk.NOBODY)
    return query.Found(np.where(np.isfinite(nearest), ids, -1), nearest, reverse, twin)


def nearest_given(rows: Any, index: GivenIndex, labels: Array, parts: int) -> Array:
    """Node of the graph nearest to each row of distances, among those of the first ``parts`` components; ``labels``
    (n,) in the order of the graph. InputError for sparse rows that store no distance to one of these."""
    order = index.internal(np.arange(rows.shape[1]))
    open_nodes = np.flatnonzero(labels[order] < parts)
    values = _lengths(rows, 0)[:, open_nodes]
    if not np.isfinite(values.min(axis=1, initial=np.inf)).all():
        raise InputError(
            "the distances given: a new row stores distances to no row of the parts that have coordinates. Store the "
            "distance to the nearest of those, too (labels_ of the map names the parts)"
        )
    return np.asarray(order[open_nodes[np.argmin(values, axis=1)]])


def query_memory(n: int, rows: int) -> int:
    """Bytes that :func:`join_given_parts` holds for a number of new rows, in addition to them."""
    return 2 * HELD_BYTES + 24 * n + 64 * rows


# ---------------------------------------------------------------------------------------------------- radius query
# Edges of new rows in the graph of a radius: all fitted rows within it; and of new rows in a graph of any kind.

_TOGETHER = 256
"""New rows of one cell that are compared at a time."""


@dataclass(frozen=True)
class RadiusIndex:
    """Where a query finds what it needs of a radius graph: paths and a number, read in the task."""

    order: str
    centers: str
    radii: str
    radius: float


AnyIndex = query.Index | RadiusIndex | DenseIndex | GivenIndex


def any_index_of(run: Run, shape: Shape) -> AnyIndex:
    """The index of a graph of any kind, from its run or a saved model."""
    if shape.metric == given.GIVEN:
        return given_index_of(run, both=True)
    if run.has("density"):
        return radius_index_of(run)
    if run.has("search"):
        return query.index_of(run, shape)
    return DenseIndex(run.path("order"), run.path("partition", "centers"), shape.n - 1, by_metric(shape))


def radius_index_of(run: Run) -> RadiusIndex:
    """The index of a graph of a radius, from its run or a saved model."""
    return RadiusIndex(
        run.path("order"),
        run.path("partition", "centers"),
        run.path("density", "cell_radii"),
        run.results("density")["radius"],
    )


def joining_memory(index: AnyIndex, shape: Shape, rows: int) -> int:
    """Bytes that :func:`join_parts` holds for a number of new rows, in addition to them."""
    if isinstance(index, query.Index):
        return query.join_memory(index, shape, rows)
    if isinstance(index, GivenIndex):
        return query_memory(shape.n, rows)
    if isinstance(index, DenseIndex):
        return 3 * shape.n * shape.row_bytes + 64 * min(shape.n * rows, query.MAX_PAIRS)
    return (
        KEPT_BYTES
        + shape.largest_block * shape.row_bytes
        + 64 * min(min(shape.n, EDGES_PLANNED) * rows, query.MAX_PAIRS)
    )


def join_parts(rows: Any, index: AnyIndex) -> Iterator[tuple[Array, query.Joined]]:
    """Edges of prepared new rows (n, d) to the fitted ones, in parts: numbers of some rows, and their edges."""
    if isinstance(index, DenseIndex):
        return join_every(rows, index)
    if isinstance(index, GivenIndex):
        return join_given_parts(rows, index)
    if isinstance(index, RadiusIndex):
        return join_within(rows, index)
    return query.join_batches(rows, index) if index.along is None else join_along(rows, index, index.along)


def join_within(rows: Array, index: RadiusIndex) -> Iterator[tuple[Array, query.Joined]]:
    """Edges of new rows to all fitted rows within ε of each, by id, in parts of about :data:`MAX_PAIRS` edges."""
    ordered = Ordered.open(index.order)
    cells, radii = CellReader(ordered), read_array(index.radii)
    block, cell = query.locate(rows, ordered, index.centers)
    home = cells.block_starts[block] + cell
    order = np.argsort(home, kind="stable")
    first = np.searchsorted(home[order], home[order])
    groups = np.flatnonzero((np.arange(len(order)) - first) % _TOGETHER == 0)
    members: list[Array] = []
    found: list[tuple[Array, Array, Array]] = []
    pairs = count = 0
    for group in np.split(order, groups[1:]) if len(order) else []:
        for row, ids, squared in _edges_of(rows[group], int(home[group[0]]), cells, radii, index.radius):
            found.append((count + row, ids, squared.astype(rows.dtype)))
            pairs += len(ids)
        members.append(group)
        count += len(group)
        if pairs > query.MAX_PAIRS:
            yield _joined(members, found, rows.dtype, block, cell)
            members, found, pairs, count = [], [], 0, 0
    if members:
        yield _joined(members, found, rows.dtype, block, cell)


def _edges_of(
    rows: Array, home: int, cells: CellReader, radii: Array, radius: float
) -> Iterator[tuple[Array, Array, Array]]:
    """Edges (row, id, squared distance) of new rows of one cell."""
    center = cells.centers[home]
    reach = float(np.sqrt(paired_squared(rows, np.broadcast_to(center, rows.shape)).max()))
    near = near_cells(center, reach, cells.centers, radii, radius)
    for number in near.tolist():
        there = cells.rows(number)
        piece = Cells(np.array([number]), np.array([0, len(there)]), there, cells.ids(number), center)
        for row, column, squared in pairs_within(rows, center, reach, piece, near, radius):
            yield row, piece.ids[column], squared


def _joined(
    members: list[Array], found: list[tuple[Array, Array, Array]], dtype: np.dtype[Any], block: Array, cell: Array
) -> tuple[Array, query.Joined]:
    """The rows of a part, and their edges by row and id."""
    numbers = np.concatenate(members)
    empty = (np.zeros(0, np.int64), np.zeros(0, np.int64), np.zeros(0, dtype))
    row, ids, squared = (np.concatenate(part) for part in zip(empty, *found, strict=True))
    by_row = np.lexsort((ids, row))
    indptr = np.concatenate([[0], np.cumsum(np.bincount(row, minlength=len(numbers)))]).astype(np.int64)
    rho = np.zeros(len(numbers))
    return numbers, query.Joined(indptr, ids[by_row], squared[by_row], rho, block[numbers], cell[numbers])
