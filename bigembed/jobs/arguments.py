"""The arguments that commands share, one by one and in groups, and how they are read.

Heavy modules are imported where they are needed.
"""

from __future__ import annotations

import csv
from collections.abc import Callable, Sequence
from dataclasses import dataclass, fields, is_dataclass, replace
from functools import wraps
from inspect import Parameter, Signature, signature
from pathlib import Path
from typing import Annotated, Any, get_type_hints

import typer

# --------------------------------------------------------------------------------------------------- option groups
# Options that several commands have, as one parameter: a data class with a field for each.


def grouped(command: Callable[..., None]) -> Callable[..., None]:
    """Return the command with the options of its groups in their places, as the parser and the help need them.

    >>> from dataclasses import dataclass
    >>> @dataclass
    ... class Size:
    ...     width: int = 1
    ...     height: int = 2
    >>> def draw(name: str, *, size: Size) -> None:
    ...     print(name, size.width * size.height)
    >>> command = grouped(draw)
    >>> list(signature(command).parameters)
    ['name', 'width', 'height']
    >>> command(name="box", width=3)
    box 6
    """
    hints = get_type_hints(command, include_extras=True)
    groups: dict[str, Any] = {name: hint for name, hint in hints.items() if is_dataclass(hint)}

    @wraps(command)
    def call(**given: Any) -> None:
        for name, group in groups.items():
            own = {field.name: given.pop(field.name) for field in fields(group) if field.name in given}
            given[name] = group(**own)
        command(**given)

    parameters: list[Parameter] = []
    for name, parameter in signature(command).parameters.items():
        parameters += _options(groups[name]) if name in groups else [parameter.replace(annotation=hints[name])]
    flat = [parameter.replace(kind=Parameter.KEYWORD_ONLY) for parameter in parameters]
    call.__signature__ = Signature(flat)  # type: ignore[attr-defined]
    call.__annotations__ = {parameter.name: parameter.annotation for parameter in flat}
    return call


def _options(group: Any) -> list[Parameter]:
    """Return the fields of a group as parameters."""
    hints = get_type_hints(group, include_extras=True)
    return [
        Parameter(field.name, Parameter.KEYWORD_ONLY, default=field.default, annotation=hints[field.name])
        for field in fields(group)
    ]


# ------------------------------------------------------------------------------------------------------- arguments

Job = Annotated[Path, typer.Argument(metavar="JOB.toml", help="Job file; paths in it are relative to it.")]
Color = Annotated[
    str | None,
    typer.Option(
        metavar="ARRAY",
        help="Colour the map: a Zarr array or .npy with a number or a label for each row, TABLE:NAME, column:J of the "
        "input, cluster, component, or none. By default what is known of the rows.",
    ),
]
ColorIds = Annotated[
    str | None,
    typer.Option(
        "--ids",
        metavar="FILE[:NAME]",
        help="Names of the rows of that array or table, where they lie in another order than those of the run.",
    ),
]
Verify = Annotated[
    bool,
    typer.Option(
        "--verify", help="Of a growing store: read all rows that were there, whatever the times of their files say."
    ),
]

Missing = Annotated[
    bool,
    typer.Option(
        "--allow-missing",
        help="Values that are missing in a table come as NaN, for jobs with the step 'missing'; refused otherwise.",
    ),
]


@dataclass(frozen=True)
class Printing:
    """How a command says what it found."""

    as_json: Annotated[bool, typer.Option("--json", help="One JSON object a line instead of text.")] = False
    debug: Annotated[bool, typer.Option("--debug", help="Show the traceback of an error.")] = False

    def console(self) -> Any:
        """Return what prints for a command, and turns its errors into exit statuses."""
        from bigembed.jobs.watching.console import Console

        return Console(self.as_json, self.debug)


