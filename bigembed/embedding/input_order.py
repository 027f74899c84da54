"""Rows back in the order of the input: left by the tasks that made them, collected by blocks of the output."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from bigembed.blocks.rows import Array, bounds, map_blocks
from bigembed.store.arrays.io import write_rows
from bigembed.store.blockwise.exchange import Exchange
from bigembed.store.blockwise.parcels import Delivery, by_receiver, send, settle

COORDINATES = "coordinates"
"""Name of what parts leave for the blocks of the output."""


def leave_rows(exchange: Exchange, part: int, at: Array, arrays: Mapping[str, Array], n: int, out_rows: int) -> None:
    """Leave each block of the output, of ``out_rows`` of ``n`` rows, what a part has of its rows, numbered ``at``."""
    order, receivers = by_receiver(at // out_rows, -(-n // out_rows))
    columns = {"at": at[order] % out_rows} | {name: array[order] for name, array in arrays.items()}
    send(exchange, COORDINATES, part, {name: (column, receivers) for name, column in columns.items()})


def restore(exchange: Exchange, parts: int, names: Sequence[str], n: int, out_rows: int, folder: str) -> None:
    """Fill the arrays of these names in a folder, made for ``n`` rows, with what all parts left."""
    spans = [(number, *span) for number, span in enumerate(bounds(n, out_rows))]
    map_blocks(restore_rows, spans, left=settle(exchange, COORDINATES, parts), names=names, folder=folder)


def restore_rows(number: int, start: int, stop: int, *, left: Delivery, names: Sequence[str], folder: str) -> None:
    """Collect one block of the output."""
    found = left.to(number)
    place = np.empty(stop - start, np.int64)
    place[found["at"]] = np.arange(stop - start)
    for name in names:
        write_rows(f"{folder}{name}", start, found[name][place])
