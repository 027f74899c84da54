"""The steps before all points of a sweep: fitted once, in a run of their own."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from bigembed.estimator.before import Prepared, prepared
from bigembed.jobs.inputs import Input
from bigembed.jobs.job import JobSpec
from bigembed.jobs.planning.plan import steps_before
from bigembed.reuse import supersede
from bigembed.runs import Run
from bigembed.stages import Stage, locked, observing, run_stages
from bigembed.store.source import RowSource

FOLDER = "steps"
"""Of the run, in the output of the sweep."""


def steps_of(job: JobSpec, rows: Input, passes: Callable[[RowSource], float]) -> tuple[Prepared, Run | None]:
    """The steps as far as they are published, and their run if it is there. ``passes``: of all points together."""
    root = job.output_path / FOLDER
    run = Run(root) if job.steps and root.exists() else None
    return prepared(steps_before(job), rows.source(), run, passes), run


def fitted_steps(
    job: JobSpec, rows: Input, passes: Callable[[RowSource], float], observer: Callable[[Any], None]
) -> Prepared:
    """The steps, those computed that are not there."""
    if not job.steps:
        return Prepared((), rows.source())
    run = Run(job.output_path / FOLDER)
    with locked(run):
        supersede(prepared(steps_before(job), rows.source(), run, passes).stages, run, whole=True)

    def compute(stages: Sequence[Stage], run: Run) -> None:
        run_stages(stages, run)

    with observing(observer):
        found = prepared(steps_before(job), rows.source(), run, passes, compute)
        run_stages((), run, of=found.stages)
    return found
