"""What a job will read, hold and write, and how long it will take, before it starts.

What is measured of this machine and remembered is here: how fast it reads, writes and multiplies, and what its
processes hold.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, fields
from functools import cache
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np
from scipy.spatial.distance import cdist

import bigembed
from bigembed import __version__
from bigembed.errors import DamagedError, InterruptedRun
from bigembed.runtime import trim_heap, use_one_heap
from bigembed.runtime.blocks import one_blas_thread
from bigembed.store import AnyPath, at, remove
from bigembed.store import files as documents
from bigembed.store.files import digest_of, temporary
from bigembed.store.objects import ObjectPath

# ------------------------------------------------------------------------------------------------------ remembered
# What was measured of this machine, kept in the user's cache folder: one file a kind, machine and version.


def cache_file(kind: str) -> Path:
    """Return the file in which measurements of a kind are kept."""
    base = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(base) / "bigembed" / f"{kind}-{os.uname().nodename}-{__version__}.json"


def read_measurements(kind: str) -> dict[str, Any]:
    """Return what was measured before; empty if nothing was, or if it cannot be read."""
    with suppress(OSError, DamagedError, TypeError, ValueError, RuntimeError):  # (none yet, or no home)
        return dict(documents.read_json(cache_file(kind)))
    return {}


def remember(kind: str, measured: dict[str, Any]) -> None:
    """Keep it, if the folder can be written; otherwise it is measured again the next time."""
    with suppress(OSError, RuntimeError):
        documents.write_json(cache_file(kind), measured)


# ------------------------------------------------------------------------------------------------------- calibrate
# How fast this machine reads, writes, multiplies and looks things up: measured once, kept in the user's cache folder.
#
# What a stage states as bytes, operations and look-ups becomes seconds by these rates. Each is the best of several
# short tries, so that other work on the machine does not make it look slow for good; all of them take a second or
# two.

TRIES = 5
ROWS, COLUMNS = 1 << 16, 64
"""Of the block that is written and read: 16 MiB of float32."""
SIDE = 512
"""Of the matrices that are multiplied."""
BUSY = 0.6
"""Load of a processor above which speeds are measured again when it is less."""
SHARED_BYTES = 16 << 20
"""That each worker writes to measure what all of them together move."""
UNMEASURED = 200e6
"""Bytes a second of a disk that has no room to be measured."""
LOOKS = 1 << 20
TABLE = 1 << 23


@dataclass(frozen=True)
class Rates:
    """How much one process with one thread does in a second."""

    read: float
    """Bytes of a stored block, checked."""
    write: float
    """Bytes of a stored block."""
    product: float
    """Floating-point operations of a product of float64 matrices."""
    look: float
    """Entries taken from random places of an array that no cache holds."""
    term: float = 2e9
    """Terms |x − y| of city-block distances between rows."""
    exchange: float = 1e9
    """Bytes that a task leaves for another, which maps them."""
    load: float = 0.0
    """Of a processor, by other work, when they were measured."""

    @property
    def doubt(self) -> str:
        """Return what to say of speeds that were measured beside other work."""
        if self.load <= BUSY:
            return ""
        return f"; its speed was measured at a load of {self.load:.1f} a processor, and will be again when it is idle"


def rates(folder: AnyPath, renew: bool = False) -> Rates:
    """Return the rates of this machine, and of the file system of ``folder``: remembered, or measured now.

    What is measured leaves nothing in the memory of this process, which is planned without it.
    """
    known, load = {} if renew else read_measurements("rates"), load_now()
    place = _storage_name(folder)
    for group in ("compute", place):
        if _doubtful(known.get(group), load):
            known.pop(group, None)
    measures = {"product": _product, "look": _look, "term": _term}
    compute = _usable(known, "compute")  # (other versions measure fewer things, or more)
    added = {name: measure() for name, measure in measures.items() if name not in compute}
    known["compute"] = compute | added | {"load": load if added else _load_of(known["compute"])}
    here, names = _usable(known, place), ("read", "write", "exchange")
    if not set(names) <= here.keys():
        use_one_heap()
        try:
            here |= dict(zip(names, _storage(folder), strict=True))
        except OSError:  # (a full disk: what it takes is planned all the same, and nothing is remembered)
            here |= {"read": UNMEASURED, "write": UNMEASURED}
        else:
            known[place] = here = here | {"load": load}
        trim_heap()
    remember("rates", known)
    loads = [_load_of(known[group]) for group in ("compute", place) if group in known]
    found = known["compute"] | here | {"load": max(loads)}
    return Rates(**{field.name: found[field.name] for field in fields(Rates) if field.name in found})


def load_now() -> float:
    """Return the load average of the last minute, by processor."""
    return round(os.getloadavg()[0] / len(os.sched_getaffinity(0)), 2)


def _doubtful(group: Any, load: float) -> bool:
    """Whether rates were measured beside other work, or nobody knows beside what, and may be measured better now."""
    known = _load_of(group)
    return known is None or known > BUSY >= load


def _load_of(group: Any) -> Any:
    """Return the load at which a group of rates was measured; None if it was not noted."""
    found = group.get("load") if isinstance(group, dict) else None
    return found if isinstance(found, (int, float)) and found >= 0 else None


def _storage_name(folder: AnyPath) -> str:
    return f"storage {folder.root if isinstance(folder, ObjectPath) else os.stat(folder).st_dev}"


def shared_bandwidth(client: Any, folder: AnyPath, renew: bool = False) -> float | None:
    """Return bytes a second that all workers of a client together write in a folder, measured or remembered; None where
    one cannot write there (the proof of access says which).

    Reading is taken to be as quick: of what was written just now it would come from the memory of the machines.
    """
    known, load = read_measurements("rates"), load_now()
    name = f"shared by {len(client.scheduler_info(n_workers=-1)['workers'])}, {_storage_name(folder)}"
    if renew or _doubtful(known.get(name), load) or not (found := _usable(known, name)).get("bandwidth"):
        seconds = list(client.run(write_beside_others, str(folder), on_error="return").values())
        if not seconds or not all(isinstance(one, float) for one in seconds):
            return None
        found = {"bandwidth": len(seconds) * SHARED_BYTES / max(seconds)}
        known[name] = found | {"load": load}
        remember("rates", known)
    return found["bandwidth"]


def write_beside_others(folder: str) -> float:
    """In a worker, while the others do so: the seconds of writing some bytes for good; they are gone afterwards."""
    path, data = at(folder) / f".bigembed-rates-{uuid.uuid4().hex}", os.urandom(SHARED_BYTES)
    began = time.perf_counter()
    try:
        path.write_bytes(data)
        if not isinstance(path, ObjectPath):
            with path.open("rb") as file:
                os.fsync(file.fileno())
        return time.perf_counter() - began
    finally:
        path.unlink(missing_ok=True)


def _usable(known: dict[str, Any], group: str) -> dict[str, float]:
    """Return what was remembered of a group, as far as it is a rate."""
    found = known.get(group)
    rates = found.items() if isinstance(found, dict) else ()
    usable = {name: rate for name, rate in rates if isinstance(rate, (int, float)) and 0 < rate < float("inf")}
    return {name: float(rate) for name, rate in usable.items() if name != "load"}


def _best(work: Callable[[], Any]) -> float:
    """Return seconds of the quickest try."""
    found = []
    for _ in range(TRIES):
        began = time.perf_counter()
        work()
        found.append(time.perf_counter() - began)
    return max(min(found), 1e-9)


def _product() -> float:
    left = np.random.default_rng(0).normal(size=(SIDE, SIDE))
    with one_blas_thread():
        return float(2 * SIDE**3 / _best(lambda: left @ left))


def _look() -> float:
    random = np.random.default_rng(0)
    table, places = random.normal(size=TABLE), random.integers(0, TABLE, LOOKS)
    return float(LOOKS / _best(lambda: table[places].sum()))


def _term() -> float:
    rows = np.random.default_rng(0).normal(size=(SIDE, COLUMNS))
    return float(SIDE**2 * COLUMNS / _best(lambda: cdist(rows, rows, "cityblock")))


def _storage(folder: AnyPath) -> tuple[float, float, float]:
    """Return bytes a second that the store reads, writes and exchanges in a folder; what was written is gone
    afterwards."""
    from bigembed.store.arrays import create_rows, read_array, write_rows
    from bigembed.store.exchange import Exchange

    rows = np.random.default_rng(0).normal(size=(ROWS, COLUMNS)).astype(np.float32)
    with _scratch(folder) as path:

        def write() -> None:
            create_rows(path, rows.shape, rows.dtype, ROWS, overwrite=True)
            write_rows(path, 0, rows)

        def exchange() -> None:
            Exchange(path).put("rows", 0, {"own": rows})
            Exchange(path).mapped("rows", 0, ["own"])[0].sum()

        written, read = _best(write), _best(lambda: read_array(path))
        return rows.nbytes / read, rows.nbytes / written, rows.nbytes / _best(exchange)


@contextmanager
def _scratch(folder: AnyPath) -> Iterator[str]:
    """A place for rows in the folder, or in the one for temporary files where this one may not be written."""
    if isinstance(folder, ObjectPath):
        place = folder / f".bigembed-rates-{uuid.uuid4().hex}"
        try:
            yield str(place)
        finally:
            remove(place)
        return
    home = folder if os.access(folder, os.W_OK) else None
    with temporary("rates", home, hidden=True) as scratch:
        yield f"{scratch}/rows"


# ------------------------------------------------------------------------------------------------------- footprint
# What the processes of a job hold before any data.

KEPT = 8
"""Footprints remembered: of several environments, or numbers of threads."""
SCIKIT_LEARN = 105 << 20
"""Bytes of scikit-learn, with pandas, in the coordinating process, unless a command runs in it
(:func:`bigembed.errors.uses_scikit_learn`). Not measured with the rest: the process that measures would be larger than
a small job."""
PATIENCE = 600
"""Seconds that measuring may take: a machine with very much other work needs a hundred times as long."""
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
    now, known = _measured_with(), read_measurements("footprint")
    if not renew:
        with suppress(TypeError, KeyError):  # (measured never, or by another version)
            if not _doubtful(known[now], load_now()):
                return Footprint(**known[now]["footprint"])
    others = [one for one in known if one != now and isinstance(known[one], dict)][1 - KEPT :]
    load, measured = load_now(), _measured()
    entry = {"measured": time.time(), "load": load, "footprint": measured}
    remember("footprint", {**{one: known[one] for one in others}, now: entry})
    return Footprint(**measured)


def _measured() -> dict[str, Any]:
    began = time.perf_counter()
    command, own = [sys.executable, "-m", "bigembed.jobs.idle"], {**os.environ, "NUMBA_NUM_THREADS": "1"}
    try:
        done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=PATIENCE, env=own)
    except subprocess.TimeoutExpired as error:
        raise InterruptedRun(
            f"what a worker holds before any data was not measured within {PATIENCE} s, where some five are enough: "
            "other processes take this machine. Run again when it is idle; it is measured once, and remembered"
        ) from error
    if done.returncode:
        raise RuntimeError(f"the footprint of a worker could not be measured: {done.stderr[-2000:]}")
    return {**json.loads(done.stdout.splitlines()[-1]), "start": time.perf_counter() - began}


def _measured_with() -> str:
    """Return a digest of what decides how much a process holds: a change of any of it asks for a new measurement."""
    files = sorted(Path(bigembed.__file__).parent.rglob("*.py"))
    ours = [((about := file.stat()).st_size, about.st_mtime_ns) for file in files]
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


@cache
def load_algebra() -> None:
    """Load what every process of a job uses, by using it, once."""
    import scipy.linalg
    import scipy.sparse.csgraph
    import scipy.sparse.linalg  # noqa: F401

    from bigembed.store.arrays import read_array, write_array

    with temporary("measure") as folder:
        write_array(f"{folder}/rows", np.ones((4, 4)))
        read_array(f"{folder}/rows")


@cache
def load_arrays() -> None:
    """Load what results are handed out as: by the coordinating process alone."""
    import dask.array as da
    from dask.local import get_sync

    da.ones(4, chunks=2).sum().compute(scheduler=get_sync)  # (by name, it would load distributed)
