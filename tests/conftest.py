"""Where temporary files lie, how property tests run, and a cluster of two workers that all tests of a process share."""

from __future__ import annotations

import gc
import os
import shutil
import signal
import tempfile
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import dask
import hypothesis
import psutil
import pytest
import scipy.linalg  # noqa: F401  (so that its BLAS is loaded and found)
from dask.system import CPU_COUNT
from threadpoolctl import threadpool_limits

from bigembed.jobs import planning
from bigembed.jobs.places import TICK
from bigembed.jobs.watching import MemoryPeak
from bigembed.store.files import new_folder
from tests.blocks import on_workers
from tests.compiled import make_ready

MEMORY = "/dev/shm"
ROOM = 4 << 30
CLAIMS = "BIGEMBED_TESTS_CLAIMS"
WAITING = {"integration", "fault", "deploy"}
IDLE = {
    "distributed.worker.profile.enabled": False,
    "distributed.admin.tick.interval": TICK,
    "distributed.worker.memory.monitor-interval": "1s",
    "distributed.scheduler.work-stealing": False,
    "distributed.scheduler.active-memory-manager.start": False,
    "distributed.admin.system-monitor.interval": "5s",
}
"""Of the cluster, which waits most of the time: it would take a tenth of a core to look at itself."""
SHARED: set[int] = set()
"""Processes of the workers that all tests of this process share."""
folder, claimed = pytest.StashKey[str](), pytest.StashKey[str]()
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)  # (each of hundreds of processes would compile the package anew)
for name in ("CLICOLOR_FORCE", "FORCE_COLOR", "GITHUB_ACTIONS", "PY_COLORS", "TTY_COMPATIBLE"):
    os.environ.pop(name, None)  # (colours, which stand within the words that tests look for)
hypothesis.settings.register_profile("tests", max_examples=15, deadline=None)  # (a busy machine is no failure)
hypothesis.settings.load_profile("tests")


def pytest_configure(config: pytest.Config) -> None:
    """Temporary files lie in memory where there is room for them: thousands of tests write and sync small files.

    They lie in one folder under the name of this process, so that the next run removes what a killed one left.
    The processes of a run of all tests compile together what a fresh tree lacks. One BLAS thread each: they share the
    cores, and threads that wait for each other would spin on them.
    """
    threadpool_limits(limits=1, user_api="blas")
    if "TMPDIR" not in os.environ and has_room():
        config.stash[folder] = os.environ["TMPDIR"] = str(new_folder("tests", MEMORY))
        tempfile.tempdir = None
    if claims := os.environ.pop(CLAIMS, ""):
        make_ready(Path(claims))
    elif config.args_source is config.ArgsSource.TESTPATHS and config.getoption("numprocesses", None):
        config.stash[claimed] = os.environ[CLAIMS] = tempfile.mkdtemp()


def pytest_xdist_auto_num_workers() -> int:
    """One process more than there are cores: some of the tests wait for processes of their own."""
    return CPU_COUNT + 1


def has_room() -> bool:
    """Whether the file system in memory, and the memory itself, take the files of a run."""
    if not os.access(MEMORY, os.W_OK):
        return False
    return min(shutil.disk_usage(MEMORY).free, psutil.virtual_memory().available) > ROOM


def pytest_collection() -> None:
    gc.disable()


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Tests that wait for processes come first: others keep the cores busy meanwhile, and short ones are left for the
    end. Those of :func:`cluster` come one after the other, and so in one process, which alone starts it."""
    items.sort(key=lambda item: not (WAITING.intersection(item.path.parts) or "cluster" in fixtures_of(item)))


def fixtures_of(item: pytest.Item) -> list[str]:
    return getattr(item, "fixturenames", [])


def pytest_collection_finish() -> None:
    """What was collected stays to the end: no search for garbage looks through half a million objects of it."""
    gc.freeze()
    gc.enable()


def pytest_sessionfinish(session: pytest.Session, exitstatus: int) -> None:
    """What a failed run left stays to be looked at, until the next one."""
    if exitstatus:
        session.config.stash[folder] = ""


def pytest_unconfigure(config: pytest.Config) -> None:
    for key in (folder, claimed):
        if made := config.stash.get(key, ""):
            shutil.rmtree(made, ignore_errors=True)


@pytest.fixture(scope="session")
def cluster() -> Iterator[Any]:
    from distributed import Client, LocalCluster

    with (
        warnings.catch_warnings(action="ignore"),
        dask.config.set(IDLE),
        LocalCluster(n_workers=2, threads_per_worker=1, host="127.0.0.1", dashboard_address=None) as started,
        Client(started, set_as_default=False) as client,
    ):
        SHARED.update(worker.pid for worker in started.workers.values())
        yield client


@pytest.fixture(scope="session", autouse=True)
def own_memory() -> Iterator[None]:
    """What a job measures is its own: not the workers of :func:`cluster`, which the tests of a process share."""
    processes = MemoryPeak._processes
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(MemoryPeak, "_processes", lambda self: [one for one in processes(self) if one.pid not in SHARED])
        yield


@pytest.fixture(scope="session", autouse=True)
def quiet_machine() -> Iterator[None]:
    """Speeds are taken as measured beside no other work: beside tests they would be measured again at any moment.

    They stay what they were when this process first looked: others measure them, too, and write over what is kept.
    """
    home, known = os.environ.get("XDG_CACHE_HOME"), dict[str, dict[str, Any]]()
    read, remember = planning.read_measurements, planning.remember

    def here() -> bool:
        """Whether the test has no cache folder of its own."""
        return os.environ.get("XDG_CACHE_HOME") == home

    def as_first_read(kind: str) -> dict[str, Any]:
        if not here():
            return read(kind)
        if kind not in known:
            known[kind] = read(kind)
        return dict(known[kind])

    def keep(kind: str, measured: dict[str, Any]) -> None:
        if here():
            known[kind] = measured
        remember(kind, measured)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(planning, "load_now", lambda: 0.0)
        patch.setattr(planning, "read_measurements", as_first_read)
        patch.setattr(planning, "remember", keep)
        yield


@pytest.fixture
def client(cluster: Any) -> Iterator[Any]:
    """The scheduler of this test, with the blocks of this process."""
    on_workers(cluster)
    with cluster.as_current(), dask.config.set(scheduler=cluster.get):
        yield cluster


@pytest.fixture
def interruptible() -> Iterator[None]:
    """SIGINT as Python takes it: shells give it to background jobs ignored, and what they start inherits that."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)
