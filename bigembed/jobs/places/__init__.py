"""Where block tasks run: in this process, on an embedded cluster, on a running one, on one that Slurm queues.

What a place is (its executor, its workers) is here, and the table [cluster] of a job file that says which.
"""

from __future__ import annotations

import logging
import os
import re
import uuid
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Annotated, Any, Literal

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field

from bigembed.errors import StoreAccessError, UnreachableError, WorkerAccessError
from bigembed.jobs import parse_deadline
from bigembed.runtime import Executor
from bigembed.runtime.client_executor import QUEUED, RUNNING, TERMINATE
from bigembed.runtime.worker_monitor import FROZEN, WorkerMonitor
from bigembed.store import AnyPath, at

QUEUE_KEYS = (
    *("partition", "account", "walltime", "workers_per_job", "directives"),
    *("prologue", "interface", "scratch", "shared_folder"),
)
"""Keys of [cluster] that mean something to a manager only."""
OWN_DIRECTIVES = {
    "partition": ("-p", "--partition"),
    "account": ("-A", "--account"),
    "walltime": ("-t", "--time"),
    "memory": ("--mem", "--mem-per-cpu"),
    "workers_per_job": ("-n", "--ntasks", "-c", "--cpus-per-task", "-N", "--nodes"),
}
"""Options of sbatch that a key of [cluster] says."""


def parse_bytes(value: Any) -> Any:
    """Read bytes from a number or a text with a unit, in any spelling that Dask reads.

    >>> parse_bytes("1.5 GiB"), parse_bytes("200MB"), parse_bytes(10)
    (1610612736, 200000000, 10)
    """
    if not isinstance(value, str):
        return value
    from dask.utils import parse_bytes as parsed

    try:
        if value.strip()[:1].isdigit():  # (Dask takes a unit alone for one of it, and nothing for a byte)
            return parsed(value)
        raise ValueError(value)
    except (ValueError, OverflowError) as error:
        raise ValueError('a size such as "1 GiB", "500 MB" or a number of bytes') from error


def parse_walltime(value: Any) -> Any:
    """Read seconds from a duration, or from one as Slurm writes it.

    >>> parse_walltime("1h30m"), parse_walltime("04:00:00"), parse_walltime("2-12:00:00")
    (5400, 14400, 216000)
    """
    if not isinstance(value, str):
        return value
    if clock := re.fullmatch(r"\s*(?:(\d+)-)?(\d+):(\d\d):(\d\d)\s*", value):
        days, hours, minutes, seconds = (int(part or 0) for part in clock.groups())
        return ((24 * days + hours) * 60 + minutes) * 60 + seconds
    if not re.fullmatch(r"(\s*\d+\s*(d|h|min|m|s)\b)+\s*", re.sub(r"([a-z])(?=\d)", r"\1 ", value)):
        raise ValueError('a duration such as "4h", "1h30m", "04:00:00" or "2-12:00:00"')
    return int(parse_deadline(value, 0.0))


Bytes = Annotated[int, BeforeValidator(parse_bytes), Field(gt=0, le=1 << 60)]
Word = Annotated[str, Field(pattern=r"^[^\s'\"]+$")]
Walltime = Annotated[int, BeforeValidator(parse_walltime), Field(ge=60)]


class Table(BaseModel):
    """A table of the job file."""

    model_config = ConfigDict(extra="forbid", strict=True, frozen=True, arbitrary_types_allowed=True)


class ClusterTable(Table):
    """A running cluster (``address``), one that Slurm starts (``manager``), or an embedded one.

    The last two have ``workers`` processes of ``memory`` each.
    """

    address: str | None = None
    """A running scheduler, e.g. ``"tls://host:8786"``; without it the job starts its own processes."""
    manager: Literal["slurm"] | None = None
    """Who starts the workers: ``"slurm"`` queues jobs for them; without it they are processes on this machine."""
    workers: int | None = Field(default=None, ge=1, le=100_000)
    """Worker processes that the job starts."""
    memory: Bytes | None = None
    """Memory of each of them; what cannot fit is refused."""
    threads: Literal[1] = 1
    """Of a worker."""
    bandwidth: Bytes | None = None
    """Bytes a second that workers on several machines together read and write where the exchanges lie: ``"2 GB"``. The
    plan of time uses it; by default it is measured on a running cluster, and unknown of workers in a queue."""
    tls_ca: str | None = None
    """Certificate authority of the running cluster (PEM)."""
    tls_cert: str | None = None
    """Certificate of this client (PEM)."""
    tls_key: str | None = None
    """Key of this client (PEM)."""
    no_workers_timeout: float | None = Field(default=None, gt=0)
    """Seconds without any worker after which the job gives up: by default 60, and an hour with a manager."""
    frozen_timeout: float = Field(default=FROZEN, gt=0)
    """Seconds without a sign of life of a worker (a heartbeat, or processor time that it uses) after which it is given
    up: its nanny kills it and starts another, and its tasks go to others. It is reported after a quarter of it."""
    partition: Word | None = None
    """Of the manager, as all that follow: the queue."""
    account: Word | None = None
    """The account that the allocation is charged to."""
    walltime: Walltime | None = None
    """How long a job of workers lasts: ``"4h"`` or ``"04:00:00"``; jobs that ended are replaced."""
    workers_per_job: int = Field(default=1, ge=1)
    """Worker processes in one job, each with a core."""
    directives: list[str] = []
    """Further options of sbatch, such as ``"--qos=long"``."""
    prologue: list[str] = []
    """Shell commands before the workers start, such as ``"module load python"``."""
    interface: Word | None = None
    """The network between the nodes, such as ``"ib0"``."""
    scratch: str | None = None
    """A folder on the disk of each node; variables such as ``$TMPDIR`` are expanded there."""
    shared_folder: str | None = None
    """A folder that every node sees, for credentials and logs while the job runs; by default that of the job file."""

    @property
    def given(self) -> bool:
        """Return whether the job says anything on where it runs."""
        return bool(self.address or self.manager or self.workers or self.memory)

    @property
    def patience(self) -> float:
        """Return seconds without any worker after which the job ends."""
        return self.no_workers_timeout or (QUEUED if self.manager else RUNNING)


