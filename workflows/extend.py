#!/usr/bin/env python3
"""Coordinates, by the current model, of the rows appended to a growing store since the last call: each row once.

python workflows/extend.py JOB.toml --scheduler tls://host:8786
"""

from typing import Annotated

import typer

from bigembed.jobs.arguments import AllowFunctions, Deadline, Debug, Job, Json, Log, Metrics, Scheduler
from bigembed.jobs.watching.console import Console


def main(
    job: Job,
    scheduler: Scheduler = None,
    deadline: Deadline = None,
    verify: Annotated[
        bool, typer.Option("--verify", help="Read all rows that were there, whatever the times of their files say.")
    ] = False,
    log: Log = None,
    metrics: Metrics = None,
    allow_functions: AllowFunctions = None,
    as_json: Json = False,
    debug: Debug = False,
) -> None:
    """Place the rows appended since the last call by the current model, each exactly once.

    Exit status: 0 done (or nothing new), 2 bad input (rows that were there have changed or are gone, or there is no
    model yet), 3 refused by the plan, 4 another job holds the output, 5 interrupted: the same command goes on,
    6 damaged, 1 anything else.
    """
    with Console(as_json, debug) as console:
        from bigembed.jobs.arguments import job_of, run_options
        from bigembed.jobs.growth.extend import extend
        from bigembed.jobs.report.lines import growth_lines

        asked = job_of(job, allow_functions, scheduler)
        options = run_options(console, deadline, log, metrics)
        found = extend(asked, options, verify=verify)
        console.result(found, growth_lines(found))


if __name__ == "__main__":
    typer.run(main)
