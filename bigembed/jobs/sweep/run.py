"""One graph, many embeddings: every stage that points share is computed once.

Each stage of each point is a run of its own (:mod:`bigembed.jobs.sweep.prepared`). What is there already is used again:
after a kill, and with values that were added or left out.
"""

from __future__ import annotations

import time
import tomllib
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

from bigembed.errors import BigembedError, BigembedWarning, ClusterError, InterruptedRun, JobError, LockedError
from bigembed.estimator.preprocessing import Prepared, said_of
from bigembed.estimator.reporting import without_numbers
from bigembed.jobs.inputs import Input, find_input
from bigembed.jobs.job import JobSpec, SweepTable
from bigembed.jobs.parameters import points_of
from bigembed.jobs.places.cluster import choose
from bigembed.jobs.session import copied, session, working
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
from bigembed.jobs.sweep.prepared import NAME as QUALITY
from bigembed.jobs.sweep.prepared import PAGE, PointStage, PreparedPoint, fit_steps, prepare_sweep
from bigembed.jobs.watching.logs import warnings_changed
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
class FittedPoint:
    """A point while it is computed, and what came of it."""

    prepared: PreparedPoint
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
        prepared = None
        if not job.cluster.address and not root.exists():  # so that what is refused leaves nothing
            prepared = prepare_sweep(job, None, rows)
            prepared.plan.refuse()
        manifests.prepare(root, KIND)
        with command.held(root) as (reporter, _):
            kind = choose(job.cluster, rows.shape, rows.nbytes)
            make = partial(prepare_sweep, job, rows=rows)
            with working(job.cluster, kind, reporter, lambda place: prepared or make(place)) as (place, ours):
                place.prove_access(root, None)
                rows = copied(rows, reporter)
                place.prove_access(root, str(rows.path))
                before = fit_steps(job, rows, reporter)
                fits, table, shown = [], [], set[str]()
                seen: set[AnyPath] = set()
                for point in ours.points_for(rows, before):
                    fits.append(_fit(point, rows, before, seen, shown, reporter))
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


def _fit(
    prepared: PreparedPoint, rows: Input, before: Prepared, seen: set[AnyPath], shown: set[str], reporter: Reporter
) -> FittedPoint:
    """Fit one point: its stages, each in its folder, see those before it.

    Its warnings begin with its name; what was ``shown`` of another point is left to the table.
    """
    fit = FittedPoint(prepared, error=prepared.refused)
    if fit.error is not None:
        return fit

    def named(message: Any, category: type[Warning]) -> Any:
        if not issubclass(category, BigembedWarning):
            return message
        known = (sentence := without_numbers(str(message))) in shown
        shown.add(sentence)
        return None if known else f"{prepared.point.label}: {message}"

    try:
        with warnings_changed(named):
            for one in prepared.stages:
                fit.runs.append(_run_stage(one, fit, seen, reporter))
            prepared.estimator.n_features_in_, prepared.estimator.steps_ = rows.shape[1], before.steps
            fit.estimator = prepared.estimator.adopt(fit.runs[-1], source=prepared.source)
            if before.steps:
                fit.estimator.certificate_["steps"] = said_of(before.steps)
    except (BigembedError, ArithmeticError, MemoryError, ValueError) as error:
        if isinstance(error, STOPS):
            raise
        fit.error = error
    return fit


def _run_stage(one: PointStage, fit: FittedPoint, seen: set[AnyPath], reporter: Reporter) -> Run:
    """The stage of a point, computed or found; one that this sweep has ``seen`` is not looked at again."""
    run, name = Run(one.folder, fit.runs[-1:]), one.stage.name

    def tell(event: Event) -> None:
        if event.kind == "done":
            fit.computed.append(one.name)
        reporter(replace(event, stage=one.name))

    if one.folder in seen:
        tell(Event("reused", name, results=run.results(name)))
        return run
    with using(observer=tell):
        run_stages([one.stage], run)
    seen.add(one.folder)
    return run


def _row(fit: FittedPoint, job: JobSpec) -> dict[str, Any]:
    """What is said of a point."""
    point, stages = fit.prepared.point, fit.prepared.stages
    known = fit.prepared.estimator.get_params()
    given = dict.fromkeys(name for one in points_of(job) for name in one.given)
    out: dict[str, Any] = {"point": point.label, "method": point.method}
    out |= {name: known.get(name, "") for name in given}
    out["error"] = "" if fit.error is None else str(fit.error)
    if fit.estimator is not None:
        last = fit.runs[-1]
        quality = last.results(QUALITY) if last.has(QUALITY) else {}
        out |= {"coordinates": last.path("coordinates", "embedding"), **outcome(fit.estimator, quality)}
    seconds = [run.manifest(one.stage.name).measured["seconds"] for run, one in zip(fit.runs, stages, strict=False)]
    return out | {"stages": len(stages), "stages_computed": len(fit.computed), "seconds": round(sum(seconds), 3)}


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
