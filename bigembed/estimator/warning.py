"""Warnings that name the line of the caller, and those of a certificate; in a search over parameters each once."""

from __future__ import annotations

import inspect
import re
import sysconfig
import warnings
import weakref
from collections.abc import Iterator, Mapping
from contextlib import suppress
from types import FrameType
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
LIBRARIES = tuple({sysconfig.get_path(name) for name in ("stdlib", "platstdlib", "purelib", "platlib")})
INSISTING = ("error", "always", "all")
"""Actions of filters that want every warning."""
_given: dict[tuple[Any, ...], Any] = {}


def warn(message: str, category: type[Warning]) -> None:
    """A warning that points at the caller's line, the first one outside of this package.

    Where a library is the caller (a search over parameters, a validation), the same sentence, whatever its numbers, is
    given once for each such call; unless filters ask for all of them.
    """
    frame, level = inspect.currentframe(), 0
    while frame is not None and frame.f_globals.get("__name__", "").startswith("bigembed."):
        frame, level = frame.f_back, level + 1
    once = frame is not None and _library(frame) and not _insisted(message, category, frame)
    if not (once and frame is not None and _known(message, category, frame)):
        warnings.warn(message, category, stacklevel=level + 1)


def without_numbers(message: str) -> str:
    """A sentence that is the same for all figures in it.

    >>> without_numbers("Trustworthiness is 0.72 ± 0.01")
    'Trustworthiness is # ± #'
    """
    return re.sub(r"\d[\d.,]*(e[-+]?\d+)?", "#", message)


def _library(frame: FrameType) -> bool:
    return frame.f_code.co_filename.startswith((*LIBRARIES, "<frozen"))


def _known(message: str, category: type[Warning], frame: FrameType) -> bool:
    """Whether the call that a user made of a library has given this warning; from now on it has."""
    inside = list(_of_libraries(frame))
    user = inside[-1].f_back
    place = (user.f_code.co_filename, user.f_lineno) if user is not None else ()
    owner = next((found for one in reversed(inside) if (found := one.f_locals.get("self")) is not None), None)
    key = (category, without_numbers(message), *place)
    before = _given.get(key, ())
    mark: Any = None
    with suppress(TypeError):  # (what cannot be referred to weakly)
        mark = weakref.ref(owner)
    _given[key] = mark
    return before != () and (before is None or before() is owner)


def _of_libraries(frame: FrameType) -> Iterator[FrameType]:
    """The frames of libraries from this one outwards, up to the first that is a user's."""
    one: FrameType | None = frame
    while one is not None and _library(one):
        yield one
        one = one.f_back


def _insisted(message: str, category: type[Warning], frame: FrameType) -> bool:
    """Whether the filter that applies wants every warning, as one of tests and of those who collect them does."""
    module = str(frame.f_globals.get("__name__", ""))
    filters: Any = warnings.filters
    for action, text, kind, where, line in filters:
        fits = (text is None or re.match(text, message)) and (where is None or re.match(where, module))
        if fits and issubclass(category, kind) and line in (0, frame.f_lineno):
            return action in INSISTING
    return False


def warn_of(certificate: Mapping[str, Any]) -> None:
    """Give the warnings of a certificate."""
    for category, messages in certificate.get("warnings", {}).items():
        for message in messages:
            warn(message, getattr(errors, CATEGORIES[category]))
