"""What everything stands on: blocks of rows and where functions are mapped over them, parameters, arithmetic.

What surrounds a run is here: where its tasks run, who hears of it, what it may hold and has locked, where time goes.
"""

from __future__ import annotations

import ctypes
import os
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from contextvars import ContextVar
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from functools import partial, wraps
from socket import gethostname
from threading import Lock, get_ident, local
from typing import Any, NamedTuple, Protocol, TypeVar, cast

# ------------------------------------------------------------------------------------------------------------- clock
# Where the time of a stage goes: its tasks compute, read and write, and threads without a task wait.
#
# A task is timed where it runs, and so are the functions in it that read and write; the rest of its time it computes.
# In what is left of their time the threads that a stage has for its tasks wait: while the coordinating process hands
# out tasks, and at the end of a map, for its last tasks. What the coordinating process does itself between two maps
# counts as the work of one thread where its own threads run the tasks; workers in other processes wait for it.

F = TypeVar("F", bound=Callable[..., Any])
Call = Callable[[], Any]
PARTS = ("computing", "reading", "writing", "waiting")
"""What the time of a stage is made of."""


class _Thread(local):
    """What this thread has spent since it started."""

    def __init__(self) -> None:
        self.reading = self.writing = 0.0
        self.helped = 0.0
        """Seconds of other threads that took stripes of its tasks."""
        self.busy = False
        """Whether it reads or writes just now: what that calls is not counted again."""
        self.moved: dict[str, int] | None = None
        """Bytes that its task has read and written, where somebody asks."""

    def spent(self) -> tuple[float, float, float]:
        """Return seconds of its own and of its helpers, and those of reading and writing among them."""
        return time.perf_counter() + self.helped, self.reading, self.writing

    def spent_since(self, earlier: Sequence[float]) -> list[float]:
        """Return the same, since it was ``earlier``."""
        return [spent - before for spent, before in zip(self.spent(), earlier, strict=True)]


_thread = _Thread()


def reads(function: F) -> F:
    """Count the time of a function as that of reading."""
    return _counted(function, "reading")


def writes(function: F) -> F:
    """Count the time of a function as that of writing."""
    return _counted(function, "writing")


def _counted(function: F, part: str) -> F:
    @wraps(function)
    def counted(*arguments: Any, **named: Any) -> Any:
        if _thread.busy:
            return function(*arguments, **named)
        _thread.busy, began = True, time.perf_counter()
        try:
            result = function(*arguments, **named)
            if _thread.moved is not None:
                _thread.moved[part] += _nbytes(result if part == "reading" else (*arguments, *named.values()))
            return result
        finally:
            _thread.busy = False
            setattr(_thread, part, getattr(_thread, part) + time.perf_counter() - began)

    return cast(F, counted)


def _nbytes(value: Any) -> int:
    """Return the bytes of the arrays in a value.

    >>> import numpy as np
    >>> _nbytes(({"a": np.zeros(3)}, [np.zeros(2, "f4"), None], "name"))
    32
    """
    if isinstance(value, Mapping):
        return sum(map(_nbytes, value.values()))
    if isinstance(value, list | tuple):
        return sum(map(_nbytes, value))
    if hasattr(value, "indptr"):  # (of sparse rows)
        return _nbytes([value.data, value.indices, value.indptr])
    return len(value) if isinstance(value, bytes) else int(getattr(value, "nbytes", 0))


class Timed(NamedTuple):
    """What a task returned, and the seconds that it took, reading and writing among them."""

    result: Any
    seconds: float
    reading: float
    writing: float
    record: Mapping[str, Any] | None = None
    """When and where it ran and what it moved, if that is recorded."""


def run_timed(call: Callable[[], Any]) -> Timed:
    """Run a task where it is, and time it."""
    before = _thread.spent()
    result = call()
    seconds, reading, writing = _thread.spent_since(before)
    return Timed(result, seconds, reading, writing)


