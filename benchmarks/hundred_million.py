"""A certified diffusion map of a hundred million rows on one machine, killed in between and resumed.

    python benchmarks/hundred_million.py --folder bench-data

The rows are those of ``ten_million.py``, windows of a chaotic signal, as a digitizer of 16 bits has them. The job keeps
nothing but its coordinates (``keep = "coordinates"``), so that the most of the disk is that of the solve. It is killed
with all its processes when the search begins and again in the solve, and started anew; started itself once more, this
script goes on where it was. Seconds are those of all starts together; ``disk`` is how much less was free at the worst.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any

import numpy as np
from common import data_set, peak_of, table
from psutil import Error, Process
from ten_million import GRANULE, WINDOW, draw, window_block

from bigembed.datasets import Dataset

FINENESS = 1000
"""Steps of the digitizer in a unit of the signal."""
KILLS = ("search", "iteration 5:")
"""When the job is killed, by default: as a stage begins, and again when its solve says this."""
JOB = """
[input]
path = "{rows}"
[method]
name = "diffusion_map"
n_components = 2
n_neighbors = 15
[output]
path = "hundred-million.zarr"
keep = "coordinates"
[cluster]
workers = 2
memory = "1.5 GiB"
"""


def digitized(start: int, stop: int, rng: np.random.Generator, n: int) -> tuple[np.ndarray, dict[str, Any]]:
    """Windows of the signal in whole steps of the digitizer."""
    rows, truth = window_block(start, stop, rng, n)
    return np.round(FINENESS * rows), truth


class Start:
    """One start of the job: what it says, until it ends or is killed; what it takes of the machine."""

    def __init__(self, job: Path, kill: str | None) -> None:
        self.began, self.kill, self.killed = time.monotonic(), kill, False
        self.free, self.least, self.processor = shutil.disk_usage(job.parent).free, 1 << 62, 0.0
        command = [sys.executable, "-m", "bigembed.cli", "run", str(job), "--json"]
        self.process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True, start_new_session=True)
        self.peak, self.folder, self._over = peak_of(self.process.pid), job.parent, threading.Event()
        self.seen: dict[int, float] = {}
        self.stages: dict[str, float] = {}
        self.running: dict[str, float] = {}

    def watch(self, note: Any) -> None:
        """Look at the disk and the processors every ten seconds, and note it."""
        while not self._over.wait(10):
            self.least = min(self.least, shutil.disk_usage(self.folder).free)
            try:
                for process in (root := Process(self.process.pid), *root.children(recursive=True)):
                    self.seen[process.pid] = sum(process.cpu_times()[:2])
            except Error:
                continue
            note(self.found())

    def found(self) -> dict[str, Any]:
        """What is known by now, a stage that has not ended included: this script may be killed, too."""
        seconds, processor = time.monotonic() - self.began, sum(self.seen.values())
        stages = self.stages | {stage: seconds - at for stage, at in self.running.copy().items()}
        known = {"seconds": seconds, "processor": processor, "stages": stages}
        return known | {"free_before": self.free, "free_least": self.least}

    def run(self, note: Any) -> dict[str, Any]:
        """Listen to the job, and kill it where that is due."""
        thread = threading.Thread(target=self.watch, args=(note,), daemon=True)
        thread.start()
        try:
            for line in self.process.stdout or ():
                self.hear(json.loads(line))
            status = self.process.wait()
        finally:
            self._over.set()
            thread.join()
        if status and not self.killed:
            raise SystemExit(f"the job ended with status {status}")
        return {**self.found(), "memory": self.peak(), "killed": self.killed}

    def hear(self, said: dict[str, Any]) -> None:
        """Note when stages begin and end."""
        event, text, stage = said["event"], said.get("message") or "", said.get("stage") or ""
        now = time.monotonic() - self.began
        if event == "start":
            self.running[stage] = now
        elif event == "done":
            self.stages[stage] = now - self.running.pop(stage, now)
        if event not in ("progress", "remaining"):
            print(f"{now:7.0f} s", event, stage, text, flush=True)
        due = self.kill and ((event, stage) == ("start", self.kill) or self.kill in text.partition(": ")[2])
        if due and not self.killed:
            self.killed = True
            os.killpg(self.process.pid, signal.SIGKILL)


def main() -> None:
    """Make the rows, start the job until it is done, and keep what it took."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--n", type=int, default=100_000_000)
    parser.add_argument("--folder", default="bench-data")
    parser.add_argument("--pictures", type=Path, help="folder of the pictures; --folder by default")
    parser.add_argument(
        "--kills", nargs="*", default=KILLS, help="stages at whose begin, or words at which, it is killed"
    )
    parser.add_argument("--check", action="store_true", help="keep no results")
    given = parser.parse_args()
    folder = Path(given.folder).absolute()
    made = Dataset("lorenz", (given.n, WINDOW), digitized, granule=GRANULE)
    rows = data_set("lorenz-int16", folder, made, np.int16, n=given.n)
    job, output, ledger = folder / "hundred-million.toml", folder / "hundred-million.zarr", folder / "starts.json"
    job.write_text(JOB.format(rows=rows))
    starts = json.loads(ledger.read_text()) if ledger.exists() else []
    before = starts[0]["free_before"] if starts else shutil.disk_usage(folder).free
    while not starts or starts[-1].get("killed", True):  # (without a word of how it ended: this script was killed)
        done = [start for start in starts if start.get("killed")]
        kill = given.kills[len(done)] if len(done) < len(given.kills) else None
        found = Start(job, kill).run(lambda start: ledger.write_text(json.dumps([*starts, start])))
        starts.append(found)
        ledger.write_text(json.dumps(starts))
    record = json.loads((output / "job.json").read_text())
    certificate = record["certificate"]
    result = {
        "starts": len(starts),
        "seconds": sum(start["seconds"] for start in starts),
        "processor": sum(start["processor"] for start in starts),
        "measured_gib": max(start.get("memory", 0) for start in starts) / 2**30,
        "planned_gib": record["predicted"]["total"] / 2**30,
        "disk_gib": (before - min(start["free_least"] for start in starts)) / 2**30,
        "kept_gib": sum(path.stat().st_size for path in output.rglob("*") if path.is_file()) / 2**30,
        "passes": certificate["passes"],
        "recall": certificate["recall"]["recall"],
        "warnings": certificate.get("warnings", []),
        "stages": {
            stage["name"]: sum(start.get("stages", {}).get(stage["name"], 0.0) for start in starts)
            for stage in record["stages"]
        },
    }
    print(json.dumps(result, indent=1, default=str))
    if not given.check:
        table("hundred_million", {"n": given.n}, {"bigembed": result})
    draw(output, given.pictures or folder, "hundred_million", axes=(0, 1))


if __name__ == "__main__":
    main()
