"""A place where block tasks run: its executor, its workers, and what the plan and the record need to know of it."""

from __future__ import annotations

import logging
import os
import uuid
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from bigembed.errors import StoreAccessError, UnreachableError, WorkerAccessError
from bigembed.jobs.places.cluster_table import ClusterTable
from bigembed.runtime.client_executor import TERMINATE
from bigembed.runtime.runtime import Executor
from bigembed.runtime.worker_monitor import WorkerMonitor
from bigembed.store.paths import AnyPath, at

# -------------------------------------------------------------------------------------------------------- settings
# Settings of Dask for a job: no silent waiting, no spilling, one thread of everything in a worker.

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
        # Tasks keep no results in memory, so nothing can be spilled, and a paused worker frees nothing by waiting.
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


# ---------------------------------------------------------------------------------------------------------- access
# The proof that every worker reads the input and writes the output, before anything starts.


def prove_access(client: Any, folder: AnyPath, source: str | None, monitor: WorkerMonitor | None = None) -> None:
    """Every worker proves that it sees this process's files in ``folder``, writes there, reads the input."""
    watched = monitor or WorkerMonitor(client)
    token = f".bigembed-access-{uuid.uuid4().hex}"
    mine = folder / token
    left: list[AnyPath] = []
    try:
        mine.write_text(token)
        answers = _answers(client, watched, str(folder), token, source)
        names = {worker: answer for worker, answer in answers.items() if str(answer).startswith(token)}
        left = [folder / name for name in names.values()]
        problems = [
            f"worker {worker}: {_problem(answer)}" for worker, answer in sorted(answers.items()) if worker not in names
        ]
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
        listed = "\n  ".join(problems)
        raise WorkerAccessError(
            f"not every worker reads the input and writes the output; nothing was started.\n  {listed}\n"
            "Mount both on every worker under the same path; for an object store, give every worker its credentials"
        )


def _answers(client: Any, monitor: WorkerMonitor, *asked: str | None) -> dict[str, Any]:
    """Return what each worker says; one that dies meanwhile is left out, and those that are there then are asked."""
    from distributed.comm import CommClosedError

    for _ in range(DEATHS):
        answers: dict[str, Any] = monitor.awaited(
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
    import bigembed.stages.stage  # noqa: F401  (so that a worker without it says so now)

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


# ----------------------------------------------------------------------------------------------------------- place

logger = logging.getLogger(__name__)


@dataclass
class Place:
    """Where tasks run."""

    kind: str
    """The name of its :class:`PlaceKind`."""
    executor: Executor
    workers: int = 1
    memory_limit: int | None = None
    """Bytes of one worker; None for no limit."""
    client: Any = None
    local_pids: dict[str, int] = field(default_factory=dict)
    """Processes on this machine that this one did not start, by role."""
    monitor: WorkerMonitor | None = None
    """Who looks after the workers of the client."""

    def prove_access(self, folder: AnyPath, source: str | None) -> None:
        """Every worker reads what this process wrote into ``folder``, writes there, and reads the input."""
        if self.client is not None:
            prove_access(self.client, folder, source, self.monitor)


@dataclass(frozen=True)
class PlaceKind:
    """What is known of a kind of place before one stands; one for each, in the file that starts it."""

    name: str
    """As records have it."""
    words: str
    """What a plan calls it; ``{workers}`` is their number."""
    start: Callable[..., Place] | None = None
    """From the table [cluster] and an exit stack to a place; None where nothing need be started."""
    named_by: Callable[[ClusterTable], bool] = lambda table: False
    """Whether a table [cluster] names this kind; what names none is for this process, or for workers that it starts."""
    inside: bool = False
    """Whether all tasks are in this process."""
    local: bool = False
    """Whether its workers are processes on this machine."""
    planned: bool = True
    """Whether its workers and their memory are known before it stands."""
    more: str = 'Set [cluster] memory = "{mib} MiB" or more'
    """What to do where a worker needs more memory."""
    require: Callable[[], object] = bool
    """Raises an error where a library is missing."""


def close_quietly(what: Any, timeout: float) -> None:
    """Close a client or a cluster. One that does not answer must not hide how the job ended."""
    try:
        what.close(timeout=timeout)
    except Exception as error:
        logger.warning("%s did not close: %s: %s", type(what).__name__, type(error).__name__, error)
