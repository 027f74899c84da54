"""Workers as jobs of Slurm's queue, by dask-jobqueue: scheduler in this process, TLS between all of them.

A job of workers lasts for its wall time only. Its workers retire a little earlier, which costs nothing but the tasks
they are at; jobs that ended, for whatever reason, are replaced. At the end, however it comes, all are cancelled.
"""

from __future__ import annotations

import getpass
import itertools
import logging
import os
import signal
import subprocess
import tempfile
import threading
import time
import uuid
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import Any

from bigembed.errors import ClusterError, JobError, needed
from bigembed.jobs.places import ClusterTable, Place, PlaceKind, close_quietly, settings
from bigembed.runtime import client_executor, no_progress, runtime_now, worker_monitor
from bigembed.store.files import temporary

logger = logging.getLogger(__name__)

POLL = 10.0
"""Seconds between two looks at the queue: jobs that ended are replaced then."""
LOST = 3
"""Jobs for each one wanted that may end without any of their workers having come; then no more are submitted."""
NANNY = 256 << 20
"""Memory for the process that watches a worker, and for the shell of the job."""
INSIDE = ("--no-dashboard", "--dashboard-address", "127.0.0.1:0")
"""The pages that a worker has in any case, which know no TLS, are for its own node."""
DEATH_TIMEOUT = 60
"""Seconds after which a worker without its scheduler ends, and its job with it: nobody may be left to cancel it."""


