"""The job file: TOML tables [input], [method], [output] and [cluster], validated as a whole.

Every offender is listed with its table and key, an unknown key with the nearest known one.
Paths are relative to the job file.
"""

from __future__ import annotations

import inspect
import re
import tomllib
import typing
from collections.abc import Collection, Iterable, Mapping
from difflib import get_close_matches
from pathlib import Path
from typing import Any

from pydantic import ConfigDict, TypeAdapter, ValidationError

from bigembed.blocks.functions import allowed
from bigembed.errors import BigembedError, InputError, JobError
from bigembed.estimator import AROUND
from bigembed.jobs.job import ALIGNED, CHOICE, TABLES, JobSpec
from bigembed.jobs.places.cluster_table import ClusterTable as ClusterTable
from bigembed.jobs.places.cluster_table import Table, cluster_problems
from bigembed.methods import REGISTRY, method
from bigembed.store.paths import at as located
from bigembed.store.paths import is_url

ALLOW = 'give --allow-functions with its name (in Python read_job(file, functions=["MODULE"]))'
"""How a function that a job file names is allowed."""
LARGEST = 4 << 20
"""Bytes of a job file."""
LONG_KEY = re.compile(r"""((?:(?<![\w-])[\w-]++|"[^"\n]*+"|'[^'\n]*+')\s*+\.\s*+){64}""")
CONTROL = re.compile(r"[\x00-\x1f\x7f-\x9f]")
LISTED = 20
"""Problems that one error lists, and the characters of a key or of a value in it."""
SHOWN = 100
FOLDERS = ("folder", "picture")
"""Parameters of data sets that are paths."""


def read_job(file: str | Path, functions: Collection[str] = ()) -> JobSpec:
    """The job in a TOML file; :class:`JobError` lists everything that is wrong with it.

    ``functions``: modules, or single functions (``"module:name"``), that the file may name; by default none.
    """
    try:
        path = Path(file).absolute()
        value = tomllib.loads(_text(path))
        _refuse_large(value)
    except FileNotFoundError as error:
        raise JobError(f"{file}: no such job file") from error
    except RecursionError as error:
        raise JobError(f"{file}: not readable as TOML: tables or lists are nested too deeply") from error
    except (OSError, ValueError) as error:  # (of an integer of thousands of digits, too)
        raise JobError(f"{file}: not readable as TOML: {error}") from error
    return parse_job(value, path, functions)


def _refuse_large(value: Any, key: str = "") -> None:
    """ValueError for an integer that TOML does not have: it may not even be printed."""
    if isinstance(value, int) and value.bit_length() > 64:
        raise ValueError(f"{key[:SHOWN]}: {shown(value)}; integers have at most 64")
    for name, part in value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ():
        _refuse_large(part, f"{key}.{name}".lstrip("."))


def _text(path: Path) -> str:
    """What a job file says; OSError or ValueError where it cannot be one."""
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
    """A job from the tables of a file (which need not exist: it names the job and roots its paths)."""
    problems = _unknown("a table", value, TABLES)
    problems += [f"[{name}] is missing" for name in ("input", "method", "output") if name not in value]
    problems += [
        f"[{name}] must be a table, not {shown(value[name])}"
        for name in TABLES
        if name in value and not isinstance(value[name], Mapping)
    ]
    tables: dict[str, Any] = {}
    for name, model in TABLES.items():
        given = value.get(name, {})
        if isinstance(given, Mapping) and name in value:
            tables[name] = _table(name, model, dict(given), functions, problems)
    _check_places(tables, problems)
    if problems:
        more = [f"… and {len(problems) - LISTED} more"] if len(problems) > LISTED else []
        raise JobError(f"{file}: " + "".join(f"\n  {problem}" for problem in problems[:LISTED] + more))
    return _rooted(JobSpec(file=file, **tables, functions=tuple(functions)), file.parent)


