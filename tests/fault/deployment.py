"""A scheduler, its workers, an S3 server and whoever submits jobs, each on a host of its own; jobs through the store.

The processes are those of the guide: ``dask scheduler``, ``dask worker`` with its nanny, ``bigembed run``. The store
is the only thing that they share.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import tomli_w

from bigembed.maps import method
from bigembed.store.arrays import write_array
from tests.cases import CASES
from tests.digests import MADE, published
from tests.fault.hosts import PATIENCE, ROOT, Host, Network, Program, wait_until
from tests.s3 import KEY, SECRET, server_command
from tests.small_blocks import BLOCK

SCHEDULER, S3_PORT, PROXY = 8786, 8333, 8334
SERVER_PORTS = (S3_PORT, 9333, 8080, 8888)
BUCKET = "s3://bucket"
COPY = """
import sys
from bigembed.store import copy_files, stored
copy_files(sys.argv[1], sys.argv[2], [file.name for file in stored(sys.argv[1])])
"""
UP = """
import sys, time
from bigembed.errors import BigembedError
from bigembed.store import at, put
for attempt in range(100):
    try:
        put(at(f"{sys.argv[1]}/up"), b"up")
        break
    except BigembedError:
        time.sleep(0.3)
else:
    sys.exit("the store does not come up")
