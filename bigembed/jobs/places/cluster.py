"""Where block tasks run: in this process, on an embedded local cluster, on a Dask cluster that runs already, by
Slurm.

Workers of an embedded cluster are started by the job and gone with it; nobody off this host can reach them.
"""

from __future__ import annotations

import ctypes
import gc
import logging
import multiprocessing
import os
import signal
import threading
import warnings
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from ipaddress import ip_address
from multiprocessing.resource_tracker import ensure_running
from pathlib import Path
from typing import Any

from bigembed.errors import ClusterError, JobError, OpenClusterWarning
from bigembed.jobs import places
from bigembed.jobs.places.slurm import SLURM
from bigembed.runtime import runtime_now, use_one_heap
from bigembed.runtime.client_executor import Advice, ClientExecutor
from bigembed.runtime.executors import LocalPool
from bigembed.runtime.worker_monitor import ERRORS, WorkerMonitor
from bigembed.store.files import temporary
from bigembed.store.locks import machine

# -------------------------------------------------------------------------------------------------------- security
# Who may speak to a running cluster: TLS for a client, and a warning for a cluster without it.

ENCRYPTED = ("tls", "wss", "inproc")
"""Schemes of addresses that nobody else can read or speak to without a certificate."""
SETTINGS = "DASK_DISTRIBUTED__COMM__TLS__"
"""What Dask's settings on TLS begin with in the environment."""


def client_security(table: places.ClusterTable) -> Any:
    """Return the certificates that a client of ``table.address`` shows, and those that it asks for.

    Authority, certificate and key are those of the job or of the command line; what is given by neither comes from
    Dask's own configuration (``distributed.comm.tls`` in a file, or ``DASK_DISTRIBUTED__COMM__TLS__CA_FILE``,
    ``…__CLIENT__CERT`` and ``…__CLIENT__KEY`` in the environment). An address off this host without TLS is an
    :class:`~bigembed.errors.OpenClusterWarning`.
    """
    from distributed import Security

    address = table.address or ""
    given = {"tls_ca_file": table.tls_ca, "tls_client_cert": table.tls_cert, "tls_client_key": table.tls_key}
    given = {name: path for name, path in given.items() if path is not None}
    security = Security(**given, **({"require_encryption": True} if given else {}))
    if _scheme(address) == "tls":
        _check(address, security)
    if is_open(address):
        warnings.warn(
            f"{address} is a cluster off this host without TLS: whoever can reach its ports can execute code as its "
            "user, and read and change what is sent. Make certificates (deploy/tls/make-certificates.sh DIR HOST ...), "
            "start scheduler and workers with --tls-ca-file, --tls-cert and --tls-key, and name them here: "
            "--scheduler tls://... --tls-ca --tls-cert --tls-key, or [cluster] in the job file, or Dask's settings "
            f"{SETTINGS}CA_FILE, ...CLIENT__CERT and ...CLIENT__KEY",
            OpenClusterWarning,
            stacklevel=2,
        )
    return security


def no_security() -> Any:
    """Of a cluster inside this host: none, whatever Dask's configuration says for clusters beyond it."""
    from distributed import Security

    roles = [f"tls_{role}_{part}" for role in ("scheduler", "worker", "client") for part in ("cert", "key")]
    return Security(require_encryption=False, tls_ca_file=None, **dict.fromkeys(roles))


def is_open(address: str) -> bool:
    """Return whether others than this host's users may reach a cluster at this address without a certificate.

    >>> [is_open(a) for a in ("tcp://10.0.0.7:8786", "node7:8786", "tls://10.0.0.7:8786", "tcp://127.0.0.1:8786")]
    [True, True, False, False]
    """
    if _scheme(address) in ENCRYPTED:
        return False
    host = address.split("://")[-1].split("/")[0].rsplit(":", 1)[0].strip("[]")
    try:
        return not ip_address(host).is_loopback
    except ValueError:
        return host != "localhost"


def _scheme(address: str) -> str:
    return address.split("://")[0].lower() if "://" in address else "tcp"


