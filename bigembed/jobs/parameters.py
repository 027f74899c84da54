"""Parameters as a job file gives them, typed as the class of the method declares them; and the points of a sweep."""

from __future__ import annotations

import inspect
import itertools
import math
import re
import typing
from collections.abc import Collection, Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

from pydantic import ConfigDict, TypeAdapter, ValidationError

from bigembed.errors import BigembedError, InputError, JobError, nearest
from bigembed.estimator import RUN_PARAMETERS, check_parameters
from bigembed.jobs.job import ALIGNED, CHOICE, GRAPH, STEP_KEYS, JobSpec, MethodTable, SweepTable
from bigembed.maps import REGISTRY, STEPS, method, step
from bigembed.runtime.parameters import allowed, allowed_functions, kinds_of

# ------------------------------------------------------------------------------------------------------ parameters
# Parameters as a job file gives them, typed as the class of the method says; and all that is wrong with them.

ALLOW = 'give --allow-functions with its name (in Python read_job(file, functions=["MODULE"]))'
"""How a function that a job file names is allowed."""
LISTED = 20
"""Problems that one error lists, and the characters of a key or of a value in it."""
SHOWN = 100
EXTRA = {"input": ("path", "dataset", *ALIGNED, *CHOICE, *GRAPH), "method": ("name",)}
"""Keys of a table beside the parameters; of those of a sweep it is the method."""


def checked_parameters(
    name: str, given: Mapping[str, Any], functions: Collection[str] = (), table: str = "method"
) -> tuple[dict[str, Any], list[str]]:
    """Return the parameters as the method's class takes them ("none" for None, which TOML lacks); what is wrong.

    ``table``: of the job file, where they stand.
    """
    problems = []
    if "workdir" in given:
        problems.append(f"[{table}] workdir: a job's stages are kept in [output] path; leave it out")
    known = {key: one for key, one in inspect.signature(method(name)).parameters.items() if key not in RUN_PARAMETERS}
    try:
        problems += [f"[{table}] {problem}" for problem in allowed_functions(given, functions, ALLOW)[1]]
    except InputError as error:  # (allowed, and cannot be imported)
        problems.append(f"[{table}] {error}")
    return typed_values(method(name), table, given, known, problems)


def typed_values(
    function: Any, table: str, given: Mapping[str, Any], known: Mapping[str, inspect.Parameter], problems: list[str]
) -> tuple[dict[str, Any], list[str]]:
    """Return the values as the annotations of a function say, and ``problems`` with what is wrong with them."""
    extra = EXTRA.get(table, ("method",))
    problems += unknown(f"[{table}]", {key: 0 for key in given if key != "workdir"}, [*known, *extra])
    problems += [
        f"[{table}] {key}: must be given"
        for key, parameter in known.items()
        if parameter.default is inspect.Parameter.empty and key not in given
    ]
    own = isinstance(function, type) and "__dataclass_fields__" not in vars(function)
    described = function.__init__ if own else function
    hints: dict[str, Any] = {}
    limited: dict[str, Any] = {}
    with suppress(NameError, TypeError):
        hints, limited = (typing.get_type_hints(described, include_extras=extras) for extras in (False, True))
    typed = {}
    for key in (key for key in given if key in known):
        hint = hints.get(key, Any)
        kinds = typing.get_args(limited.get(key, Any))  # (where only some texts are allowed, "none" is free)
        value = None if given[key] == "none" and type(None) in kinds and str not in kinds else given[key]
        try:
            checked = TypeAdapter(hint, config=ConfigDict(arbitrary_types_allowed=True))
            typed[key] = checked.validate_python(value, strict=True)
        except ValidationError as error:
            reasons = "; or ".join(dict.fromkeys(reason_of(item) for item in error.errors()))
            problems.append(f"[{table}] {key}: {reasons}")
        except Exception:  # a hint that pydantic cannot check: the method does
            typed[key] = value
    return typed, problems


def unknown(where: str, given: Iterable[str], known: Iterable[str]) -> list[str]:
    """Return what to say of names that are not known, each with the nearest known one."""
    names = list(known)
    out: list[str] = []
    for key in given:
        if key not in names:
            near = nearest(key, names) if len(key) < SHOWN and len(out) < LISTED else None
            hint = f"did you mean {near!r}?" if near else f"known: {', '.join(names)}"
            out.append(f"{where} {shown(key)}: unknown; {hint}")
    return out


