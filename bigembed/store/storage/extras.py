"""Libraries that only some users need: imported where they are used, and named with their extra where absent."""

from __future__ import annotations

from importlib import import_module
from typing import Any

from bigembed.errors import MissingExtraError


def needed(module: str, extra: str, what: str) -> Any:
    """The module; :class:`MissingExtraError`, which names the extra, if it is not installed.

    >>> needed("json", "none", "reading JSON").dumps([1])
    '[1]'
    """
    try:
        return import_module(module)
    except ImportError as error:
        raise MissingExtraError(
            f"{what} needs {module.partition('.')[0]}, which the extra {extra!r} installs: "
            f'pip install "bigembed[{extra}]"'
        ) from error
