"""Many rows condensed to cells of near rows, with counts and means: the stages.

Rows are brought to partitions (k-means on a sample), a wave of blocks at a time, so that what is on its way never takes
more than a wave does. A task takes some partitions that lie side by side, adds the rows of the wave to their cells, and
leaves the cells for the next wave. The cells that a partition begins with are chosen from sampled rows, which were
brought to it in the same way before. Its result depends on nothing but its rows in their order, which the waves fix.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, fields
from functools import partial
from typing import Any

import numpy as np

from bigembed.errors import InputError, InputTypeError
from bigembed.neighbors.order import FILL
from bigembed.neighbors.partition import FEW_ROWS, MORE, Cells, add_rows, assign_block, balanced_centers, begin_cells
from bigembed.neighbors.survey import Shape, ordered_of, prepare, shape_of, survey_stage
from bigembed.rows import RowBlock, RowSource
from bigembed.rows.passes import map_row_blocks, offenders, refuse
from bigembed.runtime.blocks import Array, block_rows, bounds, map_blocks, offsets, owner_of
from bigembed.stages.cost import ArraySpec, Cost, largest
from bigembed.stages.stage import Context, Stage
from bigembed.store.arrays import create_rows, read_array, write_array, write_rows
from bigembed.store.exchange import Exchange
from bigembed.store.parcels import SENDERS, Delivery, by_receiver, merge_parcels, send

METRICS = ("euclidean", "cosine")
"""Distances whose cells have means: between rows, and between rows scaled to length one."""
WAVE = SENDERS
"""Blocks of a wave: as many as a receiver reads without a merge."""
CELLS = 1_024
"""Cells that a partition is given, at the most."""
LEAST_SAMPLE = 16
"""Sampled rows behind a center of a partition, at the least."""
FIRST_ROWS = 16
"""Sampled rows behind a cell, where there are so many."""
HELD_ROWS = 4
"""How many times as many of them a partition looks at as its share of the cells needs, at the most."""
STAGE = "cells"
ARRAYS = ("rows", "counts", "radius", "reach")
"""What is published of each cell; on request also ``cell``, which one each row is in."""


@dataclass(frozen=True)
class Condensing:
    """What is asked for: about so many cells, or cells as wide as a radius."""

    rows: int | None
    radius: float | None
    cell: bool
    seed: int

    def key(self) -> dict[str, Any]:
        """What a stage depends on."""
        return {one.name: getattr(self, one.name) for one in fields(self)}


@dataclass(frozen=True)
class Plan:
    """How the rows go through: blocks in waves, partitions in groups."""

    blocks: int
    waves: int
    partitions: int
    """Wanted; a k-means gives about as many."""

    @classmethod
    def of(cls, shape: Shape, asked: Condensing) -> Plan:
        """That of rows of this shape."""
        blocks = -(-shape.n // shape.block)
        waves = -(-blocks // WAVE)
        rows = min(shape.n, WAVE * shape.block)
        wanted = max(-(-rows // int(FILL * shape.block)), -(-min(asked.rows or 0, shape.n) // CELLS))
        return cls(blocks, waves, max(1, min(wanted, shape.sample // LEAST_SAMPLE)))

    def of_wave(self, wave: int) -> range:
        """Numbers of the blocks of a wave."""
        return range(wave * WAVE, min((wave + 1) * WAVE, self.blocks))


def condense_stages(source: RowSource, metric: Any, asked: Condensing) -> list[Stage]:
    """The stages from rows to cells: ``survey``, ``partition`` and ``cells``."""
    shape = condensed_shape(source, metric)
    return [survey_stage(source, shape, asked.seed), areas_stage(shape, asked), cells_stage(source, shape, asked)]


def condensed_shape(source: RowSource, metric: Any) -> Shape:
    """Shape of a source; InputError for rows that cannot be condensed."""
    shape = shape_of(source, metric)
    if shape.sparse:
        raise InputTypeError(
            "condense takes dense rows, and these are sparse: the mean of sparse rows is not. Reduce them first "
            "(PCA takes them), and condense what comes out"
        )
    if shape.metric not in METRICS:
        raise InputError(
            f"metric={shape.compare.text!r}: condense takes {' and '.join(map(repr, METRICS))}: the mean of rows "
            "stands for them in Euclidean distances. Use one of these, or map the rows first"
        )
    return shape


def areas_stage(shape: Shape, asked: Condensing) -> Stage:
    """Centers of the partitions: k-means on the sample, split until the largest estimated share fits."""
    plan = Plan.of(shape, asked)
    return Stage(
        "partition",
        ("survey",),
        {"seed": asked.seed, "partitions": plan.partitions},
        partial(run_areas, partitions=plan.partitions, seed=asked.seed),
        Cost.of(
            writes=[ArraySpec("centers", 2 * plan.partitions, shape.width, shape.dtype)],
            coordinator=[ArraySpec("sample", shape.sample, shape.row_bytes, "u1", 4)],
            serial_flops=20.0 * shape.sample * plan.partitions * shape.width,
        ),
    )


def run_areas(context: Context, partitions: int, seed: int) -> dict[str, Any]:
    sample = read_array(context.of("survey", "sample"))
    if partitions == 1:
        centers = sample.mean(axis=0, keepdims=True, dtype=np.float64).astype(sample.dtype)
    else:
        centers = balanced_centers(sample, partitions, min(1.0, 2 / partitions), seed)
        _, first = np.unique(centers, axis=0, return_index=True)  # (equal rows stay together)
        centers = centers[np.sort(first)]
    write_array(context.path("centers"), centers)
    return {"partitions": len(centers)}


def cells_stage(source: RowSource, shape: Shape, asked: Condensing) -> Stage:
    """Means, counts and radii of the cells. One pass over the rows, and where a number of cells is asked for one before
    it that takes a sample."""
    plan, weighted = Plan.of(shape, asked), "weights" in source.aligned
    n, d, most = shape.n, shape.width, min(shape.n, MORE * (asked.rows or shape.n))
    wave = min(n, WAVE * shape.block)
    rows = [ArraySpec("rows", n, shape.row_bytes, "u1")]
    numbers = [ArraySpec("weights", n)] if weighted else []
    cells = [ArraySpec("rows", most, d, shape.dtype), *(ArraySpec(name, most) for name in ARRAYS[1:])]
    sums = ArraySpec("sums of cells", most, (8 * (d + 3) + d * np.dtype(shape.dtype).itemsize), "u1")
    own = -(-most // plan.partitions) * 4
    cost = Cost.of(
        reads=[*rows, *numbers],
        writes=[*cells, *([ArraySpec("cell", n, dtype="i8")] if asked.cell else [])],
        leaves=[
            ArraySpec("rows of a wave", max(wave, sample_size(shape, asked)), shape.row_bytes + 8 * weighted, "u1"),
            ArraySpec(sums.name, sums.rows, sums.width, sums.dtype, 2),
            *([ArraySpec("cells of rows", n, 3, "i8")] if asked.cell else []),
        ],
        task=largest(
            [ArraySpec("rows", shape.largest_block, shape.row_bytes, "u1", 4)],
            [
                ArraySpec("rows", 2 * shape.largest_block, shape.row_bytes, "u1", 6),
                ArraySpec("cells", own, 10 * (d + 4)),
            ],
        ),
        coordinator=[ArraySpec("centers of partitions", plan.partitions, shape.row_bytes, "u1", 4)],
        passes=1 + bool(asked.rows),
        flops=2.0 * n * (plan.partitions + min(most, CELLS)) * d,
        scalar_ops=3 * n * d,
        maps=2 * plan.waves + 3,
    )
    return Stage(
        STAGE,
        ("survey", "partition"),
        {"source": source.fingerprint(), **asked.key()},
        partial(run_cells, source=source, shape=shape, asked=asked),
        cost,
    )


# ----------------------------------------------------------------------------------------------------------- waves


def run_cells(context: Context, source: RowSource, shape: Shape, asked: Condensing) -> dict[str, Any]:
    exchange, plan = context.exchange, Plan.of(shape, asked)
    count = context.results("partition")["partitions"]
    groups = list(bounds(count, max(1, count * shape.block // min(shape.n, WAVE * shape.block))))
    tasks = [(number, *group) for number, group in enumerate(groups)]
    fixed: dict[str, Any] = {"shape": shape, "asked": asked, "exchange": exchange}
    areas = {**fixed, "centers": context.of("partition", "centers")}
    sampled = sample_size(shape, asked)
    if sampled:
        map_row_blocks(source, scatter_sample, sampled=sampled, **areas)
    sent = merge_parcels(exchange, "sample", plan.blocks) if sampled else None
    map_blocks(begin_group, tasks, sent=sent, sampled=sampled, weighted="weights" in source.aligned, **fixed)
    exchange.drop("sample", "sample-merged")
    found: list[dict[str, Any]] = []
    for wave in range(plan.waves):
        given = {number: sender for sender, number in enumerate(plan.of_wave(wave))}
        refuse(map_row_blocks(source, scatter_rows, given=given, wave=wave, **areas), source)
        sent = merge_parcels(exchange, f"wave{wave}", len(given))
        found = map_blocks(condense_group, tasks, sent=sent, wave=wave, label="condense", **fixed)
        sent.drop()
        exchange.drop(f"cells{wave}")
    return written_cells(context, source, shape, asked, groups, found, f"cells{plan.waves}")


def sample_size(shape: Shape, asked: Condensing) -> int:
    """How many rows say what cells there are to begin with; none where a radius says it."""
    return min(shape.n, FIRST_ROWS * asked.rows) if asked.rows is not None else 0


def scatter_sample(
    block: RowBlock, *, shape: Shape, asked: Condensing, sampled: int, centers: str, exchange: Exchange
) -> None:
    """Leave each partition some rows of one block: a share of all that are ``sampled``, those of weight 0 left out."""
    share = round(block.stop * sampled / shape.n) - round(block.start * sampled / shape.n)
    chosen = np.arange(block.stop - block.start)
    if share < len(chosen):
        chosen = np.sort(np.random.default_rng([asked.seed, 7, block.number]).choice(len(chosen), share, replace=False))
    if block.weights is not None:
        chosen = chosen[block.weights[chosen] > 0]
    areas = read_array(centers)
    rows, _, starts = _sorted(block.rows[chosen], areas, shape)
    send(exchange, "sample", block.number, {"rows": (rows, starts)})


def _sorted(given: Array, areas: Array, shape: Shape) -> tuple[Array, Array, Array]:
    """Rows as they are compared, in the order of their partitions; that order; where each partition begins."""
    rows = ordered_of(prepare(given, shape))
    label = assign_block(rows, np.zeros(len(rows), np.int64), areas, compiled=len(rows) > FEW_ROWS)
    order, starts = by_receiver(label, len(areas))
    return rows[order], order, starts


def begin_group(
    number: int, first: int, stop: int, *, sent: Delivery | None, sampled: int, weighted: bool, shape: Shape,
    asked: Condensing, exchange: Exchange,
) -> None:  # fmt: skip
    """Choose the cells that the partitions ``first:stop`` begin with, as many as their share of the sampled rows."""
    cells = [Cells.empty(shape.width, shape.dtype, weighted) for _ in range(first, stop)]
    some: list[list[Array]] = [[np.zeros((0, shape.width), shape.dtype)] for _ in cells]
    there, held = [0] * len(cells), HELD_ROWS * FIRST_ROWS * CELLS // (sent.files if sent else 1) + 1
    for parts in sent.parts(first, stop) if sent else ():
        for p, part in enumerate(parts):
            there[p] += len(part["rows"])
            some[p].append(part["rows"][:: -(-len(part["rows"]) // held) or 1])
    for p, rows in enumerate(map(np.concatenate, some)):
        wanted = max(1, round((asked.rows or 0) * there[p] / max(1, sampled)))
        cells[p] = begin_cells(cells[p], rows, wanted, asked.radius, [asked.seed, 6, first + p])
    leave_cells(exchange, "cells0", number, cells)


def scatter_rows(
    block: RowBlock, sender: int, *, shape: Shape, asked: Condensing, centers: str, wave: int, exchange: Exchange
) -> dict[str, Any]:
    """Leave each partition its rows of one block, with their weights; what is wrong with these."""
    wrong = offenders(block, rows=False)
    rows, order, starts = _sorted(block.rows, read_array(centers), shape)
    columns = {"rows": (rows, starts)}
    if block.weights is not None:
        columns["weights"] = block.weights[order], starts
    send(exchange, f"wave{wave}", sender, columns)
    if asked.cell:
        exchange.put(f"order{wave}", sender, {"order": order.astype(np.int32)})
    return wrong


def condense_group(
    number: int, first: int, stop: int, *, sent: Delivery, wave: int, shape: Shape, asked: Condensing,
    exchange: Exchange,
) -> dict[str, Any]:  # fmt: skip
    """Add the rows of a wave to the cells of the partitions ``first:stop``; what the cells then are."""
    cells = left_cells(exchange, f"cells{wave}", number, stop - first)
    labels: list[list[Array]] = [[] for _ in cells]
    sizes: list[list[int]] = []
    for parts, counts in batches(sent, first, stop, shape.block):
        sizes += counts
        for p, part in enumerate(parts):
            if len(part["rows"]):
                cells[p], label = add_rows(cells[p], part["rows"], part.get("weights"))
                labels[p].append(label)
    if asked.cell:
        _send_labels(exchange, f"labels{wave}", number, first, np.array(sizes), labels)
    leave_cells(exchange, f"cells{wave + 1}", number, cells)
    return totals_of(cells, shape.width)


def leave_cells(exchange: Exchange, name: str, number: int, cells: list[Cells]) -> None:
    """Leave the cells of the partitions of a group for the next wave."""
    each = enumerate(cells)
    pieces = {f"{one.name}-{p}": np.asarray(getattr(found, one.name)) for p, found in each for one in fields(Cells)}
    exchange.put(name, number, pieces)


def totals_of(cells: list[Cells], d: int) -> dict[str, Any]:
    """What the cells of some partitions are together, those without rows left out; how many each has, and which of its
    cells have no rows."""
    filled = [found.filled() for found in cells]
    some = [found for found in filled if len(found)]
    means, weights = [found.means() for found in some], [found.counts.astype(np.float64) for found in some]
    return {
        "cells": [len(found) for found in filled],
        "empty": [np.flatnonzero(found.counts == 0) for found in cells],
        "beyond": sum(found.beyond for found in some),
        "within": sum(found.within() for found in some),
        "weight": sum(float(one.sum()) for one in weights),
        "single": sum(int((found.counts <= 1).sum()) for found in some),
        "widest": max((float(found.reach().max()) for found in some), default=0.0),
        "sums": sum((w @ m for w, m in zip(weights, means, strict=True)), np.zeros(d)),
        "squares": sum((w @ (m * m) for w, m in zip(weights, means, strict=True)), np.zeros(d)),
    }


def batches(
    sent: Delivery, first: int, stop: int, rows: int
) -> Iterator[tuple[list[dict[str, Array]], list[list[int]]]]:
    """What the senders have for some receivers, several senders together until there are so many ``rows``; and how
    many rows each sender has for each."""
    held: list[list[dict[str, Array]]] = []
    for parts in sent.parts(first, stop):
        held.append(parts)
        if sum(len(part["rows"]) for one in held for part in one) >= rows:
            yield _joined(held)
            held = []
    if held:
        yield _joined(held)


def _joined(held: list[list[dict[str, Array]]]) -> tuple[list[dict[str, Array]], list[list[int]]]:
    sizes = [[len(part["rows"]) for part in parts] for parts in held]
    each = zip(*held, strict=True)
    return [{name: np.concatenate([part[name] for part in parts]) for name in parts[0]} for parts in each], sizes


def _send_labels(
    exchange: Exchange, name: str, number: int, first: int, sizes: Array, labels: list[list[Array]]
) -> None:
    """Leave every block the cells of its rows in some partitions: rows as :func:`scatter_rows` has sorted them."""
    cell = np.concatenate([np.zeros(0, np.int64), *(one for part in labels for one in part)])
    area = np.repeat(np.arange(first, first + len(labels), dtype=np.int32), sizes.sum(axis=0))
    sender = np.concatenate([np.repeat(np.arange(len(sizes)), counts) for counts in sizes.T])
    order, starts = by_receiver(sender, len(sizes))
    send(exchange, name, number, {"area": (area[order], starts), "cell": (cell[order].astype(np.int32), starts)})


def left_cells(exchange: Exchange, name: str, number: int, count: int) -> list[Cells]:
    """The cells of the partitions of a group as a wave has left them."""
    found = exchange.get_all(name, number)
    kinds: dict[str, Any] = {"wide": float, "most": int, "beyond": int}
    return [
        Cells(**{one.name: kinds.get(one.name, np.asarray)(found[f"{one.name}-{p}"]) for one in fields(Cells)})
        for p in range(count)
    ]


# --------------------------------------------------------------------------------------------------------- written


def written_cells(
    context: Context, source: RowSource, shape: Shape, asked: Condensing, groups: list[tuple[int, int]],
    found: list[dict[str, Any]], last: str,
) -> dict[str, Any]:  # fmt: skip
    """Write the cells of all partitions, one after another, and what they are together."""
    exchange, d = context.exchange, shape.width
    starts = offsets(sum(part["cells"]) for part in found)
    total, weighted = int(starts[-1]), "weights" in source.aligned
    if not total:
        raise InputError("weights are 0 for all rows: there is nothing to condense. Give some rows a weight > 0")
    height = block_rows(d, 8)
    for name in ARRAYS:
        form = (total, d) if name == "rows" else (total,)
        kind = {"rows": shape.dtype, "counts": "float64" if weighted else "int64"}.get(name, "float64")
        create_rows(context.path(name), form, kind, height, overwrite=True)
    fixed: dict[str, Any] = {"exchange": exchange, "out": context.path("")}
    counts = [len(part["cells"]) for part in found]
    map_blocks(write_cells, bounds(total, height), starts=starts, counts=counts, last=last, **fixed)
    if asked.cell:
        write_labels(context, shape, asked, groups, found)
    weight, within = sum(part["weight"] for part in found), sum(part["within"] for part in found)
    mean = sum(part["sums"] for part in found) / weight
    between = float(np.maximum(sum(part["squares"] for part in found) - weight * mean * mean, 0.0).sum())
    return {
        "n": shape.n,
        "cells": total,
        "weight": weight,
        "rms_radius": float(np.sqrt(within / weight)),
        "widest": max(part["widest"] for part in found),
        "within_share": within / (within + between) if within + between > 0 else 0.0,
        "single": sum(part["single"] for part in found),
        "beyond": sum(part["beyond"] for part in found),
    }


def write_cells(
    start: int, stop: int, *, starts: Array, counts: list[int], last: str, exchange: Exchange, out: str
) -> None:
    """Write the cells ``start:stop`` of all, from the groups of partitions that have them."""
    parts: dict[str, list[Array]] = {name: [] for name in ARRAYS}
    for number in range(int(owner_of(starts, start)), len(counts)):
        if starts[number] >= stop:
            break
        low, high = max(start - starts[number], 0), min(stop - starts[number], starts[number + 1] - starts[number])
        whole = [one for one in map(Cells.filled, left_cells(exchange, last, number, counts[number])) if len(one)]
        for one in whole if high > low else ():
            made = {"rows": one.means(), "counts": one.counts, "radius": one.radius(), "reach": one.reach()}
            for name in ARRAYS:
                parts[name].append(made[name][max(low, 0) : max(high, 0)])
            low, high = low - len(one), high - len(one)
    for name, found in parts.items():
        write_rows(f"{out}{name}", start, np.concatenate(found))


def write_labels(
    context: Context, shape: Shape, asked: Condensing, groups: list[tuple[int, int]], found: list[dict[str, Any]]
) -> None:
    """Write the cell of each row, numbered as the cells are written."""
    exchange, plan = context.exchange, Plan.of(shape, asked)
    empty = [one for part in found for one in part["empty"]]
    first = offsets(
        filled + len(none) for filled, none in zip((one for part in found for one in part["cells"]), empty, strict=True)
    )
    skipped = np.concatenate([one + start for one, start in zip(empty, first[:-1], strict=True)])
    create_rows(context.path("cell"), (shape.n,), "int64", shape.block, overwrite=True)
    for wave in range(plan.waves):
        sent = merge_parcels(exchange, f"labels{wave}", len(groups))
        tasks = [(sender, number * shape.block) for sender, number in enumerate(plan.of_wave(wave))]
        fixed: dict[str, Any] = {"sent": sent, "wave": wave, "first": first, "skipped": skipped}
        map_blocks(label_rows, tasks, exchange=exchange, out=context.path("cell"), **fixed)
        sent.drop()


def label_rows(
    sender: int, start: int, *, sent: Delivery, wave: int, first: Array, skipped: Array, exchange: Exchange, out: str
) -> None:
    """Write the cells of the rows of one block, from ``start`` on.

    ``first`` is the number of the first cell of each partition, counted with those without rows, which are ``skipped``:
    rows of weight 0 alone are near those, and are in none.
    """
    found, order = sent.to(sender), exchange.piece(f"order{wave}", sender, "order")
    number = first[found["area"]] + found["cell"]
    none = (found["cell"] < 0) | np.isin(number, skipped)
    cell = np.empty(len(order), np.int64)
    cell[order] = np.where(none, -1, number - np.searchsorted(skipped, number))
    write_rows(out, start, cell)
