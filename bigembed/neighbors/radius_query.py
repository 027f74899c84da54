"""Edges of new rows in the graph of a radius: all fitted rows within it; and of new rows in a graph of any kind."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

from bigembed.blocks.rows import Array
from bigembed.blocks.squared import paired_squared
from bigembed.neighbors.every_pair import DenseIndex, join_every
from bigembed.neighbors.given.graph import GIVEN
from bigembed.neighbors.given.query import GivenIndex, given_index_of, join_given_parts, query_memory
from bigembed.neighbors.joined import Joined
from bigembed.neighbors.ordering.order import KEPT_BYTES, CellReader, Ordered
from bigembed.neighbors.ordering.survey import Shape
from bigembed.neighbors.query import MAX_PAIRS, Index, index_of, join_batches, join_memory, locate
from bigembed.neighbors.radius import EDGES_PLANNED, near_cells, pairs_within
from bigembed.neighbors.search.by_metric import by_metric
from bigembed.neighbors.search.local import Cells
from bigembed.runs import Run
from bigembed.store.arrays.io import read_array

_TOGETHER = 256
"""New rows of one cell that are compared at a time."""


@dataclass(frozen=True)
class RadiusIndex:
    """Where a query finds what it needs of a radius graph: paths and a number, read in the task."""

    order: str
    centers: str
    radii: str
    radius: float


AnyIndex = Index | RadiusIndex | DenseIndex | GivenIndex


def any_index_of(run: Run, shape: Shape) -> AnyIndex:
    """The index of a graph of any kind, from its run or a saved model."""
    if shape.metric == GIVEN:
        return given_index_of(run, both=True)
    if run.has("density"):
        return radius_index_of(run)
    if run.has("search"):
        return index_of(run, shape)
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
    if isinstance(index, Index):
        return join_memory(index, shape, rows)
    if isinstance(index, GivenIndex):
        return query_memory(shape.n, rows)
    if isinstance(index, DenseIndex):
        return 3 * shape.n * shape.row_bytes + 64 * min(shape.n * rows, MAX_PAIRS)
    return KEPT_BYTES + shape.block * shape.row_bytes + 64 * min(min(shape.n, EDGES_PLANNED) * rows, MAX_PAIRS)


def join_parts(rows: Any, index: AnyIndex) -> Iterator[tuple[Array, Joined]]:
    """Edges of prepared new rows (n, d) to the fitted ones, in parts: numbers of some rows, and their edges."""
    if isinstance(index, DenseIndex):
        return join_every(rows, index)
    if isinstance(index, GivenIndex):
        return join_given_parts(rows, index)
    return join_within(rows, index) if isinstance(index, RadiusIndex) else join_batches(rows, index)


def join_within(rows: Array, index: RadiusIndex) -> Iterator[tuple[Array, Joined]]:
    """Edges of new rows to all fitted rows within ε of each, by id, in parts of about :data:`MAX_PAIRS` edges."""
    ordered = Ordered.open(index.order)
    cells, radii = CellReader(ordered), read_array(index.radii)
    block, cell = locate(rows, ordered, index.centers)
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
        if pairs > MAX_PAIRS:
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
) -> tuple[Array, Joined]:
    """The rows of a part, and their edges by row and id."""
    numbers = np.concatenate(members)
    empty = (np.zeros(0, np.int64), np.zeros(0, np.int64), np.zeros(0, dtype))
    row, ids, squared = (np.concatenate(part) for part in zip(empty, *found, strict=True))
    by_row = np.lexsort((ids, row))
    indptr = np.concatenate([[0], np.cumsum(np.bincount(row, minlength=len(numbers)))]).astype(np.int64)
    rho = np.zeros(len(numbers))
    return numbers, Joined(indptr, ids[by_row], squared[by_row], rho, block[numbers], cell[numbers])
