"""What a plan says of time and memory, beside what is measured: every method of the registry at two sizes.

    python benchmarks/plan.py                     # all methods
    python benchmarks/plan.py --methods pca,nmf

The machine is calibrated first. Seconds are those of the whole job, with the start of its cluster.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))

from common import table

from bigembed.maps.registry import REGISTRY
from tests.cases import sizes, write_job

CLI = [sys.executable, "-m", "bigembed.cli"]


def measured(name: str, n: int) -> dict[str, float]:
    """Planned and measured seconds and bytes of one job; the first run, not timed, compiles."""
    with tempfile.TemporaryDirectory() as folder:
        job = str(write_job(Path(folder), name, n))
        subprocess.run([*CLI, "run", job], check=True, stdout=subprocess.DEVNULL)
        subprocess.run([*CLI, "run", job, "--fresh"], check=True, stdout=subprocess.DEVNULL)
        record = json.loads((Path(folder) / "run.zarr" / "job.json").read_text())
    stages = [stage for stage in record["stages"] if not stage["reused"]]
    return {
        "planned": record["predicted_seconds"],
        "measured": record["seconds"],
        "planned_stages": sum(stage["predicted_seconds"] for stage in stages),
        "measured_stages": sum(stage["seconds"] for stage in stages),
        "planned_mib": record["predicted"]["total"] >> 20,
        "measured_mib": record["measured"]["total"] >> 20,
    }


def main() -> None:
    """Run and print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--methods", default=",".join(sorted(REGISTRY)), help="names, separated by commas")
    names = parser.parse_args().methods.split(",")
    with tempfile.TemporaryDirectory() as folder:
        job = str(write_job(Path(folder), "pca", 1000))
        subprocess.run([*CLI, "plan", job, "--calibrate"], check=True, stdout=subprocess.DEVNULL)
    rows = {f"{name} {n}": measured(name, n) for name in names for n in sizes(name)}
    for found in rows.values():
        found["planned_over_measured"] = found["planned"] / found["measured"]
    table("plan", {"methods": len(names)}, rows)


if __name__ == "__main__":
    main()
