"""Columns of the input brought to the blocks of a graph, panel by panel, and back into the order of the input."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from bigembed.blocks.owners import by_owner
from bigembed.blocks.rows import Array, bounds, is_sparse, map_blocks
from bigembed.embedding.input_order import leave_rows
from bigembed.embedding.walk.fitted_walk import InputOrder
from bigembed.errors import InputError
from bigembed.neighbors.rerank import places_block
from bigembed.store.arrays import create_rows, write_rows
from bigembed.store.exchange import Exchange
from bigembed.store.passes import map_row_blocks
from bigembed.store.row_blocks import RowBlock
from bigembed.store.source import RowSource


def carry(columns: RowSource, order: InputOrder, panels: Sequence[slice], exchange: Exchange) -> int:
    """Leave the columns with the blocks of the graph: one pass. In how many pieces; InputError for NaN and infinity."""
    if order.ordered is not None:
        blocks = [(b,) for b in range(order.blocks)]
        map_blocks(places_block, blocks, old=order.ordered, rows=columns.block, exchange=exchange)
    found = map_row_blocks(columns, carry_columns, panels=list(panels), order=order, exchange=exchange)
    if rows := [row for part in found for row in part]:
        raise InputError(
            f"the columns hold NaN or infinity: in {len(rows):,} rows or more, the first are {rows[:10]}. Fill or drop "
            "them first"
        )
    return len(found)


def write_panels(
    out: str, dtype: Any, shape: tuple[int, int], out_rows: int, blocks: int, panels: Sequence[Exchange]
) -> None:
    """What all blocks left of all panels as an array (n, c) in the order of the input."""
    create_rows(out, shape, dtype, out_rows)
    spans = [(number, *span) for number, span in enumerate(bounds(shape[0], out_rows))]
    map_blocks(write_block, spans, panels=list(panels), blocks=blocks, out=out, dtype=dtype)


def carry_columns(span: RowBlock, *, panels: Sequence[slice], order: InputOrder, exchange: Exchange) -> list[int]:
    """Leave the columns of some rows of the input with the blocks of the graph; rows that are not finite."""
    internal = np.arange(span.start, span.stop)
    for b in range(order.blocks) if order.ordered else ():
        if (piece := exchange.get("places", b, str(span.number))) is not None:
            internal[piece[0]] = piece[1]
    pieces: dict[str, Array] = {}
    bad = np.zeros(len(internal), bool)
    for number, columns in enumerate(panels):
        part = span.rows[:, columns]
        part = (part.toarray() if is_sparse(part) else part).astype(np.float64)
        bad |= ~np.isfinite(part).all(axis=1)
        for block, at, places in by_owner(order.starts, internal):
            pieces[f"{block} {number}"], pieces[f"at{block}"] = part[at], places
    exchange.put("carried", span.number, pieces)
    return (np.flatnonzero(bad) + span.start).tolist()[:1_000]


def collect_block(b: int, order: InputOrder, spans: int, number: int, exchange: Exchange) -> tuple[tuple[Array], None]:
    """A panel of the columns of one block, in the order of the graph."""
    out: Array | None = None
    for span in range(spans):
        at, part = exchange.find("carried", span, [f"at{b}", f"{b} {number}"])
        if at is not None and part is not None:
            out = np.empty((order.starts[b + 1] - order.starts[b], part.shape[1])) if out is None else out
            out[at] = part
    assert out is not None
    return (out,), None


def leave_block(b: int, own: Array, order: InputOrder, out_rows: int, aside: Exchange) -> tuple[tuple[()], None]:
    """Leave the panel of one block for the blocks of the output."""
    leave_rows(aside, b, order.ids(b), {"smoothed": own}, out_rows)
    return (), None


def write_block(
    number: int, start: int, stop: int, *, panels: Sequence[Exchange], blocks: int, out: str, dtype: Any
) -> None:
    """Collect all panels of one block of the output."""
    parts = []
    for aside in panels:
        found = [aside.find("coordinates", b, [f"at{number}", f"smoothed{number}"]) for b in range(blocks)]
        pieces = [(at, part) for at, part in found if at is not None and part is not None]
        rows = np.empty((stop - start, pieces[0][1].shape[1]))
        for at, part in pieces:
            rows[at] = part
        parts.append(rows)
    write_rows(out, start, np.concatenate(parts, axis=1).astype(dtype))
