"""Where block tasks run: in this process, on an embedded local cluster, on a running one, or on one in a queue.

Each place is a :class:`Place`: an executor for :func:`bigembed.blocks.rows.map_blocks` and what the plan and
the report need to know of it. ``distributed`` is imported only where it is used: small data never load it.
"""

from __future__ import annotations

import logging
import os
import uuid
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from bigembed.blocks.rows import Executor
from bigembed.errors import BigembedError, JobError, StoreAccessError, UnreachableError, WorkerAccessError
from bigembed.jobs.security import client_security
from bigembed.jobs.spec import ClusterTable
from bigembed.jobs.vigil import Vigil
from bigembed.jobs.where import address_problems
from bigembed.stages import Observer, silent
from bigembed.store.paths import AnyPath, at

logger = logging.getLogger(__name__)
SMALL_BYTES, SMALL_ROWS = 64 << 20, 20_000
"""Input below both of which a job that names no cluster runs in this process."""
TERMINATE = 0.95
"""Share of its memory limit at which a worker is restarted. Nothing is spilled and no worker is paused:
tasks keep no results in memory, so nothing can be spilled, and a paused worker frees nothing by waiting."""
DEATHS = 5
"""Workers that may die under one task before it is given up."""
START_TIMEOUT = 60.0

Progress = Callable[[str, int, int], None]
"""Told the label, the tasks done and the tasks in all."""


class ClusterError(BigembedError, RuntimeError):
    """The cluster cannot do the work: no workers, or tasks that kill every worker (exit status 1)."""


def no_progress(label: str, done: int, total: int) -> None:
    """The progress that nobody watches."""


@dataclass
class Place:
    """Where tasks run."""

    kind: str
    """``"process"`` (this one), ``"embedded"``, ``"remote"`` or ``"slurm"``."""
    executor: Executor
    workers: int = 1
    memory_limit: int | None = None
    """Of one worker, in bytes; None where there is none."""
    client: Any = None
    local_pids: dict[str, int] = field(default_factory=dict)
    """Processes on this machine that this one did not start, by role."""
    vigil: Vigil | None = None
    """Who looks after the workers of the client."""

    def prove_access(self, folder: AnyPath, source: str | None) -> None:
        """Every worker reads what this process wrote into ``folder``, writes there, and reads the input."""
        if self.client is not None:
            prove_access(self.client, folder, source, self.vigil)


def choose(table: ClusterTable, shape: tuple[int, int], nbytes: int) -> str:
    """Which kind of place a job on rows of this shape gets."""
    if table.address:
        return "remote"
    if table.manager:
        return table.manager
    small = shape[0] <= SMALL_ROWS and nbytes < SMALL_BYTES
    return "process" if small and not table.given else "embedded"


def worker_count(table: ClusterTable) -> int:
    """Workers of an embedded cluster: as told, else one a processor that this process may use."""
    return table.workers or len(os.sched_getaffinity(0))


def machine_memory() -> int:
    """Memory of this machine, or of the control group that this process is confined to."""
    import psutil

    total = int(psutil.virtual_memory().total)
    for name in ("/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/memory/memory.limit_in_bytes"):
        try:
            total = min(total, int(Path(name).read_text()))
        except (OSError, ValueError):
            continue
    return total


def embedded_memory(table: ClusterTable) -> int:
    """Memory limit of an embedded worker: as told, else an equal part of the machine's, a tenth left."""
    return table.memory or int(0.9 * machine_memory()) // worker_count(table)


@contextmanager
def cluster(
    table: ClusterTable, kind: str, progress: Progress = no_progress, observer: Observer = silent
) -> Iterator[Place]:
    """The place of this kind, closed at the end. ``observer`` hears of workers that are frozen."""
    if kind == "process":
        yield Place(kind, _in_process(progress), 1, machine_memory())
        return
    with ExitStack() as stack:
        yield _maker(kind)(table, progress, observer, stack)


def _maker(kind: str) -> Callable[[ClusterTable, Progress, Observer, ExitStack], Place]:
    if kind == "slurm":
        from bigembed.jobs.slurm import slurm

        return slurm
    if kind == "remote":
        return _remote
    from bigembed.jobs.embedded import embedded

    return embedded


