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

UNWATCHED = {"distributed.worker.profile.enabled": False, "distributed.admin.tick.interval": "500ms"}
"""A hundred looks a second at the stack of each worker, and fifty at the clock of each process, for a dashboard that
nobody opens: with them two workers and their scheduler take a tenth of a core while they are idle, else a thirtieth."""


def settings(table: ClusterTable) -> dict[str, Any]:
    """Dask's settings for a job: no silent waiting, no spilling, one thread of everything in a worker."""
    return {
        **UNWATCHED,
        "distributed.scheduler.no-workers-timeout": f"{table.patience}s",
        "distributed.scheduler.worker-ttl": None,  # (the monitor gives workers up; it knows one that is busy)
        "distributed.scheduler.allowed-failures": DEATHS,
        "distributed.worker.memory.target": False,
        "distributed.worker.memory.spill": False,
        "distributed.worker.memory.pause": False,
        "distributed.worker.memory.terminate": TERMINATE,
        "distributed.comm.timeouts.connect": "30s",
        "distributed.nanny.pre-spawn-environ.NUMBA_NUM_THREADS": 1,
        # Freed arrays stay with the process: returned, they would be faulted in again, page by page, by every task.
        "distributed.nanny.pre-spawn-environ.MALLOC_TRIM_THRESHOLD_": TRIMMED,
        "distributed.nanny.pre-spawn-environ.MALLOC_MMAP_THRESHOLD_": MMAPPED,
        "distributed.nanny.pre-spawn-environ.MALLOC_ARENA_MAX": 1,
        "distributed.worker.preload": ["bigembed.jobs.places.preload"],
    }
