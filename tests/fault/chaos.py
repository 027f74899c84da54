"""Jobs that are disturbed at a random step, and run again: the same bytes, and nothing of them is left.

``python -m tests.fault.chaos FOLDER COUNT [SEED [WORD]]`` runs a job undisturbed, and then COUNT times one that is
disturbed once: its worker is killed, frozen or out of memory, its nanny or its scheduler is killed, its disk fills up,
or it is killed or told to stop itself. Half of them have workers of their own, half are on a running cluster. Prints a
line a case, and at the end the counts and the problems; exit status 1 if there are any. A case depends on SEED and its
number; with a WORD only those are run whose disturbance it is a part of. Jobs are forks of this process, which has
everything loaded, measured the machine, and never started a thread.
"""

from __future__ import annotations

import json
import os
import random
import resource
import shutil
import signal
import sys
import time
from collections import Counter
from collections.abc import Callable
from contextlib import ExitStack, suppress
from dataclasses import dataclass, field
from hashlib import sha256
from pathlib import Path
from typing import Any

import dask.array
import dask.threaded  # noqa: F401
import distributed.deploy.local
import distributed.nanny  # noqa: F401
import numpy as np
import psutil
import scipy.sparse.csgraph
import scipy.sparse.linalg  # noqa: F401
import zarr.codecs  # noqa: F401

import bigembed.jobs.places.cluster
import bigembed.jobs.run
import bigembed.jobs.watching.console
import bigembed.maps.walk.diffusion_map  # noqa: F401
from bigembed.cli import app
from bigembed.jobs.planning import footprint
from bigembed.store.locks import holder
from tests.fault.disks import fill, limit_files, small_disk
from tests.fault.night import Cluster

JOB = """[input]
path = "rows.npy"
[method]
name = "diffusion_map"
n_components = 2
n_neighbors = 8
components = "largest"
[output]
path = "run.zarr"
table = "map.npy"
model = "model.zarr"
[cluster]
frozen_timeout = 4.0
"""
OWN = 'workers = 2\nmemory = "1 GiB"\n'
HANG = 240.0
"""Seconds after which a job is said to hang."""
FAULTS = {
    "own": ("worker killed", "worker frozen", "out of memory", "disk full", "job killed", "job stopped"),
    "running": ("worker killed", "worker frozen", "nanny killed", "scheduler killed", "job killed", "job stopped"),
}
ALLOWED = {"job killed": (-signal.SIGKILL, 0), "job stopped": (5, 0)}
"""Exit statuses by fault; others end in 0, or by an error that says what to do."""


@dataclass
class Case:
    """One disturbed job."""

    number: int
    place: str
    fault: str
    step: int
    """The line of output after which it is disturbed."""
    delay: float
    """Seconds from then on."""
    statuses: list[int] = field(default_factory=list)
    problems: list[str] = field(default_factory=list)
    seconds: float = 0.0


def draw(seed: int, number: int, steps: int) -> Case:
    """The case of this number."""
    chance = random.Random(f"{seed}-{number}")
    place = chance.choice(sorted(FAULTS))
    return Case(number, place, chance.choice(FAULTS[place]), chance.randrange(steps), chance.uniform(0.0, 0.5))


def spoken(folder: Path, name: str) -> Path:
    """What a job says, beside its folder, whose disk may be full."""
    return folder.with_name(f"{folder.name}.{name}")


def forked(folder: Path, *arguments: str) -> int:
    """The command line in a fork, in a session of its own; what it says goes to files."""
    child = os.fork()
    if child:
        return child
    os.setsid()
    os.chdir(folder)
    for stream, name in ((1, "said"), (2, "errors")):
        os.dup2(os.open(spoken(folder, name), os.O_WRONLY | os.O_CREAT | os.O_TRUNC), stream)
    status = 70
    try:
        status = app(list(arguments), standalone_mode=False) or 0
    except BaseException as error:
        sys.excepthook(type(error), error, error.__traceback__)
    finally:
        for stream in (sys.stdout, sys.stderr):
            stream.flush()
        os._exit(status)


