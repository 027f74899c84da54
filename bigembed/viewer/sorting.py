"""Rows brought to their place on the map, out of core: block by block into buckets of near rows, each then sorted.

A bucket is a run of whole cells. A block leaves one file, its rows by bucket; a bucket reads its part of every block,
sorts it by key, and so gets consecutive places. What a task has finished is a file that is whole, or none: a killed
run goes on from there.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from bigembed.runtime.blocks import Array, bounds, map_blocks, offsets
from bigembed.store.metadata import whole_file
from bigembed.viewer import BLOCK, NOWHERE, Graph, Scene, Survey
from bigembed.viewer.cells import BITS, Cell, coarse_cells, places

CELL_ROWS = 1 << 15
"""Rows of a coarse cell, about, at most."""
BUCKET_ROWS = 1 << 17
NEAREST = 15
"""Rows of which the share that stays near is measured."""
DRAWN = 10
"""Of these, how many the page knows."""


@dataclass(frozen=True)
class Layout:
    """Which cells there are, which bucket each is in, and where all that is in work lies."""

    work: str
    cells: tuple[Cell, ...]
    first: tuple[int, ...]
    """First cell of each bucket, and how many cells there are."""
    record: np.dtype[Any]

    @property
    def buckets(self) -> int:
        """How many there are."""
        return len(self.first) - 1

    def of_bucket(self, b: int) -> tuple[Cell, ...]:
        """The cells of a bucket."""
        return self.cells[self.first[b] : self.first[b + 1]]

    def path(self, name: str) -> Path:
        """A file of what is in work."""
        return Path(self.work) / name

    def sorted_rows(self, b: int) -> Array:
        """The rows of a bucket in the order of their places."""
        return np.fromfile(self.path(f"bucket-{b}.bin"), self.record)


def layout_of(survey: Survey, pair: int, work: Path) -> Layout:
    """Cells by the sample of a pair, and runs of them that make buckets."""
    sample, share = survey.samples[pair], survey.share
    cells = list(coarse_cells(sample, CELL_ROWS * share))
    if len(sample) <= BUCKET_ROWS * share:
        cells = [Cell(0, 0)]
    starts = np.array([cell.start for cell in cells], np.uint64)
    sizes = np.diff(np.append(np.searchsorted(sample, starts), len(sample))) / share
    first, filled = [0], 0.0
    for number, size in enumerate(sizes.tolist()):
        if filled and filled + size > BUCKET_ROWS:
            first.append(number)
            filled = 0.0
        filled += size
    return Layout(str(work), tuple(cells), (*first, len(cells)), survey.record)


def once(path: Path, compute: Callable[[], Any]) -> Any:
    """What a file of JSON says, or else what is computed, which it says from then on."""
    if path.exists():
        return json.loads(path.read_bytes())
    found = compute()
    with whole_file(str(path)) as content:
        content.write(json.dumps(found).encode())
    return found


# --------------------------------------------------------------------------------------------------------- scatter


def scatter_rows(scene: Scene, survey: Survey, pair: int, layout: Layout) -> list[list[int]]:
    """Leave the rows of each block by bucket; how many each block has of each bucket."""
    layout.path("blocks").mkdir(parents=True, exist_ok=True)
    tasks = [(b, *span) for b, span in enumerate(bounds(scene.rows, BLOCK))]
    small = replace(survey, samples=())
    return map_blocks(
        scatter_block, tasks, "distribute", scene=replace(scene, graph=None), survey=small, pair=pair, layout=layout
    )


def scatter_block(
    b: int, start: int, stop: int, *, scene: Scene, survey: Survey, pair: int, layout: Layout
) -> list[int]:
    """Write the rows of one block, bucket after bucket."""

    def write() -> list[int]:
        points = scene.points(start, stop, scene.pairs[pair])
        finite = np.flatnonzero(np.isfinite(points).all(axis=1))
        keys = survey.frames[pair].keys(points[finite])
        starts = np.array([layout.cells[number].start for number in layout.first[:-1]], np.uint64)
        bucket = np.searchsorted(starts, keys, side="right") - 1
        order = np.argsort(bucket.astype(np.uint16 if layout.buckets < 65536 else np.int64), kind="stable")
        there = finite[order]
        out = np.empty(len(there), layout.record)
        out["key"], out["row"] = keys[order], there + start
        columns = (*((survey.ids,) if survey.ids is not None else ()), *survey.columns)
        names = (*(("id",) if survey.ids is not None else ()), *(f"c{i}" for i in range(len(survey.columns))))
        for name, column, (_, vector) in zip(names, columns, scene.vectors, strict=True):
            out[name] = column.stored(vector.read(start, stop))[there]
        with whole_file(str(layout.path(f"blocks/{b}.bin"))) as content:
            out.tofile(content)
        return [int(count) for count in np.bincount(bucket, minlength=layout.buckets)]

    return list(once(layout.path(f"blocks/{b}.json"), write))


# ---------------------------------------------------------------------------------------------------------- gather


def gather_rows(
    layout: Layout, counts: Sequence[Sequence[int]], rows: int, graph: bool, listed: Array | None = None
) -> Array:
    """Sort every bucket, and write the place of every row; the first place of each bucket, and how many there are.

    ``listed``: the rows whose nearest ones in the data a ``graph`` knows, where it does not know those of all.
    """
    starts = offsets(np.array(counts).reshape(-1, layout.buckets).sum(axis=0))
    if not layout.path("gathered.json").exists():
        sized(layout.path("place.bin"), 4 * rows, b"\xff")
        if graph:
            sized(layout.path("keys.bin"), 8 * int(starts[-1]))
            sized(layout.path("reach.bin"), 4 * int(starts[-1]))
        before = np.cumsum([[0] * len(counts), *np.transpose(counts).tolist()], axis=0)
        tasks = [(b, int(starts[b]), before[b].tolist(), before[b + 1].tolist()) for b in range(layout.buckets)]
        map_blocks(gather_bucket, tasks, "sort", layout=layout, graph=graph, listed=listed)
        once(layout.path("gathered.json"), lambda: True)
        for number in range(len(counts)):
            layout.path(f"blocks/{number}.bin").unlink(missing_ok=True)
    return starts


def sized(path: Path, size: int, fill: bytes = b"\0") -> None:
    """A file of a size, unless it is there."""
    if path.exists() and path.stat().st_size == size:
        return
    with whole_file(str(path)) as content:
        if fill == b"\0":
            content.truncate(size)
        for start in range(0, size if fill != b"\0" else 0, 1 << 24):
            content.write(fill * min(1 << 24, size - start))


def gather_bucket(
    b: int,
    start: int,
    low: Sequence[int],
    high: Sequence[int],
    *,
    layout: Layout,
    graph: bool,
    listed: Array | None = None,
) -> None:
    """Sort the rows of a bucket by key, and say where they lie."""

    def sort() -> int:
        parts = [
            np.fromfile(layout.path(f"blocks/{number}.bin"), layout.record, last - first,
                        offset=first * layout.record.itemsize)
            for number, (first, last) in enumerate(zip(low, high, strict=True)) if last > first
        ]  # fmt: skip
        rows = np.concatenate(parts) if parts else np.empty(0, layout.record)
        rows = rows[np.argsort(rows["key"], kind="stable")]
        with whole_file(str(layout.path(f"bucket-{b}.bin"))) as content:
            rows.tofile(content)
        place = np.memmap(layout.path("place.bin"), "<u4", "r+")
        place[rows["row"]] = np.arange(start, start + len(rows))
        if graph:
            put_at(layout.path("keys.bin"), 8 * start, rows["key"])
            put_at(
                layout.path("reach.bin"),
                4 * start,
                _reach(rows["key"], None if listed is None else np.isin(rows["row"], listed)),
            )
        return len(rows)

    once(layout.path(f"sorted-{b}.json"), sort)


def put_at(path: Path, offset: int, values: Array) -> None:
    """Write values into a file from some byte on."""
    with open(path, "r+b") as file:
        file.seek(offset)
        file.write(np.ascontiguousarray(values).tobytes())


def _reach(keys: Array, asked: Array | None) -> Array:
    """The distance on the map from each row to the :data:`NEAREST` th nearest other row of the bucket, in sides of the
    square; 0 for rows that were not ``asked`` for."""
    from scipy.spatial import cKDTree

    points = places(keys) / 2.0**BITS
    some = slice(None) if asked is None else np.flatnonzero(asked)
    k, out = min(NEAREST, len(points) - 1), np.zeros(len(points), "<f4")
    if k > 0 and len(points[some]):
        far, _ = cKDTree(points).query(points[some], [k + 1])
        out[some] = np.nextafter(np.asarray(far)[:, 0].astype("<f4"), np.float32(np.inf))
    return out


# ------------------------------------------------------------------------------------------------------- neighbors


def place_neighbors(graph: Graph, layout: Layout, total: int, distances: bool) -> int:
    """Bring the lists of a graph to the places of their rows, and measure the share that is near on the map; how many
    rows have one."""
    return int(once(layout.path("near.json"), lambda: _place_all(graph, layout, total, distances)))


def _place_all(graph: Graph, layout: Layout, total: int, distances: bool) -> int:
    graph.prepare()
    starts = list(graph.starts)
    sized(layout.path("inner.bin"), 4 * starts[-1])
    sized(layout.path("near.bin"), 4 * DRAWN * total, b"\xff")
    sized(layout.path("kept.bin"), 4 * total, b"\xff")  # (NaN)
    if distances:
        sized(layout.path("far.bin"), 4 * DRAWN * total)
    tasks = [(b, starts[b]) for b in range(len(starts) - 1)]
    map_blocks(_number_block, tasks, "number", graph=graph, layout=layout)
    map_blocks(_near_block, tasks, "neighbors", graph=graph, layout=layout, distances=distances)
    kept = np.memmap(layout.path("kept.bin"), "<f4", "r")
    return int(sum(np.isfinite(kept[start:stop]).sum() for start, stop in bounds(total, BLOCK)))


def _number_block(b: int, start: int, *, graph: Graph, layout: Layout) -> None:
    place = np.memmap(layout.path("place.bin"), "<u4", "r")
    put_at(layout.path("inner.bin"), 4 * start, place[graph.rows(b)])


def _near_block(b: int, start: int, *, graph: Graph, layout: Layout, distances: bool) -> None:
    once(layout.path(f"near-{b}.json"), lambda: _place_block(b, start, graph, layout, distances))


def _place_block(b: int, start: int, graph: Graph, layout: Layout, distances: bool) -> bool:
    ids, far = graph.lists(b, NEAREST)
    inner, keys, reach = (
        np.memmap(layout.path(f"{name}.bin"), dtype, "r")
        for name, dtype in (("inner", "<u4"), ("keys", "<u8"), ("reach", "<f4"))
    )
    mine = np.array(inner[start : start + len(ids)])
    there = (ids >= 0) & (mine != NOWHERE)[:, None]
    near = np.where(there, inner[np.maximum(ids, 0)], NOWHERE)
    there &= near != NOWHERE
    own = np.flatnonzero(there.any(axis=1))
    mine, near, there, far = mine[own], near[own], there[own], far[own]
    if not len(own):
        return True
    here = places(np.array(keys[mine]))[:, None, :]
    others = places(keys[np.where(there, near, mine[:, None])].ravel()).reshape(*near.shape, 2)
    apart = np.hypot(*np.moveaxis((others - here) / 2.0**BITS, 2, 0))
    inside = (there & (apart <= reach[mine][:, None])).sum(axis=1) / there.sum(axis=1)
    np.memmap(layout.path("kept.bin"), "<f4", "r+")[mine] = inside
    drawn = near[:, :DRAWN]
    np.memmap(layout.path("near.bin"), "<u4", "r+").reshape(-1, DRAWN)[mine, : drawn.shape[1]] = drawn
    if distances:
        np.memmap(layout.path("far.bin"), "<f4", "r+").reshape(-1, DRAWN)[mine, : drawn.shape[1]] = far[:, :DRAWN]
    return True


def neighbors_of(layout: Layout, start: int, count: int, name: str = "near", dtype: str = "<u4") -> Array:
    """The nearest rows of consecutive places, or how far they are."""
    found = np.fromfile(layout.path(f"{name}.bin"), dtype, DRAWN * count, offset=4 * DRAWN * start)
    return found.reshape(-1, DRAWN)