@dataclass(frozen=True)
class Selection:
    """What is wanted of a source of rows that holds several things, and what names the rows."""

    columns: Annotated[
        str | None,
        typer.Option(
            help="Columns of a table, separated by commas: names, patterns (b*), !NAME for all but these; by default "
            "all but ids, weights, labels and epsilons."
        ),
    ] = None
    array: Annotated[
        str | None,
        typer.Option(
            metavar="NAME",
            help="The array of a file that holds several: a path in HDF5; X, layers/NAME or obsm/NAME of an AnnData; a "
            "netCDF variable, or several of one shape separated by commas, which become columns.",
        ),
    ] = None
    rows: Annotated[
        str | None,
        typer.Option(
            metavar="NAMES|COUNT",
            help="Leading dimensions of a netCDF variable that make the rows, separated by commas; of another array of "
            "several axes how many of them make the rows. The rest are columns.",
        ),
    ] = None
    ids: Annotated[
        str | None,
        typer.Option(
            metavar="NAME|PATH",
            help="What names the rows: a column or a variable of the source, or an array beside it.",
        ),
    ] = None
    fill_absent: Annotated[bool, typer.Option(help="Read absent Zarr chunks as the fill value.")] = False

    def choice(self, dense: bool = False, missing: bool = False) -> Any:
        """Collect the options that choose columns, layers and groups of a file, as readers of formats take them."""
        from bigembed.rows.reader import Choice

        asked = _names(self.columns), _names(self.array), _names(self.rows), self.fill_absent, dense
        return Choice(*asked, missing=missing)


@dataclass(frozen=True)
class Cells:
    """What rows are condensed to."""

    cells: Annotated[int | None, typer.Option(min=1, help="About how many cells.")] = None
    radius: Annotated[
        float | None, typer.Option(help="How wide cells may be instead: no row is farther from the center of its cell.")
    ] = None
    metric: Annotated[str, typer.Option(help="The distance between rows: euclidean or cosine.")] = "euclidean"
    weights: Annotated[
        str | None, typer.Option(metavar="NAME|PATH", help="Weights of the rows, which are summed up.")
    ] = None
    cell: Annotated[bool, typer.Option("--cell", help="Keep the cell of each row.")] = False
    seed: Annotated[int, typer.Option(min=0, help="Of the sampled rows and the centers.")] = 0

    @property
    def asked(self) -> dict[str, Any]:
        """Return the options by name, as :func:`bigembed.jobs.condense.condense` takes them."""
        return {
            "rows": self.cells, "radius": self.radius, "metric": self.metric, "cell": self.cell, "seed": self.seed
        }  # fmt: skip

    @property
    def aligned(self) -> dict[str, str]:
        """Return what belongs to the rows."""
        return {} if self.weights is None else {"weights": self.weights}


@dataclass(frozen=True)
class Machines:
    """Where the work is done, if not where the job says, and which functions may be called there."""

    scheduler: Annotated[
        str | None, typer.Option(metavar="ADDRESS", help="A running Dask scheduler, e.g. tls://host:8786.")
    ] = None
    workers: Annotated[int | None, typer.Option(min=1, help="Worker processes of the embedded cluster.")] = None
    memory: Annotated[str | None, typer.Option(metavar="SIZE", help='Memory of each worker, e.g. "1 GiB".')] = None
    allow_functions: Annotated[
        list[str] | None,
        typer.Option(
            "--allow-functions",
            metavar="MODULE",
            help="Functions of this module (or only MODULE:NAME) may be called where a file names them; repeatable. "
            "By default none.",
        ),
    ] = None
    tls_ca: Annotated[Path | None, typer.Option(help="Certificate authority of the cluster (PEM).")] = None
    tls_cert: Annotated[Path | None, typer.Option(help="Certificate of this client (PEM).")] = None
    tls_key: Annotated[Path | None, typer.Option(help="Key of this client (PEM).")] = None

    def job(self, path: Path) -> Any:
        """Return the job of a file, on the machines that the command line names, if it does."""
        from bigembed.jobs.spec import read_job

        job = read_job(path, self.allow_functions or ())
        given = job.cluster.model_dump(exclude_unset=True)
        return job.model_copy(update={"cluster": self.cluster(given)}) if self._given() else job

    def cluster(self, given: dict[str, Any]) -> Any:
        """Return the table ``[cluster]`` of a job, with what the command line says instead; :class:`JobError`."""
        from pydantic import ValidationError

        from bigembed.errors import JobError
        from bigembed.jobs.parameters import reason_of
        from bigembed.jobs.places import ClusterTable, cluster_problems, elsewhere

        try:
            table = ClusterTable(**(elsewhere(given) if self.scheduler else given) | self._given())
        except ValidationError as error:
            wrong = "; ".join(f"--{item['loc'][0]}: {reason_of(item)}" for item in error.errors())
            raise JobError(wrong) from error
        if problems := cluster_problems(table):
            raise JobError("; ".join(problems))
        return table

    def _given(self) -> dict[str, Any]:
        """Return the keys of ``[cluster]`` that the command line gives."""
        keys = {"address": self.scheduler, "workers": self.workers, "memory": self.memory}
        keys |= {name: getattr(self, name) for name in ("tls_ca", "tls_cert", "tls_key")}
        return {key: str(value) if isinstance(value, Path) else value for key, value in keys.items() if value}


