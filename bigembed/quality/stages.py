"""Stages that estimate the intrinsic dimension of the rows before a map is made."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

from bigembed.quality.dimension import Dimension, dimension_of_pairs, dimension_within, intrinsic_dimension
from bigembed.stages import Context, Cost, Stage
from bigembed.store.arrays import read_array


def dimension_stage(n: int, n_neighbors: int, lists: str = "search", squared: str = "squared") -> Stage:
    """Intrinsic dimension of the rows, from the distances to their neighbors: one pass over the lists.

    ``lists``: the stage that has them, ``squared`` by name, nearest first.
    """

    def run(context: Context) -> dict[str, Any]:
        blocks = len(read_array(context.of("order", "starts"))) - 1
        return _chosen(intrinsic_dimension(context.of(lists, squared), blocks))

    return Stage("dimension", ("order", lists), {}, run, Cost(read=4 * n * n_neighbors, scalar_ops=n * n_neighbors))


def dimension_of_pairs_stage(n: int) -> Stage:
    """The stage that judges coordinates from the distances of all pairs."""

    def run(context: Context) -> dict[str, Any]:
        return _chosen(dimension_of_pairs(context.of("graph")))

    return Stage("dimension", ("graph",), {}, run, Cost(read=8 * n**2, scalar_ops=n**2, memory=24 * n**2))


def _chosen(found: Dimension) -> dict[str, Any]:
    chosen = found.likelihood if found.likelihood.value is not None else found.two_nearest
    return {"value": chosen.value or 0.0, **asdict(found)}


def dimension_within_stage(radius: float, edges: int) -> Stage:
    """The stage that judges coordinates from the edges of a graph of a radius: one pass over them."""

    def run(context: Context) -> dict[str, Any]:
        blocks = len(read_array(context.of("graph", "starts"))) - 1
        found = dimension_within(context.of("graph"), blocks, radius)
        return {"value": found.likelihood.value or 0.0, **asdict(found)}

    return Stage("dimension", ("graph",), {"radius": radius}, run, Cost(read=4 * edges, scalar_ops=edges))
