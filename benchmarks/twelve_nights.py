"""Twelve nights of a growing store under everything that goes wrong at night, counted row by row each morning.

    python benchmarks/twelve_nights.py

Every night rows with ids are appended, by a process that may be killed and is started again. Something is deleted: the
table, coordinates, the account of the rows, the model, the run, or the whole output. Then ``bigembed extend``, every
third night ``bigembed refresh`` (and whenever the audit or a refusal asks for it), is started until it ends with 0:
killed at drawn moments (SIGKILL), with a deadline, two at a time, and at last undisturbed. All of
it is exported to Parquet, the export is killed, too, and the table is read: every row once and in its order, with its
id, its coordinates, and the mark of rows that were placed. Each exit status must be one that the guide has for such an
event. The job has steps before the method, one of which leaves rows out. Printed are counts; the first that is wrong
ends it with status 1.
"""

from __future__ import annotations

import argparse
import json
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq
from common import table

import bigembed as be

JOB = """
[input]
path = "points.zarr"
[[steps]]
name = "missing"
action = "drop"
[[steps]]
name = "standardize"
[method]
name = "diffusion_map"
n_components = 2
n_neighbors = 8
[output]
path = "growing.zarr"
table = "all.parquet"
"""
APPEND = """
import sys, numpy as np, bigembed as be
first = int(sys.argv[1])
be.append_rows("points.zarr", np.load("new.npy"), first=first, ids=np.load("ids.npy"))
"""
DELETED = {
    "table": "all.parquet",
    "coordinates": "growing.zarr/versions/*/coordinates",
    "account": "growing.zarr/versions/*/rows.json",
    "model": "growing.zarr/versions/*/model.zarr",
    "run": "growing.zarr/versions/*/run.zarr",
    "pointer": "growing.zarr/current.json",
    "output": "growing.zarr",
}
"""What is deleted, and where it lies."""
ENDS = {
    "kill": {-signal.SIGKILL, 0},
    "deadline": {0, 5, 8},
    "overlap": {0, 4},
    "start": {0},
    "export": {-signal.SIGKILL, 0},
    "audit": {0, 6, 7},
}
"""Exit statuses that may come of each event."""
REFRESH = 6
"""Status of an ``extend`` after the model was deleted: it asks for a refresh. Any other that ends so is wrong."""
STARTS = 12
"""Of one command, at the most."""


