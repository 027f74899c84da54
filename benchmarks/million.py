"""A million rows by methods that came later: `bigembed run` from Zarr to Zarr, memory measured and planned.

    python benchmarks/million.py                  # PHATE, PaCMAP, UMAP's variants, truncated SVD, a random projection
    python benchmarks/million.py phate --n 100000

The rows are the Gaussian mixture of 64 columns with its labels; two workers of 1.5 GiB. ``processor`` are the seconds
of all processes together, memory the peak of the resident memory of all of them, with client and scheduler. The figures
of the map are those of its certificate, and so is the number of warnings.
"""

from __future__ import annotations

import argparse
import shutil
from pathlib import Path
from typing import Any

import numpy as np
from common import BLOCK, finished_job, table

from bigembed.datasets import dataset
from bigembed.store.arrays import create_rows, write_rows

D = 64
METHODS = {
    "phate": 'name = "phate"',
    "pacmap": 'name = "pacmap"',
    "umap": 'name = "umap"',
    "umap_labels": 'name = "umap"\ntarget_metric = "categorical"',
    "umap_densities": 'name = "umap"\ndensmap = true',
    "truncated_svd": 'name = "truncated_svd"\nn_components = 10',
    "gaussian_projection": 'name = "pca"\nn_components = 10',
}
JOB = """
[input]
path = "{rows}"
{labels}
{steps}
[method]
{method}
[output]
path = "{out}"
[cluster]
workers = 2
memory = "1.5 GiB"
"""
STEP = '[[steps]]\nname = "gaussian_projection"\nn_components = 32'


def written(n: int, folder: Path) -> tuple[str, str]:
    """Paths of the rows and of their labels, made once."""
    path, labels = folder / f"million-{n}.zarr", folder / f"million-{n}-labels.npy"
    if not labels.exists():
        folder.mkdir(parents=True, exist_ok=True)
        shutil.rmtree(path, ignore_errors=True)
        made, found = dataset("mixture", n=n, d=D), []
        create_rows(path, (n, D), np.dtype("f4"), BLOCK)
        for start in range(0, n, BLOCK):
            rows, truth = made.draw(start, min(start + BLOCK, n))
            write_rows(path, start, rows.astype("f4"))
            found.append(truth["label"])
        np.save(labels, np.concatenate(found))
    return str(path), str(labels)


def run(method: str, rows: str, labels: str, out: Path) -> dict[str, Any]:
    """What a job took, and what its certificate says."""
    more = {
        "labels": f'labels = "{labels}"' if method == "umap_labels" else "",
        "steps": STEP if "proj" in method else "",
    }
    job = JOB.format(rows=rows, method=METHODS[method], out=out, **more)
    record, processor = finished_job(job, out)
    judged = record["certificate"].get("judgement", {}).get("map", {})
    found = {
        "seconds": record["seconds"],
        "processor": processor,
        "measured_gib": record["measured"]["total"] / 2**30,
        "planned_gib": record["predicted"]["total"] / 2**30,
        "planned_seconds": record["plan"].get("seconds"),
        **{name: judged[name]["value"] for name in ("trustworthiness", "preservation", "triplets") if name in judged},
        "warnings": sum(len(said) for said in record["certificate"].get("warnings", {}).values()),
        "stages": {stage["name"]: stage["seconds"] for stage in record["stages"]},
    }
    shutil.rmtree(out)
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("methods", nargs="*", default=[*METHODS])
    parser.add_argument("--n", type=int, default=1_000_000)
    parser.add_argument("--folder", type=Path, default=Path("bench-data"))
    asked = parser.parse_args()
    rows, labels = written(asked.n, asked.folder.absolute())
    for method in asked.methods:
        found = run(method, rows, labels, asked.folder.absolute() / f"million-{method}")
        table("million", {"method": method, "n": asked.n}, {"bigembed": found})


if __name__ == "__main__":
    main()
