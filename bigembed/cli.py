"""The command line: parses, calls the jobs, prints. Heavy modules are imported where they are needed."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from bigembed import __version__
from bigembed.jobs import arguments as given
from bigembed.jobs.growth.commands import audit, refresh
from bigembed.jobs.sweep.command import sweep

app = typer.Typer(
    add_completion=False,
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    help="Low-dimensional coordinates of row-chunked arrays that do not fit in memory.",
    epilog="Exit status: 0 done, 2 bad input or job file, 3 refused by the plan, 4 another run holds "
    "the output, "
    "5 interrupted and resumable, 6 damaged, 7 refresh due, 1 anything else.",
)


@app.callback(invoke_without_command=True)
def _root(version: Annotated[bool, typer.Option("--version", help="Show the version.")] = False) -> None:
    if version:
        typer.echo(f"bigembed {__version__}")
        raise typer.Exit


@app.command()
def ingest(
    source: Annotated[
        str,
        typer.Argument(
            help="A Zarr array, .npy, Parquet (file or folder), CSV, HDF5, AnnData (.h5ad, .zarr), netCDF, fvecs, "
            "bvecs, ivecs or idx (MNIST, also .gz)."
        ),
    ],
    dest: Annotated[str, typer.Argument(help="The new Zarr array; of sparse rows a CSR group.")],
    columns: given.Columns = None,
    array: given.ArrayName = None,
    rows: given.RowDimensions = None,
    ids: given.Ids = None,
    dense: Annotated[bool, typer.Option("--dense", help="Write sparse rows dense.")] = False,
    fill_absent: given.FillAbsent = False,
    as_json: given.Json = False,
    debug: given.Debug = False,
) -> None:
    """Copy rows of a known format into a chunked, checksummed Zarr array."""
    with given.console_of(as_json, debug) as console:
        from bigembed.blocks.rows import executor
        from bigembed.jobs.places.cluster import cluster
        from bigembed.jobs.places.cluster_table import ClusterTable
        from bigembed.jobs.watching.stopping import stoppable
        from bigembed.store.formats import ingest as copy

        choice = given.choice_of(columns, array, rows, fill_absent, dense)
        with (
            stoppable(dest),
            cluster(ClusterTable(), "process", console.progress) as place,
            executor(place.executor),
        ):
            n, d = copy(source, dest, choice, {} if ids is None else {"ids": ids})
        console.result({"output": str(dest), "n": n, "d": d}, [f"{dest}: {n:,} rows of {d} numbers"])


@app.command()
def plan(
    job: given.Job,
    scheduler: given.Scheduler = None,
    workers: given.Workers = None,
    memory: given.Memory = None,
    calibrate: Annotated[
        bool, typer.Option("--calibrate", help="Measure anew how fast this machine is (a second or two).")
    ] = False,
    allow_functions: given.AllowFunctions = None,
    tls_ca: given.TlsCa = None,
    tls_cert: given.TlsCert = None,
    tls_key: given.TlsKey = None,
    as_json: given.Json = False,
    debug: given.Debug = False,
) -> None:
    """Say what a job or sweep would read, hold and write, and how long; refuse what cannot fit (exit 3)."""
    with given.console_of(as_json, debug) as console:
        from bigembed.jobs.report.lines import plan_lines
        from bigembed.jobs.run import plan_job

        found = plan_job(
            given.job_of(job, allow_functions, scheduler, workers, memory, tls_ca, tls_cert, tls_key), calibrate
        )
        console.result(found.as_dict(), plan_lines(found))
        found.refuse()


@app.command()
def run(
    job: given.Job,
    scheduler: given.Scheduler = None,
    workers: given.Workers = None,
    memory: given.Memory = None,
    fresh: Annotated[bool, typer.Option("--fresh", help="Forget the stages that are there and start anew.")] = False,
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
    """Run a job; run it again to resume one that was stopped."""
    with given.console_of(as_json, debug) as console:
        from bigembed.jobs.report.lines import run_lines
        from bigembed.jobs.run import run_job

        asked = given.job_of(job, allow_functions, scheduler, workers, memory, tls_ca, tls_cert, tls_key)
        found = run_job(asked, given.run_options(console, deadline, log, metrics, performance_report), fresh=fresh)
        console.result(found, run_lines(found))


app.command()(sweep)


@app.command()
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
    scheduler: given.Scheduler = None,
    workers: given.Workers = None,
    memory: given.Memory = None,
    epsilons: Annotated[
        str | None,
        typer.Option(metavar="NAME|PATH", help="One scale a new row, for a model that was fitted with epsilons."),
    ] = None,
    ids: given.Ids = None,
    columns: given.Columns = None,
    array: given.ArrayName = None,
    rows: given.RowDimensions = None,
    fill_absent: given.FillAbsent = False,
    results: Annotated[
        str | None, typer.Option("--table", metavar="FILE", help="At the end also a new .parquet, .csv or .npy.")
    ] = None,
    verify: given.Verify = False,
    deadline: given.Deadline = None,
    log: given.Log = None,
    metrics: given.Metrics = None,
    performance_report: given.Performance = None,
    plan_only: Annotated[bool, typer.Option("--plan", help="Say what it would read, hold and write; stop.")] = False,
    allow_functions: given.AllowFunctions = None,
    tls_ca: given.TlsCa = None,
    tls_cert: given.TlsCert = None,
    tls_key: given.TlsKey = None,
    as_json: given.Json = False,
    debug: given.Debug = False,
) -> None:
    """Coordinates of new rows by a saved model, or of the rows appended to a growing store (JOB.toml alone), each once.

    Run it again to resume one that was stopped.
    """
    with given.console_of(as_json, debug) as console:
        from bigembed.jobs.extend import extend as extend_rows
        from bigembed.jobs.extend import plan_extension
        from bigembed.jobs.report.lines import extend_lines, growth_lines, plan_lines

        cluster = scheduler, workers, memory, tls_ca, tls_cert, tls_key
        options = given.run_options(console, deadline, log, metrics, performance_report)
        vectors = {"epsilons": epsilons, "ids": ids}
        aligned = {name: value for name, value in vectors.items() if value is not None}
        of_model = columns, array, rows, fill_absent or None, results, plan_only or None, *aligned
        given.refuse_mixed(model, new, out, any(of_model), verify)
        if new is None or out is None:
            from bigembed.jobs.growth.extend import extend as extend_growth

            grown = extend_growth(given.job_of(Path(model), allow_functions, *cluster), options, verify=verify)
            console.result(grown, growth_lines(grown))
            return
        table, choice = given.cluster_of({}, *cluster), given.choice_of(columns, array, rows, fill_absent)
        if plan_only:
            planned = plan_extension(model, new, out, table, aligned, choice, allow_functions or ())
            console.result(planned.as_dict(), plan_lines(planned))
            planned.refuse()
            return
        found = extend_rows(model, new, out, table, options, aligned, choice, results, allow_functions or ())
        console.result(found, extend_lines(found))


app.command()(refresh)
app.command()(audit)


@app.command()
def export(
    source: Annotated[
        str, typer.Argument(metavar="RUN|ARRAY", help="A run, or the coordinates that bigembed extend wrote.")
    ],
    out: Annotated[
        str, typer.Argument(help="A new .parquet, .csv or .npy; or an AnnData (.h5ad, .zarr) that is there.")
    ],
    overwrite: Annotated[bool, typer.Option("--overwrite", help="Replace what is there under that name.")] = False,
    as_json: given.Json = False,
    debug: given.Debug = False,
) -> None:
    """Coordinates with the ids of their rows as a table, or into obsm of an AnnData."""
    with given.console_of(as_json, debug) as console:
        from bigembed.jobs.export import export as export_rows

        found = export_rows(source, out, overwrite=overwrite)
        named = "with their ids" if found["ids"] else "without ids"
        console.result(found, [f"{out}: {found['n']:,} rows, {found['n_components']} coordinates, {named}"])


@app.command()
def verify(
    path: Annotated[str, typer.Argument(metavar="RUN", help="A run, a saved model or a growing embedding.")],
    deep: Annotated[
        bool, typer.Option("--deep/--quick", help="Every stored byte, or names, sizes and metadata.")
    ] = True,
    as_json: given.Json = False,
    debug: given.Debug = False,
) -> None:
    """Compare every stored byte with what was published (exit 6 if damaged); show the certificate."""
    with given.console_of(as_json, debug) as console:
        from bigembed.jobs.report.lines import verify_lines
        from bigembed.jobs.verify import require_whole
        from bigembed.jobs.verify import verify as check

        found = check(path, deep)
        console.result(found, verify_lines(found))
        require_whole(found)


@app.command()
def report(
    path: Annotated[str, typer.Argument(metavar="RUN", help="A run: finished, stopped or damaged.")],
    out: Annotated[str | None, typer.Option(metavar="PAGE.html", help="The page; by default RUN with .html.")] = None,
    color: Annotated[
        str | None,
        typer.Option(
            metavar="ARRAY",
            help="Colour the map: a Zarr array or .npy with a number or a label for each row, column:J of the input, "
            "or none. By default what is known of the rows.",
        ),
    ] = None,
    title: Annotated[str | None, typer.Option(help="Heading of the page.")] = None,
    as_json: given.Json = False,
    debug: given.Debug = False,
) -> None:
    """Write one self-contained HTML page of a run: warnings, map, spectrum, certificate, stages, memory."""
    with given.console_of(as_json, debug) as console:
        from bigembed.jobs.report.page import report_line, write_report

        found = write_report(path, out, title=title, color=color)
        console.result(found, [report_line(found)])


@app.command()
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
    as_json: given.Json = False,
    debug: given.Debug = False,
) -> None:
    """How well coordinates, made by anything, show the rows: neighbors kept, trustworthiness, with standard errors."""
    with given.console_of(as_json, debug) as console:
        from bigembed.jobs.certify import certify_lines, certify_paths

        asked = {"n_neighbors": k, "samples": samples, "metric": metric, "seed": seed}
        quality, found = certify_paths(rows, coordinates, out, title=title, **asked)
        console.result(found, certify_lines(quality, found))


@app.command()
def methods(as_json: given.Json = False, debug: given.Debug = False) -> None:
    """The methods there are, and the steps that can go before them, with their parameters."""
    with given.console_of(as_json, debug) as console:
        from bigembed.jobs.describe import describe_methods, describe_steps, method_lines

        found, steps = describe_methods(), describe_steps()
        console.result({"methods": found, "steps": steps}, method_lines(found, steps))


def main() -> None:
    """The console script."""
    app()


if __name__ == "__main__":
    main()
