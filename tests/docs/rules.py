"""What the house asks of a docstring, as far as a machine can tell."""

from __future__ import annotations

import importlib.util
import inspect
import re
from functools import cache
from pathlib import Path
from types import ModuleType
from typing import Any

DOCS = Path(__file__).resolve().parents[2] / "docs"
SECTIONS = ["Parameters", "Attributes", "Raises", "Notes", "References", "Examples"]


@cache
def reader() -> ModuleType:
    """What reads the sections of a docstring for the pages."""
    spec = importlib.util.spec_from_file_location("docstrings", DOCS / "_ext" / "docstrings.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def text_of(value: Any) -> str:
    """The docstring."""
    return inspect.getdoc(value) or ""


def sections_of(value: Any) -> dict[str, list[str]]:
    """The lines of each section."""
    return dict(reader().sections(text_of(value)))


def entries_of(value: Any, section: str) -> list[str]:
    """Names of the entries of a section; text that belongs to no entry is an error."""
    found = reader().entries(sections_of(value).get(section, []))
    assert [what for names, what in found if not names] == []
    return [name for names, _ in found for name in names]


def require_estimator(estimator: type[Any]) -> None:
    """AssertionError where the class or a public method does not say what it should."""
    parts = sections_of(estimator)
    assert [name for name in parts if name] == SECTIONS
    assert entries_of(estimator, "Parameters") == list(inspect.signature(estimator).parameters)
    assert len(text_of(estimator).split("\n\n")[0]) <= 200, "the first paragraph says what it is, in a line or two"
    cost = "\n".join(parts["Notes"]).lower()
    assert re.search(r"pass(es)?\b", cost), "passes over the rows"
    assert re.search(r"memory|bytes|numbers|disk", cost), "what it holds"
    assert re.search(r"\(\d{4}\)|seed 00\d", "\n".join(parts["References"])), "a source and its year"
    assert re.search(r"seed 00\d|eqs?\. |\(\w.* \d{4}\)", "\n".join(parts[""])), "where the formula comes from"
    assert sum(line.startswith(">>>") for line in parts["Examples"]) >= 2
    for name, member in inspect.getmembers(estimator):
        if not name.startswith("_") and (inspect.isfunction(member) or isinstance(member, property)):
            assert text_of(member), f"{name} says nothing"


def require_function(function: Any) -> None:
    """The same for a function."""
    parts = sections_of(function)
    assert entries_of(function, "Parameters") == list(inspect.signature(function).parameters)
    assert {"Returns", "Raises", "Notes", "Examples"} <= set(parts), sorted(parts)
    assert any(line.startswith(">>>") for line in parts["Examples"])
