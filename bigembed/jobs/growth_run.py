"""Jobs on a growing input: fit all rows anew (:func:`refresh`), and place the rows appended since (:func:`extend`).

Both hold the growing embedding while they work, so that each row gets its coordinates once. Killed at any moment,
they leave what was published as it was; the same call goes on.
"""

from __future__ import annotations

import os
import shutil
import time
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import Any

import numpy as np

from bigembed.blocks.rows import block_rows, bounds, executor, map_blocks
from bigembed.errors import ChangedInputError, InputError, MissingPathError
from bigembed.jobs import logs, status
from bigembed.jobs.cluster import Place, choose, cluster
from bigembed.jobs.growth import FirstRows, Growth, Range, Version, asked_of, model_digest, prepared
from bigembed.jobs.growth_ledger import Ledger, Present, check, covering, new_ledger, present, suspects, upto
from bigembed.jobs.metrics import Metrics
from bigembed.jobs.plan import UNCOMPILED_ROWS, Plan, nearest_folder, place_of
from bigembed.jobs.run import run_job
from bigembed.jobs.spec import JobSpec
from bigembed.jobs.stopping import stoppable
from bigembed.jobs.telling import Telling, Wishes, telling
from bigembed.stages import Run, Stage, observing, run_stages
from bigembed.store.arrays import RowSource, read_array
from bigembed.store.formats import write_dask
from bigembed.store.growing import StoreRows, append_source, rows_digest
from bigembed.store.lock import Lock, hold
from bigembed.store.manifest import digest_of

RANGE_ROWS = 1 << 20
"""New rows that are placed and published together at the most: what a kill can cost."""
BESIDE = {"picture": "map.png", "report": "report.html"}
"""What else a job may want: made for the version, then copied to where it is wanted."""


def refresh(
    job: JobSpec, wishes: Wishes | None = None, *, fresh: bool = False, verify: bool = False, keep: int = 1
) -> dict[str, Any]:
    """Fit all rows that are there now, and make run, model and coordinates the current ones in one step.

    The rows to fit are fixed (and recorded) at the start; what is appended meanwhile is left to :func:`extend`. Does
    nothing where rows and parameters are those of the current version. An unfinished one is gone on with, on its own
    rows. ``fresh`` forgets it, fits in any case, and takes rows that have changed as they are. ``verify`` reads all
    rows that were there instead of looking at sizes and times of their files. ``keep``: versions kept before the
    current one.

    Raises :class:`ChangedInputError` where rows that were there have changed or are gone, else what
    :func:`bigembed.jobs.run.run_job` raises.
    """
    wishes, began = wishes or Wishes(), time.perf_counter()
    with _working(job, wishes) as (growth, told, lock):
        there, current, asked = present(job.input_path), growth.current, asked_of(job)
        known = new_ledger(there)
        if current is not None and not fresh:
            known = _unchanged(job, current.ledger, there, verify, told)
            if (current.asked, current.fitted) == (asked, there.shape[0]):
                current.keep(known)
                growth.clear()
                return _about(growth, current, unchanged=True)
        version = None if fresh else _unfinished(job, growth, asked, there, verify, told)
        if version is None:
            growth.clear()
            with reading(job, there, told, there.shape[0] - known.n):
                version = growth.begin(asked, covering(known, there))
        _fit(job, version, there, wishes, told)
        _publish(job, growth, version, keep, told, lock)
        return _about(growth, version, unchanged=False) | {"seconds": round(time.perf_counter() - began, 3)}


def extend(job: JobSpec, wishes: Wishes | None = None, *, verify: bool = False) -> dict[str, Any]:
    """Coordinates, by the current model, of the rows appended since the last call: each row exactly once.

    They are placed in ranges. A range becomes visible whole, in one step with its account (digest of its rows and of
    the model); a repeated call starts after the last one. Raises :class:`ChangedInputError` as :func:`refresh` does,
    :class:`MissingPathError` before the first refresh, :class:`InputError` for rows that cannot be placed,
    :class:`PlanError`.
    """
    wishes, began = wishes or Wishes(), time.perf_counter()
    refuse_unfitted(job)
    with _working(job, wishes) as (growth, told, lock):
        version = growth.current
        assert version is not None  # (once there is one, there always is)
        there = present(job.input_path)
        known = _unchanged(job, version.ledger, there, verify, told)
        version.keep(known)
        before, n = version.covered, there.shape[0]
        if before < n:
            _place(job, version, there, known, told, lock)
        shutil.rmtree(version.root / "placing", ignore_errors=True)
        return _about(growth, version, unchanged=before == n) | {
            "placed": n - before,
            "other_parameters": version.asked != asked_of(job),
            "seconds": round(time.perf_counter() - began, 3),
        }


