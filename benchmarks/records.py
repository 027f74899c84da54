"""The records of the field on this machine: maps of the same sizes, beside what was published elsewhere.

    python benchmarks/records.py diffusion_map                                # 6.6·10⁶ × 28, as annembed's of HIGGS
    python benchmarks/records.py umap --n 10000000 --d 16 --steps 20          # memory of a descent of 10⁷ rows
    python benchmarks/records.py tsne --n 10000000 --d 16 --steps 20

annembed's figures are of 24 cores. HIGGS is not shipped: the rows are a Gaussian mixture of its shape, so that only the
order of magnitude can be compared. Everything is read from Zarr and written there, through two workers of 1.5 GiB. With
``--steps`` a descent ends early: memory and the time of a step are those of the whole, the map is not. (Graphs of the
generators of TorchDR's benchmark: ``nn_descent.py``.)
"""

from __future__ import annotations

import argparse
import shutil
from pathlib import Path
from typing import Any

from common import data_set, finished_job, table

PUBLISHED = {("diffusion_map", 6_600_000): {"seconds": 200.0, "processor": 700.0, "on": "24 cores, annembed, HIGGS"}}
SIZES = {"diffusion_map": (6_600_000, 28), "umap": (10_000_000, 16), "tsne": (10_000_000, 16)}
STEPS = {"umap": ("n_epochs",), "tsne": ("early_exaggeration_iter", "n_iter")}
"""What divides the steps of a descent among its parts."""
JOB = """
[input]
path = "{rows}"
[method]
name = "{method}"
{parameters}
[output]
path = "{out}"
keep = "map"
[cluster]
workers = 2
memory = "1.5 GiB"
"""


def job_record(method: str, rows: str, out: Path, parameters: str) -> dict[str, Any]:
    """A job from Zarr to Zarr."""
    job = JOB.format(rows=rows, method=method, parameters=parameters, out=out)
    record, processor = finished_job(job, out)
    shutil.rmtree(out)
    return {
        "seconds": record["seconds"],
        "processor": processor,
        "recall": record["certificate"]["recall"]["recall"],
        "measured_gib": record["measured"]["total"] / 2**30,
        "planned_gib": record["predicted"]["total"] / 2**30,
        "planned_seconds": record["plan"].get("seconds"),
        "stages": {stage["name"]: stage["seconds"] for stage in record["stages"]},
    }


def main() -> None:
    """Take the arguments, run, and keep what was found beside what was published."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("record", choices=[*SIZES])
    parser.add_argument("--n", type=int)
    parser.add_argument("--d", type=int)
    parser.add_argument("--steps", type=int, help="steps of a descent, if not all")
    parser.add_argument("--folder", type=Path, default=Path("bench-data"))
    given = parser.parse_args()
    folder, (n, d) = given.folder.absolute(), SIZES[given.record]
    n, d = given.n or n, given.d or d
    parts = STEPS.get(given.record, ())
    asked = "\n".join(f"{name} = {given.steps // len(parts)}" for name in parts) if given.steps else ""
    asked = 'components = "largest"' if given.record == "diffusion_map" else asked
    out = folder / f"record-{given.record}.zarr"
    rows = {"bigembed": job_record(given.record, data_set("mixture", folder, n=n, d=d), out, asked)}
    if published := PUBLISHED.get((given.record, n)):
        rows["published"] = published
    steps = {"steps": given.steps} if given.steps else {}
    table("records", {"record": given.record, "n": n, "d": d, **steps}, rows)


if __name__ == "__main__":
    main()
