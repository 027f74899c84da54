"""Warnings that name the line of the caller."""

from __future__ import annotations

import inspect
import warnings


def warn(message: str, category: type[Warning]) -> None:
    """A warning that points at the caller's line, the first one outside of this package."""
    frame, level = inspect.currentframe(), 0
    while frame is not None and frame.f_globals.get("__name__", "").startswith("bigembed."):
        frame, level = frame.f_back, level + 1
    warnings.warn(message, category, stacklevel=level + 1)
