"""Tasks in flight on a distributed client: a bounded number, repeated when their worker dies.

One process hands them all out, at :data:`HANDED_OUT` seconds of its time for each. Where a call takes t seconds and
there are N workers, several calls go as one task, so that it takes N times as long as handing it out: the workers then
wait for nothing. How long calls of a label take is known from those before.
"""

from __future__ import annotations

import logging
import queue
import time
import uuid
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

from bigembed.errors import BigembedError, ClusterError, InterruptedRun
from bigembed.jobs.places.cluster_table import ClusterTable
from bigembed.jobs.places.worker_monitor import WorkerMonitor
from bigembed.runtime.blocks import bounds
from bigembed.runtime.executors import LocalPool
from bigembed.runtime.runtime import Progress, no_progress
from bigembed.store.spaces import trim_heap

HANDED_OUT = 0.002
"""Seconds of the processor that a task takes of the process that hands it out, about (``benchmarks/scheduler.py``)."""
ROUNDS = 2
"""Tasks that every worker gets of those that are left, at least, where several calls are one."""
A_WORKER = 4
"""Tasks in flight for each worker: enough to hide the way to it and back."""
ATTEMPTS = 3
"""Times that a task is tried when it fails for a reason that may pass (a slow or full disk)."""
TOGETHER = 64
"""Finished calls whose results are fetched together, and tasks of a message."""
SEVERAL = 64
"""Calls of a task, at most."""
PACED = 16
"""Tasks over which the seconds of a call are averaged."""
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
        pace: dict[str, float] | None = None,
    ) -> None:
        self.client, self.calls, self.label = client, calls, label
        self.timeout, self.progress, self.why, self.monitor = timeout, progress, why, monitor
        self.results: list[Any] = [None] * len(calls)
        self.attempts = [0] * len(calls)
        """Times that each was handed out by itself."""
        self.begun = 0
        """Calls that were handed out once at least."""
        self.flying: dict[Any, range] = {}
        self.landed: queue.SimpleQueue[Any] = queue.SimpleQueue()
        self.ready: list[tuple[range, Any]] = []
        self.done = 0
        self.seen_worker = self.counted = time.monotonic()
        self.workers = 0
        self.pace: dict[str, float] = {} if pace is None else pace
        """Seconds of a call, by label."""

    def land(self) -> list[Any]:
        """All results, in the order of the calls."""
        try:
            self.workers = max(1, self._workers())
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
            self.workers, self.counted = max(1, self._workers()), now
        room = (A_WORKER if self.label in self.pace else 1) * self.workers - len(self.flying)
        tasks: list[range] = []
        while len(tasks) < room and self.begun < len(self.calls):
            left = len(self.calls) - self.begun
            several = together(left, self.workers, self.pace.get(self.label))
            tasks.append(range(self.begun, self.begun + several))
            self.begun += several
        self._submit(tasks)

    def _submit(self, tasks: list[range]) -> None:
        """Hand out tasks, many in one message."""
        for task in (task for task in tasks if len(task) == 1):
            self.attempts[task[0]] += 1
        for start, stop in bounds(len(tasks), TOGETHER):
            some = tasks[start:stop]
            keys = [f"{self.label}-{task[0]}-{uuid.uuid4().hex[:12]}" for task in some]
            work = [partial(run_calls, self.calls[task.start : task.stop]) for task in some]
            for task, future in zip(some, self.client.map(run_task, work, key=keys, pure=False), strict=True):
                self.flying[future] = task
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
        tasks = [self.flying.pop(future) for future in arrived]
        self._fill()
        self.monitor.look()
        for task, future in zip(tasks, arrived, strict=True):
            if future.status == "finished":
                self.ready.append((task, future))
            else:
                self._failed(task, future)
        finished = sum(len(task) for task, _ in self.ready)
        if finished >= TOGETHER or not self.flying or self.label not in self.pace:
            self._fetch()
        self.seen_worker = time.monotonic()
        self.progress(self.label, self.done + sum(len(task) for task, _ in self.ready), len(self.calls))

    def _fetch(self) -> None:
        """The results of the finished tasks, in one message: each message waits some milliseconds for its answer."""
        ready, self.ready = self.ready, []
        try:
            futures = [future for _, future in ready]
            results = self.monitor.awaited(lambda: self.client.gather(futures, asynchronous=True), self._watch)
        except InterruptedRun:
            raise
        except Exception:
            # A worker died with its results, and a task that was repeated for them failed.
            lost = [(task, future) for task, future in ready if future.status == "error"]
            if not lost:
                raise
            self.ready = [(task, future) for task, future in ready if future.status != "error"]
            for task, future in lost:
                self._failed(task, future)
            return
        for (task, _), (found, seconds) in zip(ready, results, strict=True):
            self.results[task.start : task.stop] = found
            self.done += len(task)
            before = self.pace.get(self.label, seconds / len(task))
            self.pace[self.label] = before + (seconds / len(task) - before) / PACED

    def _failed(self, task: range, future: Any) -> None:
        """Try again what may go better the next time, each call by itself; raise the rest."""
        if self.client.status != "running":
            raise InterruptedRun(
                f"the scheduler at {self._address()} is gone. Finished stages are kept: run again when it is back"
            )
        error = future.exception() if future.status == "error" else OSError("cancelled by the scheduler")
        name = f"task {task[0]}{f'–{task[-1]}' if len(task) > 1 else ''} of {self.label!r}"
        if type(error).__name__ == "KilledWorker":
            message = (
                f"{name} was given up: the workers that ran it died ({error}). "
                "Mostly they were out of memory: give each more ([cluster] memory) and run again; finished "
                "stages are kept"
            )
            raise ClusterError(message) from error
        if type(error).__name__ in ("NoValidWorkerError", "NoWorkerError"):
            raise self._no_workers() from error
        passing = isinstance(error, (OSError, MemoryError)) and not isinstance(error, BigembedError)
        attempt = self.attempts[task[0]]
        if not passing or attempt >= ATTEMPTS:
            error.add_note(f"in {name}, attempt {attempt}")
            raise error
        logging.getLogger(__name__).warning(
            "%s failed (%s: %s); tried again", name, type(error).__name__, error, extra={"block": task[0]}
        )
        self._submit([range(number, number + 1) for number in task])

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
        """How many tasks run at a time, as the scheduler knows it; one that does not answer is gone."""
        try:
            wait = max(self.timeout, ANSWER)
            known = self.client.sync(self.client.scheduler.ncores, workers=None, callback_timeout=wait)
            return sum(known.values())
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


