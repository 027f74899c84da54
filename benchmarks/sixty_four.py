"""Sixty-four worker processes with nannies on this machine: coordination, not speed.

    python benchmarks/sixty_four.py                      # diffusion map and UMAP, undisturbed and with what goes wrong

`dask scheduler` and eight `dask worker` of eight processes each, with nannies, as eight machines would have them, and
with the settings of `deploy/dask.yaml`; real jobs, started as a process, on files. Blocks are small, so that every
worker has some. All stages have to be the same bytes as with one worker. Then eight workers are killed at once, one is
frozen (SIGSTOP), and one gets a tenth of its time (SIGSTOP and SIGCONT, again and again). Printed are the processor
time of the scheduler and of the process that hands out tasks, per task too; their sockets and open files; the memory
of a worker.

The workers share the few cores of this machine, so that seconds say nothing of what sixty-four cores would take. It
needs about 14 GiB. It ends with status 1 where bytes differ or a job ends otherwise than it should.
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import psutil

sys.path.insert(0, str(Path(__file__).parents[1]))

from common import data_set, keep, table

from tests.digests import published
from tests.fault.hosts import ROOT
from tests.small_blocks import BLOCK

METHODS = {"diffusion_map": "", "umap": "n_epochs = 30"}
JOB = """
[input]
path = "{rows}"
[method]
name = "{method}"
n_components = 2
{parameters}
[output]
path = "{out}"
[cluster]
address = "{address}"
workers = {workers}
frozen_timeout = {frozen}
"""
FROZEN = 40
"""Seconds after which a frozen worker is given up here (by default 120)."""
NODES = 8
KILLED = 8
SLICE, STOPPED = 0.05, 0.45
"""Seconds for which the slow worker runs, and then does not."""
GIB, MIB = 1 << 30, 1 << 20
RESIDENT = 210 * MIB
"""Memory of a worker, about."""


class Cluster:
    """A scheduler and workers with nannies, some to each ``dask worker``."""

    def __init__(self, folder: Path, workers: int, block: int) -> None:
        self.folder, self.workers = folder, workers
        self.environment = {**os.environ, "PYTHONPATH": str(ROOT), BLOCK: str(block)}
        self.environment |= {"NUMBA_NUM_THREADS": "1", "OMP_NUM_THREADS": "1", "MALLOC_ARENA_MAX": "1"}
        self.environment.pop("PYTHONDONTWRITEBYTECODE", None)  # (64 processes would compile the package anew)
        self.environment["DASK_CONFIG"] = str(ROOT / "deploy" / "dask.yaml")
        self.nodes: list[subprocess.Popen[bytes]] = []

    def __enter__(self) -> Cluster:
        from distributed import Client

        file = self.folder / "scheduler.json"
        words = ["--host", "127.0.0.1", "--port", "0", "--no-dashboard", "--scheduler-file", str(file)]
        self.scheduler = self.start("scheduler", *words)
        while not file.exists():
            time.sleep(0.1)
        self.address = json.loads(file.read_text())["address"]
        nodes = min(NODES, self.workers)
        for number in range(nodes):
            words = [self.address, "--nworkers", str(self.workers // nodes), "--nthreads", "1", "--host", "127.0.0.1"]
            words += ["--memory-limit", "1GiB", "--no-dashboard", "--preload", "tests.small_blocks"]
            self.nodes.append(self.start("worker", *words, "--local-directory", str(self.folder / f"node-{number}")))
        with Client(self.address, set_as_default=False) as client:
            client.wait_for_workers(self.workers, timeout=600)
        return self

    def __exit__(self, *_: object) -> None:
        for process in (*self.nodes, self.scheduler):
            with suppress(psutil.Error):
                for child in psutil.Process(process.pid).children(recursive=True):
                    with suppress(psutil.Error):
                        child.kill()
            process.kill()
            process.wait()

    def start(self, what: str, *words: str) -> subprocess.Popen[bytes]:
        """Start a command of Dask."""
        with open(self.folder / f"{what}.log", "ab") as log:
            command = [sys.executable, "-m", f"distributed.cli.dask_{what}", *words]
            return subprocess.Popen(command, stdout=log, stderr=log, env=self.environment, cwd=self.folder)

    def said(self) -> str:
        """The last lines of what Dask's processes have logged."""
        tails = (file.read_text(errors="replace").splitlines()[-40:] for file in sorted(self.folder.glob("*.log")))
        return "\n".join(line for tail in tails for line in tail)

    def processes(self) -> list[psutil.Process]:
        """The workers: what nannies have started."""
        found = []
        for node in self.nodes:
            with suppress(psutil.Error):
                found += [child for child in psutil.Process(node.pid).children() if is_worker(child)]
        return found


