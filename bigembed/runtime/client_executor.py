"""Tasks on a distributed client: a bounded number at a time, repeated when their worker dies.

One process hands them all out, at :data:`HANDED_OUT` seconds of its time for each. With N workers, so many calls go as
one task that it takes N times as long, and :data:`LEAST` seconds: the workers then do not wait for that process. How
long calls of a label take is known from those before.
"""

from __future__ import annotations

import logging
import queue
import time
import uuid
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field
from typing import Any

from bigembed.errors import BigembedError, ClusterError, InterruptedRun
from bigembed.runtime import Calls, Executor, KeepResult, Progress, no_progress, trim_heap
from bigembed.runtime.calls import Common, as_given, common_of, run_calls, with_common
from bigembed.runtime.worker_monitor import WorkerMonitor

HANDED_OUT = 0.002
"""Seconds of the processor that a task takes of the process that hands it out, about (``benchmarks/scheduler.py``)."""
LEAST = 0.1
"""Seconds of a task, about, whose calls take less: it costs the processor some milliseconds beside them."""
ROUNDS = 2
"""Tasks that every worker gets, at least, of the calls that are left, where several calls go as one task."""
A_WORKER = 4
"""Tasks in flight for each worker: enough to hide the way to it and back."""
AHEAD = 10.0
"""Seconds of work for each worker that are in flight where workers may be added: an adaptive cluster adds some where it
sees more than five (``distributed.adaptive.target-duration``)."""
ATTEMPTS = 3
"""Times that a task is tried when it fails for a reason that may pass (a slow or full disk)."""
TOGETHER = 64
"""Finished calls whose results are fetched together, at most, and tasks of a message."""
SEVERAL = 64
"""Calls of a task, at most."""
AVERAGED = 16
"""Tasks over which the seconds of a call are averaged."""
TICK = 1.0
"""Seconds after which finished results are fetched, and the cluster is looked at where nothing comes."""
ANSWER = 5.0
"""Seconds at the least that a scheduler has to answer."""
RUNNING, QUEUED = 60.0, 3600.0
"""Seconds to wait for a worker of a cluster that runs, and of one whose workers wait in a queue."""
TERMINATE = 0.95
"""Share of its memory limit at which a worker is restarted."""
INLINE = 1024
"""Bytes of the arguments that calls have in common from which on they are sent once, not with each task."""


@dataclass(frozen=True)
class Advice:
    """What errors say is to be done, in the words of whoever started the workers."""

    workers: Callable[[], str] = lambda: "Start workers and run again; finished stages are kept"
    """Where there are none."""
    memory: str = "give each more ([cluster] memory) and run again; finished stages are kept"
    """Where they died."""
    again: str = "Finished stages are kept: run again when it"
    """Where the scheduler is gone, or does not answer; what it must do follows."""


