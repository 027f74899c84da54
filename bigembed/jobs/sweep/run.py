"""One graph, many embeddings: every stage that points share is computed once.

Each stage of each point is a run of its own (:mod:`bigembed.jobs.sweep.course`). What is there already is used again:
after a kill, and with values that were added or left out.
"""

from __future__ import annotations

import time
import tomllib
import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import Any

from bigembed.errors import BigembedError, BigembedWarning, ClusterError, InterruptedRun, JobError, LockedError
from bigembed.estimator.preprocessing import Prepared, said_of
from bigembed.estimator.reporting import without_numbers
from bigembed.jobs.inputs import Input, find_input
from bigembed.jobs.job import JobSpec, SweepTable
from bigembed.jobs.parameters import points_of
from bigembed.jobs.places.cluster import choose
from bigembed.jobs.places.place import Place
from bigembed.jobs.session import session, working
from bigembed.jobs.sweep.course import NAME as QUALITY
from bigembed.jobs.sweep.course import PAGE, Course, Leg, courses_of, fitted_steps, passes_of, plan_sweep, refuse_large
from bigembed.jobs.sweep.page import (
    TABLE,
    Shown,
    compared,
    outcome,
    page_of,
    refuse_other,
    unlike,
    write_page,
    write_table,
)
from bigembed.jobs.watching.reporter import Reporter, RunOptions
from bigembed.runtime.runtime import Event, using
from bigembed.stages.runs import Run
from bigembed.stages.stage import run_stages
from bigembed.store import manifests
from bigembed.store.paths import AnyPath

KIND = "sweep"
STOPS = (OSError, ClusterError, InterruptedRun, LockedError)
"""Errors that are not those of one point: of the disk, the cluster, the input, a signal."""


@dataclass
class Fit:
    """A point while it is computed, and what came of it."""

    course: Course
    runs: list[Run] = field(default_factory=list)
    computed: list[str] = field(default_factory=list)
    estimator: Any = None
    error: Exception | None = None


def sweep(job: JobSpec, options: RunOptions | None = None) -> dict[str, Any]:
    """Fit every point of the job's ``[sweep]``; ``table.csv`` and ``table.json`` in its output grow by a row with each.

    A row holds the parameters, the figures of the map, the path of the coordinates, eigenvalues, the rest of the
    certificate, the seconds that its stages took (whenever they were computed) and how many of them were computed for
    it. A point that is refused, or fails, is a row with the reason, and the others go on. At the end a page shows all
    maps, in ``[output] report`` or as ``maps.html`` in the output.

    Raises :class:`JobError`, :class:`PlanError` (if no point fits) before anything is computed, and of what a run
    raises all that is not of one point.
    """
    began = time.perf_counter()
    points_of(job)
    rows, root = find_input(job), job.output_path
    with session(root, options, job.method.name, job.output.scratch) as command:
        refuse_other(job)
        if not job.cluster.address and not root.exists():  # so that what is refused leaves nothing
            plan_sweep(job, None, rows).refuse()
        manifests.prepare(root, KIND)
        with command.held(root) as (reporter, _):
            kind = choose(job.cluster, rows.shape, rows.nbytes)
            with working(job.cluster, kind, reporter, lambda place: plan_sweep(job, place, rows)) as place:
                rows = _ready(job, rows, place, reporter)
                before = fitted_steps(job, rows, lambda source: passes_of(job, source), reporter)
                fits, table, said = [], [], set[str]()
                seen: set[AnyPath] = set()
                for course in _courses(job, before, reporter):
                    fits.append(_fitted(course, rows, before, seen, said, reporter))
                    table.append(_row(fits[-1], job))
                    write_table(root, compared(table))
                with reporter.stage(PAGE):
                    write_page(job, rows, [Shown(fit.estimator, row) for fit, row in zip(fits, table, strict=True)])
    return {
        "output": str(root),
        "table": str(root / f"{TABLE}.csv"),
        "page": str(page_of(job)),
        "points": len(table),
        "asked": sum(row["stages"] for row in table),
        "stages": sum(row["stages_computed"] for row in table),
        "refused": [f"{row['point']}: {row['error']}" for row in table if row["error"]],
        "rows": compared(table),
        "compare": unlike(table),
        "seconds": round(time.perf_counter() - began, 3),
    }


def _ready(job: JobSpec, rows: Input, place: Place, reporter: Reporter) -> Input:
    """The rows, written if they were not."""
    place.prove_access(job.output_path, None)
    if not rows.written:
        with reporter.stage("input"):
            rows = rows.ready()
    place.prove_access(job.output_path, str(rows.path))
    return rows


