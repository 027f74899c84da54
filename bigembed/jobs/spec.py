"""The job file: TOML tables [input], [method], [output], [cluster] and [sweep], validated as a whole; and examples.

Every offender is listed with its table and key, an unknown key with the nearest known one.
Paths are relative to the job file.
"""

from __future__ import annotations

import inspect
import re
import tomllib
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from importlib.resources import files
from pathlib import Path
from typing import Any

import numpy as np
from pydantic import ValidationError

from bigembed import datasets
from bigembed.errors import BigembedError, ExistingOutputError, InputError, JobError
from bigembed.estimator import RUN_PARAMETERS, check_parameters
from bigembed.jobs import parameters
from bigembed.jobs.environment import with_environment
from bigembed.jobs.job import ALIGNED, CHOICE, GRAPH, STEP_KEYS, STEPS, TABLES, JobSpec, StepTable
from bigembed.jobs.places import ClusterTable as ClusterTable
from bigembed.jobs.places import Table, cluster_problems
from bigembed.maps import REGISTRY, method, step
from bigembed.maps.clustering import clusters_problems
from bigembed.runtime.blocks import Array
from bigembed.runtime.parameters import is_name
from bigembed.store import at as located
from bigembed.store import is_url, no_such_path
from bigembed.store.arrays import write_npy

# ----------------------------------------------------------------------------------------------------- step tables
# The tables [[steps]] of a job file, each checked as its step says.


def step_tables(given: Any, problems: list[str]) -> tuple[StepTable, ...]:
    """Return the steps of ``[[steps]]``; what is wrong with them is added to ``problems``."""
    if not isinstance(given, list) or not all(isinstance(one, Mapping) for one in given):
        problems.append(f"steps must be a list of tables, each headed [[steps]], not {parameters.shown(given)}")
        return ()
    found = (_step(f"[[steps]] {number}", dict(one), problems) for number, one in enumerate(given, 1))
    steps = tuple(one for one in found if one is not None)
    if sum(one.name == "missing" and one.parameters.get("action", "drop") == "drop" for one in steps) > 1:
        problems.append("[[steps]] missing: rows are left out by one step at the most, as none misses a value after it")
    return steps


def _step(where: str, given: dict[str, Any], problems: list[str]) -> StepTable | None:
    """One step, its parameters as its class takes them."""
    name = given.pop("name", None)
    if not isinstance(name, str):
        problems.append(f"{where} name: must be given, the name of a step" + ("" if name is None else ", a text"))
        return None
    try:
        kind = step(name)
    except JobError as error:
        problems.append(f"{where} {error}")
        return None
    where = f"{where} {name}:"
    known = {key: one for key, one in inspect.signature(kind).parameters.items() if key not in RUN_PARAMETERS}
    names = {STEP_KEYS.get((name, key), key): key for key in known}
    wrong = parameters.unknown(where, given, names)
    inside = {names[key]: value for key, value in given.items() if key in names}
    typed, mistyped = parameters.typed_values(kind, STEPS, inside, known, [])
    wrong += [one.replace(f"[{STEPS}]", where, 1) for one in mistyped]
    if not mistyped:
        wrong += [f"{where} {one}" for one in _refused(kind, typed, {own: key for key, own in names.items()})]
    problems += wrong
    return None if wrong else StepTable(name=name, parameters=typed)


def _refused(kind: Any, typed: Mapping[str, Any], keys: Mapping[str, str]) -> Iterator[str]:
    """Yield what a step says against its parameters, by their keys in the job file."""
    try:
        made = kind(**typed)
        check_parameters(made)
    except BigembedError as error:
        text = str(error).removeprefix(f"{kind.__name__}: ")
        yield "; ".join(re.sub(r"^\w+(?==)", lambda key: keys.get(key[0], key[0]), one) for one in text.split("; "))
        return
    if not isinstance(getattr(made, "n_components", 1), int):
        yield "n_components: a whole number, so that what follows can be planned"


# ------------------------------------------------------------------------------------------------------------ spec

