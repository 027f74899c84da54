#!/usr/bin/env python3
"""A grid of parameters over one input: a table of what came out, shared stages computed once.

python workflows/sweep.py JOB.toml --vary n_neighbors=10,20,30 --vary alpha=0,0.5,1
"""

from typing import Annotated

import typer

from bigembed.jobs.arguments import AllowFunctions, Deadline, Debug, Job, Json, Log, Metrics, Scheduler
from bigembed.jobs.watching.console import Console


def main(
    job: Job,
    vary: Annotated[
        list[str], typer.Option(metavar="NAME=VALUES", help="A parameter and its values, separated by commas.")
    ],
    scheduler: Scheduler = None,
    deadline: Deadline = None,
    log: Log = None,
    metrics: Metrics = None,
    allow_functions: AllowFunctions = None,
    as_json: Json = False,
    debug: Debug = False,
) -> None:
    """Fit the job's method for every combination of the values, and write table.csv and table.json into its output.

    A row a point: parameters, eigenvalues, figures of the certificate, seconds. What is there already is used again:
    start it again after a stop, or with more values. Exit status: 0 done, 1 some points were refused (the table says
    why) or anything not listed, 2 bad input, 3 refused by the plan, 4 another sweep holds the output, 5 interrupted:
    the same command goes on, 6 damaged.
    """
    with Console(as_json, debug) as console:
        from bigembed.jobs.arguments import job_of, run_options
        from bigembed.jobs.report.lines import sweep_lines
        from bigembed.jobs.sweep import parse_values, sweep

        asked = job_of(job, allow_functions, scheduler)
        options = run_options(console, deadline, log, metrics)
        found = sweep(asked, parse_values(vary), options)
        console.result(found, sweep_lines(found))
        if found["refused"]:
            raise typer.Exit(1)


if __name__ == "__main__":
    typer.run(main)
