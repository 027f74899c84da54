"""Coordinates by the blocks of a graph, written in the order of the input."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

import numpy as np

from bigembed.blocks.rows import Array, block_rows, map_blocks
from bigembed.embedding.input_order import leave_rows, restore
from bigembed.neighbors.ordering.order import Ordered
from bigembed.stages import Context
from bigembed.store.arrays.io import create_rows, read_array
from bigembed.store.blockwise.exchange import Exchange


class GraphCoordinates(Protocol):
    """Where a task finds the coordinates of fitted rows. Small and picklable."""

    @property
    def starts(self) -> Sequence[int]:
        """First row of each block of the graph, and n."""

    @property
    def width(self) -> int:
        """Coordinates of a row."""

    @property
    def labels(self) -> str:
        """Where the component of each row lies."""

    def block(self, b: int) -> Array:
        """Those of the rows of a block, (rows, width)."""

    def of_rows(self, ids: Array) -> Array:
        """Those of rows by their numbers in the graph, which others take, (len(ids), width)."""


def write_coordinates(
    context: Context,
    found: GraphCoordinates,
    order: str | None,
    replaced: bool,
    parts: int = 1,
    island: int | None = None,
    labels: str = "",
) -> None:
    """``embedding`` (n, width) and ``labels`` (n,); ``order``: where the graph says it, None for that of the input.

    ``replaced``: :func:`~bigembed.embedding.graph.replaced.find_replaced` left which rows take those of another one.
    ``island``: the label that rows outside the first ``parts`` components get; None leaves their own. ``labels``: where
    these components lie, if they are not those of ``found``.
    """
    blocks, n, out_rows = len(found.starts) - 1, int(found.starts[-1]), block_rows(found.width, 8)
    map_blocks(
        coordinates_block,
        [(b,) for b in range(blocks)],
        found=found,
        order=order,
        replaced=replaced,
        parts=parts,
        island=island,
        labels=labels or found.labels,
        out_rows=out_rows,
        exchange=context.exchange,
    )
    create_rows(context.path("embedding"), (n, found.width), np.float64, out_rows)
    create_rows(context.path("labels"), (n,), np.int32, out_rows)
    restore(context.exchange, blocks, ("embedding", "labels"), n, out_rows, context.path(""))


def coordinates_block(
    b: int,
    *,
    found: GraphCoordinates,
    order: str | None,
    replaced: bool,
    parts: int,
    island: int | None,
    labels: str,
    out_rows: int,
    exchange: Exchange,
) -> None:
    """The coordinates of one block, with those that its rows take of others, left for each block of the output."""
    label, coordinates = read_array(f"{labels}/{b}"), found.block(b)
    if replaced:
        rows, others = exchange.get_many("nearest", b, ["rows", "ids"])
        coordinates[rows] = found.of_rows(others)
    label = label if island is None else np.where(label < parts, label, np.int32(island))
    ids = Ordered.open(order).ids(b) if order else np.arange(found.starts[b], found.starts[b + 1])
    leave_rows(exchange, b, ids, {"embedding": coordinates, "labels": label}, int(found.starts[-1]), out_rows)
