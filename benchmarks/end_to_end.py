"""A diffusion map from Zarr to Zarr by `bigembed run`: time, and resident memory measured and planned.

    python benchmarks/end_to_end.py --n 1000000 --d 64 --memory "1.5 GiB" --folder bench-data
    python benchmarks/end_to_end.py --n 2600000 --d 512 --memory "600 MiB" --folder bench-data   # larger than memory
    python benchmarks/end_to_end.py --n 10000000 --d 16 --components 2 --keep map --folder bench-data
    python benchmarks/end_to_end.py --n 30000000 --d 16 --algorithm cells --kill search:9 solve:60 --folder bench-data

The data are the Gaussian mixture (``--components``, by default 10; k = 15, the largest component). Memory is the
peak of the resident memory of all processes together, client and scheduler included; disk is what the run's folder
takes at most, looked at every five seconds, and less often where looking takes long. ``--kill STAGE:N`` kills all
processes of the job when it has logged N lines in that stage, and runs the same command again; seconds are those of
all runs together.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from common import data_set, table

from bigembed.jobs.places import parse_bytes

JOB = """
[input]
path = "{rows}"
[method]
name = "diffusion_map"
n_components = {components}
n_neighbors = 15
components = "largest"
algorithm = "{algorithm}"
[output]
path = "end-to-end.zarr"
keep = "{keep}"
[cluster]
workers = {workers}
memory = "{memory}"
"""


OUTPUT = "end-to-end.zarr"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--n", type=int, default=1_000_000)
    parser.add_argument("--d", type=int, default=64)
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--memory", default="1.5 GiB")
    parser.add_argument("--algorithm", default="auto")
    parser.add_argument("--components", type=int, default=10)
    parser.add_argument("--keep", choices=["all", "map"], default="all")
    parser.add_argument("--kill", nargs="*", default=[], metavar="STAGE:N")
    parser.add_argument("--folder", default="bench-data")
    given = parser.parse_args()
    folder, limits = Path(given.folder).absolute(), given.workers * int(parse_bytes(given.memory))
    chosen = {"components": given.components, "keep": given.keep}
    record = finished(given.n, given.d, given.workers, given.memory, folder, given.algorithm, given.kill, **chosen)
    size = given.n * given.d * 4
    result: dict[str, Any] = {
        "seconds": record["seconds"],
        "passes": record["certificate"]["passes"],
        "recall": record["certificate"]["recall"]["recall"],
        "measured_gib": record["measured"]["total"] / 2**30,
        "planned_gib": record["predicted"]["total"] / 2**30,
        "disk_gib": record["disk"] / 2**30,
        "planned_disk_gib": record["plan"]["disk_peak"] / 2**30,
        "disk_bytes_per_row": record["disk"] / given.n,
        "rows_gib": size / 2**30,
        "rows_over_worker_limits": size / limits,
        "rows_over_measured_peak": size / record["measured"]["total"],
        "stages": {stage["name"]: stage["seconds"] for stage in record["stages"]},
    }
    other = {name: value for name, value in chosen.items() if value != parser.get_default(name)}
    table("end_to_end", {"n": given.n, "d": given.d, "workers": given.workers, **other}, {"bigembed": result})


def finished(
    n: int,
    d: int,
    workers: int,
    memory: str,
    folder: Path,
    algorithm: str = "auto",
    kills: Sequence[str] = (),
    components: int = 10,
    keep: str = "all",
) -> dict[str, Any]:
    """The record of the job, run to its end; with the seconds of all its starts, and the disk space that it took."""
    rows = data_set("mixture", folder, n=n, d=d)
    job, output = folder / "end-to-end.toml", folder / OUTPUT
    shutil.rmtree(output, ignore_errors=True)
    asked = {"workers": workers, "memory": memory, "algorithm": algorithm, "components": components, "keep": keep}
    job.write_text(JOB.format(rows=rows, **asked))
    began, disk = time.perf_counter(), 0
    for kill in [*kills, ""]:
        disk = max(disk, run(job, output, kill))
    record: dict[str, Any] = json.loads((output / "job.json").read_text())
    return record | {"seconds": time.perf_counter() - began, "disk": disk}


def run(job: Path, output: Path, kill: str) -> int:
    """The job, to its end or until it is killed: the largest disk space that its output took, in bytes."""
    command = [sys.executable, "-m", "bigembed.cli", "run", str(job)]
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, start_new_session=True)
    stage, _, lines = kill.partition(":")
    most, log, took = 0, output / "log.jsonl", 0.0
    while process.poll() is None:
        with suppress(subprocess.TimeoutExpired):
            process.wait(max(5.0, 50 * took))
        began = time.perf_counter()
        most, took = max(most, space(output)), time.perf_counter() - began
        if kill and log.exists() and log.read_text().count(f'"stage": "{stage}"') >= int(lines):
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()
            return most
    if process.returncode or kill:
        raise SystemExit(f"{' '.join(command)}: status {process.returncode}" + (f" before {kill}" if kill else ""))
    return most


def space(folder: Path) -> int:
    """Bytes on disk below a folder whose files come and go."""
    found = subprocess.run(["du", "-s", "--block-size=1", str(folder)], capture_output=True, text=True, check=False)
    return int(found.stdout.split()[0]) if found.stdout else 0


if __name__ == "__main__":
    main()
