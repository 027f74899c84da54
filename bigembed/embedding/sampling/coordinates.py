"""The stage that makes a map of its points, with a sample of them that repels new rows."""

from __future__ import annotations

from typing import Any

import numpy as np

from bigembed.blocks.rows import map_blocks
from bigembed.embedding.graph.shape import GraphShape
from bigembed.embedding.map_coordinates import write_map
from bigembed.embedding.sampling.options import POOL, chosen
from bigembed.stages import Context, Cost, Stage
from bigembed.store.arrays.io import read_array, write_array


def coordinates_stage(graph: GraphShape, m: int, seed: int, n_epochs: int) -> Stage:
    """``embedding`` (n, m) in the order of the input, ``points`` by blocks of the graph, and the ``pool`` of the map.

    Rows that are equal have the coordinates of the first of them.
    """

    def run(context: Context) -> dict[str, Any]:
        mapped = write_map(context, graph, m)
        rows = tuple(context.results("kernel")["rows"])
        map_blocks(
            write_pool, [()], points=context.path("points"), out=context.path("pool"), rows=rows, seed=seed,
            epoch=n_epochs,
        )  # fmt: skip
        return {"n_components": m, "repeated_rows": mapped.repeated}

    n, block, size = graph.n, min(graph.n, graph.block), 8 * graph.n * m
    pool = 8 * m * min(n, POOL + n // block)
    cost = Cost(
        read=4 * size,
        write=3 * size,
        disk=2 * size + pool,
        scratch=size + 16 * n,
        memory=max(6 * block * (8 * m + 16), 8 * block * m + 2 * pool),
        maps=4,
    )
    inputs = ("kernel", "descent", *(("order",) if graph.ordered else ()), *(() if graph.weighted else ("graph",)))
    return Stage("coordinates", inputs, {"seed": seed, "n_epochs": n_epochs}, run, cost)


def write_pool(*, points: str, out: str, rows: tuple[int, ...], seed: int, epoch: int) -> None:
    """Write the rows of the map that may be drawn."""
    shares = [read_array(f"{points}/{b}")[chosen(b, rows, seed, epoch)] for b in range(len(rows))]
    write_array(out, np.concatenate(shares))
