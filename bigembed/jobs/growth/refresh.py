"""A refresh: all rows of a growing input are fitted anew, and become the current version in one step.

Killed at any moment, it leaves what was published as it was; the same call goes on. Where the rows of the new version
are on the current map (where they were shown, or where its model places them now) is written into it when it begins, so
that what others place meanwhile changes nothing::

    before/published    (n, m) where rows were shown; NaN for those that were not, or are other rows now
    before/start        (n, m) the same, and where the current model places all others
    before/about.json   that both are whole
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from bigembed.errors import ChangedInputError, DamagedError, InputError, InputTypeError
from bigembed.estimator.frame import STAGE, FrameReference, frame_in
from bigembed.jobs import growth, inputs, record
from bigembed.jobs.growth import account, frames
from bigembed.jobs.growth.extend import NewRows, extras_of, foreign_output, note_extra, refuse_foreign, write_table_of
from bigembed.jobs.growth.ids import digest_of_ids
from bigembed.jobs.growth.repair import ledger_of, restore, version_problems, warn, write_fitted
from bigembed.jobs.job import JobSpec
from bigembed.jobs.places.cluster import is_planned
from bigembed.jobs.run import run_job
from bigembed.jobs.watching import Reporter, RunOptions
from bigembed.maps import load
from bigembed.rows import RowSource, rows_at
from bigembed.rows.growing import StoreRows, deleted_rows, mask_path
from bigembed.runtime.blocks import Array, block_rows, bounds, map_blocks
from bigembed.stages import Run
from bigembed.store import AnyPath, at, files, locks, put, remove
from bigembed.store.arrays import create_rows, read_array, write_rows

EXTRAS = {"picture": "map.png", "report": "report.html"}
"""What else a job may want: made for the version, then copied to where it is wanted."""


def refresh(
    job: JobSpec, options: RunOptions | None = None, *, fresh: bool = False, verify: bool = False, keep: int = 1,
    new_frame: bool = False, changed: bool = False, limits: frames.MovementLimits | None = None,
) -> dict[str, Any]:  # fmt: skip
    """Fit all rows that are there now, and make run, model and coordinates the current ones in one step.

    The rows to fit are fixed (and recorded) at the start; what is appended meanwhile is left to :func:`extend`. Does
    nothing where rows and parameters are those of the current version, and all that the job wants besides was made
    with it. An unfinished one is gone on with, on its own rows. ``fresh`` forgets it, fits in any case, and takes rows
    that have changed as they are. ``verify`` reads all rows that were there instead of looking at sizes and times of
    their files. ``keep``: versions kept before the current one.

    Unless the job says ``[output] align = false``, the map stays put: the rows that came since are placed by the
    current model, a map that descends starts from all published coordinates, and the new map is laid over them.
    ``new_frame`` makes it from nothing instead. So do other parameters, ``fresh``, and a current version that is
    damaged. ``changed`` takes rows that have changed, or are gone from the end, as they are: they are placed anew.

    Raises :class:`ChangedInputError` where rows that were there have changed or are gone, :class:`MovedError` where
    rows moved farther than the ``limits`` (the current version then stays, and the new one is kept for a decision),
    else what :func:`bigembed.jobs.run.run_job` raises.
    """
    began = time.perf_counter()
    with growth.growing(job, options) as (grown, reporter, lock):
        there, asked = account.snapshot(job.input_path), record.key_of_growth(job)
        refuse_foreign(job, grown)
        _refuse_foreign_extras(job, grown)
        current, known = _current(grown), account.new_ledger(there)
        spans: list[tuple[int, int]] = []
        deleted = deleted_rows(job.input_path, there.shape[0])
        if len(deleted) and deleted.all():
            raise InputError(
                f"{job.input_path}: all of its {len(deleted):,} rows are deleted, and none is left to map. What is "
                f"published stays. Append rows, or delete {mask_path(job.input_path)}, which marks them"
            )
        # (ids before rows: where both are replaced meanwhile, they are not taken for each other's)
        mask, ids = frames.digest_of_mask(deleted), digest_of_ids(job.input_path, 0, there.shape[0], deleted)
        there = replace(there, deleted=deleted)
        undamaged = current is not None
        if current is not None and not fresh:
            known, spans = _known(job, current, there, verify, reporter, changed)
            undamaged = _is_undamaged(current)
            same = (current.asked, current.fitted, current.mask) == (asked, there.shape[0], mask) and not spans
            same = same and current.ids in ("", ids)
            if undamaged and same and not new_frame and not _lacking_extras(job, current):
                current.keep(known, job)
                grown.mark_published(current)
                forget(current)
                grown.clear()
                _copy_extras(job, current)
                write_table_of(job, current)
                return growth.about(grown, current, unchanged=True)
        before = None if fresh or new_frame or not undamaged else _followed(job, current)
        follows = "" if before is None else before.root.name
        version = None if fresh else _unfinished(job, grown, asked, follows, there, deleted, verify, reporter)
        if version is None:
            grown.clear()
            with growth.reading(job, there, reporter, there.shape[0] - account.rows_in(known.entries)):
                about: dict[str, Any] = {"deleted": int(deleted.sum()), "mask": mask, "ids": ids}
                version = grown.begin(job, asked, account.with_new_rows(known, there), follows=follows, **about)
            if mask:
                frames.write_mask(version, deleted)
        frame = None if before is None else reference_for(job, before, version, there, reporter, spans)
        _fit(job, version, there, reporter, frame)
        frames.number_clusters(version, current if undamaged else None)
        frames.refuse_moved(job, version, limits or frames.MovementLimits())
        _publish(job, grown, version, keep if undamaged else 0, reporter, lock)
        write_table_of(job, version)
        found = growth.about(grown, version, unchanged=False) | {"seconds": round(time.perf_counter() - began, 3)}
        return found | ({"frame": frame_of} if (frame_of := frames.movement_of(version)) else {})


def _current(grown: growth.Growth) -> growth.Version | None:
    """Return the current version; None where it is damaged, too: it is made anew."""
    try:
        restore(grown)
    except DamagedError as error:
        warn(error)
        remove(grown.root / "versions")
        remove(grown.root / growth.CURRENT)
    try:
        return grown.current
    except DamagedError as error:
        warn(error)
        return None


def _followed(job: JobSpec, current: growth.Version | None) -> growth.Version | None:
    """Return the version that the new one is laid over, where the job wants that and it was made in the same way."""
    wanted = current is not None and job.output.align is not False
    return current if wanted and current is not None and frames.can_follow(job, current) else None


def _known(
    job: JobSpec, current: growth.Version, there: account.Snapshot, verify: bool, reporter: Reporter, changed: bool
) -> tuple[account.Ledger, list[tuple[int, int]]]:
    """Return the rows that are as they were, and the spans of those that are not where these may have ``changed``."""
    seen = _seen_by(current, there)
    ledger, spans = _ledger(current, seen), list[tuple[int, int]]()
    if not changed:
        ledger = growth.unchanged(job, ledger, seen, verify, reporter)
    else:
        with growth.reading(job, there, reporter, account.rows_in(account.doubted_entries(ledger, seen, verify))):
            ledger, spans = account.without_changed(ledger, seen, verify)
    return account.also_deleted(ledger, seen, there), spans


def _seen_by(version: growth.Version, there: account.Snapshot) -> account.Snapshot:
    """Return what is there as the version sees it; all of it, where that cannot be known any more."""
    with suppress(DamagedError):  # (which is said when the version is looked at)
        return frames.seen_by(version, there)
    return replace(there, deleted=np.zeros(0, bool))


def _ledger(version: growth.Version, there: account.Snapshot) -> account.Ledger:
    """Return the rows that were there; none are known where that cannot be known any more."""
    try:
        return ledger_of(version, there)
    except DamagedError as error:
        warn(error)
        return account.new_ledger(there)


def _is_undamaged(version: growth.Version) -> bool:
    """Return whether the version is what was published: every byte is read."""
    problems = version_problems(version)
    for problem in problems:
        warn(problem)
    return not problems


def _unfinished(
    job: JobSpec, grown: growth.Growth, asked: str, follows: str, there: account.Snapshot, deleted: Array, verify: bool,
    reporter: Reporter,
) -> growth.Version | None:  # fmt: skip
    """Return the version to go on with: of the same parameters and frame, its rows as they were, the same deleted."""
    for version in grown.unfinished():
        known = version.asked, version.follows, version.mask
        mask = frames.digest_of_mask(deleted[: version.fitted])
        ids = digest_of_ids(job.input_path, 0, version.fitted, deleted)
        if known == (asked, follows, mask) and version.ids in ("", ids):
            with suppress(ChangedInputError, DamagedError):
                seen = frames.seen_by(version, there)  # (a killed start may not have written its mask)
                version.keep(growth.unchanged(job, version.ledger, seen, verify, reporter), job)
                return version
    return None


def _fit(
    job: JobSpec,
    version: growth.Version,
    there: account.Snapshot,
    reporter: Reporter,
    frame: FrameReference | None = None,
) -> None:
    """Run the job on the rows of the version, over the ``frame``; they must still be the same afterwards."""
    output = {"path": str(version.run), "model": str(version.model), "align": None}
    output["table"] = None  # (that of all rows comes later)
    output |= {name: str(version.root / file) for name, file in EXTRAS.items() if getattr(job.output, name)}
    mine = job.model_copy(update={"output": job.output.model_copy(update=output)})
    shape = (version.fitted, there.shape[1])
    first = StoreRows(shape, there.dtype, path=str(job.input_path), content=version.content)
    rows = inputs.Input(job.input_path, frames.undeleted(version, first), frame=frame)
    told = RunOptions(reporter, reporter.progress, reporter.options.deadline, remaining=reporter.remaining)
    record.move_claims(version.run)
    with reporter.logs.silent():
        run_job(mine, told, rows=rows)
    try:
        seen = frames.seen_by(version, account.snapshot(job.input_path))
        version.keep(growth.unchanged(job, version.ledger, seen, False, reporter), job)
    except ChangedInputError:
        remove(version.root)
        raise


def _publish(
    job: JobSpec, grown: growth.Growth, version: growth.Version, keep: int, reporter: Reporter, lock: locks.Lock
) -> None:
    """The coordinates of the rows fitted into the array that grows; then the version is the current one."""
    with reporter.stage("publish"):
        write_fitted(version, job.functions)
        lock.check()
        grown.publish(version, keep)
        forget(version)
    _copy_extras(job, version)


def _refuse_foreign_extras(job: JobSpec, grown: growth.Growth) -> None:
    """:class:`ExistingOutputError` where a picture or a page is there that this store has not written."""
    known = extras_of(grown.root)
    for name, file in EXTRAS.items():
        place = getattr(job.output, name)
        if place and at(place).exists() and str(place) not in known:
            made: list[AnyPath] = list((grown.root / "versions").glob(f"*/{file}"))
            if not any(one.read_bytes() == at(place).read_bytes() for one in made):  # (0.2.0 noted none)
                raise foreign_output(place)


def _lacking_extras(job: JobSpec, version: growth.Version) -> bool:
    """Return whether the job wants a picture or a page that was not made with the version."""
    return any(getattr(job.output, name) and not (version.root / file).is_file() for name, file in EXTRAS.items())


def _copy_extras(job: JobSpec, version: growth.Version) -> None:
    """Copy what else the job wants, if a start that was killed has not."""
    for name, file in EXTRAS.items():
        if (place := getattr(job.output, name)) and (version.root / file).is_file():
            made = (version.root / file).read_bytes()
            note_extra(job, version.root.parent.parent, place, name)
            if not at(place).is_file() or at(place).read_bytes() != made:
                put(place, made)


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
    job: JobSpec, current: growth.Version, version: growth.Version, there: account.Snapshot, reporter: Reporter,
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
    about = files.read_sealed(folder / ABOUT)
    published, start = (_rows(folder / name, about[name]) for name in ("published", "start"))
    run, since, first = Run(current.run), current.root.name, published
    if run.has(STAGE) and run.results(STAGE)["shared"]:
        since, first = str(run.results(STAGE)["since"]), frames.longer(frames.in_places(current, "first"), n)
    return FrameReference(published, first, since, min(n, current.fitted), frames.taken_out_of(frame_in(run), start))


def forget(version: growth.Version) -> None:
    """Remove what only a refresh needed."""
    remove(version.root / FOLDER)


def _placed(
    job: JobSpec, current: growth.Version, version: growth.Version, there: account.Snapshot, reporter: Reporter,
    spans: Sequence[tuple[int, int]],
) -> Iterator[Placed]:  # fmt: skip
    """Place rows aside by the current model. Rows that have no place there begin without one: what is wrong with them
    is for the fit to say."""
    todo = [span for span in spans if span[0] < span[1]]
    if not todo:
        return
    rows = NewRows(job, current, account.first_rows(there, version.fitted), load(current.model, job.functions))
    if is_planned(job.cluster):  # before a cluster is started
        rows.plan(rows.stage(*max(todo, key=lambda span: span[1] - span[0]), ""), None).refuse()
    with growth.place_for(job, there, reporter, sum(stop - start for start, stop in todo)) as place:
        for start, stop in todo:
            found = ""
            with suppress(InputError, InputTypeError):
                found, _ = rows.compute(start, stop, place, version.root / FOLDER / f"{start}-{stop}")
            yield Placed(start, stop, found)


def _write(folder: AnyPath, current: growth.Version, shown: int, n: int, placed: Sequence[Placed]) -> None:
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
        about[name] = account.span_digest(str(folder / name), 0, n)
    files.write_json(folder / ABOUT, files.sealed(about))
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
