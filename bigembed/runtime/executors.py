"""Where tasks run: on threads of this process, or on whatever scheduler or client Dask has been given."""

from __future__ import annotations

import operator
import os
import re
import sys
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor, wait
from contextlib import ExitStack, contextmanager
from functools import cache, cached_property, partial
from itertools import count
from queue import SimpleQueue
from threading import Lock, local
from typing import Any, Self
from weakref import ref

from bigembed import runtime
from bigembed.errors import ClusterError, InputError
from bigembed.runtime.client_executor import AHEAD, ATTEMPTS, QUEUED, RUNNING, Advice, ClientExecutor, TaskMap
from bigembed.runtime.worker_monitor import FROZEN, WorkerMonitor


def executor_now() -> runtime.Executor:
    """Return the executor of this context: the one of the run, or before a run begins that of Dask."""
    return runtime.runtime_now().executor or _executor_of_dask()


@contextmanager
def chosen_executor() -> Iterator[runtime.Executor]:
    """Choose the executor of this context, if a run around it has not done so."""
    if (executor := runtime.runtime_now().executor) is not None:
        yield executor
        return
    with _executor_of_dask(lends_threads=True) as chosen, runtime.using(executor=chosen):
        yield chosen


def _executor_of_dask(lends_threads: bool = False) -> CurrentClient | DaskScheduler:
    """Return what has the tasks where nothing was chosen: the current client of Dask, else its scheduler."""
    client = client_of_dask() if "distributed" in sys.modules else None
    return DaskScheduler(lends_threads) if client is None else CurrentClient(client)


def run_on_idle_threads(calls: runtime.Calls) -> list[Any]:
    """Return the results of the calls, in their order, from the thread of this task and from those that are idle."""
    pool = _idle_pool() if len(calls) > 1 else None
    if pool is None:
        return [call() for call in calls]
    return runtime.run_with_helpers(calls, lambda timed: pool.run(timed, ""))


def idle_threads() -> int:
    """Return how many threads :func:`run_on_idle_threads` has at the most."""
    return getattr(_idle_pool(), "count", 1)


def _idle_pool() -> runtime.Executor | None:
    executor = runtime.runtime_now().executor
    if executor is None:
        return None
    elsewhere = executor.pool is None and not executor.in_this_process
    return _own_threads() if elsewhere else executor.pool


@cache
def _own_threads() -> LocalPool | None:
    """Return threads for what a process does itself while workers elsewhere, which have the tasks, wait for it."""
    from dask.system import CPU_COUNT

    return LocalPool(CPU_COUNT) if CPU_COUNT > 1 else None


# ---------------------------------------------------------------------------------------------------------- threads
# Blocks differ in size, and may be fewer than threads: what a task does with its rows is cut into stripes, always the
# same (:func:`bigembed.runtime.blocks.stripes`). The thread of the task takes one after the other, and a thread without
# a task helps, so that the bytes depend on neither.


class LocalPool:
    """Threads of this process that run tasks, and the stripes of tasks where other threads are idle.

    A thread of the pool that hands over calls takes those of them that no other has begun; any other thread waits. So
    nobody waits for what is not at work, whatever calls hand over in turn. Threads start when they are needed, and end
    when the pool is closed; a pool of one is the thread that calls. It may have threads for the stripes of its tasks
    only: what tasks hold is then in memory once.
    """

    in_this_process = True

    def __init__(self, count: int = 1, for_stripes: int = 0) -> None:
        self.count = count
        self._for_stripes = LocalPool(for_stripes) if for_stripes > 1 else None
        self._threads = ThreadPoolExecutor(count, "bigembed-pool")
        self._here = local()

    @property
    def threads(self) -> int:
        """How many there are."""
        return self.count

    @property
    def pool(self) -> LocalPool:
        """The threads that take stripes: itself, unless it has others for them."""
        return self._for_stripes or self

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    def close(self) -> None:
        """End the threads."""
        self._threads.shutdown()
        if self._for_stripes is not None:
            self._for_stripes.close()

    def free_memory(self) -> None:
        """Do nothing: no other process has tasks."""

    def run(
        self,
        calls: runtime.Calls,
        label: str,
        progress: runtime.Progress | None = None,
        keep: runtime.KeepResult | None = None,
    ) -> list[Any]:
        """Return the results of the calls, in their order. ``progress`` hears of them in this thread.

        After an error, of ``progress`` too, no call is begun; those at work are awaited.
        """
        report, batch = progress or runtime.no_progress, _Batch(calls, keep)
        takes_part = self.count == 1 or len(calls) == 1 or hasattr(self._here, "in_pool")
        others = min(self.count, len(calls)) - takes_part
        helpers = [self._threads.submit(self._help, ref(batch)) for _ in range(others)]
        try:
            report(label, 0, len(calls))
            for done in range(1, len(calls) + 1):
                if takes_part:
                    batch.take()
                batch.ended.get()
                if batch.failed:
                    break
                report(label, done, len(calls))
        finally:
            batch.left.clear()
            wait([helper for helper in helpers if not helper.cancel()])
        if batch.failed:
            raise batch.failed[0]
        return batch.results

    def _help(self, given: ref[_Batch]) -> None:
        """Take calls of a batch, if it is still there: what waits for a thread must not keep its arrays in memory."""
        self._here.in_pool = True
        with runtime.using(executor=self):
            while (batch := given()) is not None and batch.take():
                pass


