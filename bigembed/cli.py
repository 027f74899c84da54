"""The command line: parses, calls the jobs, prints. Heavy modules are imported where they are needed."""

from __future__ import annotations

import time
from dataclasses import astuple
from pathlib import Path
from typing import Annotated

import typer

from bigembed import __version__
from bigembed.jobs import arguments
from bigembed.jobs.arguments import grouped

app = typer.Typer(
    add_completion=False,
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    help="Low-dimensional coordinates of row-chunked arrays that do not fit in memory.",
    epilog="Exit status: 0 done, 2 bad input or job file, 3 refused by the plan, 4 another run holds the output, 5 "
    "interrupted and resumable, 6 damaged, 7 refresh due, 8 no progress, 9 a map moved too far, 1 anything else.",
)


@app.callback(invoke_without_command=True)
def _root(version: Annotated[bool, typer.Option("--version", help="Show the version.")] = False) -> None:
    if version:
        typer.echo(f"bigembed {__version__}")
        raise typer.Exit


@app.command()
@grouped
def ingest(
    source: Annotated[
        str,
        typer.Argument(
            help="A Zarr array, .npy, Parquet or CSV (file or folder of them), HDF5, AnnData (.h5ad, .zarr), netCDF, "
            "a folder of pictures, fvecs, bvecs, ivecs or idx (MNIST, also .gz)."
        ),
    ],
    dest: Annotated[str, typer.Argument(help="The new Zarr array; of sparse rows a CSR group.")],
    *,
    selection: arguments.Selection,
    dense: Annotated[bool, typer.Option("--dense", help="Write sparse rows dense.")] = False,
    missing: arguments.Missing = False,
    printing: arguments.Printing,
) -> None:
    """Copy rows of a known format into a chunked, checksummed Zarr array."""
    with printing.console() as console:
        from bigembed.jobs.watching.status import writing
        from bigembed.rows.formats import array_note
        from bigembed.rows.formats import ingest as copy
        from bigembed.runtime import using
        from bigembed.runtime.executors import LocalPool

        ids = {} if selection.ids is None else {"ids": selection.ids}
        with writing(dest), using(executor=LocalPool(), progress=console.progress):
            n, d = copy(source, dest, choice := selection.choice(dense, missing), ids)
        note = array_note(source, choice)
        lines = [f"{dest}: {n:,} rows of {d} numbers", *([f"{source}: {note}"] if note else [])]
        console.result({"output": str(dest), "n": n, "d": d}, lines)


@app.command()
@grouped
def append(
    store: Annotated[str, typer.Argument(help="The Zarr array, as ingest wrote it.")],
    new: Annotated[str, typer.Argument(help="The rows to append, in any format that ingest knows.")],
    *,
    selection: arguments.Selection,
    missing: arguments.Missing = False,
    by_position: Annotated[
        bool, typer.Option("--by-position", help="Take columns as they stand in the file, whatever their names.")
    ] = False,
    skip_known: Annotated[
        bool, typer.Option("--skip-known", help="Leave out rows whose ids are there already; needs --ids.")
    ] = False,
    printing: arguments.Printing,
) -> None:
    """Append the rows of a file to a Zarr array that grows.

    Columns are taken by their names. Readers see all of the rows or none. Another append is waited for.
    """
    with printing.console() as console:
        from bigembed.jobs.watching.status import writing
        from bigembed.rows.appending import append_file
        from bigembed.runtime import using
        from bigembed.runtime.executors import LocalPool

        choice, ids = selection.choice(missing=missing), selection.ids or ""
        with writing(store), using(executor=LocalPool(), progress=console.progress, observer=console.event):
            done = append_file(store, new, choice, ids, by_position=by_position, skip_known=skip_known)
        console.result({"output": str(store), **done.as_dict()}, [f"{store}: {done.said(skip_known)}"])


