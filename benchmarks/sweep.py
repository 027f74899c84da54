"""A sweep of five values over one graph, beside five separate runs: what sharing saves, and what it costs.

    python benchmarks/sweep.py                      # 200 000 rows of a swiss roll, five values of alpha
    python benchmarks/sweep.py --n 10000            # tried small

``bound`` is the graph (all stages before the kernel, the median of five) plus the five solves (kernel to judgement), as
the separate runs measured them; the claim is that the sweep takes at most 1.3 of it. ``page`` is the page of all maps,
which separate runs do not have; it is part of the sweep's time. Coordinates are compared byte by byte.
"""

from __future__ import annotations

import argparse
import shutil
import statistics
import time
from pathlib import Path
from typing import Any

from common import data_set, table

from bigembed.jobs.run import run_job
from bigembed.jobs.spec import parse_job
from bigembed.jobs.sweep.run import sweep
from bigembed.jobs.watching import RunOptions
from bigembed.store.arrays import read_array

ALPHA = [0.0, 0.25, 0.5, 0.75, 1.0]
AFTER = ("kernel", "components", "solve", "coordinates", "judgement")
"""Stages that depend on alpha."""


def job_of(folder: Path, rows: str, output: str, **more: Any) -> Any:
    method = {"name": "diffusion_map", "n_components": 3, **more.pop("method", {})}
    tables = {"input": {"path": rows}, "method": method, "output": {"path": output}, **more}
    return parse_job(tables, folder / "job.toml")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--n", type=int, default=200_000)
    parser.add_argument("--folder", type=Path, default=Path("bench-data"))
    given = parser.parse_args()
    folder = given.folder.absolute()
    rows = data_set("swiss_roll", folder, n=given.n)
    small = data_set("swiss_roll", folder, n=2_000)
    outputs = ["warm.zarr", "sweep.zarr", *(f"run{alpha}.zarr" for alpha in ALPHA)]
    for output in outputs:
        shutil.rmtree(folder / output, ignore_errors=True)
    run_job(job_of(folder, small, "warm.zarr"))  # (compiled functions, and the rates of this machine)
    graphs, after, whole = [], 0.0, 0.0
    for alpha in ALPHA:
        found = run_job(job_of(folder, rows, f"run{alpha}.zarr", method={"alpha": alpha}))
        seconds = {stage["name"]: stage["seconds"] for stage in found["stages"]}
        after += sum(seconds[name] for name in AFTER)
        graphs.append(sum(taken for name, taken in seconds.items() if name not in AFTER))
        whole += found["seconds"]
    before = statistics.median(graphs)
    told: dict[str, float] = {}
    options = RunOptions(lambda event: told.update({event.stage: event.seconds}) if event.kind == "done" else None)
    began = time.perf_counter()
    swept = sweep(job_of(folder, rows, "sweep.zarr", sweep={"alpha": ALPHA}), options)
    taken = time.perf_counter() - began
    place = "stages/coordinates/embedding"
    same = all(
        read_array(row["coordinates"]).tobytes() == read_array(folder / f"run{alpha}.zarr" / place).tobytes()
        for alpha, row in zip(ALPHA, swept["rows"], strict=True)
    )
    table(
        "sweep",
        {"n": given.n},
        {
            "runs": {"seconds": whole, "graph": before, "solves": after, "bound": before + after},
            "sweep": {
                "seconds": taken,
                "of_bound": taken / (before + after),
                "of_runs": taken / whole,
                "page": told["page"],
                "stages": swept["stages"],
                "asked": swept["asked"],
                "same_bytes": same,
            },
        },
    )
    for output in outputs:
        shutil.rmtree(folder / output, ignore_errors=True)


if __name__ == "__main__":
    main()
