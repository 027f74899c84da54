"""The stage that makes a map of its points: about their mean, in the order of the input, with the field of all rows."""

from __future__ import annotations

from typing import Any

import numpy as np

from bigembed.blocks.rows import Array, block_rows, map_blocks
from bigembed.blocks.vector_space import tree_sum
from bigembed.embedding.forces.by_blocks import box_of, charge_block, field_block
from bigembed.embedding.graph.replaced import repeated_block, repeated_matrix
from bigembed.embedding.graph.shape import GraphShape
from bigembed.embedding.input_order import leave_rows, restore
from bigembed.kernels.field import STEP, Lattice, lattice_bytes, spacing_for
from bigembed.neighbors.order import Ordered
from bigembed.stages import Context, Cost, Stage
from bigembed.store.arrays import create_rows, read_array, read_by_id, write_array
from bigembed.store.exchange import Exchange
from bigembed.store.matrix import StoredMatrix


def coordinates_stage(graph: GraphShape, m: int, dof: float) -> Stage:
    """``embedding`` (n, m) in the order of the input, ``points`` by blocks of the graph, and ``field``.

    Rows that are equal have the coordinates of the first of them.
    """
    n, block = graph.n, min(graph.n, graph.block)

    def run(context: Context) -> dict[str, Any]:
        rows, exchange = tuple(context.results("kernel")["rows"]), context.exchange
        blocks, points = [(b,) for b in range(len(rows))], context.of("descent", "points")
        mean = tree_sum(map_blocks(sum_block, blocks, points=points)) / n
        out_rows = block_rows(m, 8)
        shared: dict[str, Any] = {"points": points, "mean": mean, "rows": rows, "exchange": exchange}
        order = context.of("order") if graph.ordered else ""
        equal = repeated_matrix(context) if not graph.weighted else None
        found = map_blocks(
            points_block, blocks, order=order, equal=equal, out=context.path("points"), out_rows=out_rows, **shared
        )
        create_rows(context.path("embedding"), (n, m), np.float64, out_rows)
        restore(exchange, len(rows), ("embedding",), n, out_rows, context.path(""))
        low, high = np.min([box[0] for box, _ in found], axis=0), np.max([box[1] for box, _ in found], axis=0)
        spacing = spacing_for(low, high, dof)
        lattice = Lattice.around(low, high, spacing, STEP)
        map_blocks(charged_block, blocks, points=context.path("points"), exchange=exchange, spacing=spacing)
        field = context.path("field")
        [total] = map_blocks(
            write_field, [()], lattice=lattice, out=field, blocks=len(rows), dof=dof, exchange=exchange
        )
        return {
            "n_components": m,
            "repeated_rows": sum(count for _, count in found),
            "spacing": spacing,
            "low": list(lattice.low),
            "box": [low.tolist(), high.tolist()],
            "total": total,
        }

    size, (kept, transform) = 8 * n * m, lattice_bytes(n, m)
    cost = Cost(
        read=4 * size,
        write=4 * size,
        disk=2 * size + transform // 4,
        scratch=size + 16 * n,
        memory=max(6 * block * (8 * m + 16), kept + transform),
        maps=5,
    )
    inputs = ("kernel", "descent", *(("order",) if graph.ordered else ()), *(() if graph.weighted else ("graph",)))
    return Stage("coordinates", inputs, {"dof": dof}, run, cost)


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
    leave_rows(exchange, b, ids, {"embedding": found}, out_rows)
    return box_of(found), repeated


def charged_block(b: int, *, points: str, exchange: Exchange, spacing: float) -> None:
    """Leave the charges of a block of the map."""
    charge_block(b, read_array(f"{points}/{b}"), exchange, "charges", spacing)


def write_field(*, lattice: Lattice, blocks: int, dof: float, exchange: Exchange, out: str) -> float:
    """Write the field of the map; its Z."""
    total = field_block("charges", "field", lattice=lattice, blocks=blocks, dof=dof, exchange=exchange)
    write_array(out, exchange.piece("field", 0, "field"))
    return total
