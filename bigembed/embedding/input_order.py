"""Rows back in the order of the input: left by the tasks that made them, collected by blocks of the output."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from bigembed.blocks.rows import Array, bounds, map_blocks
from bigembed.store.arrays import write_rows
from bigembed.store.exchange import Exchange


def leave_rows(exchange: Exchange, part: int, at: Array, arrays: Mapping[str, Array], out_rows: int) -> None:
    """Leave each block of the output, of ``out_rows`` rows, what a part has of its rows, numbered ``at`` in it."""
    target = at // out_rows
    pieces: dict[str, Array] = {}
    for number in np.unique(target):
        mine = target == number
        pieces[f"at{number}"] = at[mine] - number * out_rows
        pieces |= {f"{name}{number}": array[mine] for name, array in arrays.items()}
    exchange.put("coordinates", part, pieces)


def restore(exchange: Exchange, parts: int, names: Sequence[str], n: int, out_rows: int, folder: str) -> None:
    """Fill the arrays of these names in a folder, made for ``n`` rows, with what all parts left."""
    spans = [(number, *span) for number, span in enumerate(bounds(n, out_rows))]
    map_blocks(restore_rows, spans, parts=parts, names=names, exchange=exchange, folder=folder)


def restore_rows(
    number: int, start: int, stop: int, *, parts: int, names: Sequence[str], exchange: Exchange, folder: str
) -> None:
    """Collect one block of the output."""
    found = [
        (part, at) for part in range(parts) if (at := exchange.get("coordinates", part, f"at{number}")) is not None
    ]
    order = np.argsort(np.concatenate([at for _, at in found]))
    for name in names:
        pieces = [exchange.piece("coordinates", part, f"{name}{number}") for part, _ in found]
        write_rows(f"{folder}{name}", start, np.concatenate(pieces)[order])
