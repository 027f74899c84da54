"""Where tasks run: on threads of this process, or on whatever scheduler or client Dask has been given."""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import cached_property, partial
from itertools import count
from threading import Condition, Lock, Thread
from typing import Any, Self

from bigembed.runtime.runtime import Executor, Progress, runtime_now, using

Calls = Sequence[Callable[[], Any]]


def executor_now() -> Executor:
    """Return the executor of this context: the one of the run, or before a run begins that of Dask."""
    return runtime_now().executor or DaskScheduler()


@contextmanager
def chosen_executor() -> Iterator[Executor]:
    """Choose the executor of this context, if a run around it has not done so."""
    if (executor := runtime_now().executor) is not None:
        yield executor
        return
    with DaskScheduler(lends_threads=True) as chosen, using(executor=chosen):
        yield chosen


def run_on_idle_threads(calls: Calls) -> list[Any]:
    """Return the results of the calls, in their order, from the thread of this task and from those that are idle."""
    executor = runtime_now().executor
    if len(calls) < 2 or executor is None or not executor.in_this_process or executor.pool is None:
        return [call() for call in calls]
    return executor.pool.run(calls, "")


# ---------------------------------------------------------------------------------------------------------- threads
# Blocks differ in size, and may be fewer than threads: what a task does with its rows is cut into stripes, always the
# same (:func:`bigembed.runtime.blocks.stripes`). The thread of the task takes one after the other, and a thread without
# a task helps, so that the bytes depend on neither.


class Batch:
    """Calls of one :meth:`LocalPool.run`: those left, how many are at work and done, what they gave."""

    def __init__(self, calls: Calls, number: int) -> None:
        self.calls, self.number = calls, number
        self.left = list(reversed(range(len(calls))))
        self.results: list[Any] = [None] * len(calls)
        self.working = self.done = 0
        self.error: BaseException | None = None

    @property
    def over(self) -> bool:
        """Whether no call of it is left or at work."""
        return not self.left and not self.working


class LocalPool:
    """Threads of this process that run tasks and the stripes of tasks: the one that calls, and helpers.

    Whoever is idle takes a call of the batch that was begun first: tasks before the stripes of other tasks. A thread
    that waits for others to be done with its batch takes of batches begun later: of their stripes. Helpers start when
    they are needed, and end when the pool is closed.
    """

    in_this_process = True

    def __init__(self, count: int = 1) -> None:
        self.count = count
        self._lock = Lock()
        self._changed = Condition(self._lock)
        self._open: list[Batch] = []
        self._begun, self._closed = 0, False
        self._helpers: list[Thread] = []

    @property
    def pool(self) -> Self:
        """Itself."""
        return self

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    def close(self) -> None:
        """End the helpers."""
        with self._lock:
            self._closed = True
            self._changed.notify_all()
        for helper in self._helpers:
            helper.join()

    def free_memory(self) -> None:
        """Do nothing: no other process has tasks."""

    def run(self, calls: Calls, label: str, progress: Progress | None = None) -> list[Any]:
        """Return the results of the calls, in their order. ``progress`` hears of them in this thread.

        After an error, of ``progress`` too, no call is begun; those at work are awaited.
        """
        reported = 0
        if progress is not None:
            progress(label, 0, len(calls))
        helpers = min(self.count, len(calls)) - 1
        with self._lock:
            self._begun += 1
            batch = Batch(calls, self._begun)
            self._open.append(batch)
            while len(self._helpers) < helpers:
                self._helpers.append(Thread(target=self._help, name="bigembed-pool", daemon=True))
                self._helpers[-1].start()
            self._changed.notify(len(calls) - 1)
        try:
            while self._take(batch):
                while progress is not None and reported < batch.done:
                    progress(label, reported := reported + 1, len(calls))
        finally:
            with self._lock:
                batch.left.clear()
                self._changed.wait_for(lambda: batch.over)
                self._open.remove(batch)
        if batch.error is not None:
            raise batch.error
        while progress is not None and reported < batch.done:
            progress(label, reported := reported + 1, len(calls))
        return batch.results

    def _help(self) -> None:
        with using(executor=self):
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


# ------------------------------------------------------------------------------------------------------------- Dask


class DaskScheduler:
    """The scheduler or client that Dask has when a run begins, which is asked once, and loaded only when it matters.

    ``lends_threads``: where Dask would take threads of this process, a pool of as many takes the tasks, for Dask takes
    2 ms for those of a map, as long as many of them take.
    """

    def __init__(self, lends_threads: bool = False) -> None:
        self.lends_threads = lends_threads

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        if (pool := vars(self).get("pool")) is not None:
            pool.close()

    @property
    def in_this_process(self) -> bool:
        """Whether no other process may have the tasks. Asks Dask only if it is loaded already."""
        return "dask" not in sys.modules or not self._elsewhere

    @cached_property
    def pool(self) -> LocalPool | None:
        """As many threads as Dask would take of this process, or as its workers have on this machine; None for one."""
        if self.in_this_process:
            return LocalPool(self._threads) if self._threads > 1 else None
        return LocalPool(self._threads_of_workers) if self._threads_of_workers else None

    def run(self, calls: Calls, label: str, progress: Progress | None = None) -> list[Any]:
        """Return the results of the calls, in their order. ``progress`` hears of tasks of this process."""
        local = self.in_this_process
        if local and progress is not None:
            calls = _reported(calls, label, progress)
        if local and len(calls) <= 1:
            return [call() for call in calls]
        if local and self.lends_threads and self.pool is not None:
            return self.pool.run(calls, label)
        import dask.threaded

        graph = {f"{label}-{number}-{os.urandom(8).hex()}": (call,) for number, call in enumerate(calls)}
        return list((self._get or dask.threaded.get)(graph, list(graph)))

    def free_memory(self) -> None:
        """Do nothing: the workers are the user's."""

    @cached_property
    def _get(self) -> Any:
        """What executes a graph; None for the threads that Dask takes where nothing was chosen."""
        import dask

        if "distributed" not in sys.modules and dask.config.get("scheduler", None) is None:
            return None
        import dask.base

        return dask.base.get_scheduler()

    @cached_property
    def _elsewhere(self) -> bool:
        """Whether tasks may run in other processes."""
        import dask

        return self._client is not None or dask.config.get("scheduler", None) in ("processes", "multiprocessing")

    @property
    def _client(self) -> Any:
        owner = getattr(self._get, "__self__", None) if "distributed" in sys.modules else None
        return owner if "Client" in type(owner).__name__ else None

    @cached_property
    def _threads(self) -> int:
        """Threads of this process that Dask would run tasks in."""
        import dask.threaded
        from dask.system import CPU_COUNT

        if self._elsewhere or self._get not in (None, dask.threaded.get):
            return 1
        return int(dask.config.get("num_workers", None) or CPU_COUNT)

    @cached_property
    def _threads_of_workers(self) -> int:
        """Threads of all workers of the client, where their addresses are within this machine; otherwise 0."""
        if self._client is None:
            return 0
        workers = self._client.scheduler_info(n_workers=-1)["workers"]
        near = all(re.match(r"inproc://|\w+://(127\.|localhost:|\[::1\])", address) for address in workers)
        return sum(int(worker["nthreads"]) for worker in workers.values()) if near else 0


def _reported(calls: Calls, label: str, progress: Progress) -> Calls:
    lock, done = Lock(), count(1)

    def reported(call: Callable[[], Any]) -> Any:
        result = call()
        with lock:
            progress(label, next(done), len(calls))
        return result

    return [partial(reported, call) for call in calls]
