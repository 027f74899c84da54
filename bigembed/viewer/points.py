"""``points.parquet``: the rows of a map for other viewers, all of them or a sample that keeps sparse places."""

from __future__ import annotations

import json
import shlex
import shutil
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np

from bigembed.errors import MissingExtraError, needed
from bigembed.runtime.blocks import Array
from bigembed.store.metadata import whole_file
from bigembed.viewer import MISSING, NOWHERE, Column, Survey
from bigembed.viewer.cells import BITS, Frame, places
from bigembed.viewer.sorting import Layout, neighbors_of

FILE, POINT = "points.parquet", "point"
"""The file, and its column of the number of each of its rows, which lists of neighbors name."""
MOST = 4_000_000
"""Rows of the file."""
DICTIONARY = 256
"""Classes of a column that is written as a dictionary; others become “other”."""
GRID = 10
"""Level of the cells, of equal area, that are thinned."""


def require_arrow() -> Any:
    """pyarrow, or the error that names the extra."""
    needed("pyarrow.parquet", "parquet", f"writing {FILE}")
    return needed("pyarrow", "parquet", f"writing {FILE}")


def write_points(
    survey: Survey, frame: Frame, layout: Layout, starts: Array, target: Path, graph: bool, most: int = MOST
) -> dict[str, Any]:
    """Write the file from sorted rows, bucket by bucket; how many rows it has.

    Each cell of equal area keeps at most so many rows that all together are ``most``: places with few rows keep all.
    Neighbors are rows of this file, those that were kept.
    """
    arrow = require_arrow()
    cap = largest_cap(layout, int(starts[-1]), most)
    numbers, total = _number_kept(layout, starts, cap)
    schema = _schema(arrow, survey, graph)
    from pyarrow.parquet import ParquetWriter

    with whole_file(str(target)) as content, ParquetWriter(content, schema) as writer:
        for b in range(layout.buckets):
            columns = bucket_columns(arrow, b, int(starts[b]), numbers, survey, frame, layout, graph)
            writer.write_table(arrow.table(columns, schema=schema))
    return {"rows": total, "share": total / max(int(starts[-1]), 1), "neighbors": graph}


def _cells(layout: Layout, b: int) -> Array:
    return (layout.sorted_rows(b)["key"] >> np.uint64(2 * (BITS - GRID))).astype(np.int64)


def largest_cap(layout: Layout, rows: int, most: int) -> int:
    """How many rows a cell may keep."""
    if rows <= most:
        return rows
    sizes = np.concatenate([np.unique(_cells(layout, b), return_counts=True)[1] for b in range(layout.buckets)])
    return cap_of(sizes, most)


def cap_of(sizes: Array, most: int) -> int:
    """The largest cap with which the sizes, capped, add up to no more than ``most``; at least one.

    >>> cap_of(np.array([1, 5, 100]), 16)
    10
    """
    ordered = np.sort(sizes).astype(np.int64)
    before = np.concatenate([[0], np.cumsum(ordered)])
    left = len(ordered) - np.arange(len(ordered))
    room = np.maximum(most - before[:-1], 0) // left
    first = int(np.argmax(room < ordered)) if (room < ordered).any() else len(ordered) - 1
    return max(int(room[first]), 1)