@app.command()
@grouped
def delete(
    store: Annotated[str, typer.Argument(help="The Zarr array that grows.")],
    named: Annotated[list[str] | None, typer.Argument(metavar="ID", help="Ids of the rows to delete.")] = None,
    ids: Annotated[
        str | None,
        typer.Option(metavar="FILE[:NAME]", help="A file of them: .txt with one a line, an array, a table's column."),
    ] = None,
    rows: Annotated[str | None, typer.Option(metavar="NUMBERS", help="Numbers of rows instead: 3,17,20:30.")] = None,
    *,
    printing: arguments.Printing,
) -> None:
    """Mark rows of a growing store as deleted: the next refresh takes them out of the map. Their ids may come again."""
    with printing.console() as console:
        from bigembed.jobs import deletion

        found = deletion.delete(store, named or (), ids or "", rows or "")
        console.result(found, deletion.delete_lines(found))


@app.command()
@grouped
def purge(
    store: Annotated[str, typer.Argument(help="The Zarr array that grows.")], *, printing: arguments.Printing
) -> None:
    """Erase what deleted rows of a growing store, and their ids, held; run it after the refresh that leaves them out.

    Run it again if it was stopped.
    """
    with printing.console() as console:
        from bigembed.jobs import deletion
        from bigembed.runtime import using
        from bigembed.runtime.executors import LocalPool

        with using(executor=LocalPool(), progress=console.progress):
            found = deletion.purge(store)
        console.result(found, deletion.purge_lines(found))


@app.command()
@grouped
def condense(
    source: Annotated[str, typer.Argument(help="Rows in any format that ingest knows, dense.")],
    out: Annotated[str, typer.Argument(help="The new folder of the cells, the input path of a job.")],
    *,
    cells: arguments.Cells,
    selection: arguments.Selection,
    machines: arguments.Machines,
    watching: arguments.Recording,
    plan_only: Annotated[bool, typer.Option("--plan", help="Say what it would read, hold and write; stop.")] = False,
    printing: arguments.Printing,
) -> None:
    """Condense rows to cells of near rows, each with its mean, its count and its radius.

    OUT is the input of any job whose method takes weights. Run it again to resume one that was stopped.
    """
    with printing.console() as console:
        from bigembed.jobs.condense import condense as condense_rows
        from bigembed.jobs.condense import plan_condensing
        from bigembed.jobs.report.lines import plan_lines

        table, options = machines.cluster({}), watching.options(console)
        given = selection.choice(), cells.aligned
        if plan_only:
            planned = plan_condensing(source, out, cells.asked, table, *given)
            console.result(planned.as_dict(), plan_lines(planned))
            planned.refuse()
            return
        found = condense_rows(source, out, cells.asked, table, options, *given)
        console.result(found, [f"{out}:", *found["lines"]])


@app.command()
@grouped
def plan(
    job: arguments.Job,
    *,
    machines: arguments.Machines,
    calibrate: Annotated[
        bool, typer.Option("--calibrate", help="Measure anew how fast this machine is (a second or two).")
    ] = False,
    deadline: Annotated[
        str | None,
        typer.Option(metavar="WHEN", help='Also what a start has time for that ends by then: "6h", "06:30", a date.'),
    ] = None,
    printing: arguments.Printing,
) -> None:
    """Say what a job or sweep would read, hold and write, and how long; refuse what cannot fit (exit 3)."""
    with printing.console() as console:
        from bigembed.jobs import parse_deadline
        from bigembed.jobs.report.lines import plan_lines
        from bigembed.jobs.run import plan_job

        window = parse_deadline(deadline) - time.time() if deadline else None
        found = plan_job(machines.job(job), calibrate, window)
        console.result(found.as_dict(), plan_lines(found))
        found.refuse()


@app.command()
@grouped
def run(
    job: arguments.Job,
    *,
    machines: arguments.Machines,
    fresh: Annotated[bool, typer.Option("--fresh", help="Forget the stages that are there and start anew.")] = False,
    watching: arguments.Recording,
    printing: arguments.Printing,
) -> None:
    """Run a job; run it again to resume one that was stopped."""
    with printing.console() as console:
        from bigembed.jobs.report.lines import run_lines
        from bigembed.jobs.run import run_job

        found = run_job(machines.job(job), watching.options(console), fresh=fresh)
        console.result(found, run_lines(found))


