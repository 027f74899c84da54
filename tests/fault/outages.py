"""Outages of an object store in a row, under a job that reads and writes there, or only reads there.

    python -m tests.fault.outages --count 4 --seconds 60 --output store

Starts a real S3 server and a job, takes the server away again and again as a power cut would, and sees that the job
waits, says so while it lasts (console, log, metrics; ``status.json`` where that lies elsewhere), and ends with the
bytes of a job that nothing disturbed. A job with its output on a disk reads the store in its first stages only, and
meets two outages or three.
"""

from __future__ import annotations

import argparse
import json
import os
import queue
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path
from typing import Any

from bigembed.jobs.watching.status import read_status
from bigembed.store import AnyPath, at
from tests.digests import published
from tests.s3 import S3, serving

ROOT = Path(__file__).parents[2]
JOB = """
[input]
dataset = "swiss_roll"
n = {n}
path = "{rows}/points.zarr"
[method]
name = "diffusion_map"
n_components = 2
[output]
path = "{home}/run.zarr"
{cluster}
"""
CLUSTER = '[cluster]\nworkers = 2\nmemory = "1 GiB"'
PATIENCE = 120.0
"""Seconds within which what must come has to come."""


class Job:
    """A job in a process of its own, and what it says."""

    def __init__(self, folder: Path, rows: str, home: AnyPath, n: int, workers: bool) -> None:
        self.home, self.metrics = home, folder / "job.prom"
        file = folder / "job.toml"
        file.write_text(JOB.format(n=n, rows=rows, home=home, cluster=CLUSTER if workers else ""))
        command = [sys.executable, "-m", "bigembed.cli", "run", str(file), "--json", "--metrics", str(self.metrics)]
        log = ["--log", str(folder / "copy.jsonl")]
        environment = {**os.environ, "PYTHONPATH": str(ROOT)}
        with open(folder / "problems", "ab") as problems:
            pipe = {"stdout": subprocess.PIPE, "stderr": problems, "text": True}
            self.process = subprocess.Popen([*command, *log], **pipe, env=environment, start_new_session=True)
        self.problems, self.log = folder / "problems", folder / "copy.jsonl"
        self.lines: queue.SimpleQueue[dict[str, Any]] = queue.SimpleQueue()
        threading.Thread(target=self._listen, daemon=True).start()

    def _listen(self) -> None:
        for line in self.process.stdout or ():
            self.lines.put(json.loads(line))

    def hears(self, *kinds: str, ended: bool | None = None) -> dict[str, Any]:
        """Wait for one of these events."""
        end = time.monotonic() + PATIENCE
        while time.monotonic() < end:
            try:
                line = self.lines.get(timeout=1)
            except queue.Empty:
                assert self.process.poll() is None, self.problems.read_text()
                continue
            if line["event"] in kinds and (ended is None or (line["results"]["ended"] is not None) == ended):
                return line
        raise AssertionError(f"no {kinds} in {PATIENCE:g} s; {self.problems.read_text()}")

    def measures(self, name: str) -> float:
        """A value of its metrics."""
        lines = self.metrics.read_text().splitlines()
        return next(float(line.split()[-1]) for line in lines if line.startswith(f"bigembed_{name}{{"))

    def end(self) -> int:
        """Its exit status."""
        return self.process.wait(timeout=10 * PATIENCE)


def expect(what: str, number: int, job: Job) -> float:
    """Wait until a measure is so: metrics follow the console in the same moment."""
    end = time.monotonic() + 30
    while job.measures(what) != number and time.monotonic() < end:
        time.sleep(0.1)
    return job.measures(what)


def survive(folder: Path, server: S3, count: int, seconds: float, output: str, workers: bool, n: int) -> list[str]:
    """Run a job through so many outages; what each was said to be."""
    (folder / "own").mkdir()
    rows = f"{server.url}/{folder.name}"
    calm = Job(folder / "own", f"{rows}-calm", folder / "calm", n, workers=False)
    assert calm.end() == 0, calm.problems.read_text()
    home = at(f"{rows}-run") if output == "store" else folder / "home"
    job, said = Job(folder, rows, home, n, workers), []
    job.hears("progress", "done")
    for number in range(count):
        with server.away(seconds):
            away = job.hears("store", ended=False)
            assert job.process.poll() is None
            assert expect("stores_away", 1, job) == 1
            if output != "store":
                (found,) = [one for one in read_status(home / "run.zarr")["outages"] if one["ended"] is None]
                assert found["store"] == server.url
                assert found["error"]
        back = job.hears("store", ended=True)
        assert job.measures("store_outages") > number
        said += [away["message"], back["message"]]
    assert job.end() == 0, job.problems.read_text()
    outages = read_status(home / "run.zarr")["outages"]
    assert len(outages) >= count  # (a server that starts answers some requests before others)
    assert all(one["ended"] for one in outages)
    logged = [json.loads(line) for line in job.log.read_text().splitlines()]
    assert {*said} <= {line["message"] for line in logged if line.get("event") == "store"}
    assert published(home / "run.zarr") == published(folder / "calm" / "run.zarr")
    return said


def main() -> None:
    """Take the arguments, and say what the job said."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--count", type=int, default=4)
    parser.add_argument("--seconds", type=float, default=60.0)
    parser.add_argument("--output", choices=["store", "disk"], default="store")
    parser.add_argument("--workers", action="store_true", help="two worker processes instead of this one's threads")
    parser.add_argument("--rows", type=int, default=60_000)
    asked = parser.parse_args()
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as name, serving(Path(name)) as server:
        said = survive(Path(name), server, asked.count, asked.seconds, asked.output, asked.workers, asked.rows)
    print("\n".join(said))
    print(f"{asked.count} outages of {asked.seconds:g} s survived, each said; the same bytes as without them")


if __name__ == "__main__":
    main()
