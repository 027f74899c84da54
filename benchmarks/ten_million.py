"""The picture on the first page: a diffusion map of ten million rows by `bigembed run`, drawn light and dark.

    python benchmarks/ten_million.py --folder bench-data

The rows are windows of a chaotic signal: sixteen successive values of the coordinate x of Lorenz's system (σ = 10,
ρ = 28, β = 8/3), .04 apart, along 1 024 paths a block. Two coordinates of the map show the attractor that the signal
comes from, which no row holds. Seconds are those of the job and, as ``processor``, of all its processes together, from
rows in Zarr to coordinates in Zarr; memory is the peak of all processes together; disk what the run takes at the end.
``--pictures`` says where the two pictures go.
"""

from __future__ import annotations

import argparse
import json
import resource
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import zarr
from common import data_set, table

from bigembed.datasets import Dataset
from bigembed.plotting.canvas import View, count_points, png
from bigembed.plotting.palette import SCHEMES, Paint, limits_of

WINDOW, APART, STEPS, GRANULE = 16, 0.04, 5, 65_536
"""Values in a row, the time between them, steps of the integration in that time, and rows that are made together."""
WINDOWS, SETTLING = 64, 200
"""Rows of a path, and values of it that are left out before the first."""
AXES, SIZE = (0, 3), 900
"""The coordinates that are drawn, and the pixels of a side."""
JOB = """
[input]
path = "{rows}"
[method]
name = "diffusion_map"
n_components = 6
n_neighbors = 15
[output]
path = "ten-million.zarr"
[cluster]
workers = 2
memory = "1.5 GiB"
"""


def lorenz(state: np.ndarray) -> np.ndarray:
    """The velocity of states (3, paths)."""
    x, y, z = state
    return np.stack([10 * (y - x), x * (28 - z) - y, x * y - 8 / 3 * z])


def window_block(start: int, stop: int, rng: np.random.Generator, n: int) -> tuple[np.ndarray, dict[str, Any]]:
    """Windows of x along paths of their own, by the classical method of Runge and Kutta."""
    paths = -(-(stop - start) // WINDOWS)
    state = 5 * rng.standard_normal((3, paths)) + np.array([[0.0], [0.0], [25.0]])
    h, signal = APART / STEPS, np.empty((WINDOWS + WINDOW - 1, paths))
    for value in range(-SETTLING, len(signal)):
        for _ in range(STEPS):
            first = lorenz(state)
            second = lorenz(state + h / 2 * first)
            third = lorenz(state + h / 2 * second)
            state = state + h / 6 * (first + 2 * second + 2 * third + lorenz(state + h * third))
        if value >= 0:
            signal[value] = state[0]
    windows = np.lib.stride_tricks.sliding_window_view(signal, WINDOW, axis=0)
    return windows.transpose(1, 0, 2).reshape(-1, WINDOW)[: stop - start], {}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--n", type=int, default=10_000_000)
    parser.add_argument("--folder", default="bench-data")
    parser.add_argument("--pictures", type=Path, help="folder of the pictures; --folder by default")
    given = parser.parse_args()
    folder = Path(given.folder).absolute()
    made = Dataset("lorenz", (given.n, WINDOW), window_block, granule=GRANULE)
    rows = data_set("lorenz", folder, made, n=given.n)
    job, output = folder / "ten-million.toml", folder / "ten-million.zarr"
    shutil.rmtree(output, ignore_errors=True)
    job.write_text(JOB.format(rows=rows))
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    subprocess.run([sys.executable, "-m", "bigembed.cli", "run", str(job)], stdout=subprocess.DEVNULL, check=True)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    record = json.loads((output / "job.json").read_text())
    result = {
        "seconds": record["seconds"],
        "processor": after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime,
        "measured_gib": record["measured"]["total"] / 2**30,
        "planned_gib": record["predicted"]["total"] / 2**30,
        "disk_gib": sum(path.stat().st_size for path in output.rglob("*") if path.is_file()) / 2**30,
        "passes": record["certificate"]["passes"],
        "recall": record["certificate"]["recall"]["recall"],
        "stages": {stage["name"]: stage["seconds"] for stage in record["stages"]},
    }
    table("ten_million", {"n": given.n}, {"bigembed": result})
    draw(output, given.pictures or folder)


def draw(output: Path, folder: Path, name: str = "ten_million", axes: tuple[int, int] = AXES) -> None:
    """Count the points of the map on a grid, and write it in light and in dark colours."""
    coordinates = zarr.open_array(output / "stages" / "coordinates" / "embedding", mode="r")
    limits = limits_of(coordinates, axes)
    [grid] = count_points(coordinates, axes, limits, [View(0, 1, SIZE)])
    for scheme in SCHEMES:
        (folder / f"{name}_{scheme.name}.png").write_bytes(png(grid, Paint(), scheme))


if __name__ == "__main__":
    main()