@dataclass
class TaskMap:
    """The calls of one map: handed out as tasks, fetched, tried again; meanwhile somebody sees that workers are there.

    A task that raises one of our own errors, or a programming error, would raise again: it is not repeated.
    """

    client: Any
    calls: Sequence[Callable[[], Any]]
    label: str
    timeout: float
    progress: Progress
    advice: Advice
    monitor: WorkerMonitor
    seconds: dict[str, float] = field(default_factory=dict)
    """Seconds of a call, by label."""
    keep: KeepResult | None = None
    """Gets the place and the result of each call."""
    ahead: float = 0.0
    """Seconds of work for each worker that are in flight at the least, where it is known how long a call takes."""

    def __post_init__(self) -> None:
        self.results: list[Any] = [None] * len(self.calls)
        self.attempts = [0] * len(self.calls)
        """Times that each was handed out by itself."""
        self.begun = self.done = self.workers = 0
        """Calls that were handed out once at least, and those with results; tasks that run at a time."""
        self.pending: dict[Any, range] = {}
        """The calls of each task that is handed out, by its future."""
        self.arrived: queue.SimpleQueue[Any] = queue.SimpleQueue()
        self.finished: list[tuple[range, Any]] = []
        """Tasks whose results are not fetched yet."""
        self.seen_worker = self.counted = self.fetched = time.monotonic()
        self.shared: Common | None = None
        """What the calls have in common, where that is sent once."""
        self.common: Any = None
        """The future of it."""
        self.address = str(getattr(self.client.scheduler, "address", "?"))
        """Of the scheduler, which the client forgets when it is gone."""

    def run(self) -> list[Any]:
        """Return all results, in the order of the calls."""
        try:
            self.workers = max(1, self._count_workers())
            self._send_common()
            self._hand_out()
            while self.done < len(self.calls):
                self._collect(self._await_some())
            self.progress(self.label, self.done, len(self.calls))
            return self.results
        except BigembedError:
            raise
        except Exception as error:
            if self.client.status == "running":
                raise
            raise self._interrupted("is gone", "is back") from error  # (Dask has an error of its own at each step)
        finally:
            if self.pending and self.client.status == "running":
                self.client.cancel(list(self.pending), force=True)
            self.common = self.shared = None

    def _send_common(self) -> None:
        """Send what all calls have in common by one task, if it is large: it grows with the blocks, as do the tasks."""
        from distributed.protocol.pickle import dumps

        common = common_of(self.calls[0]) if len(self.calls) > 1 else None
        if common is not None and len(dumps(common)) > INLINE:
            self.calls, self.shared = [with_common(call, Common()) for call in self.calls], common
            self._submit_common()

    def _submit_common(self) -> None:
        key = f"{self.label}-arguments-{uuid.uuid4().hex[:12]}"
        self.common = self.client.submit(as_given, self.shared, key=key, pure=False, retries=ATTEMPTS, priority=1)

    def _hand_out(self) -> None:
        """Hand out as many tasks as there is room for: workers come and go, above all those of a queue."""
        now = time.monotonic()
        if now - self.counted > TICK and self.client.status == "running":
            self.workers, self.counted = max(1, self._count_workers()), now
        room = self._tasks_of_worker() * self.workers - len(self.pending)
        tasks: list[range] = []
        while len(tasks) < room and self.begun < len(self.calls):
            several = calls_of_task(len(self.calls) - self.begun, self.workers, self.seconds.get(self.label))
            tasks.append(range(self.begun, self.begun + several))
            self.begun += several
        self._submit(tasks)

    def _tasks_of_worker(self) -> int:
        if (seconds := self.seconds.get(self.label)) is None:
            return 1
        several = calls_of_task(len(self.calls) - self.begun, self.workers, seconds)
        return max(A_WORKER, int(self.ahead / max(several * seconds, HANDED_OUT)))

    def _placed(self, keys: Mapping[str, range]) -> AbstractContextManager[Any]:
        """Around the submission of tasks with these keys: what says where they may run."""
        return nullcontext()

    def _submit(self, tasks: list[range]) -> None:
        """Submit tasks, many in one message."""
        for task in (task for task in tasks if len(task) == 1):
            self.attempts[task[0]] += 1
        for start in range(0, len(tasks), TOGETHER):
            some = tasks[start : start + TOGETHER]
            keys = [f"{self.label}-{task[0]}-{uuid.uuid4().hex[:12]}" for task in some]
            work = [self.calls[task.start : task.stop] for task in some]
            common = [self.common] * len(work)
            with self._placed(dict(zip(keys, some, strict=True))):
                futures = self.client.map(run_calls, work, common, key=keys, pure=False)
            for task, future in zip(some, futures, strict=True):
                self.pending[future] = task
                future.add_done_callback(self.arrived.put)

    def _await_some(self) -> list[Any]:
        """Wait for one future at least, and return all that came in; the cluster is watched meanwhile."""
        while True:
            try:
                arrived = [self.arrived.get(timeout=TICK)]
            except queue.Empty:
                self._watch()
                if self.finished:
                    self._fetch()
                continue
            while not self.arrived.empty():
                arrived.append(self.arrived.get())
            return arrived

    def _collect(self, arrived: list[Any]) -> None:
        tasks = [self.pending.pop(future) for future in arrived]
        self._hand_out()
        self.monitor.look()
        for task, future in zip(tasks, arrived, strict=True):
            if future.status == "finished":
                self.finished.append((task, future))
            else:
                self._try_again(task, future)
        count = sum(len(task) for task, _ in self.finished)
        late = time.monotonic() - self.fetched > TICK  # (what is not fetched is lost where this process is killed)
        if count >= TOGETHER or not self.pending or self.label not in self.seconds or late:
            self._fetch()
        self.seen_worker = time.monotonic()
        self.progress(self.label, self.done + sum(len(task) for task, _ in self.finished), len(self.calls))

    def _fetch(self) -> None:
        """Fetch the results of finished tasks in one message: each message waits some milliseconds for its answer."""
        finished, self.finished, self.fetched = self.finished, [], time.monotonic()
        try:
            done = [future for _, future in finished]
            results = self.monitor.awaited(lambda: self.client.gather(done, asynchronous=True), self._watch)
        except InterruptedRun:
            raise
        except Exception:
            # A worker died with its results, and a task that was repeated for them failed; or all were forgotten.
            lost = [(task, future) for task, future in finished if future.status != "finished"]
            if not lost:
                raise
            self.finished = [(task, future) for task, future in finished if future.status == "finished"]
            for task, future in lost:
                self._try_again(task, future)
            return
        for (task, _), (found, seconds) in zip(finished, results, strict=True):
            self.results[task.start : task.stop] = found
            if self.keep is not None:
                for number, result in zip(task, found, strict=True):
                    self.keep(number, result)
            self.done += len(task)
            known = self.seconds.get(self.label, seconds / len(task))
            self.seconds[self.label] = known + (seconds / len(task) - known) / AVERAGED

    def _try_again(self, task: range, future: Any) -> None:
        """Submit again what may go better the next time, each call by itself; raise the error of the rest."""
        while self.client.status == "connecting":  # (until its connect timeout is over)
            time.sleep(0.1)
        if self.client.status != "running":
            raise self._interrupted("is gone", "is back")
        if future.status == "error":
            error = future.exception()
        else:  # (as all are when the connection was lost)
            error = OSError(f"forgotten by the scheduler at {self.address}, which was restarted or out of reach")
            if self.common is not None and self.common.status == "cancelled":
                self._submit_common()
        name = f"task {task[0]}{f'–{task[-1]}' if len(task) > 1 else ''} of {self.label!r}"
        self._raise_of_cluster(error, name)
        passing = isinstance(error, (OSError, MemoryError)) and not isinstance(error, BigembedError)
        if (attempt := max(1, self.attempts[task[0]])) >= ATTEMPTS and future.status == "cancelled":
            raise self._interrupted(f"has dropped {name} {attempt} times", "keeps its connections")
        if not passing or attempt >= ATTEMPTS:
            error.add_note(f"in {name}, attempt {attempt}")
            raise error
        message = f"{name} failed ({type(error).__name__}: {error}); tried again"
        logging.getLogger(__name__).warning("%s", message, extra={"block": task[0]})
        self._submit([range(number, number + 1) for number in task])

    def gather(self, futures: list[Any]) -> list[Any]:
        """Return the results of what was handed out otherwise; meanwhile somebody sees that workers are there."""
        try:
            return list(self.monitor.awaited(lambda: self.client.gather(futures, asynchronous=True), self._watch))
        except BigembedError:
            raise
        except Exception as error:
            if self.client.status != "running":
                raise self._interrupted("is gone", "is back") from error
            self._raise_of_cluster(error, f"a task of {self.label!r}")
            raise

    def _raise_of_cluster(self, error: BaseException, name: str) -> None:
        """Raise an error of ours where workers died of a task, or there are none for it."""
        if type(error).__name__ == "KilledWorker":
            raise ClusterError(
                f"{name} was given up: the workers that ran it died ({error}). Mostly they were out of memory: "
                f"{self.advice.memory}"
            ) from error
        if type(error).__name__ in ("NoValidWorkerError", "NoWorkerError"):
            raise self._no_workers() from error

    def _watch(self) -> None:
        """Nothing came in for a while: is there anybody?"""
        now = time.monotonic()
        if self.client.status in ("closed", "closing"):
            raise self._interrupted("is gone", "is back")
        self.monitor.look()
        if self.client.status == "running" and (self._count_workers() or self._paused(at_work=True)):
            self.seen_worker = now
        elif now - self.seen_worker > self.timeout:
            raise self._no_workers()

    def _count_workers(self) -> int:
        """Return how many tasks run at a time: none on workers that are paused, because they hold too much."""
        return sum(self._ask(self.client.scheduler.ncores_running, workers=None).values())

    def _paused(self, at_work: bool = False) -> list[str]:
        """Return the workers that begin no task since they hold too much; ``at_work``: those that still run one."""
        known = self._ask(self.client.scheduler.identity, n_workers=-1)["workers"]
        paused = {worker: about for worker, about in known.items() if about.get("status") == "paused"}
        counts = {worker: about.get("metrics", {}).get("task_counts", {}) for worker, about in paused.items()}
        return [worker for worker in paused if not at_work or counts[worker].get("executing")]

    def _ask(self, what: Callable[..., Any], **named: Any) -> Any:
        """Return what the scheduler answers; one that does not answer is gone."""
        try:
            return self.client.sync(what, callback_timeout=max(self.timeout, ANSWER), **named)
        except OSError as error:  # (a timeout is one)
            raise self._interrupted("does not answer", "does") from error

    def _interrupted(self, what: str, then: str) -> InterruptedRun:
        return InterruptedRun(f"the scheduler at {self.address} {what}. {self.advice.again} {then}")

    def _no_workers(self) -> ClusterError:
        if paused := self._paused():
            return ClusterError(
                f"no worker took a task for {self.timeout:g} s during {self.label!r}: {len(paused)} of the cluster at "
                f"{self.address} are paused, since each holds almost its memory_limit before it begins; "
                f"{self.advice.memory}"
            )
        return ClusterError(
            f"no worker for {self.timeout:g} s during {self.label!r}: the cluster at {self.address} has "
            f"none. {self.advice.workers()}"
        )


