"""The alignment matrix of landmarks, far from each other, instead of all rows; every other row is placed among them.

Landmarks have neighbors among themselves, conditions around each, and an alignment matrix of their own. It is better
posed than that of all rows, whose smallest eigenvalues fall like n^{−4/d}, and landmarks that are evenly spread carry
the map better than rows that are not: of 10⁵ rows of a swiss roll 3000 landmarks recover both coordinates (R² 1.000
and .97); with the whole problem of 5·10⁴ rows the second one has a rank correlation of .9 with the height.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np
from scipy.sparse import csr_array
from scipy.sparse.csgraph import connected_components

from bigembed.errors import InputError
from bigembed.estimator.extension import Extension, Grouping, leave_rows, restore, write_extended
from bigembed.estimator.graph_input import ISLAND, Parts, parts_of
from bigembed.maps.graph_rows import OrderedRows, OrderedValues, block_of_rows, ready_rows
from bigembed.maps.landmark_maps import affine_weights
from bigembed.maps.landmark_rows import landmark_rows_stage
from bigembed.maps.lle.solve import POLICIES, TILE_BYTES, Conditions, solve_flops, solve_memory, solve_parts
from bigembed.neighbors import components, empty_lists, row_weights
from bigembed.neighbors.order import Ordered
from bigembed.neighbors.query import MAX_PAIRS, Index, Joined, index_of, join_batches, join_memory
from bigembed.neighbors.search.by_metric import search_rows
from bigembed.neighbors.survey import Shape, shape_in
from bigembed.rows import RowBlock, RowSource
from bigembed.rows.passes import Parts as Sums
from bigembed.rows.passes import reduce_rows
from bigembed.runtime.blocks import Array, block_rows, bounds, map_blocks
from bigembed.stages import ArraySpec, Context, Cost, Run, Stage, buffer, window_of
from bigembed.store.arrays import create_rows, read_array, read_by_id, write_array
from bigembed.store.exchange import Exchange

# ------------------------------------------------------------------------------------------------------- extension
# Coordinates of new rows: affine combinations of those of fitted rows near them, by barycentric weights.
#
# y(x) = Σ_j w_j y_j over the nearest fitted rows j of one part, w reconstructing x from them (Saul & Roweis 2003,
# §6.1). A row that equals a fitted one has its coordinates.

EXTENSION_TILE_BYTES = 8 << 20
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
    return join_memory(model.index, model.shape, rows) + 8 * EXTENSION_TILE_BYTES + rows * near


def placing_memory(shape: Shape, count: int, k: int, m: int) -> int:
    """Bytes that :func:`extend_landmarks` holds at most, without the rows and their coordinates."""
    tile = min(shape.n, TILE_ROWS)
    return (
        count * (2 * shape.row_bytes + 8 * m + 12)
        + tile * (24 * k + 16 * m + 4 * shape.row_bytes)
        + 8 * EXTENSION_TILE_BYTES
    )


def extend_landmarks(rows: Array, model: LandmarkModel) -> Array:
    """Coordinates (n, m) of rows among landmarks, each the same whatever the others.

    The nearest landmark says to which part a row belongs; where it is of none, a row has the landmark's coordinates.
    """
    points, known = read_array(model.points), read_array(f"{model.solve}/coordinates/0")
    label, numbers = read_array(f"{model.solve}/labels/0"), np.arange(len(points))
    out = np.empty((len(rows), model.width))
    step = max(1, EXTENSION_TILE_BYTES // (8 * model.n_neighbors * points.shape[1]))
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
    for start, stop in bounds(len(inside), max(1, EXTENSION_TILE_BYTES // (8 * ids.shape[1] * rows.shape[1]))):
        tile = inside[start:stop]
        wanted, place = np.unique(ids[tile], return_inverse=True)
        place = place.reshape(ids[tile].shape)
        known = read_by_id(f"{model.solve}/coordinates", model.starts, wanted)
        out[tile] = combined(rows[tile], ordered.take(wanted)[place], known[place], usable[tile], model.ridge)
    if len(outside):
        where = joined.block[outside], joined.cell[outside]
        nearest = components.nearest_embedded(ordered, model.labels, rows[outside], *where, model.parts)
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
        step = max(1, EXTENSION_TILE_BYTES // (8 * count * rows.shape[1]))
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


# ------------------------------------------------------------------------------------------------------- landmarks

MAX_LANDMARKS = 50_000


def landmarks_stage(source: RowSource, count: int, selection: str, at_least: int, seed: int) -> Stage:
    """``landmarks/rows`` (L, d) of rows in the order of the input, or of those of a graph (:class:`OrderedRows`)."""
    stage = landmark_rows_stage(source, count, selection, at_least, seed)
    if not isinstance(source, OrderedRows):
        return stage
    asked: dict[str, Any] = {"count": count, "selection": selection, "at_least": at_least, "seed": seed}
    return replace(stage, inputs=("survey", "order"), run=partial(run_ordered_landmarks, source=source, **asked))


def run_ordered_landmarks(
    context: Context, source: OrderedRows, count: int, selection: str, at_least: int, seed: int
) -> dict[str, Any]:
    """Landmarks among the rows of a graph."""
    rows = replace(source, ordered=Ordered.open(context.of("order")))
    found = landmark_rows_stage(rows, count, selection, at_least, seed).run(context)
    return {**found, "metric": context.results("survey")["metric"]}


MASSES = "landmark_masses"


def landmark_masses_stage(source: RowSource, shape: Shape, count: int, vectors: tuple[str, ...]) -> Stage:
    """``mass`` (L,): the weights of the rows that are nearest to each landmark, of which it stands for all. One pass.

    ``vectors``: the stage with the weights, where the rows are those of a graph; else they come with the rows.
    """
    d, graph = shape.d, isinstance(source, OrderedRows)
    cost = Cost.of(
        reads=[ArraySpec("rows", shape.n, shape.row_bytes, "u1")],
        writes=[ArraySpec("mass", count)],
        task=[*window_of(source), buffer("nearest landmarks of a tile", placing_memory(shape, count, 1, 1))],
        passes=1,
        flops=2.0 * shape.n * count * d,
    )
    inputs = ("landmarks", *(("order", *vectors) if graph else ()))
    return Stage(MASSES, inputs, {"source": source.fingerprint()}, partial(run_masses, source=source), cost)


def run_masses(context: Context, source: RowSource) -> dict[str, Any]:
    rows = source
    if isinstance(source, OrderedRows):
        ordered = Ordered.open(context.of("order"))
        n, path = source.shape[0], row_weights.values_path(context)
        weights = OrderedValues((n,), np.dtype(np.float64), path=path, starts=ordered.starts)
        rows = replace(source, ordered=ordered, aligned={"weights": weights})
    place = context.of("landmarks", "rows")
    found = reduce_rows(rows, mass_block, context.exchange, label="masses", landmarks=place)["mass"]
    write_array(context.path("mass"), np.maximum(found, found[found > 0].min()))  # (a landmark is nearest to itself)
    return {"rows": rows.shape[0]}


def mass_block(block: RowBlock, *, landmarks: str) -> Sums:
    """Sum the weights of the rows of a block at the landmark that is nearest to each."""
    points = read_array(landmarks)
    near = nearest_landmarks(block.rows, points, np.full(len(block.rows), -1), 1)[0][:, 0]
    return {"mass": np.bincount(near, block.weights, len(points))}


def landmark_solve_stage(
    conditions: Conditions, policy: str, count: int, k: int, m: int, d: int, weighted: bool = False
) -> Stage:
    """``coordinates/0`` (L, m) and ``labels/0`` (L,) of the landmarks, ``eigenvalues`` and ``residuals``: one task."""

    writes = [ArraySpec("coordinates/*", count, m), ArraySpec("labels/*", count, dtype="i4")]
    cost = Cost.of(
        reads=[ArraySpec("rows", count, d)],
        writes=[*writes, *(ArraySpec(name, m) for name in ("eigenvalues", "residuals"))],
        task=[
            buffer("conditions, their products and the factor", solve_memory(count, k, conditions.count, m)),
            ArraySpec("rows", count, d, times=3),
            ArraySpec("lists", count, k, times=2),
            ArraySpec("tiles of distances", 512, count, times=3),
            buffer("tiles of neighbors", 9 * min(TILE_BYTES, 8 * d * (1 + k) * count)),
        ],
        flops=solve_flops(count, m) + 2.0 * count * count * d,
        maps=1,
        blocks=1,
    )
    parameters = {**conditions.key(), "policy": policy, "n_components": m, "n_neighbors": k}
    return Stage(
        "solve",
        ("landmarks", MASSES) if weighted else ("landmarks",),
        parameters,
        partial(run_landmark_solve, conditions=conditions, policy=policy, k=k, m=m),
        cost,
    )


def run_landmark_solve(context: Context, conditions: Conditions, policy: str, k: int, m: int) -> dict[str, Any]:
    asked: dict[str, Any] = {"k": k, "m": m, "policy": policy, "out": context.path("")}
    asked["masses"] = context.of(MASSES, "mass") if context.home.has(MASSES) else ""
    [results] = map_blocks(solve_landmarks, [(conditions,)], rows=context.of("landmarks", "rows"), **asked)
    return {**results, "solver": "landmarks", "n_components": m}


def solve_landmarks(
    conditions: Conditions, *, rows: str, k: int, m: int, policy: str, out: str, masses: str
) -> dict[str, Any]:
    """Neighbors among the landmarks, conditions, eigenvectors, in this process."""
    points = read_array(rows)
    if k >= len(points):
        raise InputError(
            f"n_neighbors={k} needs at least {k + 1} landmarks, and there are {len(points)} (all different). Lower "
            "n_neighbors, raise n_landmarks, or use solver='exact'"
        )
    ids = nearest_landmarks(points, points, np.arange(len(points)), k)[0]
    label, sizes = _components(ids)
    parts = parts_of(policy, sizes, len(points), POLICIES)
    counted = read_array(masses) if masses else None
    solved = solve_parts(conditions.of_rows(points, ids), ids, label, parts, sizes, policy, m, counted)
    coordinates, label = solved.coordinates, _placed(points, solved.coordinates, label, parts)
    for name, array in (("coordinates/0", coordinates), ("labels/0", label)):
        write_array(f"{out}{name}", array)
    write_array(f"{out}eigenvalues", solved.eigenvalues)
    write_array(f"{out}residuals", solved.residuals)
    found = {"components": len(sizes), "sizes": sizes[:1000], "rows": len(points), "parts": parts.count}
    return {**solved.results, **found, "n_neighbors": k}


def nearest_landmarks(rows: Array, points: Array, own: Array, q: int) -> tuple[Array, Array]:
    """Numbers (n, q) and squared distances of the landmarks nearest to each row, but that of number ``own`` (−1: none),
    by distance and number."""
    ids, squared = empty_lists(len(rows), q, points.dtype)
    search_rows(ids, squared, np.asarray(rows, points.dtype), own, points, np.arange(len(points)))
    return ids, squared


def _components(ids: Array) -> tuple[Array, list[int]]:
    """The component of each row of lists (n, k), the largest first (then by row), and how many rows each has."""
    n, k = ids.shape
    graph = csr_array((np.ones(n * k, np.int8), ids.ravel(), np.arange(0, n * k + 1, k)), shape=(n, n))
    count, found = connected_components(graph, directed=False)
    sizes = np.bincount(found, minlength=count)
    first = np.unique(found, return_index=True)[1]
    rank = np.empty(count, np.int64)
    rank[np.lexsort((first, -sizes))] = np.arange(count)
    return rank[found], np.sort(sizes)[::-1].tolist()


def _placed(points: Array, coordinates: Array, label: Array, parts: Parts) -> Array:
    """Give landmarks outside the parts the coordinates of the nearest one inside; their label is −1."""
    outside, inside = np.flatnonzero(label >= parts.count), np.flatnonzero(label < parts.count)
    if len(outside):
        near = nearest_landmarks(points[outside], points[inside], np.full(len(outside), -1), 1)[0][:, 0]
        coordinates[outside] = coordinates[inside[near]]
    return np.where(label < parts.count, label, ISLAND).astype(np.int32)


def landmark_coordinates_stage(source: RowSource, shape: Shape, count: int, k: int, m: int, ridge: float) -> Stage:
    """``embedding`` (n, m) in the order of the input: each row among its nearest landmarks. One pass."""
    n = shape.n

    cost = Cost.of(
        reads=[ArraySpec("rows", n, shape.row_bytes, "u1")],
        writes=[ArraySpec("embedding", n, m)],
        task=[
            ArraySpec("blocks of rows", shape.largest_block, shape.row_bytes, "u1", 8),
            buffer("neighbors of a tile", placing_memory(shape, count, k, m)),
        ],
        passes=1,
        flops=n * (2.0 * count * shape.d + k * k * shape.d),
        scalar_ops=float(n) * count,
    )
    parameters = {"source": source.fingerprint(), "reg": ridge}
    inputs = ("order", "landmarks", "solve") if isinstance(source, OrderedRows) else ("landmarks", "solve")
    run = partial(run_landmark_coordinates, source=source, shape=shape, m=m, ridge=ridge)
    return Stage("coordinates", inputs, parameters, run, cost)


def run_landmark_coordinates(context: Context, source: RowSource, shape: Shape, m: int, ridge: float) -> dict[str, Any]:
    n, model = shape.n, landmark_model(context.home, shape, ridge)
    if isinstance(source, OrderedRows):
        ordered, out_rows = Ordered.open(context.of("order")), block_rows(m, 8)
        blocks = [(b,) for b in range(len(ordered.blocks))]
        fixed: dict[str, Any] = {"ordered": ordered, "out_rows": out_rows}
        map_blocks(placed_block, blocks, model=model, exchange=context.exchange, **fixed)
        create_rows(context.path("embedding"), (n, m), np.float64, out_rows, overwrite=True)
        restore(context.exchange, len(blocks), ("embedding",), n, out_rows, context.path(""))
    else:
        write_extended(source, Extension(extend_landmarks, model, m, shape.d), context.path("embedding"))
    return {"n_components": m, "parts": context.results("solve")["parts"], "filled_rows": 0, "repeated_rows": 0}


def placed_block(b: int, *, ordered: Ordered, model: LandmarkModel, out_rows: int, exchange: Exchange) -> None:
    """The coordinates of one block of a graph, left for each block of the output."""
    coordinates = extend_landmarks(ordered.rows(b), model)
    leave_rows(exchange, b, ordered.ids(b), {"embedding": coordinates}, ordered.starts[-1], out_rows)
