"""Run a job: plan, prove access, fit, save, draw; resumed by running it again.

The output holds, besides the stages, ``job.json``: what was asked, what it planned and what was measured;
``status.json``: how it stands (:mod:`bigembed.jobs.watching.status`); and ``hold/``: who works on it.
"""

from __future__ import annotations

import time
from contextlib import ExitStack, suppress
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np

from bigembed import __version__
from bigembed.errors import BigembedWarning, DamagedError, ExistingOutputError, JobError
from bigembed.estimator import retention_of, set_frame
from bigembed.estimator.frame import place_of
from bigembed.jobs import parameters, places, sweep
from bigembed.jobs.condensed_input import PLACED, CondensedInput, find_job_input
from bigembed.jobs.inputs import Input
from bigembed.jobs.job import JobSpec
from bigembed.jobs.places.cluster import KINDS, choose, is_planned, known_place
from bigembed.jobs.planning.plan import Plan
from bigembed.jobs.record import COORDINATES, RECORD, definition, key_of_run, key_there, known_record
from bigembed.jobs.report.leading import leading_columns
from bigembed.jobs.row_ids import keep_ids
from bigembed.jobs.session import PreparedJob, copied, estimator, prepare, session, stages_of, working
from bigembed.jobs.watching import Reporter, RunOptions, logs, status
from bigembed.jobs.watching.logs import warnings_changed
from bigembed.jobs.watching.status import known_status
from bigembed.rows.formats.copying import copy_vector, vector_source
from bigembed.rows.formats.tables import ID, check_table
from bigembed.runtime import Event, Observer, using
from bigembed.stages import Run, keeping, locked, supersede
from bigembed.stages.runs import Retention, dropped_in, lacks, release
from bigembed.stages.stage import exchange_home, left_behind
from bigembed.steps.each_column import kept_of
from bigembed.store import (
    AnyPath,
    arrays,
    at,
    files,
    locks,
    manifests,
    move,
    published,
    remove,
    retire,
    stamp,
    superseded,
)
from bigembed.store.attributes import COORDINATES as DIMENSIONS
from bigembed.store.attributes import is_dataset, publish_dataset, remove_arrays, remove_dataset, share_array

ARRAYS = {ID: "ids"}
"""Names of arrays in the root of a run that are others than the columns of a table."""
COLOURED = 100_000
"""Rows up to which a picture is coloured by what is known of a data set."""


def run_job(
    job: JobSpec, options: RunOptions | None = None, *, fresh: bool = False, rows: Input | None = None
) -> dict[str, Any]:
    """Run the job to its end, or go on where it stopped. Returns what ``job.json`` then holds.

    A job that is done is left as it is (``"unchanged": True``). ``fresh`` removes the run's stages, once
    nothing stands in the way of making them anew. ``rows``: other ones than all that the job names (the first rows of
    a growing store).
    Raises what the method raises; :class:`InterruptedRun` on SIGTERM, SIGINT, SIGHUP or the deadline;
    :class:`LockedError`; :class:`ExistingOutputError`; :class:`PlanError`; :class:`WorkerAccessError`.
    """
    parameters.require_single(job)
    if job.output.align is not None:
        raise JobError(f"{job.file}: [output] align: only a growing store stays put (bigembed refresh); leave it out")
    root = job.output_path
    with session(root, options, job.method.name, job.output.scratch) as command:
        if job.output.table is not None:
            check_table(job.output.table)
        rows = rows or find_job_input(job)
        command.metrics.rows = rows.shape[0]
        prepared = None
        if is_planned(job.cluster) and not root.exists():  # so that what is refused leaves nothing
            prepared = prepare(job, None, rows)
            prepared.plan.refuse()
        if not root.exists():
            _claim(job, root)  # (before a folder is made)
        run = Run(root)
        with keeping(run) as lock, ExitStack() as stack:
            _claim(job, root)
            _refuse_changed(job, root)
            found = None if fresh else _finished(job, rows, run)
            if found is not None:
                _drop_rest(job, rows, run)
            if found is not None and found.get("source") != copied_source(rows):  # (written anew, as it was)
                found = found | {"source": copied_source(rows)}
                files.write_json(root / RECORD, files.sealed(found))
            if found is not None and known_status(root).get("state") == "done":
                return {**found, "unchanged": True}
            stack.enter_context(locks.output_lock(*_outputs(job)))
            _claim(job, root)  # (what another job made meanwhile)
            reporter = stack.enter_context(command.reported(lock.owner, root / status.NAME, root / logs.NAME))
            if found is not None:  # the last start ended otherwise: it is done all the same
                return {**found, "unchanged": True}
            if prepared is not None:
                prepared = replace(prepared, run=run)
            with reporter.status.fruitful(partial(left_behind, run)):
                return _run(job, rows, run, prepared, reporter, fresh)


