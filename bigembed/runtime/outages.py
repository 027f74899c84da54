"""Outages of object stores: requests are repeated while their store is away, and whoever listens hears of it.

Threads and processes meet an outage at different moments. In a process it begins with the first request that fails, or
stays without an answer for long, and ends when an answer comes and no request that has failed is left: a server that
starts answers some requests before others. A listener hears of both, and now and then while it lasts, in whichever
thread; what it asks of a store itself is not waited for.
"""

from __future__ import annotations

import asyncio
import itertools
import logging
import os
import threading
import time
from collections import defaultdict
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass, replace
from datetime import UTC, datetime, timedelta
from functools import lru_cache
from typing import TypeVar

from bigembed.errors import UnreachableError
from bigembed.runtime import Event

T = TypeVar("T")

PATIENCE = timedelta(minutes=3)
"""How long a request is repeated while the store does not answer, or answers that it cannot."""
SHORTEST, LONGEST = 0.2, 1.0
"""Seconds between two attempts: of the first, and at the most."""
SILENT = 20.0
"""Seconds without any answer after which requests that are still waited for are an outage."""
REMINDER = 15.0
"""Seconds between two reports of one outage: a listener may have taken it for over, or come later."""
LOOK = 1.0


@dataclass(frozen=True)
class Outage:
    """A store that is away, or is back; seconds since 1970."""

    store: str
    """Scheme and bucket."""
    since: float
    until: float
    """When the first of its requests is given up."""
    error: str
    """What the last attempt met."""
    ended: float | None = None

    @property
    def seconds(self) -> float:
        """How long it has lasted."""
        return (time.time() if self.ended is None else self.ended) - self.since

    def event(self) -> Event:
        """Return what the observer of a run hears."""
        return Event("store", "", results=asdict(self), message=str(self))

    def __str__(self) -> str:
        if self.ended is not None:
            return f"{self.store} answers again, after {self.seconds:.0f} s"
        since, until = (datetime.fromtimestamp(seconds, UTC) for seconds in (self.since, self.until))
        return (
            f"{self.store} has not answered since {since:%H:%M:%S} UTC ({self.error}); requests are repeated until "
            f"{until:%H:%M:%S}"
        )


Listener = Callable[[Outage], None]


class Stores:
    """What this process knows of the stores that it asks: who waits for which, and which are away."""

    def __init__(self) -> None:
        self.listeners: list[Listener] = []
        self.away: dict[str, Outage] = {}
        self.hurried = False
        """Whether the process is to stop: nothing is waited for, and a store that is away is not asked again."""
        self._failed: defaultdict[str, set[object]] = defaultdict(set)
        self._noted: dict[str, float] = {}
        self._reported: dict[str, float] = {}
        self._answered: dict[str, float] = {}
        self._waiting: dict[int, tuple[str, float]] = {}
        self._numbers = itertools.count()
        self._lock = threading.Lock()
        self._here = threading.local()

    @property
    def patient(self) -> bool:
        """Whether requests of this thread are repeated."""
        return not self.hurried and getattr(self._here, "patient", True)

    @contextmanager
    def without_waiting(self) -> Iterator[None]:
        """Requests of this thread fail at once, and say nothing of it."""
        before, self._here.patient = getattr(self._here, "patient", True), False
        try:
            yield
        finally:
            self._here.patient = before

    @contextmanager
    def heard(self, listener: Listener) -> Iterator[None]:
        """Let a listener hear of outages inside."""
        self.listeners.append(listener)
        try:
            yield
        finally:
            self.listeners.remove(listener)

    def begin(self, store: str) -> int:
        """Note that an answer is waited for; returns the number of the request."""
        number = next(self._numbers)
        self._waiting[number] = store, time.time()
        return number

    def end(self, number: int, answered: bool) -> None:
        """Note that it is no longer waited for."""
        store, _ = self._waiting.pop(number)
        if not answered:
            return
        self._answered[store] = time.time()
        if store in self.away:
            with self._lock:
                outage = None if self._failed[store] else self.away.pop(store, None)
            if outage is not None:
                self._tell(replace(outage, ended=time.time()))

    def drop(self, store: str, request: object) -> None:
        """Note that a request is not made again, whether it was ever noted to have failed or not."""
        with self._lock:
            self._failed[store].discard(request)

    def note(self, store: str, since: float, error: str, request: object = None) -> Outage:
        """Note that a request that began then got no answer, or one that says that the store cannot.

        ``request``: one that is made again.
        """
        now, patience = time.time(), PATIENCE.total_seconds()
        since = max(since, self._answered.get(store, 0.0))
        with self._lock:
            known = self.away.get(store)
            if known is None or now - self._noted[store] > patience:  # (nobody asks since it was given up)
                known, self._reported[store] = Outage(store, since, since + patience, error), 0.0
            self.away[store] = outage = replace(known, error=error)
            self._noted[store] = now
            if request is not None:
                self._failed[store].add(request)
            if due := now - self._reported[store] > REMINDER:
                self._reported[store] = now
        if due:
            self._tell(outage)
        return outage

    def look(self) -> None:
        """Note the stores that have been silent for long."""
        now, waiting = time.time(), list(self._waiting.values())
        for store in {store for store, _ in waiting}:
            since = max(min(began for one, began in waiting if one == store), self._answered.get(store, 0.0))
            if now - since > SILENT:
                self.note(store, since, "no answer")

    def _tell(self, outage: Outage) -> None:
        if not self.listeners:
            logging.getLogger(__name__).warning("%s", outage)
        with self.without_waiting():
            for listener in tuple(self.listeners):
                listener(outage)


