"""Parameters declared by annotations and checked against them; and functions that are given by their names."""

from __future__ import annotations

import functools
import inspect
import os
import sys
from collections.abc import Callable, Collection, Mapping, Sequence
from copy import deepcopy
from importlib import import_module
from math import inf
from pathlib import Path
from types import NoneType, UnionType
from typing import Annotated, Any, NamedTuple, ParamSpec, TypeVar, Union, get_args, get_origin

import numpy as np

from bigembed.errors import InputError, InputTypeError

# -------------------------------------------------------------------------------------------------------- declared
# Parameters declared by annotations: what each may be, and the check of what was given against that.

P = ParamSpec("P")
R = TypeVar("R")


class Kind(NamedTuple):
    """What a parameter may be, in words, and its test; in an annotation ``Annotated[int, Kind(...)]``."""

    words: str
    test: Callable[[Any], bool]


def at_least(low: int) -> Kind:
    """Integers from ``low`` on."""
    return Kind(f"an integer ≥ {low}", lambda value: is_integer(value) and value >= low)


def interval(low: float, high: float = inf, closed: str = "neither", what: str = "a number") -> Kind:
    """Finite numbers between two, ``closed`` to the ``"left"``, the ``"right"``, ``"both"`` or ``"neither"``.

    >>> interval(0, 1, closed="right").words, interval(0).words
    ('a number in (0, 1]', 'a number > 0')
    """
    left, right = closed in ("left", "both"), closed in ("right", "both")
    bounds = f"in {'[' if left else '('}{low:g}, {high:g}{']' if right else ')'}"
    return Kind(
        f"{what} {bounds if high < inf else f'≥ {low:g}' if left else f'> {low:g}'}",
        lambda value: is_number(value) and (low < value < high or (left and value == low) or (right and value == high)),
    )


def one_of(*words: str) -> Kind:
    """One of these words.

    >>> one_of("auto", "exact", "landmarks").words
    "'auto', 'exact' or 'landmarks'"
    """
    return Kind(_alternatives([repr(word) for word in words]), lambda value: isinstance(value, str) and value in words)


def _alternatives(words: Sequence[str]) -> str:
    return f"{', '.join(words[:-1])} or {words[-1]}" if words[1:] else words[0]


Count = Annotated[int, at_least(1)]
Auto = Annotated[str, one_of("auto")]
Fraction = Annotated[float, interval(0, 1)]
Positive = Annotated[float, interval(0)]
Nonnegative = Annotated[float, interval(0, closed="left")]
Seed = Annotated[Any, Kind("an integer ≥ 0, None, or a generator of NumPy", lambda value: is_seed(value))]
Finite = Annotated[float, Kind("a finite number", lambda value: is_number(value))]

_PATH = Kind("a path", lambda value: isinstance(value, (str, os.PathLike)) or type(value).__name__ == "ObjectPath")
KINDS: dict[Any, Kind] = {
    int: Kind("an integer", lambda value: is_integer(value)),
    float: Kind(
        "a number",
        lambda value: isinstance(value, (int, float, np.integer, np.floating)) and not isinstance(value, bool),
    ),
    bool: Kind("True or False", lambda value: isinstance(value, (bool, np.bool_))),
    str: Kind("a word", lambda value: isinstance(value, str)),
    NoneType: Kind("None", lambda value: value is None),
    dict[str, Any]: Kind("a dictionary", lambda value: isinstance(value, Mapping)),
    Path: _PATH,
    os.PathLike[str]: _PATH,
}
"""What an annotation allows. Parameters with another part in theirs are not looked at."""


def undeclared(function: Callable[..., Any], given: Mapping[str, Any]) -> dict[str, str]:
    """The parameters whose values are of a kind that the function does not declare, and what it allows.

    >>> def area(width: float, unit: str | None = None) -> float: ...
    >>> undeclared(area, {"width": "2", "unit": None})
    {'width': 'a number'}
    """
    wrong = {}
    for name, kinds in kinds_of(function).items():
        if name in given and kinds and not any(test(given[name]) for _, test in kinds):
            wrong[name] = allowed(kinds)
    return wrong


def allowed(kinds: Sequence[Kind]) -> str:
    """Kinds in words.

    >>> allowed(kinds_of(interval)["high"])
    'a number'
    """
    return _alternatives(list(dict.fromkeys(words for words, _ in kinds))) if kinds else "anything"


@functools.cache
def kinds_of(function: Any) -> dict[str, list[Kind]]:
    """What each parameter of a function, or of a class, may be; an empty list for anything."""
    found: dict[str, list[Kind]] = {}
    for name, parameter in inspect.signature(function).parameters.items():
        hint: Any = parameter.annotation
        try:
            hint = eval(hint, _names(function, name)) if isinstance(hint, str) else hint
        except (AttributeError, NameError, TypeError):  # (imported for type checkers only)
            hint = Any
        parts = [_kind(part) for part in (get_args(hint) if get_origin(hint) in (Union, UnionType) else [hint])]
        found[name] = [] if None in parts else [part for part in parts if part is not None]
    return found


def _names(function: Any, parameter: str) -> dict[str, Any]:
    """The names that an annotation may use: of the module of the function, or of the class that annotates the field."""
    if not isinstance(function, type):
        return dict(function.__globals__)
    home = next((kind for kind in function.__mro__ if parameter in vars(kind).get("__annotations__", {})), function)
    return vars(sys.modules[home.__module__])


