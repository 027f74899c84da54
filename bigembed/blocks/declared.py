"""Parameters as they are declared: the annotations of a public function or class, held against what was given."""

from __future__ import annotations

import functools
import inspect
import os
from collections.abc import Callable, Mapping
from typing import Any, ParamSpec, TypeVar

import numpy as np

from bigembed.errors import InputError, InputTypeError

P = ParamSpec("P")
R = TypeVar("R")

_PATH = "a path", lambda value: isinstance(value, (str, os.PathLike)) or type(value).__name__ == "ObjectPath"
KINDS: dict[str, tuple[str, Callable[[Any], bool]]] = {
    "int": ("an integer", lambda value: is_integer(value)),
    "float": (
        "a number",
        lambda value: isinstance(value, (int, float, np.integer, np.floating)) and not isinstance(value, bool),
    ),
    "bool": ("True or False", lambda value: isinstance(value, (bool, np.bool_))),
    "str": ("a word", lambda value: isinstance(value, str)),
    "None": ("None", lambda value: value is None),
    "dict[str, Any]": ("a dictionary", lambda value: isinstance(value, Mapping)),
    "Path": _PATH,
    "PathLike": _PATH,
    "os.PathLike[str]": _PATH,
}
"""What an annotation allows, in words, and its test. Parameters with another part in theirs are not looked at."""
SEED = "an integer ≥ 0, None, or a random generator of NumPy"


def undeclared(function: Callable[..., Any], given: Mapping[str, Any]) -> dict[str, str]:
    """The parameters whose values are of a kind that the function does not declare, and what it allows.

    >>> def area(width: float, unit: str | None = None) -> float: ...
    >>> undeclared(area, {"width": "2", "unit": None})
    {'width': 'a number'}
    """
    wrong = {}
    for name, parameter in inspect.signature(function).parameters.items():
        if name not in given:
            continue
        if name == "random_state" and not is_seed(given[name]):
            wrong[name] = SEED
        kinds = [KINDS.get(part) for part in str(parameter.annotation).split(" | ")]
        known = [kind for kind in kinds if kind is not None]
        if len(known) == len(kinds) and not any(test(given[name]) for _, test in known):
            wrong[name] = " or ".join(dict.fromkeys(words for words, _ in known))
    return wrong


def declared(function: Callable[P, R]) -> Callable[P, R]:
    """The function with a check of its arguments: InputTypeError where a value is not of the declared kind."""

    @functools.wraps(function)
    def checked(*args: P.args, **kwargs: P.kwargs) -> R:
        given = inspect.signature(function).bind(*args, **kwargs).arguments
        if wrong := undeclared(function, given):
            lines = "; ".join(f"{name}={given[name]!r}; allowed: {allowed}" for name, allowed in wrong.items())
            raise InputTypeError(f"{function.__name__}: {lines}")
        return function(*args, **kwargs)

    return checked


class Requirements:
    """Collects every parameter of an estimator that is out of its range.

    >>> need = Requirements(type("Map", (), {"epsilon": -1})())
    >>> need(False, "epsilon", "a number > 0")
    >>> need.wrong
    ['epsilon=-1; allowed: a number > 0']
    """

    def __init__(self, estimator: Any) -> None:
        self.estimator = estimator
        self.wrong: list[str] = []

    def __call__(self, good: bool, name: str, allowed: str) -> None:
        """Note the parameter unless it is good."""
        if not good:
            self.wrong.append(f"{name}={getattr(self.estimator, name)!r}; allowed: {allowed}")

    def refuse(self) -> None:
        """InputError with all that was noted, and with what is not even of a kind that the class declares."""
        verbose, callbacks = (getattr(self.estimator, name, None) for name in ("verbose", "callbacks"))
        self(verbose is None or isinstance(verbose, (int, np.bool_)), "verbose", "True or False")
        several = isinstance(callbacks, (list, tuple)) and all(callable(one) for one in callbacks)
        self(callbacks is None or several, "callbacks", "None, or a list of functions of an event")
        for name, allowed in undeclared(type(self.estimator).__init__, vars(self.estimator)).items():
            if not any(line.startswith(f"{name}=") for line in self.wrong):
                self(False, name, allowed)
        if self.wrong:
            raise InputError(f"{type(self.estimator).__name__}: " + "; ".join(self.wrong))


def is_seed(value: Any) -> bool:
    """Whether a parameter seeds random numbers, or is a generator of them."""
    if is_integer(value):
        return bool(value >= 0)
    return value is None or isinstance(value, (np.random.RandomState, np.random.Generator))


def is_integer(value: Any) -> bool:
    """Whether a parameter is an integer; True and False are not."""
    return isinstance(value, (int, np.integer)) and not isinstance(value, bool)


def is_number(value: Any) -> bool:
    """Whether a parameter is a finite real number."""
    real = isinstance(value, (int, float, np.integer, np.floating)) and not isinstance(value, bool)
    return real and bool(np.isfinite(value))
