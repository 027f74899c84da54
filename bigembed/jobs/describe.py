"""The methods there are, with their parameters: from their declarations and docstrings."""

from __future__ import annotations

import inspect
import re
from typing import Any

from bigembed.blocks.declared import allowed, kinds_of
from bigembed.estimator import AROUND
from bigembed.jobs.job import STEP_KEYS
from bigembed.methods import REGISTRY, STEPS, method, step


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
        if key not in AROUND
    ]
    return {
        "name": name,
        "class": cls.__name__,
        "summary": (inspect.getdoc(cls) or "").split("\n")[0],
        "parameters": parameters,
    }


def documented(text: str) -> dict[str, str]:
    """What a numpydoc docstring says of each parameter.

    >>> documented("Does.\\n\\nParameters\\n----------\\na : int\\n    Number.\\nb, c : rest\\n    of it\\n")
    {'a': 'int Number.', 'b': 'rest of it', 'c': 'rest of it'}
    """
    match = re.search(r"^Parameters\n-+\n(.*?)(?=^\w[\w ]*\n-+$|\Z)", text, re.S | re.M)
    entries: dict[str, list[str]] = {}
    for line in (match[1] if match else "").splitlines():
        head = re.match(r"(\w+(?:, \w+)*) : (.*)", line)
        if head:
            about = [head[2]]
            entries |= dict.fromkeys(head[1].split(", "), about)
        elif line.startswith(" ") and entries:
            about.append(line.strip())
    return {key: " ".join(parts) for key, parts in entries.items()}


def method_lines(found: dict[str, list[dict[str, Any]]]) -> list[str]:
    """The methods, and then the steps, for people."""
    lines = []
    for kind, title in (("methods", []), ("steps", ["", "Steps before a method ([[steps]] of a job file):"])):
        lines += title
        for entry in found[kind]:
            lines += [f"{entry['name']}: {entry['summary']}"]
            lines += [f"  {p['name']} = {p['default']!r}  {p['meaning']}" for p in entry["parameters"]]
    return lines
