"""What would fit where a plan does not: another solver or search, or fewer landmarks, planned in the same way."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator
from typing import Any

import tomli_w

from bigembed.errors import BigembedError
from bigembed.neighbors.algorithms import AUTO, NN_DESCENT

SOLVERS = ("landmarks", "nystrom")
"""Of a parameter ``solver``: those that take less than all pairs of rows."""
FEWEST = 16
"""Landmarks below which none are proposed."""


def alternatives(given: Any, fits: Callable[[Any], bool]) -> list[str]:
    """Changes of the parameters of an estimator with which it fits, at most one of each kind, as text for a job file.

    ``fits`` plans an estimator.
    """
    found = []
    for kind in (_solvers, _algorithms, _landmarks):
        for changes in kind(given):
            try:
                if not fits(type(given)(**given.get_params() | changes)):
                    continue
            except BigembedError:  # the method does not know it, or says itself that it cannot
                continue
            found.append(f"[method] {tomli_w.dumps(changes).strip()} would fit")
            break
    return found


def _solvers(given: Any) -> Iterator[dict[str, Any]]:
    if "solver" in inspect.signature(type(given)).parameters:
        yield from ({"solver": name} for name in SOLVERS if name != given.solver)


def _algorithms(given: Any) -> Iterator[dict[str, Any]]:
    """The automatic choice takes NN-descent only where there is room for its lists."""
    if getattr(given, "algorithm", "") == NN_DESCENT:
        yield {"algorithm": AUTO}


def _landmarks(given: Any) -> Iterator[dict[str, Any]]:
    count = getattr(given, "n_landmarks", None)
    while isinstance(count, int) and count // 2 >= FEWEST:
        count //= 2
        yield {"n_landmarks": count}
