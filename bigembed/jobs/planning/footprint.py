"""What the processes of a job hold before any data."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from contextlib import suppress
from dataclasses import dataclass
from functools import cache
from importlib.metadata import version
from pathlib import Path
from typing import Any

import bigembed
from bigembed.jobs.planning.remembered import remember, remembered
from bigembed.store.storage.documents import digest_of

KEPT = 8
"""Footprints remembered: of several environments, or numbers of threads."""
PACKAGES = ("dask", "distributed", "matplotlib", "numba", "numpy", "psutil", "scipy", "zarr")


@dataclass(frozen=True)
class Footprint:
    """Resident bytes of the processes of a job before they hold any data."""

    worker: int
    """With NumPy, SciPy, Zarr, Dask, a running distributed worker and one compiled numba function."""
    coordinator: int
    """Client and scheduler in one process, and what hands out results."""
    single: int
    """All of it in one process."""
    picture: int
    """What Matplotlib adds to the coordinator."""
    helper: int
    """The process that Python starts besides workers (its resource tracker)."""
    compiler: int = 0
    """What numba and compiled functions add to the coordinator of a method that has some."""
    task: float = 0.0
    """Seconds from handing out a task to its result."""
    start: float = 0.0
    """Seconds that such a process takes to stand and to have done its first task."""


@cache
def footprint(renew: bool = False) -> Footprint:
    """Measured in a separate process, which imports and starts what a worker does; then remembered.

    It is measured again if Python, a package, bigembed or the number of threads is another one than then, and to
    renew it.
    """
    now = _measured_with()
    known = {one: said for one, said in remembered("footprint").items() if _is_whole(said)}
    if renew or now not in known:
        kept = sorted(known, key=lambda one: known[one]["measured"])[1 - KEPT :]
        known = {one: known[one] for one in kept} | {now: {"measured": time.time(), "footprint": _measured()}}
        remember("footprint", known)
    return Footprint(**known[now]["footprint"])


def _is_whole(said: Any) -> bool:
    """Whether an entry of the file is one of ours."""
    with suppress(TypeError, KeyError):
        return bool(said["measured"] and Footprint(**said["footprint"]))
    return False


def _measured() -> dict[str, Any]:
    began = time.perf_counter()
    done = subprocess.run(
        [sys.executable, "-m", "bigembed.jobs.idle"],
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
        env={**os.environ, "NUMBA_NUM_THREADS": "1"},
    )
    if done.returncode:
        raise RuntimeError(f"the footprint of a worker could not be measured: {done.stderr[-2000:]}")
    return {**json.loads(done.stdout.splitlines()[-1]), "start": time.perf_counter() - began}


def _measured_with() -> str:
    """A digest of what decides how much a process holds: a change of any of it asks for a new measurement."""
    files = [file.stat() for file in sorted(Path(bigembed.__file__).parent.rglob("*.py"))]
    ours = [(file.st_size, file.st_mtime_ns) for file in files]
    threads = {name: value for name, value in os.environ.items() if name.endswith("_NUM_THREADS")}
    packages = {name: version(name) for name in PACKAGES}
    return digest_of([sys.executable, sys.version, os.uname().release, os.cpu_count(), packages, threads, ours])


def resident(pid: int | None = None) -> int:
    """Resident bytes of a process, now."""
    import psutil

    return int(psutil.Process(pid).memory_info().rss)


def imported_here(picture: bool) -> int:
    """Resident bytes of this process once it has loaded what a small job needs."""
    load_algebra()
    load_arrays()
    if picture:
        import matplotlib.backends.backend_agg
        import matplotlib.figure  # noqa: F401
    return resident()


def load_algebra() -> None:
    """Load what every process of a job uses, by using it."""
    import numpy as np
    import scipy.linalg
    import scipy.sparse.csgraph
    import scipy.sparse.linalg  # noqa: F401

    from bigembed.store.arrays.io import read_array, write_array
    from bigembed.store.storage.scratch import temporary

    with temporary("measure") as folder:
        write_array(f"{folder}/rows", np.ones((4, 4)))
        read_array(f"{folder}/rows")


def load_arrays() -> None:
    """Load what results are handed out as: by the coordinating process alone."""
    import dask.array as da
    from dask.local import get_sync

    da.ones(4, chunks=2).sum().compute(scheduler=get_sync)  # (by name, it would load distributed)