"""
DIGESTS = """
import json, sys
from bigembed.store import at
from tests.digests import MADE, published
print(json.dumps(published(at(sys.argv[1]), MADE)))
"""
COLUMNS = 20


def job_of(name: str, rows: str, out: str, labels: str | None, cluster: Mapping[str, Any]) -> str:
    """The job file of the first case of a method."""
    given = {key: list(value) if isinstance(value, tuple) else value for key, value in CASES[name].parameters.items()}
    known = {"n_components": 3} if "n_components" in CASES[name].estimator().get_params() else {}
    column = {"labels": labels} if labels and "labels" in method(name).needs else {}
    tables = {
        "input": {"path": rows, **column},
        "method": {"name": name, **known, **given},
        "output": {"path": out},
        **({"cluster": dict(cluster)} if cluster else {}),
    }
    return tomli_w.dumps(tables)


def write_rows(folder: Path, n: int) -> None:
    """Positive rows in overlapping clusters, and the numbers of these."""
    random = np.random.default_rng(0)
    labels = random.integers(0, 12, n)
    centers = 0.7 * random.normal(size=(12, COLUMNS))
    write_array(folder / "rows.zarr", np.abs(12 + centers[labels] + random.normal(size=(n, COLUMNS))).astype("f4"))
    write_array(folder / "labels.zarr", labels)


class Reference:
    """Runs of one process with files: what they publish, and how long they take, what they compile included."""

    def __init__(self, folder: Path, n: int, block: int, compiled: Path | None = None) -> None:
        self.folder, self.block, self.compiled = folder, block, compiled or folder / "numba"
        self.seconds: dict[str, float] = {}
        self.found: dict[str, dict[str, str]] = {}
        folder.mkdir()
        self.compiled.mkdir(exist_ok=True)
        write_rows(folder, n)

    def run(self, name: str) -> dict[str, str]:
        """What each stage of a method publishes, by its digest."""
        if name not in self.found:
            (home := self.folder / name).mkdir()
            text = job_of(name, "../rows.zarr", "run.zarr", "../labels.zarr", {})
            (home / "job.toml").write_text(text)
            variables = {"PYTHONPATH": str(ROOT), "NUMBA_CACHE_DIR": str(self.compiled), BLOCK: str(self.block)}
            command = [sys.executable, "-m", "tests.small_blocks", "run", "job.toml"]
            began, environment = time.monotonic(), {**os.environ, **variables}
            done = subprocess.run(command, cwd=home, env=environment, capture_output=True, text=True, check=False)
            if done.returncode:
                raise RuntimeError(f"{name} in one process ended with {done.returncode}: {done.stderr}")
            self.seconds[name] = time.monotonic() - began
            self.found[name] = published(home / "run.zarr", MADE)
        return self.found[name]


class Job:
    """A job that the submitter runs, its events as it prints them."""

    def __init__(self, deployment: Deployment, name: str, out: str, label: str, **variables: str) -> None:
        self.name, self.out, submitter = name, out, deployment.submitter
        cluster = {"address": deployment.address, "workers": len(deployment.workers), **deployment.cluster}
        text = job_of(name, f"{BUCKET}/rows.zarr", out, f"{BUCKET}/labels.zarr", cluster)
        (submitter.own / f"{label}.toml").write_text(text)
        self.began = time.monotonic()
        words = ("-m", "tests.small_blocks", "run", f"{label}.toml", "--json")
        self.program = submitter.python(label, *words, **deployment.environment, **variables)

    def events(self) -> list[dict[str, Any]]:
        """What it has printed so far, of what can be read."""
        lines = self.program.said().splitlines()
        return [json.loads(line) for line in lines if line.startswith("{") and line.endswith("}")]

    def reaches(self, stage: str) -> None:
        """Wait until it is in a stage."""
        began = {"event": "start", "stage": stage}
        wait_until(lambda: any(began.items() <= line.items() for line in self.events()), f"{self.name}: {stage}",
                   5 * PATIENCE, self.program)  # fmt: skip

    def end(self, seconds: float = 1_800) -> tuple[int, float]:
        """Its exit status, and the seconds that it took."""
        return self.program.end(seconds), time.monotonic() - self.began

    def messages(self) -> str:
        """What it printed that is no event."""
        lines = self.program.said().splitlines()
        events = [str(line["message"]) for line in self.events() if line.get("message")]
        return "\n".join([line for line in lines if not line.startswith("{")] + events)


class Deployment:
    """Hosts ``store``, ``scheduler``, ``submitter``, and ``worker-0``, … on a network."""

    def __init__(self, network: Network, workers: int, reference: Reference, proxy: bool = False) -> None:
        self.network, self.reference, self.compiled = network, reference, reference.compiled
        self.cluster: dict[str, Any] = {}
        """What job files say of the cluster besides."""
        self.started = 0
        """Times that the scheduler was started."""
        self.store, self.scheduler, self.submitter = map(self._host, ("store", "scheduler", "submitter"))
        self.address = f"tcp://{self.scheduler.address}:{SCHEDULER}"
        self.environment = {
            "AWS_ACCESS_KEY_ID": KEY,
            "AWS_SECRET_ACCESS_KEY": SECRET,
            "AWS_ENDPOINT_URL": f"http://{self.store.address}:{PROXY if proxy else S3_PORT}",
            "AWS_REGION": "us-east-1",
            "AWS_ALLOW_HTTP": "true",
            BLOCK: str(reference.block),
        }
        self.start_store(proxy)
        self.start_scheduler()
        self.workers = [self._host(f"worker-{number}") for number in range(workers)]
        self.working = {host.name: self.start_worker(host) for host in self.workers}
        self._over = threading.Event()
        self._supervisor = threading.Thread(target=self._supervise, daemon=True)
        self._supervisor.start()
        for file in ("rows.zarr", "labels.zarr"):
            shutil.copytree(reference.folder / file, self.submitter.own / file)
            self.submitter.does("-c", COPY, file, f"{BUCKET}/{file}", **self.environment)

    def _host(self, name: str) -> Host:
        """A host with what is compiled of the packages, as an image would have it."""
        host = self.network.host(name)
        self.share_compiled(host)
        return host

    def share_compiled(self, *hosts: Host) -> None:
        """Give hosts what is compiled by now."""
        for host in hosts:
            shutil.copytree(self.compiled, host.own / "numba", dirs_exist_ok=True)

    def start_store(self, proxy: bool) -> None:
        """Start the server, and whoever makes trouble before it."""
        own, seen = self.store.own, self.store.folder
        command = server_command(own, self.store.address, SERVER_PORTS, seen)
        server = self.store.start("weed", *command)
        if proxy:
            self.trouble("pass")
            words = (self.store.address, str(PROXY), str(S3_PORT), str(seen / "mode"))
            self.store.python("proxy", "-m", "tests.s3", *words)
        self.submitter.does("-W", "ignore", "-c", UP, BUCKET, **self.environment)
        wait_until(server.runs, "the S3 server runs", 1.0, server)

    def trouble(self, mode: str) -> None:
        """Let the store behave so."""
        (self.store.own / "mode").write_text(mode)

    def kill_scheduler(self) -> None:
        """Kill the scheduler."""
        self.serving.kill()

    def start_scheduler(self) -> None:
        """Start the scheduler (again)."""
        words = ("--host", self.scheduler.address, "--port", str(SCHEDULER), "--no-dashboard")
        self.started += 1
        name = f"scheduler-{self.started}"
        self.serving = program = self.scheduler.python(name, "-m", "distributed.cli.dask_scheduler", *words)
        wait_until(lambda: "Scheduler at" in program.said(), "the scheduler stands", PATIENCE, program)

    def start_worker(self, host: Host) -> Program:
        """Start a worker with its nanny."""
        words = ["worker", self.address, "--host", host.address, "--nthreads", "1", "--memory-limit", "1GiB"]
        words += ["--no-dashboard", "--local-directory", f"{host.folder}/tmp", "--preload", "tests.small_blocks"]
        return host.python("worker", "-m", "distributed.cli.dask_worker", *words[1:], **self.environment,
                           NUMBA_NUM_THREADS="1", OMP_NUM_THREADS="1")  # fmt: skip

    def _supervise(self) -> None:
        """Start workers again that have ended, as they do when their scheduler is gone."""
        while not self._over.wait(1.0):
            for host in self.workers:
                if not self.working[host.name].runs():
                    self.working[host.name] = self.start_worker(host)

    def close(self) -> None:
        """Start nothing any more."""
        self._over.set()
        self._supervisor.join()

    def run(self, name: str, label: str, **variables: str) -> Job:
        """Start a job; its output lies in the store under its label."""
        return Job(self, name, f"{BUCKET}/{label}/run.zarr", label, **variables)

    def published(self, job: Job) -> dict[str, str]:
        """What each stage of a job has published, by its digest."""
        said = self.submitter.does("-W", "ignore", "-c", DIGESTS, job.out, **self.environment)
        found: dict[str, str] = json.loads(said.splitlines()[-1])
        return found


@contextmanager
def deployed(
    folder: Path, reference: Reference, workers: int, rate: float, latency: float, proxy: bool = False
) -> Iterator[Deployment]:
    """All of it, gone in the end."""
    with Network(folder, rate, latency) as network:
        deployment = Deployment(network, workers, reference, proxy)
        try:
            yield deployment
        finally:
            deployment.close()