def is_worker(process: psutil.Process) -> bool:
    """Return whether a process is one that a nanny has spawned, and none that keeps its books."""
    with suppress(psutil.Error):
        return "spawn_main" in " ".join(process.cmdline())
    return False


class Watched:
    """What processes take while a job runs, looked at once a second."""

    def __init__(self, cluster: Cluster, job: psutil.Process) -> None:
        self.cluster, self.scheduler, self.job = cluster, psutil.Process(cluster.scheduler.pid), job
        self.peak: dict[str, float] = {}
        self.before, self.after = self._cpu(), self._cpu()
        self.worker_memory: list[int] = []
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._watch, daemon=True)
        self._thread.start()

    def end(self) -> None:
        """Look no more."""
        self._over.set()
        self._thread.join()

    def _cpu(self) -> dict[str, float]:
        found = {}
        for name, process in (("scheduler", self.scheduler), ("job", self.job)):
            with suppress(psutil.Error):
                found[name] = sum(process.cpu_times()[:2])
        found["workers"] = sum(seconds_of(process) for process in self.cluster.processes())
        return found

    def _watch(self) -> None:
        while not self._over.wait(1.0):
            self.after |= self._cpu()
            with suppress(psutil.Error):
                self._most("files of the scheduler", self.scheduler.num_fds())
                self._most("sockets of the scheduler", sockets(self.scheduler.pid))
                self._most("scheduler MiB", self.scheduler.memory_info().rss / MIB)
                self._most("job MiB", self.job.memory_info().rss / MIB)
            workers = self.cluster.processes()
            resident = [memory(process) for process in workers]
            self._most("workers GiB", sum(resident) / GIB)
            self._most("worker MiB, largest", max(resident, default=0) / MIB)
            self._most("worker MiB, median", statistics.median(resident or [0]) / MIB)
            self._most("files of a worker", max((files(process) for process in workers), default=0))

    def _most(self, name: str, value: float) -> None:
        self.peak[name] = max(self.peak.get(name, 0), value)

    def taken(self, seconds: float, tasks: int) -> dict[str, Any]:
        """Processor seconds, shares, and the most of the rest."""
        cpu = {name: round(self.after[name] - self.before.get(name, 0.0), 1) for name in self.after}
        both = cpu["scheduler"] + cpu["job"]
        shares = {
            "cpu_seconds": round(sum(cpu.values()), 1),
            "scheduler cpu": cpu["scheduler"],
            "scheduler share": round(cpu["scheduler"] / seconds, 2),
            "job cpu": cpu["job"],
            "ms a task, both": round(1e3 * both / max(tasks, 1), 2),
        }
        return shares | {name: round(value, 1 if "GiB" in name else None) for name, value in self.peak.items()}


def seconds_of(process: psutil.Process) -> float:
    """Return the processor time of a process; 0 of one that is gone."""
    with suppress(psutil.Error):
        return float(sum(process.cpu_times()[:2]))
    return 0.0


def memory(process: psutil.Process) -> int:
    """Return the resident memory of a process; 0 of one that is gone."""
    with suppress(psutil.Error):
        return int(process.memory_info().rss)
    return 0


def files(process: psutil.Process) -> int:
    """Return the open files of a process; 0 of one that is gone."""
    with suppress(psutil.Error):
        return int(process.num_fds())
    return 0


def sockets(pid: int) -> int:
    """Return the open sockets of a process."""
    count = 0
    for link in Path(f"/proc/{pid}/fd").iterdir():
        with suppress(OSError):
            count += os.readlink(link).startswith("socket:")
    return count


# ---------------------------------------------------------------------------------------------------------- events


def nothing(cluster: Cluster, over: threading.Event) -> None:
    """Leave the workers alone."""


def kill(cluster: Cluster, over: threading.Event) -> None:
    """Kill eight workers at once: all of a node."""
    for process in cluster.processes()[:KILLED]:
        process.kill()


def freeze(cluster: Cluster, over: threading.Event) -> None:
    """Stop one; its nanny kills it when it is given up."""
    cluster.processes()[0].send_signal(signal.SIGSTOP)


def slow(cluster: Cluster, over: threading.Event) -> None:
    """Let one run for a tenth of the time."""
    process = cluster.processes()[0]
    with suppress(psutil.Error):
        while not over.wait(SLICE):
            process.send_signal(signal.SIGSTOP)
            over.wait(STOPPED)
            process.send_signal(signal.SIGCONT)


