"""``bigembed sweep``."""

from __future__ import annotations

from typing import Annotated

import typer

from bigembed.jobs import arguments as given
from bigembed.jobs.option_groups import grouped

FAILED = 1
"""Exit status of a sweep of which some points have no map."""


@grouped
def sweep(
    job: given.Job,
    vary: Annotated[
        list[str] | None,
        typer.Option(metavar="NAME=VALUES", help="A parameter and its values, separated by commas; repeatable."),
    ] = None,
    *,
    machines: given.Machines,
    watching: given.Watching,
    performance_report: given.Performance = None,
    trust: given.Trust,
    printing: given.Printing,
) -> None:
    """Fit every point of the sweep in a job file: what points share is computed once; a table, and a page of all maps.

    What is there already is used again: run it again after a stop, or with values added or left out. Exit status: 0
    done, 1 some points were refused or failed (the table says why), 2 bad input, 3 refused by the plan, 4 another sweep
    holds the output, 5 interrupted: the same command goes on, 6 damaged.
    """
    with printing.console() as console:
        from bigembed.jobs.report.lines import sweep_lines
        from bigembed.jobs.sweep.run import sweep as sweep_job
        from bigembed.jobs.sweep.run import varied

        asked = given.job_of(job, machines, trust)
        options = watching.options(console, performance_report)
        found = sweep_job(varied(asked, vary or ()), options)
        console.result(found, sweep_lines(found))
        if found["refused"]:
            raise typer.Exit(FAILED)