def shown(value: Any) -> str:
    """Write a value for an error message: of a long one its beginning.

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


def reason_of(item: Any) -> str:
    """Say in words what pydantic finds wrong with a value."""
    if item["type"] == "missing":
        return "must be given"
    message = str(item["msg"])
    if item["type"] == "value_error":  # (an error of our own, to which pydantic adds a prefix)
        message = str(item["ctx"]["error"])
        if str(item["input"]) in message:
            return message
    else:
        message = message[0].lower() + message[1:]
    return f"{message}, not {shown(item['input'])}"


# -------------------------------------------------------------------------------------------------------- describe
# The methods there are, with their parameters: from their declarations and docstrings.


def described() -> dict[str, list[dict[str, Any]]]:
    """Every method, and every step before one: name, class, one line, parameters with defaults, allowed, meaning."""
    methods = [_describe(name, method(name)) for name in sorted(REGISTRY)]
    return {"methods": methods, "steps": [_describe(name, step(name)) for name in STEPS]}


def _describe(name: str, cls: Any) -> dict[str, Any]:
    kinds = kinds_of(cls)
    meaning = documented(inspect.getdoc(cls) or "")
    parameters = [
        {
            "name": STEP_KEYS.get((name, key), key),
            "default": None if parameter.default is inspect.Parameter.empty else parameter.default,
            "allowed": allowed(kinds[key]),
            "meaning": meaning.get(key, ""),
        }
        for key, parameter in inspect.signature(cls).parameters.items()
        if key not in RUN_PARAMETERS
    ]
    return {
        "name": name,
        "class": cls.__name__,
        "summary": summary_of(cls),
        "parameters": parameters,
    }


def summary_of(cls: type[Any]) -> str:
    """Return the first line of what a method or a step says of itself, without where its formulas are from."""
    first = (inspect.getdoc(cls) or "").split("\n")[0]
    return re.sub(r"\s*\([^()]*\bseed \d[^()]*\)", "", first)


def documented(text: str) -> dict[str, str]:
    """Return what a numpydoc docstring says of each parameter: its type, and then its description.

    >>> documented("Do.\\n\\nParameters\\n----------\\na : int\\n    Number.\\nb, c : bool\\n    Whether\\n    so.\\n")
    {'a': 'int. Number.', 'b': 'bool. Whether so.', 'c': 'bool. Whether so.'}
    """
    match = re.search(r"^Parameters\n-+\n(.*?)(?=^\w[\w ]*\n-+$|\Z)", text, re.S | re.M)
    entries: dict[str, list[str]] = {}
    for line in (match[1] if match else "").splitlines():
        head = re.match(r"(\w+(?:, \w+)*) : (.*)", line)
        if head:
            about = [f"{head[2]}."]
            entries |= dict.fromkeys(head[1].split(", "), about)
        elif line.startswith(" ") and entries:
            about.append(line.strip())
    return {key: " ".join(parts) for key, parts in entries.items()}


def method_lines(found: dict[str, list[dict[str, Any]]]) -> list[str]:
    """List the methods, and then the steps, in lines to print."""
    lines = []
    for kind, title in (("methods", []), ("steps", ["", "Steps before a method ([[steps]] of a job file):"])):
        lines += title
        for entry in found[kind]:
            lines += [f"{entry['name']}: {entry['summary']}"]
            lines += [f"  {p['name']} = {p['default']!r}  {p['meaning']}" for p in entry["parameters"]]
    return lines


# ---------------------------------------------------------------------------------------------------------- points
# The points of a sweep: methods with their parameters, from the tables [method] and [sweep] of a job.

MOST = 1_000
"""Points of a sweep."""


@dataclass(frozen=True)
class Point:
    """One embedding of a sweep."""

    label: str
    """What sets it apart: the values that the sweep gives, after the method where there are several."""
    method: str
    parameters: Mapping[str, Any]
    given: tuple[str, ...]
    """Names of the parameters that the sweep gives."""

    def job(self, job: JobSpec) -> JobSpec:
        """Return the job of this point alone."""
        table = job.method.model_copy(update={"name": self.method, "parameters": dict(self.parameters)})
        return job.model_copy(update={"method": table, "sweep": None})


def methods_of(job: JobSpec) -> list[str]:
    """Return the methods that a job fits: one, or those of its sweep."""
    return [job.method.name] if job.sweep is None else list(dict.fromkeys(point.method for point in points_of(job)))


def single_jobs(job: JobSpec) -> list[JobSpec]:
    """Return the jobs of the points of a sweep; of any other job itself."""
    return [job] if job.sweep is None else [point.job(job) for point in points_of(job)]


def points_of(job: JobSpec) -> list[Point]:
    """Return the points of a job's sweep; :class:`JobError` lists everything that is wrong with them."""
    if job.sweep is None:
        raise JobError(
            f"{job.file}: no table [sweep]. Give lists of values there, such as n_neighbors = [10, 20], or --vary"
        )
    points, problems = expanded(job.method, job.sweep, job.functions)
    if problems:
        raise JobError(f"{job.file}: " + "".join(f"\n  {problem}" for problem in problems))
    return points