LARGEST = 4 << 20
"""Bytes of a job file."""
LONG_KEY = re.compile(r"""((?:(?<![\w-])[\w-]++|"[^"\n]*+"|'[^'\n]*+')\s*+\.\s*+){64}""")
CONTROL = re.compile(r"[\x00-\x1f\x7f-\x9f]")
FOLDERS = ("folder", "picture")
"""Parameters of data sets that are paths."""


def read_job(file: str | Path, functions: Collection[str] = ()) -> JobSpec:
    """Return the job in a TOML file; :class:`JobError` lists everything that is wrong with it.

    ``functions``: modules, or single functions (``"module:name"``), that the file may name; by default none.
    """
    try:
        path = Path(file).absolute()
        value = tomllib.loads(_text(path))
        _refuse_large(value)
    except FileNotFoundError as error:
        raise JobError(no_such_path(file, "job file")) from error
    except RecursionError as error:
        raise JobError(f"{file}: not readable as TOML: tables or lists are nested too deeply") from error
    except (OSError, ValueError) as error:  # (of an integer of thousands of digits, too)
        rows = (
            ""
            if path.suffix == ".toml"
            else f'. Are these the rows? A job file names them: [input] path = "{path.name}"'
        )
        raise JobError(f"{file}: not readable as TOML: {error}{rows}") from error
    return parse_job(with_environment(value, path), path, functions)


def _refuse_large(value: Any, key: str = "") -> None:
    """ValueError for an integer that TOML does not have: it may not even be printed."""
    if isinstance(value, int) and value.bit_length() > 64:
        raise ValueError(f"{key[: parameters.SHOWN]}: {parameters.shown(value)}; integers have at most 64")
    for name, part in value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ():
        _refuse_large(part, f"{key}.{name}".lstrip("."))


def _text(path: Path) -> str:
    """Return what a job file says; OSError or ValueError where it cannot be one."""
    if path.exists() and not path.is_file():
        raise OSError("not a file (a folder, a pipe or a device)")
    with path.open("rb") as file:
        text = file.read(LARGEST + 1).decode("utf-8")
    if len(text) > LARGEST:
        raise ValueError(f"larger than {LARGEST:,} bytes")
    if LONG_KEY.search(text):  # (for which the parser takes the square of the time)
        raise ValueError("a key of more than 64 parts")
    return text


def parse_job(value: Mapping[str, Any], file: Path, functions: Collection[str] = ()) -> JobSpec:
    """Return a job from the tables of a file (which need not exist: it names the job and roots its paths)."""
    problems = parameters.unknown("a table", value, [*TABLES, STEPS])
    problems += [f"[{name}] is missing" for name in ("input", "method", "output") if name not in value]
    problems += [
        f"[{name}] must be a table, not {parameters.shown(value[name])}"
        for name in TABLES
        if name in value and not isinstance(value[name], Mapping)
    ]
    tables: dict[str, Any] = {}
    for name, model in TABLES.items():
        given = value.get(name, {})
        if isinstance(given, Mapping) and name in value:
            tables[name] = _table(name, model, dict(given), functions, problems, swept="sweep" in value)
    if STEPS in value:
        tables[STEPS] = step_tables(value[STEPS], problems)
    points: list[parameters.Point] = []
    chosen = tables.get("method")
    if chosen is not None and tables.get("sweep") is not None:
        points, wrong = parameters.expanded(chosen, tables["sweep"], functions)
        problems += wrong
    methods = [point.method for point in points] if points or chosen is None else [chosen.name]
    _check_places(tables, list(dict.fromkeys(methods)), problems)
    if problems:
        more = [f"… and {len(problems) - parameters.LISTED} more"] if len(problems) > parameters.LISTED else []
        raise JobError(f"{file}: " + "".join(f"\n  {problem}" for problem in problems[: parameters.LISTED] + more))
    return _rooted(JobSpec(file=file, **tables, functions=tuple(functions)), file.parent)


