"""The alignment matrix of landmarks, far from each other, instead of all rows; every other row is placed among them.

Landmarks have neighbors among themselves, conditions around each, and an alignment matrix of their own. It is better
posed than that of all rows, whose smallest eigenvalues fall like n^{−4/d}, and landmarks that are evenly spread carry
the map better than rows that are not: of 10⁵ rows of a swiss roll 3000 landmarks recover both coordinates (R² 1.000
and .97); with the whole problem of 5·10⁴ rows the second one has a rank correlation of .9 with the height.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
from scipy.sparse import csr_array
from scipy.sparse.csgraph import connected_components

from bigembed.blocks.rows import Array, block_rows, map_blocks
from bigembed.embedding.alignment.conditions import TILE_BYTES, Conditions
from bigembed.embedding.alignment.exact import POLICIES
from bigembed.embedding.alignment.extension import LandmarkModel, extend_landmarks, landmark_model, placing_memory
from bigembed.embedding.alignment.solve import solve_flops, solve_memory, solve_parts
from bigembed.embedding.extension import Extension, write_extended
from bigembed.embedding.graph.ordered_rows import OrderedRows
from bigembed.embedding.graph.parts import ISLAND, Parts, parts_of
from bigembed.embedding.input_order import leave_rows, restore
from bigembed.embedding.landmark_rows import landmark_rows_stage
from bigembed.errors import InputError
from bigembed.neighbors.exact import empty_lists
from bigembed.neighbors.ordering.order import Ordered
from bigembed.neighbors.ordering.survey import Shape
from bigembed.stages import Context, Cost, Stage
from bigembed.store.arrays.io import create_rows, read_array, write_array
from bigembed.store.blockwise.exchange import Exchange
from bigembed.store.rows.source import RowSource

MAX_LANDMARKS = 50_000


def landmarks_stage(source: RowSource, count: int, selection: str, at_least: int, seed: int) -> Stage:
    """``landmarks/rows`` (L, d) of rows in the order of the input, or of those of a graph (:class:`OrderedRows`)."""
    stage = landmark_rows_stage(source, count, selection, at_least, seed)
    if not isinstance(source, OrderedRows):
        return stage

    def run(context: Context) -> dict[str, Any]:
        rows = replace(source, ordered=Ordered.open(context.of("order")))
        found = landmark_rows_stage(rows, count, selection, at_least, seed).run(context)
        return {**found, "metric": context.results("survey")["metric"]}

    return replace(stage, inputs=("survey", "order"), run=run)


def landmark_solve_stage(conditions: Conditions, policy: str, count: int, k: int, m: int, d: int) -> Stage:
    """``coordinates/0`` (L, m) and ``labels/0`` (L,) of the landmarks, ``eigenvalues`` and ``residuals``: one task."""

    def run(context: Context) -> dict[str, Any]:
        asked: dict[str, Any] = {"k": k, "m": m, "policy": policy, "out": context.path("")}
        [results] = map_blocks(solve_landmarks, [(conditions,)], rows=context.of("landmarks", "rows"), **asked)
        return {**results, "solver": "landmarks", "n_components": m}

    lists = count * k * 16 + 3 * 8 * 512 * count + TILE_BYTES
    cost = Cost(
        read=8 * count * d,
        write=8 * count * (m + 1),
        disk=8 * count * (m + 1),
        memory=solve_memory(count, k, conditions.count, m) + 24 * count * d + lists + 8 * TILE_BYTES,
        flops=solve_flops(count, m) + 2.0 * count * count * d,
        maps=1,
        blocks=1,
    )
    parameters = {**conditions.key(), "policy": policy, "n_components": m, "n_neighbors": k}
    return Stage("solve", ("landmarks",), parameters, run, cost)


def solve_landmarks(conditions: Conditions, *, rows: str, k: int, m: int, policy: str, out: str) -> dict[str, Any]:
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
    solved = solve_parts(conditions.of_rows(points, ids), ids, label, parts, sizes, policy, m)
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
    from bigembed.neighbors.search.local import search_rows

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
    n, graph = shape.n, isinstance(source, OrderedRows)

    def run(context: Context) -> dict[str, Any]:
        model = landmark_model(context.home, shape, ridge)
        if graph:
            ordered, out_rows = Ordered.open(context.of("order")), block_rows(m, 8)
            blocks = [(b,) for b in range(len(ordered.blocks))]
            fixed: dict[str, Any] = {"ordered": ordered, "out_rows": out_rows}
            map_blocks(placed_block, blocks, model=model, exchange=context.exchange, **fixed)
            create_rows(context.path("embedding"), (n, m), np.float64, out_rows, overwrite=True)
            restore(context.exchange, len(blocks), ("embedding",), n, out_rows, context.path(""))
        else:
            write_extended(source, Extension(extend_landmarks, model, m, shape.d), context.path("embedding"))
        return {"n_components": m, "parts": context.results("solve")["parts"], "filled_rows": 0, "repeated_rows": 0}

    cost = Cost(
        passes=1,
        read=n * shape.row_bytes,
        write=8 * n * m,
        disk=8 * n * m,
        memory=8 * min(n, shape.block) * shape.row_bytes + placing_memory(shape, count, k, m),
        flops=n * (2.0 * count * shape.d + k * k * shape.d),
        scalar_ops=float(n) * count,
    )
    parameters = {"source": source.fingerprint(), "reg": ridge}
    inputs = ("order", "landmarks", "solve") if graph else ("landmarks", "solve")
    return Stage("coordinates", inputs, parameters, run, cost)


def placed_block(b: int, *, ordered: Ordered, model: LandmarkModel, out_rows: int, exchange: Exchange) -> None:
    """The coordinates of one block of a graph, left for each block of the output."""
    coordinates = extend_landmarks(ordered.rows(b), model)
    leave_rows(exchange, b, ordered.ids(b), {"embedding": coordinates}, ordered.starts[-1], out_rows)
