"""Parameters as a job file gives them, typed as the class of the method says; and all that is wrong with them."""

from __future__ import annotations

import inspect
import typing
from collections.abc import Collection, Iterable, Mapping
from difflib import get_close_matches
from typing import Any

from pydantic import ConfigDict, TypeAdapter, ValidationError

from bigembed.blocks.functions import allowed
from bigembed.errors import InputError
from bigembed.estimator import AROUND
from bigembed.jobs.job import ALIGNED, CHOICE, GRAPH
from bigembed.methods import method

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
    """Parameters as the method's class takes them ("none" for None, which TOML lacks); what is wrong.

    ``table``: of the job file, where they stand.
    """
    known = dict(inspect.signature(method(name)).parameters)
    problems = []
    if "workdir" in given:
        problems.append(f"[{table}] workdir: a job's stages are kept in [output] path; leave it out")
    known = {key: parameter for key, parameter in known.items() if key not in AROUND}
    try:
        problems += [f"[{table}] {problem}" for problem in allowed(given, functions, ALLOW)[1]]
    except InputError as error:  # (allowed, and cannot be imported)
        problems.append(f"[{table}] {error}")
    return typed_values(method(name), table, given, known, problems)


def typed_values(
    function: Any, table: str, given: Mapping[str, Any], known: Mapping[str, inspect.Parameter], problems: list[str]
) -> tuple[dict[str, Any], list[str]]:
    """Values as the annotations of a function say, and ``problems`` with what is wrong with them."""
    extra = EXTRA.get(table, ("method",))
    problems += unknown(f"[{table}]", {key: 0 for key in given if key != "workdir"}, [*known, *extra])
    problems += [
        f"[{table}] {key}: must be given"
        for key, parameter in known.items()
        if parameter.default is inspect.Parameter.empty and key not in given
    ]
    hints = _hints(function)
    typed = {}
    for key in (key for key in given if key in known):
        hint = hints.get(key, Any)
        kinds = typing.get_args(hint)
        value = None if given[key] == "none" and type(None) in kinds and str not in kinds else given[key]
        try:
            typed[key] = TypeAdapter(hint, config=ConfigDict(arbitrary_types_allowed=True)).validate_python(
                value, strict=True
            )
        except ValidationError as error:
            reasons = "; or ".join(dict.fromkeys(reason_of(item) for item in error.errors()))
            problems.append(f"[{table}] {key}: {reasons}")
        except Exception:  # a hint that pydantic cannot check: the method does
            typed[key] = value
    return typed, problems


def _hints(function: Any) -> dict[str, Any]:
    """The annotations of a function, or of the fields of a class, each as the module that declares it means it."""
    own = isinstance(function, type) and "__dataclass_fields__" not in vars(function)
    try:
        return typing.get_type_hints(function.__init__ if own else function)
    except (NameError, TypeError):
        return {}


def unknown(where: str, given: Iterable[str], known: Iterable[str]) -> list[str]:
    """What to say of names that are not known, each with the nearest known one."""
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


def reason_of(item: Any) -> str:
    """What pydantic finds wrong with a value, in words."""
    if item["type"] == "missing":
        return "must be given"
    message = str(item["msg"])
    message = message[0].lower() + message[1:]
    return f"{message}, not {shown(item['input'])}"
