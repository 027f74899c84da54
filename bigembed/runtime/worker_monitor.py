"""What a worker does when it starts; and workers that give no sign of life: stopped, stuck, on a node that is gone.

A worker that died is noticed by its scheduler, because its connection closes. One that is frozen keeps its connection,
its tasks and its results, and everybody would wait for it. Signs of life are its heartbeats, and processor time that
its process uses: one that computes for minutes without letting its own threads run sends no heartbeat, and is alive.
"""

from __future__ import annotations

import asyncio
import ctypes
import logging
import os
import queue
import signal
import sys
import threading
import time
from collections.abc import Callable, Coroutine
from concurrent.futures import TimeoutError as Late
from dataclasses import asdict, dataclass
from functools import cache
from typing import Any
from weakref import WeakKeyDictionary, ref

from bigembed.runtime import Event, Observer, moment, silent
from bigembed.runtime.outages import Outage, stores

# ------------------------------------------------------------------------------------------------------------- start
# What a worker of a job does when it starts.

PR_SET_PDEATHSIG = 1
ERRORS = "BIGEMBED_WORKER_ERRORS"
"""Variable of the environment: the file that takes what a worker prints on standard error."""


def dask_setup(worker: Any) -> None:
    """Leave the keyboard to the coordinating process, which stops the workers in good order, and do not outlive it.

    What a worker prints as it dies (a traceback of the interpreter, say) does not go to the user of the job.
    """
    if threading.current_thread() is threading.main_thread():
        signal.signal(signal.SIGINT, signal.SIG_IGN)
    if worker.nanny and sys.platform == "linux":  # (a worker that is stopped would not see that its nanny is gone)
        ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
    if file := os.environ.get(ERRORS):
        os.dup2(os.open(file, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600), 2)


FROZEN = 120.0
"""Seconds without a sign of life after which a worker is given up, where nobody says otherwise."""
OUTAGES = "bigembed-outages"
"""Topic under which workers log outages of object stores."""
LOOK = 5.0
"""Seconds between two looks at the workers."""
REPORT_AFTER = 4
"""A silence is reported after this part of the time after which a worker is given up."""
UNHEARD = 2
"""Looks without a sign of life after which a worker that is dropped has not ended in good order."""
ANSWER = 10.0
"""Seconds that a scheduler has to answer here; one that does not is noticed elsewhere."""
RESTART = 60.0
"""Seconds that a nanny has to kill its worker."""
TICK = 1.0
_listening: WeakKeyDictionary[Any, list[ref[WorkerMonitor]]] = WeakKeyDictionary()
"""The monitors of each client."""


@dataclass
class WorkerState:
    """What is known of a worker: its last heartbeat, and for how long it has been silent since."""

    heartbeat: float
    """The scheduler's time of it."""
    silence: float = 0.0
    """Seconds watched since then without another."""
    cpu_seconds: float | None = None
    """Processor time that its process had used."""
    reported: str = ""
    """Since when it is silent, as it was reported."""


