"""Tiles: a square array larger than memory, walked in small parts, whatever the chunks that it is stored in.

The tiles lie on a grid of their own, so that sums over them are the same to the last bit for any chunks. They are cut
from panels that follow the chunks, so that each chunk is read once along the rows of a task.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import product
from typing import NamedTuple

import numpy as np

from bigembed.rows import RowSource
from bigembed.runtime.blocks import Array, bounds

TILE_ROWS = 256
TILE_COLUMNS = 1_024
PANEL_BYTES = 64 << 20
"""Rows of all columns are held up to this size; beyond it a panel is all rows of the task and some columns."""


class Tile(NamedTuple):
    """Entries from ``row`` and ``column`` on, in float64."""

    row: int
    column: int
    values: Array


def tiles(source: RowSource, start: int, stop: int) -> Iterator[Tile]:
    """Tiles of the rows ``start:stop`` of a two-dimensional array, on a grid that begins at row ``start``, column 0.

    Those of the same rows come in the order of the columns, those of the same columns in the order of the rows.
    """
    for row, column, panel in panels(source, start, stop):
        for i, j in product(range(0, panel.shape[0], TILE_ROWS), range(0, panel.shape[1], TILE_COLUMNS)):
            part = panel[i : i + TILE_ROWS, j : j + TILE_COLUMNS]
            yield Tile(row + i, column + j, np.array(part, np.float64, order="C"))


def panels(source: RowSource, start: int, stop: int) -> Iterator[tuple[int, int, Array]]:
    """First row, first column and entries: some rows of all columns, or all rows of some columns."""
    n, (high, wide) = source.shape[1], source.chunks
    if wide >= n or (high + TILE_ROWS) * n * source.dtype.itemsize <= PANEL_BYTES:
        rows = [(start + first, start + last) for first, last in bounds(stop - start, TILE_ROWS)]
        for first, panel in tile_windows(rows, high, 0, lambda a, b: source.window((a, b), (0, n))):
            yield first, 0, panel
    else:
        whole = (start, stop)
        for first, panel in tile_windows(bounds(n, TILE_COLUMNS), wide, 1, lambda a, b: source.window(whole, (a, b))):
            yield start, first, panel


def panel_memory(source: RowSource, rows: int) -> int:
    """Bytes that :func:`panels` holds for a task of that number of rows, the chunks being read included."""
    n, (high, wide), item = source.shape[1], source.chunks, source.dtype.itemsize
    if wide >= n or (high + TILE_ROWS) * n * item <= PANEL_BYTES:
        held = (min(high, rows) + TILE_ROWS) * n
    else:
        held = rows * min(n, wide + TILE_COLUMNS)
    return 2 * held * item + high * wide * item + 16 * TILE_ROWS * TILE_COLUMNS


def tile_windows(
    spans: list[tuple[int, int]], grain: int, axis: int, read: Callable[[int, int], Array]
) -> Iterator[tuple[int, Array]]:
    """The parts of consecutive spans, read up to the ends of stored chunks of ``grain``."""
    end, limit = spans[0][0], spans[-1][1]
    held = read(end, end)
    for start, stop in spans:
        if end < stop:
            upto = min(limit, -(-stop // grain) * grain)
            fresh = read(end, upto)
            held, end = np.concatenate([held, fresh], axis=axis) if held.shape[axis] else fresh, upto
        part, held = np.split(held, [stop - start], axis=axis)
        yield start, part