def ended(pid: int, seconds: float) -> int | None:
    """The exit status of a fork, or None if it has not ended by then."""
    until = time.monotonic() + seconds
    while True:
        found, status = os.waitpid(pid, os.WNOHANG)
        if found:
            return os.waitstatus_to_exitcode(status)
        if time.monotonic() > until:
            return None
        time.sleep(0.01)


def lines(folder: Path) -> int:
    """How many lines a job has said."""
    path = spoken(folder, "said")
    return path.read_bytes().count(b"\n") if path.exists() else 0


def workers(pid: int) -> list[psutil.Process]:
    """The worker processes that a process started."""
    with suppress(psutil.Error):
        return [child for child in psutil.Process(pid).children() if "spawn_main" in " ".join(child.cmdline())]
    return []


def session(pid: int) -> list[psutil.Process]:
    """What runs in a session still."""
    found = []
    for process in psutil.process_iter():
        with suppress(psutil.Error, OSError):
            if os.getsid(process.pid) == pid and process.status() != psutil.STATUS_ZOMBIE:
                found.append(process)
    return found


def choke(worker: psutil.Process) -> None:
    """No more memory for a worker than it has."""
    worker.rlimit(resource.RLIMIT_AS, (worker.memory_info().vms, resource.RLIM_INFINITY))


def disturb(case: Case, pid: int, folder: Path, cluster: Cluster | None) -> None:
    """Do to a job what the case says, if it is there to be done."""
    chance = random.Random(case.number)
    role = f"worker-{chance.randrange(2)}"
    parent = pid if cluster is None else cluster.processes[role].pid
    to_worker: dict[str, Callable[[psutil.Process], Any]] = {
        "worker killed": lambda worker: worker.kill(),
        "worker frozen": lambda worker: worker.suspend(),
        "out of memory": choke,
    }
    if case.fault in to_worker:
        if found := workers(parent):
            to_worker[case.fault](chance.choice(found))
    elif case.fault == "disk full":
        fill(folder) if os.path.ismount(folder) else limit_files(pid)
    elif cluster is not None and case.fault in ("nanny killed", "scheduler killed"):
        cluster.kill(role if case.fault == "nanny killed" else "scheduler")
    else:
        os.kill(pid, signal.SIGKILL if case.fault == "job killed" else signal.SIGTERM)


def prepare(folder: Path, rows: Path, own: bool) -> None:
    """A job in a folder."""
    folder.mkdir(exist_ok=True)
    (folder / "rows.npy").symlink_to(rows)
    (folder / "job.toml").write_text(JOB + (OWN if own else ""))


def digests(folder: Path) -> dict[str, str]:
    """Of every file that holds results."""
    files = [
        *(folder / "run.zarr" / "stages").rglob("*"),
        *(folder / "model.zarr" / "stages").rglob("*"),
        folder / "map.npy",
    ]
    return {str(file.relative_to(folder)): sha256(file.read_bytes()).hexdigest() for file in files if file.is_file()}


def disturbed(case: Case, folder: Path, cluster: Cluster | None, expected: dict[str, str]) -> None:
    """Run the job of a folder, disturb it, run it again, and look at what is there."""
    where = [] if cluster is None else ["--scheduler", cluster.address]
    pid = forked(folder, "run", "job.toml", "--json", *where)
    status, until = None, time.monotonic() + HANG
    while lines(folder) < case.step and status is None and time.monotonic() < until:
        status = ended(pid, 0.0)
    if status is None:
        status = ended(pid, case.delay)
    if status is None:
        disturb(case, pid, folder, cluster)
        status = ended(pid, HANG)
    _judge(case, pid, status, folder)
    (folder / "filler").unlink(missing_ok=True)
    for _ in range(4):
        pid = forked(folder, "run", "job.toml", "--json", *where)
        status = ended(pid, HANG)
        if status == 0 or cluster is None:
            break
        time.sleep(2.0)  # (a running cluster may be on its way up)
    _judge(case, pid, status, folder, last=True)
    if digests(folder) != expected:
        case.problems.append("other bytes")


