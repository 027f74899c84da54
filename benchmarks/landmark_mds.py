"""Landmark MDS of 10⁷ × 32 float32 rows beside a bare read and write; of 5 000 rows beside scikit-learn's MDS.

    python benchmarks/landmark_mds.py --folder bench-data                    # everything
    python benchmarks/landmark_mds.py --folder bench-data --n 1000000        # fewer rows
    python benchmarks/landmark_mds.py --folder bench-data --sides agreement  # the comparison alone

Rows of a Gaussian mixture, 500 landmarks, two workers of one thread and 512 MiB. ``bare`` reads every block of the
rows and writes as many columns of it as there are coordinates, in the format that coordinates have. ``euclidean`` and
``cityblock`` are fit_transform_to: sample, landmarks, coordinates of all rows in a new Zarr array. Each side runs in
its own process after a small fit that loads what it needs; peak memory is the resident memory of the process, its
scheduler and its workers together, sampled ten times a second. ``agreement``: how far from scikit-learn's coordinates
(Procrustes: rotation and translation, for its stress-minimizing MDS also scale) ours are at 5 000 rows, and times.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import time
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from common import clear, data_set, peak_of, table

COLUMNS, LANDMARKS = 32, 500
WORKERS, LIMIT = 2, 512 << 20
FEW = 5_000
SIDES = ("bare", "euclidean", "cityblock", "agreement")


def bare_block(start: int, stop: int, path: str, out: str, width: int) -> None:
    """Read some rows, write a few of their columns."""
    from bigembed.store.arrays import read_array, write_rows

    write_rows(out, start, np.ascontiguousarray(read_array(path, start, stop)[:, :width]))


def bare(path: str, out: str, width: int) -> None:
    """Every block, read and written."""
    from bigembed.rows.input import row_source
    from bigembed.runtime.blocks import bounds, map_blocks
    from bigembed.store.arrays import create_rows

    source, _ = row_source(path, Path(out))
    create_rows(out, (source.shape[0], width), source.work, source.block)
    fixed = {"path": path, "out": out, "width": width}
    map_blocks(bare_block, bounds(source.shape[0], source.block), **fixed)


def embed(metric: str) -> Callable[[str, str, int], Any]:
    """LandmarkMDS by a metric, its coordinates written."""

    def run(path: str, out: str, width: int) -> Any:
        from bigembed import LandmarkMDS

        mds = LandmarkMDS(width, n_landmarks=LANDMARKS, metric=metric)
        mds.fit_transform_to(path, out)
        return mds

    return run


RUN: dict[str, Callable[[str, str, int], Any]] = {
    "bare": bare,
    "euclidean": embed("euclidean"),
    "cityblock": embed("cityblock"),
}


def side(name: str, path: str, warm: str, out: str, width: int) -> dict[str, Any]:
    """One side on two workers, after a small run of it."""
    from bigembed.jobs.places import ClusterTable
    from bigembed.jobs.places.cluster import cluster
    from bigembed.runtime import using

    with cluster(ClusterTable(workers=WORKERS, memory=LIMIT), "embedded") as place, using(executor=place.executor):
        RUN[name](warm, f"{out}.warm", width)
        began = time.perf_counter()
        found = RUN[name](path, out, width)
        seconds = time.perf_counter() - began
    result: dict[str, Any] = {"seconds": seconds}
    if found is not None:
        result |= {"stress": found.stress_, "change_by_half": found.landmark_change_}
    return result


def timed(function: Callable[[], Any]) -> tuple[Any, float]:
    """The result of a call, and how long it took."""
    began = time.perf_counter()
    found = function()
    return found, time.perf_counter() - began


def agreement(path: str, width: int) -> dict[str, Any]:
    """Ours and scikit-learn's on the same few rows."""
    from scipy.spatial.distance import cdist
    from sklearn import manifold

    from bigembed import ClassicalMDS, LandmarkMDS
    from bigembed.maps.landmark_rows import procrustes_residual, stress
    from bigembed.store.arrays import read_array

    warnings.simplefilter("ignore")
    rows = read_array(path, 0, FEW).astype(np.float64)
    apart = cdist(rows, rows)
    ClassicalMDS(2, metric="precomputed").fit(apart[:1100, :1100])
    found: dict[str, Array] = {}
    seconds: dict[str, float] = {}

    def take(name: str, fit: Callable[[], Any]) -> None:
        fitted, seconds[name] = timed(fit)
        found[name] = np.asarray(fitted.embedding_)

    take("classical", lambda: ClassicalMDS(width, metric="precomputed").fit(apart))
    take("classical_rows", lambda: ClassicalMDS(width).fit(rows))
    take("landmark", lambda: LandmarkMDS(width, n_landmarks=LANDMARKS).fit(rows))
    if hasattr(manifold, "ClassicalMDS"):
        take("sklearn_classical", lambda: manifold.ClassicalMDS(width, metric="precomputed").fit(apart))
    take("sklearn_mds", lambda: smacof(manifold, width).fit(apart))
    out: dict[str, Any] = {f"seconds_{name}": value for name, value in seconds.items()}
    out |= {f"stress_{name}": stress(apart, value)[0] for name, value in found.items()}
    if "sklearn_classical" in found:
        for name in ("classical", "classical_rows", "landmark"):
            out[f"{name}_from_sklearn_classical"] = procrustes_residual(found["sklearn_classical"], found[name])
    for name in ("classical", "landmark"):
        out[f"{name}_from_sklearn_mds"] = procrustes_residual(
            found["sklearn_mds"], scaled(found[name], found["sklearn_mds"])
        )
    return out


