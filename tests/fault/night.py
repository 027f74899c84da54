"""What the night in small needs: a store that grows, a cluster that is kept alive, jobs as a scheduler calls them, and
somebody who kills."""

from __future__ import annotations

import json
import os
import random
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np

from bigembed.jobs.growth import open_growth
from bigembed.jobs.growth.audit import audit
from bigembed.jobs.growth.extend import extend
from bigembed.jobs.growth.refresh import refresh
from bigembed.jobs.job import JobSpec
from bigembed.rows.appending import append_rows
from bigembed.store import PathLike, at
from bigembed.store.arrays import create_rows, write_rows

ROOT = Path(__file__).parents[2]
STEPS = 10
JOB = """
[input]
path = "{home}/points.zarr"
[method]
name = "{method}"
n_components = 3
{more}
[output]
path = "{home}/growing.zarr"
"""


def rows_of(step: int) -> np.ndarray:
    """What is appended in a step: a curved surface; in step 6 half of it lies where no row was before."""
    generator = np.random.default_rng(step)
    u, v = generator.uniform(0, 2, size=(2, 330 if step else 600))
    z = np.zeros_like(u)
    rows = np.c_[np.cos(u), np.sin(u), v, u * v, np.cos(v), z, z, z] + 0.02 * generator.normal(size=(len(u), 8))
    if step == 6:
        rows[::2, 5:] += 1.0
    return rows.astype("f4")


def grow(home: PathLike, step: int) -> None:
    """Append the rows of a step to the store, or make it of them."""
    path, rows = at(home) / "points.zarr", rows_of(step)
    if not path.exists():
        create_rows(path, rows.shape, rows.dtype, 500)
        for first in range(0, len(rows), 500):
            write_rows(path, first, rows[first : first + 500])
    else:
        append_rows(path, rows)


def found(home: PathLike) -> tuple[bytes, list[Any], list[str]]:
    """The coordinates as bytes, their account, and what the name of the current version says of its rows."""
    version = open_growth(at(home) / "growing.zarr").current
    assert version is not None
    ranges = [(part.start, part.stop, part.how, part.rows) for part in version.ranges]
    coordinates = version.coordinates.compute(scheduler="synchronous")
    return coordinates.tobytes(), ranges, version.root.name.split("-")[1:]


def one_night(home: PathLike, job: JobSpec, step: int) -> tuple[Any, ...]:
    """A night in one process, undisturbed: whether an audit asked for a refresh, and what is there then."""
    grow(home, step)
    if not step:
        refresh(job)
    extend(job)
    due = bool(audit(job)["due"])
    if due:
        refresh(job)
    return due, *found(home)


def write_job(
    folder: Path, method: str = "diffusion_map", more: str = 'n_neighbors = 12\ncomponents = "largest"', home: str = "."
) -> Path:
    """A job file on ``points.zarr`` beside it, or in another home."""
    folder.mkdir(exist_ok=True)
    (folder / "job.toml").write_text(JOB.format(method=method, more=more, home=home))
    return folder / "job.toml"


class Call:
    """A command on a growing store as a scheduler calls it. What it prints is read as it comes."""

    def __init__(self, script: str, job: Path, *options: str) -> None:
        command = [sys.executable, "-m", "bigembed.cli", script, str(job), "--json", *options]
        environment = {**os.environ, "PYTHONPATH": str(ROOT)}
        pipe = subprocess.PIPE
        self.process = subprocess.Popen(command, stdout=pipe, stderr=pipe, text=True, cwd=job.parent, env=environment)
        self.lines: list[str] = []
        self.problems: list[str] = []
        self.working = threading.Event()
        self.readers = [
            threading.Thread(target=self._read, args=(self.process.stdout, self.lines), daemon=True),
            threading.Thread(target=self._read, args=(self.process.stderr, self.problems), daemon=True),
        ]
        for reader in self.readers:
            reader.start()

    def _read(self, stream: Iterable[str], into: list[str]) -> None:
        for line in stream:
            into.append(line)
            if '"event": "start"' in line:
                self.working.set()

    def at_work(self, seconds: float) -> bool:
        """Whether it has begun a stage, and has not ended; waits so long for it."""
        end = time.monotonic() + seconds
        while not self.working.wait(0.05) and self.process.poll() is None and time.monotonic() < end:
            continue
        return self.working.is_set() and self.process.poll() is None

    def finish(self) -> tuple[int, dict[str, object], str]:
        """Exit status, the last event and the messages."""
        self.process.wait(240)
        for reader in self.readers:
            reader.join()
        events = [json.loads(line) for line in self.lines if line.endswith("}\n")]
        return self.process.returncode, events[-1] if events else {}, "".join(self.problems)


