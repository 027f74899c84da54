"""Where the time of a stage goes: its tasks compute, read and write, and threads without a task wait.

A task is timed where it runs, and what it takes to read and to write around what does that. The rest of its time it
computes. The threads that a stage has for its tasks wait in what is left of their time: while the coordinating process
hands out tasks, and at the end of a map, for its last tasks. What the coordinating process does by itself between two
maps is the work of a thread where its own threads have the tasks; workers wait for it.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial, wraps
from socket import gethostname
from threading import Lock, get_ident, local
from typing import Any, NamedTuple, TypeVar, cast

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
