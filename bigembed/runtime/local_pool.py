"""Block tasks on threads of this process, which see its memory and take stripes of each other's blocks."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from functools import cached_property
from threading import Condition, Lock, Thread
from typing import Any

from bigembed.runtime.blocks import Ticker, bounds, dask_runs, pooled, setting, threads, threads_of_dask

# --------------------------------------------------------------------------------------------------------- stripes
# A block of rows in stripes, on threads of this process that would be idle otherwise.
#
# Blocks differ in size, and may be fewer than threads: what a task does with its rows is cut into stripes of
# :data:`STRIPE` rows, always the same. The thread of the task takes one after the other, and a thread without a task
# helps, so that the bytes depend on neither.

STRIPE = 8_192
"""Rows."""


def stripes(rows: int) -> list[tuple[int, int]]:
    """Start and stop of each, at least one."""
    return bounds(rows, STRIPE) or [(0, 0)]


def spread(calls: Sequence[Callable[[], Any]]) -> list[Any]:
    """The results of the calls, in their order, from the thread of this task and from those that are idle."""
    crew = _crew.get()
    return [call() for call in calls] if crew is None or len(calls) < 2 else crew.run(calls)


class Batch:
    """Calls of one :meth:`Crew.run`: those left, how many are at work and done, what they gave."""

    def __init__(self, calls: Sequence[Callable[[], Any]], number: int) -> None:
        self.calls, self.number = calls, number
        self.left = list(reversed(range(len(calls))))
        self.results: list[Any] = [None] * len(calls)
        self.working = self.done = 0
        self.error: BaseException | None = None

    @property
    def over(self) -> bool:
        """Whether no call of it is left or at work."""
        return not self.left and not self.working


class Crew:
    """Threads for the tasks of sweeps and for the stripes of tasks: the one that calls, and helpers.

    Whoever is idle takes a call of the batch that was begun first: tasks before the stripes of other tasks. A thread
    that waits for others to be done with its batch takes of batches begun later: of their stripes.
    """

    def __init__(self, count: int | None) -> None:
        self.asked = count
        self._lock = Lock()
        self._changed = Condition(self._lock)
        self._open: list[Batch] = []
        self._begun, self._closed = 0, False
        self._helpers: list[Thread] = []

    @cached_property
    def count(self) -> int:
        """How many threads there are: as asked, or as Dask would take (which is asked, and loaded, when it matters)."""
        return threads_of_dask() if self.asked is None else self.asked

    def close(self) -> None:
        """All is done."""
        with self._lock:
            self._closed = True
            self._changed.notify_all()
        for helper in self._helpers:
            helper.join()

    def run(self, calls: Sequence[Callable[[], Any]], notify: Callable[[int], None] = lambda done: None) -> list[Any]:
        """The results of the calls, in their order. ``notify`` is called, in this thread, with how many are done.

        After an error, of ``notify`` too, no call is begun; those at work are awaited.
        """
        helpers = min(self.count, len(calls)) - 1
        with self._lock:
            self._begun += 1
            batch = Batch(calls, self._begun)
            self._open.append(batch)
            while len(self._helpers) < helpers:
                self._helpers.append(Thread(target=self._help, name="bigembed-crew", daemon=True))
                self._helpers[-1].start()
            self._changed.notify(len(calls) - 1)
        reported = 0
        try:
            while self._take(batch):
                while reported < batch.done:
                    notify(reported := reported + 1)
        finally:
            with self._lock:
                batch.left.clear()
                self._changed.wait_for(lambda: batch.over)
                self._open.remove(batch)
        if batch.error is not None:
            raise batch.error
        while reported < batch.done:
            notify(reported := reported + 1)
        return batch.results

    def _help(self) -> None:
        _crew.set(self)
        while self._take():
            pass

    def _take(self, own: Batch | None = None) -> bool:
        """Do one call, as soon as there is one; False where there is none any more: ``own`` is over, or all is done."""
        found: Batch | None = None
        try:
            with self._lock:
                found = self._next(own)
                if found is None:
                    return False
                found.working += 1
                place = found.left.pop()
            found.results[place] = found.calls[place]()
        except BaseException as error:
            if found is None:
                raise
            with self._lock:
                found.left.clear()
                found.error = found.error or interrupted(error)
        with self._lock:
            found.working -= 1
            found.done += 1
            if found.over:
                self._changed.notify_all()
        return True

    def _next(self, own: Batch | None) -> Batch | None:
        """The first batch with calls left, from ``own`` on; None where that is over."""
        while not (own.over if own else self._closed):
            for batch in self._open:
                if batch.left and (own is None or batch.number >= own.number):
                    return batch
            self._changed.wait()
        return None


def interrupted(error: BaseException) -> BaseException:
    """What a signal raised in a call of compiled code, which then says SystemError; any other error as it is."""
    while isinstance(error, SystemError) and error.__cause__ is not None:
        error = error.__cause__
    return error


@contextmanager
def working(count: int | None = None) -> Iterator[Crew]:
    """A crew of ``count`` threads (as many as run tasks) for this context, or the one of as many that it has already.

    Its tasks in this process go to the crew, and threads that are idle meanwhile help with what the coordinating one
    does itself.
    """
    if count is None and not dask_runs():
        count = threads()
    found = _crew.get()
    if found is not None and found.asked == count:
        yield found
        return
    crew = Crew(count)
    try:
        with pooled(crew), setting(_crew, crew):
            yield crew
    finally:
        crew.close()


_crew: ContextVar[Crew | None] = ContextVar("crew", default=None)


# --------------------------------------------------------------------------------------------------------- threads
# Block tasks in threads of this process, which see its memory.


def unheard(label: str, done: int, total: int) -> None:
    """The ticker that nobody hears."""


class Threads:
    """An executor (see :func:`bigembed.runtime.blocks.executor`): tasks in ``count`` threads of this process.

    ``notify`` hears of each task that is done, in the thread that called, and may raise there: no task is begun then,
    and those at work are awaited.
    """

    here = True  # (see bigembed.runtime.blocks.here)

    def __init__(self, count: int = 1, notify: Ticker = unheard) -> None:
        self.count, self.notify = count, notify

    def __call__(self, calls: Sequence[Callable[[], Any]], label: str) -> list[Any]:
        """The results, in the order of the calls."""
        self.notify(label, 0, len(calls))
        with working(self.count) as crew:
            return crew.run(calls, lambda done: self.notify(label, done, len(calls)))
