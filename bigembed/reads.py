"""What the function of a stage reads besides its inputs: the values that it closes over, found by looking at them.

A key that somebody writes by hand can forget what the function reads. So the runner looks itself: two stages are the
same only where these values are, too.
"""

from __future__ import annotations

import pickle
from collections.abc import Callable, Iterator, Mapping, Sequence, Set
from dataclasses import dataclass, fields, is_dataclass
from functools import partial
from hashlib import sha256
from types import FunctionType, MethodType
from typing import Any

import numpy as np
from scipy import sparse

Prints = dict[int, tuple[Any, str]]
"""Fingerprints that were taken, by the objects: an array of this process is digested once for all stages of a run."""
LONGEST = 80
"""Characters of a value that is kept as text; of longer ones a digest is."""
WHERE = ("workdir", "verbose")
"""Parameters of estimators that say where something is written or shown, and never what."""


@dataclass(frozen=True)
class Immaterial:
    """A value that a stage may close over and that does not change what comes out, such as where vectors are held."""

    value: Any

    def fingerprint(self) -> str:
        """The same for all."""
        return ""


def reads_of(
    function: Callable[..., Any], contents: Mapping[str, str] | None = None, prints: Prints | None = None
) -> dict[str, str]:
    """Return every value that a function closes over, by its dotted name: short ones as text, others as digests.

    Dataclasses, containers, closures and the objects of methods are looked into; rows, graphs and labels say what
    they are by their fingerprint, so that the place where they lie does not count; where ``contents`` has a digest of
    what was found in them, by that.

    Raises
    ------
    TypeError
        If the function closes over something whose content cannot be told.

    Examples
    --------
    >>> def stage(k, options):
    ...     return lambda context: (k, options["alpha"])
    >>> reads_of(stage(5, {"alpha": 0.5}))
    {'k': '5', 'options.alpha': '0.5'}
    """
    found = dict(sorted(_closed_over(function, "", (), {} if prints is None else prints)))
    return {name: (contents or {}).get(text, text) for name, text in found.items()}


def differing(before: Mapping[str, str], now: Mapping[str, str]) -> list[str]:
    """Return the names of the values that differ; a name that only one of them has is of another version's function.

    >>> differing({"k": "5", "old": "1"}, {"k": "6", "new": "1"})
    ['k']
    """
    return [name for name in now if name in before and before[name] != now[name]]


def _closed_over(function: Any, prefix: str, above: tuple[int, ...], prints: Prints) -> Iterator[tuple[str, str]]:
    if isinstance(function, partial):
        yield from _entries(function.args, f"{prefix}args", above, prints)
        for name, value in function.keywords.items():
            yield from _entries(value, prefix + name, above, prints)
        function = function.func
    if isinstance(function, MethodType):
        yield from _entries(function.__self__, f"{prefix}self", above, prints)
        function = function.__func__
    function = getattr(function, "py_func", function)  # (of a compiled one)
    if isinstance(function, FunctionType):
        for name, cell in zip(function.__code__.co_freevars, function.__closure__ or (), strict=True):
            yield from _entries(cell.cell_contents, prefix + name, above, prints)


def _entries(value: Any, name: str, above: tuple[int, ...], prints: Prints) -> Iterator[tuple[str, str]]:
    """A value as named texts. ``above``: the objects that it is part of, which it may refer to."""
    if id(value) in above:
        return
    if isinstance(value, np.generic):
        value = value.item()
    above = (*above, id(value))
    if value is None or isinstance(value, (bool, int, float, complex, str, bytes, slice)):
        yield name, _short(repr(value))
    elif isinstance(value, (np.dtype, type)):
        yield name, str(value)
    elif callable(fingerprint := getattr(value, "fingerprint", None)):
        if id(value) not in prints:
            prints[id(value)] = value, str(fingerprint())
        yield name, prints[id(value)][1]
    elif isinstance(value, np.ndarray):
        yield name, _digest(value)
    elif sparse.issparse(value):
        given: Any = value
        rows = given.tocsr()
        yield from _entries((rows.shape, rows.indptr, rows.indices, rows.data), name, above, prints)
    elif isinstance(value, Mapping):
        for key in value:
            yield from _entries(value[key], f"{name}.{key}", above, prints)
    elif isinstance(value, Set):
        yield name, _short(repr(sorted(map(repr, value))))
    elif isinstance(value, Sequence):
        yield f"{name}.length", str(len(value))
        for number, entry in enumerate(value):
            yield from _entries(entry, f"{name}.{number}", above, prints)
    elif is_dataclass(value):
        yield name, type(value).__qualname__
        for field in fields(value):
            yield from _entries(getattr(value, field.name), f"{name}.{field.name}", above, prints)
    elif callable(parameters := getattr(value, "get_params", None)):
        yield name, type(value).__qualname__
        chosen = {key: entry for key, entry in parameters(deep=False).items() if key not in WHERE}
        yield from _entries(chosen, name, above, prints)
    elif isinstance(value, (partial, MethodType, FunctionType)) or hasattr(value, "py_func"):
        yield name, _code(value)
        yield from _closed_over(value, f"{name}.", above, prints)
    else:
        yield name, _pickled(name, value)


def _code(function: Any) -> str:
    """The name of a function; of one that is not of this package its code as well, which its author may change."""
    while isinstance(function, (partial, MethodType)):
        function = function.func if isinstance(function, partial) else function.__func__
    function = getattr(function, "py_func", function)
    place = f"{function.__module__}:{function.__qualname__}"
    if place.startswith("bigembed.") or not isinstance(function, FunctionType):
        return place
    code = function.__code__
    return _short(f"{place} {code.co_code!r} {code.co_consts!r} {code.co_names!r}")


def _pickled(name: str, value: Any) -> str:
    try:
        return sha256(pickle.dumps(value)).hexdigest()
    except Exception as error:
        raise TypeError(
            f"a stage closes over {name}, a {type(value).__qualname__}, and what it holds cannot be told ({error}); "
            "give it a method fingerprint(), or make it a dataclass"
        ) from error


def _digest(array: Any) -> str:
    found = sha256(f"{array.dtype} {array.shape}".encode())
    found.update(np.ascontiguousarray(array).tobytes() if array.dtype != object else repr(array.tolist()).encode())
    return found.hexdigest()


def _short(text: str) -> str:
    return text if len(text) <= LONGEST else sha256(text.encode()).hexdigest()