def refuse_unfitted(job: JobSpec) -> None:
    """MissingPathError before the first refresh."""
    if Growth(job.output_path).current is None:
        raise MissingPathError(f"{job.output_path}: no model is there yet. Run workflows/refresh.py {job.file} first")


@contextmanager
def _working(job: JobSpec, wishes: Wishes) -> Iterator[tuple[Growth, Telling, Lock]]:
    """Around a job on a growing embedding: held by this process, stoppable, told of."""
    with stoppable(job.output_path, wishes.deadline):
        present(job.input_path)  # so that nothing is made beside an input that cannot be read
        growth = prepared(job)
        with held(growth.root, job, wishes) as (told, lock):
            yield growth, told, lock


@contextmanager
def held(root: Path, job: JobSpec, wishes: Wishes) -> Iterator[tuple[Telling, Lock]]:
    """Hold a folder for a job; its status and log are kept there."""
    metrics = Metrics(wishes.metrics, str(job.output_path), job.method.name)
    with (
        metrics,
        hold(root) as lock,
        telling(wishes, root, lock.owner, root / status.NAME, metrics, root / logs.NAME) as told,
    ):
        yield told, lock


def _about(growth: Growth, version: Version, unchanged: bool) -> dict[str, Any]:
    return {
        "output": str(growth.root),
        "version": version.root.name,
        "model": str(version.model),
        "coordinates": str(version.array),
        "fitted": version.fitted,
        "rows": version.covered,
        "unchanged": unchanged,
    }


# ------------------------------------------------------------------------------ rows that were there


def _unchanged(job: JobSpec, ledger: Ledger, there: Present, verify: bool, told: Telling) -> Ledger:
    """The ledger with the present times; ChangedInputError, with the remedy, if it does not hold any more."""
    doubted = sum(entry.stop - entry.start for entry in suspects(ledger, there, verify))
    try:
        with reading(job, there, told, doubted):
            return check(ledger, there, verify)
    except ChangedInputError as error:
        raise ChangedInputError(
            f"{error}. Nothing was changed. Put the rows back; or, if they are meant to be so, fit them as they are: "
            f"workflows/refresh.py {job.file} --fresh"
        ) from error


def _unfinished(
    job: JobSpec, growth: Growth, asked: str, there: Present, verify: bool, told: Telling
) -> Version | None:
    """The version to go on with: of the same parameters, its rows as they were."""
    for version in growth.unfinished():
        if version.asked == asked:
            try:
                version.keep(_unchanged(job, version.ledger, there, verify, told))
            except ChangedInputError:
                continue
            return version
    return None


def reading(job: JobSpec, there: Present, told: Telling, rows: int) -> AbstractContextManager[Place]:
    """Where so many rows are read for their digests: on the running cluster, if the job names one, or here."""
    return placing(job, there, told, "remote" if rows and job.cluster.address else "process")


def place_for(job: JobSpec, there: Present, told: Telling, rows: int) -> AbstractContextManager[Place]:
    """Where tasks on so many of the rows run: in this process if they are few and the job names no cluster."""
    nbytes = rows * there.shape[1] * there.dtype.itemsize
    return placing(job, there, told, choose(job.cluster, (rows, there.shape[1]), nbytes))


@contextmanager
def placing(job: JobSpec, there: Present, told: Telling, kind: str) -> Iterator[Place]:
    """A place of this kind, as the executor."""
    with cluster(job.cluster, kind, told.progress) as place, executor(place.executor), observing(told):
        place.prove_access(job.output_path, str(job.input_path))
        yield place


# ------------------------------------------------------------------------------------------- refresh


def _fit(job: JobSpec, version: Version, there: Present, wishes: Wishes, told: Telling) -> None:
    """Run the job on the rows of the version; they must still be the same afterwards."""
    output = {"path": str(version.run), "model": str(version.model)}
    output |= {name: str(version.root / file) for name, file in BESIDE.items() if getattr(job.output, name)}
    mine = job.model_copy(update={"output": job.output.model_copy(update=output)})
    shape = (version.fitted, there.shape[1])
    rows = FirstRows(job.input_path, shape, there.dtype, content=version.content)
    run_job(mine, Wishes(told, told.progress, wishes.deadline), rows=rows)
    try:
        version.keep(_unchanged(job, version.ledger, present(job.input_path), False, told))
    except ChangedInputError:
        shutil.rmtree(version.root)
        raise