def plan_job(job: JobSpec, calibrate: bool = False, window: float | None = None) -> Plan:
    """Return the plan of a job; a running cluster is asked for its workers unless the job says them.

    ``window``: seconds that each start has, if it has a deadline.
    """
    make: Any = prepare if job.sweep is None else sweep.prepare_sweep
    with known_place(job.cluster) as place:
        found: Plan = make(job, place, calibrate=calibrate).plan
        return replace(found, window=window, walltime=job.cluster.walltime)


def _drop_rest(job: JobSpec, rows: Input, run: Run) -> None:
    """Drop what a finished run has kept and the job does not ask for; its outputs are put there again."""
    retention = _retention(job, rows, run)
    if retention is not None:
        release(run, retention, [stage.name for stage in retention.stages if run.has(stage.name)], again=True)
        if not is_dataset(run.root):
            publish_outputs(rows, run)


def _retention(job: JobSpec, rows: Input, run: Run) -> Retention | None:
    """Return what is to stay of the stages of a job that is done."""
    if job.output.keep == "all":
        return None
    chosen = estimator(job)
    set_frame(chosen, rows.frame)
    return retention_of(chosen, stages_of(chosen, rows, run))


def remove_stages(run: Run) -> None:
    """Unpublish and delete every stage of a run."""
    with locked(run):
        for name in run.published():
            manifests.discard(run.root, name)
        for folder in (
            *(run.root / name for name in ("stages", "exchange", "manifest", superseded.FOLDER)),
            exchange_home(run),
        ):
            remove(folder)


def _run(
    job: JobSpec, rows: Input, run: Run, prepared: PreparedJob | None, reporter: Reporter, fresh: bool
) -> dict[str, Any]:
    """Run a job that holds its output; one that is not prepared yet is prepared where its workers are known."""
    began, root = time.perf_counter(), run.root
    kind = choose(job.cluster, rows.shape, rows.nbytes)
    if prepared is None and KINDS[kind].planned:
        prepared = prepare(job, None, rows, run)
        prepared.plan.refuse()
    make = partial(prepare, job, rows=rows, run=run)
    with working(job.cluster, kind, reporter, lambda place: prepared or make(place)) as (place, ours):
        place.prove_access(root, None)
        if job.output.scratch is not None:
            at(job.output.scratch).mkdir(parents=True, exist_ok=True)
            place.prove_access(at(job.output.scratch), None)
        record = _begin(ours, reporter)
        if fresh:
            remove_stages(run)
        keep_ids(rows, run)
        if not rows.written:
            rows = copied(rows, reporter)
            keep_ids(rows, run)
        place.prove_access(root, str(rows.path))
        said: list[str] = []
        with using(observer=_recording(record, root, reporter)), warnings_changed(partial(_kept, said)):
            fitted = ours.with_rows(rows).fit()
            if isinstance(rows, CondensedInput):
                _place(job, rows, fitted, run, reporter)
        _save(job, fitted, reporter)
        _tabulate(job, root, reporter)
        _draw(job, root, rows, fitted, reporter)
        publish_outputs(rows, run)
    record |= {
        "key": key_of_run(job, rows),
        "finished": True,
        "n": rows.shape[0],
        "d": rows.shape[1],
        "seconds": round(time.perf_counter() - began, 3),
        "predicted_seconds": record["plan"]["seconds"],
        "stages": reporter.stages,
        "keys": {name: run.manifest(name).address for name in run.published()},
        "predicted": record["plan"]["memory"],
        "measured": reporter.measured,
        "certificate": getattr(fitted, "certificate_", {}),
        "warnings": said,
        "leading": leading_columns(fitted),
        "stamps": {path: stamp(path) for path in _files(job) if at(path).exists()},
        "due": [path for path in (job.output.report, job.output.view) if path],
    }
    files.write_json(root / RECORD, files.sealed(record))
    _report(job, root, reporter)
    _view(job, root, reporter)
    del record["due"]  # (until here those of the map before may lie there)
    files.write_json(root / RECORD, files.sealed(record))
    return {**files.read_sealed(root / RECORD), "unchanged": False}