def closed(what: Any, timeout: float) -> None:
    """Close a client or a cluster. One that does not answer must not hide how the job ended."""
    try:
        what.close(timeout=timeout)
    except Exception as error:
        logger.warning("%s did not close: %s: %s", type(what).__name__, type(error).__name__, error)


def _in_process(progress: Progress) -> Executor:
    def run(calls: Sequence[Callable[[], Any]], label: str) -> list[Any]:
        results = []
        for done, call in enumerate(calls):
            progress(label, done, len(calls))
            results.append(call())
        progress(label, len(calls), len(calls))
        return results

    return run


def _remote(table: ClusterTable, progress: Progress, observer: Observer, stack: ExitStack) -> Place:
    """A running cluster; its own limits hold."""
    import dask
    from distributed import Client
    from distributed.utils import silence_logging_cmgr

    if problems := address_problems(table.address):
        raise JobError("; ".join(problems))
    stack.enter_context(dask.config.set(settings(table)))
    stack.enter_context(silence_logging_cmgr(logging.CRITICAL))  # (on streams: what it says is in the job's own log)
    security = client_security(table)
    timeout = min(table.patience, START_TIMEOUT)
    try:
        client = Client(table.address, security=security, timeout=timeout, set_as_default=True)
    except (OSError, TimeoutError, ValueError, TypeError, RuntimeError) as error:
        raise ClusterError(
            f"no scheduler answers at {table.address} ({error}). Start one (dask scheduler, dask worker), "
            "correct the address, or leave it out for an embedded cluster"
        ) from error
    stack.callback(closed, client, 10)
    _await_workers(client, table.workers or 1, table.patience)
    workers = client.scheduler_info(n_workers=-1)["workers"]
    limits = [int(worker["memory_limit"]) for worker in workers.values() if worker.get("memory_limit")]
    limit = min([*limits, *([table.memory] if table.memory else [])], default=None)
    count = sum(int(worker["nthreads"]) for worker in workers.values())
    threads = max(int(worker["nthreads"]) for worker in workers.values())
    vigil = Vigil(client, table.frozen_timeout, observer)
    run = client_executor(client, table.patience, progress, vigil=vigil)
    pids = _local_pids(client, vigil)
    return Place("remote", run, count, limit // threads if limit else None, client, pids, vigil)


def settings(table: ClusterTable) -> dict[str, Any]:
    """Dask's settings for a job: no silent waiting, no spilling, one thread of everything in a worker."""
    return {
        "distributed.scheduler.no-workers-timeout": f"{table.patience}s",
        "distributed.scheduler.worker-ttl": None,  # (the vigil gives workers up; it knows one that is busy)
        "distributed.scheduler.allowed-failures": DEATHS,
        "distributed.worker.memory.target": False,
        "distributed.worker.memory.spill": False,
        "distributed.worker.memory.pause": False,
        "distributed.worker.memory.terminate": TERMINATE,
        "distributed.comm.timeouts.connect": "30s",
        "distributed.nanny.pre-spawn-environ.NUMBA_NUM_THREADS": 1,
        # Freed arrays stay with the process: returned, they would be faulted in again, page by page, by every task.
        "distributed.nanny.pre-spawn-environ.MALLOC_TRIM_THRESHOLD_": 128 << 20,
        "distributed.nanny.pre-spawn-environ.MALLOC_MMAP_THRESHOLD_": 32 << 20,
        "distributed.nanny.pre-spawn-environ.MALLOC_ARENA_MAX": 1,
        "distributed.worker.preload": ["bigembed.jobs.preload"],
    }


def _await_workers(client: Any, count: int, timeout: float) -> None:
    try:
        client.wait_for_workers(count, timeout=timeout)
    except TimeoutError as error:
        there = len(client.nthreads())
        raise ClusterError(
            f"the cluster has {there} workers, {count} wanted, after {timeout:g} s. Start workers "
            "(dask worker ADDRESS) and run again; finished stages are kept"
        ) from error


def _local_pids(client: Any, vigil: Vigil) -> dict[str, int]:
    """Scheduler and workers that run on this machine."""
    here = (os.uname().nodename, _boot())
    workers = vigil.awaited(lambda: client.run(_who, on_error="ignore", asynchronous=True))
    answers = {"scheduler": client.run_on_scheduler(_who), **workers}
    return {role: pid for role, (pid, *place) in answers.items() if tuple(place) == here}


def _who() -> tuple[int, str, str]:
    return os.getpid(), os.uname().nodename, _boot()


def _boot() -> str:
    """What tells two machines (or containers) of one name apart."""
    try:
        return Path("/proc/sys/kernel/random/boot_id").read_text() + os.readlink("/proc/self/ns/pid")
    except OSError:
        return ""


# ----------------------------------------------------------------------------------- executor


def client_executor(
    client: Any,
    timeout: float,
    progress: Progress = no_progress,
    why: Callable[[], str] = str,
    vigil: Vigil | None = None,
) -> Executor:
    """Tasks on a distributed client. Few are in flight at a time; those whose worker died are run again.

    ``timeout``: seconds without any worker after which the job ends with :class:`ClusterError`, which says ``why()``.
    ``vigil``: who looks after the workers meanwhile.
    """
    watched = vigil or Vigil(client, ClusterTable().frozen_timeout)

    def run(calls: Sequence[Callable[[], Any]], label: str) -> list[Any]:
        from bigembed.jobs.inflight import Flight

        return Flight(client, calls, label, timeout, progress, why, watched).land()

    return run


# ------------------------------------------------------------------------------------- access


def prove_access(client: Any, folder: AnyPath, source: str | None, vigil: Vigil | None = None) -> None:
    """Every worker proves that it sees this process's files in ``folder``, writes there, reads the input."""
    watched = vigil or Vigil(client, ClusterTable().frozen_timeout)
    token = f".bigembed-access-{uuid.uuid4().hex}"
    mine = folder / token
    left: list[AnyPath] = []
    try:
        mine.write_text(token)
        answers = _answers(client, watched, str(folder), token, source)
        problems = [
            f"worker {worker}: {_problem(answer)}"
            for worker, answer in sorted(answers.items())
            if not isinstance(answer, str) or not answer.startswith(token)
        ]
        names = [answer for answer in answers.values() if isinstance(answer, str) and answer.startswith(token)]
        left = [folder / name for name in names]
        problems += [
            f"a worker wrote {path}, and it is not there for this process: not the same file system"
            for path in left
            if not path.is_file()
        ]
    except (UnreachableError, StoreAccessError):
        raise
    except OSError as error:
        raise WorkerAccessError(f"this process cannot write in {folder}: {error}") from error
    finally:
        for path in (mine, *left):
            path.unlink(missing_ok=True)
    if problems:
        raise WorkerAccessError(
            "not every worker reads the input and writes the output; nothing was started.\n  "
            + "\n  ".join(problems)
            + "\nMount both on every worker under the same path; for an object store, give every worker its credentials"
        )


def _answers(client: Any, vigil: Vigil, *asked: str | None) -> dict[str, Any]:
    """What each worker says; one that dies meanwhile is no witness, and those that are there then are asked."""
    from distributed.comm import CommClosedError

    for _ in range(DEATHS):
        answers: dict[str, Any] = vigil.awaited(
            lambda: client.run(_prove, *asked, on_error="return", asynchronous=True)
        )
        if not any(isinstance(answer, CommClosedError) for answer in answers.values()):
            break
    return answers


def _problem(answer: Any) -> str:
    if isinstance(answer, ModuleNotFoundError):
        return f"cannot import bigembed or what it needs ({answer}); install the same version there"
    return str(answer) if isinstance(answer, str) else f"{type(answer).__name__}: {answer}"


def _prove(folder: str, token: str, source: str | None) -> str:
    """In a worker. Returns the name of the file that it left, or what is wrong."""
    import bigembed.stages  # noqa: F401  (so that a worker without it says so now)

    try:
        if (at(folder) / token).read_text() != token:
            return f"{folder}: reads other bytes than were written there"
    except OSError as error:
        return f"{folder}: cannot read what the coordinating process wrote there ({error})"
    name = f"{token}-{os.uname().nodename}-{os.getpid()}"
    try:
        (at(folder) / name).write_text(name)
        if (at(folder) / name).read_text() != name:
            return f"{folder}: reads other bytes than it wrote there"
    except OSError as error:
        return f"{folder}: cannot write there ({error})"
    try:
        if source is not None:
            place = at(source)
            with (place / "zarr.json" if place.is_dir() else place).open("rb") as file:
                file.read(1)
    except OSError as error:
        (at(folder) / name).unlink(missing_ok=True)
        return f"{source}: cannot read the input ({error})"
    return name
