"""What the scripts in ``workflows/`` share: the job they are given, and what they print of the outcome."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from bigembed.jobs.job import JobSpec
from bigembed.jobs.spec import read_job
from bigembed.jobs.units import parse_deadline
from bigembed.jobs.watching.console import Console
from bigembed.jobs.watching.reporter import RunOptions


def asked_for(
    console: Console,
    file: Path,
    scheduler: str | None = None,
    deadline: str | None = None,
    log: str | None = None,
    metrics: Path | None = None,
    functions: Sequence[str] | None = None,
) -> tuple[JobSpec, RunOptions]:
    """The job of a file, on a running scheduler if one is named; and what its start asks for."""
    job = read_job(file, functions or ())
    if scheduler is not None:
        job = job.model_copy(update={"cluster": job.cluster.model_copy(update={"address": scheduler})})
    until = parse_deadline(deadline) if deadline else None
    return job, RunOptions(console.event, console.progress, until, log, metrics)


def refresh_lines(found: dict[str, Any]) -> list[str]:
    """The outcome of a refresh for people."""
    if found["unchanged"]:
        return [f"{found['output']}: {found['fitted']:,} rows fitted, and nothing has changed; nothing to do"]
    return [
        f"{found['output']}: {found['fitted']:,} rows fitted in {found['seconds']:.1f} s",
        f"model: {found['model']}",
        f"coordinates: {found['coordinates']}",
    ]


def extend_lines(found: dict[str, Any]) -> list[str]:
    """The outcome of an extension for people."""
    where = f"{found['rows']:,} rows have coordinates, {found['fitted']:,} of them fitted"
    other = "the job file asks for other parameters than the current model has; a refresh makes such a one"
    return [
        f"{found['output']}: "
        + ("no new rows; nothing to do" if found["unchanged"] else f"{found['placed']:,} rows placed"),
        f"{where}: {found['coordinates']}",
        *([other] if found["other_parameters"] else []),
    ]


def audit_lines(found: dict[str, Any]) -> list[str]:
    """The outcome of an audit for people."""
    rows, lines = found["rows"], []
    lines.append(
        f"{found['output']}: {rows['new']:,} rows since the fit of {rows['fitted']:,}; judged by {rows['judged']:,}"
    )
    for name, figures in found["figures"].items():
        shown = ", ".join(f"{key} {value:.4g}" for key, value in figures.items() if isinstance(value, (int, float)))
        lines.append(f"  {name}: {shown}")
    return [*lines, *([f"refresh due: {reason}" for reason in found["due"]] or ["the model fits"])]


def sweep_lines(found: dict[str, Any]) -> list[str]:
    """The outcome of a sweep for people."""
    return [
        f"{found['points']} points, {found['stages']} stages computed for {found['asked']} asked",
        f"table: {found['table']}",
    ]
