"""What goes before a method: one step, one file. A step is found by everything else through :data:`REGISTRY`."""

from __future__ import annotations

from importlib import import_module
from typing import Any

from bigembed import _homes
from bigembed.errors import JobError

REGISTRY = {
    module.rpartition(".")[2]: f"{module}:{name}"
    for name, module in _homes().items()
    if module.startswith(f"{__name__}.")
}
"""Module name of each step, and its class: the public names that are defined here."""


def step(name: str) -> type[Any]:
    """The class registered under ``name``."""
    if name not in REGISTRY:
        raise JobError(f"unknown step {name!r}. Known: {', '.join(sorted(REGISTRY))}")
    module, _, attribute = REGISTRY[name].partition(":")
    found: type[Any] = getattr(import_module(module), attribute)
    return found