def calls_of_task(left: int, workers: int, seconds: float | None) -> int:
    """Return how many of the calls that are ``left``, of so many seconds each (None: not known yet), are one task.

    >>> [calls_of_task(4096, workers, 0.5) for workers in (2, 512, 1024)], calls_of_task(4096, 2, 0.03)
    ([1, 3, 2], 4)
    """
    if seconds is None:
        return 1
    wanted = -(-max(workers * HANDED_OUT, LEAST) // max(seconds, HANDED_OUT / SEVERAL))
    return int(max(1, min(SEVERAL, wanted, left // (ROUNDS * workers))))


class ClientExecutor:
    """Tasks on a distributed client. Few are in flight at a time; those whose worker died are run again.

    ``timeout``: seconds without any worker after which it ends with :class:`ClusterError`. ``advice``: what errors say
    is to be done. ``monitor``: who looks after the workers meanwhile. ``pool``: threads of this process that may
    take tasks while the workers idle, where those are all on this machine.
    """

    in_this_process = False
    ahead = 0.0
    """Seconds of work for each worker that are in flight at the least."""

    def __init__(
        self,
        client: Any,
        timeout: float,
        advice: Advice | None = None,
        monitor: WorkerMonitor | None = None,
        pool: Executor | None = None,
    ) -> None:
        self.client, self.timeout, self.advice, self._pool = client, timeout, advice or Advice(), pool
        self.monitor = monitor or WorkerMonitor(client)
        self.seconds: dict[str, float] = {}
        """Seconds of a call, by label."""
        self.threads = 1
        """How many tasks ran at a time, in the last map."""

    @property
    def pool(self) -> Executor | None:
        """The threads of this process that may take tasks while the workers idle; None for none."""
        return self._pool

    def run(
        self, calls: Calls, label: str, progress: Progress | None = None, keep: KeepResult | None = None,
        kind: Callable[..., TaskMap] = TaskMap,
    ) -> list[Any]:  # fmt: skip
        """Return the results of the calls, in their order; ``kind``: of map that hands them out."""
        given = self.client, calls, label, self.timeout, progress or no_progress
        tasks = kind(*given, self.advice, self.monitor, self.seconds, keep, self.ahead)
        results = tasks.run()
        self.threads = tasks.workers
        return results

    def free_memory(self) -> None:
        """Let the workers give back memory that they do not use."""
        self.on_workers(trim_heap)

    def on_workers(self, function: Callable[..., Any], *arguments: Any) -> None:
        """Call a function in every worker process that answers."""
        self.monitor.awaited(lambda: self.client.run(function, *arguments, on_error="ignore", asynchronous=True))

    def running(self) -> dict[str, int]:
        """Return the workers that take tasks, and how many threads each has."""
        asked = self.client.scheduler.ncores_running
        return dict(self.client.sync(asked, workers=None, callback_timeout=max(self.timeout, ANSWER)))

    def memory_of_workers(self) -> int | None:
        """Return the bytes that each worker may hold, at the least; None where nobody says."""
        known = self.client.sync(self.client.scheduler.identity, n_workers=-1)["workers"]
        return min((about["memory_limit"] for about in known.values()), default=0) or None
