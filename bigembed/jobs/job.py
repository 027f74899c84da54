"""A job: the tables of its file. Every key is described below its name."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, Field

from bigembed.jobs.places import ClusterTable, Table
from bigembed.rows.reader import Choice
from bigembed.store import PAGES, PICTURES, AnyPath, require_suffix
from bigembed.store import at as located

ALIGNED = ("ids", "weights", "labels", "epsilons", "target_density")
"""Keys of [input] that are vectors aligned with the rows: a path, or a name in the source of the rows."""

GRAPH = ("graph", "distances", "nodes", "symmetrize", "duplicates", "squared")
"""Keys of [input] that say that the path holds a graph, and how it is read."""

CHOICE = ("columns", "array", "rows", "fill_absent")
"""Keys of [input] that choose among what the source of the rows holds."""

TABLE_SUFFIXES = (".parquet", ".csv", ".npy")


def _known_table(value: str) -> str:
    if Path(value).suffix not in TABLE_SUFFIXES:
        raise ValueError(f"the name of a table ends in {', '.join(TABLE_SUFFIXES)}")
    return value


def _known_picture(value: str) -> str:
    require_suffix(value, PICTURES, "a picture is written as PNG")
    return value


def _known_page(value: str) -> str:
    require_suffix(value, PAGES, "the page is written as HTML")
    return value


class InputTable(Table):
    """Rows: a path, or a data set that is generated once into the path."""

    path: str | None = None
    """The rows, in any format that ``bigembed ingest`` knows; what is not a Zarr array or .npy is copied once beside
    the output. With a data set, where it is generated, once; by default beside the output."""
    dataset: str | None = None
    """A data set to generate; its parameters stand in the same table."""
    columns: list[str] | None = None
    """Columns of a table that are the rows: names, patterns (``"b*"``), and ``"!name"`` for all but these; by default
    all but those that belong to the rows: ids, weights, labels, epsilons, target_density."""
    array: str | list[str] | None = None
    """The array of a file that holds several: a path in HDF5; X, layers/NAME or obsm/NAME of an AnnData; a netCDF
    variable, or several of one shape, which become columns."""
    rows: str | int | list[str] | None = None
    """Leading dimensions of a netCDF variable that make the rows, by name; of an array of several axes in another
    format how many of them, from the first on, make the rows (by default 1). The others make the columns. With 0 each
    file of a folder of ``.npy`` is one row."""
    graph: Literal["weights", "distances"] | None = None
    """What the values of a graph are, where the path holds one, not rows: an edge list with ``columns`` (source,
    target, value), a sparse matrix (``array`` of an AnnData: obsp/NAME) or, with ``distances``, lists of neighbors."""
    distances: str | None = None
    """The distances of lists of neighbors, of which the path holds the numbers."""
    nodes: int | None = None
    """How many nodes an edge list has; by default the largest id + 1, for which the ids are read once."""
    symmetrize: Literal["error", "mean", "max", "min", "union"] | None = None
    """How the values of both directions of an edge become one: for weights "error" (they must be equal; the default),
    "mean", "max" (right where each edge is listed once), "min" or "union"; for distances "min" (the default), "max"
    or "error"."""
    duplicates: Literal["error", "sum", "min", "max"] = "error"
    """What becomes of an edge that is listed more than once in one direction."""
    squared: bool = False
    """Whether the distances are squared, as faiss leaves them."""
    fill_absent: bool = False
    """Whether absent chunks of a Zarr array hold its fill value."""
    ids: str | None = None
    """A vector that names the rows; an AnnData and rows that were ingested with ids bring their own."""
    weights: str | None = None
    """A vector of one weight a row, for the methods that take them."""
    labels: str | None = None
    """A vector of one label a row, for the methods that take them; a data set may bring its own."""
    epsilons: str | None = None
    """A vector of one scale ε_i a row, for the methods that take them."""
    target_density: str | None = None
    """A vector of the density, at each row, that the rows were to have, for ``diffusion_map``."""
    parameters: dict[str, Any] = Field(default_factory=dict, exclude=True)


class MethodTable(Table):
    """A method by its module's name; its parameters stand in the same table."""

    name: str
    """The method; ``bigembed methods`` lists all."""
    parameters: dict[str, Any] = Field(default_factory=dict, exclude=True)


class StepTable(Table):
    """A step that the rows go through before the method, by its name; its parameters stand in the same table."""

    name: str
    """The step; ``bigembed methods`` lists all."""
    parameters: dict[str, Any] = Field(default_factory=dict, exclude=True)


ENCODERS = "one_hot", "mixed", "gower"
"""Steps that read the columns that they name as categories, of text or of numbers; those of text, if they name none."""
STEP_KEYS = {("missing", "fill"): "with"}
"""Keys of job files for parameters of steps, where they are called otherwise."""


class OutputTable(Table):
    """Where the run lies; if wanted, the coordinates as a table (Parquet, CSV, .npy), a picture of the map (PNG), the
    fitted model, a report (HTML) and a page of every row (a folder)."""

    path: str
    """The run, a folder: every stage, the coordinates, how it stands. Of a growing store: its versions."""
    table: Annotated[str, AfterValidator(_known_table)] | None = None
    """The coordinates with the ids of their rows as a table: Parquet, CSV or .npy, as its suffix says."""
    picture: Annotated[str, AfterValidator(_known_picture)] | None = None
    """A PNG of the first two coordinates."""
    model: str | None = None
    """The fitted model, a folder, which places new rows."""
    scratch: str | None = None
    """A folder that all workers see for what blocks leave for each other while a stage runs; by default in the run.
    Where that lies in an object store, a file system is quicker."""
    keep: Literal["all", "map", "coordinates"] = "all"
    """What stays of the stages in the run: "all" of it; or with "map" what the coordinates, the report, new rows and a
    saved model need; or with "coordinates" what the coordinates and the report need, and new rows cannot be placed. The
    rest is deleted as soon as no stage is left to read it, and made anew where it is needed."""
    report: Annotated[str, AfterValidator(_known_page)] | None = None
    """The HTML page of the finished run; ``bigembed report`` writes one of any run."""
    align: bool | None = None
    """Of a growing store: whether each refresh lays its map over the one before, and a map that descends starts from
    there, so that it stays put (the default); with false each one is made from nothing."""
    view: str | None = None
    """A folder with a page that shows every row of the map; ``bigembed view`` writes one of any run."""


