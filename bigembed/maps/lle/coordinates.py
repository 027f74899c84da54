"""The coordinates of an exact solve in the order of the input; rows outside of it are at their nearest ones."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import Any

from bigembed.estimator.graph_input import ISLAND, ISLANDS
from bigembed.maps.coordinates import write_coordinates
from bigembed.maps.graph_rows import find_replaced, first_replaced, repeated_matrix
from bigembed.neighbors.order import Ordered
from bigembed.runtime.blocks import Array, block_rows
from bigembed.stages import ArraySpec, Context, Cost, Stage
from bigembed.store.arrays import read_array, read_by_id


@dataclass(frozen=True)
class SolvedCoordinates:
    """Where a task finds the coordinates of fitted rows by block."""

    path: str
    labels: str
    starts: tuple[int, ...]
    width: int

    def block(self, b: int) -> Array:
        """Coordinates (rows, width) of a block."""
        return read_array(f"{self.path}/{b}")

    def of_rows(self, ids: Array) -> Array:
        """Coordinates of rows by their numbers in the graph."""
        return read_by_id(self.path, self.starts, ids)


def coordinates_stage(policy: str, n: int, m: int, block: int) -> Stage:
    """``embedding`` (n, m) and ``labels`` (n,) in the order of the input."""

    rows = min(n, max(block, block_rows(m, 8)))
    coordinates = ArraySpec("coordinates/*", n, m)
    task = [ArraySpec("coordinates", rows, m + 1, times=6), ArraySpec("numbers", rows, times=2)]
    writes = [ArraySpec("embedding", n, m), ArraySpec("labels", n, dtype="i4")]
    writes += [ArraySpec(f"{name}/*", 0, dtype="i8") for name in ("outside", "nearest")]
    cost = Cost.of([coordinates], writes, [coordinates], task)
    return Stage(
        "coordinates",
        ("order", "graph", "components", "solve"),
        {"policy": policy, "n_components": m},
        partial(run_coordinates, policy=policy, m=m),
        cost,
    )


def run_coordinates(context: Context, policy: str, m: int) -> dict[str, Any]:
    order, components = context.of("order"), context.results("components")
    count = context.results("solve")["parts"]
    starts = Ordered.open(order).starts
    paths = context.of("solve", "coordinates"), context.of("components", "labels")
    equal = repeated_matrix(context)
    replaced = count < components["components"] or equal is not None
    filled = find_replaced(context, order, count, equal) if replaced else []
    island = ISLAND if policy == ISLANDS else None
    write_coordinates(context, SolvedCoordinates(*paths, starts, m), order, replaced, count, island)
    outside = sum(rows for rows, _ in filled)
    return {
        "n_components": m,
        "parts": count,
        "filled_rows": outside,
        "repeated_rows": sum(rows for _, rows in filled),
        "first_filled": first_replaced(filled, Ordered.open(order), context.exchange) if outside else [],
    }
