"""Columns of the input brought to the blocks of a graph, panel by panel, and back into the order of the input."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from bigembed.blocks.owners import owner_of
from bigembed.blocks.rows import Array, bounds, is_sparse, map_blocks
from bigembed.embedding.input_order import COORDINATES, leave_rows
from bigembed.embedding.walk.fitted_walk import InputOrder
from bigembed.errors import InputError
from bigembed.neighbors.search.rerank import internal_ids_of, places_block
from bigembed.store.arrays.io import create_rows, write_rows
from bigembed.store.blockwise.exchange import Exchange
from bigembed.store.blockwise.parcels import Delivery, by_receiver, send, settle
from bigembed.store.rows.passes import map_row_blocks
from bigembed.store.rows.row_blocks import RowBlock
from bigembed.store.rows.source import RowSource


def carry(columns: RowSource, order: InputOrder, panels: Sequence[slice], exchange: Exchange) -> list[Delivery]:
    """Leave each panel of the columns with the blocks of the graph: one pass. InputError for NaN and infinity."""
    places = None
    if order.ordered is not None:
        blocks = [(b,) for b in range(order.blocks)]
        map_blocks(places_block, blocks, old=order.ordered, rows=columns.block, exchange=exchange)
        places = settle(exchange, "places", order.blocks)
    found = map_row_blocks(columns, carry_columns, panels=list(panels), order=order, places=places, exchange=exchange)
    if rows := [row for part in found for row in part]:
        raise InputError(
            f"the columns hold NaN or infinity: in {len(rows):,} rows or more, the first are {rows[:10]}. Fill or drop "
            "them first"
        )
    return [settle(exchange, f"carried{number}", len(found)) for number in range(len(panels))]


def write_panels(
    out: str, dtype: Any, shape: tuple[int, int], out_rows: int, blocks: int, panels: Sequence[Exchange]
) -> None:
    """What all blocks left of all panels as an array (n, c) in the order of the input."""
    create_rows(out, shape, dtype, out_rows)
    spans = [(number, *span) for number, span in enumerate(bounds(shape[0], out_rows))]
    left = [settle(aside, COORDINATES, blocks) for aside in panels]
    map_blocks(write_block, spans, panels=left, out=out, dtype=dtype)


def carry_columns(
    span: RowBlock, *, panels: Sequence[slice], order: InputOrder, places: Delivery | None, exchange: Exchange
) -> list[int]:
    """Leave the columns of some rows of the input with the blocks of the graph; rows that are not finite."""
    internal = internal_ids_of(places, span) if places else np.arange(span.start, span.stop)
    owner = owner_of(order.starts, internal)
    rows, receivers = by_receiver(owner, order.blocks)
    at = (internal - np.array(order.starts)[owner])[rows]
    bad = np.zeros(len(internal), bool)
    for number, columns in enumerate(panels):
        part = span.rows[:, columns]
        part = (part.toarray() if is_sparse(part) else part).astype(np.float64)
        bad |= ~np.isfinite(part).all(axis=1)
        carried = {"at": (at, receivers), "columns": (part[rows], receivers)}
        send(exchange, f"carried{number}", span.number, carried)
    return (np.flatnonzero(bad) + span.start).tolist()[:1_000]


def collect_block(b: int, carried: Delivery) -> tuple[tuple[Array], None]:
    """A panel of the columns of one block, in the order of the graph."""
    found = carried.to(b)
    return (found["columns"][np.argsort(found["at"])],), None


def leave_block(b: int, own: Array, order: InputOrder, out_rows: int, aside: Exchange) -> tuple[tuple[()], None]:
    """Leave the panel of one block for the blocks of the output."""
    leave_rows(aside, b, order.ids(b), {"smoothed": own}, order.starts[-1], out_rows)
    return (), None


def write_block(number: int, start: int, stop: int, *, panels: Sequence[Delivery], out: str, dtype: Any) -> None:
    """Collect all panels of one block of the output."""
    parts = []
    for panel in panels:
        found = panel.to(number)
        parts.append(found["smoothed"][np.argsort(found["at"])])
    write_rows(out, start, np.concatenate(parts, axis=1).astype(dtype))
