"""Of the values of a parameter a few by default, the others by ``-m slow``: second forms of one promise."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import pytest


def a_few(number: int, names: str | tuple[str, ...], values: Iterable[Any], **named: Any) -> pytest.MarkDecorator:
    """``pytest.mark.parametrize``, of whose values only the first ones, so many, are run by default."""
    several = not isinstance(names, str) or "," in names
    marked = [one if turn < number else _slow(one, several) for turn, one in enumerate(values)]
    return pytest.mark.parametrize(names, marked, **named)


def these(default: Sequence[Any], name: str, values: Iterable[Any], **named: Any) -> pytest.MarkDecorator:
    """The same, of whose values only these are run by default."""
    return a_few(len(default), name, [*default, *(one for one in values if one not in default)], **named)


def _slow(value: Any, several: bool) -> Any:
    if hasattr(value, "marks"):  # (made by pytest.param)
        return value._replace(marks=[*value.marks, pytest.mark.slow])
    return pytest.param(*(value if several else (value,)), marks=pytest.mark.slow)