def _check(address: str, security: Any) -> None:
    """A client without a certificate would only learn that the connection was closed."""
    files = {
        "tls_ca": ("CA_FILE", security.tls_ca_file),
        "tls_cert": ("CLIENT__CERT", security.tls_client_cert),
        "tls_key": ("CLIENT__KEY", security.tls_client_key),
    }
    problems = []
    for name, (_, path) in files.items():
        if not path and name != "tls_key":
            problems.append(f"{name} is not given")
        elif path and "\n" not in path:  # (Dask takes the text of a certificate, too)
            try:
                open(path, "rb").close()
            except OSError as error:
                problems.append(f"{name} = {path}: {error.strerror}")
    if problems:
        keys = ", ".join(SETTINGS + name for name, _ in files.values())
        raise JobError(
            f"{address} needs certificates: {'; '.join(problems)}. Give --tls-ca, --tls-cert and --tls-key, or "
            f"[cluster] tls_ca, tls_cert and tls_key in the job file, or Dask's settings {keys}"
        )


# -------------------------------------------------------------------------------------------------------- embedded

logger = logging.getLogger(__name__)
MMAP_THRESHOLD, TRIM_THRESHOLD = -3, -1
"""Of glibc's ``mallopt``."""
STARTS = 2
"""Times that the processes of an embedded cluster are started."""
LOST, KEPT = "distributed.deploy.lost-worker-timeout", "1000d"
"""Dask looks, 15 s after a worker has died, whether it is there, and ends its nanny for good where it is not: where it
takes longer to start, or has died once more just now. Here its nanny starts it however long that takes."""
SILENT = logging.CRITICAL + 1
"""Level of what Dask's loggers print while an embedded cluster runs: errors of tasks come with their results."""
PRINTED = "printed"
"""File in the workers' folder: what they printed on standard error."""
PRINTED_MAX = 16 << 10
"""Bytes of it that are logged, the last ones."""


def embedded(table: places.ClusterTable, stack: ExitStack) -> places.Place:
    """Worker processes on this machine, one thread each; the scheduler in this process, on 127.0.0.1 only."""
    import dask
    from distributed import Client
    from distributed.utils import LoopRunner, silence_logging_cmgr

    _keep_memory()
    scratch = stack.enter_context(temporary("workers"))
    stack.callback(_release_folders, scratch)
    of_scheduler = {**places.settings(table), LOST: KEPT, "temporary-directory": str(scratch)}
    stack.enter_context(dask.config.set(of_scheduler))
    stack.enter_context(silence_logging_cmgr(SILENT))  # (one that did not close would leave it so)
    stack.callback(_log_printed, scratch / PRINTED)
    loop = LoopRunner(asynchronous=False)
    with _keyboard_kept():
        loop.start()
    stack.callback(loop.stop)
    local = _started(table, scratch, loop.loop)
    stack.callback(places.close_quietly, local, 10)
    client = Client(local, set_as_default=True)
    stack.callback(places.close_quietly, client, 10)
    monitor = WorkerMonitor(client, table.frozen_timeout, runtime_now().observer)
    count = worker_count(table)
    pool = stack.enter_context(LocalPool(coordinator_threads(count)))
    executor = ClientExecutor(client, table.patience, Advice(_no_workers), monitor, pool)
    return places.Place(EMBEDDED.name, executor, count, embedded_memory(table), client, monitor=monitor)


def _release_folders(scratch: Path) -> None:
    """Have Dask forget its folders in there, before they are deleted: that of a scheduler which was stopped while it
    started is not released otherwise, and an error is printed about it when this process ends."""
    from distributed.diskutils import WorkDir

    for one in gc.get_objects():
        if type(one) is WorkDir and Path(one.dir_path).is_relative_to(scratch):
            one.release()


def _no_workers() -> str:
    """Say what to do about worker processes that nobody but this job can start."""
    return (
        "They are processes of this job, which starts each anew when it ends: something ends them, or keeps them from "
        "starting. See what they printed in the log, and whether memory, processes and the disk of this machine are "
        "used up (fewer [cluster] workers take less), and run again; finished stages are kept"
    )


EMBEDDED = places.PlaceKind("embedded", "{workers} workers on this machine", embedded, local=True)