def _place(job: JobSpec, rows: CondensedInput, fitted: Any, run: Run, reporter: Reporter) -> None:
    """Place all rows of a job that condenses, and judge what that has done to the map."""
    from bigembed.jobs.condense import judge_condensing, place_rows

    assert job.condense is not None
    placed = None
    if job.condense.place:
        with reporter.stage(PLACED):
            placed = place_rows(rows, fitted, run, job.condense.dtype)
    with reporter.stage("compared"):
        judge_condensing(rows, fitted, placed)


def _begin(prepared: PreparedJob, reporter: Reporter) -> dict[str, Any]:
    """Supersede what this job does not use again, and write what it is, and what it will write."""
    job, rows, root = prepared.job, prepared.rows, prepared.run.root
    model, claimed = job.output.model, known_record(root, quiet=False).get("claimed", [])
    gone = supersede(prepared.stages, prepared.run, all_listed=True, retention=prepared.retention)
    if gone and model is not None and model in claimed:
        superseded.supersede_model(model, next(iter(gone.values())))
    record: dict[str, Any] = {
        "plan": prepared.plan.as_dict(),
        "job": definition(job, rows),
        "beside": {name: str(path) for name, path in rows.aligned.items()},
        "version": __version__,
        "outputs": _outputs(job),
        "claimed": sorted({*_outputs(job), *claimed}),
        "coordinates": key_there(root, COORDINATES),
        "source": copied_source(rows),
        "finished": False,
    }
    files.write_json(root / RECORD, files.sealed(record))
    reporter.status.write(claimed=record["claimed"])
    return record


def copied_source(rows: Input) -> dict[str, str]:
    """Return what rows were copied from, and how it was then; nothing for rows that are read where they lie."""
    return {"path": rows.about["copied"], "stamp": rows.about["stamp"]} if "copied" in rows.about else {}


def _recording(record: dict[str, Any], root: AnyPath, observer: Observer) -> Observer:
    """Return an observer that writes the key of the coordinates into the record as soon as they are published."""

    def observe(event: Event) -> None:
        if event.stage == COORDINATES and event.kind in ("done", "reused"):
            record["coordinates"] = key_there(root, COORDINATES)
            files.write_json(root / RECORD, files.sealed(record))
        observer(event)

    return observe


def _kept(said: list[str], message: Any, category: type[Warning]) -> Any:
    """Return the warning, its text kept for the record."""
    if issubclass(category, BigembedWarning):
        said.append(places.redacted(str(message)))
    return message


def _save(job: JobSpec, fitted: Any, reporter: Reporter) -> None:
    """Write the model aside, then put it in its place."""
    if job.output.model is None:
        return
    model = at(job.output.model)
    aside = model.with_name(model.name + ".partial")
    with reporter.stage("model"):
        remove(aside)
        try:
            fitted.save(aside)
        except OSError:
            remove(aside)
            raise
        retire(model)
        move(aside, model)


def _tabulate(job: JobSpec, root: AnyPath, reporter: Reporter) -> None:
    """The coordinates as a table, written aside and renamed; one that this run wrote before is replaced."""
    if job.output.table is None:
        return
    from bigembed.jobs.scene import export

    placed = job.condense is not None and job.condense.place
    with reporter.stage("table"):
        export(root / PLACED if placed else root, job.output.table, overwrite=True)


def publish_outputs(rows: Input, run: Run) -> None:
    """The coordinates, and what is known of their rows, as arrays in the root of the run: see the stored convention."""
    from bigembed.jobs.scene import table_of

    remove_dataset(run.root)
    remove_arrays(run.root)  # (of a start that was killed while it put them there)
    if not run.has(COORDINATES):
        return
    root, table = run.root, table_of(run.root)
    aligned = dict(table.aligned)
    if "labels" in rows.aligned:
        given, kept = vector_source(rows.aligned["labels"]), kept_of(run)
        aligned["labels"] = given if kept is None else kept.of(given)
    share_array(at(run.path(*place_of(run))), root / "coordinates")
    dimensions = {"coordinates": DIMENSIONS, **{ARRAYS.get(name, name): ("row",) for name in aligned}}
    for name, vector in aligned.items():
        place = root / ARRAYS.get(name, name)
        if str(vector.path).startswith(f"{root}/stages/"):
            share_array(at(str(vector.path)), place)
        else:
            remove(place)
            copy_vector(vector, place, "outputs")
    if len(values := table.about.get("eigenvalues", ())) == table.coordinates.width:
        arrays.write_array(root / "eigenvalues", np.asarray(values))
        dimensions["eigenvalues"] = ("coordinate",)
    about = {"names": list(table.names), **{key: table.about[key] for key in ("method", "parameters")}}
    publish_dataset(root, dimensions, about, [name for name in dimensions if dimensions[name] == ("row",)])