def _judge(case: Case, pid: int, status: int | None, folder: Path, last: bool = False) -> None:
    """How a job ended, and what it left."""
    if status is None:
        case.problems.append("hangs")
        os.killpg(pid, signal.SIGKILL)
        status = ended(pid, 10.0)
    case.statuses.append(-1 if status is None else status)
    errors = spoken(folder, "errors").read_text()
    allowed = (0,) if last else ALLOWED.get(case.fault, (0, 1, 2, 5))
    if status not in allowed or "Traceback" in errors:
        case.problems.append(f"exit status {status}: {errors[-1500:]}")
    if (
        status not in (0, -signal.SIGKILL)
        and len([line for line in errors.splitlines() if line.startswith("error: ")]) != 1
    ):
        case.problems.append(f"not one line: {errors[-1500:]}")
    if left := psutil.wait_procs(session(pid), timeout=20)[1]:
        case.problems.append(f"orphans: {[(process.pid, process.name(), process.status()) for process in left]}")
        for process in left:
            process.kill()
    if (folder / "run.zarr").exists() and holder(folder / "run.zarr") is not None:
        case.problems.append("a lock is left")
    if last:
        folders = list(Path(os.environ["TMPDIR"]).glob("bigembed-*"))
        names = [path.name for path in folders] + [path.name for path in folder.rglob("*partial*")]
        case.problems += [f"left: {names}"] if names else []
        for path in folders:
            shutil.rmtree(path)


def chaos(folder: Path, cases: Callable[[int], list[Case]]) -> list[Case]:
    """All cases, one after the other; ``cases`` of the lines that an undisturbed job says."""
    (folder / "tmp").mkdir(parents=True)
    os.environ |= {"TMPDIR": str(folder / "tmp"), "OMP_NUM_THREADS": "1"}
    import tempfile

    tempfile.tempdir = None
    rows = np.random.default_rng(0).normal(size=(3_000, 6)).astype("f4")
    np.save(folder / "rows.npy", rows)
    footprint()
    undisturbed = folder / "undisturbed"
    prepare(undisturbed, folder / "rows.npy", own=True)
    assert ended(forked(undisturbed, "run", "job.toml", "--json"), HANG) == 0, spoken(undisturbed, "errors").read_text()
    expected = digests(undisturbed)
    drawn = cases(lines(undisturbed))
    with ExitStack() as stack:
        running = None
        for case in drawn:
            if case.place == "running" and running is None:
                (folder / "cluster").mkdir()
                running = stack.enter_context(Cluster(folder / "cluster", nanny=True))
            one(case, folder, running if case.place == "running" else None, expected)
    return drawn


def one(case: Case, folder: Path, cluster: Cluster | None, expected: dict[str, str]) -> None:
    """One case, told."""
    began, home = time.monotonic(), folder / f"case-{case.number}"
    with small_disk(home, "120m") if case.fault == "disk full" else ExitStack():
        prepare(home, folder / "rows.npy", own=cluster is None)
        disturbed(case, home, cluster, expected)
    case.seconds = time.monotonic() - began
    verdict = "; ".join(case.problems) or "the same bytes"
    told = f"{case.number:4} {case.place:8} {case.fault:16} line {case.step:3} {case.statuses} {case.seconds:5.1f} s"
    print(f"{told}: {verdict}", flush=True)


def main(folder: Path, count: int, seed: int = 0, word: str = "") -> int:
    """All of it."""

    def cases(steps: int) -> list[Case]:
        return [case for number in range(count) if word in (case := draw(seed, number, steps)).fault]

    found = chaos(folder, cases)
    counts = Counter(f"{case.place}: {case.fault}" for case in found)
    ends = Counter(case.statuses[0] for case in found)
    wrong = [case.number for case in found if case.problems]
    told = {
        "cases": len(found),
        "faults": dict(sorted(counts.items())),
        "first exit statuses": dict(sorted(ends.items())),
    }
    print(json.dumps(told | {"seconds": round(sum(case.seconds for case in found)), "problems": wrong}, indent=1))
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1]).absolute(), int(sys.argv[2]), int((sys.argv[3:] or ["0"])[0]), *sys.argv[4:5]))
