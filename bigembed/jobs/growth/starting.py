"""Where the rows of a new version are on the current map: where they were shown, or where its model places them now.

It is written into the new version when that begins, so that what others place meanwhile changes nothing::

    before/published    (n, m) where rows were shown; NaN for those that were not, or are other rows now
    before/start        (n, m) the same, and where the current model places all others
    before/about.json   that both are whole
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

import numpy as np

from bigembed.errors import InputError, InputTypeError
from bigembed.estimator.frame import STAGE, FrameReference, frame_in
from bigembed.jobs.growth.account import Snapshot, first_rows, span_digest
from bigembed.jobs.growth.extend import NewRows
from bigembed.jobs.growth.frames import in_places, longer, taken_out_of
from bigembed.jobs.growth.versions import Version, place_for
from bigembed.jobs.job import JobSpec
from bigembed.jobs.places.cluster import is_planned
from bigembed.jobs.watching.reporter import Reporter
from bigembed.maps.registry import load
from bigembed.rows.growing import StoreRows
from bigembed.rows.source import RowSource, rows_at
from bigembed.runtime.blocks import Array, block_rows, bounds, map_blocks
from bigembed.stages.runs import Run
from bigembed.store.arrays import create_rows, read_array, write_rows
from bigembed.store.files import read_sealed, sealed, write_json
from bigembed.store.paths import AnyPath, remove

FOLDER, ABOUT = "before", "about.json"
SAME_PLACE = 1e-3
"""Of the map's extent: a row is the same one if it is placed no farther than this from where it was shown.

A model places a row that it was fitted to where it was, to 1e-6 of the extent.
"""


@dataclass(frozen=True)
class Placed:
    """Rows ``start:stop`` of the store, and where the current model places them as they are now."""

    start: int
    stop: int
    coordinates: str
    """The path of their coordinates; empty where they have no place."""


def reference_for(
    job: JobSpec, current: Version, version: Version, there: Snapshot, reporter: Reporter,
    changed: Sequence[tuple[int, int]] = (),
) -> FrameReference:  # fmt: skip
    """Return the published map of the current version as what the new one is laid over, and starts from.

    ``changed``: spans of rows that may be other rows now.
    """
    folder, n = version.root / FOLDER, version.fitted
    if not (folder / ABOUT).is_file():
        with reporter.stage("place"):
            shown = min(current.covered, n)
            spans = [*((low, min(high, shown)) for low, high in changed if low < shown), (shown, n)]
            placed = list(_placed(job, current, version, there, reporter, spans))
            _write(folder, current, shown, n, placed)
    about = read_sealed(folder / ABOUT)
    published, start = (_rows(folder / name, about[name]) for name in ("published", "start"))
    run, since, first = Run(current.run), current.root.name, published
    if run.has(STAGE) and run.results(STAGE)["shared"]:
        since, first = str(run.results(STAGE)["since"]), longer(in_places(current, "first"), n)
    return FrameReference(published, first, since, min(n, current.fitted), taken_out_of(frame_in(run), start))


def forget(version: Version) -> None:
    """Remove what only a refresh needed."""
    remove(version.root / FOLDER)


def _placed(
    job: JobSpec, current: Version, version: Version, there: Snapshot, reporter: Reporter,
    spans: Sequence[tuple[int, int]],
) -> Iterator[Placed]:  # fmt: skip
    """Place rows aside by the current model. Rows that have no place there begin without one: what is wrong with them
    is for the fit to say."""
    todo = [span for span in spans if span[0] < span[1]]
    if not todo:
        return
    rows = NewRows(job, current, first_rows(there, version.fitted), load(current.model, job.functions))
    if is_planned(job.cluster):  # before a cluster is started
        rows.plan(rows.stage(*max(todo, key=lambda span: span[1] - span[0]), ""), None).refuse()
    with place_for(job, there, reporter, sum(stop - start for start, stop in todo)) as place:
        for start, stop in todo:
            found = ""
            with suppress(InputError, InputTypeError):
                found, _ = rows.compute(start, stop, place, version.root / FOLDER / f"{start}-{stop}")
            yield Placed(start, stop, found)


def _write(folder: AnyPath, current: Version, shown: int, n: int, placed: Sequence[Placed]) -> None:
    """Write both arrays, and then that they are whole."""
    path, like = str(current.array), read_array(current.array, 0, 0)
    m, about = like.shape[1], {}
    rows = block_rows(m, 8)
    extent = _extent(path, shown, rows)
    for name in ("published", "start"):
        create_rows(folder / name, (n, m), np.float64, rows, overwrite=True)
    known: dict[str, Any] = {"path": path, "shown": shown, "placed": tuple(placed), "out": str(folder)}
    map_blocks(write_block, bounds(n, rows), label="before", nearest=SAME_PLACE * extent, **known)
    for name in ("published", "start"):
        about[name] = span_digest(str(folder / name), 0, n)
    write_json(folder / ABOUT, sealed(about))
    for one in placed:
        remove(folder / f"{one.start}-{one.stop}")


def _extent(path: str, n: int, rows: int) -> float:
    """Return the diagonal of the box of a map."""
    boxes = np.stack(map_blocks(box_block, [(path, *span) for span in bounds(n, rows)], label="before"))
    there = boxes[np.isfinite(boxes).all(axis=(1, 2))]
    return float(np.linalg.norm(there[:, 1].max(axis=0) - there[:, 0].min(axis=0))) if len(there) else 0.0


def box_block(path: str, start: int, stop: int) -> Array:
    """Return the least and the largest coordinates of some rows, (2, m); NaN where they have none."""
    found = read_array(path, start, stop)
    found = found[np.isfinite(found).all(axis=1)]
    return np.stack([found.min(axis=0), found.max(axis=0)]) if len(found) else np.full((2, found.shape[1]), np.nan)


def write_block(
    start: int, stop: int, *, path: str, shown: int, placed: tuple[Placed, ...], out: str, nearest: float
) -> None:
    """Write where rows ``start:stop`` were shown, and where they start."""
    like = read_array(path, 0, 0)
    published = np.full((stop - start, like.shape[1]), np.nan)
    if start < shown:
        published[: min(stop, shown) - start] = read_array(path, start, min(stop, shown))
    begin = published.copy()
    for one in placed:
        low, high = max(start, one.start), min(stop, one.stop)
        if low < high:
            here, span = slice(low - start, high - start), (low - one.start, high - one.start)
            now = read_array(one.coordinates, *span) if one.coordinates else np.full_like(published[here], np.nan)
            same = np.linalg.norm(now - published[here], axis=1) <= nearest  # (never, of rows that were not shown)
            begin[here] = np.where(same[:, None], published[here], now)
            published[here] = np.where(same[:, None], published[here], np.nan)
    write_rows(f"{out}/published", start, published)
    write_rows(f"{out}/start", start, begin)


def _rows(path: AnyPath, content: str) -> RowSource:
    found = rows_at(path)
    return StoreRows(found.shape, found.dtype, path=str(path), content=content)
