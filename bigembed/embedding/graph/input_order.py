"""Coordinates back in the order of the input: left by blocks of the graph, collected by blocks of the output."""

from __future__ import annotations

import numpy as np

from bigembed.blocks.rows import Array
from bigembed.store.arrays import write_rows
from bigembed.store.exchange import Exchange


def leave_coordinates(exchange: Exchange, b: int, ids: Array, coordinates: Array, label: Array, out_rows: int) -> None:
    """Leave each block of the output, of ``out_rows`` rows, what block b has of its rows (``ids`` in the input)."""
    target = ids // out_rows
    pieces: dict[str, Array] = {}
    for number in np.unique(target):
        mine = target == number
        pieces |= {
            f"at{number}": ids[mine] - number * out_rows,
            f"xy{number}": coordinates[mine],
            f"label{number}": label[mine],
        }
    exchange.put("coordinates", b, pieces)


def restore_block(number: int, start: int, stop: int, *, blocks: int, kept: int, exchange: Exchange, out: str) -> None:
    """Collect one block of the output in the order of the input."""
    coordinates, labels = np.full((stop - start, kept), np.nan), np.zeros(stop - start, np.int32)
    for source in range(blocks):
        at = exchange.get("coordinates", source, f"at{number}")
        if at is not None:
            coordinates[at] = exchange.piece("coordinates", source, f"xy{number}")
            labels[at] = exchange.piece("coordinates", source, f"label{number}")
    write_rows(f"{out}embedding", start, coordinates)
    write_rows(f"{out}labels", start, labels)