EVENTS: dict[str, Callable[[Cluster, threading.Event], None]] = {
    "undisturbed": nothing,
    "eight killed at once": kill,
    "one frozen": freeze,
    "one ten times slower": slow,
}
SAID = {"one frozen": "given up"}
"""What a job has to say of an event."""
STAGE = {"diffusion_map": "solve", "umap": "descent"}


def run(cluster: Cluster, folder: Path, method: str, rows: str, event: str) -> tuple[dict[str, Any], dict[str, str]]:
    """Run a job under an event, from the start of its longest stage on; what it took, and what it published."""
    (home := folder / f"{method}-{event.replace(' ', '-')}-{cluster.workers}").mkdir()
    given = {"rows": rows, "method": method, "parameters": METHODS[method], "out": home / "run.zarr"}
    text = JOB.format(**given, address=cluster.address, workers=cluster.workers, frozen=FROZEN)
    (home / "job.toml").write_text(text)
    words = ["-m", "tests.small_blocks", "run", str(home / "job.toml"), "--json", "--trace", str(home / "trace")]
    began, over, happened, said = time.monotonic(), threading.Event(), False, []
    with open(home / "problems", "wb") as problems:
        job = subprocess.Popen(
            [sys.executable, *words], stdout=subprocess.PIPE, stderr=problems, text=True, env=cluster.environment
        )
    watched = Watched(cluster, psutil.Process(job.pid))
    thread = threading.Thread(target=EVENTS[event], args=(cluster, over), daemon=True)
    for line in job.stdout or ():
        said.append(json.loads(line))
        if said[-1]["event"] == "start" and said[-1]["stage"] == STAGE[method] and not happened:
            happened = True
            thread.start()
    status, seconds = job.wait(), time.monotonic() - began
    over.set()
    watched.end()
    messages = "\n".join(str(line.get("message") or "") for line in said)
    if status or not happened or SAID.get(event, "") not in messages:
        problems = (home / "problems").read_text()
        raise SystemExit(f"{method}, {event}: {status}, {happened}\n{messages}\n{problems}\n{cluster.said()}")
    thread.join()
    tasks = sum('"event": "task"' in line for line in (home / "trace").open())
    return {"seconds": round(seconds, 1), "tasks": tasks, **watched.taken(seconds, tasks)}, published(home / "run.zarr")


@contextmanager
def fresh(folder: Path, name: str, workers: int, block: int) -> Iterator[Cluster]:
    """A cluster with a folder of its own."""
    (home := folder / name).mkdir()
    with Cluster(home, workers, block) as cluster:
        yield cluster


def main() -> None:
    """Take the arguments, run, compare, and keep what was found."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--workers", type=int, default=64)
    parser.add_argument("--rows", type=int, default=32_000)
    parser.add_argument("--block", type=int, default=250, help="rows of a block")
    parser.add_argument("--methods", nargs="*", choices=list(METHODS), default=list(METHODS))
    parser.add_argument("--events", nargs="*", choices=list(EVENTS), default=list(EVENTS))
    parser.add_argument("--check", action="store_true", help="keep no results")
    given = parser.parse_args()
    parameters = {key: getattr(given, key) for key in ("workers", "rows", "block")}
    free = psutil.virtual_memory().available
    if free < given.workers * RESIDENT:
        raise SystemExit(f"{free >> 20} MiB of memory are free; {given.workers} workers need {RESIDENT >> 20} MiB each")
    rows: dict[str, dict[str, Any]] = {}
    expected: dict[str, dict[str, str]] = {}
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as name:
        folder = Path(name)
        points = data_set("mixture", folder, n=given.rows, d=16)
        with fresh(folder, "one", 1, given.block) as cluster:
            for method in given.methods:
                rows[f"{method}, one worker"], expected[method] = run(cluster, folder, method, points, "undisturbed")
                print(method, rows[f"{method}, one worker"], flush=True)
        with fresh(folder, "many", given.workers, given.block) as cluster:
            for method in given.methods:
                for event in given.events:
                    label = f"{method}, {event}"
                    rows[label], found = run(cluster, folder, method, points, event)
                    print(label, rows[label], flush=True)
                    if found != expected[method]:
                        wrong = [stage for stage in expected[method] if found.get(stage) != expected[method][stage]]
                        raise SystemExit(f"{label}: other bytes than with one worker in {', '.join(wrong)}")
                    rows[label]["same bytes"] = True
                    if not given.check:
                        keep("sixty_four", parameters, rows)
    if not given.check:
        table("sixty_four", parameters, rows)


if __name__ == "__main__":
    main()
