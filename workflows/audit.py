#!/usr/bin/env python3
"""Whether the current model still fits the rows appended to a growing store; exit status 7: a refresh is due.

python workflows/audit.py JOB.toml; [ $? -ne 7 ] || python workflows/refresh.py JOB.toml
"""

from typing import Annotated

import typer

from bigembed.jobs.arguments import AllowFunctions, Deadline, Debug, Job, Json, Log, Metrics, Scheduler
from bigembed.jobs.watching.console import Console


def main(
    job: Job,
    scheduler: Scheduler = None,
    deadline: Deadline = None,
    growth: Annotated[float, typer.Option(min=0, help="Due at so many new rows, as a share of those fitted.")] = 1.0,
    ratio: Annotated[
        float, typer.Option(min=0, help="Due beyond this ratio of medians, new to fitted rows: distance, misfit.")
    ] = 1.5,
    beyond: Annotated[
        float,
        typer.Option(min=0, max=1, help="Due beyond this share of new rows in the last hundredth of the fitted ones."),
    ] = 0.05,
    recall: Annotated[float, typer.Option(min=0, max=1, help="Due below this recall of the search.")] = 0.9,
    least: Annotated[int, typer.Option(min=1, help="Fewer new rows are judged by --growth alone.")] = 100,
    sample: Annotated[int, typer.Option(min=2, help="Rows looked at, of the new and of the fitted ones.")] = 2_000,
    seed: Annotated[int, typer.Option(help="Of the sample.")] = 0,
    log: Log = None,
    metrics: Metrics = None,
    allow_functions: AllowFunctions = None,
    as_json: Json = False,
    debug: Debug = False,
) -> None:
    """Compare the rows that came since the last refresh with those it fitted, and write audit.json into the output.

    A refresh is due if a figure is beyond its limit by more than two standard errors. Exit status: 0 the model fits,
    7 refresh due, 2 bad input (or no model yet), 4 another audit is running, 5 interrupted, 6 damaged, 1 anything else.
    """
    with Console(as_json, debug) as console:
        from bigembed.jobs.arguments import job_of, run_options
        from bigembed.jobs.growth.audit import DUE, Limits, audit
        from bigembed.jobs.report.lines import audit_lines

        asked = job_of(job, allow_functions, scheduler)
        options = run_options(console, deadline, log, metrics)
        limits = Limits(growth, ratio, beyond, recall, least)
        found = audit(asked, options, limits=limits, sample=sample, seed=seed)
        console.result(found, audit_lines(found))
        if found["due"]:
            raise typer.Exit(DUE)


if __name__ == "__main__":
    typer.run(main)