Array = np.ndarray[Any, Any]


def smacof(manifold: Any, width: int) -> Any:
    """scikit-learn's MDS, one start, as its version spells that distances are given."""
    import inspect

    known = inspect.signature(manifold.MDS).parameters
    given = {"metric": "precomputed"} if "metric_mds" in known else {"dissimilarity": "precomputed"}
    start = {"init": "classical_mds"} if "init" in known else {}
    return manifold.MDS(width, n_init=1, max_iter=50, random_state=0, **given, **start)


def scaled(points: Array, like: Array) -> Array:
    """Points of the best scale for a comparison with others."""
    y, z = like - like.mean(axis=0), points - points.mean(axis=0)
    return z * (np.linalg.svd(z.T @ y, compute_uv=False).sum() / np.sum(z * z))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--n", type=int, default=10_000_000)
    parser.add_argument("--components", type=int, default=10)
    parser.add_argument("--folder", default="bench-data")
    parser.add_argument("--sides", nargs="+", choices=SIDES, default=SIDES)
    parser.add_argument("--side", choices=SIDES)
    given = parser.parse_args()
    folder, m = Path(given.folder), given.components
    path = data_set("mixture", folder, n=given.n, d=COLUMNS)
    warm = data_set("mixture", folder, n=70_000, d=COLUMNS)
    out = str(folder / "landmark-mds-output.zarr")
    clear(out)
    if given.side:
        result = agreement(warm, m) if given.side == "agreement" else side(given.side, path, warm, out, m)
        print(json.dumps(result))
        return
    rows: dict[str, dict[str, Any]] = {}
    for name in given.sides:
        command = [sys.executable, __file__, "--side", name, "--n", str(given.n), "--components", str(m)]
        process = subprocess.Popen([*command, "--folder", given.folder], stdout=subprocess.PIPE, text=True)
        peak = peak_of(process.pid)
        output, _ = process.communicate()
        if process.returncode:
            sys.exit(f"{name}: failed")
        rows[name] = json.loads(output.strip().splitlines()[-1]) | {"peak_gib": round(peak() / 2**30, 3)}
        if name != "agreement":
            rows[name]["rows_per_second"] = given.n / rows[name]["seconds"]
        clear(out)
    if {"bare", "euclidean"} <= rows.keys():
        rows["ratio"] = {"euclidean_over_bare": rows["euclidean"]["seconds"] / rows["bare"]["seconds"]}
    table("landmark_mds", {"n": given.n, "d": COLUMNS, "m": m}, rows)


if __name__ == "__main__":
    main()
