"""A map drawn from sorted rows: the buckets, each by a task, the tiles above them, and the files that find a row."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from bigembed.runtime.blocks import Array, bounds, map_blocks
from bigembed.viewer.cells import Cell
from bigembed.viewer.scene import KEPT, NOWHERE, Column, Survey
from bigembed.viewer.sorting import DRAWN, Layout, neighbors_of, once, put_at, sized
from bigembed.viewer.tiles import DEPTH, Pixels, Pyramid, Rows, Summary, added, call, write_script

INDEXED = 1 << 13
"""Rows of a file that says where they lie."""
HASHED = 1 << 12
"""Ids of a file that finds them, about."""
TOGETHER = 1 << 24
"""Ids that are sorted at a time."""


@dataclass(frozen=True)
class Drawing:
    """Where a map is drawn, and what of its rows."""

    folder: str
    layout: Layout
    columns: tuple[Column, ...]
    ids: Column | None
    unlisted: int | None
    """Rows without a list of nearest rows; None where there are no lists."""

    @property
    def shown(self) -> tuple[Column, ...]:
        """The columns, and the share of neighbors kept where there are lists."""
        return self.columns if self.unlisted is None else (*self.columns, replace(KEPT, missing=self.unlisted))

    def pyramid(self) -> Pyramid:
        """What writes its nodes."""
        return Pyramid(Path(self.folder), self.shown)


# ---------------------------------------------------------------------------------------------------------- buckets


def draw_map(
    survey: Survey, layout: Layout, starts: Array, folder: Path, rows: int, listed: int | None
) -> dict[str, Any]:
    """Draw all nodes and the files that find rows; what the page is told of them. ``listed``: rows with a list of
    nearest rows, None where there are no lists."""
    unlisted = None if listed is None else int(starts[-1]) - listed
    drawing = Drawing(str(folder), layout, survey.columns, survey.ids, unlisted)
    if survey.ids is not None:
        sized(layout.path("hash.bin"), 4 * int(starts[-1]))
    tasks = [(b, int(starts[b])) for b in range(layout.buckets)]
    drawn = map_blocks(draw_bucket, tasks, "draw", drawing=drawing)
    cells = {
        cell: Summary(*summary)
        for b, found in enumerate(drawn)
        for cell, summary in zip(layout.of_bucket(b), found["cells"], strict=True)
    }
    above = drawing.pyramid()
    root = summary_above(Cell(0, 0), drawing, cells, above)[0]
    written = above.bytes + sum(found["bytes"] for found in drawn)
    written += sum(map_blocks(index_rows, bounds(rows, INDEXED << 5), "index", drawing=drawing))
    files = max(1, -(-int(starts[-1]) // HASHED))
    if survey.ids is not None:
        written += index_ids(drawing, int(starts[-1]), files)
    strengths = added_strengths([above.strengths, *(found["strengths"] for found in drawn)])
    return {
        "root": root.as_list(),
        "columns": [column.as_dict() for column in drawing.shown],
        "strong": {level: brightest(counts) for level, counts in strengths.items()},
        "ids": survey.ids is not None,
        "hashed": files,
        "indexed": INDEXED,
        "near": 0 if listed is None else DRAWN,
        "rows": rows,
        "shown": int(starts[-1]),
        "bytes": written,
    }


def draw_bucket(b: int, start: int, *, drawing: Drawing) -> dict[str, Any]:
    """Draw the cells of a bucket, and leave their pixels to what is above."""
    return dict(once(drawing.layout.path(f"drawn-{b}.json"), lambda: _draw(b, start, drawing)))


def _draw(b: int, start: int, drawing: Drawing) -> dict[str, Any]:
    layout, pyramid = drawing.layout, drawing.pyramid()
    sorted_rows = layout.sorted_rows(b)
    rows = rows_of(sorted_rows, start, drawing)
    if rows.ids is not None:
        put_at(layout.path("hash.bin"), 4 * start, hashes(rows.ids))
    cells = layout.of_bucket(b)
    cuts = np.searchsorted(rows.keys, np.array([cell.start for cell in cells], np.uint64))
    found = []
    for cell, first, last in zip(cells, cuts.tolist(), [*cuts[1:].tolist(), len(rows.keys)], strict=True):
        found.append(pyramid.write_rows(rows, cell, first, last))
        if cell.level and last > first:
            layers = rows.layers()
            stored = [values[first:last] for _, values in layers]
            level = cell.level - 1 + DEPTH
            pixels = Pixels.of(rows.keys[first:last], level, [column for column, _ in layers], stored)
            pixels.save(pixels_path(layout, cell))
    summaries = [[one.kind, one.count, one.bars] for one in found]
    return {"cells": summaries, "bytes": pyramid.bytes, "strengths": pyramid.strengths}


def pixels_path(layout: Layout, cell: Cell) -> Path:
    """Where the pixels of a coarse cell are left."""
    return layout.path(f"cell-{cell.level}-{cell.number}.npz")


def rows_of(found: Array, start: int, drawing: Drawing) -> Rows:
    """The rows of a bucket whose first place is ``start``."""
    stored = [np.ascontiguousarray(found[f"c{i}"]) for i in range(len(drawing.columns))]
    near = None
    if drawing.unlisted is not None:
        stored.append(np.fromfile(drawing.layout.path("kept.bin"), "<f4", len(found), offset=4 * start))
        near = neighbors_of(drawing.layout, start, len(found))
        own = np.arange(start, start + len(found))[:, None]
        near = np.where(near == NOWHERE, 0, near.astype(np.int64) - own)
    ids = None if drawing.ids is None else np.ascontiguousarray(found["id"])
    keys = np.ascontiguousarray(found["key"])
    return Rows(keys, np.ascontiguousarray(found["row"]), drawing.shown, tuple(stored), ids, near)


# ------------------------------------------------------------------------------------------------------------ above


def summary_above(
    cell: Cell, drawing: Drawing, cells: dict[Cell, Summary], pyramid: Pyramid
) -> tuple[Summary, Pixels | None]:
    """The summary of a cell, and its pixels as the cell above needs them; the tiles above the buckets are written."""
    if cell in cells:
        there = cells[cell].count and cell.level
        return cells[cell], Pixels.load(pixels_path(drawing.layout, cell)) if there else None
    quarters = [summary_above(quarter, drawing, cells, pyramid) for quarter in cell.quarters()]
    pixels = Pixels.join([part for _, part in quarters if part is not None])
    summaries = [summary for summary, _ in quarters]
    pyramid.write_tile(cell, pixels, summaries)
    bars = added([one.bars for one in summaries if one.count])
    return Summary(1, sum(one.count for one in summaries), bars), pixels.coarser()


def added_strengths(several: Sequence[dict[Any, list[int]]]) -> dict[int, Array]:
    """Pixels of each strength by level, of all that were written."""
    out: dict[int, Array] = {}
    for one in several:
        for level, counts in one.items():
            out[int(level)] = out.get(int(level), np.zeros(256, np.int64)) + np.array(counts)
    return out


def brightest(counts: Array) -> int:
    """The strength up to which pixels get stronger: that of all but the densest half percent."""
    return int(np.searchsorted(np.cumsum(counts), 0.995 * counts.sum()))


# ------------------------------------------------------------------------------------------------------------ index


def index_rows(start: int, stop: int, *, drawing: Drawing) -> int:
    """Write where consecutive rows lie, :data:`INDEXED` in a script; bytes."""
    place = np.fromfile(drawing.layout.path("place.bin"), "<u4", stop - start, offset=4 * start)
    written = 0
    for first, last in bounds(len(place), INDEXED):
        name = f"r/{(start + first) // INDEXED // 1000}/{(start + first) // INDEXED}"
        written += write_script(Path(drawing.folder), name, call(place[first:last].tobytes()))
    return written


def hashes(ids: Array) -> Array:
    """The hash of each id (FNV-1a, 32 bits), as the page computes it.

    >>> hashes(np.array([b"a", b"foobar"])).tolist() == [0xE40C292C, 0xBF9CF968]
    True
    """
    letters = ids.view(np.uint8).reshape(len(ids), -1)
    found = np.full(len(ids), 0x811C9DC5, np.uint32)
    for letter in letters.T:
        mixed = (found ^ letter) * np.uint32(0x01000193)
        found = np.where(letter > 0, mixed, found)
    return found


def index_ids(drawing: Drawing, rows: int, files: int) -> int:
    """Write which places the ids of each hash have; bytes."""
    path = drawing.layout.path("hash.bin")
    step = max(1, TOGETHER * files // max(rows, 1))
    return sum(_index_some(path, low, min(low + step, files), files, drawing) for low in range(0, files, step))


def _index_some(path: Path, low: int, high: int, files: int, drawing: Drawing) -> int:
    found, there = [], []
    size = path.stat().st_size // 4
    for start, stop in bounds(size, TOGETHER):
        part = np.fromfile(path, "<u4", stop - start, offset=4 * start)
        file = part % np.uint32(files)
        mine = np.flatnonzero((file >= low) & (file < high))
        found.append(part[mine].astype(np.uint64))
        there.append((mine + start).astype("<u4"))
    values, where = np.concatenate(found), np.concatenate(there)
    file = values % np.uint64(files)
    order = np.argsort(file << np.uint64(32) | values, kind="stable")
    cuts = np.searchsorted(file[order], np.arange(low, high + 1))
    written = 0
    for number in range(low, high):
        some = order[cuts[number - low] : cuts[number - low + 1]]
        pairs = np.stack([values[some].astype("<u4"), where[some]])
        written += write_script(Path(drawing.folder), f"i/{number // 1000}/{number}", call(pairs.tobytes()))
    return written
