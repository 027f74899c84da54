"""Resident memory: the footprint of an idle process, and the peak of all processes of a job."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
import time
from dataclasses import dataclass
from functools import cache
from typing import Any, Self

COMPILED = 48 << 20
"""What a method's compiled functions add to the first one (diffusion map, compiled anew: 25 to 50 MiB)."""
TASKS = 20


@dataclass(frozen=True)
class Footprint:
    """Resident bytes of the processes of a job before they hold any data."""

    worker: int
    """With NumPy, SciPy, Zarr, Dask, a running distributed worker and one compiled numba function."""
    coordinator: int
    """Client and scheduler in one process, and what hands out results."""
    single: int
    """All of it in one process."""
    picture: int
    """What Matplotlib adds to the coordinator."""
    helper: int
    """The process that Python starts beside workers (its resource tracker)."""
    compiler: int = 0
    """What numba and one compiled function add to the coordinator of a method that has compiled functions."""
    task: float = 0.0
    """Seconds from handing out a task to its result."""
    start: float = 0.0
    """Seconds that such a process takes to stand and to have done its first task."""


@cache
def footprint() -> Footprint:
    """Measured once in a process of its own, which imports and starts what a worker does."""
    environment = {**os.environ, "NUMBA_NUM_THREADS": "1"}
    began = time.perf_counter()
    done = subprocess.run(
        [sys.executable, "-m", "bigembed.jobs.measure"],
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
        env=environment,
    )
    if done.returncode:
        raise RuntimeError(f"the footprint of a worker could not be measured: {done.stderr[-2000:]}")
    return Footprint(**json.loads(done.stdout.splitlines()[-1]), start=time.perf_counter() - began)


def resident(pid: int | None = None) -> int:
    """Resident bytes of a process, now."""
    import psutil

    return int(psutil.Process(pid).memory_info().rss)


def imported_here(picture: bool) -> int:
    """Resident bytes of this process once it has loaded what a small job needs."""
    _store_and_algebra()
    _lazy_arrays()
    if picture:
        import matplotlib.backends.backend_agg
        import matplotlib.figure  # noqa: F401
    return resident()


def _store_and_algebra() -> None:
    """Load what every process of a job uses, by using it."""
    import numpy as np
    import scipy.linalg
    import scipy.sparse.csgraph
    import scipy.sparse.linalg  # noqa: F401

    from bigembed.store.arrays import read_array, write_array
    from bigembed.store.scratch import temporary

    with temporary("measure") as folder:
        write_array(f"{folder}/rows", np.ones((4, 4)))
        read_array(f"{folder}/rows")


def _lazy_arrays() -> None:
    """Load what only the coordinating process uses: the job itself, and what results are handed out as."""
    import dask.array as da
    from dask.local import get_sync

    import bigembed.jobs.console
    import bigembed.jobs.run  # noqa: F401

    da.ones(4, chunks=2).sum().compute(scheduler=get_sync)  # (by name, it would load distributed)


def _measure() -> dict[str, float]:
    import asyncio

    bare = resident()
    _store_and_algebra()
    task = asyncio.run(_start())
    started = resident()
    import numpy as np
    from numba import njit

    np.sort(np.asarray(njit(_compiled)(np.ones((4, 4)), np.zeros(4, np.int64))))
    worker = resident()
    _lazy_arrays()
    lazy = resident()
    import matplotlib.backends.backend_agg
    import matplotlib.figure

    canvas: Any = matplotlib.backends.backend_agg.FigureCanvasAgg(matplotlib.figure.Figure())
    canvas.draw()
    return {
        "worker": worker + COMPILED,
        "coordinator": started + lazy - worker,
        "single": lazy + COMPILED,
        "picture": resident() - lazy,
        "helper": bare,
        "compiler": worker - started,
        "task": task,
    }


async def _start() -> float:
    """A scheduler, a worker and a client, and a few tasks; seconds of the quickest."""
    import dask
    from distributed import Client, Scheduler, Worker

    from bigembed.jobs.security import no_security

    mine: dict[str, Any] = {"security": no_security()}
    here: dict[str, Any] = {"host": "127.0.0.1", "dashboard": False, "dashboard_address": "127.0.0.1:0", **mine}
    with dask.config.set({"distributed.worker.memory.spill": False, "distributed.worker.memory.target": False}):
        async with (
            Scheduler(port=0, **here) as scheduler,
            Worker(scheduler.address, nthreads=1, **here),
            Client(scheduler.address, asynchronous=True, **mine) as client,
        ):
            found = []
            for number in range(TASKS):
                began = time.perf_counter()
                await client.submit(int, number, pure=False)
                found.append(time.perf_counter() - began)
    return min(found)


def _compiled(rows: Any, order: Any) -> Any:
    total = 0.0
    for i in range(rows.shape[0]):
        for j in range(rows.shape[1]):
            total += rows[i, j] * order[i]
    return rows * total


class MemoryPeak:
    """Samples the resident memory of this process, those it started and ``others``, five times a second.

    ``total`` is the peak of their sum: client, scheduler, workers and all else.
    """

    interval = 0.2

    def __init__(self, others: dict[str, int] | None = None) -> None:
        self.others = others or {}
        self.total = self.coordinator = self.worker = 0
        self._lap = {"total": 0, "coordinator": 0, "worker": 0}
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._watch, name="memory", daemon=True)

    def __enter__(self) -> Self:
        import psutil  # noqa: F401  (not first in the thread)

        self._sample([])
        self._thread.start()
        return self

    def __exit__(self, *_: Any) -> None:
        self._stop.set()
        self._thread.join(timeout=5)
        self._sample(self._processes())

    def as_dict(self) -> dict[str, int]:
        """Peaks in bytes."""
        return {"total": self.total, "coordinator": self.coordinator, "worker": self.worker}

    def lap(self) -> dict[str, int]:
        """Peaks since the last lap, in bytes."""
        found, self._lap = self._lap, {"total": 0, "coordinator": 0, "worker": 0}
        return found

    def _watch(self) -> None:
        looked, processes = 0.0, []
        while not self._stop.wait(self.interval):
            if time.monotonic() - looked > 1.0:
                processes, looked = self._processes(), time.monotonic()
            self._sample(processes)

    def _processes(self) -> list[Any]:
        import psutil

        found = psutil.Process().children(recursive=True)
        for pid in self.others.values():
            try:
                other = psutil.Process(pid)
                found += [other, *other.children(recursive=True)]
            except psutil.Error:
                continue
        return list({process.pid: process for process in found}.values())

    def _sample(self, processes: list[Any]) -> None:
        import psutil

        sizes = [0]
        for process in processes:
            try:
                sizes.append(int(process.memory_info().rss))
            except psutil.Error:
                continue
        own = resident()
        now = {"total": own + sum(sizes), "coordinator": own, "worker": max(sizes)}
        for name, value in now.items():
            setattr(self, name, max(getattr(self, name), value))
            self._lap[name] = max(self._lap[name], value)


if __name__ == "__main__":
    import logging

    logging.disable(logging.WARNING)
    print(json.dumps(_measure()))
