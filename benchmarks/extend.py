"""New rows by `bigembed extend` beside fitting by `bigembed run`: rows a second, resident memory measured and planned.

    python benchmarks/extend.py --n 1000000 --new 400000 --folder bench-data

The data are the Gaussian mixture (k = 15, the largest component); the new rows are further rows of it. The
eigenvectors are solved loosely, which the extension does not notice. Also reported: how far fitted rows come out
from their coordinates, relative to the largest (``back``), and the seconds of 1 and of 1000 rows in a process that
has extended before.
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

import numpy as np
from common import BLOCK, data_set, table

JOB = """
[input]
path = "{rows}"
[method]
name = "diffusion_map"
n_components = 4
n_neighbors = 15
components = "largest"
tol = 0.05
[output]
path = "extend-run.zarr"
model = "extend-model.zarr"
[cluster]
workers = {workers}
"""


def command(*words: str) -> tuple[float, dict[str, Any]]:
    """Seconds of a command, and what it reported."""
    began = time.perf_counter()
    done = subprocess.run([sys.executable, "-m", "bigembed.cli", *words, "--json"], check=True, stdout=subprocess.PIPE)
    return time.perf_counter() - began, json.loads(done.stdout.splitlines()[-1])


def further_rows(path: Path, n: int, new: int, d: int) -> None:
    """Rows n … n + new of the mixture into a Zarr array."""
    from bigembed.datasets import dataset
    from bigembed.store.arrays import create_rows, write_rows

    rows = dataset("mixture", n=n + new, d=d)
    create_rows(path, (new, d), np.float32, BLOCK, overwrite=True)
    for start in range(0, new, BLOCK):
        write_rows(path, start, rows.rows(n + start, n + min(start + BLOCK, new)))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--n", type=int, default=1_000_000)
    parser.add_argument("--new", type=int, default=400_000)
    parser.add_argument("--d", type=int, default=64)
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--folder", default="bench-data")
    parser.add_argument("--keep-model", action="store_true", help="extend by the model that an earlier call fitted")
    given = parser.parse_args()
    import bigembed as be

    folder = Path(given.folder).absolute()
    fitted, new = data_set("mixture", folder, n=given.n, d=given.d), folder / "extend-new.zarr"
    further_rows(new, given.n, given.new, given.d)
    model, out, job = folder / "extend-model.zarr", folder / "extend-out.zarr", folder / "extend.toml"
    result: dict[str, dict[str, Any]] = {}
    if not given.keep_model:
        for path in (folder / "extend-run.zarr", model):
            shutil.rmtree(path, ignore_errors=True)
        job.write_text(JOB.format(rows=fitted, workers=given.workers))
        seconds, found = command("run", str(job))
        stages = {stage["name"]: stage["seconds"] for stage in found["stages"]}
        result["fit"] = {"seconds": seconds, "rows_a_second": given.n / seconds, "search_seconds": stages["search"]}
    shutil.rmtree(out, ignore_errors=True)
    seconds, found = command("extend", str(model), str(new), str(out), "--workers", str(given.workers))
    result["extend"] = {
        "seconds": seconds,
        "rows_a_second": given.new / seconds,
        "measured_gib": found["measured"]["total"] / 2**30,
        "planned_gib": found["predicted"]["total"] / 2**30,
        "worker_gib": found["measured"]["worker"] / 2**30,
    }
    dm = be.load(model)
    from bigembed.store.arrays import read_array

    sample, embedding = read_array(fitted, 0, 1_000), np.asarray(dm.embedding_[:1_000])
    dm.transform(sample[:10])
    result["small"] = {}
    for rows in (1, 1_000):
        began = time.perf_counter()
        back = dm.transform(sample[:rows])
        result["small"][f"seconds_of_{rows}"] = time.perf_counter() - began
    result["small"]["back"] = float(np.abs(back - embedding).max() / np.abs(embedding).max())
    table("extend", {"n": given.n, "new": given.new, "d": given.d, "workers": given.workers}, result)


if __name__ == "__main__":
    main()
