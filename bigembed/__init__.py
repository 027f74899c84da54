"""bigembed: low-dimensional coordinates of row-chunked arrays that do not fit in memory.

The public names, listed in ``__init__.pyi``, are imported when they are first used, so ``import bigembed`` is quick.
"""

import functools as _functools
import importlib as _importlib
import os as _os

from bigembed.compiled_code import find_folder as _find_folder

_find_folder(_os.path.abspath(__path__[0]))

__version__ = "0.2.0"


@_functools.cache
def _homes():
    """The module of every public name; of a public module, the package itself."""
    with open(_os.path.join(__path__[0], "__init__.pyi"), encoding="utf-8") as file:
        words = [line.split() for line in file if line.startswith("from ")]
    return {name: module for _, module, _, name, *_ in words}


def _public():
    return sorted([*(name for name, module in _homes().items() if module != __name__), "__version__"])


def __getattr__(name):
    if name == "__all__":
        return _public()
    module = None if name.startswith("_") else _homes().get(name)
    if module is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    if module == __name__:
        return _importlib.import_module(f"{__name__}.{name}")
    value = globals()[name] = getattr(_importlib.import_module(module), name)
    return value


def __dir__():
    return sorted({*_homes(), *(name for name in globals() if name.startswith("__"))})
