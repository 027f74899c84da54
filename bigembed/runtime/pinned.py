"""Tasks on workers that hold what these need: each call of a map goes to the worker that has its block."""

from __future__ import annotations

import operator
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from functools import partial
from itertools import groupby, pairwise
from typing import Any

from bigembed.errors import ClusterError
from bigembed.runtime.client_executor import ClientExecutor, TaskMap
from bigembed.runtime.runtime import Calls, KeepResult, Progress

TOGETHER = 1.0
"""Seconds that the calls of a task take together, about, where a worker has more of them than threads."""


class LostVectorsError(ClusterError):
    """A worker is gone with what it held. Who works on it goes on from what is in files."""


@dataclass
class PinnedMap(TaskMap):
    """The calls of a map, each on the worker that holds what it needs."""

    workers_held: Sequence[str] = ()
    """Addresses of the workers."""
    threads_held: Sequence[int] = ()
    """Threads of each."""
    home: Sequence[int] = ()
    """The number of the worker of each call, ascending."""
    missing: float | None = None
    """Since when one of them takes no tasks, on this process's clock."""

    def _hand_out(self) -> None:
        """Hand out everything: nobody but its worker can take a task."""
        if not self.begun:
            self.begun = len(self.calls)
            self._submit([task for worker in self._calls_of_workers() for task in self._cut(worker)])

    def _calls_of_workers(self) -> list[range]:
        parts = [list(part) for _, part in groupby(range(len(self.calls)), key=lambda call: self.home[call])]
        return [range(part[0], part[-1] + 1) for part in parts]

    def _cut(self, calls: range) -> list[range]:
        """Cut the calls of a worker into tasks: one a thread, or more where they take longer."""
        seconds = len(calls) * self.seconds.get(self.label, 0.0)
        count = min(len(calls), max(self.threads_held[self.home[calls.start]], round(seconds / TOGETHER)))
        edges = [calls.start + len(calls) * place // count for place in range(count + 1)]
        return [range(start, stop) for start, stop in pairwise(edges)]

    def _placed(self, keys: Mapping[str, range]) -> AbstractContextManager[Any]:
        """Let each task run on its worker alone. (The scheduler calls what says where; it needs nothing of ours.)"""
        import dask

        places = {key: self.workers_held[self.home[task.start]] for key, task in keys.items()}
        return dask.annotate(workers=partial(operator.getitem, places), allow_other_workers=False)

    def _watch(self) -> None:
        super()._watch()
        running = self._ask(self.client.scheduler.ncores_running, workers=None)
        if all(worker in running for worker in self.workers_held):
            self.missing = None
            return
        known = self._ask(self.client.scheduler.ncores, workers=None)  # (of those that are paused, too)
        self.missing = self.missing or time.monotonic()
        gone = [worker for worker in self.workers_held if worker not in known]
        if gone or time.monotonic() - self.missing > self.timeout:
            raise LostVectorsError(f"of {len(self.workers_held)} workers that hold vectors {len(gone)} are gone")

    def _raise_of_cluster(self, error: BaseException, name: str) -> None:
        if type(error).__name__ in ("KilledWorker", "NoValidWorkerError", "NoWorkerError"):
            raise LostVectorsError(f"a worker died with {name} and what it held") from error


@dataclass
class PinnedExecutor:
    """The tasks of an executor on those of its workers that hold vectors; call i of a map has those of block i."""

    executor: ClientExecutor
    workers: tuple[str, ...]
    """Addresses."""
    worker_threads: tuple[int, ...]
    home: tuple[int, ...]
    """The number of the worker of each block, ascending."""
    in_this_process: bool = field(default=False, init=False)
    pool: None = field(default=None, init=False)

    @property
    def threads(self) -> int:
        """How many tasks run at a time."""
        return sum(self.worker_threads)

    def run(
        self, calls: Calls, label: str, progress: Progress | None = None, keep: KeepResult | None = None
    ) -> list[Any]:
        """Return the results of the calls, in their order: as many as there are blocks."""
        kind = partial(PinnedMap, workers_held=self.workers, threads_held=self.worker_threads, home=self.home)
        return self.executor.run(calls, label, progress, keep, kind)

    def free_memory(self) -> None:
        """Let the workers give back memory that they do not use."""
        self.executor.free_memory()

    def on_workers(self, function: Callable[..., Any], *arguments: Any) -> None:
        """Call a function in every worker process that answers, if the cluster is there."""
        if self.executor.client.status == "running":
            self.executor.on_workers(function, *arguments)


def pinned(executor: ClientExecutor, rows: Sequence[int]) -> PinnedExecutor:
    """Return an executor whose workers hold blocks of so many ``rows``: neighboring blocks lie together, and each
    worker has as many rows as it has of the threads."""
    threads = dict(sorted(executor.running().items()))
    total, count = sum(rows), sum(threads.values())
    home, passed, worker, room = [], 0.0, 0, 0
    shares = list(threads.values())
    for size in rows:
        while worker < len(shares) - 1 and passed + size / 2 > total * (room + shares[worker]) / count:
            room += shares[worker]
            worker += 1
        home.append(worker)
        passed += size
    used = sorted(set(home))
    numbers = {worker: number for number, worker in enumerate(used)}
    addresses = list(threads)
    return PinnedExecutor(
        executor, tuple(addresses[w] for w in used), tuple(shares[w] for w in used), tuple(numbers[w] for w in home)
    )