stores = Stores()
"""Of this process."""


@lru_cache(maxsize=1)
def _watch(process: int) -> None:
    """Start the thread that looks for requests without an answer, once a process."""

    def watch() -> None:
        while True:
            time.sleep(LOOK)
            stores.look()

    threading.Thread(target=watch, name="store-watch", daemon=True).start()


class Attempts:
    """Of one request: when it began, and what a failure of it means."""

    def __init__(self, store: str, cause: Callable[[Exception], str | None]) -> None:
        self.store, self.cause = store, cause
        self.began, self.pause = time.time(), SHORTEST
        _watch(os.getpid())
        if stores.hurried and (outage := stores.away.get(store)) is not None:
            raise UnreachableError(str(outage))

    @contextmanager
    def one(self) -> Iterator[None]:
        """Around an attempt: an error of an outage is noted and passes, unless it is time to give up."""
        number, answered, again = stores.begin(self.store), False, False
        try:
            yield
            answered = True
        except Exception as error:
            cause = self.cause(error)
            answered = cause is None
            if cause is None or not stores.patient:
                raise
            noted = stores.note(self.store, self.began, cause, self)
            again = time.time() < min(noted.until, self.began + PATIENCE.total_seconds())
            if not again:
                raise
        finally:
            if not again:
                stores.drop(self.store, self)
            stores.end(number, answered)

    @contextmanager
    def pausing(self) -> Iterator[None]:
        """Around the pause between two attempts: a request that is given up meanwhile is not made again."""
        try:
            yield
        except BaseException:
            stores.drop(self.store, self)
            raise

    def next_pause(self) -> float:
        """Return the seconds until the next attempt."""
        pause, self.pause = self.pause, min(2 * self.pause, LONGEST)
        return pause


def repeat(store: str, cause: Callable[[Exception], str | None], call: Callable[[], T]) -> T:
    """Return what a request returns, made again while its store is away. ``cause``: of an outage, or None."""
    attempts = Attempts(store, cause)
    while True:
        with attempts.one():
            return call()
        with attempts.pausing():
            time.sleep(attempts.next_pause())


async def repeat_awaited(store: str, cause: Callable[[Exception], str | None], call: Callable[[], Awaitable[T]]) -> T:
    """Return what a coroutine returns, as :func:`repeat`."""
    attempts = Attempts(store, cause)
    while True:
        with attempts.one():
            return await call()
        with attempts.pausing():
            await asyncio.sleep(attempts.next_pause())