def _draw(job: JobSpec, root: AnyPath, rows: Input, fitted: Any, reporter: Reporter) -> None:
    """A picture of the two coordinates that show most, coloured as the page is: by labels, clusters, components, or
    what a data set knows, if it is not too large to be drawn anew."""
    if job.output.picture is None:
        return
    from bigembed.jobs.report import RunSummary
    from bigembed.jobs.report.run_map import coloring_of, why_first
    from bigembed.plotting import scatter
    from bigembed.store.files import temporary

    with reporter.stage("picture"):
        source = rows.dataset.name if rows.dataset else at(job.input.path or rows.path).name  # (no name of a copy)
        title = f"{job.method.name} of {source}"
        drawn = fitted.certificate_.get("drawn", {})
        asked: dict[str, Any] = {"axes": tuple(drawn.get("pair", (0, 1))), "note": why_first(drawn)}
        with temporary("picture") as scratch:
            if rows.dataset is None or rows.shape[0] <= COLOURED:
                found = coloring_of(RunSummary.read(root), None, len(fitted.embedding_), scratch)
                asked["labels" if found.kind == "classes" else "color"] = found.values
            scatter(job.output.picture, fitted.embedding_, title=title, **asked)


def _report(job: JobSpec, root: AnyPath, reporter: Reporter) -> None:
    """The page of the run, which reads the record: so it comes after it."""
    if job.output.report is None:
        return
    from bigembed.jobs.report.page import write_report

    with reporter.stage("report"):
        write_report(root, job.output.report)


def _view(job: JobSpec, root: AnyPath, reporter: Reporter) -> None:
    """The page of every row, which reads the record, too."""
    if job.output.view is None:
        return
    from bigembed.jobs.scene import view_run

    with reporter.stage("view"):
        view_run(root, job.output.view)


# ----------------------------------------------------------------------------------- outcomes


def _finished(job: JobSpec, rows: Input, run: Run) -> dict[str, Any] | None:
    """Return the record of this very job, if it ended and all that it wrote is there, every byte of its stages read."""
    record = known_record(run.root)
    if not rows.written or not record.get("finished") or record.get("key") != key_of_run(job, rows):
        return None
    if record.get("due") or _lacked_memory(record):  # (which there may be now: the plan knows)
        return None
    keys = record.get("keys", {})
    whole = bool(keys) and all(_sound(run, name) for name in keys)
    if dropped := [*dropped_in(run)]:
        retention = _retention(job, rows, run)
        if any(lacks(stage, (), retention) for stage in dropped):
            return None
    return record if whole and all(published(path) for path in record["outputs"]) else None


def _lacked_memory(record: dict[str, Any]) -> bool:
    """Return whether neighbors were searched by cells only because NN-descent did not fit into the memory there was."""
    forced = record.get("certificate", {}).get("recall", {}).get("forced", False)
    return bool(forced and record.get("plan", {}).get("without_descent"))


def _sound(run: Run, stage: str) -> bool:
    """Return whether a stage is there as it was published, and made from the stages that are there: as ``verify``
    asks."""
    with suppress(DamagedError):
        found = manifests.find(run.root, stage)
        return found is not None and not run.damage(found)
    return False


def _outputs(job: JobSpec) -> list[str]:
    output = job.output
    return [path for path in (output.table, output.model, output.picture, output.report, output.view) if path]


def _files(job: JobSpec) -> list[str]:
    """Return where the outputs lie that nothing but a run of this job writes: its table and its picture."""
    return [path for path in (job.output.table, job.output.picture) if path]


def _refuse_changed(job: JobSpec, root: AnyPath) -> None:
    """Refuse to take for its own, or to overwrite, what somebody has changed since this run wrote it."""
    known = known_record(root).get("stamps", {})
    wrong = [path for path in _files(job) if path in known and at(path).exists() and stamp(path) != known[path]]
    if wrong:
        raise ExistingOutputError(
            f"{', '.join(wrong)}: not what this run wrote, but changed since. Nothing was changed; move it away, and "
            "run the same command"
        )


def _claim(job: JobSpec, root: AnyPath) -> None:
    """Refuse to overwrite a model, a picture or a page that this run did not announce before."""
    own = known_record(root).get("claimed") or known_status(root).get("claimed") or []
    wrong = [path for path in _outputs(job) if path not in own and at(path).exists()]
    if wrong:
        raise ExistingOutputError(
            f"{', '.join(wrong)}: exists, and this run did not write it. Nothing was changed; choose "
            "another path or move it away"
        )
