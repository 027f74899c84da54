"""Functions by name, ``"module:name"``: found by importing their module, which executes it.

A name in the caller's own program is the caller's. A name that a file brings (a job file, a saved model, the record of
a run) is imported only if the reader of the file allows it: nothing in a file executes.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from importlib import import_module
from typing import Any

from bigembed.errors import InputError

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


def allowed(given: Mapping[str, Any], functions: Functions, how: str) -> tuple[dict[str, Any], list[str]]:
    """Parameters that a file brings, each name of a function in them checked; and what is not allowed.

    A name in a mapping becomes the function there. Any other is imported, and kept, where ``functions`` lists it, or
    its module, or a package above that; of a module only what is defined in it counts, not what it has imported.
    ``how``: what the reader can do to allow one.

    >>> allowed({"kernel": "cProfile:run"}, (), "allow it")[1][0][:38]
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
