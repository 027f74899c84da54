"""Tasks in flight on a distributed client: a bounded number, repeated when their worker dies."""

from __future__ import annotations

import logging
import queue
import time
import uuid
from collections.abc import Callable, Sequence
from typing import Any

from bigembed.blocks.rows import Executor
from bigembed.errors import (
    BigembedError,
    ClusterError,
    InterruptedRun,
)
from bigembed.jobs.places.cluster_table import ClusterTable
from bigembed.jobs.places.place import Progress, no_progress
from bigembed.jobs.places.worker_monitor import WorkerMonitor

A_WORKER = 4
"""Tasks in flight for each worker: enough to hide the way to it and back."""
ATTEMPTS = 3
"""Times that a task is tried when it fails for a reason that may pass (a slow or full disk)."""
TOGETHER = 64
"""Finished tasks whose results are fetched together."""
TICK = 1.0
ANSWER = 5.0
"""Seconds at the least that a scheduler has to answer."""


class Flight:
    """One map: submits, collects, tries again, watches that there are workers.

    A task that raises one of our own errors, or a programming error, would raise again: it is not repeated.
    """

    def __init__(
        self,
        client: Any,
        calls: Sequence[Callable[[], Any]],
        label: str,
        timeout: float,
        progress: Progress,
        why: Callable[[], str],
        monitor: WorkerMonitor,
    ) -> None:
        self.client, self.calls, self.label = client, calls, label
        self.timeout, self.progress, self.why, self.monitor = timeout, progress, why, monitor
        self.results: list[Any] = [None] * len(calls)
        self.attempts = [0] * len(calls)
        self.waiting = iter(range(len(calls)))
        self.flying: dict[Any, int] = {}
        self.landed: queue.SimpleQueue[Any] = queue.SimpleQueue()
        self.ready: list[tuple[int, Any]] = []
        self.done = 0
        self.seen_worker = self.counted = time.monotonic()
        self.room = 0

    def land(self) -> list[Any]:
        """All results, in the order of the calls."""
        try:
            self.room = A_WORKER * max(1, self._workers())
            self._fill()
            while self.done < len(self.calls):
                self._collect(self._arrivals())
            self.progress(self.label, self.done, len(self.calls))
            return self.results
        finally:
            if self.flying and self.client.status == "running":
                self.client.cancel(list(self.flying), force=True)

    def _fill(self) -> None:
        """As many in flight as there is room for: workers come and go, above all those of a queue."""
        now = time.monotonic()
        if now - self.counted > TICK and self.client.status == "running":
            self.room, self.counted = A_WORKER * max(1, self._workers()), now
        while len(self.flying) < self.room and (number := next(self.waiting, None)) is not None:
            self._submit(number)

    def _submit(self, number: int) -> None:
        self.attempts[number] += 1
        key = f"{self.label}-{number}-{uuid.uuid4().hex[:12]}"
        future = self.client.submit(self.calls[number], key=key, pure=False)
        self.flying[future] = number
        future.add_done_callback(self.landed.put)

    def _arrivals(self) -> list[Any]:
        """Futures that came in; waits for one at least, and watches the cluster meanwhile."""
        while True:
            try:
                arrived = [self.landed.get(timeout=TICK)]
            except queue.Empty:
                self._watch()
                continue
            while not self.landed.empty():
                arrived.append(self.landed.get())
            return arrived

    def _collect(self, arrived: list[Any]) -> None:
        numbers = [self.flying.pop(future) for future in arrived]
        self._fill()
        self.monitor.look()
        for number, future in zip(numbers, arrived, strict=True):
            if future.status == "finished":
                self.ready.append((number, future))
            else:
                self._failed(number, future)
        if len(self.ready) >= TOGETHER or not self.flying:
            self._fetch()
        self.seen_worker = time.monotonic()
        self.progress(self.label, self.done + len(self.ready), len(self.calls))

    def _fetch(self) -> None:
        """The results of the finished tasks, in one message: each message waits some milliseconds for its answer."""
        ready, self.ready = self.ready, []
        try:
            futures = [future for _, future in ready]
            results = self.monitor.awaited(lambda: self.client.gather(futures, asynchronous=True))
        except Exception:
            # A worker died with its results, and a task that was repeated for them failed.
            lost = [(number, future) for number, future in ready if future.status == "error"]
            if not lost:
                raise
            self.ready = [(number, future) for number, future in ready if future.status != "error"]
            for number, future in lost:
                self._failed(number, future)
            return
        for (number, _), result in zip(ready, results, strict=True):
            self.results[number] = result
        self.done += len(ready)

    def _failed(self, number: int, future: Any) -> None:
        """Try again what may go better the next time; raise the rest."""
        if self.client.status != "running":
            raise InterruptedRun(
                f"the scheduler at {self._address()} is gone. Finished stages are kept: run again when it is back"
            )
        error = future.exception() if future.status == "error" else OSError("cancelled by the scheduler")
        name = f"task {number} of {self.label!r}"
        if _deadly(error):
            message = (
                f"{name} was given up: the workers that ran it died ({error}). "
                "Mostly they were out of memory: give each more ([cluster] memory) and run again; finished "
                "stages are kept"
            )
            raise ClusterError(message) from error
        if _workerless(error):
            raise self._no_workers() from error
        passing = isinstance(error, (OSError, MemoryError)) and not isinstance(error, BigembedError)
        if not passing or self.attempts[number] >= ATTEMPTS:
            error.add_note(f"in {name}, attempt {self.attempts[number]}")
            raise error
        logging.getLogger(__name__).warning(
            "%s failed (%s: %s); tried again", name, type(error).__name__, error, extra={"block": number}
        )
        self._submit(number)

    def _watch(self) -> None:
        """Nothing came in for a while: is there anybody?"""
        now = time.monotonic()
        if self.client.status in ("closed", "closing"):
            raise InterruptedRun(
                f"the scheduler at {self._address()} is gone. Finished stages are kept: run again when it is back"
            )
        self.monitor.look()
        if self.client.status == "running" and self._workers():
            self.seen_worker = now
        elif now - self.seen_worker > self.timeout:
            raise self._no_workers()

    def _workers(self) -> int:
        """How many the scheduler knows; one that does not answer is gone."""
        try:
            wait = max(self.timeout, ANSWER)
            return len(self.client.sync(self.client.scheduler.ncores, workers=None, callback_timeout=wait))
        except OSError as error:  # (a timeout is one)
            raise InterruptedRun(
                f"the scheduler at {self._address()} does not answer. Finished stages are kept: run again when it does"
            ) from error

    def _no_workers(self) -> ClusterError:
        return ClusterError(
            f"no worker for {self.timeout:g} s during {self.label!r}: the cluster at {self._address()} has "
            f"none. {self.why() or 'Start workers and run again; finished stages are kept'}"
        )

    def _address(self) -> str:
        return str(getattr(self.client.scheduler, "address", "?")) if self.client.scheduler else "?"


def _deadly(error: BaseException) -> bool:
    return type(error).__name__ == "KilledWorker"


def _workerless(error: BaseException) -> bool:
    return type(error).__name__ in ("NoValidWorkerError", "NoWorkerError")


def client_executor(
    client: Any,
    timeout: float,
    progress: Progress = no_progress,
    why: Callable[[], str] = str,
    monitor: WorkerMonitor | None = None,
) -> Executor:
    """Tasks on a distributed client. Few are in flight at a time; those whose worker died are run again.

    ``timeout``: seconds without any worker after which the job ends with :class:`ClusterError`, which says ``why()``.
    ``monitor``: who looks after the workers meanwhile.
    """
    watched = monitor or WorkerMonitor(client, ClusterTable().frozen_timeout)

    def run(calls: Sequence[Callable[[], Any]], label: str) -> list[Any]:
        return Flight(client, calls, label, timeout, progress, why, watched).land()

    return run
