"""Points of a map by blocks of its graph as coordinates: about their mean, in the order of the input."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from bigembed.blocks.rows import Array, block_rows, map_blocks
from bigembed.blocks.vector_space import tree_sum
from bigembed.embedding.graph.replaced import repeated_block, repeated_matrix
from bigembed.embedding.graph.shape import GraphShape
from bigembed.embedding.input_order import leave_rows, restore
from bigembed.neighbors.ordering.order import Ordered
from bigembed.stages import Context
from bigembed.store.arrays.io import create_rows, read_array, read_by_id, write_array
from bigembed.store.blockwise.exchange import Exchange
from bigembed.store.blockwise.matrix import StoredMatrix


@dataclass(frozen=True)
class Mapped:
    """What is known of a map once it is written."""

    low: Array
    high: Array
    """The box of all points."""
    repeated: int
    """Rows that have the coordinates of another one."""


def write_map(context: Context, graph: GraphShape, m: int) -> Mapped:
    """Write ``embedding`` (n, m) in the order of the input, and ``points`` by blocks of the graph, about their mean.

    Rows that are equal have the coordinates of the first of them.
    """
    rows, exchange = tuple(context.results("kernel")["rows"]), context.exchange
    blocks, points = [(b,) for b in range(len(rows))], context.of("descent", "points")
    mean = tree_sum(map_blocks(sum_block, blocks, points=points)) / graph.n
    out_rows = block_rows(m, 8)
    shared: dict[str, Any] = {"points": points, "mean": mean, "rows": rows, "exchange": exchange}
    order = context.of("order") if graph.ordered else ""
    equal = repeated_matrix(context) if not graph.weighted else None
    found = map_blocks(
        points_block, blocks, order=order, equal=equal, out=context.path("points"), out_rows=out_rows, **shared
    )
    create_rows(context.path("embedding"), (graph.n, m), np.float64, out_rows)
    restore(exchange, len(rows), ("embedding",), graph.n, out_rows, context.path(""))
    low, high = np.min([box[0] for box, _ in found], axis=0), np.max([box[1] for box, _ in found], axis=0)
    return Mapped(low, high, sum(count for _, count in found))


def box_of(points: Array) -> Array:
    """The least and the largest of each coordinate, (2, m)."""
    return np.stack([points.min(axis=0), points.max(axis=0)])


def sum_block(b: int, *, points: str) -> Array:
    """Σ y of one block."""
    return np.asarray(read_array(f"{points}/{b}").sum(axis=0))


def points_block(
    b: int, *, points: str, mean: Array, rows: tuple[int, ...], order: str, equal: StoredMatrix | None, out: str,
    out_rows: int, exchange: Exchange,
) -> tuple[Array, int]:  # fmt: skip
    """Write the points of a block about the mean, and leave them for the output; their box, and how many repeat."""
    starts = np.concatenate([[0], np.cumsum(rows)])
    found, repeated = read_array(f"{points}/{b}"), 0
    if equal is not None:
        again, firsts = repeated_block(b, equal, starts.tolist())
        found[again] = read_by_id(points, starts.tolist(), firsts)
        repeated = len(again)
    found = found - mean
    write_array(f"{out}/{b}", found)
    ids = Ordered.open(order).ids(b) if order else np.arange(starts[b], starts[b + 1])
    leave_rows(exchange, b, ids, {"embedding": found}, int(starts[-1]), out_rows)
    return box_of(found), repeated