def kept_of(cells: Array, cap: int) -> Array:
    """Which of the sorted rows of a bucket are kept: of each cell evenly spread ones, as many as the cap.

    >>> kept_of(np.array([3, 3, 3, 3, 7]), 2).tolist()
    [False, True, False, True, True]
    """
    starts = np.flatnonzero(np.diff(cells, prepend=-1))
    sizes = np.diff(np.append(starts, len(cells)))
    size = np.repeat(sizes, sizes)
    rank = np.arange(len(cells)) - np.repeat(starts, sizes)
    share = np.minimum(size, cap)
    return np.asarray((rank + 1) * share // np.maximum(size, 1) > rank * share // np.maximum(size, 1))


def _number_kept(layout: Layout, starts: Array, cap: int) -> tuple[Any, int]:
    """The row in ``points.parquet`` of every place, as a mapped file of numbers; and how many rows there are."""
    path = layout.path("filed.bin")
    total = 0
    with open(path, "wb") as file:
        for b in range(layout.buckets):
            kept = kept_of(_cells(layout, b), cap)
            numbers = np.full(len(kept), NOWHERE, "<u4")
            numbers[kept] = total + np.arange(np.count_nonzero(kept))
            numbers.tofile(file)
            total += int(np.count_nonzero(kept))
    return np.memmap(path, "<u4", "r") if int(starts[-1]) else np.zeros(0, "<u4"), total


def _schema(arrow: Any, survey: Survey, graph: bool) -> Any:
    kinds = {"number": arrow.float32(), "date": arrow.timestamp("ms"), "text": arrow.string()}
    fields = [("x", arrow.float32()), ("y", arrow.float32()), (POINT, arrow.int64()), ("row", arrow.int64())]
    if survey.ids is not None:
        fields.append(("id", arrow.string()))
    for column in survey.columns:
        kind = arrow.dictionary(arrow.int16(), arrow.string()) if column.kind == "class" else kinds[column.kind]
        fields.append((free_name(column.name, fields), kind))
    if graph:
        lists = {"ids": arrow.list_(arrow.int64()), "distances": arrow.list_(arrow.float32())}
        fields.append(("neighbors", arrow.struct(list(lists.items()))))
    return arrow.schema(fields)


def free_name(name: str, fields: list[tuple[str, Any]]) -> str:
    """A name that no field has."""
    taken = {one for one, _ in fields} | {"neighbors"}
    while name in taken:
        name += "_"
    return name


def bucket_columns(
    arrow: Any, b: int, start: int, numbers: Any, survey: Survey, frame: Frame, layout: Layout, graph: bool
) -> list[Any]:
    """The columns of the rows of a bucket that were kept."""
    rows = layout.sorted_rows(b)
    number = np.array(numbers[start : start + len(rows)])
    kept = np.flatnonzero(number != NOWHERE)
    rows = rows[kept]
    points = np.array(frame.low) + places(rows["key"]) / 2.0**BITS * np.array(frame.unit)
    out = [arrow.array(points[:, axis].astype(np.float32)) for axis in (0, 1)]
    out += [arrow.array(one.astype(np.int64)) for one in (number[kept], rows["row"])]
    if survey.ids is not None:
        out.append(arrow.array([one.decode(errors="replace") for one in rows["id"].tolist()], arrow.string()))
    out += [_column(arrow, column, rows[f"c{i}"]) for i, column in enumerate(survey.columns)]
    if graph:
        near = neighbors_of(layout, start, len(number))[kept]
        far = neighbors_of(layout, start, len(number), "far", "<f4")[kept]
        out.append(_neighbors(arrow, near, far, numbers))
    return out


def _column(arrow: Any, column: Column, values: Array) -> Any:
    if column.kind == "text":
        return arrow.array([one.decode(errors="replace") or None for one in values.tolist()], arrow.string())
    if column.kind == "number":
        return arrow.array(values.astype(np.float32))
    if column.kind == "date":
        known = np.isfinite(values)
        return arrow.array(np.where(known, values, 0).astype("datetime64[ms]"), mask=~known)
    names = list(column.classes[:DICTIONARY])
    if len(column.classes) > DICTIONARY:
        names[-1] = "other"
    codes = np.minimum(values.astype(np.int64), len(names) - 1).astype(np.int16)
    return arrow.DictionaryArray.from_arrays(arrow.array(codes, mask=values == MISSING), names)


def _neighbors(arrow: Any, near: Array, far: Array, numbers: Any) -> Any:
    """Lists of rows of this file, and of distances in the data."""
    there = near != NOWHERE
    found = np.where(there, numbers[np.where(there, near, 0)], NOWHERE)
    there &= found != NOWHERE
    ends = np.concatenate([[0], np.cumsum(there.sum(axis=1))]).astype(np.int32)
    ids = arrow.ListArray.from_arrays(ends, arrow.array(found[there].astype(np.int64)))
    distances = arrow.ListArray.from_arrays(ends, arrow.array(far[there].astype(np.float32)))
    return arrow.StructArray.from_arrays([ids, distances], ["ids", "distances"])


# ------------------------------------------------------------------------------------------------------------ atlas

ATLAS = "atlas"
"""The folder of the pages of Embedding Atlas."""


def atlas_pages() -> Path:
    """The static pages of the installed package, which is looked at and not imported; MissingExtraError without it."""
    found = find_spec("embedding_atlas")
    pages = Path(next(iter(found.submodule_search_locations or ()), ""), "static") if found else None
    if pages is None or not (pages / "index.html").is_file():
        raise MissingExtraError("the pages of Embedding Atlas are in its package: pip install embedding-atlas")
    return pages


def put_atlas(pages: Path, folder: Path) -> None:
    """Copy the pages beside the points, which they read from a web server."""
    shutil.copytree(pages, folder / ATLAS, dirs_exist_ok=True)
    data = folder / ATLAS / "data"
    data.mkdir(exist_ok=True)
    shutil.copyfile(folder / FILE, data / "dataset.parquet")
    from pyarrow.parquet import read_schema

    known = {"neighbors": "neighbors"} if "neighbors" in read_schema(folder / FILE).names else {}
    shown = {"id": POINT, "projection": {"x": "x", "y": "y"}, **known}
    about = {"props": {"data": shown}, "isStatic": True, "database": {"type": "wasm", "load": True}}
    (data / "metadata.json").write_text(json.dumps(about))


def scatter_call(path: Path) -> str:
    """The call of jupyter-scatter that opens the file, in a notebook."""
    return f'jscatter.plot(data=pandas.read_parquet({str(path)!r}), x="x", y="y")'


def atlas_command(path: Path, graph: bool) -> str:
    """The command that opens the file."""
    known = " --neighbors neighbors" if graph else ""
    return f"embedding-atlas {shlex.quote(str(path))} --x x --y y{known}"
