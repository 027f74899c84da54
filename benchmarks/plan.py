"""What a plan says of time and memory, beside what is measured: every method of the registry at two sizes.

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

from bigembed.methods import REGISTRY
from tests.integration.every_method import sizes, write_job

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
        "planned_bytes": record["predicted"]["total"],
        "measured_bytes": record["measured"]["total"],
    }


def main() -> None:
    """Run and print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--methods", default=",".join(sorted(REGISTRY)), help="names, separated by commas")
    names = parser.parse_args().methods.split(",")
    with tempfile.TemporaryDirectory() as folder:
        job = str(write_job(Path(folder), "pca", 1000))
        subprocess.run([*CLI, "plan", job, "--calibrate"], check=True, stdout=subprocess.DEVNULL)
    print("| method | rows | job: planned, measured s | stages: planned, measured s | planned / measured | MiB |")
    print("|---|---|---|---|---|---|")
    for name in names:
        for n in sizes(name):
            found = measured(name, n)
            print(
                f"| {name} | {n} | {found['planned']:.1f}, {found['measured']:.1f} "
                f"| {found['planned_stages']:.2f}, {found['measured_stages']:.2f} "
                f"| {found['planned'] / found['measured']:.2f} "
                f"| {found['planned_bytes'] >> 20} planned, {found['measured_bytes'] >> 20} measured |",
                flush=True,
            )


if __name__ == "__main__":
    main()