class WorkerMonitor:
    """Looks at the workers of a client now and then; a frozen one is reported, and given up after ``timeout`` seconds.

    Its nanny kills it and starts another; one without a nanny is dropped by the scheduler. Its tasks go to others.
    Silence is counted by the looks, so that a job that was itself suspended accuses nobody.
    """

    def __init__(self, client: Any, timeout: float = FROZEN, observer: Observer = silent) -> None:
        self.client, self.timeout, self.observer = client, timeout, observer
        self.interval = min(LOOK, timeout / (2 * REPORT_AFTER))
        self.workers: dict[str, WorkerState] = {}
        self.looked = time.monotonic()
        self.outages: queue.SimpleQueue[dict[str, Any]] = queue.SimpleQueue()
        _listen(client, self)

    def look(self) -> None:
        """Look, if the last look is long enough ago; of outages of stores the workers tell by themselves."""
        while not self.outages.empty():
            outage = Outage(**self.outages.get())
            if self.observer is silent:
                logging.getLogger(__name__).warning("%s", outage)
            self.observer(outage.event())
        passed = time.monotonic() - self.looked
        if passed < self.interval or self.client.status != "running":
            return
        self.looked = time.monotonic()
        try:
            seen = self._heartbeats()
        except OSError:  # (a timeout is one; who waits for tasks notices a scheduler that is gone)
            return
        for gone in self.workers.keys() - seen.keys():
            self._note_gone(gone, self.workers.pop(gone))
        counted = passed if passed < self.interval + 2 * TICK else self.interval
        for worker, heartbeat in seen.items():
            self._judge(worker, heartbeat, counted)

    def awaited(self, work: Callable[[], Coroutine[Any, Any, Any]], meanwhile: Callable[[], None] | None = None) -> Any:
        """Return the result of what asks workers, who may be frozen and never answer: looked at meanwhile.

        ``meanwhile``: called while nothing comes, instead of a look; what it raises ends the wait.
        """
        future = asyncio.run_coroutine_threadsafe(work(), self.client.loop.asyncio_loop)
        try:
            while True:
                try:
                    return future.result(timeout=TICK)
                except Late:
                    if future.done():
                        raise
                (meanwhile or self.look)()
        except BaseException:
            future.cancel()
            raise

    def _judge(self, worker: str, heartbeat: float, passed: float) -> None:
        state = self.workers.setdefault(worker, WorkerState(heartbeat))
        if heartbeat != state.heartbeat:
            self._alive(worker, state)
            self.workers[worker] = WorkerState(heartbeat)
            return
        state.silence += passed
        if state.silence < self.timeout / REPORT_AFTER / 2:
            return
        used = self._used(worker)
        if used is not None and used != state.cpu_seconds:
            self._alive(worker, state)
            state.cpu_seconds, state.silence, state.reported = used, self.timeout / REPORT_AFTER / 2, ""
        elif state.silence >= self.timeout:
            self._give_up(worker, state)
        elif state.silence >= self.timeout / REPORT_AFTER and not state.reported:
            state.reported = moment(time.time() - state.silence)
            message = f"no sign of life since {state.reported} (neither heartbeat nor processor time)"
            until = f"it is given up after {self.timeout:g} s"
            self._report(worker, "silent", state, f"worker {worker}: {message}; {until}")

    def _note_gone(self, worker: str, state: WorkerState) -> None:
        """Report a worker that its scheduler has dropped, unless it ended in good order, or is given up already."""
        if state.silence < 0 or (not state.reported and state.silence < UNHEARD * self.interval):
            return
        message = f"worker {worker} is gone"
        if not state.reported:  # (the connection broke first: after 30 s, by Dask's own timeout)
            state.reported = moment(time.time() - state.silence)
            message += f": no sign of life since {state.reported}; its tasks go to others"
        self._report(worker, "gone", state, message)

    def _alive(self, worker: str, state: WorkerState) -> None:
        if state.reported:
            self._report(worker, "back", state, f"worker {worker} is back")

    def _give_up(self, worker: str, state: WorkerState) -> None:
        state.reported = state.reported or moment(time.time() - state.silence)
        message = f"worker {worker} gave no sign of life for {self.timeout:g} s, since {state.reported}: given up; "
        self._report(worker, "given up", state, message + "its tasks go to others")
        state.silence = -RESTART  # (asked again if that does not help)
        asked = {"workers": [worker], "timeout": RESTART, "wait_for_workers": False, "on_error": "return"}
        self._ask(self.client.scheduler.restart_workers, **asked, stimulus_id=f"frozen-{time.time()}")

    def _heartbeats(self) -> dict[str, float]:
        known = self.client.sync(self.client.scheduler.identity, n_workers=-1, callback_timeout=ANSWER)
        return {worker: float(about["last_seen"]) for worker, about in known["workers"].items()}

    def _used(self, worker: str) -> float | None:
        """Processor time of a worker, as its nanny sees it; None without a nanny or an answer."""
        asked = {"workers": [worker], "nanny": True, "on_error": "ignore", "callback_timeout": ANSWER}
        try:
            found = self.client.run(processor_time, **asked).get(worker)
        except Exception:  # (what a nanny of any version may say)
            return None
        return found if isinstance(found, float) else None

    def _ask(self, what: Callable[..., Coroutine[Any, Any, Any]], **named: Any) -> None:
        """Ask the scheduler without waiting for its answer."""
        asyncio.run_coroutine_threadsafe(what(**named), self.client.loop.asyncio_loop)

    def _report(self, worker: str, what: str, state: WorkerState, message: str) -> None:
        results = {"worker": worker, "state": what, "since": state.reported}
        self.observer(Event("worker", "", results=results, message=message))


def _listen(client: Any, monitor: WorkerMonitor) -> None:
    """Let a monitor hear of outages. A client has one handler a topic, so that all its monitors share it."""
    monitors = _listening.setdefault(client, [])
    monitors[:] = [known for known in monitors if known() is not None] + [ref(monitor)]

    def hear(event: Any) -> None:
        for known in tuple(monitors):
            if (one := known()) is not None:
                one.outages.put(event[1]["outage"])

    client.subscribe_topic(OUTAGES, hear)


def processor_time(dask_worker: Any = None) -> float | None:
    """In a nanny: the seconds of processor time that its worker has used."""
    import psutil

    if dask_worker is None or dask_worker.pid is None:
        return None
    times = psutil.Process(dask_worker.pid).cpu_times()
    return float(times.user + times.system)


@cache
def tell_of_outages() -> None:
    """In a worker: log outages of object stores, for the client of the job, from now on."""
    from distributed import get_worker

    worker = get_worker()
    if worker.address.startswith("inproc:"):  # (its client is in this process, and hears of them)
        return

    def tell(outage: Outage) -> None:
        logging.getLogger(__name__).warning("%s", outage)
        worker.log_event(OUTAGES, {"outage": asdict(outage)})  # (to which it adds itself)

    stores.listeners.append(tell)
