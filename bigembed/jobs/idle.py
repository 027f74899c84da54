"""What the processes of a job hold before any data: ``python -m bigembed.jobs.idle``, a separate process."""

from __future__ import annotations

import json
import time
from multiprocessing import resource_tracker
from typing import Any

from bigembed.jobs.planning import load_algebra, load_arrays, resident

COMPILED = 48 << 20
"""What a method's compiled functions add to the first one (diffusion map, compiled anew: 25 to 50 MiB)."""

SOLVER = 48 << 20
"""What those of a solve add, where all of them are compiled anew in one process."""

TASKS = 20


def _measure() -> dict[str, float]:
    import asyncio

    resource_tracker.ensure_running()
    load_algebra()
    task = asyncio.run(_start())
    started = resident()
    import numpy as np
    from numba import njit

    np.sort(np.asarray(njit(_compiled)(np.ones((4, 4)), np.zeros(4, np.int64))))
    worker = resident()
    _load_job()
    lazy = resident()
    import matplotlib.backends.backend_agg
    import matplotlib.figure

    canvas: Any = matplotlib.backends.backend_agg.FigureCanvasAgg(matplotlib.figure.Figure())
    canvas.draw()
    helper: Any = resource_tracker._resource_tracker
    return {
        "worker": worker + COMPILED,
        "coordinator": started + lazy - worker,
        "single": lazy + COMPILED + SOLVER,
        "picture": resident() - lazy,
        "helper": resident(helper._pid),
        "compiler": worker - started + COMPILED,
        "task": task,
    }


async def _start() -> float:
    """Start a scheduler, a worker and a client, and run a few tasks; return the seconds of the quickest."""
    import dask
    from distributed import Client, Scheduler, Worker

    from bigembed.jobs.places.cluster import no_security
    from bigembed.store.files import temporary

    mine: dict[str, Any] = {"security": no_security()}
    here: dict[str, Any] = {"host": "127.0.0.1", "dashboard": False, "dashboard_address": "127.0.0.1:0", **mine}
    settings = {"distributed.worker.memory.spill": False, "distributed.worker.memory.target": False}
    with temporary("idle") as scratch, dask.config.set({**settings, "temporary-directory": str(scratch)}):
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


def _load_job() -> None:
    """Load what only the coordinating process uses: the job itself, and what results are handed out as."""
    import bigembed.jobs.run
    import bigembed.jobs.watching.console  # noqa: F401

    load_arrays()


if __name__ == "__main__":
    import logging

    logging.disable(logging.WARNING)
    print(json.dumps(_measure()))
