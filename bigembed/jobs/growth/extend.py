"""An extension: the rows appended to a growing input get their coordinates by the current model, each row once.

Killed at any moment, it leaves what was published as it was; the same call goes on.
"""

from __future__ import annotations

import time
from typing import Any

from bigembed.errors import DamagedError, ExistingOutputError, InputError
from bigembed.estimator.extension import leaves_out
from bigembed.estimator.protocol import extension_of, run_of
from bigembed.estimator.transform import coordinates_of, through_steps
from bigembed.jobs.extend import is_compiled
from bigembed.jobs.growth.account import (
    Ledger,
    Range,
    Snapshot,
    attributes,
    covering,
    head,
    snapshot,
    span_digest,
    without_coordinates,
)
from bigembed.jobs.growth.repair import advising, ledger_of, repair, restore
from bigembed.jobs.growth.versions import (
    Version,
    about,
    growing,
    model_digest,
    place_for,
    reading,
    refuse_unfitted,
    unchanged,
)
from bigembed.jobs.identity import key_of_growth
from bigembed.jobs.job import JobSpec
from bigembed.jobs.places.place import Place
from bigembed.jobs.planning.plan import Plan
from bigembed.jobs.planning.resources import remains, resources_of, runs_at
from bigembed.jobs.watching.reporter import Reporter, RunOptions
from bigembed.maps.registry import load
from bigembed.rows.growing import StoreRows, append_source
from bigembed.rows.source import RowSource
from bigembed.stages.runs import Run
from bigembed.stages.stage import Stage, run_stages
from bigembed.store.arrays import read_array
from bigembed.store.locks import Lock
from bigembed.store.paths import free_bytes, nearest_folder, remove

RANGE_ROWS = 1 << 20
"""New rows that are placed and published together at the most: what a kill can cost."""


def extend(job: JobSpec, options: RunOptions | None = None, *, verify: bool = False) -> dict[str, Any]:
    """Coordinates, by the current model, of the rows appended since the last call: each row exactly once.

    They are placed in ranges. A range becomes visible whole, in one step with its account (digest of its rows and of
    the model); a repeated call starts after the last one. Raises :class:`ChangedInputError` as :func:`refresh` does,
    :class:`MissingPathError` before the first refresh, :class:`InputError` for rows that cannot be placed,
    :class:`PlanError`.
    """
    began = time.perf_counter()
    refuse_unfitted(job)
    with growing(job, options) as (growth, reporter, lock):
        there = snapshot(job.input_path)
        with advising(job), reading(job, there, reporter, 0):
            restore(growth)
            version = growth.current
            assert version is not None  # (once there is one, there always is)
            version = growth.attest(version)
            known = ledger_of(version, there)
        known = unchanged(job, known, there, verify, reporter)
        version.keep(known)
        with advising(job), reading(job, there, reporter, version.fitted):
            repair(version, job.functions)
        before, n = version.covered, there.shape[0]
        if before < n:
            _place(job, version, there, known, reporter, lock)
        remove(version.root / "placing")
        return about(growth, version, unchanged=before == n) | {
            "placed": n - before,
            "other_parameters": version.asked != key_of_growth(job),
            "seconds": round(time.perf_counter() - began, 3),
        }


def _place(job: JobSpec, version: Version, there: Snapshot, known: Ledger, reporter: Reporter, lock: Lock) -> None:
    """All rows that have no coordinates yet, range after range."""
    with advising(job):
        fitted, n = load(version.model, job.functions), there.shape[0]
    if not job.cluster.address:  # before a cluster is started
        first = min(n, version.covered + RANGE_ROWS)
        _plan(job, _stage_of(fitted, there, version.covered, first, ""), there, None, version, fitted).refuse()
    with place_for(job, there, reporter, n - version.covered) as place:
        stops = [*_waiting(version, n), *range(version.covered + RANGE_ROWS, n, RANGE_ROWS), n]
        for stop in stops:
            start = version.covered
            if start < stop:
                with reporter.stage(f"rows {start}:{stop}"):
                    before, known = known, covering(known, head(there, max(stop, known.n)))
                    version.keep(known)  # first, so that no row ever has coordinates and is not known
                    try:
                        _place_range(job, version, fitted, there, start, stop, place, lock)
                    except InputError:
                        version.keep(before)  # so that rows that cannot be placed may be mended
                        raise


def _waiting(version: Version, n: int) -> list[int]:
    """Where a range ends that a killed call left unfinished: it is taken up as it was cut."""
    names = [path.name.split("-") for path in (version.root / "placing").glob("*-*")]
    return [int(stop) for start, stop in names if int(start) == version.covered and int(stop) <= n][:1]


def _place_range(
    job: JobSpec, version: Version, fitted: Any, there: Snapshot, start: int, stop: int, place: Place, lock: Lock
) -> None:
    """Rows ``start:stop``: placed aside, then appended to the coordinates in one step with their account."""
    content = span_digest(there.path, start, stop)
    stage = _stage_of(fitted, there, start, stop, content)
    _plan(job, stage, there, place, version, fitted).refuse()
    aside = version.root / "placing" / f"{start}-{stop}"
    try:
        run = Run(aside, [run_of(fitted)])
    except (DamagedError, ExistingOutputError):  # what a killed call left is damaged
        remove(aside)
        run = Run(aside, [run_of(fitted)])
    try:
        run_stages([stage], run)
    except InputError as error:
        remove(aside)
        raise InputError(f"{there.path}, in rows {start}:{stop} (numbered from {start} as 0): {error}") from error
    array = run.path(stage.name, "coordinates")
    like = read_array(array, 0, 0)
    mine = span_digest(array, 0, stop - start)
    left_out = without_coordinates(array, 0, stop - start) if leaves_out(getattr(fitted, "steps_", ())) else 0
    account = Range(start, stop, "placed", content, model_digest(version.model), mine, left_out)
    lock.check()
    placed = RowSource((stop - start, *like.shape[1:]), like.dtype, path=array)
    append_source(version.array, placed, attributes([*version.ranges, account]))
    remove(aside)


def _stage_of(fitted: Any, there: Snapshot, start: int, stop: int, content: str) -> Stage:
    """The stage that places rows ``start:stop``, of this content."""
    source = StoreRows((stop - start, there.shape[1]), there.dtype, path=there.path, offset=start, content=content)
    extension = extension_of(fitted)
    return coordinates_of(through_steps(fitted, source, extension), extension, run_of(fitted))


def _plan(job: JobSpec, stage: Stage, there: Snapshot, place: Place | None, version: Version, fitted: Any) -> Plan:
    """What the stage that places a range takes; ``place``: where the cluster is running already."""
    shape = there.shape[0] - version.covered, there.shape[1]
    nbytes, compiled = shape[0] * shape[1] * there.dtype.itemsize, is_compiled(fitted)
    return Plan(
        there.path,
        str(version.array),
        shape,
        str(there.dtype),
        resources_of(job.cluster, shape, nbytes, place, False, compiled),
        ((stage.name, stage.cost),),
        (),
        free_bytes(nearest_folder(version.root)),
        scratch=job.output.scratch,
        remains=remains(runs_at((version.root / "placing").glob("*-*")), job.output.scratch),
    )