class Cluster:
    """``dask scheduler`` and two ``dask worker`` processes; what dies is started again, as a supervisor would.

    ``nanny``: the workers are children of these processes, which watch them.
    """

    def __init__(self, folder: Path, environment: Mapping[str, str] | None = None, nanny: bool = False) -> None:
        self.nanny = nanny
        self.environment = dict(os.environ if environment is None else environment)
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            self.port = free.getsockname()[1]
        self.folder = folder
        self.address = f"tcp://127.0.0.1:{self.port}"
        self.processes: dict[str, subprocess.Popen[bytes]] = {}
        self.started: dict[str, int] = {}
        self.over = threading.Event()
        self.keeper = threading.Thread(target=self._keep, daemon=True)

    def __enter__(self) -> Cluster:
        self.keeper.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.over.set()
        self.keeper.join()
        for process in self.processes.values():
            process.kill()
            process.wait()

    def _keep(self) -> None:
        while not self.over.wait(0.2):
            for role in ("scheduler", "worker-0", "worker-1"):
                process = self.processes.get(role)
                if process is None or process.poll() is not None:
                    self.processes[role] = self._start(role)
                    self.started[role] = self.started.get(role, 0) + 1

    def _start(self, role: str) -> subprocess.Popen[bytes]:
        if role == "scheduler":
            command = ["scheduler", "--host", "127.0.0.1", "--port", str(self.port), "--no-dashboard"]
        else:
            command = ["worker", self.address, "--nthreads", "1", "--memory-limit", "1GiB"]
            command += [] if self.nanny else ["--no-nanny"]
            command += ["--no-dashboard", "--host", "127.0.0.1", "--death-timeout", "20"]
            command += ["--local-directory", str(self.folder)]
        module = f"distributed.cli.dask_{command[0]}"
        environment = {**self.environment, "PYTHONPATH": str(ROOT), "NUMBA_NUM_THREADS": "1"}
        with open(self.folder / f"{role}.log", "ab") as log:
            return subprocess.Popen(
                [sys.executable, "-m", module, *command[1:]], stdout=log, stderr=log, env=environment, cwd=self.folder
            )

    def kill(self, role: str) -> bool:
        """Whether it was there to be killed."""
        process = self.processes.get(role)
        if process is None or process.poll() is not None:
            return False
        process.send_signal(signal.SIGKILL)
        return True


class Killer:
    """Kills the job, a worker or the scheduler at random moments, and counts."""

    def __init__(self, cluster: Cluster, seed: int) -> None:
        self.cluster, self.random = cluster, random.Random(seed)
        self.kills = {"job": 0, "worker": 0, "scheduler": 0}

    def strike(self, call: Call, kind: str, latest: float) -> None:
        """Wait for a random moment, then kill, if the job is still at work.

        A job is killed any time after its start, also before it works; what it works with, once it works.
        """
        if kind != "job" and not call.at_work(60):
            return
        wait = self.random.uniform(0.2, 1.0) * latest if kind == "job" else self.random.uniform(0.0, 0.6)
        with suppress(subprocess.TimeoutExpired):
            call.process.wait(wait)
        if call.process.poll() is None:
            role = f"worker-{self.random.randrange(2)}" if kind == "worker" else kind
            if kind == "job":
                call.process.kill()
            elif not self.cluster.kill(role):
                return
            self.kills[kind] += 1


def insist(
    script: str, job: Path, address: str, killer: Killer | None = None, kinds: tuple[str, ...] = (), latest: float = 6.0
) -> tuple[int, list[int]]:
    """Call a script until it is through (0 or 7), the first calls under fire. Returns the last status, and all."""
    seen: list[int] = []
    for attempt in range(12):
        call = Call(script, job, "--scheduler", address)
        if killer is not None and attempt < len(kinds):
            killer.strike(call, kinds[attempt], latest)
        code, last, problems = call.finish()
        seen.append(code)
        if code in (0, 7):
            return code, seen
        assert code in (-signal.SIGKILL, 1, 5), (script, seen, last, problems)
        assert code == -signal.SIGKILL or "\nerror: " in "\n" + problems, problems
        time.sleep(0.5)
    raise AssertionError((script, seen, last, problems))
