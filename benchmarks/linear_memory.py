"""PCA and LDM of more rows than memory by `bigembed run`: time, and resident memory measured and planned.

    python benchmarks/linear_memory.py --n 16000000 --d 256 --memory "512 MiB" --folder bench-data   # 16 GB of rows

Two workers; the coordinates are written. Memory is the peak of the resident memory of all processes together, client
and scheduler included. The rows are deleted in the end unless --keep is given.
"""

from __future__ import annotations

import argparse
import json
import shutil
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

from common import data_set, table

from bigembed.jobs.places import parse_bytes

JOB = """
[input]
path = "{rows}"
[method]
name = "{method}"
n_components = 10
[output]
path = "linear-memory.zarr"
[cluster]
workers = {workers}
memory = "{memory}"
"""


def measured(method: str, rows: str, folder: Path, given: argparse.Namespace) -> dict[str, Any]:
    """Run the job of a method, and tell what it took; its output is deleted."""
    job, out = folder / "linear-memory.toml", folder / "linear-memory.zarr"
    shutil.rmtree(out, ignore_errors=True)
    job.write_text(JOB.format(rows=rows, method=method, workers=given.workers, memory=given.memory))
    began = time.perf_counter()
    subprocess.run([sys.executable, "-m", "bigembed.cli", "run", str(job)], check=True, stdout=subprocess.DEVNULL)
    seconds = time.perf_counter() - began
    record = json.loads((out / "job.json").read_text())
    shutil.rmtree(out)
    size, limits = given.n * given.d * 4, given.workers * int(parse_bytes(given.memory))
    return {
        "seconds": seconds,
        "passes": record["certificate"]["passes"] + 1,
        "measured_gib": record["measured"]["total"] / 2**30,
        "planned_gib": record["predicted"]["total"] / 2**30,
        "worker_measured_gib": record["measured"]["worker"] / 2**30,
        "worker_planned_gib": record["predicted"]["worker"] / 2**30,
        "rows_gib": size / 2**30,
        "rows_over_worker_limits": size / limits,
        "stages": {stage["name"]: stage["seconds"] for stage in record["stages"]},
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--n", type=int, default=16_000_000)
    parser.add_argument("--d", type=int, default=256)
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--memory", default="512 MiB")
    parser.add_argument("--methods", nargs="+", default=["pca", "linearized_diffusion_map"])
    parser.add_argument("--folder", default="bench-data")
    parser.add_argument("--keep", action="store_true")
    given = parser.parse_args()
    folder = Path(given.folder).absolute()
    rows = data_set("mixture", folder, n=given.n, d=given.d)
    results = {method: measured(method, rows, folder, given) for method in given.methods}
    table("linear_memory", {"n": given.n, "d": given.d, "workers": given.workers}, results)
    if not given.keep:
        shutil.rmtree(rows)


if __name__ == "__main__":
    main()
