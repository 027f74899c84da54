"""The command line: parses, calls the jobs, prints. Heavy modules are imported where they are needed."""

from __future__ import annotations

import csv
from pathlib import Path
from typing import Annotated, Any

import typer

from bigembed import __version__

app = typer.Typer(
    add_completion=False,
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    help="Low-dimensional coordinates of row-chunked arrays that do not fit in memory.",
    epilog="Exit status: 0 done, 2 bad input or job file, 3 refused by the plan, 4 another run holds "
    "the output, "
    "5 interrupted and resumable, 6 damaged, 1 anything else.",
)

Json = Annotated[bool, typer.Option("--json", help="One JSON object a line instead of text.")]
Debug = Annotated[bool, typer.Option("--debug", help="Show the traceback of an error.")]
Job = Annotated[Path, typer.Argument(metavar="JOB.toml", help="Job file; paths in it are relative to it.")]
AllowFunctions = Annotated[
    list[str] | None,
    typer.Option(
        "--allow-functions",
        metavar="MODULE",
        help="Functions of this module (or only MODULE:NAME) may be called where a file names them; repeatable. "
        "By default none.",
    ),
]
Scheduler = Annotated[
    str | None, typer.Option(metavar="ADDRESS", help="A running Dask scheduler, e.g. tls://host:8786.")
]
Workers = Annotated[int | None, typer.Option(min=1, help="Worker processes of the embedded cluster.")]
Memory = Annotated[str | None, typer.Option(metavar="SIZE", help='Memory of each worker, e.g. "1 GiB".')]
Columns = Annotated[
    str | None,
    typer.Option(help="Columns of a table, separated by commas; by default all that do not lie beside the rows."),
]
ArrayName = Annotated[
    str | None,
    typer.Option(
        metavar="NAME",
        help="The array of a file that holds several: a path in HDF5; X, layers/NAME or obsm/NAME of an AnnData; a "
        "netCDF variable, or several of one shape separated by commas, which become columns.",
    ),
]
RowDimensions = Annotated[
    str | None,
    typer.Option(
        metavar="DIMENSION",
        help="Leading dimensions of a netCDF variable that make the rows; the rest are columns.",
    ),
]
Ids = Annotated[
    str | None,
    typer.Option(
        metavar="NAME|PATH",
        help="What names the rows: a column or a variable of the source, or an array beside it.",
    ),
]
FillAbsent = Annotated[bool, typer.Option(help="Read absent Zarr chunks as the fill value.")]
Deadline = Annotated[
    str | None,
    typer.Option(metavar="WHEN", help='Stop by then, resumable (exit 5): "6h", "45m", "06:30" or a date and time.'),
]
Log = Annotated[str | None, typer.Option(metavar="FILE|-", help="The log (JSON lines) also there; - is stderr.")]
Metrics = Annotated[Path | None, typer.Option(metavar="FILE", help="Prometheus text file, replaced as it goes on.")]
Performance = Annotated[
    Path | None, typer.Option(metavar="FILE.html", help="Dask's report of what every worker did when.")
]
TlsCa = Annotated[Path | None, typer.Option(help="Certificate authority of the cluster (PEM).")]
TlsCert = Annotated[Path | None, typer.Option(help="Certificate of this client (PEM).")]
TlsKey = Annotated[Path | None, typer.Option(help="Key of this client (PEM).")]


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
    columns: Columns = None,
    array: ArrayName = None,
    rows: RowDimensions = None,
    ids: Ids = None,
    dense: Annotated[bool, typer.Option("--dense", help="Write sparse rows dense.")] = False,
    fill_absent: FillAbsent = False,
    as_json: Json = False,
    debug: Debug = False,
) -> None:
    """Copy rows of a known format into a chunked, checksummed Zarr array."""
    from bigembed.jobs.watching.console import Console

    with Console(as_json, debug) as console:
        from bigembed.blocks.rows import executor
        from bigembed.jobs.places.cluster import cluster
        from bigembed.jobs.places.cluster_table import ClusterTable
        from bigembed.jobs.watching.stopping import stoppable
        from bigembed.store.formats import ingest as copy

        choice = _choice(columns, array, rows, fill_absent, dense)
        with (
            stoppable(dest),
            cluster(ClusterTable(), "process", console.progress) as place,
            executor(place.executor),
        ):
            n, d = copy(source, dest, choice, {} if ids is None else {"ids": ids})
        console.result({"output": str(dest), "n": n, "d": d}, [f"{dest}: {n:,} rows of {d} numbers"])


