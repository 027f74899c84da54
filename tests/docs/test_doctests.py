"""The examples in docstrings print what they show."""

from __future__ import annotations

import doctest
import importlib
from pathlib import Path

import pytest

import bigembed

PACKAGE = Path(bigembed.__file__).parent
MODULES = [
    ".".join(path.relative_to(PACKAGE.parent).with_suffix("").parts)
    for path in sorted(PACKAGE.rglob("*.py"))
    if ">>> " in path.read_text(encoding="utf-8")
]


def test_there_are_examples() -> None:
    assert len(MODULES) > 100


@pytest.mark.parametrize("name", MODULES)
def test_examples_print_what_they_show(name: str) -> None:
    ran = doctest.testmod(importlib.import_module(name.removesuffix(".__init__")))
    assert ran.attempted
    assert not ran.failed
