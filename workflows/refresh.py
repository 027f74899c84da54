#!/usr/bin/env python3
"""Fit all rows of a growing store, and make run, model and coordinates the current ones in one step.

python workflows/refresh.py JOB.toml --scheduler tls://host:8786 --deadline 06:30
"""

from typing import Annotated

import typer

from bigembed.jobs.arguments import AllowFunctions, Deadline, Debug, Job, Json, Log, Metrics, Scheduler
from bigembed.jobs.watching.console import Console


def main(
    job: Job,
    scheduler: Scheduler = None,
    deadline: Deadline = None,
    fresh: Annotated[
        bool, typer.Option("--fresh", help="Fit in any case, rows that were there and have changed as they are now.")
    ] = False,
    verify: Annotated[
        bool, typer.Option("--verify", help="Read all rows that were there, whatever the times of their files say.")
    ] = False,
    keep: Annotated[int, typer.Option(min=0, help="Versions kept before the current one.")] = 1,
    log: Log = None,
    metrics: Metrics = None,
    allow_functions: AllowFunctions = None,
    as_json: Json = False,
    debug: Debug = False,
) -> None:
    """Fit all rows that are there now, and make run, model and coordinates the current ones in one step.

    Does nothing where nothing has changed. Rows appended meanwhile are left to extend.py. Exit status: 0 done,
    2 bad input (rows that were there have changed or are gone, too), 3 refused by the plan, 4 another job holds the
    output, 5 interrupted: the same command goes on, 6 damaged, 1 anything else.
    """
    with Console(as_json, debug) as console:
        from bigembed.jobs.arguments import job_of, run_options
        from bigembed.jobs.growth.refresh import refresh
        from bigembed.jobs.report.lines import refresh_lines

        asked = job_of(job, allow_functions, scheduler)
        options = run_options(console, deadline, log, metrics)
        found = refresh(asked, options, fresh=fresh, verify=verify, keep=keep)
        console.result(found, refresh_lines(found))


if __name__ == "__main__":
    typer.run(main)
