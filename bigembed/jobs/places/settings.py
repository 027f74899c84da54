"""Settings of Dask for a job: no silent waiting, no spilling, one thread of everything in a worker."""

from __future__ import annotations

from typing import Any

from bigembed.jobs.places.cluster_table import ClusterTable

TERMINATE = 0.95
"""Share of its memory limit at which a worker is restarted. Nothing is spilled and no worker is paused:
tasks keep no results in memory, so nothing can be spilled, and a paused worker frees nothing by waiting."""

DEATHS = 5
"""Workers that may die under one task before it is given up."""

START_TIMEOUT = 60.0
TRIMMED, MMAPPED = 128 << 20, 32 << 20
"""Bytes at the end of the heap that are given back; of an array that lies outside of the heap."""

TICK = "500ms"
"""Between looks of a process at its clock, of which Dask takes fifty a second: half of what an idle scheduler does."""


def settings(table: ClusterTable) -> dict[str, Any]:
    """Dask's settings for a job: no silent waiting, no spilling, one thread of everything in a worker."""
    return {
        "distributed.scheduler.no-workers-timeout": f"{table.patience}s",
        "distributed.scheduler.worker-ttl": None,  # (the monitor gives workers up; it knows one that is busy)
        "distributed.scheduler.allowed-failures": DEATHS,
        "distributed.worker.memory.target": False,
        "distributed.worker.memory.spill": False,
        "distributed.worker.memory.pause": False,
        "distributed.worker.memory.terminate": TERMINATE,
        "distributed.comm.timeouts.connect": "30s",
        "distributed.admin.tick.interval": TICK,
        "distributed.nanny.pre-spawn-environ.NUMBA_NUM_THREADS": 1,
        # Freed arrays stay with the process: returned, they would be faulted in again, page by page, by every task.
        "distributed.nanny.pre-spawn-environ.MALLOC_TRIM_THRESHOLD_": TRIMMED,
        "distributed.nanny.pre-spawn-environ.MALLOC_MMAP_THRESHOLD_": MMAPPED,
        "distributed.nanny.pre-spawn-environ.MALLOC_ARENA_MAX": 1,
        "distributed.worker.preload": ["bigembed.jobs.places.preload"],
    }