def redacted(text: str) -> str:
    """Return the text without what URLs in it carry besides their address: who asks, and after a question mark
    anything.

    >>> redacted("tcp://ada:pw@node:8786 and tls://h:1?key=k, abfs://container@account/x"), redacted("s3://b/k: why?")
    ('tcp://…@node:8786 and tls://h:1?…, abfs://container@account/x', 's3://b/k: why?')
    """
    text = re.sub(r"\b(?!abfs|wasb|az)([\w+.-]+://)[^/\s'\"]+@", r"\1…@", text)
    text = re.sub(r"\b([\w+.-]+://)[^/\s@:'\"]*:[^/\s'\"]+@", r"\1…@", text)
    return re.sub(r"(\b[\w+.-]+://[^\s?'\"]+\?)[^\s?,;'\"()]+", r"\1…", text)


def elsewhere(given: Mapping[str, Any]) -> dict[str, Any]:
    """Return what a table says of a job that is sent to a running cluster after all: nothing of a manager."""
    return {key: value for key, value in given.items() if key not in ("manager", *QUEUE_KEYS)}


_ADDRESS = re.compile(r"^([A-Za-z][A-Za-z0-9+.-]*://)?[^\s/]+:[0-9]{1,5}$|^inproc://")


def address_problems(address: str | None) -> list[str]:
    """List what is wrong with the address of a scheduler, and what it must be."""
    if address is None:
        return []
    if not set("@?#") & set(address):
        if _ADDRESS.search(address):
            return []
        return [f"[cluster] address: {address[:100]!r} is not one; give scheme, host and port, as in tcp://host:8786"]
    clean = re.split("[?#]", address.rpartition("@")[2])[0]
    return [
        f"[cluster] address: {clean} carries credentials or options, which a scheduler does not take and others "
        "could read; give scheme, host and port, and certificates for tls://"
    ]


def cluster_problems(cluster: ClusterTable) -> list[str]:
    """List the keys of [cluster] that do not go together."""
    problems = address_problems(cluster.address)
    if cluster.address is None and (cluster.tls_ca or cluster.tls_cert or cluster.tls_key):
        why = "a manager's cluster makes its own" if cluster.manager else "an embedded cluster stays on this host"
        problems.append(f"[cluster] tls_ca, tls_cert, tls_key: only with address; {why}")
    if cluster.manager is None:
        given = [key for key in QUEUE_KEYS if key in cluster.model_fields_set]
        return problems + ([f'[cluster] {", ".join(given)}: only with manager = "slurm"'] if given else [])
    if cluster.address is not None:
        problems.append("[cluster] address, manager: one of them; a running cluster has its workers already")
    problems += [
        f'[cluster] {key}: must be given with manager = "slurm"'
        for key in ("workers", "memory", "walltime")
        if getattr(cluster, key) is None
    ]
    if cluster.workers is not None and cluster.workers % cluster.workers_per_job:
        problems.append(
            f"[cluster] workers: a multiple of workers_per_job = {cluster.workers_per_job}, not {cluster.workers}"
        )
    for directive in cluster.directives:
        option = re.split(r"[=\s]", directive.strip(), maxsplit=1)[0]
        problems += [
            f"[cluster] directives: {directive!r}; say it with {key}"
            for key, own in OWN_DIRECTIVES.items()
            if option in own or (key != "memory" and not option.startswith("--") and option[:2] in own)
        ]
        if not option.startswith("-") or "\n" in directive:
            problems.append(f'[cluster] directives: {directive!r}; one option of sbatch each, such as "--qos=long"')
    return problems


# -------------------------------------------------------------------------------------------------------- settings
# Settings of Dask for a job: no silent waiting, no spilling, one thread of everything in a worker.

DEATHS = 5
"""Workers that may die under one task before it is given up."""

START_TIMEOUT = 60.0
TRIMMED, MMAPPED = 128 << 20, 32 << 20
"""Bytes at the end of the heap that are given back; of an array that lies outside of the heap."""

TICK = "500ms"
"""Between looks of a process at its clock, of which Dask takes fifty a second: half of what an idle scheduler does."""

MESSAGES = 10
"""Last messages that a process keeps of each connection, whole. Dask keeps a thousand: the arguments of as many tasks,
which grow with the blocks."""


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
        "distributed.admin.low-level-log-length": MESSAGES,
        "distributed.worker.profile.enabled": False,  # (3 % of a worker's time, and nobody asks for it)
        "distributed.nanny.pre-spawn-environ.NUMBA_NUM_THREADS": 1,
        # Freed arrays stay with the process: returned, they would be faulted in again, page by page, by every task.
        "distributed.nanny.pre-spawn-environ.MALLOC_TRIM_THRESHOLD_": TRIMMED,
        "distributed.nanny.pre-spawn-environ.MALLOC_MMAP_THRESHOLD_": MMAPPED,
        "distributed.nanny.pre-spawn-environ.MALLOC_ARENA_MAX": 1,
        "distributed.worker.preload": ["bigembed.runtime.worker_monitor"],
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