def _courses(job: JobSpec, before: Prepared, reporter: Reporter) -> Sequence[Course]:
    """The points, their folders by the rows as they are now."""
    assert reporter.plan is not None
    return refuse_large(replace(reporter.plan, stages=(), published=()), courses_of(job, before.source), job)


def _fitted(
    course: Course, rows: Input, before: Prepared, seen: set[AnyPath], said: set[str], reporter: Reporter
) -> Fit:
    """Fit one point: its stages, each in its folder, see those before it."""
    fit = Fit(course, error=course.refused)
    if fit.error is not None:
        return fit
    try:
        with _warnings_of(course, said):
            for leg in course.legs:
                fit.runs.append(_stage(leg, fit, seen, reporter))
            course.estimator.n_features_in_, course.estimator.steps_ = rows.shape[1], before.steps
            fit.estimator = course.estimator.adopt(fit.runs[-1], source=course.source)
            if before.steps:
                fit.estimator.certificate_["steps"] = said_of(before.steps)
    except (BigembedError, ArithmeticError, MemoryError, ValueError) as error:
        if isinstance(error, STOPS):
            raise
        fit.error = error
    return fit


def _stage(leg: Leg, fit: Fit, seen: set[AnyPath], reporter: Reporter) -> Run:
    """The stage of a point, computed or found; one that this sweep has ``seen`` is not looked at again."""
    run, name = Run(leg.folder, fit.runs[-1:]), leg.stage.name

    def tell(event: Event) -> None:
        if event.kind == "done":
            fit.computed.append(leg.name)
        reporter(replace(event, stage=leg.name))

    if leg.folder in seen:
        tell(Event("reused", name, results=run.results(name)))
        return run
    with using(observer=tell):
        run_stages([leg.stage], run)
    seen.add(leg.folder)
    return run


@contextmanager
def _warnings_of(course: Course, said: set[str]) -> Iterator[None]:
    """Warnings in the block begin with the point that they are of; what was ``said`` of one is left to the table."""
    with warnings.catch_warnings():
        shown = warnings.showwarning

        def show(message: Any, category: Any, *rest: Any, **more: Any) -> None:
            if not issubclass(category, BigembedWarning):
                shown(message, category, *rest, **more)
            elif (sentence := without_numbers(str(message))) not in said:
                said.add(sentence)
                shown(f"{course.point.label}: {message}", category, *rest, **more)

        warnings.showwarning = show
        yield


def _row(fit: Fit, job: JobSpec) -> dict[str, Any]:
    """What is said of a point."""
    point, course = fit.course.point, fit.course
    known = course.estimator.get_params()
    given = dict.fromkeys(name for one in points_of(job) for name in one.given)
    out: dict[str, Any] = {"point": point.label, "method": point.method}
    out |= {name: known.get(name, "") for name in given}
    out["error"] = "" if fit.error is None else str(fit.error)
    if fit.estimator is not None:
        last = fit.runs[-1]
        quality = last.results(QUALITY) if last.has(QUALITY) else {}
        out |= {"coordinates": last.path("coordinates", "embedding"), **outcome(fit.estimator, quality)}
    seconds = [
        run.manifest(leg.stage.name).measured["seconds"] for run, leg in zip(fit.runs, course.legs, strict=False)
    ]
    return out | {"stages": len(course.legs), "stages_computed": len(fit.computed), "seconds": round(sum(seconds), 3)}


def varied(job: JobSpec, texts: Sequence[str]) -> JobSpec:
    """The job with these values in its ``[sweep]``, instead of those of the same parameters; it may have had none."""
    if not texts:
        return job
    given, sweep = parse_values(texts), job.sweep or SweepTable()
    methods = given.pop("method", sweep.method)
    update = {"method": methods, "parameters": {**sweep.parameters, **given}}
    return job.model_copy(update={"sweep": sweep.model_copy(update=update)})


def parse_values(texts: Sequence[str]) -> dict[str, list[Any]]:
    """Values by parameter from texts such as ``n_neighbors=10,20``; words that are not TOML values are text.

    >>> parse_values(["k=10,20", "epsilon=auto,0.5"])
    {'k': [10, 20], 'epsilon': ['auto', 0.5]}
    """
    grid: dict[str, list[Any]] = {}
    for text in texts:
        name, equals, values = text.partition("=")
        if not equals or not name.strip() or not values.strip() or name.strip() in grid:
            raise JobError(f"--vary {text!r}; NAME=VALUE,VALUE,… is needed, each name once")
        grid[name.strip()] = [_value(part.strip()) for part in values.split(",")]
    return grid


def _value(text: str) -> Any:
    try:
        return tomllib.loads(f"value = {text}")["value"]
    except tomllib.TOMLDecodeError:
        return text
