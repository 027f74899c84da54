"""The folder of a page: maps drawn one after the other, aside, and given their name when all is whole.

A map is drawn from sorted rows: the buckets, each by a task, the tiles above them, and the files that find a row.
"""

from __future__ import annotations

import json
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from hashlib import sha256
from importlib import resources
from pathlib import Path
from typing import Any

import numpy as np

from bigembed import __version__
from bigembed.errors import ExistingOutputError
from bigembed.runtime.blocks import Array, bounds, map_blocks
from bigembed.store import AnyPath, PathLike, local, move, remove, retire
from bigembed.store.files import read_sealed, sealed, write_json
from bigembed.store.locks import output_lock
from bigembed.viewer import KEPT, NOWHERE, Column, Scene, Survey, sorting, survey_scene
from bigembed.viewer.cells import Cell
from bigembed.viewer.points import FILE, atlas_pages, put_atlas, require_arrow, write_points
from bigembed.viewer.tiles import DEPTH, Pixels, Pyramid, Rows, Summary, added, call, write_script

ABOUT = "view.json"
"""What a folder of ours says of itself."""
FORMAT = 1
PAGE = ("index.html", "view.css", "data.js", "draw.js", "page.js")
WORK, BEGUN, DONE = "work", "begun", "drawn.json"
"""Files of a folder that is in work: rows on their way, what it will be, and what the page is told of a map."""


@dataclass(frozen=True)
class View:
    """Say where the page of a map lies. In a notebook it is shown."""

    path: Path
    """The folder: open ``index.html`` in it, or serve the folder."""
    rows: int
    bytes: int
    seconds: float
    points: dict[str, Any] | None = None
    """Of ``points.parquet``, its rows, and which share of all these are; None where it was not asked for."""

    @property
    def page(self) -> Path:
        """Return the path of the page."""
        return self.path / "index.html"

    def as_dict(self) -> dict[str, Any]:
        """Return all of it as JSON can hold it.

        Returns
        -------
        dict
            The path of the page, rows, bytes, seconds and points.
        """
        return {**asdict(self), "path": str(self.path), "page": str(self.page)}

    def _repr_html_(self) -> str:
        from html import escape
        from os.path import relpath

        return f'<iframe src="{escape(relpath(self.page))}" style="width:100%;height:600px;border:0"></iframe>'


def build_view(
    scenes: Sequence[Scene],
    out: PathLike,
    title: str = "",
    more: dict[str, Any] | None = None,
    points: bool = False,
    atlas: bool = False,
) -> View:
    """Write the folder of a page of one scene, or of several side by side.

    ``more``: what else the page is told. ``points``: also the file of :mod:`bigembed.viewer.points`. ``atlas``: also
    that file in the pages of Embedding Atlas.
    """
    began = time.perf_counter()
    place = local(out, "the folder of a page").absolute()
    if points or atlas:
        require_arrow()
    pages = atlas_pages() if atlas else None
    for scene in scenes:
        scene.require_fitting()
    said = [title, more, points or atlas, atlas, __version__]
    key = sha256(repr((FORMAT, said, [scene.fingerprint() for scene in scenes])).encode()).hexdigest()
    with output_lock(place):
        refuse_other(place)
        about = known(place)
        if about.get("key") != key:
            partial = place.with_name(f"{place.name}.partial")
            if known(partial).get("key") != key:
                _begin(partial, key)
                panes = [_drawn(scene, partial, f"m{number}", points or atlas) for number, scene in enumerate(scenes)]
                told = {"title": title or scenes[0].title, "version": __version__, "panes": panes}
                put_page(partial, told | (more or {}))
                if pages is not None:
                    put_atlas(pages, partial)
                write_json(partial / ABOUT, sealed(_about(key, scenes[0].rows, panes)))
            about = known(partial)
            _publish(partial, place)
    seconds = round(time.perf_counter() - began, 3)
    return View(place, about["rows"], about["bytes"], seconds, about.get("points"))


def _begin(partial: Path, key: str) -> None:
    """The folder to work in: what a killed call of the same has left, or an empty one."""
    refuse_other(partial)
    begun = partial / BEGUN
    if partial.exists() and (not begun.is_file() or begun.read_text() != key):
        remove(partial)
    partial.mkdir(parents=True, exist_ok=True)
    begun.write_text(key)


def _about(key: str, rows: int, panes: list[dict[str, Any]]) -> dict[str, Any]:
    maps = [one for pane in panes for one in pane["maps"]]
    return {
        "key": key,
        "format": FORMAT,
        "rows": rows,
        "bytes": sum(one["bytes"] for one in maps),
        "points": maps[0].get("points"),
    }


def _publish(partial: Path, place: Path) -> None:
    """Give what is whole its name, in place of what had it."""
    (partial / BEGUN).unlink(missing_ok=True)
    for left in (*partial.glob(f"*/{DONE}"), *partial.rglob("*.partial")):  # (of writes that were killed)
        left.unlink()
    if place.exists() and not (place / ABOUT).is_file():
        place.rmdir()
    retire(place)
    move(partial, place)