@dataclass(frozen=True)
class Watching:
    """Until when a command works, and where it leaves what it says meanwhile."""

    deadline: Annotated[
        str | None,
        typer.Option(metavar="WHEN", help='Stop by then, resumable (exit 5): "6h", "45m", "06:30" or a date and time.'),
    ] = None
    log: Annotated[str | None, typer.Option(metavar="FILE|-", help="The log (JSON lines) also there; - is stderr.")] = (
        None
    )
    metrics: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Prometheus text file, replaced as it goes on.")
    ] = None

    def options(self, console: Any) -> Any:
        """Options of a start, which prints to the console."""
        from bigembed.jobs import parse_deadline
        from bigembed.jobs.watching import RunOptions

        self._refuse_absent_folders()
        until = parse_deadline(self.deadline) if self.deadline else None
        return RunOptions(console.event, console.progress, until, self.log, self.metrics, remaining=console.remaining)

    def _refuse_absent_folders(self) -> None:
        """:class:`JobError` where a file would lie in a folder that is not there: it would be one that nobody reads."""
        from bigembed.errors import JobError
        from bigembed.store import is_url

        for name, path in (("--log", self.log), ("--metrics", self.metrics)):
            if path and not is_url(path) and not (folder := Path(path).absolute().parent).is_dir():
                raise JobError(
                    f"{name} {path}: there is no folder {folder}. Make it, or give a path in one that is there"
                )


@dataclass(frozen=True)
class Movement:
    """How far the rows of a growing map may move before somebody has to decide."""

    moved: Annotated[
        float, typer.Option(min=0, help="Ask where half of the rows moved farther: a share of the map's diameter.")
    ] = 0.25
    drift: Annotated[
        float, typer.Option(min=0, help="Ask where half of them are farther from the first map of the frame.")
    ] = 0.5
    moved_99: Annotated[
        float | None,
        typer.Option("--moved-99", min=0, help="Ask where 1 of 100 moved farther. By default 0.3, or --moved if more."),
    ] = None
    drift_99: Annotated[
        float | None,
        typer.Option("--drift-99", min=0, help="The same, from the first map. By default 0.6, or --drift if more."),
    ] = None

    @property
    def limits(self) -> Any:
        """Return the limits as :func:`bigembed.jobs.growth.refresh.refresh` takes them."""
        from bigembed.jobs.growth.frames import MovementLimits

        return MovementLimits(self.moved, self.drift, self.moved_99, self.drift_99)


@dataclass(frozen=True)
class Auditing:
    """What an audit looks at, and when it says that a refresh is due."""

    growth: Annotated[
        float, typer.Option(min=0, help="Due at this many new or deleted rows, as a share of those fitted.")
    ] = 1.0
    ratio: Annotated[
        float, typer.Option(min=0, help="Due beyond this ratio of medians, new to fitted rows: distance, misfit.")
    ] = 1.5
    beyond: Annotated[
        float,
        typer.Option(min=0, max=1, help="Due beyond this share of new rows in the last hundredth of the fitted ones."),
    ] = 0.05
    recall: Annotated[float, typer.Option(min=0, max=1, help="Due below this recall of the search.")] = 0.9
    least: Annotated[int, typer.Option(min=1, help="Fewer new rows are judged by --growth alone.")] = 100
    sample: Annotated[int, typer.Option(min=2, help="Rows looked at, of the new and of the fitted ones.")] = 2_000
    seed: Annotated[int, typer.Option(help="Of the sample.")] = 0

    @property
    def options(self) -> dict[str, Any]:
        """Return the options as :func:`bigembed.jobs.growth.audit.audit` takes them."""
        from bigembed.jobs.growth.audit import Limits

        limits = Limits(self.growth, self.ratio, self.beyond, self.recall, self.least)
        return {"limits": limits, "sample": self.sample, "seed": self.seed}


