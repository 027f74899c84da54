"""The distances between all rows, by any metric, written to disk tile by tile: for the methods that need them."""

from __future__ import annotations

from typing import Any

from bigembed.blocks.distances import Metric
from bigembed.blocks.rows import bounds, map_blocks
from bigembed.stages import Context, Cost, Stage
from bigembed.store.arrays.io import create_grid, create_rows, write_rows, write_window
from bigembed.store.rows.offenders import checked_shape, offenders, refuse, usable
from bigembed.store.rows.row_blocks import RowBlock
from bigembed.store.rows.source import RowSource

TILE = 1_024
"""Rows and columns of a stored chunk."""
TASK_ROWS = 2_048
"""Rows of a task; it reads all rows once."""


def distances_stage(source: RowSource, metric: Metric) -> Stage:
    """``distances/distances`` (n, n) in the work dtype, and ``distances/rows``, a copy of the rows.

    The rows are checked (finite); what the metric returns is not: whoever reads the distances first does that.
    """
    n, d = checked_shape(source)
    size = source.work.itemsize

    def run(context: Context) -> dict[str, Any]:
        rows, out = context.path("rows"), context.path("distances")
        create_rows(rows, (n, d), source.work, TASK_ROWS, overwrite=True)
        create_grid(out, (n, n), source.work, (TILE, TILE))
        spans = bounds(n, TASK_ROWS)
        refuse(map_blocks(copy_block, spans, source=source, out=rows), source)
        map_blocks(distances_block, spans, rows=RowSource((n, d), source.work, path=rows), metric=metric, out=out)
        return {"n": n, "d": d, "metric": metric.text}

    cost = Cost(
        passes=1 + -(-n // TASK_ROWS),
        read=n * source.row_bytes * (1 + -(-n // TASK_ROWS)),
        write=n * n * size,
        disk=n * (n * size + source.row_bytes),
        memory=3 * TASK_ROWS * TILE * 8 + 4 * TASK_ROWS * source.row_bytes,
        flops=2 * n * n * d,
        scalar_ops=n * n,
        blocks=-(-n // TASK_ROWS),
    )
    return Stage("distances", (), {"source": source.fingerprint(), **metric.key()}, run, cost)


def copy_block(start: int, stop: int, *, source: RowSource, out: str) -> dict[str, Any]:
    """Copy some rows; what is wrong with them."""
    rows = source.matrix(start, stop)
    found = offenders(RowBlock(0, start, rows))
    if usable(found):
        write_rows(out, start, rows)
    return found


def distances_block(start: int, stop: int, *, rows: RowSource, metric: Metric, out: str) -> None:
    """Distances of some rows to all, tile by tile."""
    own = rows.matrix(start, stop)
    for first, last in bounds(rows.shape[0], TILE):
        write_window(out, start, first, metric.between(own, rows.matrix(first, last)).astype(rows.work, copy=False))
