"""Passes over the rows: a function of each canonical block, summed in a fixed tree or written in order.

A task takes a run of consecutive canonical blocks and reads them through a sliding window, so that a
stored chunk is decompressed once even where chunks and canonical blocks do not match. Sums are taken
inside a task over fixed groups of blocks and left in the exchange, so neither the workers nor the
coordinating process hold more than a few of them, and the bytes of the result do not depend on the
chunks, the tasks or the workers.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from bigembed.blocks.rows import Array, bounds, map_blocks
from bigembed.blocks.vector_space import tree_fold
from bigembed.store.arrays.io import create_rows, write_rows
from bigembed.store.blockwise.exchange import Exchange
from bigembed.store.rows.offenders import offenders, refuse, usable
from bigembed.store.rows.row_blocks import row_blocks
from bigembed.store.rows.source import RowSource

Parts = dict[str, Array]
"""What a block contributes, by name; numbers are arrays without axes."""

MAX_GROUPS = 256
DATA_PER_SUM = 8
"""Bytes of rows behind a byte of partial sums, at least."""
CHUNKS_A_TASK = 8
TASKS = 16


def add_parts(left: Parts, right: Parts) -> Parts:
    """Sum by name."""
    return {name: left[name] + right[name] for name in left}


def reduce_rows(
    source: RowSource,
    function: Callable[..., Parts],
    exchange: Exchange,
    *,
    combine: Callable[[Parts, Parts], Parts] = add_parts,
    partial_bytes: int = 0,
    first: bool = False,
    propagates: bool = False,
    label: str = "",
    **fixed: Any,
) -> Parts:
    """Σ ``function(block, **fixed)`` over all canonical blocks: one pass.

    ``function`` and ``combine`` are module-level and pure; ``combine`` need not be a sum but must be
    associative up to rounding. ``partial_bytes``: size of one result, where it is large (d² sums): more
    rows are then added inside a task. ``first``: this pass reads the rows first, so it checks that they
    (and their weights) are finite; every offender is counted, the first are named. ``propagates``: NaN or
    infinity anywhere in the rows makes a result that is not finite, so that only then the rows are looked at. Groups
    that a killed run left in the exchange are not computed again.

    Raises InputError for rows or weights that cannot be used.
    """
    name = label or function.__name__.strip("_")
    groups = row_groups(source, partial_bytes)
    runs = task_runs(source, groups)
    tasks = [(part_of(source, groups[low:high]), low, groups[low:high]) for low, high in runs]
    found = map_blocks(
        sum_groups,
        tasks,
        label=name,
        compute=function,
        combine=combine,
        exchange=exchange,
        name=name,
        first=first,
        propagates=propagates,
        fixed=fixed,
    )
    refuse([part for parts in found for part in parts], source)
    total: Parts = tree_fold((exchange.get_all(name, group) for group in range(len(groups))), combine)
    exchange.drop(name)
    return total


def write_mapped(
    source: RowSource,
    function: Callable[..., Array],
    out: str,
    width: int,
    dtype: Any,
    *,
    first: bool = False,
    label: str = "",
    **fixed: Any,
) -> None:
    """Write ``function(block, **fixed)``, (m, width), for all rows into a new Zarr array (n, width): one pass."""
    create_rows(out, (source.shape[0], width), dtype, source.block, overwrite=True)
    groups = row_groups(source, 0)
    tasks = [(part_of(source, groups[low:high]), groups[low:high]) for low, high in task_runs(source, groups)]
    fixed_parts = {"compute": function, "out": out, "first": first, "fixed": fixed}
    found = map_blocks(write_groups, tasks, label=label or function.__name__.strip("_"), **fixed_parts)
    refuse([part for parts in found for part in parts], source)


def map_row_blocks(
    source: RowSource,
    function: Callable[..., Any],
    *,
    given: Mapping[int, Any] | None = None,
    label: str = "",
    **fixed: Any,
) -> list[Any]:
    """``function(block, **fixed)`` of all canonical blocks: one pass.

    ``given``: only blocks of these ascending numbers, each with what belongs to it, ``function(block, what, **fixed)``.
    """
    blocks = range(-(-source.shape[0] // source.block)) if given is None else given
    groups = [(number, number + 1) for number in blocks]
    runs = task_runs(source, groups) if groups else []
    extra = [() if given is None else (given[number],) for number in blocks]
    tasks = [(part_of(source, groups[low:high]), groups[low:high], extra[low:high]) for low, high in runs]
    name = label or function.__name__.strip("_")
    return [one for part in map_blocks(work_blocks, tasks, label=name, compute=function, fixed=fixed) for one in part]


def work_blocks(
    source: RowSource,
    groups: Sequence[tuple[int, int]],
    extra: Sequence[tuple[Any, ...]],
    *,
    compute: Callable[..., Any],
    fixed: Mapping[str, Any],
) -> list[Any]:
    """What a function makes of each of some canonical blocks."""
    blocks = row_blocks(source, [number for number, _ in groups])
    return [compute(block, *more, **fixed) for block, more in zip(blocks, extra, strict=True)]


def part_of(source: RowSource, groups: Sequence[tuple[int, int]]) -> RowSource:
    """The source, for a task that takes these groups of canonical blocks."""
    return source.part(groups[0][0] * source.block, min(source.shape[0], groups[-1][1] * source.block))


def row_groups(source: RowSource, partial_bytes: int) -> list[tuple[int, int]]:
    """First and one past the last canonical block of each group that is summed inside a task."""
    blocks = -(-source.shape[0] // source.block)
    size = max(-(-blocks // MAX_GROUPS), -(-DATA_PER_SUM * partial_bytes // (source.block * source.row_bytes)), 1)
    return bounds(blocks, size)


def task_runs(source: RowSource, groups: Sequence[tuple[int, int]]) -> list[tuple[int, int]]:
    """Which groups one task takes: several where chunks straddle blocks, so that few are read by two tasks."""
    rows = (groups[0][1] - groups[0][0]) * source.block
    grain = source.grain
    if rows % grain == 0 and source.offset % grain == 0:
        return bounds(len(groups), 1)
    enough = -(-CHUNKS_A_TASK * grain // rows)
    parallel = max(-(-grain // rows), -(-len(groups) // TASKS))
    return bounds(len(groups), min(enough, parallel))


def sum_groups(
    source: RowSource,
    first_group: int,
    groups: Sequence[tuple[int, int]],
    *,
    compute: Callable[..., Parts],
    combine: Callable[[Parts, Parts], Parts],
    exchange: Exchange,
    name: str,
    first: bool,
    propagates: bool,
    fixed: Mapping[str, Any],
) -> list[dict[str, Any]]:
    """Leave the sum of each group in the exchange; return what is wrong with the rows."""
    todo = [group for group in range(len(groups)) if not exchange.has(name, first_group + group)]
    blocks = row_blocks(source, [number for group in todo for number in range(*groups[group])])
    bad: list[dict[str, Any]] = []
    sizes = [] if len(todo) == len(groups) else [1.0]  # (of groups that are there nothing is known)
    for group in todo:
        total: Parts | None = None
        for _ in range(*groups[group]):
            block = next(blocks)
            wrong = offenders(block, rows=not propagates) if first else {}
            sizes.append(wrong.get("size", 0.0))
            part = None if bad or not usable(wrong) else compute(block, **fixed)
            if first and propagates and part is not None and not _finite(part):
                wrong = offenders(block)
            if not usable(wrong):
                bad.append(wrong)
            elif part is not None:
                total = part if total is None else combine(total, part)
        if not bad and total is not None:
            exchange.put(name, first_group + group, {key: np.asarray(value) for key, value in total.items()})
    return [*bad, {"size": max(sizes)}]


def write_groups(
    source: RowSource,
    groups: Sequence[tuple[int, int]],
    *,
    compute: Callable[..., Array],
    out: str,
    first: bool,
    fixed: Mapping[str, Any],
) -> list[dict[str, Any]]:
    """Write the blocks of the groups, each a whole shard; return what is wrong with the rows."""
    bad: list[dict[str, Any]] = []
    for block in row_blocks(source, range(groups[0][0], groups[-1][1])):
        wrong = offenders(block) if first else {}
        if not usable(wrong):
            bad.append(wrong)
        else:
            write_rows(out, block.start, compute(block, **fixed))
    return bad


def _finite(parts: Parts) -> bool:
    return all(bool(np.isfinite(value).all()) for value in parts.values())
