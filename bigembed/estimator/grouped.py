"""Coordinates of many new rows by methods that look up the fitted rows around each: sorted by block, then in batches.

The new rows are first brought to the blocks of fitted rows that they belong to, as those were when they were ordered. A
task then takes rows that lie together, so it reads few blocks, and each for many rows. Last, the coordinates are put
into the order of the input. All three steps go through the exchange, and a stopped run goes on after the last piece
that was written.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np

from bigembed.errors import InputError
from bigembed.estimator.extension import Extension, Grouping, complete, consistent, leave_rows, restore
from bigembed.rows.source import RowSource
from bigembed.runtime.blocks import Array, block_rows, bounds, map_blocks
from bigembed.runtime.runtime import once
from bigembed.stages import ArraySpec, Context, Cost, Stage, buffer, largest
from bigembed.store.arrays import create_rows
from bigembed.store.exchange import Exchange

STAGE = "extend"
WAVE_ROWS = 1 << 25
"""New rows that are brought together at a time: what is on its way takes no more of the disk than these do."""


def grouped_stage(source: RowSource, extension: Extension, grouping: Grouping, inputs: tuple[str, ...]) -> Stage:
    """``coordinates`` (n, width) of the rows of a source, in their order. Two passes over the new rows."""
    n = source.shape[0]
    block, width = source.block, extension.width
    batch, out_rows = grouping.batch(n), block_rows(width, 8)

    wave = min(n, wave_rows(out_rows))
    held, columns, dtype = min(n, batch), source.shape[1], source.dtype
    rows, coordinates = ArraySpec("rows", n, columns, dtype), ArraySpec("coordinates", n, width)
    cost = Cost.of(
        reads=[rows],
        writes=[ArraySpec("embedding", n, width, extension.dtype)],
        leaves=[replace(rows, rows=wave), ArraySpec("numbers of rows", wave, 2, "i8"), replace(coordinates, rows=wave)],
        task=largest(
            [
                ArraySpec("rows to group", min(n, block), columns, dtype, 3),
                ArraySpec("rows as compared", min(n, block), grouping.row_bytes, "u1", 3),
            ],
            [
                ArraySpec("rows of a batch", held, columns, dtype, 2),
                ArraySpec("rows as compared", held, grouping.row_bytes, "u1", 2),
                buffer("neighbors of a batch", grouping.memory(held)),
            ],
            [ArraySpec("coordinates and numbers", min(n, out_rows), width + 2, times=3)],
        ),
        passes=2,
    )
    parameters = {"source": source.fingerprint(), "batch": batch, "width": width}
    return Stage(
        STAGE,
        inputs,
        parameters,
        partial(
            run_grouped,
            source=source,
            extension=extension,
            grouping=grouping,
            batch=batch,
            block=block,
            n=n,
            out_rows=out_rows,
            width=width,
        ),
        cost,
        parameters_of=inputs,
    )


def run_grouped(
    context: Context,
    source: RowSource,
    extension: Extension,
    grouping: Grouping,
    batch: int,
    block: int,
    n: int,
    out_rows: Any,
    width: int,
) -> dict[str, Any]:
    exchange, made = context.exchange, 0
    for first, last in bounds(n, wave_rows(out_rows)):
        new = [
            (number, first + start, first + stop) for number, (start, stop) in enumerate(bounds(last - first, block))
        ]
        wrong = map_blocks(sort_block, new, source=source, extension=extension, grouping=grouping, exchange=exchange)
        if any(wrong):  # not raised in the tasks: when it reaches the caller, none of them writes any more
            raise InputError("; ".join(message for message in wrong if message))
        tasks = once(partial(_tasks_of, exchange, len(new), batch))
        numbered = [(number, *task) for number, task in enumerate(tasks)]
        fixed = {"extension": extension, "batch": batch, "out_rows": out_rows, "exchange": exchange}
        map_blocks(extend_group, numbered, first_row=first, n=last - first, **fixed)
        if not first:
            create_rows(context.path("coordinates"), (n, width), extension.dtype, out_rows, overwrite=True)
        left = restore(exchange, len(tasks), ("coordinates",), last - first, out_rows, context.path(""), first)
        made += len(tasks)
        if last < n:
            left.drop()
            exchange.drop("new")
    return {"rows": n, "tasks": made}


def wave_rows(out_rows: int) -> int:
    """Rows that are brought together at a time: whole blocks of the output.

    >>> wave_rows(65_536), wave_rows(10_699) % 10_699
    (33554432, 0)
    """
    return out_rows * max(1, WAVE_ROWS // out_rows)


def _tasks_of(exchange: Exchange, sources: int, batch: int) -> list[tuple[int, int, int, int]]:
    return list(groups(np.stack([exchange.piece("new", number, "counts") for number in range(sources)]), batch))


def sort_block(
    number: int,
    start: int,
    stop: int,
    *,
    source: RowSource,
    extension: Extension,
    grouping: Grouping,
    exchange: Exchange,
) -> str:
    """Leave the rows of one block of the input, by the block of fitted rows that each belongs to.

    Returns what is wrong with them, or nothing.
    """
    rows = source.read(start, stop)
    try:
        label = labels(rows, start, extension, grouping)
    except InputError as error:
        return str(error)
    order = np.argsort(label, kind="stable")
    counts = np.bincount(label, minlength=grouping.blocks)
    pieces: dict[str, Array] = {"counts": counts}
    for b, members in zip(np.flatnonzero(counts), np.split(order, np.cumsum(counts[counts > 0])[:-1]), strict=True):
        pieces |= {f"rows{b}": rows[members], f"at{b}": members + start}
    exchange.put("new", number, pieces)
    return ""


def labels(rows: Array, start: int, extension: Extension, grouping: Grouping) -> Array:
    """The block (m,) of fitted rows that each new row belongs to; 0 for one that has no place."""
    there = complete(rows) if extension.missing == "passed" else np.ones(len(rows), bool)
    label = np.zeros(len(rows), np.int64)
    if there.any():
        with consistent(extension.saved):
            label[there] = grouping.block_of(rows if there.all() else rows[there], extension.model, start)
    return label


def groups(counts: Array, batch: int) -> Iterator[tuple[int, int, int, int]]:
    """What each task takes, of ``counts`` (sources, blocks): a range of blocks and a range of sources.

    Consecutive blocks go together until they are half a batch; of a block with more, some of the sources.

    >>> list(groups(np.array([[1, 1, 9, 1], [1, 0, 9, 1]]), 8))
    [(0, 2, 0, 2), (2, 3, 0, 1), (2, 3, 1, 2), (3, 4, 0, 2)]
    """
    sources, blocks = counts.shape
    first = held = 0
    for b, size in enumerate(counts.sum(axis=0).tolist()):
        if 2 * size > batch:
            if held:
                yield first, b, 0, sources
            yield from ((b, b + 1, start, stop) for start, stop in _runs(counts[:, b], batch))
            first, held = b + 1, 0
            continue
        held += size
        if 2 * held >= batch:
            yield first, b + 1, 0, sources
            first, held = b + 1, 0
    if held:
        yield first, blocks, 0, sources


def _runs(sizes: Array, batch: int) -> Iterator[tuple[int, int]]:
    """Consecutive ranges of half a batch or more, as far as there is so much."""
    first = held = 0
    for number, size in enumerate(sizes.tolist()):
        held += size
        if 2 * held >= batch:
            yield first, number + 1
            first, held = number + 1, 0
    if held:
        yield first, len(sizes)


def extend_group(
    number: int,
    first: int,
    last: int,
    start: int,
    stop: int,
    *,
    extension: Extension,
    batch: int,
    first_row: int,
    n: int,
    out_rows: int,
    exchange: Exchange,
) -> None:
    """Coordinates of the new rows in the blocks ``first:last`` from the sources ``start:stop``, by output block.

    ``first_row`` is that of the ``n`` that are brought together.
    """
    parts = [part for source in range(start, stop) for part in _rows_of(source, first, last, exchange)]
    if not parts:
        empty = {"coordinates": np.empty((0, extension.width), extension.dtype)}
        return leave_rows(exchange, number, np.zeros(0, np.int64), empty, n, out_rows)
    rows, at = (np.concatenate(part) for part in zip(*parts, strict=True))
    del parts
    coordinates = np.empty((len(rows), extension.width), extension.dtype)
    for low, high in bounds(len(rows), batch):
        coordinates[low:high] = extension.of_rows(rows[low:high])
    leave_rows(exchange, number, at - first_row, {"coordinates": coordinates}, n, out_rows)


def _rows_of(source: int, first: int, last: int, exchange: Exchange) -> Iterator[tuple[Array, Array]]:
    counts = exchange.piece("new", source, "counts")
    there = (first + np.flatnonzero(counts[first:last])).tolist()
    rows = exchange.get_many("new", source, [f"rows{b}" for b in there]) if there else []
    at = exchange.get_many("new", source, [f"at{b}" for b in there]) if there else []
    return zip(rows, at, strict=True)
