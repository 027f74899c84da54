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
from contextlib import suppress
from pathlib import Path

import numpy as np

ROOT = Path(__file__).parents[2]
STEPS = 10
JOB = """
[input]
path = "points.zarr"
[method]
name = "{method}"
n_components = 3
{more}
[output]
path = "growing.zarr"
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


def write_job(
    folder: Path, method: str = "diffusion_map", more: str = 'n_neighbors = 12\ncomponents = "largest"'
) -> Path:
    """A job file on ``points.zarr`` beside it."""
    folder.mkdir(exist_ok=True)
    (folder / "job.toml").write_text(JOB.format(method=method, more=more))
    return folder / "job.toml"


def start(script: str, job: Path, *options: str) -> subprocess.Popen[str]:
    """A script of ``workflows/`` as a scheduler calls it."""
    command = [sys.executable, str(ROOT / "workflows" / f"{script}.py"), str(job), "--json", *options]
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    return subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, cwd=job.parent, env=environment
    )


class Cluster:
    """``dask scheduler`` and two ``dask worker`` processes; what dies is started again, as a supervisor would."""

    def __init__(self, folder: Path) -> None:
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
            command = ["worker", self.address, "--nthreads", "1", "--memory-limit", "1GiB", "--no-nanny"]
            command += ["--no-dashboard", "--host", "127.0.0.1", "--death-timeout", "20"]
            command += ["--local-directory", str(self.folder)]
        module = f"distributed.cli.dask_{command[0]}"
        environment = {**os.environ, "PYTHONPATH": str(ROOT), "NUMBA_NUM_THREADS": "1"}
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
    """Kills the job, a worker or the scheduler at random moments after its start, and counts."""

    def __init__(self, cluster: Cluster, seed: int) -> None:
        self.cluster, self.random = cluster, random.Random(seed)
        self.kills = {"job": 0, "worker": 0, "scheduler": 0}
        self.blows = 0

    def strike(self, process: subprocess.Popen[str], kind: str, latest: float) -> None:
        """Wait for a random moment, then kill, if the job is still at work."""
        with suppress(subprocess.TimeoutExpired):
            process.wait(self.random.uniform(0.3, 1.0) * latest)
        if process.poll() is None:
            self.blows += 1
            role = f"worker-{self.random.randrange(2)}" if kind == "worker" else kind
            if kind == "job":
                process.kill()
            elif not self.cluster.kill(role):
                return
            self.kills[kind] += 1


def finish(process: subprocess.Popen[str]) -> tuple[int, dict[str, object], str]:
    """Exit status, the last event and the messages of a job."""
    out, problems = process.communicate(timeout=240)
    lines = [line for line in out.splitlines() if line.startswith("{")]
    return process.returncode, json.loads(lines[-1]) if lines else {}, problems


def insist(
    script: str, job: Path, address: str, killer: Killer | None = None, kinds: tuple[str, ...] = (), latest: float = 6.0
) -> tuple[int, list[int]]:
    """Call a script until it is through (status 0 or 7), the first calls under fire. Returns the last status, and all."""
    seen: list[int] = []
    for attempt in range(12):
        process = start(script, job, "--scheduler", address)
        if killer is not None and attempt < len(kinds):
            killer.strike(process, kinds[attempt], latest)
        code, last, problems = finish(process)
        seen.append(code)
        if code in (0, 7):
            return code, seen
        assert code in (-signal.SIGKILL, 1, 5), (script, seen, last, problems)
        assert "Traceback" not in problems, problems
        time.sleep(0.5)
    raise AssertionError((script, seen, last, problems))