def slurm(table: ClusterTable, stack: ExitStack) -> Place:
    """Jobs of workers, as the table asks for; the place is there when the first worker is."""
    import dask

    jobqueue = require_libraries()
    from distributed import Client

    folder = stack.enter_context(_private_folder(table))
    scratch = stack.enter_context(temporary("scheduler"))
    stack.enter_context(dask.config.set({**settings(table), "temporary-directory": str(scratch)}))
    security = _security(folder)
    name = f"bigembed-{uuid.uuid4().hex[:8]}"
    found = jobqueue.SLURMCluster(**_asked(table, folder, name), security=security, job_cls=_job_class(jobqueue))
    stack.callback(_cancel, name)  # what the cluster does not know of: submitted at the moment that it was closed
    stack.callback(close_quietly, found, 30)
    client = Client(found, security=security, set_as_default=True)
    stack.callback(close_quietly, client, 10)
    queue = Queue(found, name, (table.workers or 1) // table.workers_per_job, folder)
    queue.fill()
    stack.enter_context(queue.kept_full())
    _await_first(client, queue, table)
    monitor = worker_monitor.WorkerMonitor(client, table.frozen_timeout, runtime_now().observer)
    executor = client_executor.ClientExecutor(client, table.patience, client_executor.Advice(queue.standing), monitor)
    return Place(SLURM.name, executor, table.workers or 1, table.memory, client, monitor=monitor)


def require_libraries() -> Any:
    """dask-jobqueue; MissingExtraError if it, or what encrypts its connections, is not installed."""
    needed("cryptography", "slurm", 'TLS for manager = "slurm"')
    return _jobqueue()


def _names_slurm(table: ClusterTable) -> bool:
    return table.manager == "slurm"


SLURM = PlaceKind("slurm", "{workers} workers in jobs of Slurm", slurm, _names_slurm, require=require_libraries)


def _jobqueue() -> Any:
    """dask-jobqueue, which takes SIGINT for itself where it is imported: this job has its own way to stop."""
    before = signal.getsignal(signal.SIGINT)
    try:
        return needed("dask_jobqueue", "slurm", 'manager = "slurm"')
    finally:
        if signal.getsignal(signal.SIGINT) is not before:
            signal.signal(signal.SIGINT, before)


def _job_class(jobqueue: Any) -> Any:
    """Return a job that says of itself that it failed: a cluster with one that was not even submitted could not be
    closed."""
    from distributed.core import Status

    class Job(jobqueue.slurm.SLURMJob):
        async def start(self) -> None:
            try:
                await super().start()
            except BaseException:
                self.status = Status.failed
                raise

    return Job


@contextmanager
def _private_folder(table: ClusterTable) -> Iterator[Path]:
    """For credentials and logs: on the shared file system, for nobody else to read."""
    above = Path(table.shared_folder or ".").absolute()
    if any(character.isspace() or character in "\"'$\\" for character in str(above)):
        raise JobError(
            f"[cluster] shared_folder: {str(above)!r} holds blanks, quotes or the like, which job scripts cannot; "
            "name another folder that every node sees"
        )
    try:
        made = tempfile.TemporaryDirectory(prefix=".bigembed-slurm-", dir=above, ignore_cleanup_errors=True)
    except OSError as error:
        raise JobError(
            f"[cluster] shared_folder: cannot write in {above} ({error}); name a folder that every node sees"
        ) from error
    with made as path:
        yield Path(path)


def _security(folder: Path) -> Any:
    """Credentials for this job only, in files that workers read."""
    from distributed import Security

    made = Security.temporary()
    contents = {"ca": made.tls_ca_file, "cert": made.tls_worker_cert, "key": made.tls_worker_key}
    files = {part: folder / f"{part}.pem" for part in contents}
    for part, path in files.items():
        with open(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w") as file:
            file.write(contents[part])
    roles = {
        f"tls_{role}_{part}": str(files[part]) for role in ("scheduler", "worker", "client") for part in ("cert", "key")
    }
    return Security(tls_ca_file=str(files["ca"]), require_encryption=True, **roles)


def _asked(table: ClusterTable, folder: Path, name: str) -> dict[str, Any]:
    """Return what dask-jobqueue is asked for."""
    each, memory = table.workers_per_job, table.memory or 0
    walltime = table.walltime or 0
    return {
        "job_name": name,
        "queue": table.partition,
        "account": table.account,
        "walltime": _clock(walltime),
        "cores": each,
        "processes": each,
        "memory": each * memory,
        "job_mem": f"{-(-each * (memory + NANNY) // (1 << 20))}M",
        "job_extra_directives": [f"--output={folder}/worker-%j.log", "--no-requeue", *table.directives],
        "job_script_prologue": _prologue(table),
        "local_directory": '"$scratch"',
        "interface": table.interface,
        "death_timeout": DEATH_TIMEOUT,
        # (the last --memory-limit counts; dask-jobqueue writes it with two decimals)
        "worker_extra_args": [*INSIDE, "--memory-limit", str(memory), *lifetime(walltime)],
        "scheduler_options": {"dashboard": False, "dashboard_address": "127.0.0.1:0"},
        "silence_logs": "critical",
    }


def _prologue(table: ClusterTable) -> list[str]:
    """Return a scratch folder that the job removes, nothing written into the home folder, this process's settings of
    Dask."""
    import dask

    above = table.scratch or "${SLURM_TMPDIR:-${TMPDIR:-/tmp}}"
    return [
        *table.prologue,
        f'scratch=$(mktemp -d "{above}/bigembed-$SLURM_JOB_ID-XXXXXX") || exit 1',
        "trap 'rm -rf \"$scratch\"' EXIT",
        "trap : TERM  # the workers get it, too; the folder goes after them",
        'export DASK_CONFIG="$scratch/dask" MPLCONFIGDIR="$scratch" XDG_CACHE_HOME="$scratch"',
        f"export DASK_INTERNAL_INHERIT_CONFIG={dask.config.serialize(settings(table))}",
    ]


def lifetime(walltime: int) -> list[str]:
    """Return when workers retire: before their job's wall time is over, and not all at the same moment.

    >>> lifetime(3600)
    ['--lifetime', '3300s', '--lifetime-stagger', '240s']
    """
    stagger = min(240, walltime // 10)
    return ["--lifetime", f"{walltime - stagger - min(60, walltime // 10)}s", "--lifetime-stagger", f"{stagger}s"]


def _clock(seconds: int) -> str:
    """As Slurm writes it.

    >>> _clock(5400), _clock(216000)
    ('01:30:00', '60:00:00')
    """
    minutes = -(-seconds // 60)
    return f"{minutes // 60:02}:{minutes % 60:02}:00"


# -------------------------------------------------------------------------------------- queue


class Queue:
    """The jobs of one cluster, and what Slurm says of them."""

    def __init__(self, cluster: Any, name: str, wanted: int, folder: Path) -> None:
        self.cluster, self.name, self.wanted, self.folder = cluster, name, wanted, folder
        self.numbers = itertools.count()
        self.ended = 0
        """Jobs that ended since a worker was there the last time."""
        self.over = threading.Event()

    def fill(self) -> None:
        """Submit as many jobs as are missing; :class:`ClusterError` with what sbatch says if it refuses."""
        try:
            self.cluster.sync(self._fill)
        except (RuntimeError, OSError) as error:
            raise ClusterError(f"Slurm took no job of workers: {_message_of(error)}") from error

    async def _fill(self, gone: tuple[str, ...] = ()) -> None:
        for name in gone:
            self.cluster.workers.pop(name, None)
            self.cluster.worker_spec.pop(name, None)
        while len(self.cluster.worker_spec) < self.wanted:
            self.cluster.worker_spec[f"{self.name}-{next(self.numbers)}"] = self.cluster.new_spec
        await self.cluster

    @contextmanager
    def kept_full(self) -> Iterator[None]:
        """Meanwhile jobs that ended are replaced."""
        keeper = threading.Thread(target=self._keep, name="queue", daemon=True)
        keeper.start()
        try:
            yield
        finally:
            self.over.set()
            keeper.join(timeout=POLL)

    def _keep(self) -> None:
        while not self.over.wait(POLL):
            try:
                self.replace()
            except Exception as error:  # (the controller does not answer, or takes no more jobs: tried again)
                logger.warning("Slurm took no job of workers: %s", _message_of(error))

    def replace(self) -> None:
        """Submit a job for each that ended, unless they end again and again before a worker comes."""
        known = {name: job.job_id for name, job in self.cluster.workers.items()}
        if self.cluster.scheduler_info["workers"]:
            self.ended = 0
        there = {line[0] for line in self.listed() if line[1] != "COMPLETING"}
        gone = tuple(name for name, number in known.items() if number not in there)
        missing = len(gone) + self.wanted - len(known)
        if not missing or self.exhausted or self.over.is_set():
            return
        self.ended += len(gone)
        logger.info("%d of %d jobs of workers ended; submitted anew", missing, self.wanted)
        self.cluster.sync(self._fill, gone)

    @property
    def exhausted(self) -> bool:
        """Return whether jobs end again and again before a worker comes: more of them would not go better."""
        return self.ended >= LOST * self.wanted

    def listed(self) -> list[list[str]]:
        """Number, state and reason of each job that Slurm still lists."""
        return [line.split("|") for line in _ask("squeue", "-h", "-n", self.name, "-o", "%i|%T|%r").splitlines()]

    def standing(self) -> str:
        """Say how the jobs of workers stand, by what ``squeue`` and their last log say."""
        try:
            listed = self.listed()
        except (OSError, subprocess.SubprocessError) as error:
            return f"squeue says: {_message_of(error)}"
        lines = [f"job {number}: {state}" + (f" ({why})" if why != "None" else "") for number, state, why in listed]
        return "squeue says: " + ("; ".join(lines) or "no jobs of workers any more") + self._log()

    def _log(self) -> str:
        """Return the end of what the last job wrote."""
        logs = sorted(self.folder.glob("worker-*.log"), key=lambda path: path.stat().st_mtime)
        last = logs[-1].read_text(errors="replace").splitlines()[-5:] if logs else []
        return "".join(f"\n  {logs[-1].name}: {line}" for line in last) if last else ""


def _await_first(client: Any, queue: Queue, table: ClusterTable) -> None:
    """Wait for a worker; the others join while tasks run."""
    until, progress = time.monotonic() + table.patience, runtime_now().progress or no_progress
    while not client.nthreads():
        progress("workers", 0, table.workers or 1)
        if queue.exhausted or time.monotonic() > until:
            what = f"no worker came within {table.patience:g} s ([cluster] no_workers_timeout)"
            if queue.exhausted:
                what = f"{queue.ended} jobs of workers ended before a worker came"
            raise ClusterError(f"{what}; {queue.standing()}\nPut right what is said there, or wait; then run again")
        time.sleep(0.5)


def _cancel(name: str) -> None:
    """End all jobs of this name."""
    with suppress(OSError, subprocess.SubprocessError):
        _ask("scancel", "-n", name, "-u", getpass.getuser())


def _ask(*command: str) -> str:
    return subprocess.run(command, capture_output=True, text=True, check=True, timeout=60).stdout


def _message_of(error: BaseException) -> str:
    """Return what a command of Slurm said, in one line."""
    text = getattr(error, "stderr", None) or str(error)
    lines = [line.strip() for line in str(text).splitlines() if line.strip()]
    own = [line for line in lines if line.startswith(("sbatch:", "squeue:", "slurm"))]
    return "; ".join(own or lines[:3])