def _table(
    name: str,
    model: type[Table],
    given: dict[str, Any],
    functions: Collection[str],
    problems: list[str],
    swept: bool = False,
) -> Table | None:
    """Return a table of the job; None where one of its own keys is wrong. ``swept``: whether there is a ``[sweep]``."""
    fields = [key for key in model.model_fields if key != "parameters"]
    own = {key: given.pop(key) for key in list(given) if key in fields}
    typed: dict[str, Any] = {}
    named = own.get({"method": "name", "input": "dataset"}.get(name, ""))
    if name == "sweep":
        typed = given
    elif isinstance(named, str):
        typed = _parameters(name, named, given, functions, problems, swept)
    else:
        problems.extend(parameters.unknown(f"[{name}]", given, fields))
    try:
        return model(**own, **({"parameters": typed} if typed else {}))
    except ValidationError as error:
        problems.extend(
            f"[{name}] {'.'.join(map(str, item['loc']))}: {parameters.reason_of(item)}" for item in error.errors()
        )
        return None


def _parameters(
    table: str, name: str, given: Mapping[str, Any], functions: Collection[str], problems: list[str], swept: bool
) -> dict[str, Any]:
    """Check the parameters of a method or of a data set; of a method that is swept their types alone."""
    try:
        if table == "method":
            typed, wrong = parameters.checked_parameters(name, given, functions)
            refused = wrong and any(map(is_name, typed.values()))  # (a function that is refused is not imported)
            if not (swept or refused):  # (ranges are checked in each point, where its values replace those given here)
                wrong += [f"[method] {text}" for text in parameters.out_of_range(name, typed)]
        else:
            typed, wrong = parameters.typed_values(
                datasets.REGISTRY.get(name), table, given, datasets.parameters(name), []
            )
    except BigembedError as error:
        problems.append(f"[{table}] {error}")
        return {}
    problems.extend(wrong)
    return typed


def _check_places(tables: Mapping[str, Any], methods: Sequence[str], problems: list[str]) -> None:
    """Add the problems that only several keys or tables together show. ``methods``: those that the job fits."""
    source, cluster, output = tables.get("input"), tables.get("cluster"), tables.get("output")
    if source is not None and source.path is None and source.dataset is None:
        problems.append("[input] needs path (rows that are there) or dataset (rows to generate)")
    if source is not None and source.dataset is not None:
        problems += [
            f"[input] {name}: chooses among what a file holds; a data set has nothing to choose"
            for name in CHOICE
            if getattr(source, name)
        ]
    if source is not None and methods:
        taken = {name for one in methods for name in (method(one).aligned if one in REGISTRY else ALIGNED)}
        problems += [
            f"[input] {name}: {' and '.join(methods)} take{'s' * (len(methods) == 1)} none; leave it out"
            for name in ALIGNED
            if name != "ids" and getattr(source, name) is not None and name not in taken
        ]
        problems += [
            f"[input] {name}: {one} needs them; give the path of an array with one entry a row"
            for one in methods
            for name in needed_aligned(one)
            if getattr(source, name) is None and source.dataset is None
        ]
    if source is not None:
        problems += _graph_problems(source, methods, bool(tables.get(STEPS)))
    if tables.get("condense") is not None:
        problems += _condense_problems(tables, methods)
    if cluster is not None:
        problems += cluster_problems(cluster)
    if (clusters := tables.get("clusters")) is not None:
        problems += clusters_problems(clusters.model_dump(exclude_none=True))
        if tables.get("sweep") is not None:
            problems.append("[clusters]: a sweep compares maps, and looks for no clusters of theirs; leave it out")
    if output is not None:
        written = (output.path, output.table, output.picture, output.model, output.report, output.view)
        if tables.get("sweep") is not None:
            problems += [
                f"[output] {name}: a sweep writes table.csv, table.json and the coordinates of each point into path, "
                "a page at report and those of every row into view; leave it out"
                for name in ("table", "picture", "model")
                if getattr(output, name) is not None
            ]
            if output.keep != "all":
                problems.append("[output] keep: points of a sweep share their stages, which all stay; leave it out")
        elif output.keep == "coordinates" and (output.model is not None or tables.get("condense") is not None):
            needs = "[output] model" if output.model is not None else "[condense]"
            problems.append(f'{needs}: with keep = "coordinates" what places other rows is deleted; say keep = "map"')
        places = [place for place in (*written, source and source.path) if place]
        twice = sorted({place for place in places if places.count(place) > 1})
        problems.extend(f"[output] {parameters.shown(place)} is named twice" for place in twice)