class _Batch:
    """Calls of one :meth:`LocalPool.run`: those that no thread has taken, and what the others gave."""

    def __init__(self, calls: runtime.Calls, keep: runtime.KeepResult | None) -> None:
        self.calls, self.keep = calls, keep
        self.left = deque(range(len(calls)))
        self.results: list[Any] = [None] * len(calls)
        self.failed: list[BaseException] = []
        self.ended: SimpleQueue[int] = SimpleQueue()

    def take(self) -> bool:
        """Make the next call; False where there is none."""
        try:
            number = self.left.popleft()
        except IndexError:
            return False
        try:
            self.results[number] = self.calls[number]()
            if self.keep is not None:
                self.keep(number, self.results[number])
        except BaseException as error:
            self.left.clear()
            self.failed.append(interrupted(error))
        self.ended.put(number)
        return True


def interrupted(error: BaseException) -> BaseException:
    """What a signal raised in a call of compiled code, which then says SystemError; any other error as it is."""
    while isinstance(error, SystemError) and error.__cause__ is not None:
        error = error.__cause__
    return error


def compute_together(values: Sequence[Any], label: str) -> list[Any]:
    """Return what lazy values are, computed as one graph, so that what several of them need is computed once."""
    executor = executor_now()
    if isinstance(executor, CurrentClient):
        return executor.compute(values, label)
    import dask

    return list(dask.compute(*values))


# ------------------------------------------------------------------------------------------------------------- Dask


class DaskScheduler:
    """The scheduler that Dask has when a run begins, which is asked once, and loaded only when it matters.

    ``lends_threads``: where Dask would take threads of this process, a pool of as many takes the tasks, so that those
    that are idle take stripes of the others'. Of a fit of 100 000 rows that saves 2 to 5 % on two cores, by the
    processor time of its parts 12 to 23 % on four and a quarter or more on eight.
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

    @property
    def threads(self) -> int:
        """How many tasks run at a time, as Dask is set. Asks it only if it is loaded already."""
        return 1 if "dask" not in sys.modules else self._threads if self.in_this_process else self._processes

    @cached_property
    def pool(self) -> LocalPool | None:
        """As many threads as Dask would take of this process; None for one, and for other processes."""
        return LocalPool(self._threads) if self.in_this_process and self._threads > 1 else None

    def run(
        self,
        calls: runtime.Calls,
        label: str,
        progress: runtime.Progress | None = None,
        keep: runtime.KeepResult | None = None,
    ) -> list[Any]:
        """Return the results of the calls, in their order. ``progress`` hears of tasks of this process."""
        local = self.in_this_process
        if local and (progress is not None or keep is not None):
            calls = _reported(calls, label, progress or runtime.no_progress, keep)
        if local and len(calls) <= 1:
            return list(map(operator.call, calls))
        if local and self.lends_threads and self.pool is not None:
            return self.pool.run(calls, label)
        import dask.threaded

        graph = {f"{label}-{number}-{os.urandom(8).hex()}": (call,) for number, call in enumerate(calls)}
        results = list((self._get or dask.threaded.get)(graph, list(graph)))
        if keep is not None and not local:
            for number, result in enumerate(results):
                keep(number, result)
        return results

    def free_memory(self) -> None:
        """Do nothing: the workers are the user's."""

    @cached_property
    def _get(self) -> Any:
        """What executes a graph; None for the threads that Dask takes where nothing was chosen."""
        return scheduler_of_dask()

    @cached_property
    def _elsewhere(self) -> bool:
        """Whether tasks may run in other processes."""
        import dask

        return dask.config.get("scheduler", None) in ("processes", "multiprocessing")

    @cached_property
    def _threads(self) -> int:
        """Threads of this process that Dask would run tasks in."""
        import dask.threaded

        if self._elsewhere or self._get not in (None, dask.threaded.get):
            return 1
        return self._processes

    @property
    def _processes(self) -> int:
        """Processes that it would run tasks in."""
        import dask
        from dask.system import CPU_COUNT

        return int(dask.config.get("num_workers", None) or CPU_COUNT)


# ----------------------------------------------------------------------------------------------------- Dask's client

SETTINGS = "bigembed.no-workers-timeout", "bigembed.frozen-timeout"
"""Of Dask's configuration: how long a fit waits for a worker, and for a sign of life of one."""
ASYNCHRONOUS = (
    "the current Dask client is asynchronous here (Client(asynchronous=True), or a call in its event loop), and this "
    "waits for results. Call it in a thread (await asyncio.to_thread(estimator.fit, X)), or make a client without "
    "asynchronous=True in a program of its own"
)