def _kind(hint: Any) -> Kind | None:
    if get_origin(hint) is Annotated:
        return next((one for one in hint.__metadata__ if isinstance(one, Kind)), None)
    return _PATH if getattr(hint, "__name__", "") == "ObjectPath" else KINDS.get(hint)


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
        persist = getattr(self.estimator, "persist", None)
        self(persist is None or persist == "store", "persist", '"store" or None')
        kept = ("all", "map", "coordinates")
        self(getattr(self.estimator, "keep", "all") in kept, "keep", '"all", "map" or "coordinates"')
        several = isinstance(callbacks, (list, tuple)) and all(callable(one) for one in callbacks)
        self(callbacks is None or several, "callbacks", "None, or a list of functions of an event")
        for name, allowed in undeclared(type(self.estimator), vars(self.estimator)).items():
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


# ------------------------------------------------------------------------------------------------------- functions
# Functions by name, ``"module:name"``: found by importing their module, which executes it.
#
# A name in the caller's own program is the caller's. A name that a file brings (a job file, a saved model, the record
# of a run) is imported only if the reader of the file allows it: nothing in a file executes.

BlockFunction = Callable[..., Any]
Functions = Mapping[str, BlockFunction] | Collection[str]
"""What the caller allows: a function for each name, or names of modules, or of single functions, that he trusts."""


def is_name(value: Any) -> bool:
    """Whether it is the name of a function, ``"module:name"``.

    >>> is_name("package.kernels:laplace"), is_name("rbf")
    (True, False)
    """
    return isinstance(value, str) and ":" in value


def function_of(name: str, parameter: str = "metric") -> BlockFunction:
    """The function that ``"module:name"`` means. Imports the module: for names that the caller gave or allowed.

    ``parameter``: which one has the name, for the message of an error.
    """
    module, _, attribute = name.partition(":")
    try:
        found: Any = import_module(module)
        for part in attribute.split("."):
            found = getattr(found, part)
    except (ImportError, AttributeError, ValueError) as error:
        raise InputError(
            f"{parameter}={name!r}: cannot be imported ({error}). Write module:name of a function in an installed "
            "module or in a file that lies on PYTHONPATH, on every worker"
        ) from error
    if not callable(found):
        raise InputError(f"{parameter}={name!r} is {type(found).__name__}, not a function of two blocks of rows")
    function: BlockFunction = found
    return function


def reference(function: BlockFunction) -> str:
    """``"module:name"`` of a function; what has none (an object, a ``partial``) is named by its class."""
    module, name = getattr(function, "__module__", None), getattr(function, "__qualname__", None)
    return f"{module}:{name}" if module and name else f"{type(function).__module__}:{type(function).__qualname__}()"


def importable(function: BlockFunction) -> bool:
    """Whether :func:`reference` of a function leads to it, in another process as well."""
    try:
        return function_of(reference(function)) is function and not reference(function).startswith("__main__:")
    except InputError:
        return False


def allowed_functions(given: Mapping[str, Any], functions: Functions, how: str) -> tuple[dict[str, Any], list[str]]:
    """Parameters that a file brings, each name of a function in them checked; and what is not allowed.

    A name in a mapping becomes the function there. Any other is imported, and kept, where ``functions`` lists it, or
    its module, or a package above that; of a module only what is defined in it counts, not what it has imported.
    ``how``: what the reader can do to allow one.

    >>> allowed_functions({"kernel": "cProfile:run"}, (), "allow it")[1][0][:38]
    "kernel: 'cProfile:run' names a functio"
    """
    listed = _listed(functions)
    taken, problems = dict(given), []
    for key, name in given.items():
        if not is_name(name):
            continue
        if isinstance(listed, Mapping) and name in listed:
            taken[key] = listed[name]
        elif isinstance(listed, Mapping) or not (homes := _homes(name, listed)):
            module = name.partition(":")[0]
            problems.append(
                f"{key}: {name!r} names a function, and nothing that a file names is executed unless you allow it. If "
                f"you trust the module {module!r}, {how}"
            )
        else:
            origin = getattr(function_of(name), "__module__", None)
            if name not in homes and not any(_below(origin, home) for home in homes):
                problems.append(f"{key}: {name!r} is not defined there but in {origin}. If you trust it, list {name!r}")
    return taken, problems


def _listed(functions: Functions) -> Functions:
    """What the caller allows, or InputError if it is neither a mapping to functions nor a list of names."""
    listed = (functions,) if isinstance(functions, str) else functions
    if isinstance(listed, Mapping):
        right = all(map(callable, listed.values()))
    else:
        right = isinstance(listed, Collection) and all(isinstance(one, str) for one in listed)
    if not right:
        raise InputError(
            f"functions={functions!r}; allowed: a mapping from names to functions, or a list of names of modules or "
            "functions"
        )
    return listed


def uncalled(given: Mapping[str, Any]) -> dict[str, Any]:
    """Parameters in which no name of a function is left: for a reader of what was computed, who calls none."""
    return {key: _never if is_name(value) else value for key, value in given.items()}


def _never(*blocks: Any, **parameters: Any) -> Any:
    raise InputError("a function that a file names is not executed by a reader of its results")


def _homes(name: str, listed: Collection[str]) -> list[str]:
    """Of what is listed that under which the name falls: itself, its module, a package above."""
    return [one for one in listed if one == name or _below(name.partition(":")[0], one)]


def _below(module: str | None, home: str) -> bool:
    return module is not None and (module == home or module.startswith(f"{home}."))


def copy_parameters(parameters: dict[str, Any]) -> dict[str, Any]:
    """Return parameters as they are now, whatever becomes of the dictionaries and arrays that were given."""
    return {
        name: deepcopy(value) if isinstance(value, (dict, list, np.ndarray)) else value
        for name, value in parameters.items()
    }
