"""What a plan says of time and memory, beside what is measured: every method of the registry at two sizes.

    python benchmarks/plan.py                             # all methods, 20 000 and 200 000 rows
    python benchmarks/plan.py --methods pca,nmf --rows 12000,100000
    python benchmarks/plan.py --first-use                 # nothing compiled or measured before, as on a new machine

Memory is the resident memory of all processes of the job together, summed twenty times a second. The plan is a hard
limit: a job that goes beyond it is killed, and its row says so. Seconds are those of the whole job, with the start of
its cluster and, with ``--first-use``, with what compiling takes; they mean something on a quiet machine only.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from contextlib import suppress
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1]))

import psutil
from common import table

from bigembed.maps import REGISTRY
from tests.cases import SIZES, write_job

CLI = [sys.executable, "-m", "bigembed.cli"]
BETWEEN = 0.05
"""Seconds between two looks at the memory."""
LEAST, MOST = 0.55, 1.0
"""Of what is planned, what a job should take."""


def bigembed(*words: str, environment: dict[str, str]) -> subprocess.Popen[bytes]:
    """Start a command that prints nothing but what went wrong."""
    return subprocess.Popen([*CLI, *words], stdout=subprocess.DEVNULL, env=environment)


def planned(job: str, environment: dict[str, str]) -> dict[str, Any]:
    """Return the plan of a job."""
    done = subprocess.run([*CLI, "plan", job, "--json"], capture_output=True, check=True, env=environment)
    found: dict[str, Any] = json.loads(done.stdout)
    return found


def limited(process: subprocess.Popen[bytes], limit: int) -> int:
    """Wait for a job, and return the peak of its memory; beyond the limit its processes are killed."""
    job, peak, family, looked = psutil.Process(process.pid), 0, [], 0.0
    while process.poll() is None:
        if time.monotonic() - looked > 0.5:
            with suppress(psutil.Error):
                family, looked = [job, *job.children(recursive=True)], time.monotonic()
        peak = max(peak, sum(map(resident, family)))
        if peak > limit:
            for one in family:
                with suppress(psutil.Error):
                    one.kill()
            process.wait()
            break
        time.sleep(BETWEEN)
    return peak


def resident(process: psutil.Process) -> int:
    """Return resident bytes of a process; 0 of one that has ended."""
    with suppress(psutil.Error):
        return int(process.memory_info().rss)
    return 0


def measured(name: str, n: int, first_use: bool) -> dict[str, Any]:
    """Return seconds and bytes of one job, planned and measured; what it compiles is kept by then, unless it is the
    first use."""
    with tempfile.TemporaryDirectory() as folder:
        job, environment = str(write_job(Path(folder), name, n)), dict(os.environ)
        if first_use:
            environment["NUMBA_CACHE_DIR"] = f"{folder}/compiled"
        plan = planned(job, environment)
        if first_use:
            environment["XDG_CACHE_HOME"] = f"{folder}/cache"
        elif plan["compilation"]:
            bigembed("run", job, environment=environment).wait()
            shutil.rmtree(Path(folder) / "run.zarr")
            shutil.rmtree(Path(folder) / "model.zarr")
            plan = planned(job, environment)
        began = time.monotonic()
        process = bigembed("run", job, environment=environment)
        peak = limited(process, plan["memory"]["total"])
        seconds = time.monotonic() - began
        if process.returncode:
            return {"failed": process.returncode, "planned_mib": plan["memory"]["total"] >> 20, "peak_mib": peak >> 20}
        record = json.loads((Path(folder) / "run.zarr" / "job.json").read_text())
    memory = peak / plan["memory"]["total"]
    return {
        "planned_seconds": plan["seconds"] + plan["compilation"],
        "measured_seconds": seconds,
        "seconds_of_planned": seconds / (plan["seconds"] + plan["compilation"]),
        "planned_mib": plan["memory"]["total"] >> 20,
        "measured_mib": peak >> 20,
        "memory_of_planned": memory,
        **{f"{one}_of_planned": record["measured"][one] / plan["memory"][one] for one in ("worker", "coordinator")},
        "as_planned": LEAST <= memory <= MOST,
    }


def main() -> None:
    """Run and print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--methods", default=",".join(sorted(REGISTRY)), help="names, separated by commas")
    parser.add_argument("--rows", default="20000,200000", help="two numbers; fewer of methods that look at all pairs")
    parser.add_argument("--first-use", action="store_true", help="compile anew in each job")
    given = parser.parse_args()
    names, rows = given.methods.split(","), [int(n) for n in given.rows.split(",")]
    found: dict[str, dict[str, Any]] = {}
    for name in names:
        for n in [min(pair) for pair in zip(rows, SIZES.get(name, rows), strict=False)]:
            found[f"{name} {n}"] = measured(name, n, given.first_use)
            print(f"{name} {n}", found[f"{name} {n}"], flush=True)
    kind = {"first_use": True} if given.first_use else {}
    table("plan", {"methods": len(names), "rows": given.rows.replace(",", "-"), **kind}, found)


if __name__ == "__main__":
    main()
