"""``bigembed sweep``."""

from __future__ import annotations

from typing import Annotated

import typer

from bigembed.jobs import arguments as given

FAILED = 1
"""Exit status of a sweep of which some points have no map."""


def sweep(
    job: given.Job,
    vary: Annotated[
        list[str] | None,
        typer.Option(metavar="NAME=VALUES", help="A parameter and its values, separated by commas; repeatable."),
    ] = None,
    scheduler: given.Scheduler = None,
    workers: given.Workers = None,
    memory: given.Memory = None,
    deadline: given.Deadline = None,
    log: given.Log = None,
    metrics: given.Metrics = None,
    performance_report: given.Performance = None,
    allow_functions: given.AllowFunctions = None,
    tls_ca: given.TlsCa = None,
    tls_cert: given.TlsCert = None,
    tls_key: given.TlsKey = None,
    as_json: given.Json = False,
    debug: given.Debug = False,
) -> None:
    """Fit every point of a job's [sweep]: what points share is computed once; a table, and a page of all maps.

    What is there already is used again: run it again after a stop, or with values added or left out. Exit status: 0
    done, 1 some points were refused or failed (the table says why), 2 bad input, 3 refused by the plan, 4 another sweep
    holds the output, 5 interrupted: the same command goes on, 6 damaged.
    """
    with given.console_of(as_json, debug) as console:
        from bigembed.jobs.report.lines import sweep_lines
        from bigembed.jobs.sweep.run import sweep as sweep_job
        from bigembed.jobs.sweep.vary import varied

        asked = given.job_of(job, allow_functions, scheduler, workers, memory, tls_ca, tls_cert, tls_key)
        options = given.run_options(console, deadline, log, metrics, performance_report)
        found = sweep_job(varied(asked, vary or ()), options)
        console.result(found, sweep_lines(found))
        if found["refused"]:
            raise typer.Exit(FAILED)