def _graph_problems(source: Any, methods: Sequence[str], steps: bool) -> list[str]:
    """Return what is wrong with the keys that say how a graph is read."""
    if source.graph is None:
        given = [name for name in GRAPH if getattr(source, name) not in (None, False, "error")]
        return [f"[input] {name}: belongs to a graph; say what its values are: graph = 'weights'" for name in given]
    problems = [
        f"[input] {name}: a graph has none; leave it out"
        for name in ("rows", "fill_absent", "dataset")
        if getattr(source, name)
    ]
    if isinstance(source.array, list):
        problems.append("[input] array: one array holds the graph; give its name")
    if steps:
        problems.append("[[steps]]: steps map rows, and a graph has none; leave them out")
    able = ", ".join(name for name in sorted(REGISTRY) if method(name).takes_graphs)
    wrong = [name for name in methods if name in REGISTRY and not method(name).takes_graphs]
    problems += [f"[input] graph: {name} reads rows; {able} take a graph" for name in wrong]
    return problems


def _condense_problems(tables: Mapping[str, Any], methods: Sequence[str]) -> list[str]:
    """Return what is wrong with the table ``[condense]`` beside the others."""
    table, source, chosen = tables["condense"], tables.get("input"), tables.get("method")
    problems = []
    if (table.rows is None) == (table.radius is None):
        problems.append("[condense] needs rows (about how many cells) or radius (how wide they may be), and one alone")
    if tables.get("sweep") is not None:
        problems.append(
            "[condense]: a sweep maps rows that are there. Run bigembed condense, and give [input] path its output"
        )
    if tables.get(STEPS):
        problems.append(
            "[[steps]]: rows are condensed as they are, in the distances between them. Map them by a job of their own "
            "first, or leave the steps out"
        )
    if tables.get("clusters") is not None:
        problems.append("[clusters]: clusters are looked for among rows, and the map has cells. Leave one of them out")
    if source is not None and source.graph is not None:
        problems.append("[condense]: a graph has no rows to condense; leave it out")
    able = ", ".join(name for name in sorted(REGISTRY) if "weights" in method(name).aligned)
    problems += [
        f"[condense]: {name} takes no weights, so cells of many rows would count as those of one; {able} take them"
        for name in methods
        if name in REGISTRY and "weights" not in method(name).aligned
    ]
    metric = "euclidean" if chosen is None else chosen.parameters.get("metric", "euclidean")
    if metric not in ("euclidean", "cosine"):
        problems.append(
            f"[condense]: metric {parameters.shown(metric)}; rows are condensed in 'euclidean' or 'cosine' distances"
        )
    return problems


def needed_aligned(name: str) -> tuple[str, ...]:
    """Return the aligned vectors that a method needs."""
    needs: tuple[str, ...] = getattr(method(name), "needs", ()) if name in REGISTRY else ()
    return needs


def placed(path: str, root: Path) -> Path:
    """Return a path that is given relative to a folder, absolute; JobError for one that no file can have."""
    if not path or CONTROL.search(path):
        raise JobError(f"path {parameters.shown(path)}: {'it holds control characters' if path else 'empty'}")
    try:
        found = (root / Path(path).expanduser()).resolve()
        found.lstat()
    except (FileNotFoundError, NotADirectoryError):
        return found
    except (OSError, ValueError, RuntimeError) as error:  # (too long, a loop of links, nobody's home)
        raise JobError(f"path {parameters.shown(path)}: {getattr(error, 'strerror', None) or error}") from error
    if found == found.parent:
        raise JobError(f"path {parameters.shown(path)}: the root of the file system. Give a path below it")
    return found


