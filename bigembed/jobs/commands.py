"""The commands of a sweep and on a store that grows."""

from __future__ import annotations

from typing import Annotated

import typer

from bigembed.jobs import arguments as given
from bigembed.jobs.arguments import grouped

# -------------------------------------------------------------------------------------------------------- commands
# The commands on a store that grows: ``bigembed refresh`` and ``bigembed audit``.


@grouped
def refresh(
    job: given.Job,
    *,
    machines: given.Machines,
    fresh: Annotated[
        bool, typer.Option("--fresh", help="Fit in any case, rows that were there and have changed as they are now.")
    ] = False,
    verify: given.Verify = False,
    keep: Annotated[int, typer.Option(min=0, help="Versions kept before the current one.")] = 1,
    watching: given.Watching,
    trust: given.Trust,
    printing: given.Printing,
) -> None:
    """Fit all rows of a growing store, and make run, model and coordinates the current ones in one step.

    Does nothing where nothing has changed. Rows appended meanwhile are left to bigembed extend. Exit status: 0 done,
    2 bad input (rows that were there have changed or are gone, too), 3 refused by the plan, 4 another job holds the
    output, 5 interrupted: the same command goes on, 6 damaged, 1 anything else.
    """
    with printing.console() as console:
        from bigembed.jobs.growth.refresh import refresh as refresh_job
        from bigembed.jobs.report.lines import refresh_lines

        asked = given.job_of(job, machines, trust)
        options = watching.options(console)
        found = refresh_job(asked, options, fresh=fresh, verify=verify, keep=keep)
        console.result(found, refresh_lines(found))


@grouped
def audit(
    job: given.Job,
    *,
    machines: given.Machines,
    growth: Annotated[float, typer.Option(min=0, help="Due at this many new rows, as a share of those fitted.")] = 1.0,
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
    watching: given.Watching,
    trust: given.Trust,
    printing: given.Printing,
) -> None:
    """Whether the current model still fits the rows appended to a growing store: audit.json, and the exit status.

    A refresh is due if a figure is beyond its limit by more than two standard errors. Exit status: 0 the model fits,
    7 refresh due, 2 bad input (or no model yet), 4 another audit is running, 5 interrupted, 6 damaged, 1 anything else.
    """
    with printing.console() as console:
        from bigembed.jobs.growth.audit import DUE, Limits
        from bigembed.jobs.growth.audit import audit as audit_job
        from bigembed.jobs.report.lines import audit_lines

        asked = given.job_of(job, machines, trust)
        options = watching.options(console)
        limits = Limits(growth, ratio, beyond, recall, least)
        found = audit_job(asked, options, limits=limits, sample=sample, seed=seed)
        console.result(found, audit_lines(found))
        if found["due"]:
            raise typer.Exit(DUE)


# --------------------------------------------------------------------------------------------------------- command
# ``bigembed sweep``.

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