@app.command()
def plan(
    job: Job,
    scheduler: Scheduler = None,
    workers: Workers = None,
    memory: Memory = None,
    calibrate: Annotated[
        bool, typer.Option("--calibrate", help="Measure anew how fast this machine is (a second or two).")
    ] = False,
    allow_functions: AllowFunctions = None,
    tls_ca: TlsCa = None,
    tls_cert: TlsCert = None,
    tls_key: TlsKey = None,
    as_json: Json = False,
    debug: Debug = False,
) -> None:
    """Say what a job would read, hold and write, and how long; refuse what cannot fit (exit 3). Writes no output."""
    from bigembed.jobs.watching.console import Console

    with Console(as_json, debug) as console:
        from bigembed.jobs.report.lines import plan_lines
        from bigembed.jobs.run import plan_job

        found = plan_job(_job(job, allow_functions, scheduler, workers, memory, tls_ca, tls_cert, tls_key), calibrate)
        console.result(found.as_dict(), plan_lines(found))
        found.refuse()


@app.command()
def run(
    job: Job,
    scheduler: Scheduler = None,
    workers: Workers = None,
    memory: Memory = None,
    fresh: Annotated[bool, typer.Option("--fresh", help="Forget the stages that are there and start anew.")] = False,
    deadline: Deadline = None,
    log: Log = None,
    metrics: Metrics = None,
    performance_report: Performance = None,
    allow_functions: AllowFunctions = None,
    tls_ca: TlsCa = None,
    tls_cert: TlsCert = None,
    tls_key: TlsKey = None,
    as_json: Json = False,
    debug: Debug = False,
) -> None:
    """Run a job; run it again to resume one that was stopped."""
    from bigembed.jobs.watching.console import Console

    with Console(as_json, debug) as console:
        from bigembed.jobs.report.lines import run_lines
        from bigembed.jobs.run import run_job

        asked = _job(job, allow_functions, scheduler, workers, memory, tls_ca, tls_cert, tls_key)
        found = run_job(asked, _options(console, deadline, log, metrics, performance_report), fresh=fresh)
        console.result(found, run_lines(found))


@app.command()
def extend(
    model: Annotated[str, typer.Argument(help="A saved model.")],
    new: Annotated[str, typer.Argument(help="New rows, in any format that ingest knows.")],
    out: Annotated[str, typer.Argument(help="The new Zarr array of their coordinates.")],
    scheduler: Scheduler = None,
    workers: Workers = None,
    memory: Memory = None,
    epsilons: Annotated[
        str | None,
        typer.Option(metavar="NAME|PATH", help="One scale a new row, for a model that was fitted with epsilons."),
    ] = None,
    ids: Ids = None,
    columns: Columns = None,
    array: ArrayName = None,
    rows: RowDimensions = None,
    fill_absent: FillAbsent = False,
    results: Annotated[
        str | None, typer.Option("--table", metavar="FILE", help="At the end also a new .parquet, .csv or .npy.")
    ] = None,
    deadline: Deadline = None,
    log: Log = None,
    metrics: Metrics = None,
    performance_report: Performance = None,
    plan_only: Annotated[bool, typer.Option("--plan", help="Say what it would read, hold and write; stop.")] = False,
    allow_functions: AllowFunctions = None,
    tls_ca: TlsCa = None,
    tls_cert: TlsCert = None,
    tls_key: TlsKey = None,
    as_json: Json = False,
    debug: Debug = False,
) -> None:
    """Coordinates of new rows by a saved model; run it again to resume one that was stopped."""
    from bigembed.jobs.watching.console import Console

    with Console(as_json, debug) as console:
        from bigembed.jobs.extend import extend as extend_rows
        from bigembed.jobs.extend import plan_extension
        from bigembed.jobs.report.lines import extend_lines, plan_lines

        table = _table({}, scheduler, workers, memory, tls_ca, tls_cert, tls_key)
        given = {"epsilons": epsilons, "ids": ids}
        beside = {name: value for name, value in given.items() if value is not None}
        choice = _choice(columns, array, rows, fill_absent)
        if plan_only:
            planned = plan_extension(model, new, out, table, beside, choice, allow_functions or ())
            console.result(planned.as_dict(), plan_lines(planned))
            planned.refuse()
            return
        found = extend_rows(
            model,
            new,
            out,
            table,
            _options(console, deadline, log, metrics, performance_report),
            beside,
            choice,
            results,
            allow_functions or (),
        )
        console.result(found, extend_lines(found))