def _rooted(job: JobSpec, root: Path) -> JobSpec:
    """Return the job with absolute paths."""
    relative: set[str] = set()

    def at(path: str | None) -> str | None:
        if path is None:
            return None
        place = located(path)  # (which refuses what only looks like a URL)
        found = str(place) if is_url(path) else str(placed(path, root))
        if not (is_url(path) or Path(path).expanduser().is_absolute()):
            relative.add(found)
        return found

    def changed(table: Any, *keys: str, **more: Any) -> Any:
        return table.model_copy(update={key: at(getattr(table, key)) for key in keys} | more)

    given, cluster = job.input.parameters, job.cluster
    folders = {key: at(value) for key, value in given.items() if key in FOLDERS}
    shared = {"shared_folder": at(cluster.shared_folder or ".")} if cluster.manager else {}
    tables = {
        "input": changed(job.input, "path", "distances", parameters={**given, **folders}),
        "output": changed(job.output, "path", "table", "picture", "model", "scratch", "report", "view"),
        "cluster": changed(cluster, "tls_ca", "tls_cert", "tls_key", **shared),
    }
    return job.model_copy(update={**tables, "relative": frozenset(relative)})


# ---------------------------------------------------------------------------------------------------------- examples
# ``bigembed example``: job files to begin with, beside this file, and the small data that some of them read.

EXAMPLES = files("bigembed.jobs") / "examples"
SUFFIX = ".toml"


def rolled_sheet() -> dict[str, Array]:
    """Rows of a rolled-up sheet, and their ids."""
    rows, _ = datasets.dataset("swiss_roll", n=2000).draw()
    return {"rows.npy": rows, "ids.npy": np.array([f"point {number}" for number in range(len(rows))])}


def table_with_gaps() -> dict[str, Array]:
    """Columns of different scales, one value in a hundred missing."""
    random = np.random.default_rng(0)
    rows = random.normal(size=(1000, 2)) @ random.normal(size=(2, 6)) + 0.1 * random.normal(size=(1000, 6))
    rows *= [1, 10, 100, 1, 10, 100]
    rows[random.random(rows.shape) < 0.01] = np.nan
    return {"table.npy": rows}


DATA: dict[str, Callable[[], dict[str, Array]]] = {"rows": rolled_sheet, "steps": table_with_gaps}
"""Files that an example reads, by its name."""


def examples() -> dict[str, str]:
    """Return the names of the examples, each with what it shows."""
    found = {path.name.removesuffix(SUFFIX): path.read_text() for path in EXAMPLES.iterdir() if _is_job(path)}
    return {name: found[name].partition("\n")[0].removeprefix("# ") for name in sorted(found)}


def _is_job(path: Any) -> bool:
    return str(path.name).endswith(SUFFIX)


def write_example(name: str, folder: str | Path = ".") -> list[Path]:
    """Write the job file of an example, and the data that it reads; return their paths, the job file first."""
    if name not in (known := examples()):
        raise InputError(f"no example {name!r}; there are {', '.join(known)}")
    home, data = Path(folder), DATA.get(name, dict)()
    paths = [home / f"{name}{SUFFIX}", *(home / file for file in data)]
    if there := [str(path) for path in paths if path.exists()]:
        raise ExistingOutputError(f"{', '.join(there)}: exists. Nothing was changed; choose another folder")
    home.mkdir(parents=True, exist_ok=True)
    for file, array in data.items():
        write_npy(home / file, array)
    paths[0].write_text(EXAMPLES.joinpath(paths[0].name).read_text())
    return paths


def show_example(name: str | None, folder: str | Path) -> tuple[dict[str, Any], list[str]]:
    """Return what ``bigembed example`` found or wrote, and how it says so."""
    if name is None:
        known = examples()
        width = max(map(len, known))
        return known, [
            *(f"{one:<{width}}  {what}" for one, what in known.items()),
            "",
            "bigembed example NAME [FOLDER]",
        ]
    job, *data = write_example(name, folder)
    written = [str(path) for path in (job, *data)]
    return {"job": str(job), "data": written[1:]}, [f"written: {', '.join(written)}", f"next: bigembed run {job}"]