class Nights:
    """The store, what is known of it, and what has been counted."""

    def __init__(self, folder: Path, rows: int, events: int, seed: int) -> None:
        self.events, self.gone = events, ""
        self.folder, self.draw = folder, np.random.default_rng(seed)
        self.rows, self.ids, self.fitted = np.zeros((0, 4)), list[str](), 0
        self.counts: Counter[str] = Counter()
        self.statuses: Counter[tuple[str, int]] = Counter()
        (folder / "job.toml").write_text(JOB)
        new, ids = self.new_rows(rows)
        np.save(folder / "first.npy", new)
        np.save(folder / "first-ids.npy", ids)
        self.command("ingest", "first.npy", "points.zarr", "--ids", "first-ids.npy").wait()
        self.seconds = self.until_done("refresh", undisturbed=True)

    def new_rows(self, count: int) -> tuple[np.ndarray, np.ndarray]:
        """Draw rows of a noisy arc, of which a few miss a value, and give them ids."""
        angle = self.draw.uniform(0, 3, count)
        rows = np.stack([np.cos(angle), np.sin(angle), *self.draw.normal(0, 0.1, (2, count))], axis=1)
        rows[self.draw.random(count) < 0.01, 3] = np.nan
        ids = np.array([f"row-{len(self.ids) + number:07d}" for number in range(count)])
        self.rows, self.ids = np.concatenate([self.rows, rows]), [*self.ids, *ids.tolist()]
        return rows, ids

    def start(self, *command: str) -> subprocess.Popen[bytes]:
        """Start a process, whose output goes to a file."""
        with open(self.folder / "output.txt", "ab") as out:
            return subprocess.Popen([sys.executable, *command], cwd=self.folder, stdout=out, stderr=out)

    def command(self, *command: str) -> subprocess.Popen[bytes]:
        """Start a command of bigembed."""
        return self.start("-c", "from bigembed.cli import main; main()", *command)

    def ended(self, event: str, process: subprocess.Popen[bytes], *others: int) -> int:
        """Wait for a process, and hold its exit status to those that may come of the event, or to others."""
        status = process.wait()
        self.statuses[event, status] += 1
        if status not in ENDS[event] | {*others}:
            tail = (self.folder / "output.txt").read_text(errors="replace")[-3_000:]
            raise SystemExit(f"{process.args[3:]}: {event} ended with {status}, not {ENDS[event] | {*others}}:\n{tail}")
        return status

    def killed(self, process: subprocess.Popen[bytes], most: float) -> None:
        """Kill a process at a moment that is drawn."""
        time.sleep(self.draw.uniform(0.2, 1.2) * most)
        process.kill()

    def append(self, count: int) -> None:
        """Append rows, by a process that is killed once and started again."""
        first = len(self.ids)
        for name, array in zip(("new", "ids"), self.new_rows(count), strict=True):
            np.save(self.folder / f"{name}.npy", array)
        process = self.start("-c", APPEND, str(first))
        self.killed(process, 1.5)
        self.ended("kill", process)
        self.ended("start", self.start("-c", APPEND, str(first)))

    def delete(self) -> str:
        """Delete something that was written."""
        name = str(self.draw.choice(list(DELETED)))
        tables = [DELETED["table"]] if name == "output" else []  # (a new store takes no table for its own)
        for path in [path for place in (DELETED[name], *tables) for path in sorted(self.folder.glob(place))]:
            shutil.rmtree(path) if path.is_dir() else path.unlink()
        return name

    def until_done(self, command: str, undisturbed: bool = False) -> float:
        """Start a command until it ends with 0; one that says the store is damaged is followed by a refresh."""
        others = [REFRESH] if (command, self.gone) == ("extend", "model") else []
        events = [*self.draw.choice(["kill", "deadline", "overlap"], 0 if undisturbed else self.events), "start"]
        for event in [*events, *["start"] * STARTS]:
            began = time.monotonic()
            if event == "overlap":
                pair = [self.command(command, "job.toml") for _ in range(2)]
                found = [self.ended(event, process, *others) for process in pair]
                status = 0 if 0 in found else found[0]
                self.counts["overlaps"] += 1
            else:
                most = [f"--deadline={max(1.0, 0.7 * self.seconds):.0f}s"] if event == "deadline" else []
                process = self.command(command, "job.toml", *most)
                if event == "kill":
                    self.killed(process, self.seconds)
                    self.counts["kills"] += 1
                status = self.ended(event, process, *others)
            if status == REFRESH:
                return self.until_done("refresh")
            if status == 0 and event == "start":
                if command == "refresh":
                    self.fitted = len(self.ids)
                return time.monotonic() - began
        raise SystemExit(f"{command}: not done after {len(events) + STARTS} starts")

    def export(self) -> pq.ParquetFile:
        """Export all coordinates; the first process that does it is killed."""
        out = self.folder / "night.parquet"
        process = self.command("export", "growing.zarr", str(out), "--overwrite")
        self.killed(process, 1.5)
        self.ended("export", process)
        self.ended("start", self.command("export", "growing.zarr", str(out), "--overwrite"))
        return pq.read_table(out)

    def check(self, found: Any) -> dict[str, int]:
        """Count rows, ids, marks and coordinates of a table; what is wrong."""
        n, placed = len(self.ids), np.asarray(found["placed"])
        coordinates = np.stack([np.asarray(found[name]) for name in found.schema.names if name.startswith("diff")], 1)
        whole = np.isfinite(self.rows).all(axis=1)
        version = be.open_growth(self.folder / "growing.zarr").current
        stored = np.asarray(version.coordinates)
        wrong = {
            "rows": found.num_rows - n,
            "ids": sum(one != other for one, other in zip(found["id"].to_pylist(), self.ids, strict=False)),
            "twice": n - len(set(found["id"].to_pylist())),
            "marks": int((placed != (np.arange(len(placed)) >= self.fitted)).sum()),
            "coordinates": int((np.isfinite(coordinates).all(axis=1) != whole).sum()),
            "other than stored": int((~np.isclose(coordinates, stored, equal_nan=True)).any(axis=1).sum()),
        }
        if any(wrong.values()):
            raise SystemExit(f"wrong in the table: {wrong}; {n} rows, {self.fitted} fitted")
        return {"rows": n, "placed": int(placed.sum()), "left_out": int((~whole).sum())}

    def night(self, number: int, count: int) -> dict[str, Any]:
        """One night: append, delete, work, audit, export, count."""
        began, before = time.monotonic(), self.counts.copy()
        self.append(count)
        self.gone = gone = self.delete()
        self.until_done("refresh" if gone == "output" or number % 3 == 0 else "extend")
        due = self.ended("audit", self.command("audit", "job.toml"))
        if due:
            self.until_done("refresh")
        found = self.check(self.export())
        if found["rows"] != pq.read_metadata(self.folder / "all.parquet").num_rows:
            raise SystemExit("the table of the job has other rows")
        made = {name: self.counts[name] - before[name] for name in ("kills", "overlaps")}
        return {**found, "deleted": gone, "due": due == 7, **made, "seconds": round(time.monotonic() - began, 1)}


def main() -> None:
    """Work through the nights, and print what was counted."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--nights", type=int, default=12)
    parser.add_argument("--rows", type=int, default=1_000, help="before the first night")
    parser.add_argument("--append", type=int, default=250, help="each night")
    parser.add_argument("--events", type=int, default=3, help="that disturb a command, before it is left alone")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--check", action="store_true", help="keep no results")
    asked = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        nights = Nights(Path(folder), asked.rows, asked.events, asked.seed)
        rows = {}
        for number in range(1, asked.nights + 1):
            rows[f"night {number}"] = nights.night(number, asked.append)
            print(number, json.dumps(rows[f"night {number}"]), flush=True)
        ends = {f"{event} {status}": count for (event, status), count in sorted(nights.statuses.items())}
        log = sorted(Path(folder).glob("growing.zarr/log.jsonl*"))
        rows["all"] = {"statuses": ends, "log_kib": sum(path.stat().st_size for path in log) >> 10}
    if not asked.check:
        table("twelve_nights", {name: getattr(asked, name) for name in ("nights", "rows", "events", "seed")}, rows)
    print(json.dumps(rows["all"]))


if __name__ == "__main__":
    main()
