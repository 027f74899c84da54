"""`bigembed certify`: a million rows with two coordinates; seconds, resident memory, and the figures.

    python benchmarks/certify.py --n 1000000 --d 64 --folder bench-data

The rows are the Gaussian mixture. Three maps of them: their first two columns, which show little and cost most (ranks
go through all rows); the same shuffled, which must be flagged; and coordinates of which one row carries everything.
At ``--exact`` rows the figures of 1000 sampled rows are compared with those of all rows, in standard errors.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
from common import BLOCK, data_set, peak_of, table

FIGURES = ("preservation", "trustworthiness", "continuity", "triplets")


def certified(rows: str, coordinates: Path) -> tuple[dict[str, Any], float, int]:
    """What the command found, its seconds and its peak of memory."""
    began = time.perf_counter()
    command = [sys.executable, "-m", "bigembed.cli", "certify", rows, str(coordinates), "--json"]
    process = subprocess.Popen(command, stdout=subprocess.PIPE)
    peak = peak_of(process.pid)
    out, _ = process.communicate()
    return json.loads(out.splitlines()[-1]), time.perf_counter() - began, peak()


def maps(rows: str, folder: Path) -> dict[str, Path]:
    """Coordinates to certify, written beside the rows."""
    from bigembed.rows.opening import open_zarr

    array = open_zarr(rows)
    n = array.shape[0]
    columns = np.concatenate([array[start : start + BLOCK, :2] for start in range(0, n, BLOCK)])
    spike = 1e-9 * columns
    spike[0] = 1
    made = {"columns": columns, "shuffled": np.random.default_rng(0).permutation(columns), "spike": spike}
    paths = {name: folder / f"certify-{n}-{name}.npy" for name in made}
    for name, values in made.items():
        np.save(paths[name], values)
    return paths


def errors(rows: str, coordinates: Path) -> dict[str, float]:
    """How many standard errors the figures of a sample are from those of all rows."""
    import bigembed as be

    sampled = be.certify(rows, coordinates).figures
    whole = be.certify(rows, coordinates, samples=sampled["n"]).figures
    return {
        name: (sampled[name]["value"] - whole[name]["value"]) / (sampled[name]["standard_error"] or 1.0)
        for name in FIGURES
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--n", type=int, default=1_000_000)
    parser.add_argument("--d", type=int, default=64)
    parser.add_argument("--exact", type=int, default=10_000)
    parser.add_argument("--folder", default="bench-data")
    given = parser.parse_args()
    folder = Path(given.folder)
    rows = data_set("mixture", folder, n=given.n, d=given.d)
    found: dict[str, dict[str, Any]] = {}
    for name, path in maps(rows, folder).items():
        said, seconds, peak = certified(rows, path)
        values = {figure: said[figure]["value"] for figure in FIGURES}
        found[name] = {"seconds": seconds, "peak_GiB": peak / 2**30, **values, "warnings": len(said["warnings"])}
    small = data_set("mixture", folder, n=given.exact, d=given.d)
    found["in standard errors"] = errors(small, maps(small, folder)["columns"])
    table("certify", {"n": given.n, "d": given.d}, found)


if __name__ == "__main__":
    main()