@app.command()
def export(
    source: Annotated[
        str, typer.Argument(metavar="RUN|ARRAY", help="A run, or the coordinates that bigembed extend wrote.")
    ],
    out: Annotated[
        str, typer.Argument(help="A new .parquet, .csv or .npy; or an AnnData (.h5ad, .zarr) that is there.")
    ],
    overwrite: Annotated[bool, typer.Option("--overwrite", help="Replace what is there under that name.")] = False,
    as_json: Json = False,
    debug: Debug = False,
) -> None:
    """Coordinates with the ids of their rows as a table, or into obsm of an AnnData."""
    from bigembed.jobs.watching.console import Console

    with Console(as_json, debug) as console:
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
    as_json: Json = False,
    debug: Debug = False,
) -> None:
    """Compare every stored byte with what was published (exit 6 if damaged); show the certificate."""
    from bigembed.jobs.watching.console import Console

    with Console(as_json, debug) as console:
        from bigembed.errors import DamagedError, InterruptedRun
        from bigembed.jobs.report.lines import verify_lines
        from bigembed.jobs.verify import verify as check

        found = check(path, deep)
        console.result(found, verify_lines(found))
        if found["problems"]:
            raise DamagedError(
                f"{path}: damaged:"
                + "".join(f"\n  {problem}" for problem in found["problems"])
                + f"\nRun {'workflows/refresh.py' if found['kind'] == 'growth' else 'the job'} again to make what is "
                "damaged anew"
            )
        if not found["finished"]:
            raise InterruptedRun(f"{path}: what is there is whole, but the run did not end. Run the job again")


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
    as_json: Json = False,
    debug: Debug = False,
) -> None:
    """Write one self-contained HTML page of a run: warnings, map, spectrum, certificate, stages, memory."""
    from bigembed.jobs.watching.console import Console

    with Console(as_json, debug) as console:
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
    as_json: Json = False,
    debug: Debug = False,
) -> None:
    """How well coordinates, made by anything, show the rows: neighbors kept, trustworthiness, with standard errors."""
    from bigembed.jobs.watching.console import Console

    with Console(as_json, debug) as console:
        from bigembed.jobs.certify import certify_lines, certify_paths

        asked = {"n_neighbors": k, "samples": samples, "metric": metric, "seed": seed}
        quality, found = certify_paths(rows, coordinates, out, title=title, **asked)
        console.result(found, certify_lines(quality, found))


@app.command()
def methods(as_json: Json = False, debug: Debug = False) -> None:
    """The methods there are, with their parameters."""
    from bigembed.jobs.watching.console import Console

    with Console(as_json, debug) as console:
        from bigembed.jobs.describe import describe_methods, method_lines

        found = describe_methods()
        console.result({"methods": found}, method_lines(found))


def _choice(columns: str | None, array: str | None, rows: str | None, fill_absent: bool, dense: bool = False) -> Any:
    """What is wanted of a source that holds several things."""
    from bigembed.store.reader import Choice

    return Choice(_names(columns), _names(array), _names(rows), fill_absent, dense)


def _names(text: str | None) -> tuple[str, ...]:
    """Names separated by commas; one that holds a comma stands in quotation marks."""
    return tuple(name.strip() for row in csv.reader([text or ""]) for name in row)


def _options(
    console: Any, deadline: str | None, log: str | None, metrics: Path | None, performance: Path | None
) -> Any:
    """What a job is asked for, beside the job itself."""
    from bigembed.jobs.units import parse_deadline
    from bigembed.jobs.watching.reporter import RunOptions

    until = parse_deadline(deadline) if deadline else None
    return RunOptions(console.event, console.progress, until, log, metrics, performance)


def _job(path: Path, functions: list[str] | None, *changes: Any) -> Any:
    """The job of a file, with what the command line says of the cluster."""
    from bigembed.jobs.spec import read_job

    job = read_job(path, functions or ())
    given = job.cluster.model_dump(exclude_unset=True)
    return job.model_copy(update={"cluster": _table(given, *changes)}) if any(changes) else job


def _table(
    given: dict[str, Any],
    scheduler: str | None,
    workers: int | None,
    memory: str | None,
    tls_ca: Path | None,
    tls_cert: Path | None,
    tls_key: Path | None,
) -> Any:
    from pydantic import ValidationError

    from bigembed.errors import JobError
    from bigembed.jobs.places.cluster_table import ClusterTable, cluster_problems, elsewhere

    changes = {
        "address": scheduler,
        "workers": workers,
        "memory": memory,
        "tls_ca": tls_ca and str(tls_ca),
        "tls_cert": tls_cert and str(tls_cert),
        "tls_key": tls_key and str(tls_key),
    }
    changed = {key: value for key, value in changes.items() if value is not None}
    try:
        table = ClusterTable(**(elsewhere(given) if scheduler else given) | changed)
    except ValidationError as error:
        raise JobError(
            "; ".join(f"--{item['loc'][0]}: {item['msg']}, not {item['input']!r}" for item in error.errors())
        ) from error
    if problems := cluster_problems(table):
        raise JobError("; ".join(problems))
    return table


def main() -> None:
    """The console script."""
    app()


if __name__ == "__main__":
    main()
