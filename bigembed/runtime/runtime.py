"""What surrounds a run: who hears of it, where its exchanges lie and what it has locked, in one context variable."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field, replace
from typing import Any


@dataclass(frozen=True)
class Event:
    """What a run reports to an observer."""

    kind: str
    """``start``, ``done``, ``reused``, ``note``, ``blocks`` (``results``: how many are ``done`` of ``total``), or
    ``worker`` (``results``: which ``worker``, its ``state``, and ``since`` when it is silent)."""
    stage: str
    seconds: float = 0.0
    results: Mapping[str, Any] = field(default_factory=dict)
    message: str = ""


Observer = Callable[[Event], None]


def silent(event: Event) -> None:
    """Ignore an event: the observer of a run that nobody watches."""


@dataclass(frozen=True)
class Runtime:
    """What surrounds a run. It never changes a result."""

    observer: Observer = silent
    """Hears every event of the stages."""
    scratch: str | os.PathLike[str] | None = None
    """The folder in which the exchanges of runs lie; None for in the runs.

    Blocks leave pieces for each other in every pass of a solve: where a run lies in an object store, a file system
    that all workers see is quicker. A killed run is resumed with the same folder, or starts its stage again.
    """
    locks: Mapping[str, Any] = field(default_factory=dict)
    """The locks that this context holds, by the folder in which each lies."""


_runtime: ContextVar[Runtime] = ContextVar("runtime", default=Runtime())  # noqa: B039  (frozen)


def runtime_now() -> Runtime:
    """Return the runtime of this context."""
    return _runtime.get()


@contextmanager
def using(**changes: Any) -> Iterator[None]:
    """Replace the runtime of this context by one with these fields changed, until the end of the block."""
    token = _runtime.set(replace(_runtime.get(), **changes))
    try:
        yield
    finally:
        _runtime.reset(token)