def checked_parameters(
    name: str, given: Mapping[str, Any], functions: Collection[str] = ()
) -> tuple[dict[str, Any], list[str]]:
    """Parameters as the method's class takes them ("none" for None, which TOML lacks); what is wrong."""
    known = dict(inspect.signature(method(name)).parameters)
    problems = []
    if "workdir" in given:
        problems.append("[method] workdir: a job's stages are kept in [output] path; leave it out")
    known = {key: parameter for key, parameter in known.items() if key not in AROUND}
    try:
        problems += [f"[method] {problem}" for problem in allowed(given, functions, ALLOW)[1]]
    except InputError as error:  # (allowed, and cannot be imported)
        problems.append(f"[method] {error}")
    return _typed(method(name).__init__, "method", given, known, problems)


def _table(
    name: str, model: type[Table], given: dict[str, Any], functions: Collection[str], problems: list[str]
) -> Table | None:
    own = {key: given.pop(key) for key in list(given) if key in model.model_fields and key != "parameters"}
    parameters: dict[str, Any] = {}
    free = "name" if name == "method" else "dataset" if name == "input" else ""
    if free and isinstance(own.get(free), str):
        parameters = _parameters(name, own[free], given, functions, problems)
    else:
        fields = [key for key in model.model_fields if key != "parameters"]
        problems.extend(_unknown(f"[{name}]", given, fields))
    try:
        return model(**own, **({"parameters": parameters} if parameters else {}))
    except ValidationError as error:
        problems.extend(f"[{name}] {_place(item)}: {_reason(item)}" for item in error.errors())
        return None


def _parameters(
    table: str, name: str, given: Mapping[str, Any], functions: Collection[str], problems: list[str]
) -> dict[str, Any]:
    """Check the parameters of a method or of a data set."""
    try:
        if table == "method":
            typed, wrong = checked_parameters(name, given, functions)
        else:
            from bigembed.datasets import REGISTRY, parameters

            typed, wrong = _typed(REGISTRY.get(name), table, given, parameters(name), [])
    except BigembedError as error:
        problems.append(f"[{table}] {error}")
        return {}
    problems.extend(wrong)
    return typed


def _typed(
    function: Any,
    table: str,
    given: Mapping[str, Any],
    known: Mapping[str, inspect.Parameter],
    problems: list[str],
) -> tuple[dict[str, Any], list[str]]:
    extra = ("path", "dataset", *ALIGNED, *CHOICE) if table == "input" else ("name",)
    problems += _unknown(f"[{table}]", {key: 0 for key in given if key != "workdir"}, [*known, *extra])
    problems += [
        f"[{table}] {key}: must be given"
        for key, parameter in known.items()
        if parameter.default is inspect.Parameter.empty and key not in given
    ]
    hints = _hints(function)
    typed = {}
    for key in (key for key in given if key in known):
        hint = hints.get(key, Any)
        value = None if given[key] == "none" and _allows_none(hint) else given[key]
        try:
            typed[key] = TypeAdapter(hint, config=ConfigDict(arbitrary_types_allowed=True)).validate_python(
                value, strict=True
            )
        except ValidationError as error:
            reasons = "; or ".join(dict.fromkeys(_reason(item) for item in error.errors()))
            problems.append(f"[{table}] {key}: {reasons}")
        except Exception:  # a hint that pydantic cannot check: the method does
            typed[key] = value
    return typed, problems


def _hints(function: Any) -> dict[str, Any]:
    try:
        return typing.get_type_hints(function)
    except (NameError, TypeError):
        return {}


def _allows_none(hint: Any) -> bool:
    return type(None) in typing.get_args(hint) and str not in typing.get_args(hint)


def _check_places(tables: Mapping[str, Any], problems: list[str]) -> None:
    """What no single key shows."""
    source, cluster, output = tables.get("input"), tables.get("cluster"), tables.get("output")
    if source is not None and source.path is None and source.dataset is None:
        problems.append("[input] needs path (rows that are there) or dataset (rows to generate)")
    if source is not None and source.dataset is not None:
        problems += [
            f"[input] {name}: chooses among what a file holds; a data set has nothing to choose"
            for name in CHOICE
            if getattr(source, name)
        ]
    chosen = tables.get("method")
    if source is not None and chosen is not None:
        problems += [
            f"[input] {name}: {chosen.name} takes none; leave it out"
            for name in ALIGNED
            if name != "ids" and getattr(source, name) is not None and name not in _aligned(chosen.name)
        ]
        problems += [
            f"[input] {name}: {chosen.name} needs them; give the path of an array with one entry a row"
            for name in needed_aligned(chosen.name)
            if getattr(source, name) is None and source.dataset is None
        ]
    if cluster is not None:
        problems += cluster_problems(cluster)
    if output is not None:
        written = (output.path, output.table, output.picture, output.model, output.report)
        places = [place for place in (*written, source and source.path) if place]
        twice = sorted({place for place in places if places.count(place) > 1})
        problems.extend(f"[output] {shown(place)} is named twice" for place in twice)