def scheduler_of_dask() -> Any:
    """Return what executes a graph; None for the threads that Dask takes where nothing was chosen."""
    import dask

    if "distributed" not in sys.modules and dask.config.get("scheduler", None) is None:
        return None
    import dask.base

    try:
        return dask.base.get_scheduler()
    except RuntimeError as error:
        if "asynchronous" not in str(error):
            raise
        raise ClusterError(ASYNCHRONOUS) from error


def client_of_dask() -> Any:
    """Return the client that would execute a graph; None where something else would."""
    owner = getattr(scheduler_of_dask(), "__self__", None)
    return owner if "Client" in type(owner).__name__ else None


KEPT = "finished stages are kept in workdir, if one is given"
ADVICE = Advice(
    lambda: (
        f'Start workers, or wait longer for them (dask.config.set({{"{SETTINGS[0]}": "10m"}})), and call it again; '
        + KEPT
    ),
    f"give each worker more (memory_limit) or fewer threads, and call it again; {KEPT}",
    f"{KEPT.capitalize()}: call it again when it",
)


def _seconds_set(name: str, default: float) -> float:
    """Return the seconds that a setting of Dask's says."""
    import dask
    from dask.utils import parse_timedelta

    given = dask.config.get(name, None)
    try:
        seconds = default if given is None else float(parse_timedelta(given))
    except (KeyError, TypeError, ValueError):
        seconds = -1.0
    if not 0 < seconds < float("inf"):
        raise InputError(f"{name} of Dask's configuration: {given!r}; seconds above 0, or a text such as '10m'")
    return seconds


class CurrentClient(ClientExecutor):
    """Tasks on the client that Dask has when a fit from Python begins; the workers are the user's.

    A fit inside a task of that client gives its place among the tasks of its worker to those that it waits for.
    """

    ahead = AHEAD

    def __init__(self, client: Any) -> None:
        ready = type(getattr(client, "cluster", None)).__name__ in ("NoneType", "LocalCluster")
        defaults = RUNNING if ready else QUEUED, FROZEN
        patience, frozen = map(_seconds_set, SETTINGS, defaults)
        super().__init__(client, patience, ADVICE, WorkerMonitor(client, frozen, runtime.runtime_now().observer))
        self._left = ExitStack()
        """Ends the absence of this thread from the tasks of its worker."""
        self._entered = False

    def __enter__(self) -> Self:
        self._entered = True
        return self

    def __exit__(self, *error: object) -> None:
        if (pool := vars(self).get("pool")) is not None:
            pool.close()
        self._left.close()

    @cached_property
    def pool(self) -> LocalPool | None:
        """As many threads of this process as the workers have, where those are all on this machine."""
        near = all(re.match(r"inproc://|\w+://(127\.|localhost:|\[::1\])", address) for address in self.workers)
        count = sum(int(worker["nthreads"]) for worker in self.workers.values()) if near else 0
        return LocalPool(count) if count else None

    @cached_property
    def workers(self) -> dict[str, Any]:
        """What the scheduler knows of each worker that is there at first, by its address."""
        return dict(self.client.scheduler_info(n_workers=-1)["workers"])

    def run(
        self, calls: runtime.Calls, label: str, progress: runtime.Progress | None = None,
        keep: runtime.KeepResult | None = None, kind: Callable[..., TaskMap] = TaskMap,
    ) -> list[Any]:  # fmt: skip
        """Return the results of the calls, in their order; ``kind``: of map that hands them out."""
        self._leave_the_tasks()
        try:
            return super().run(calls, label, progress, keep, kind)
        finally:
            if not self._entered:
                self._left.close()

    def compute(self, values: Sequence[Any], label: str) -> list[Any]:
        """Return what lazy values are, computed as one graph; meanwhile somebody sees that workers are there."""
        self._leave_the_tasks()
        futures = self.client.compute(list(values), retries=ATTEMPTS - 1)
        try:
            watched = TaskMap(self.client, [], label, self.timeout, runtime.no_progress, self.advice, self.monitor)
            return watched.gather(futures)
        finally:
            if self.client.status == "running":
                self.client.cancel(futures, force=True)
            if not self._entered:
                self._left.close()

    def _leave_the_tasks(self) -> None:
        from distributed import rejoin, secede

        try:
            secede()
        except (ValueError, KeyError, AttributeError):  # (in no task, or done already, by worker_client too)
            return
        self._left.callback(rejoin)


def _reported(
    calls: runtime.Calls, label: str, progress: runtime.Progress, keep: runtime.KeepResult | None
) -> runtime.Calls:
    lock, done = Lock(), count(1)

    def reported(place: int, call: Callable[[], Any]) -> Any:
        result = call()
        if keep is not None:
            keep(place, result)
        with lock:
            progress(label, next(done), len(calls))
        return result

    return [partial(reported, place, call) for place, call in enumerate(calls)]