def _keep_memory() -> None:
    """Let freed arrays stay with this process, in one heap, as they do with the workers."""
    use_one_heap()
    with suppress(AttributeError, OSError):
        mallopt = ctypes.CDLL(None).mallopt
        for name, value in ((MMAP_THRESHOLD, places.MMAPPED), (TRIM_THRESHOLD, places.TRIMMED)):
            mallopt(name, value)


def _started(table: places.ClusterTable, scratch: Path, loop: Any) -> Any:
    """Return the embedded cluster; one whose workers die or freeze while they start is tried again."""
    from distributed import LocalCluster

    before, others = set(multiprocessing.active_children()), set(LocalCluster._instances)
    for left in reversed(range(STARTS)):
        late = threading.Timer(max(places.START_TIMEOUT, table.frozen_timeout), _kill_others, [before])
        late.daemon = True
        late.start()
        try:
            return LocalCluster(
                loop=loop,
                n_workers=worker_count(table),
                threads_per_worker=1,
                processes=True,
                memory_limit=embedded_memory(table),
                host="127.0.0.1",
                dashboard_address="127.0.0.1:0",
                scheduler_kwargs={"dashboard": False},
                security=no_security(),
                local_directory=str(scratch),
                env={ERRORS: str(scratch / PRINTED)},
                silence_logs=SILENT,
            )
        except (RuntimeError, OSError) as error:
            why = _deepest(error)
            if not left:
                raise ClusterError(
                    f"the worker processes did not start ({why}). A script that starts them has to do so below "
                    "'if __name__ == \"__main__\":', since each of them reads it again. Otherwise see whether memory "
                    "and processes of this machine are used up by others, and run again; finished stages are kept"
                ) from error
            logger.warning("the worker processes did not start (%s); tried again", why)
        except BaseException:  # a signal: what is half started says nothing as it ends
            _kill_others(before)
            for half in set(LocalCluster._instances) - others:
                places.close_quietly(half, 10)
            raise
        finally:
            late.cancel()
    raise AssertionError  # pragma: no cover


@contextmanager
def _keyboard_kept() -> Iterator[None]:
    """Let threads that are started meanwhile, and all threads and processes that those start, be without SIGINT.

    A terminal sends it to this process and to its workers, which would die of it before they can say that it is not
    for them.
    """
    ensure_running()  # (it lets SIGINT through in the thread that starts it, which would be the one of the workers)
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def _log_printed(file: Path) -> None:
    """Put what the workers printed into the log of the job."""
    if file.is_file() and (printed := file.read_bytes()):
        text = printed[-PRINTED_MAX:].decode(errors="replace").strip()
        logger.warning("the worker processes printed:\n%s", text)


def _kill_others(than: set[Any]) -> None:
    """Kill the worker processes that are being started: their nannies wait for a frozen one for ever."""
    for process in set(multiprocessing.active_children()) - than:
        process.kill()


def _deepest(error: BaseException) -> str:
    """Return what an error began with."""
    while error.__cause__ is not None:
        error = error.__cause__
    return str(error) or type(error).__name__


def worker_count(table: places.ClusterTable) -> int:
    """Workers of an embedded cluster: the number given, else one a processor that this process may use."""
    return table.workers or len(os.sched_getaffinity(0))


def coordinator_threads(workers: int) -> int:
    """Threads that compute in this process while the workers idle: as many as those, or as there are processors."""
    return min(workers, len(os.sched_getaffinity(0)))


def machine_memory() -> int:
    """Memory of this machine, or of the control group that this process is confined to."""
    import psutil

    total = int(psutil.virtual_memory().total)
    for name in ("/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/memory/memory.limit_in_bytes"):
        with suppress(OSError, ValueError):
            total = min(total, int(Path(name).read_text()))
    return total


def embedded_memory(table: places.ClusterTable) -> int:
    """Memory limit of an embedded worker: the size given, else an equal part of the machine's, a tenth left."""
    return table.memory or int(0.9 * machine_memory()) // worker_count(table)


# ---------------------------------------------------------------------------------------------------------- remote
# A Dask cluster that runs already; its own limits hold.