def require_single(job: JobSpec) -> None:
    """:class:`JobError` for a sweep where one embedding is asked for."""
    if job.sweep is not None:
        raise JobError(f"{job.file}: [sweep] asks for several embeddings; bigembed sweep {job.file} makes them")


def expanded(table: MethodTable, sweep: SweepTable, functions: Collection[str] = ()) -> tuple[list[Point], list[str]]:
    """Return the points, the last parameter of the grid varying quickest, then the single ones; what is wrong with
    them."""
    problems = _axis_problems(sweep)
    if problems:
        return [], problems
    asked = list(_asked(sweep))
    several = any(own.get("method", table.name) != table.name for _, own in asked)
    points: dict[str, Point] = {}
    for where, own in asked:
        point, wrong = _point(where, own, table, several, functions)
        problems += wrong
        if point is None:
            continue
        key = repr((point.method, sorted(point.parameters.items(), key=lambda item: item[0])))
        if key in points:
            problems.append(f"[{where}] {point.label}: the same as {points[key].label}; leave one out")
        points[key] = point
    return list(points.values()), list(dict.fromkeys(problems))


def _axis_problems(sweep: SweepTable) -> list[str]:
    """Return what is wrong with the lists themselves."""
    axes = _axes(sweep)
    problems = [
        f"[sweep] {name}: a list of values, at least one, such as {name} = [1, 2]; not {shown(value)}"
        for name, value in axes.items()
        if not isinstance(value, list) or not value
    ]
    if not axes and not sweep.points:
        problems.append("[sweep] is empty: give lists of values, such as n_neighbors = [10, 20], or [[sweep.points]]")
    if not problems:
        count = (math.prod(map(len, axes.values())) if axes else 0) + len(sweep.points or ())
        if count > MOST:
            problems.append(f"[sweep] gives {count:,} points; at most {MOST:,} are taken")
    return problems


def _axes(sweep: SweepTable) -> dict[str, Any]:
    return ({} if sweep.method is None else {"method": sweep.method}) | sweep.parameters


def _asked(sweep: SweepTable) -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield what each point says, and in which table."""
    if axes := _axes(sweep):
        for values in itertools.product(*axes.values()):
            yield "sweep", dict(zip(axes, values, strict=True))
    for number, own in enumerate(sweep.points or (), 1):
        yield f"sweep.points {number}", dict(own)


def out_of_range(name: str, typed: Mapping[str, Any]) -> list[str]:
    """Return what a method says against its parameters, of which none has a wrong type."""
    try:
        check_parameters(method(name)(**typed))
    except BigembedError as error:
        return [str(error)]
    return []


def _point(
    where: str, own: dict[str, Any], table: MethodTable, several: bool, functions: Collection[str]
) -> tuple[Point | None, list[str]]:
    """Return a point, or what is wrong with it."""
    name = own.pop("method", table.name)
    try:
        method(name if isinstance(name, str) else shown(name))
    except JobError as error:
        return None, [f"[{where}] method: {error}"]
    known = inspect.signature(method(name)).parameters
    taken = {key: value for key, value in table.parameters.items() if name == table.name or key in known}
    typed, problems = checked_parameters(name, {**taken, **own}, functions, where)
    words = [name] if several or not own else []
    values = (f"{key}={value if isinstance(value, str) else shown(value)}" for key, value in own.items())
    label = ", ".join([*words, *values])
    problems = problems or [f"[{where}] {label}: {text}" for text in out_of_range(name, typed)]
    return (None if problems else Point(label, name, typed, tuple(own))), problems
