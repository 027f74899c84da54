"""The alignment matrix of all rows of a graph, solved in one process, and coordinates in the order of the input."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from bigembed.blocks.rows import Array, block_rows, map_blocks
from bigembed.eigen.smallest import MOST_BYTES
from bigembed.embedding.alignment.conditions import Conditions
from bigembed.embedding.alignment.solve import solve_flops, solve_memory, solve_parts
from bigembed.embedding.graph.coordinates import write_coordinates
from bigembed.embedding.graph.parts import CHOICES, ISLAND, ISLANDS, Parts, parts_from
from bigembed.embedding.graph.replaced import find_replaced, first_replaced, repeated_matrix
from bigembed.errors import PlanError
from bigembed.neighbors.ordering.order import Ordered
from bigembed.stages import Context, Cost, Stage
from bigembed.store.arrays.io import read_array, read_by_id, write_array

EXACT_ROWS = 50_000
"""Rows of which an exact solve is tried."""
POLICIES = {name: words for name, words in CHOICES.items() if name != "bridge"}


def solve_stage(conditions: Conditions, policy: str, n: int, k: int, m: int) -> Stage:
    """``coordinates/b`` (rows, m) of the rows of each block, ``eigenvalues`` and ``residuals``: one task holds all."""
    check_exact(n)

    def run(context: Context) -> dict[str, Any]:
        found = context.results("components")
        parts = parts_from(policy, found, POLICIES)
        ordered = Ordered.open(context.of("order"))
        paths = {
            "conditions": context.of("alignment", "rows"),
            "lists": context.of("search", "neighbors"),
            "labels": context.of("components", "labels"),
            "out": context.path(""),
        }
        asked = {"starts": ordered.starts, "parts": parts, "sizes": found["sizes"], "policy": policy, "m": m}
        [results] = map_blocks(solve_task, [(conditions.count,)], **asked, **paths)
        names = {b: ordered.ids(b) for b in range(len(ordered.blocks))}
        return {**named(results, names, ordered), "solver": "exact", "n_components": m, "parts": parts.count}

    size = 8 * n * conditions.count * (1 + k)
    cost = Cost(
        read=size + 12 * n * k,
        write=8 * n * m,
        disk=8 * n * m,
        memory=solve_memory(n, k, conditions.count, m),
        coordinator=24 * n,
        flops=solve_flops(n, m),
        maps=1,
        blocks=1,
    )
    stages = ("order", "search", "alignment", "components")
    return Stage("solve", stages, {"policy": policy, "n_components": m, "most": MOST_BYTES}, run, cost)


def check_exact(n: int) -> None:
    """PlanError if n rows are too many for one process."""
    if n > EXACT_ROWS:
        raise PlanError(
            f"solver='exact' solves for all rows in one process, for n ≤ {EXACT_ROWS}; got n = {n}. Use "
            "solver='landmarks', or 'auto'"
        )


def solve_task(
    count: int,
    *,
    starts: tuple[int, ...],
    parts: Parts,
    sizes: list[int],
    policy: str,
    m: int,
    conditions: str,
    lists: str,
    labels: str,
    out: str,
) -> dict[str, Any]:
    """Solve for all rows, and write their coordinates by block."""
    blocks = range(len(starts) - 1)
    every, ids, label = (
        np.concatenate([read_array(f"{path}/{b}") for b in blocks]) for path in (conditions, lists, labels)
    )
    solved = solve_parts(every.reshape(len(ids), count, -1), ids, label, parts, sizes, policy, m)
    for b in blocks:
        write_array(f"{out}coordinates/{b}", solved.coordinates[starts[b] : starts[b + 1]])
    write_array(f"{out}eigenvalues", solved.eigenvalues)
    write_array(f"{out}residuals", solved.residuals)
    return solved.results


def named(results: dict[str, Any], names: Mapping[int, Array], ordered: Ordered) -> dict[str, Any]:
    """The results with rows by their numbers in the input."""
    every = np.concatenate([names[b] for b in range(len(ordered.blocks))])
    out = {**results, "leading_rows": every[np.array(results["leading_rows"])].tolist()}
    for part in out["solved"].values():
        part["closed_rows"] = [np.sort(every[np.array(group)]).tolist() for group in part["closed_rows"]]
    return out


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

    def run(context: Context) -> dict[str, Any]:
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

    rows = min(n, max(block, block_rows(m, 8)))
    cost = Cost(
        read=12 * n * m, write=16 * n * m, disk=8 * n * m + 4 * n, scratch=8 * n * m, memory=rows * (48 * m + 64)
    )
    return Stage(
        "coordinates", ("order", "graph", "components", "solve"), {"policy": policy, "n_components": m}, run, cost
    )
