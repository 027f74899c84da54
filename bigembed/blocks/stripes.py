"""A block of rows in stripes, on threads of this process that would be idle otherwise.

Blocks differ in size, and may be fewer than threads: what a task does with its rows is cut into stripes of
:data:`STRIPE` rows, always the same. The thread of the task takes one after the other, and a thread without a task
helps, so that the bytes depend on neither.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from contextvars import ContextVar
from threading import Condition
from typing import Any

from bigembed.blocks.rows import bounds, threads

STRIPE = 8_192
"""Rows."""


def stripes(rows: int) -> list[tuple[int, int]]:
    """Start and stop of each, at least one."""
    return bounds(rows, STRIPE) or [(0, 0)]


def spread(calls: Sequence[Callable[[], Any]]) -> list[Any]:
    """The results of the calls, in their order, from the thread of this task and from those that are idle."""
    crew = _crew.get()
    return [call() for call in calls] if crew is None or len(calls) < 2 else crew.run(calls)


class Crew:
    """The tasks of one sweep on ``count`` threads: as many of them work at any time."""

    def __init__(self, count: int) -> None:
        self._idle, self._changed = count, Condition()
        self._helpers = ThreadPoolExecutor(count - 1) if count > 1 else None

    @contextmanager
    def __call__(self) -> Iterator[None]:
        """Around a task, in its thread."""
        self._wait(lambda: False)
        token = _crew.set(self if self._helpers else None)
        try:
            yield
        finally:
            _crew.reset(token)
            self._free()

    def close(self) -> None:
        """All tasks are done."""
        if self._helpers:
            self._helpers.shutdown()

    def run(self, calls: Sequence[Callable[[], Any]]) -> list[Any]:
        """See :func:`spread`."""
        results: list[Any] = [None] * len(calls)
        left = list(reversed(range(len(calls))))

        def work() -> None:
            while left:
                try:
                    place = left.pop()
                except IndexError:  # (another thread took the last one)
                    return
                results[place] = calls[place]()

        def help_out() -> None:
            if self._wait(lambda: not left):
                try:
                    work()
                finally:
                    self._free()

        assert self._helpers is not None
        helping = [self._helpers.submit(help_out) for _ in calls[1 : self._helpers._max_workers + 1]]
        try:
            work()
        finally:
            left.clear()
            with self._changed:
                self._changed.notify_all()
            failed = [future.exception() for future in helping if not future.cancel()]
        for error in failed:
            if error is not None:
                raise error
        return results

    def _wait(self, over: Callable[[], bool]) -> bool:
        """Until a thread may work, or not at all if it is over before."""
        with self._changed:
            while self._idle <= 0 and not over():
                self._changed.wait()
            if over():
                return False
            self._idle -= 1
            return True

    def _free(self) -> None:
        with self._changed:
            self._idle += 1
            self._changed.notify_all()


@contextmanager
def working() -> Iterator[None]:
    """Let threads of this process that are idle meanwhile help with what the coordinating one does itself."""
    crew = Crew(threads())
    try:
        with crew():
            yield
    finally:
        crew.close()


_crew: ContextVar[Crew | None] = ContextVar("crew", default=None)
