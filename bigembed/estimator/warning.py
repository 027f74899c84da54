"""Warnings that name the line of the caller, and those of a certificate."""

from __future__ import annotations

import inspect
import warnings
from collections.abc import Mapping
from typing import Any

from bigembed import errors

CATEGORIES = {
    "convergence": "ConvergenceWarning",
    "recall": "RecallWarning",
    "components": "ComponentsWarning",
    "degenerate": "DegenerateWarning",
    "localized": "LocalizedWarning",
    "separation": "SeparationWarning",
    "harmonic": "HarmonicWarning",
    "map": "MapWarning",
}
"""Names of the warnings of a certificate by category."""


def warn(message: str, category: type[Warning]) -> None:
    """A warning that points at the caller's line, the first one outside of this package."""
    frame, level = inspect.currentframe(), 0
    while frame is not None and frame.f_globals.get("__name__", "").startswith("bigembed."):
        frame, level = frame.f_back, level + 1
    warnings.warn(message, category, stacklevel=level + 1)


def warn_of(certificate: Mapping[str, Any]) -> None:
    """Give the warnings of a certificate."""
    for category, messages in certificate.get("warnings", {}).items():
        for message in messages:
            warn(message, getattr(errors, CATEGORIES[category]))