@dataclass(frozen=True)
class Page:
    """What the page of every row shows."""

    columns: Annotated[
        list[str] | None,
        typer.Option(
            metavar="FILE[:NAMES]",
            help="Columns to colour by: a vector (Zarr, .npy), or a table (Parquet, CSV) and which of its columns; "
            "repeatable. A table with a column of the name that the run's ids have is joined by it; else row i is row "
            "i of the map.",
        ),
    ] = None
    ids: Annotated[str | None, typer.Option(metavar="FILE[:NAME]", help="Names of the rows, given likewise.")] = None
    rows: Annotated[
        str | None,
        typer.Option(metavar="PATH", help="The rows that coordinates without a run are of, for nearest rows."),
    ] = None
    metric: Annotated[str, typer.Option(help="The distance between these rows.")] = "euclidean"
    pair: Annotated[
        list[str] | None, typer.Option(metavar="X,Y", help="A pair of coordinates, counted from 1; repeatable.")
    ] = None
    title: Annotated[str | None, typer.Option(help="Heading of the page.")] = None
    beside: Annotated[
        str | None, typer.Option(metavar="RUN|COORDS", help="Another map of the same rows, shown beside this one.")
    ] = None
    points: Annotated[
        bool, typer.Option("--points", help="Also points.parquet, for Embedding Atlas and jupyter-scatter.")
    ] = False
    atlas: Annotated[
        bool, typer.Option("--atlas", help="Also the pages of Embedding Atlas, where it is installed.")
    ] = False

    @property
    def options(self) -> dict[str, Any]:
        """Return the options by name, as :func:`bigembed.jobs.view.view` takes them."""
        named = {field.name: getattr(self, field.name) for field in fields(self) if field.name != "pair"}
        return named | {"pairs": pairs_of(self.pair or ())}


@dataclass(frozen=True)
class Recording(Watching):
    """The same, with Dask's report, and a record of every task."""

    performance_report: Annotated[
        Path | None, typer.Option(metavar="FILE.html", help="Dask's report of what every worker did when.")
    ] = None
    trace: Annotated[
        Path | None, typer.Option(metavar="FILE", help="A line (JSON) for each task: when, where, how long, its bytes.")
    ] = None

    def options(self, console: Any) -> Any:
        """Options of a start, which prints to the console and writes what is asked for."""
        return replace(super().options(console), performance_report=self.performance_report, trace=self.trace)


def _names(text: str | None) -> tuple[str, ...]:
    """Return the names separated by commas; one that holds a comma stands in quotation marks."""
    return tuple(name.strip() for row in csv.reader([text or ""]) for name in row)


def pairs_of(given: Sequence[str]) -> list[tuple[int, int]] | None:
    """Pairs of coordinates, from 0, of those that the command line counts from 1; None for none.

    >>> pairs_of(["1,2", "3,1"])
    [(0, 1), (2, 0)]
    """
    from bigembed.errors import JobError

    pairs = []
    for text in given:
        axes = text.split(",")
        if len(axes) != 2 or not all(axis.strip().isdigit() and int(axis) for axis in axes):
            raise JobError(f"--pair {text}: two numbers of coordinates are needed, counted from 1, such as 1,3")
        pairs.append((int(axes[0]) - 1, int(axes[1]) - 1))
    return pairs or None


def refuse_mixed(model: str, new: str | None, out: str | None, of_model: bool, verify: bool) -> None:
    """:class:`JobError` where arguments of the two ways to extend are mixed: a model, or a growing store."""
    from bigembed.errors import JobError

    if new is None and Path(model).is_dir():
        raise JobError(f"{model}: a folder. With a saved model give MODEL NEW OUT; with a growing store JOB.toml alone")
    if new is None and of_model:
        raise JobError(
            f"{model}: of a growing store the job says all about its rows; these options, and NEW and OUT, go with a "
            "saved model"
        )
    if new is not None and out is None:
        raise JobError("OUT is missing: with a saved model give MODEL NEW OUT; with a growing store JOB.toml alone")
    if new is not None and verify:
        raise JobError("--verify is for a growing store, with JOB.toml alone: rows that were there may have changed")
