"""Coordinates of new rows: affine combinations of those of fitted rows near them, by barycentric weights.

y(x) = Σ_j w_j y_j over the nearest fitted rows j of one part, w reconstructing x from them (Saul & Roweis 2003, §6.1).
A row that equals a fitted one has its coordinates.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial

import numpy as np

from bigembed.blocks.rows import Array, bounds
from bigembed.embedding.extension import Grouping
from bigembed.embedding.graph.new_rows import block_of_rows, ready_rows
from bigembed.landmarks.barycentric import affine_weights
from bigembed.neighbors.components.nearest_embedded import nearest_embedded
from bigembed.neighbors.exact import empty_lists
from bigembed.neighbors.joined import Joined
from bigembed.neighbors.ordering.order import Ordered
from bigembed.neighbors.ordering.survey import Shape, shape_in
from bigembed.neighbors.query import MAX_PAIRS, Index, index_of, join_batches, join_memory
from bigembed.runs import Run
from bigembed.store.arrays.io import read_array, read_by_id

TILE_BYTES = 8 << 20
"""Of the neighbors of a tile of rows, in float64."""
TILE_ROWS = 4_096


@dataclass(frozen=True)
class LandmarkModel:
    """What a task needs to place rows among landmarks: paths and small numbers."""

    points: str
    solve: str
    shape: Shape
    n_neighbors: int
    ridge: float
    width: int


@dataclass(frozen=True)
class GraphModel:
    """What a task needs to place rows among those of a graph: paths and small numbers."""

    index: Index
    shape: Shape
    solve: str
    labels: str
    starts: tuple[int, ...]
    parts: int
    ridge: float
    width: int


def landmark_model(run: Run, shape: Shape, ridge: float) -> LandmarkModel:
    """The model of a run that was solved by landmarks."""
    solve = run.results("solve")
    neighbors, width = solve["n_neighbors"], solve["n_components"]
    return LandmarkModel(run.path("landmarks", "rows"), run.path("solve"), shape, neighbors, ridge, width)


def graph_model(run: Run, ridge: float) -> GraphModel:
    """The model of a run that was solved exactly."""
    survey, solve = run.results("survey"), run.results("solve")
    return GraphModel(
        index_of(run, shape_in(survey)),
        shape_in(survey),
        run.path("solve"),
        run.path("components", "labels"),
        Ordered.open(run.path("order")).starts,
        solve["parts"],
        ridge,
        solve["n_components"],
    )


def grouping(model: GraphModel) -> Grouping:
    """How new rows are brought to the blocks of fitted rows that they belong to."""
    blocks, most = len(Ordered.open(model.index.order).blocks), MAX_PAIRS // (2 * model.index.n_neighbors)
    return Grouping(block_of_rows, blocks, model.shape.row_bytes, most, partial(graph_memory, model))


def graph_memory(model: GraphModel, rows: int) -> int:
    """Bytes that :func:`extend_graph` holds at most for a number of rows, without the rows themselves."""
    near = 24 * model.index.n_neighbors + 16 * model.width
    return join_memory(model.index, model.shape, rows) + 8 * TILE_BYTES + rows * near


def placing_memory(shape: Shape, count: int, k: int, m: int) -> int:
    """Bytes that :func:`extend_landmarks` holds at most, without the rows and their coordinates."""
    tile = min(shape.n, TILE_ROWS)
    return count * (2 * shape.row_bytes + 8 * m + 12) + tile * (24 * k + 16 * m + 4 * shape.row_bytes) + 8 * TILE_BYTES


def extend_landmarks(rows: Array, model: LandmarkModel) -> Array:
    """Coordinates (n, m) of rows among landmarks, each the same whatever the others.

    The nearest landmark says to which part a row belongs; where it is of none, a row has the landmark's coordinates.
    """
    from bigembed.neighbors.search.local import search_rows

    points, known = read_array(model.points), read_array(f"{model.solve}/coordinates/0")
    label, numbers = read_array(f"{model.solve}/labels/0"), np.arange(len(points))
    out = np.empty((len(rows), model.width))
    step = max(1, TILE_BYTES // (8 * model.n_neighbors * points.shape[1]))
    for start, stop in bounds(len(rows), TILE_ROWS):
        tile = np.asarray(ready_rows(rows[start:stop], model.shape), points.dtype)
        ids, squared = empty_lists(len(tile), min(model.n_neighbors, len(points)), points.dtype)
        search_rows(ids, squared, tile, np.full(len(tile), -1), points, numbers)
        home = label[ids[:, 0]]
        one = (squared[:, 0] == 0) | (home < 0)
        usable = (label[ids] == home[:, None]) & ~one[:, None]
        usable[:, 0] = True
        for low, high in bounds(len(tile), step):
            near = ids[low:high]
            out[start + low : start + high] = combined(
                tile[low:high], points[near], known[near], usable[low:high], model.ridge
            )
    return out


def extend_graph(rows: Array, model: GraphModel) -> Array:
    """Coordinates (n, m) of new rows among those of a graph, each the same whatever the others."""
    rows, out = ready_rows(rows, model.shape), np.empty((len(rows), model.width))
    for members, joined in join_batches(rows, model.index):
        out[members] = _place(rows[members], joined, model)
    return out


def _place(rows: Array, joined: Joined, model: GraphModel) -> Array:
    """Coordinates of new rows from the edges that the graph would give them: of these the k nearest count."""
    ids, usable = nearest_joined(joined, model.index.n_neighbors)
    ordered, out = Ordered.open(model.index.order), np.empty((len(rows), model.width))
    label = read_by_id(model.labels, model.starts, ids.ravel()).reshape(ids.shape)
    usable &= label == label[:, :1]
    inside = np.flatnonzero(label[:, 0] < model.parts)
    outside = np.flatnonzero(label[:, 0] >= model.parts)
    for start, stop in bounds(len(inside), max(1, TILE_BYTES // (8 * ids.shape[1] * rows.shape[1]))):
        tile = inside[start:stop]
        wanted, place = np.unique(ids[tile], return_inverse=True)
        place = place.reshape(ids[tile].shape)
        known = read_by_id(f"{model.solve}/coordinates", model.starts, wanted)
        out[tile] = combined(rows[tile], ordered.take(wanted)[place], known[place], usable[tile], model.ridge)
    if len(outside):
        where = joined.block[outside], joined.cell[outside]
        nearest = nearest_embedded(ordered, model.labels, rows[outside], *where, model.parts)
        out[outside] = read_by_id(f"{model.solve}/coordinates", model.starts, nearest)
    return out


def nearest_joined(joined: Joined, k: int) -> tuple[Array, Array]:
    """Internal ids (n, k) of the k nearest of the rows joined to each, by distance and id, and which there are.

    Of a row that equals fitted ones only the first of these.
    """
    sizes = np.diff(joined.indptr)
    row = np.repeat(np.arange(len(sizes)), sizes)
    order = np.lexsort((joined.ids, joined.squared, row))
    rank = np.arange(len(order)) - joined.indptr[row]
    near = order[rank < k]
    ids, usable = np.zeros((len(sizes), k), np.int64), np.zeros((len(sizes), k), bool)
    at = row[rank < k], rank[rank < k]
    ids[at], usable[at] = joined.ids[near], True
    twin = np.zeros(len(sizes), bool)
    twin[row[joined.squared == 0]] = True
    usable[twin, 1:] = False
    return ids, usable


def combined(rows: Array, near: Array, coordinates: Array, usable: Array, ridge: float) -> Array:
    """Σ_j w_j y_j (n, m) for rows (n, d) among ``near`` (n, k, d) with ``coordinates`` (n, k, m), of which those that
    are ``usable`` (n, k) count: the first does in each row. Where it alone does, its coordinates."""
    out = np.array(coordinates[:, 0], np.float64)
    counts = usable.sum(axis=1)
    order = np.argsort(~usable, axis=1, kind="stable")
    for count in np.unique(counts[counts > 1]).tolist():
        mine = np.flatnonzero(counts == count)
        step = max(1, TILE_BYTES // (8 * count * rows.shape[1]))
        for start, stop in bounds(len(mine), step):
            tile = mine[start:stop]
            chosen = order[tile, :count]
            difference = np.take_along_axis(near[tile], chosen[:, :, None], axis=1).astype(np.float64)
            difference -= rows[tile, None].astype(np.float64)
            weights = affine_weights(difference, ridge)
            known = np.take_along_axis(coordinates[tile], chosen[:, :, None], axis=1)
            out[tile] = 0.0
            for j in range(count):  # in one order, whatever the number of rows
                out[tile] += weights[:, j, None] * known[:, j]
    return out