def refuse_other(place: Path) -> None:
    """ExistingOutputError for a place that holds anything but a folder of ours, whole or in work."""
    ours = any((place / mark).is_file() for mark in (ABOUT, BEGUN))
    if place.exists() and not ours and not (place.is_dir() and not any(place.iterdir())):
        raise ExistingOutputError(
            f"{place}: exists, and bigembed view did not write it. Nothing was changed; choose another path"
        )


def known(place: Path) -> dict[str, Any]:
    """What a folder of ours says of itself."""
    return read_sealed(place / ABOUT) if (place / ABOUT).is_file() else {}


def _drawn(scene: Scene, folder: Path, name: str, points: bool) -> dict[str, Any]:
    """Draw every pair of coordinates of a scene; what the page is told of it."""
    survey: Survey | None = None
    maps = []
    for number, pair in enumerate(scene.pairs):
        target = folder / f"{name}p{number}"
        done = target / DONE
        if not done.is_file():
            survey = survey or survey_scene(scene)
            filed = folder / FILE if points and (name, number) == ("m0", 0) else None
            write_json(done, draw_pair(scene, survey, number, target, filed))
        remove(target / WORK)
        found = json.loads(done.read_bytes())
        maps.append({"folder": target.name, "axes": [axis_name(scene, axis) for axis in pair], **found})
    warnings = [{"title": one.title, "level": one.level, "messages": one.messages} for one in scene.warnings]
    return {"title": scene.title, "maps": maps, "warnings": warnings, "facts": scene.facts}


def axis_name(scene: Scene, axis: int) -> str:
    """The name of a coordinate; the second of one coordinate is the row."""
    return scene.names[axis] if axis < len(scene.names) else "row"


def draw_pair(scene: Scene, survey: Survey, pair: int, target: Path, filed: Path | None) -> dict[str, Any]:
    """Draw one pair of coordinates, in passes over the rows; ``filed``: where its points are written, too."""
    work = target / WORK
    work.mkdir(parents=True, exist_ok=True)
    layout, graph = sorting.layout_of(survey, pair, work), scene.graph is not None
    some = scene.graph.listed if scene.graph is not None else None
    counts = sorting.scatter_rows(scene, survey, pair, layout)
    starts = sorting.gather_rows(layout, counts, scene.rows, graph, some)
    listed = None
    if scene.graph is not None:
        listed = sorting.place_neighbors(scene.graph, layout, int(starts[-1]), filed is not None)
    found = draw_map(survey, layout, starts, target, scene.rows, listed)
    if filed is not None:
        found["points"] = write_points(survey, survey.frames[pair], layout, starts, filed, graph and some is None)
    return {**found, **survey.frames[pair].as_dict(), "missing": survey.missing}


def put_page(folder: AnyPath, said: dict[str, Any]) -> None:
    """The page itself, and what it is told: a script, in which no text can end it or begin another."""
    for name in PAGE:
        text = resources.files("bigembed.viewer").joinpath("page", name).read_bytes()
        Path(str(folder), name).write_bytes(text)
    about = json.dumps(said, ensure_ascii=True).replace("<", "\\u003c")
    Path(str(folder), "about.js").write_text(f"const ABOUT = {about};\n")


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
    layout: sorting.Layout
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
    survey: Survey, layout: sorting.Layout, starts: Array, folder: Path, rows: int, listed: int | None
) -> dict[str, Any]:
    """Draw all nodes and the files that find rows; what the page is told of them. ``listed``: rows with a list of
    nearest rows, None where there are no lists."""
    unlisted = None if listed is None else int(starts[-1]) - listed
    drawing = Drawing(str(folder), layout, survey.columns, survey.ids, unlisted)
    if survey.ids is not None:
        sorting.sized(layout.path("hash.bin"), 4 * int(starts[-1]))
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
        "near": 0 if listed is None else sorting.DRAWN,
        "rows": rows,
        "shown": int(starts[-1]),
        "bytes": written,
    }


def draw_bucket(b: int, start: int, *, drawing: Drawing) -> dict[str, Any]:
    """Draw the cells of a bucket, and leave their pixels to what is above."""
    return dict(sorting.once(drawing.layout.path(f"drawn-{b}.json"), lambda: _draw(b, start, drawing)))


def _draw(b: int, start: int, drawing: Drawing) -> dict[str, Any]:
    layout, pyramid = drawing.layout, drawing.pyramid()
    sorted_rows = layout.sorted_rows(b)
    rows = rows_of(sorted_rows, start, drawing)
    if rows.ids is not None:
        sorting.put_at(layout.path("hash.bin"), 4 * start, hashes(rows.ids))
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


def pixels_path(layout: sorting.Layout, cell: Cell) -> Path:
    """Where the pixels of a coarse cell are left."""
    return layout.path(f"cell-{cell.level}-{cell.number}.npz")


def rows_of(found: Array, start: int, drawing: Drawing) -> Rows:
    """The rows of a bucket whose first place is ``start``."""
    stored = [np.ascontiguousarray(found[f"c{i}"]) for i in range(len(drawing.columns))]
    near = None
    if drawing.unlisted is not None:
        stored.append(np.fromfile(drawing.layout.path("kept.bin"), "<f4", len(found), offset=4 * start))
        near = sorting.neighbors_of(drawing.layout, start, len(found))
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
    """The strength at which the scale ends: only the densest half percent of the pixels exceed it."""
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
