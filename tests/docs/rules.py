"""What the house asks of a docstring, as far as a machine can tell."""

from __future__ import annotations

import inspect
import re
from pathlib import Path
from typing import Any

from numpydoc.docscrape import ClassDoc, FunctionDoc, NumpyDocString

DOCS = Path(__file__).resolve().parents[2] / "docs"
SECTIONS = ["Parameters", "Attributes", "Raises", "Warns", "Notes", "References", "Examples"]
OPTIONAL = "Warns"


def text_of(value: Any) -> str:
    """Return the docstring."""
    return inspect.getdoc(value) or ""


def parts_of(value: Any) -> NumpyDocString:
    """Return the docstring as numpydoc reads it."""
    if inspect.isclass(value):
        return ClassDoc(value, config={"show_class_members": False})
    return FunctionDoc(value)


def sections_of(value: Any) -> list[str]:
    """Return the names of the sections, in their order."""
    return re.findall(r"(?m)^([A-Z][\w ]+)\n-+$", text_of(value))


def entries_of(value: Any, section: str) -> list[str]:
    """Return the names of the entries of a section; one without a type or a description is an error."""
    found = parts_of(value)[section]
    assert [one.name for one in found if not (one.name and one.type and "".join(one.desc).strip())] == []
    return [name for one in found for name in one.name.split(", ")]


def require_estimator(estimator: type[Any]) -> None:
    """Raise AssertionError where the class or a public method does not say what it should."""
    parts = parts_of(estimator)
    assert [name for name in sections_of(estimator) if name != OPTIONAL] == [n for n in SECTIONS if n != OPTIONAL]
    assert entries_of(estimator, "Parameters") == list(inspect.signature(estimator).parameters)
    cost = "\n".join(parts["Notes"]).lower()
    assert re.search(r"pass(es)?\b", cost), "passes over the rows"
    assert re.search(r"memory|bytes|numbers|disk", cost), "what it holds"
    assert re.search(r"\(\d{4}\)|seed 00\d", "\n".join(parts["References"])), "a source and its year"
    before = "\n".join([*parts["Summary"], *parts["Extended Summary"]])
    assert re.search(r"seed 00\d|eqs?\. |\(\w.* \d{4}\)", before), "where the formula comes from"
    assert sum(line.startswith(">>>") for line in parts["Examples"]) >= 2
    for name, member in inspect.getmembers(estimator):
        if not name.startswith("_") and (inspect.isfunction(member) or isinstance(member, property)):
            assert text_of(member), f"{name} says nothing"


def require_function(function: Any) -> None:
    """Raise AssertionError where the docstring of a function does not say what it should."""
    named = [name.lstrip("*") for name in entries_of(function, "Parameters")]
    assert named == list(inspect.signature(function).parameters)
    found = sections_of(function)
    assert {"Returns", "Raises", "Notes", "Examples"} <= set(found), found
    assert any(line.startswith(">>>") for line in parts_of(function)["Examples"])