def run_recorded(call: Callable[[], Any]) -> Timed:
    """Run a task where it is, time it, and record when it began, in which process, and the bytes that it moved.

    Bytes are those of the arrays read and written, uncompressed; those of threads that help with it are left out.
    """
    began, cpu = time.time(), time.thread_time()
    _thread.moved = {"reading": 0, "writing": 0}
    try:
        timed = run_timed(call)
        record = {
            "began": began,
            "process": f"{gethostname()}:{os.getpid()}",
            "thread": get_ident(),
            "seconds": timed.seconds,
            "reading": timed.reading,
            "writing": timed.writing,
            "cpu": time.thread_time() - cpu,
            "bytes_read": _thread.moved["reading"],
            "bytes_written": _thread.moved["writing"],
        }
    finally:
        _thread.moved = None
    return timed._replace(record=record)


def run_with_helpers(calls: Sequence[Call], run: Callable[[Sequence[Call]], list[Timed]]) -> list[Any]:
    """Run stripes of a task as ``run`` does, and count for this thread what others have spent on them.

    Where all of them were with others, this thread has only waited meanwhile.
    """
    home, began = get_ident(), time.perf_counter()
    own: list[int] = []

    def timed(call: Callable[[], Any]) -> Timed:
        if get_ident() != home:
            return run_timed(call)
        own.append(1)
        return Timed(call(), 0.0, 0.0, 0.0)

    stripes = run([partial(timed, call) for call in calls])
    _thread.helped += sum(one.seconds for one in stripes) - (0.0 if own else time.perf_counter() - began)
    _thread.reading += sum(one.reading for one in stripes)
    _thread.writing += sum(one.writing for one in stripes)
    return [one.result for one in stripes]


@dataclass
class StageClock:
    """What the tasks of a stage have spent so far, in seconds of all threads together."""

    seconds: float = 0.0
    reading: float = 0.0
    writing: float = 0.0
    threads: int = 1
    """How many tasks run at a time."""
    here: bool = False
    """Whether these are threads of this process."""
    began: float = field(default_factory=lambda: time.perf_counter())
    home: int = field(default_factory=get_ident)
    spent: list[float] = field(default_factory=lambda: [*_thread.spent()])
    """What the thread of the stage had spent when it began, and has in its maps since then."""
    lock: Lock = field(default_factory=Lock)

    @contextmanager
    def mapping(self) -> Iterator[None]:
        """Around a map, in the thread of the stage."""
        before = _thread.spent()
        try:
            yield
        finally:
            self.spent = [known + more for known, more in zip(self.spent, _thread.spent_since(before), strict=True)]

    def add(self, task: Timed) -> None:
        """Count a task, in whichever thread."""
        with self.lock:
            self.seconds += task.seconds
            self.reading += task.reading
            self.writing += task.writing

    def shares(self) -> dict[str, float]:
        """Return each part of the time of all threads since the stage began: they sum to 1.

        >>> StageClock(seconds=3.0, reading=2.0, threads=1, began=time.perf_counter() - 4).shares()
        {'computing': 0.25, 'reading': 0.5, 'writing': 0.0, 'waiting': 0.25}
        """
        by_itself = [0.0, 0.0, 0.0]
        if self.here and get_ident() == self.home:
            by_itself = _thread.spent_since(self.spent)
        tasks = self.seconds, self.reading, self.writing
        seconds, reading, writing = (max(0.0, one + own) for one, own in zip(tasks, by_itself, strict=True))
        whole = max(self.threads * (time.perf_counter() - self.began), seconds, 1e-9)
        parts = max(0.0, seconds - reading - writing), reading, writing, max(0.0, whole - seconds)
        return {name: round(part / whole, 3) for name, part in zip(PARTS, parts, strict=True)}


# ----------------------------------------------------------------------------------------------------------- runtime


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
    """Of a stage that is done, what its time was spent on (:data:`bigembed.runtime.PARTS`)."""


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
