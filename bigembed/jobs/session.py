"""What surrounds everything that works (its place, its log, its end in good order), and a job that is prepared."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from datetime import datetime
from functools import partial
from typing import Any

import tomli_w

from bigembed import estimator as estimators
from bigembed.errors import needed
from bigembed.estimator import pipeline, preprocessing
from bigembed.estimator.fitting import fit_listed, write_output
from bigembed.jobs.condensed_input import find_job_input
from bigembed.jobs.inputs import IDS, Input, rows_named
from bigembed.jobs.job import JobSpec
from bigembed.jobs.places import ClusterTable, Place
from bigembed.jobs.places.cluster import cluster
from bigembed.jobs.planning.notes import alternatives, label_notes, may_descend, pass_notes, search_notes
from bigembed.jobs.planning.plan import Plan, bare_plan, costs_of, need_libraries
from bigembed.jobs.row_ids import ids_stage
from bigembed.jobs.watching import MemoryPeak, Metrics, Reporter, RunOptions, Trace, logs, performance, status
from bigembed.jobs.watching.status import stoppable
from bigembed.maps import method, step
from bigembed.maps.clustering import Clustering, checked_clustering
from bigembed.maps.clustering.cluster import judge_clusters
from bigembed.maps.clustering.stages import stages_following
from bigembed.rows.formats import shape_note
from bigembed.rows.formats.copying import vector_source
from bigembed.runtime import using
from bigembed.runtime.outages import stores
from bigembed.stages import Run, Stage, outdated, reuse, run_at, runs
from bigembed.store import AnyPath
from bigembed.store.locks import Lock, Owner, hold


@dataclass(frozen=True)
class Session:
    """A command that works, from before it holds its output to its end."""

    output: str
    options: RunOptions
    metrics: Metrics

    @contextmanager
    def reported(self, owner: Owner, status_file: AnyPath, log: AnyPath | None = None) -> Iterator[Reporter]:
        """Around what holds its output: how it stands and how it ends is written. ``log``: the log that is kept."""
        with (
            logs.logs(self.output, log, self.options.log) as written,
            status.Status(status_file, owner, self.options.deadline) as standing,
            logs.warnings_changed(partial(self._warned, written, standing)),
        ):
            self.metrics.warnings = standing.warned
            if (last := standing.value["last_success"]) is not None:
                self.metrics.last_success = datetime.fromisoformat(last).timestamp()
            made = Reporter(self.options, self.output, standing, written, self.metrics)
            with made as reporter, stores.heard(reporter.hear), status.naming_full_disk(reporter.full):
                yield reporter

    def _warned(self, written: logs.Logs, standing: status.Status, message: Any, category: type[Warning]) -> Any:
        """Log a warning, which is shown as it is, and keep it with how the job stands."""
        standing.warning(message, category)
        self.metrics.warnings = standing.warned
        self.metrics.write()
        return written.warning(message, category)

    @contextmanager
    def hold_folder(self, root: AnyPath) -> Iterator[tuple[Reporter, Lock]]:
        """Hold a folder; its status and log are kept there."""
        with hold(root) as lock, self.reported(lock.owner, root / status.NAME, root / logs.NAME) as reporter:
            yield reporter, lock


@contextmanager
def session(output: Any, options: RunOptions | None, name: str, scratch: str | None = None) -> Iterator[Session]:
    """Around a command: a signal or the deadline stops it, metrics say how it ends; exchanges lie in ``scratch``."""
    options = options or RunOptions()
    metrics = Metrics(options.metrics, str(output), name)
    with stoppable(str(output), options.deadline), metrics, using(scratch=scratch):
        if options.performance_report is not None:
            needed("bokeh", "performance", "--performance-report")
        yield Session(str(output), options, metrics)


@contextmanager
def working(
    table: ClusterTable, kind: str, reporter: Reporter, prepare: Callable[[Place], Any] | None = None
) -> Iterator[tuple[Place, Any]]:
    """Around the tasks of a command: a place of this kind as the executor, its memory measured, its stages observed.

    ``prepare``: makes of the place what the command works on, with its plan; :class:`PlanError` if that does not fit.
    """
    with using(progress=reporter.progress, observer=reporter), cluster(table, kind) as place:
        prepared = None if prepare is None else prepare(place)
        if prepared is not None:
            reporter.planned(prepared.plan)
        room = None if place.executor.in_this_process else reporter.vector_memory
        with (
            MemoryPeak(place.local_pids) as peak,
            traced(reporter, place),
            using(executor=place.executor, vector_memory=room, worker_memory=reporter.worker_memory),
            using(recorder=reporter.trace and reporter.trace.map),
            performance(place, reporter.options.performance_report),
        ):
            reporter.peaks.append(peak)
            yield place, prepared


@contextmanager
def traced(reporter: Reporter, place: Place) -> Iterator[None]:
    """Record every task of a place in a file, if that is asked for."""
    if (path := reporter.options.trace) is None:
        yield
        return
    about = {"run": reporter.output, "rows": reporter.plan and list(reporter.plan.shape), "place": place.kind}
    with Trace(path, about) as reporter.trace:
        yield


def copied(rows: Input, reporter: Reporter) -> Input:
    """Return the rows of a command, copied or generated if they were not, as a stage of their own."""
    if rows.written:
        return rows
    with reporter.stage("input"):
        return rows.ready()


# ---------------------------------------------------------------------------------------------------------- prepared
# A prepared job: its rows, run, estimator, stages and plan, each made once and handed to whatever the job does.


@dataclass(frozen=True)
class PreparedJob:
    """A job with its rows, the run that holds its stages, the estimator that it describes, all stages, and the plan."""

    job: JobSpec
    rows: Input
    run: Run
    estimator: Any
    stages: tuple[Stage, ...]
    plan: Plan

    def with_rows(self, rows: Input) -> PreparedJob:
        """Return the job with its rows as they are now: copied or generated since it was planned."""
        return self if rows is self.rows else replace(self, rows=rows, stages=stages_of(self.estimator, rows, self.run))

    def fit(self) -> Any:
        """Fit the estimator, and write the coordinates; what the stages replace in the run is superseded already."""
        with rows_named(self.job.input.path):
            fit_listed(self.estimator, self.stages, self.run, self.rows.source)
        write_output(self.estimator)
        if (asked := clustering_of(self.job)) is not None:
            judge_clusters(self.estimator, asked, "weights" in self.rows.aligned)
        return self.estimator

    def planned(self) -> PreparedJob:
        """Return the job with the plan of its stages."""
        reused, damaged = self._reused()
        found = (*search_notes(self.stages, reused, self.run), *pass_notes(self.stages, reused))
        axes = [f"{self.job.input.path}: {note}"] if (note := shape_note(self.rows.reader)) else []
        notes = (*axes, *label_notes(self.rows.aligned, self.stages), *found)
        costs = tuple(costs_of(self.job, self.rows, self.stages))
        freed = runs.freed_bytes(self.run, self.retention, self.stages, reused)
        known: dict[str, Any] = {"published": reused, "damaged": damaged, "notes": notes, "freed": freed}
        return replace(self, plan=replace(self.plan, stages=costs, **known))

    def fitting(self) -> PreparedJob:
        """Return the job planned as it is if that fits, else without NN-descent if the job may choose the search."""
        any_search = self.planned()
        if not any_search.plan.problems() or not may_descend(self.stages):
            return any_search
        estimators.leave_out_descent(self.estimator)
        cells = replace(self, stages=stages_of(self.estimator, self.rows, self.run)).planned()
        fits = not cells.plan.problems()
        notes = tuple(f"with NN-descent {problem}" for problem in any_search.plan.problems()) if fits else ()
        return replace(cells, plan=replace(cells.plan, without_descent=True, notes=(*cells.plan.notes, *notes)))

    def would_fit(self, other: Any) -> bool:
        """Return whether the job with another estimator, after the same steps, fits."""
        other = pipeline.method_after(estimators.steps_before(self.estimator), other)
        changed = replace(self, estimator=other, stages=stages_of(other, self.rows, self.run))
        return not changed.fitting().plan.problems()

    @property
    def retention(self) -> runs.Retention | None:
        """Return what stays of the stages, if not all of it."""
        return estimators.retention_of(self.estimator, self.stages)

    def _reused(self) -> tuple[tuple[str, ...], tuple[str, ...]]:
        """Return stages that the job will not compute again, and damage to others.

        A stage that follows a computed one is computed, too.
        """
        stages, ids = list(self.stages), self.rows.ids
        if ids is not None and self.rows.there(IDS):
            stages.insert(0, ids_stage(vector_source(ids)))
        why = outdated(stages, self.run, retention=self.retention)
        damaged = tuple(reason for reason in why.values() if reason.startswith(reuse.DAMAGED))
        return tuple(stage.name for stage in stages if stage.name not in why), damaged


def prepare(
    job: JobSpec,
    place: Place | None = None,
    rows: Input | None = None,
    run: Run | None = None,
    *,
    calibrate: bool = False,
) -> PreparedJob:
    """Prepare a job. ``place``: the cluster, where it is running already; ``run``: that of the job, if it is open.

    Nothing is written but, where this disk was not measured yet, 16 MiB for as long as that takes. ``calibrate``:
    measure this machine anew.
    """
    need_libraries(job)
    rows = rows or find_job_input(job)
    run = run or run_at(job.output_path)
    chosen = estimator(job)
    estimators.set_frame(chosen, rows.frame)
    stages = stages_of(chosen, rows, run)  # (whose modules are loaded by now)
    bare = bare_plan(job, rows, place, [] if run.temporary else [run], calibrate)
    found = PreparedJob(job, rows, run, chosen, stages, bare).fitting()
    if not found.plan.problems():
        return found
    changes = alternatives(chosen, found.would_fit)
    advice = tuple(f"[method] {tomli_w.dumps(one).strip()} would fit" for one in changes)
    return replace(found, plan=replace(found.plan, advice=advice))


def stages_of(chosen: Any, rows: Input, run: Run) -> tuple[Stage, ...]:
    """List the stages of an estimator and of its steps for the rows of a job."""
    return tuple(preprocessing.all_stages(estimators.spec_of(chosen), rows.source, run))


def estimator(job: JobSpec) -> Any:
    """Make the estimator that the job describes, after its steps; its stages are kept in the output."""
    where = {"workdir": str(job.output_path)} | ({"keep": job.output.keep} if job.output.keep != "all" else {})
    chosen = method(job.method.name)(**job.method.parameters, **where)
    if (asked := clustering_of(job)) is not None:
        estimators.follow_with(chosen, partial(stages_following, asked=asked))
    return pipeline.method_after(steps_of_job(job), chosen)


def clustering_of(job: JobSpec) -> Clustering | None:
    """Return what a job asks of clusters after its map."""
    return None if job.clusters is None else checked_clustering(job.clusters.model_dump(exclude_none=True))


def steps_of_job(job: JobSpec) -> list[Any]:
    """Make the steps of a job, not fitted."""
    return [step(one.name)(**one.parameters) for one in job.steps]