def _publish(job: JobSpec, growth: Growth, version: Version, keep: int, told: Telling, lock: Lock) -> None:
    """The coordinates of the rows fitted into the array that grows; then the version is the current one."""
    from bigembed.methods.base import load

    with told.stage("publish"):
        fitted = load(version.model)
        write_dask(fitted.embedding_, version.array)
        whole = Range(0, version.fitted, "fitted", version.content, model_digest(version.model))
        nothing = RowSource((0, *fitted.embedding_.shape[1:]), np.dtype(fitted.embedding_.dtype))
        append_source(version.array, nothing, version.attributes([whole]))
        lock.check()
        growth.publish(version, keep)
    for name, file in BESIDE.items():
        if place := getattr(job.output, name):
            Path(place).parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(version.root / file, f"{place}.partial")
            os.replace(f"{place}.partial", place)


# -------------------------------------------------------------------------------------------- extend


def _place(job: JobSpec, version: Version, there: Present, known: Ledger, told: Telling, lock: Lock) -> None:
    """All rows that have no coordinates yet, range after range."""
    from bigembed.methods.base import load

    fitted, n = load(version.model), there.shape[0]
    if not job.cluster.address:  # before a cluster is started
        first = min(n, version.covered + RANGE_ROWS)
        _plan(job, _stage_of(fitted, there, version.covered, first, ""), there, None, version, fitted).refuse()
    with place_for(job, there, told, n - version.covered) as place:
        stops = [*_waiting(version, n), *range(version.covered + RANGE_ROWS, n, RANGE_ROWS), n]
        for stop in stops:
            start = version.covered
            if start < stop:
                with told.stage(f"rows {start}:{stop}"):
                    before, known = known, covering(known, upto(there, max(stop, known.n)))
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
    job: JobSpec, version: Version, fitted: Any, there: Present, start: int, stop: int, place: Place, lock: Lock
) -> None:
    """Rows ``start:stop``: placed aside, then appended to the coordinates in one step with their account."""
    content = span_digest(there.path, start, stop)
    stage = _stage_of(fitted, there, start, stop, content)
    _plan(job, stage, there, place, version, fitted).refuse()
    aside = version.root / "placing" / f"{start}-{stop}"
    run = Run(aside, [fitted._run])
    try:
        run_stages([stage], run)
    except InputError as error:
        shutil.rmtree(aside)
        raise InputError(f"{there.path}, in rows {start}:{stop} (numbered from {start} as 0): {error}") from error
    account = Range(start, stop, "placed", content, model_digest(version.model))
    array = run.path(stage.name, "coordinates")
    placed = RowSource((stop - start, *read_array(array, 0, 0).shape[1:]), read_array(array, 0, 0).dtype, path=array)
    lock.check()
    append_source(version.array, placed, version.attributes([*version.ranges, account]))
    shutil.rmtree(aside)


def _stage_of(fitted: Any, there: Present, start: int, stop: int, content: str) -> Stage:
    """The stage that places rows ``start:stop``, of this content."""
    from bigembed.methods.extension import check_width, coordinates_of

    source = StoreRows((stop - start, there.shape[1]), there.dtype, path=there.path, first=start, content=content)
    extension = fitted._extension(fitted._run)
    check_width(source, extension, fitted)
    return coordinates_of(source, extension, fitted._run)


def span_digest(path: str, start: int, stop: int) -> str:
    """Digest of rows ``start:stop``, however they are stored."""
    width = read_array(path, 0, 0) if not path.endswith(".npy") else np.load(path, mmap_mode="r")[:0]
    spans = bounds(stop - start, block_rows(width.shape[1], width.dtype.itemsize))
    return digest_of(map_blocks(rows_digest, [(path, start + a, start + b) for a, b in spans], label="digest rows"))


def _plan(job: JobSpec, stage: Stage, there: Present, place: Place | None, version: Version, fitted: Any) -> Plan:
    """What the stage that places a range takes; ``place``: where the cluster is running already."""
    run, rows = fitted._run, there.shape[0] - version.covered
    shape, compiled = (rows, there.shape[1]), run.has("survey") and run.results("survey")["n"] > UNCOMPILED_ROWS
    return Plan(
        there.path,
        str(version.array),
        shape,
        str(there.dtype),
        place_of(job.cluster, shape, rows * shape[1] * there.dtype.itemsize, place, False, compiled),
        ((stage.name, stage.cost),),
        (),
        shutil.disk_usage(nearest_folder(version.root)).free,
    )
