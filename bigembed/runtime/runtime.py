"""What surrounds a run: where its tasks run, who hears of it, what it may hold and has locked; one context variable."""

from __future__ import annotations

import ctypes
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from contextvars import ContextVar
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from typing import Any, Protocol

from bigembed.runtime.clock import StageClock


@dataclass(frozen=True)
class Event:
    """What a run reports to an observer."""

    kind: str
    """``start``, ``done``, ``reused``, ``note``, ``blocks`` (``results``: how many are ``done`` of ``total``),
    ``worker`` (``results``: which ``worker``, its ``state``, and ``since`` when it is silent), or ``store``
    (``results``: an object store that is away or back, as :class:`bigembed.runtime.outages.Outage` has it)."""
    stage: str
    seconds: float = 0.0
    results: Mapping[str, Any] = field(default_factory=dict)
    message: str = ""
    shares: Mapping[str, float] = field(default_factory=dict)
    """Of a stage that is done, what its time was spent on (:data:`bigembed.runtime.clock.PARTS`)."""


Observer = Callable[[Event], None]


def silent(event: Event) -> None:
    """Ignore an event: the observer of a run that nobody watches."""


Progress = Callable[[str, int, int], None]
"""Called with the label of a map, how many of its tasks are done, and how many there are."""


def no_progress(label: str, done: int, total: int) -> None:
    """Ignore progress: for a run that nobody watches."""


Calls = Sequence[Callable[[], Any]]
KeepResult = Callable[[int, Any], None]
"""Called with the place of a call in its map, and its result, in whichever thread."""


RecordMap = Callable[[str, int, bool], Callable[[int, Mapping[str, Any]], None]]
"""Called with the label of a map, how many tasks it has, and whether each runs where what it needs is held; returns
what gets the place of a task and its record."""


class Journal(Protocol):
    """What a stage in work has finished, so that it goes on from there when it was stopped."""

    def run_map(self, calls: Calls, label: str, run: Callable[[Calls, str, KeepResult], list[Any]]) -> list[Any]:
        """Return the results of the calls; those that are known from before are not made again."""
        ...

    def once(self, act: Callable[[], Any]) -> Any:
        """Return what ``act`` returned the first time; it is not done again."""
        ...


class Executor(Protocol):
    """Where the tasks of a run are executed."""

    @property
    def in_this_process(self) -> bool:
        """Whether tasks run in this process for certain, and see its memory."""
        ...

    @property
    def threads(self) -> int:
        """How many tasks run at a time, as far as that is known."""
        ...

    @property
    def pool(self) -> Executor | None:
        """The threads of this process that take its tasks; where others do, those that may while the others idle."""
        ...

    def run(
        self, calls: Calls, label: str, progress: Progress | None = None, keep: KeepResult | None = None
    ) -> list[Any]:
        """Return the results of the calls, in their order; ``keep`` gets each as soon as it is known here."""
        ...

    def free_memory(self) -> None:
        """Let other processes give back memory that they do not use."""
        ...


@dataclass(frozen=True)
class Runtime:
    """What surrounds a run. It never changes a result."""

    executor: Executor | None = None
    """Where tasks run; None for wherever Dask runs them when a run begins."""
    progress: Progress | None = None
    """Hears of every task that is done, in whichever thread, and may raise there."""
    vector_memory: int | None = None
    """Bytes of vectors that a solver may hold in this process; 0 for none, None for a share of what is free."""
    worker_memory: int | None = None
    """Bytes of vectors that each worker on another machine may hold; 0 for none, None for a share of its limit."""
    observer: Observer = silent
    """Hears every event of the stages."""
    scratch: str | os.PathLike[str] | None = None
    """The folder in which the exchanges of runs lie; None for in the runs.

    Blocks leave pieces for each other in every pass of a solve: where a run lies in an object store, a file system
    that all workers see is quicker. A killed run is resumed with the same folder, or starts its stage again.
    """
    locks: Mapping[str, Any] = field(default_factory=dict)
    """The locks that this context holds, by the folder in which each lies."""
    journal: Journal | None = None
    """Of the stage in work, in the process that coordinates it; None in tasks."""
    clock: StageClock | None = None
    """Counts what the tasks of the stage in work spend, in the process that coordinates it; None in tasks."""
    recorder: RecordMap | None = None
    """Hears of each map, and gets what is recorded of its tasks; None where nobody asks."""


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


def moment(seconds: float) -> str:
    """A time for people and for JSON: ISO 8601 in UTC, to the second.

    >>> moment(0)
    '1970-01-01T00:00:00Z'
    """
    return datetime.fromtimestamp(seconds, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


ARENA_MAX = -8
"""Of glibc's ``mallopt``."""


def use_one_heap() -> None:
    """Let all threads of this process take memory from one heap: heaps of their own could not be given back."""
    with suppress(AttributeError, OSError):
        ctypes.CDLL(None).mallopt(ARENA_MAX, 1)


def trim_heap() -> None:
    """Return freed memory to the system, where the C library keeps it for later."""
    with suppress(AttributeError, OSError):
        ctypes.CDLL(None).malloc_trim(0)


def once(act: Callable[[], Any]) -> Any:
    """Do what must not be repeated when a stopped stage goes on: what deletes, or reads what is deleted afterwards.

    Between its maps over blocks a stage does again what it did, with the results that they had. What creates an array
    that tasks have filled since, or drops what they left, goes through here.
    """
    journal = runtime_now().journal
    return act() if journal is None else journal.once(act)