class ClustersTable(Table):
    """Clusters that are looked for after the map: their numbers are a column of the table, colours of the page and of
    the view, and how stable they are is in the certificate. ``bigembed.cluster`` says what the keys mean."""

    method: Literal["hdbscan", "kmeans", "leiden"] = "hdbscan"
    """"hdbscan" finds dense groups of the coordinates, and noise between them; "kmeans" cuts the coordinates into
    ``n_clusters``; "leiden" finds parts of the neighbor graph (the extra ``leiden``)."""
    n_clusters: int | None = None
    """Of k-means, which takes 8 by default."""
    min_cluster_size: int | None = None
    """Of HDBSCAN: rows of the smallest cluster; by default one in a hundred rows, 5 at the least."""
    min_samples: int | None = None
    """Of HDBSCAN: neighbors by which density is measured; by default 10, or the smallest cluster."""
    resolution: float | None = None
    """Of Leiden: more makes more and smaller clusters; by default 1."""
    sample: int | None = None
    """Of HDBSCAN and Leiden: rows that are clustered by density, and that new rows are compared with, at the most."""
    n_subsets: int | None = None
    """Subsets of the rows in which the clusters are looked for again; 0 leaves that out, 10 by default."""
    random_state: int | None = None
    """The seed."""


class CondenseTable(Table):
    """Rows are condensed first, to cells of near rows with their counts; the method maps these, and all rows are placed
    on the map."""

    rows: int | None = Field(default=None, ge=1)
    """About how many cells."""
    radius: float | None = Field(default=None, gt=0)
    """How wide cells may be, in place of their number: no row is farther from the center of its cell."""
    cell: bool = False
    """Whether the cell of each row is kept."""
    seed: int = Field(default=0, ge=0)
    """Of the sampled rows and the centers."""
    place: bool = True
    """Whether all rows get coordinates, in ``placed`` of the run."""
    dtype: Literal["float64", "float32"] = "float64"
    """Of these coordinates."""


class SweepTable(Table):
    """What ``bigembed sweep`` fits: lists of values of parameters, each by its name, give their grid, and ``points``
    single points. What a table does not say is as in ``[method]``; another method takes of that what it knows."""

    method: list[str] | None = None
    """Methods, each with every combination of the values."""
    points: list[dict[str, Any]] | None = None
    """Single points, each a table ``[[sweep.points]]`` with ``method`` or parameters, or both."""
    parameters: dict[str, Any] = Field(default_factory=dict, exclude=True)


class JobSpec(Table):
    """A validated job. Paths are absolute."""

    file: Path
    input: InputTable
    steps: tuple[StepTable, ...] = ()
    """In their order: tables ``[[steps]]``."""
    method: MethodTable
    output: OutputTable
    clusters: ClustersTable | None = None
    cluster: ClusterTable = ClusterTable()
    condense: CondenseTable | None = None
    sweep: SweepTable | None = None
    relative: frozenset[str] = frozenset()
    """Those paths that the file gives from its own folder on: what they name moves together with the file."""
    functions: tuple[str, ...] = ()
    """Modules, or single functions, that the caller trusts: no job file can say so."""

    @property
    def input_path(self) -> AnyPath:
        """Return where the rows are, or will be generated."""
        return located(self.input.path or f"{self.output_path.with_suffix('')}-input.zarr")

    @property
    def choice(self) -> Choice:
        """Return the choice of columns, layers and groups in the source of the rows."""
        columns, array, rows = (_several(getattr(self.input, key)) for key in CHOICE[:3])
        missing = any(step.name in ("missing", *ENCODERS[1:]) for step in self.steps)
        aligned = tuple(self.aligned.values())
        encoded = [step.parameters.get("columns") for step in self.steps if step.name in ENCODERS]
        categories = tuple((name, ()) for names in encoded for name in names or () if isinstance(name, str))
        known: dict[str, Any] = {"categories": categories, "text": None in encoded}
        return Choice(columns, array, rows, self.input.fill_absent, aligned=aligned, missing=missing, **known)

    @property
    def aligned(self) -> dict[str, str]:
        """Vectors aligned with the rows: paths, relative to the job file, or names in the source of the rows."""
        given = {name: getattr(self.input, name) for name in ALIGNED}
        return {name: path for name, path in given.items() if path is not None}

    @property
    def output_path(self) -> AnyPath:
        """Return where the run lies."""
        return located(self.output.path)


def _several(value: str | int | list[str] | None) -> tuple[str, ...]:
    return () if value is None else tuple(value) if isinstance(value, list) else (str(value),)


TABLES: dict[str, type[Table]] = {
    "input": InputTable,
    "method": MethodTable,
    "output": OutputTable,
    "clusters": ClustersTable,
    "cluster": ClusterTable,
    "condense": CondenseTable,
    "sweep": SweepTable,
}

STEPS = "steps"
"""The list of tables beside these."""
