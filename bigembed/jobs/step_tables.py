"""The tables [[steps]] of a job file, each checked as its step says."""

from __future__ import annotations

import inspect
import re
from collections.abc import Iterator, Mapping
from typing import Any

from bigembed.errors import BigembedError, JobError
from bigembed.estimator import AROUND
from bigembed.jobs.job import STEP_KEYS, STEPS, StepTable
from bigembed.jobs.parameters import shown, typed_values, unknown
from bigembed.methods import step


def step_tables(given: Any, problems: list[str]) -> tuple[StepTable, ...]:
    """The steps of ``[[steps]]``; what is wrong with them is added to ``problems``."""
    if not isinstance(given, list) or not all(isinstance(one, Mapping) for one in given):
        problems.append(f"steps must be a list of tables, each headed [[steps]], not {shown(given)}")
        return ()
    found = [_step(f"[[steps]] {number}", dict(one), problems) for number, one in enumerate(given, 1)]
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
    known = {key: one for key, one in inspect.signature(kind).parameters.items() if key not in AROUND}
    names = {STEP_KEYS.get((name, key), key): key for key in known}
    wrong = unknown(where, given, names)
    inside = {names[key]: value for key, value in given.items() if key in names}
    typed, mistyped = typed_values(kind, STEPS, inside, known, [])
    wrong += [one.replace(f"[{STEPS}]", where, 1) for one in mistyped]
    if not mistyped:
        wrong += [f"{where} {one}" for one in _refused(kind, typed, {own: key for key, own in names.items()})]
    problems += wrong
    return None if wrong else StepTable(name=name, parameters=typed)


def _refused(kind: Any, typed: Mapping[str, Any], keys: Mapping[str, str]) -> Iterator[str]:
    """What a step says against its parameters, by their keys in the job file."""
    try:
        made = kind(**typed)
        made._check()
    except BigembedError as error:
        text = str(error).removeprefix(f"{kind.__name__}: ")
        yield "; ".join(re.sub(r"^\w+(?==)", lambda key: keys.get(key[0], key[0]), one) for one in text.split("; "))
        return
    if not isinstance(getattr(made, "n_components", 1), int):
        yield "n_components: a whole number, so that what follows can be planned"