def _aligned(name: str) -> tuple[str, ...]:
    taken: tuple[str, ...] = getattr(method(name), "aligned", ()) if name in REGISTRY else ALIGNED
    return taken


def needed_aligned(name: str) -> tuple[str, ...]:
    """The aligned vectors that a method needs."""
    needs: tuple[str, ...] = getattr(method(name), "needs", ()) if name in REGISTRY else ()
    return needs


def _unknown(where: str, given: Iterable[str], known: Iterable[str]) -> list[str]:
    names = list(known)
    out: list[str] = []
    for key in given:
        if key not in names:
            near = get_close_matches(key, names, 1, 0.5) if len(key) < SHOWN and len(out) < LISTED else []
            hint = f"did you mean {near[0]!r}?" if near else f"known: {', '.join(names)}"
            out.append(f"{where} {shown(key)}: unknown; {hint}")
    return out


def shown(value: Any) -> str:
    """A value for an error, the beginning of a long one.

    >>> shown("a" * 200)[-6:], shown(1 << 40_000)
    ("aaaa'…", 'an integer of 40001 bits')
    """
    if isinstance(value, int) and value.bit_length() > SHOWN * 3:
        return f"an integer of {value.bit_length()} bits"
    if isinstance(value, (str, list, tuple)) and len(value) > SHOWN:
        return f"{value[:SHOWN]!r}…" if isinstance(value, str) else f"a list of {len(value)}"
    try:
        text = repr(value)
    except (ValueError, RecursionError):  # (an integer of thousands of digits in a list)
        return f"a {type(value).__name__}"
    return text if len(text) <= 3 * SHOWN else f"{text[: 3 * SHOWN]}…"


def _place(item: Any) -> str:
    return ".".join(str(part) for part in item["loc"])


def _reason(item: Any) -> str:
    if item["type"] == "missing":
        return "must be given"
    message = str(item["msg"])
    message = message[0].lower() + message[1:]
    return f"{message}, not {shown(item['input'])}"


def placed(path: str, root: Path) -> Path:
    """A path that is given relative to a folder, absolute; JobError for one that no file can have."""
    if not path or CONTROL.search(path):
        raise JobError(f"path {shown(path)}: {'it holds control characters' if path else 'empty'}")
    try:
        found = (root / Path(path).expanduser()).resolve()
        found.lstat()
    except (FileNotFoundError, NotADirectoryError):
        return found
    except (OSError, ValueError, RuntimeError) as error:  # (too long, a loop of links, nobody's home)
        raise JobError(f"path {shown(path)}: {getattr(error, 'strerror', None) or error}") from error
    if found == found.parent:
        raise JobError(f"path {shown(path)}: the root of the file system. Give a path below it")
    return found


def _rooted(job: JobSpec, root: Path) -> JobSpec:
    """The job with absolute paths."""

    def at(path: str | None) -> str | None:
        if path is None:
            return None
        place = located(path)  # (which refuses what only looks like a URL)
        return str(place) if is_url(path) else str(placed(path, root))

    folders = {key: at(value) for key, value in job.input.parameters.items() if key in FOLDERS}
    source = job.input.model_copy(
        update={"path": at(job.input.path), "parameters": {**job.input.parameters, **folders}}
    )
    output = job.output.model_copy(
        update={key: at(getattr(job.output, key)) for key in ("path", "table", "picture", "model", "scratch", "report")}
    )
    cluster = job.cluster.model_copy(
        update={key: at(getattr(job.cluster, key)) for key in ("tls_ca", "tls_cert", "tls_key")}
        | ({"shared_folder": at(job.cluster.shared_folder or ".")} if job.cluster.manager else {})
    )
    return job.model_copy(update={"input": source, "output": output, "cluster": cluster})
