"""Where block tasks run: in this process, on an embedded local cluster, on a Dask cluster that runs already, by
Slurm.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

from bigembed.errors import ClusterError, JobError
from bigembed.jobs.places import embedded, slurm
from bigembed.jobs.places.place import (
    START_TIMEOUT,
    ClusterTable,
    Place,
    PlaceKind,
    address_problems,
    close_quietly,
    settings,
)
from bigembed.runtime.client_executor import ClientExecutor
from bigembed.runtime.executors import LocalPool
from bigembed.runtime.runtime import runtime_now
from bigembed.runtime.worker_monitor import WorkerMonitor

# ---------------------------------------------------------------------------------------------------------- remote
# A Dask cluster that runs already; its own limits hold.


def remote(table: ClusterTable, stack: ExitStack) -> Place:
    """Connect to a cluster that runs already; its own limits hold."""
    import dask
    from distributed import Client
    from distributed.utils import silence_logging_cmgr

    if problems := address_problems(table.address):
        raise JobError("; ".join(problems))
    stack.enter_context(dask.config.set(settings(table)))
    stack.enter_context(silence_logging_cmgr(logging.CRITICAL))  # (on streams: what it says is in the job's own log)
    security = embedded.client_security(table)
    timeout = min(table.patience, START_TIMEOUT)
    try:
        client = Client(table.address, security=security, timeout=timeout, set_as_default=True)
    except (OSError, TimeoutError, ValueError, TypeError, RuntimeError) as error:
        raise ClusterError(
            f"no scheduler answers at {table.address} ({error}). Start one (dask scheduler, dask worker), "
            "correct the address, or leave it out for an embedded cluster"
        ) from error
    stack.callback(close_quietly, client, 10)
    _await_workers(client, table.workers or 1, table.patience)
    count, limit = threads_of(client, table.memory)
    monitor = WorkerMonitor(client, table.frozen_timeout, runtime_now().observer)
    run = ClientExecutor(client, table.patience, monitor=monitor)
    pids = _local_pids(client, monitor)
    return Place(REMOTE.name, run, count, limit, client, pids, monitor)


def _names_running(table: ClusterTable) -> bool:
    return table.address is not None


REMOTE = PlaceKind(
    "remote",
    "{workers} workers of a running cluster",
    remote,
    _names_running,
    planned=False,
    more="Start workers with --memory-limit {mib}MiB or more",
)


def threads_of(client: Any, memory: int | None = None) -> tuple[int, int | None]:
    """Return the threads of all workers of a client, and the memory of one; ``memory``: of a worker, if it has none."""
    workers = client.scheduler_info(n_workers=-1)["workers"].values()
    limits = [int(worker["memory_limit"]) for worker in workers if worker.get("memory_limit")]
    limit = min([*limits, *([memory] if memory else [])], default=None)
    threads = [int(worker["nthreads"]) for worker in workers]
    return sum(threads), limit // max(threads) if limit else None


def _await_workers(client: Any, count: int, timeout: float) -> None:
    try:
        client.wait_for_workers(count, timeout=timeout)
    except TimeoutError as error:
        there = len(client.nthreads())
        raise ClusterError(
            f"the cluster has {there} workers, {count} wanted, after {timeout:g} s. Start workers "
            "(dask worker ADDRESS) and run again; finished stages are kept"
        ) from error


def _local_pids(client: Any, monitor: WorkerMonitor) -> dict[str, int]:
    """Scheduler and workers that run on this machine."""
    here = (os.uname().nodename, _boot())
    workers = monitor.awaited(lambda: client.run(_who, on_error="ignore", asynchronous=True))
    answers = {"scheduler": client.run_on_scheduler(_who), **workers}
    return {role: pid for role, (pid, *place) in answers.items() if tuple(place) == here}


def _who() -> tuple[int, str, str]:
    return os.getpid(), os.uname().nodename, _boot()


def _boot() -> str:
    """Return what distinguishes two machines (or containers) of one name."""
    try:
        return Path("/proc/sys/kernel/random/boot_id").read_text() + os.readlink("/proc/self/ns/pid")
    except OSError:
        return ""


# --------------------------------------------------------------------------------------------------------- cluster
# Where block tasks run: in this process, on an embedded local cluster, on a running one, or on one in a queue.
#
# Each place is a :class:`Place`: an executor for :func:`bigembed.runtime.blocks.map_blocks` and what the plan and the
# report need to know of it. ``distributed`` is imported only where it is used: small data never load it.

SMALL_BYTES, SMALL_ROWS = 64 << 20, 20_000
"""Input below both of which a job that names no cluster runs in this process."""
PROCESS = PlaceKind("process", "in this process", inside=True, more="A larger machine is needed")
KINDS: Mapping[str, PlaceKind] = {kind.name: kind for kind in (PROCESS, embedded.EMBEDDED, REMOTE, slurm.SLURM)}
"""The kinds of places, by the name that records have."""


def named_kind(table: ClusterTable) -> PlaceKind | None:
    """Return the kind of place that the table names, whatever the size of the job; None where it names none."""
    return next((kind for kind in KINDS.values() if kind.named_by(table)), None)


def choose(table: ClusterTable, shape: tuple[int, int], nbytes: int) -> str:
    """Return which kind of place a job on rows of this shape gets."""
    if named := named_kind(table):
        return named.name
    small = shape[0] <= SMALL_ROWS and nbytes < SMALL_BYTES
    return PROCESS.name if small and not table.given else embedded.EMBEDDED.name


def is_planned(table: ClusterTable) -> bool:
    """Return whether workers and their memory are known before the place stands."""
    named = named_kind(table)
    return named is None or named.planned


def choose_running(table: ClusterTable) -> str:
    """Return the kind of place where nothing has to be started: the running cluster of the table, or this process."""
    return PROCESS.name if is_planned(table) else choose(table, (0, 0), 0)


@contextmanager
def cluster(table: ClusterTable, kind: str) -> Iterator[Place]:
    """The place of this kind, closed at the end. The observer of the runtime hears of workers that are frozen."""
    start = KINDS[kind].start
    if start is None:
        with LocalPool(for_stripes=len(os.sched_getaffinity(0))) as pool:
            yield Place(kind, pool, 1, embedded.machine_memory())
        return
    with ExitStack() as stack:
        yield start(table, stack)


@contextmanager
def known_place(table: ClusterTable) -> Iterator[Place | None]:
    """The running cluster, where a plan has to ask it for its workers; None where the table says all of a place."""
    if is_planned(table) or (table.workers and table.memory):
        yield None
    else:
        with cluster(table, choose_running(table)) as place:
            yield place
