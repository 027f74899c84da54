"""The stage that makes a map of its points, with the field of all rows."""

from __future__ import annotations

from typing import Any

from bigembed.blocks.rows import map_blocks
from bigembed.embedding.forces.by_blocks import charge_block, field_block
from bigembed.embedding.graph.shape import GraphShape
from bigembed.embedding.map_coordinates import write_map
from bigembed.kernels.field import STEP, Lattice, lattice_bytes, spacing_for
from bigembed.stages import Context, Cost, Stage
from bigembed.store.arrays.io import read_array, write_array
from bigembed.store.blockwise.exchange import Exchange


def coordinates_stage(graph: GraphShape, m: int, dof: float) -> Stage:
    """``embedding`` (n, m) in the order of the input, ``points`` by blocks of the graph, and ``field``.

    Rows that are equal have the coordinates of the first of them.
    """
    n, block = graph.n, min(graph.n, graph.block)

    def run(context: Context) -> dict[str, Any]:
        mapped, exchange = write_map(context, graph, m), context.exchange
        low, high, count = mapped.low, mapped.high, len(context.results("kernel")["rows"])
        spacing = spacing_for(low, high, dof)
        lattice = Lattice.around(low, high, spacing, STEP)
        map_blocks(
            charged_block,
            [(b,) for b in range(count)],
            points=context.path("points"),
            exchange=exchange,
            spacing=spacing,
        )
        field = context.path("field")
        [total] = map_blocks(write_field, [()], lattice=lattice, out=field, blocks=count, dof=dof, exchange=exchange)
        return {
            "n_components": m,
            "repeated_rows": mapped.repeated,
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


def charged_block(b: int, *, points: str, exchange: Exchange, spacing: float) -> None:
    """Leave the charges of a block of the map."""
    charge_block(b, read_array(f"{points}/{b}"), exchange, "charges", spacing)


def write_field(*, lattice: Lattice, blocks: int, dof: float, exchange: Exchange, out: str) -> float:
    """Write the field of the map; its Z."""
    total = field_block("charges", "field", lattice=lattice, blocks=blocks, dof=dof, exchange=exchange)
    write_array(out, exchange.piece("field", 0, "field"))
    return total
