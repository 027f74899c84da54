"""Warnings that name the line of the caller, and those of a certificate; in a search over parameters each once."""

from __future__ import annotations

import inspect
import re
import sysconfig
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
LIBRARIES = (*{sysconfig.get_path(name) for name in ("stdlib", "platstdlib", "purelib", "platlib")}, "<frozen")
INSISTING = ("error", "always", "all")
"""Actions of filters that want every warning."""
_given: set[tuple[Any, ...]] = set()


def warn(message: str, category: type[Warning]) -> None:
    """A warning that points at the caller's line, the first one outside of this package.

    Where a library is the caller (a search over parameters, a validation), a sentence is given once for the line that
    called the library, whatever the figures in it; unless filters ask for every warning.
    """
    frame, level = inspect.currentframe(), 0
    while frame is not None and frame.f_globals.get("__name__", "").startswith("bigembed."):
        frame, level = frame.f_back, level + 1
    called = frame
    while frame is not None and frame.f_code.co_filename.startswith(LIBRARIES):
        frame = frame.f_back
    if called is not frame and frame is not None and warnings.filters[0][0] not in INSISTING:
        said = category, without_numbers(message), frame.f_code.co_filename, frame.f_lineno
        if said in _given:
            return
        _given.add(said)
    warnings.warn(message, category, stacklevel=level + 1)


def without_numbers(message: str) -> str:
    """A sentence that is the same for all figures in it.

    >>> without_numbers("Trustworthiness is 0.72 ± 0.01")
    'Trustworthiness is # ± #'
    """
    return re.sub(r"\d[\d.,]*(e[-+]?\d+)?", "#", message)


def warn_of(certificate: Mapping[str, Any]) -> None:
    """Give the warnings of a certificate."""
    for category, messages in certificate.get("warnings", {}).items():
        for message in messages:
            warn(message, getattr(errors, CATEGORIES[category]))