def together(left: int, workers: int, seconds: float | None) -> int:
    """How many of the calls that are ``left``, of so many seconds each (None: not known yet), to hand out as one task.

    >>> together(4096, 2, 0.5), together(4096, 512, 0.5), together(4096, 1024, 0.5), together(10, 2, 0.001)
    (1, 3, 2, 2)
    """
    if seconds is None:
        return 1
    wanted = -(-workers * HANDED_OUT // max(seconds, HANDED_OUT / SEVERAL))
    return int(max(1, min(SEVERAL, wanted, left // (ROUNDS * workers))))


def run_calls(calls: Sequence[Callable[[], Any]]) -> tuple[list[Any], float]:
    """In a worker: the results of the calls of a task, and the seconds that it took."""
    began = time.perf_counter()
    return [call() for call in calls], time.perf_counter() - began


def run_task(task: Callable[[], Any]) -> Any:
    """In a worker: what a task returns."""
    return task()


class ClientExecutor:
    """Tasks on a distributed client. Few are in flight at a time; those whose worker died are run again.

    ``timeout``: seconds without any worker after which the job ends with :class:`ClusterError`, which says ``why()``.
    ``monitor``: who looks after the workers meanwhile. ``pool``: threads of this process that may take tasks while the
    workers idle, where those are all on this machine.
    """

    in_this_process = False

    def __init__(
        self,
        client: Any,
        timeout: float,
        why: Callable[[], str] = str,
        monitor: WorkerMonitor | None = None,
        pool: LocalPool | None = None,
    ) -> None:
        self.client, self.timeout, self.why, self.pool = client, timeout, why, pool
        self.monitor = monitor or WorkerMonitor(client, ClusterTable().frozen_timeout)
        self.pace: dict[str, float] = {}

    def run(self, calls: Sequence[Callable[[], Any]], label: str, progress: Progress | None = None) -> list[Any]:
        """Return the results of the calls, in their order."""
        given = self.client, calls, label, self.timeout, progress or no_progress
        return Flight(*given, self.why, self.monitor, self.pace).land()

    def free_memory(self) -> None:
        """Let the workers give back memory that they do not use."""
        self.monitor.awaited(lambda: self.client.run(trim_heap, on_error="ignore", asynchronous=True))
