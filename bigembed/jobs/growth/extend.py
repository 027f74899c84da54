"""An extension: the rows appended to a growing input get their coordinates by the current model, each row once.

Killed at any moment, it leaves what was published as it was; the same call goes on.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any, ClassVar

import numpy as np

from bigembed.errors import DamagedError, ExistingOutputError, InputError, MissingPathError
from bigembed.estimator import extension_of, run_of
from bigembed.estimator.extension import left_out_of
from bigembed.estimator.likeness import warn_of_unlike
from bigembed.estimator.transform import coordinates_of, through_steps
from bigembed.jobs import growth, places, watching
from bigembed.jobs.extend import extends_compiled
from bigembed.jobs.growth import account, locations
from bigembed.jobs.growth.frames import (
    in_places,
    lasting_clusters,
    longer,
    movement_of,
    pending,
    replaced,
    seen_by,
    undeleted,
)  # fmt: skip
from bigembed.jobs.growth.ids import digest_of_ids, ids_of
from bigembed.jobs.growth.repair import is_growth, ledger_of, repair, restore, with_remedy
from bigembed.jobs.job import JobSpec
from bigembed.jobs.places.cluster import is_planned
from bigembed.jobs.planning.plan import Plan
from bigembed.jobs.planning.resources import remains, resources_of, runs_at
from bigembed.jobs.record import key_of_growth, read_record
from bigembed.jobs.scene import CLUSTER, ROW, export, made_by, write_out
from bigembed.maps import load
from bigembed.rows import RowSource
from bigembed.rows.derived import all_but
from bigembed.rows.formats.copying import vector_source
from bigembed.rows.formats.tables import ID, Table
from bigembed.rows.growing import StoreRows, append_source, remove_unfinished
from bigembed.runtime.blocks import Array
from bigembed.stages import Run, Stage, run_stages
from bigembed.store import AnyPath, PathLike, arrays, at, files, free_bytes, locks, nearest_folder, remove

RANGE_ROWS = 1 << 20
"""New rows that are placed and published together at the most: what a kill can cost."""


def extend(job: JobSpec, options: watching.RunOptions | None = None, *, verify: bool = False) -> dict[str, Any]:
    """Return coordinates, by the current model, of the rows appended since the last call: each row exactly once.

    They are placed in ranges. A range becomes visible whole, in one step with its account (digest of its rows and of
    the model); a repeated call starts after the last one. Raises :class:`ChangedInputError` as :func:`refresh` does,
    :class:`MissingPathError` before the first refresh, :class:`InputError` for rows that cannot be placed,
    :class:`PlanError`.
    """
    began = time.perf_counter()
    growth.refuse_unfitted(job)
    with growth.growing(job, options) as (grown, reporter, lock):
        there = account.snapshot(job.input_path)
        refuse_foreign(job, grown)
        with with_remedy(job), growth.reading(job, there, reporter, 0):
            restore(grown)
            version = grown.current
            assert version is not None  # (once there is one, there always is)
            version = grown.mark_published(version)
            there = seen_by(version, there)
            known = ledger_of(version, there)
        known = growth.unchanged(job, known, there, verify, reporter)
        version.keep(known, job)
        with with_remedy(job), growth.reading(job, there, reporter, version.fitted):
            repair(version, job.functions)
        covered, n = version.covered, there.shape[0]
        missing: list[dict[str, Any]] = []
        if covered < n:
            with with_remedy(job):
                fitted = load(version.model, job.functions)
            NewRows(job, version, there, fitted, missing).place_all(known, reporter, lock)
        remove(version.root / "placing")
        remove_unfinished(version.array)
        write_table_of(job, version)
        return growth.about(grown, version, unchanged=covered == n) | {
            "placed": n - covered,
            "pending": len(pending(version, job.input_path)),
            "missing": missing,
            "other_parameters": version.asked != key_of_growth(job),
            "seconds": round(time.perf_counter() - began, 3),
        }


@dataclass(frozen=True)
class NewRows:
    """The rows of a growing store that have no coordinates yet, with the version and its model, which places them."""

    job: JobSpec
    version: growth.Version
    there: account.Snapshot
    fitted: Any
    missing: list[dict[str, Any]] = field(default_factory=list)
    """What each range found of missing values that a step fills (:class:`bigembed.estimator.likeness.Likeness`)."""

    def place_all(self, known: account.Ledger, reporter: watching.Reporter, lock: locks.Lock) -> None:
        """Place them, range after range."""
        version, n = self.version, self.there.shape[0]
        if is_planned(self.job.cluster):  # before a cluster is started
            self.plan(self.stage(version.covered, min(n, version.covered + RANGE_ROWS), ""), None).refuse()
        with growth.place_for(self.job, self.there, reporter, n - version.covered) as place:
            for stop in [*self._unfinished(), *range(version.covered + RANGE_ROWS, n, RANGE_ROWS), n]:
                start = version.covered
                if start < stop:
                    with reporter.stage(f"rows {start}:{stop}"):
                        earlier = known
                        known = account.with_new_rows(known, account.first_rows(self.there, max(stop, known.n)))
                        version.keep(known, self.job)  # first, so that no row ever has coordinates and is not known
                        try:
                            self.place(start, stop, place, lock)
                        except InputError:
                            version.keep(earlier, self.job)  # so that rows that cannot be placed may be mended
                            raise

    def place(self, start: int, stop: int, place: places.Place, lock: locks.Lock) -> None:
        """Place rows ``start:stop`` aside, then append them to the coordinates in one step with their account."""
        version, n = self.version, stop - start
        aside = version.root / "placing" / f"{start}-{stop}"
        ids = digest_of_ids(self.there.path, start, stop)  # (before the rows are read: if both are replaced, it shows)
        array, content = self.compute(start, stop, place, aside)
        like, digest = arrays.read_array(array, 0, 0), account.span_digest(array, 0, n)
        left_out = left_out_of(array, getattr(self.fitted, "steps_", ()))
        model = growth.model_digest(version.model)
        added = account.Range(start, stop, "placed", content, model, digest, left_out, ids)
        lock.check()
        rows = RowSource((n, *like.shape[1:]), like.dtype, path=array)
        append_source(version.array, rows, account.attributes([*version.ranges, added]))
        remove(aside)

    def compute(self, start: int, stop: int, place: places.Place, aside: AnyPath) -> tuple[str, str]:
        """Place rows ``start:stop`` in a folder aside; the path of their coordinates, and the digest of the rows."""
        path = self.there.path
        content = account.span_digest(path, start, stop)
        stage = self.stage(start, stop, content)
        self.plan(stage, place).refuse()
        self.missing.extend(warn_of_unlike(self.fitted, self.prepared(start, stop, content), start).missing)
        try:
            run = Run(aside, [run_of(self.fitted)])
        except (DamagedError, ExistingOutputError):  # what a killed call left is damaged
            remove(aside)
            run = Run(aside, [run_of(self.fitted)])
        try:
            run_stages([stage], run)
        except InputError as error:
            remove(aside)
            raise InputError(f"{path}, in rows {start}:{stop} (numbered from {start} as 0): {error}") from error
        return run.path(stage.name, "coordinates"), content

    def stage(self, start: int, stop: int, content: str) -> Stage:
        """Describe the stage that places rows ``start:stop``, keyed by their content."""
        rows = self.prepared(start, stop, content)
        return coordinates_of(rows, extension_of(self.fitted), run_of(self.fitted))

    def prepared(self, start: int, stop: int, content: str) -> RowSource:
        """Return the rows ``start:stop`` as the steps before the method make them."""
        shape, there = (stop - start, self.there.shape[1]), self.there
        source = StoreRows(shape, there.dtype, path=there.path, offset=start, content=content)
        return through_steps(self.fitted, source, extension_of(self.fitted))

    def plan(self, stage: Stage, place: places.Place | None) -> Plan:
        """Return what the stage that places a range takes; ``place``: where the cluster is running already."""
        job, there, root = self.job, self.there, self.version.root
        shape = there.shape[0] - self.version.covered, there.shape[1]
        nbytes, compiled = shape[0] * shape[1] * there.dtype.itemsize, extends_compiled(self.fitted)
        where = resources_of(job.cluster, shape, nbytes, place, False, compiled)
        left = remains(runs_at((root / "placing").glob("*-*")), job.output.scratch)
        own, free = ((stage.name, stage.cost),), free_bytes(nearest_folder(root))
        paths = there.path, str(self.version.array)
        return Plan(*paths, shape, str(there.dtype), where, own, (), free, scratch=job.output.scratch, remains=left)

    def _unfinished(self) -> list[int]:
        """Return where a range ends that a killed call left unfinished: it is taken up as it was cut."""
        names = [path.name.split("-") for path in (self.version.root / "placing").glob("*-*")]
        covered, n = self.version.covered, self.there.shape[0]
        return [int(stop) for start, stop in names if int(start) == covered and int(stop) <= n][:1]


# ------------------------------------------------------------------------------------------------------------- table
# All coordinates of a growing store as a table: the rows that were fitted, and those that were placed since.

WRITTEN = "table.json"
"""In the folder of the store: what the tables that it has written hold, and where its pictures and pages are."""
PLACED = "placed"
"""The column that says whether a row was placed by the model (1), or fitted (0)."""
MOVED = "moved"
"""The column that says how far a row moved since the version before, in units of the map: NaN for one that is new."""


def export_any(source: PathLike, out: PathLike, *, overwrite: bool = False) -> dict[str, Any]:
    """Write the coordinates of a run, of an array, or of all rows of a growing store."""
    if is_growth(at(source)):
        return export_growth(source, out, overwrite=overwrite)
    refuse_part(source)
    return export(source, out, overwrite=overwrite)


def export_growth(growing: PathLike, out: PathLike, *, overwrite: bool = False) -> dict[str, Any]:
    """Write the coordinates of all rows of a growing store to ``out``, as :func:`bigembed.jobs.scene.export` does.

    A column ``placed`` marks the rows that the model placed after the fit; ``moved`` says how far each row moved since
    the version before, where the map was laid over that. There is a column ``id`` where the rows have ids, else
    ``row``, the number of the row in the store; :class:`ChangedInputError` where the input has other ids now than the
    rows had that were mapped. Rows that a step left out have no coordinates (NaN), and rows that were deleted when the
    version began are not there, nor those deleted since whose ids came again.
    """
    grown = growth.open_growth(growing)
    version = grown.current
    if version is None:
        raise InputError(f"{growing}: nothing is fitted yet; bigembed refresh with the job file does that")
    return write_out(growing_table(version), at(growing), at(out), overwrite)


def growing_table(version: growth.Version) -> Table:
    """Return the coordinates of a version, with what is known of their rows and columns."""
    ranges, record = version.ranges, read_record(version.run)
    account.require_published(version.array, ranges)
    coordinates = vector_source(version.array)
    job = record.get("job", {})
    method = job.get("method", {})
    made = made_by(method.get("name", ""), coordinates.width, method)
    n = coordinates.shape[0]
    ids = ids_of(version)
    first = {ROW: RowNumbers((n,), np.dtype(np.int64))} if ids is None else {ID: ids}
    aligned = {**first, PLACED: PlacedMarks((n,), np.dtype(np.int8), ranges=ranges)}
    if movement_of(version):
        aligned[MOVED] = longer(in_places(version, MOVED), n)
    if "clusters" in job:
        aligned[CLUSTER] = lasting_clusters(version, coordinates)
    again = np.zeros(0, np.int64) if ids is None else replaced(version, ids)
    aligned = {name: all_but(undeleted(version, vector), again) for name, vector in aligned.items()}
    return Table(all_but(undeleted(version, coordinates), again), tuple(made["names"]), aligned, made)


def write_table_of(job: JobSpec, version: growth.Version) -> None:
    """Write the table that the job wants, unless it is there and holds what it would hold."""
    out = job.output.table
    if out is None:
        return
    root, wanted = version.root.parent.parent, {"version": version.root.name, "rows": version.covered}
    if at(out).exists() and tables_of(root).get(str(out)) == wanted:
        return
    table, place = growing_table(version), locations.written(out, root, job)
    _note(root, "tables", {place: None})  # (of a killed start, too)
    write_out(table, version.root, at(out), overwrite=True)
    _note(root, "tables", {place: wanted})


def tables_of(root: AnyPath) -> dict[str, Any]:
    """Return what each table that a store has written holds, by its path; None where that was begun only."""
    return _by_place(root, "tables")


def extras_of(root: AnyPath) -> dict[str, Any]:
    """Return the pictures and pages that a store has written: what each is, by its path."""
    return _by_place(root, "extras")


def note_extra(job: JobSpec, root: AnyPath, place: PathLike, name: str) -> None:
    """Note that a store writes a picture or a page to this place."""
    if str(place) not in extras_of(root):
        _note(root, "extras", {locations.written(place, root, job): name})


def _by_place(root: AnyPath, kind: str) -> dict[str, Any]:
    """Return what is noted, by where it lies: beside a store that moved, if it was beside it before."""
    return {str(locations.located(place, root)): what for place, what in _written(root).get(kind, {}).items()}


def _written(root: AnyPath) -> dict[str, Any]:
    with suppress(DamagedError, MissingPathError):
        return dict(files.read_sealed(root / WRITTEN))
    return {}


def _note(root: AnyPath, kind: str, entries: dict[str, Any]) -> None:
    known = {name: value for name, value in _written(root).items() if name in ("tables", "extras")}
    now = {locations.located(place, root) for place in entries}  # (earlier versions wrote the same places as absolute)
    others = {place: what for place, what in known.get(kind, {}).items() if locations.located(place, root) not in now}
    files.write_json(root / WRITTEN, files.sealed({"tables": {}} | known | {kind: others | entries}))


def refuse_foreign(job: JobSpec, grown: growth.Growth) -> None:
    """:class:`ExistingOutputError` where there is a table that this store has not written."""
    out = job.output.table
    if out is not None and at(out).exists() and str(out) not in tables_of(grown.root):
        raise foreign_output(out)


def foreign_output(place: PathLike) -> ExistingOutputError:
    """Return the error of a file that is there and not of this store."""
    return ExistingOutputError(
        f"{place}: exists, and this store did not write it. Nothing was changed; choose another path or move it away"
    )


def refuse_part(run: PathLike) -> None:
    """Refuse the run inside a growing store, from which rows have been placed that it does not hold."""
    versions = at(run).absolute().parent.parent
    if versions.name != "versions":
        return
    current = growth.Growth(versions.parent).current
    if current is not None and current.run == at(run).absolute() and current.covered > current.fitted:
        raise InputError(
            f"{run}: holds the {current.fitted} rows that were fitted, of {current.covered}. "
            f"bigembed export {versions.parent} writes all of them, and marks those"
        )


@dataclass(frozen=True)
class RowNumbers(RowSource):
    """The numbers of rows, from 0 on."""

    def read(self, start: int, stop: int) -> Array:
        """Return the numbers ``start:stop``."""
        return np.arange(start, min(stop, self.shape[0]))


@dataclass(frozen=True)
class PlacedMarks(RowSource):
    """For each row 1 where the model placed it, and 0 where it was fitted."""

    ranges: Sequence[account.Range] = ()
    features: ClassVar = ()

    def read(self, start: int, stop: int) -> Array:
        """Return the marks of rows ``start:stop``."""
        marks = np.zeros(max(0, min(stop, self.shape[0]) - start), np.int8)
        for part in self.ranges:
            marks[max(0, part.start - start) : max(0, part.stop - start)] = part.how == PLACED
        return marks