def remote(table: places.ClusterTable, stack: ExitStack) -> places.Place:
    """Connect to a cluster that runs already; its own limits hold."""
    import dask
    from distributed import Client
    from distributed.utils import silence_logging_cmgr

    if problems := places.address_problems(table.address):
        raise JobError("; ".join(problems))
    stack.enter_context(dask.config.set(places.settings(table)))
    stack.enter_context(silence_logging_cmgr(logging.CRITICAL))  # (on streams: what it says is in the job's own log)
    security = client_security(table)
    timeout = min(table.patience, places.START_TIMEOUT)
    try:
        client = Client(table.address, security=security, timeout=timeout, set_as_default=True)
    except (OSError, TimeoutError, ValueError, TypeError, RuntimeError) as error:
        raise ClusterError(
            f"no scheduler answers at {table.address} ({error}). Start one (dask scheduler, dask worker), "
            "correct the address, or leave it out for an embedded cluster"
        ) from error
    stack.callback(places.close_quietly, client, 10)
    _await_workers(client, table.workers or 1, table.patience)
    count, limit = threads_of(client, table.memory)
    monitor = WorkerMonitor(client, table.frozen_timeout, runtime_now().observer)
    run = ClientExecutor(client, table.patience, monitor=monitor)
    pids = _local_pids(client, monitor)
    return places.Place(REMOTE.name, run, count, limit, client, pids, monitor)


def _names_running(table: places.ClusterTable) -> bool:
    return table.address is not None


REMOTE = places.PlaceKind(
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
    here = (os.uname().nodename, machine())
    workers = monitor.awaited(lambda: client.run(_who, on_error="ignore", asynchronous=True))
    answers = {"scheduler": client.run_on_scheduler(_who), **workers}
    return {role: pid for role, (pid, *place) in answers.items() if tuple(place) == here}


def _who() -> tuple[int, str, str]:
    return os.getpid(), os.uname().nodename, machine()


# --------------------------------------------------------------------------------------------------------- cluster
# Where block tasks run: in this process, on an embedded local cluster, on a running one, or on one in a queue.
#
# Each place is a :class:`Place`: an executor for :func:`bigembed.runtime.blocks.map_blocks` and what the plan and the
# report need to know of it. ``distributed`` is imported only where it is used: small data never load it.

SMALL_BYTES, SMALL_ROWS = 64 << 20, 20_000
"""Input below both of which a job that names no cluster runs in this process."""
PROCESS = places.PlaceKind("process", "in this process", inside=True, more="A larger machine is needed")
KINDS: Mapping[str, places.PlaceKind] = {kind.name: kind for kind in (PROCESS, EMBEDDED, REMOTE, SLURM)}
"""The kinds of places, by the name that records have."""


def named_kind(table: places.ClusterTable) -> places.PlaceKind | None:
    """Return the kind of place that the table names, whatever the size of the job; None where it names none."""
    return next((kind for kind in KINDS.values() if kind.named_by(table)), None)


def choose(table: places.ClusterTable, shape: tuple[int, int], nbytes: int) -> str:
    """Return which kind of place a job on rows of this shape gets."""
    if named := named_kind(table):
        return named.name
    small = shape[0] <= SMALL_ROWS and nbytes < SMALL_BYTES
    return PROCESS.name if small and not table.given else EMBEDDED.name


def is_planned(table: places.ClusterTable) -> bool:
    """Return whether workers and their memory are known before the place stands."""
    named = named_kind(table)
    return named is None or named.planned


def choose_running(table: places.ClusterTable) -> str:
    """Return the kind of place where nothing has to be started: the running cluster of the table, or this process."""
    return PROCESS.name if is_planned(table) else choose(table, (0, 0), 0)


@contextmanager
def cluster(table: places.ClusterTable, kind: str) -> Iterator[places.Place]:
    """The place of this kind, closed at the end. The observer of the runtime hears of workers that are frozen."""
    start = KINDS[kind].start
    if start is None:
        with LocalPool(for_stripes=len(os.sched_getaffinity(0))) as pool:
            yield places.Place(kind, pool, 1, machine_memory())
        return
    with ExitStack() as stack:
        yield start(table, stack)


@contextmanager
def known_place(table: places.ClusterTable) -> Iterator[places.Place | None]:
    """The running cluster, where a plan has to ask it for its workers; None where the table says all of a place."""
    if is_planned(table) or (table.workers and table.memory):
        yield None
    else:
        with cluster(table, choose_running(table)) as place:
            yield place