@app.command()
@grouped
def sweep(
    job: arguments.Job,
    vary: Annotated[
        list[str] | None,
        typer.Option(metavar="NAME=VALUES", help="A parameter and its values, separated by commas; repeatable."),
    ] = None,
    *,
    machines: arguments.Machines,
    watching: arguments.Recording,
    printing: arguments.Printing,
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

        found = sweep_job(varied(machines.job(job), vary or ()), watching.options(console))
        console.result(found, sweep_lines(found))
        if found["refused"]:
            raise typer.Exit(1)


@app.command()
@grouped
def extend(
    model: Annotated[
        str, typer.Argument(metavar="MODEL|JOB.toml", help="A saved model, or the job file of a growing store.")
    ],
    new: Annotated[
        str | None, typer.Argument(metavar="NEW", help="With a model: new rows, in any format that ingest knows.")
    ] = None,
    out: Annotated[
        str | None, typer.Argument(metavar="OUT", help="With a model: the new Zarr array of their coordinates.")
    ] = None,
    *,
    machines: arguments.Machines,
    epsilons: Annotated[
        str | None,
        typer.Option(metavar="NAME|PATH", help="One scale a new row, for a model that was fitted with epsilons."),
    ] = None,
    selection: arguments.Selection,
    results: Annotated[
        str | None, typer.Option("--table", metavar="FILE", help="At the end also a new .parquet, .csv or .npy.")
    ] = None,
    verify: arguments.Verify = False,
    watching: arguments.Recording,
    plan_only: Annotated[bool, typer.Option("--plan", help="Say what it would read, hold and write; stop.")] = False,
    printing: arguments.Printing,
) -> None:
    """Coordinates of new rows by a saved model, or of the rows appended to a growing store (JOB.toml alone), each once.

    Run it again to resume one that was stopped.
    """
    with printing.console() as console:
        from bigembed.jobs.extend import extend as extend_rows
        from bigembed.jobs.extend import plan_extension
        from bigembed.jobs.report.lines import extend_lines, growth_lines, plan_lines

        options, trusted = watching.options(console), machines.allow_functions or ()
        vectors = {"epsilons": epsilons, "ids": selection.ids}
        aligned = {name: value for name, value in vectors.items() if value is not None}
        of_model = *astuple(selection), epsilons, results, plan_only
        arguments.refuse_mixed(model, new, out, any(of_model), verify)
        if new is None or out is None:
            from bigembed.jobs.growth.extend import extend as extend_growth

            grown = extend_growth(machines.job(Path(model)), options, verify=verify)
            console.result(grown, growth_lines(grown))
            return
        table, choice = machines.cluster({}), selection.choice()
        if plan_only:
            planned = plan_extension(model, new, out, table, aligned, choice, trusted)
            console.result(planned.as_dict(), plan_lines(planned))
            planned.refuse()
            return
        found = extend_rows(model, new, out, table, options, aligned, choice, results, trusted)
        console.result(found, extend_lines(found))


@app.command()
@grouped
def refresh(
    job: arguments.Job,
    *,
    machines: arguments.Machines,
    fresh: Annotated[
        bool, typer.Option("--fresh", help="Fit in any case, rows that were there and have changed as they are now.")
    ] = False,
    verify: arguments.Verify = False,
    keep: Annotated[int, typer.Option(min=0, help="Versions kept before the current one.")] = 1,
    new_frame: Annotated[
        bool, typer.Option("--new-frame", help="Make the map from nothing: it need not lie over the one before.")
    ] = False,
    changed: Annotated[
        bool, typer.Option("--changed", help="Take rows that have changed as they are now; all others stay.")
    ] = False,
    movement: arguments.Movement,
    watching: arguments.Watching,
    printing: arguments.Printing,
) -> None:
    """Fit all rows of a growing store, and make run, model and coordinates the current ones in one step.

    Does nothing where nothing has changed. Rows appended meanwhile are left to bigembed extend. The map is laid over
    the one before. Exit status: 0 done, 2 bad input (rows that were there have changed or are gone, too), 3 refused by
    the plan, 4 another job holds the output, 5 interrupted: the same command goes on, 6 damaged, 9 the rows moved too
    far: the version before stays until you decide, 1 anything else.
    """
    with printing.console() as console:
        from bigembed.jobs.growth.refresh import refresh as refresh_job
        from bigembed.jobs.report.lines import refresh_lines

        asked, options, limits = machines.job(job), watching.options(console), movement.limits
        found = refresh_job(
            asked, options, fresh=fresh, verify=verify, keep=keep, new_frame=new_frame, changed=changed, limits=limits
        )
        console.result(found, refresh_lines(found))


@app.command()
@grouped
def audit(
    job: arguments.Job,
    *,
    machines: arguments.Machines,
    auditing: arguments.Auditing,
    watching: arguments.Watching,
    printing: arguments.Printing,
) -> None:
    """Whether the current model still fits the rows appended to a growing store: audit.json, and the exit status.

    A refresh is due if a figure is beyond its limit by more than two standard errors. Exit status: 0 the model fits,
    7 refresh due, 2 bad input (or no model yet), 4 another audit is running, 5 interrupted, 6 damaged, 1 anything else.
    """
    with printing.console() as console:
        from bigembed.jobs.growth.audit import DUE
        from bigembed.jobs.growth.audit import audit as audit_job
        from bigembed.jobs.report.lines import audit_lines

        options = watching.options(console)
        found = audit_job(machines.job(job), options, **auditing.options)
        console.result(found, audit_lines(found))
        if found["due"]:
            raise typer.Exit(DUE)


@app.command()
@grouped
def export(
    source: Annotated[
        str,
        typer.Argument(
            metavar="RUN|ARRAY", help="A run, a growing embedding, or the coordinates that bigembed extend wrote."
        ),
    ],
    out: Annotated[
        str, typer.Argument(help="A new .parquet, .csv or .npy; or an AnnData (.h5ad, .zarr) that is there.")
    ],
    overwrite: Annotated[bool, typer.Option("--overwrite", help="Replace what is there under that name.")] = False,
    *,
    printing: arguments.Printing,
) -> None:
    """Coordinates with the ids of their rows as a table, or into obsm of an AnnData."""
    with printing.console() as console:
        from bigembed.jobs.growth.extend import export_any

        found = export_any(source, out, overwrite=overwrite)
        named = "with their ids" if found["ids"] else "without ids"
        console.result(found, [f"{out}: {found['n']:,} rows, {found['n_components']} coordinates, {named}"])


@app.command()
@grouped
def verify(
    path: Annotated[str, typer.Argument(metavar="RUN", help="A run, a saved model or a growing embedding.")],
    deep: Annotated[
        bool, typer.Option("--deep/--quick", help="Every stored byte, or names, sizes and metadata.")
    ] = True,
    *,
    printing: arguments.Printing,
) -> None:
    """Compare every stored byte with what was published (exit 6 if damaged); show the certificate."""
    with printing.console() as console:
        from bigembed.jobs.report.lines import verify_lines
        from bigembed.jobs.verify import require_undamaged
        from bigembed.jobs.verify import verify as check

        found = check(path, deep)
        console.result(found, verify_lines(found))
        require_undamaged(found)


@app.command()
@grouped
def status(
    path: Annotated[str, typer.Argument(metavar="OUT", help="An output: a run, a growing embedding, coordinates.")],
    *,
    printing: arguments.Printing,
) -> None:
    """How a job stands: at work, interrupted, done; its stage, its warnings. Changes nothing.

    Exit status: 0 done, 4 at work, 5 interrupted (killed, too); of a job that failed its own.
    """
    with printing.console() as console:
        from bigembed.jobs.report.lines import status_lines
        from bigembed.jobs.verify import standing

        found = standing(path)
        console.result(found, status_lines(found))
        if found["exit"]:
            raise typer.Exit(found["exit"])


@app.command()
@grouped
def report(
    path: Annotated[str, typer.Argument(metavar="RUN", help="A run: finished, stopped or damaged.")],
    out: Annotated[str | None, typer.Option(metavar="PAGE.html", help="The page; by default RUN with .html.")] = None,
    color: arguments.Color = None,
    ids: arguments.ColorIds = None,
    title: Annotated[str | None, typer.Option(help="Heading of the page.")] = None,
    *,
    printing: arguments.Printing,
) -> None:
    """Write one self-contained HTML page of a run: warnings, map, spectrum, certificate, stages, memory."""
    with printing.console() as console:
        from bigembed.jobs.report.page import report_line, write_report

        found = write_report(path, out, title=title, color=color, ids=ids)
        console.result(found, [report_line(found)])


@app.command()
@grouped
def view(
    source: Annotated[
        str,
        typer.Argument(
            metavar="RUN|COORDS",
            help="A run, a model with its coordinates, a growing embedding, or coordinates (n, m): Zarr or .npy.",
        ),
    ],
    out: Annotated[str | None, typer.Argument(help="The folder of the page; by default RUN-view.")] = None,
    *,
    page: arguments.Page,
    printing: arguments.Printing,
) -> None:
    """Write a folder with a page that shows every row: zoom, hover, search, select; it opens by double-click."""
    with printing.console() as console:
        from bigembed.jobs import view as viewing
        from bigembed.jobs.watching.status import stoppable
        from bigembed.runtime import using

        options = page.options
        with stoppable(out or source), using(progress=console.progress):
            found = viewing.view(source, out, **options)
        console.result(found.as_dict(), viewing.view_lines(found))


@app.command()
@grouped
def certify(
    rows: Annotated[str, typer.Argument(metavar="ROWS", help="The rows: a Zarr array or .npy (n, d).")],
    coordinates: Annotated[
        str,
        typer.Argument(
            metavar="COORDS",
            help="Their coordinates, made by anything, in the same order: a Zarr array or .npy (n, m), or a run.",
        ),
    ],
    k: Annotated[int, typer.Option("--k", help="Neighbors that make a neighborhood.")] = 15,
    samples: Annotated[int, typer.Option(help="Rows that are compared with all rows.")] = 1000,
    metric: Annotated[str, typer.Option(help="Of the rows: euclidean or cosine. Of the map: Euclidean.")] = "euclidean",
    seed: Annotated[int, typer.Option(help="Of the rows that are drawn.")] = 0,
    out: Annotated[str | None, typer.Option(metavar="PAGE.html", help="Also write a page of it, with the map.")] = None,
    title: Annotated[str | None, typer.Option(help="Heading of the page.")] = None,
    *,
    printing: arguments.Printing,
) -> None:
    """How well coordinates, made by anything, show the rows: neighbors kept, trustworthiness, with standard errors."""
    with printing.console() as console:
        from bigembed.jobs.verify import certify_lines, certify_paths

        asked = {"n_neighbors": k, "samples": samples, "metric": metric, "seed": seed}
        quality, found = certify_paths(rows, coordinates, out, title=title, **asked)
        console.result(found, certify_lines(quality, found))


@app.command()
@grouped
def example(
    name: Annotated[str | None, typer.Argument(help="Which one; without a name, all are listed.")] = None,
    folder: Annotated[Path, typer.Argument(help="Where it is written.")] = Path(),
    *,
    printing: arguments.Printing,
) -> None:
    """Write a job file to begin with, and the small data that it reads; without a name, list what there is."""
    with printing.console() as console:
        from bigembed.jobs.spec import show_example

        console.result(*show_example(name, folder))


@app.command()
@grouped
def methods(*, printing: arguments.Printing) -> None:
    """The methods there are, and the steps that can go before them, with their parameters."""
    with printing.console() as console:
        from bigembed.jobs.parameters import described, method_lines

        found = described()
        console.result(found, method_lines(found))


def main() -> None:
    """Run the console script: its exit status says how the work ended, whether or not somebody reads what it prints."""
    from bigembed.errors import leave_out_scikit_learn
    from bigembed.jobs.watching.console import run_without_readers

    leave_out_scikit_learn()
    run_without_readers(app)


if __name__ == "__main__":
    main()
