"""Rows condensed, a diffusion map of the cells with their counts, all rows placed: `bigembed run` with `[condense]`.

    python benchmarks/condense.py --n 100000000 --folder bench-data

The rows lie on an uneven torus in 16 dimensions, with noise that is small beside the distances of neighbors among 10⁷
of them (``--noise``); there is one cell for a hundred of them, or as many as ``--cells`` says. Seconds are those of the
job and, as ``processor``, of all its processes together, from rows in Zarr to float32 coordinates of all rows in Zarr;
memory is the peak of all processes together. ``--full`` also maps all rows without condensing, or as many of the first
as it names, and says the sine of the largest angle between the two subspaces of coordinates of these rows (``angle``);
of a control, too, where cells count alike (``--radius`` makes cells that are far from doing so). Where noise is as
large as distances between neighbors a map of all rows is one of the noise, and one of cells, whose means have less of
it, is not: with a noise of .002 the angle of 10⁵ cells to 10⁶ rows is .11.
"""

from __future__ import annotations

import argparse
import shutil
import subprocess
import sys
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import zarr
from common import BLOCK, data_set, finished_job, table

from bigembed.datasets import Dataset

D, M, NOISE, SMALL = 16, 6, 5e-5, 0.4
"""Columns, coordinates, noise of a column, and the smaller radius of the torus, beside 1."""
JOB = """
[input]
path = "{rows}"
{more}
[method]
name = "diffusion_map"
n_components = {m}
[output]
path = "{out}"
model = "{out}-model"
[cluster]
workers = {workers}
memory = "1 GiB"
"""


def torus_block(
    start: int, stop: int, rng: np.random.Generator, n: int, noise: float = NOISE
) -> tuple[np.ndarray, dict[str, Any]]:
    """Rows of the torus: three times as many at one side as at the other."""
    count = stop - start
    along, around = rng.uniform(0, 2 * np.pi, (2, count))
    along = along + 0.5 * np.sin(along)
    turn = np.linalg.qr(np.random.default_rng(9).normal(size=(D, D)))[0]
    rows = np.zeros((count, D), np.float32)
    rows[:, :4] = np.column_stack([np.cos(along), np.sin(along), SMALL * np.cos(around), SMALL * np.sin(around)])
    rows[:, 4] = 0.3 * rows[:, 0] ** 2
    rows = rows @ turn.astype(np.float32)
    rows += np.float32(noise) * rng.standard_normal((count, D), np.float32)
    return rows, {}


def run(job: str, out: Path) -> dict[str, Any]:
    """What a job took, and its record."""
    record, processor = finished_job(job, out)
    return {
        "seconds": record["seconds"],
        "processor": processor,
        "measured_gib": record["measured"]["total"] / 2**30,
        "planned_gib": record["predicted"]["total"] / 2**30,
        "disk_gib": sum(path.stat().st_size for path in out.rglob("*") if path.is_file()) / 2**30,
        "condensed": record["certificate"].get("condense", {}),
        "stages": {stage["name"]: stage["seconds"] for stage in record["stages"]},
    }


def angle(first: Path, second: Path) -> float:
    """The sine of the largest angle between the spans of the centered columns of two arrays of coordinates, over the
    rows that the shorter one has."""
    a, b = (zarr.open_array(path, mode="r") for path in (first, second))
    n = min(a.shape[0], b.shape[0])
    sums, gram = np.zeros(2 * M), np.zeros((2 * M, 2 * M))
    for start in range(0, n, BLOCK):
        stop = min(start + BLOCK, n)
        part = np.concatenate([a[start:stop], b[start:stop]], axis=1).astype(np.float64)
        sums += part.sum(axis=0)
        gram += part.T @ part
    gram -= np.outer(sums, sums) / n
    left, right = (np.linalg.inv(np.linalg.cholesky(gram[part, part])) for part in (slice(0, M), slice(M, None)))
    cosines = np.linalg.svd(left @ gram[:M, M:] @ right.T, compute_uv=False)
    return float(np.sqrt(max(0.0, 1 - cosines[-1] ** 2)))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--n", type=int, default=1_000_000)
    parser.add_argument("--cells", type=int, help="about how many cells; by default one for a hundred rows")
    parser.add_argument("--radius", type=float, help="how wide cells may be, instead")
    parser.add_argument(
        "--full", type=int, nargs="?", const=0, metavar="FIRST",
        help="map all rows without condensing, too, or as many of the first",
    )  # fmt: skip
    parser.add_argument("--noise", type=float, default=NOISE)
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--folder", default="bench-data")
    parser.add_argument("--keep", action="store_true", help="leave the runs there")
    given = parser.parse_args()
    folder = Path(given.folder).absolute()
    block = partial(torus_block, noise=given.noise)
    rows, first = (
        data_set("torus", folder, Dataset("torus", (n, D), block, granule=BLOCK), n=n, noise=given.noise)
        for n in (given.n, given.full or given.n)
    )
    asked = f"radius = {given.radius}" if given.radius else f"rows = {given.cells or given.n // 100}"
    out, whole, alike = (folder / f"condense-{name}" for name in ("cells", "whole", "alike"))
    fixed = {"m": M, "workers": given.workers}
    job = JOB.format(rows=rows, more=f'[condense]\n{asked}\ndtype = "float32"', out=out, **fixed)
    result = {"condensed": run(job, out)}
    if given.full is not None:
        result["whole"] = run(JOB.format(rows=first, more="", out=whole, **fixed), whole)
        result["condensed"]["angle"] = angle(out / "placed", whole / "coordinates")
        means = out / "condensed" / "stages" / "cells" / "rows"
        result["alike"] = run(JOB.format(rows=means, more="", out=alike, **fixed), alike)
        shutil.rmtree(f"{alike}-placed", ignore_errors=True)
        words = ["extend", f"{alike}-model", first, f"{alike}-placed", "--workers", str(given.workers)]
        subprocess.run([sys.executable, "-m", "bigembed.cli", *words], stdout=subprocess.DEVNULL, check=True)
        result["alike"]["angle"] = angle(Path(f"{alike}-placed"), whole / "coordinates")
    if not given.keep:
        for place in (out, whole, alike):
            for path in (place, f"{place}-model", f"{place}-placed"):
                shutil.rmtree(path, ignore_errors=True)
    parameters = {
        "n": given.n,
        **({"radius": given.radius} if given.radius else {"cells": given.cells or given.n // 100}),
        **({"noise": given.noise} if given.noise != NOISE else {}),
    }
    table("condense", parameters, result)


if __name__ == "__main__":
    main()
