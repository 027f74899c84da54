"""Ten eigenpairs of a normalized kernel: passes, bytes moved and time, beside ARPACK on the same matrix.

    python benchmarks/eigenpairs.py --data swiss_roll --n 100000 --folder bench-data

The kernel is that of a diffusion map by default (k = 15, α = 1, the scale that follows the density of the rows;
of the mixture the largest component; k = 12 of the sphere with relief, a rough surface in four columns).
bigembed solves it as a job with two workers of one thread does: with its vectors in the memory of the coordinating
process, on two threads (``--files``: in files, by the workers); ARPACK (scipy.sparse.linalg.eigsh) has the same matrix
in memory. Imports and compilation are left out on both sides (a small map is made first). Both residuals are explicit.
``--no-arpack`` leaves ARPACK out, which takes thousands of products at 10⁶ rows.
"""

from __future__ import annotations

import argparse
import json
import shutil
import subprocess
import sys
import time
import warnings
from pathlib import Path
from typing import Any

import numpy as np
from common import data_set, table

from bigembed.datasets import Dataset

DATA: dict[str, dict[str, Any]] = {"swiss_roll": {"noise": 0.05}, "mixture": {"d": 64}, "sphere_with_relief": {}}
NEIGHBORS = {"sphere_with_relief": 12}
PAIRS, TOL = 10, 1e-6


def relief_block(start: int, stop: int, rng: np.random.Generator, n: int) -> tuple[np.ndarray, dict[str, Any]]:
    """Points of the unit sphere, and a relief of standard deviation .15: 50 plane waves of amplitude f^−1.2."""
    x = rng.standard_normal((stop - start, 3))
    x /= np.linalg.norm(x, axis=1)[:, None]
    waves, relief = np.random.default_rng(7), np.zeros(stop - start)
    frequencies = 2 * 1.1 ** np.arange(50)
    for frequency in frequencies:
        along = waves.standard_normal(3)
        phase = frequency * (x @ (along / np.linalg.norm(along))) + waves.uniform(0, 2 * np.pi)
        relief += np.cos(phase) / frequency**1.2
    size = np.sqrt(np.sum(frequencies**-2.4) / 2)
    return np.column_stack([x, 0.15 * relief / size]), {}


def rows_of(name: str, folder: Path, n: int) -> str:
    """Path of the rows, written once."""
    made = Dataset(name, (n, 4), relief_block) if name == "sphere_with_relief" else None
    return data_set(name, folder, made, n=n, **DATA[name])


def ours(path: str, run: str, neighbors: int, files: bool) -> dict[str, Any]:
    """The whole map; the figures are those of its solve stage."""
    import bigembed as be
    from bigembed.jobs.places import ClusterTable
    from bigembed.jobs.places.cluster import cluster
    from bigembed.runtime import using

    warnings.simplefilter("ignore")
    shutil.rmtree(run, ignore_errors=True)
    with (
        cluster(ClusterTable(workers=2, memory=3 << 29), "embedded") as place,
        using(executor=place.executor, vector_memory=0 if files else None),
    ):
        small = np.random.default_rng(0).random((140_000, 3)).astype(np.float32)
        be.DiffusionMap(2, tol=1e-2).fit(small)  # both workers have imported and compiled what they need
        dm = be.DiffusionMap(PAIRS, n_neighbors=neighbors, tol=TOL, components="largest", workdir=run).fit(path)
    solved = dm.certificate_["eigenpairs"]["0"]
    measured = dm._run.manifest("solve").measured
    return {
        "seconds": measured["seconds"],
        "passes": solved["passes"],
        "gigabytes_moved": solved["bytes_moved"] / 1e9,
        "residual": max(solved["residuals"]),
        "rows": dm.certificate_["component_sizes"][0],
        "last": solved["eigenvalues"][-1],
    }


def matrix(run: str) -> Any:
    """S = D^{-1/2} W D^{-1/2} of the largest component, in memory."""
    from scipy.sparse import diags_array

    part = weights(run)[0]
    scale = diags_array(1 / np.sqrt(np.asarray(part.sum(axis=1)).ravel()))
    return (scale @ part @ scale).tocsr()


def weights(run: Any) -> tuple[Any, np.ndarray]:
    """The kernel W on the largest component of a run (or of that at a path), in memory; which rows those are."""
    from scipy.sparse import coo_array

    from bigembed.maps.walk.spectral import weights_of
    from bigembed.runtime import silent
    from bigembed.stages.runs import Run
    from bigembed.stages.stage import Context, Stage
    from bigembed.store.arrays import read_array
    from bigembed.store.exchange import Exchange

    home = Run(run) if isinstance(run, str) else run
    context = Context(Stage("bench", (), {}, lambda _: {}), home, Exchange(str(home.root)), silent)
    stored = weights_of(context)
    starts = np.concatenate([[0], np.cumsum(stored.rows)])
    parts = []
    for b in range(len(stored.rows)):
        block = stored.block(b)
        own = np.arange(starts[b], starts[b + 1])
        far = np.repeat(starts[block.halo_sources], np.diff(block.halo_offsets)) + block.halo_rows
        row = np.repeat(own, np.diff(block.indptr))
        parts.append((block.data.astype(np.float64), row, np.concatenate([own, far])[block.indices]))
    data, row, column = (np.concatenate(part) for part in zip(*parts, strict=True))
    whole = coo_array((data, (row, column)), shape=(starts[-1], starts[-1])).tocsr()
    label = np.concatenate([read_array(home.path("components", f"labels/{b}")) for b in range(len(stored.rows))])
    return whole[label == 0][:, label == 0].tocsr(), label == 0


def arpack(run: str) -> dict[str, Any]:
    """Eleven pairs (the trivial one too) by ARPACK to the same explicit residual."""
    from scipy.sparse.linalg import LinearOperator, eigsh

    S = matrix(run)
    products = [0]

    def product(x: np.ndarray) -> np.ndarray:
        products[0] += 1
        return S @ x

    began = time.perf_counter()
    view = LinearOperator(S.shape, matvec=product, dtype=np.float64)
    values, vectors = eigsh(view, PAIRS + 1, which="LA", tol=TOL / 10, v0=np.ones(S.shape[0]), maxiter=100_000)
    seconds = time.perf_counter() - began
    residual = np.linalg.norm(S @ vectors - vectors * values, axis=0).max()
    return {"seconds": seconds, "passes": products[0], "residual": float(residual), "last": float(values.min())}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", choices=sorted(DATA), default="swiss_roll")
    parser.add_argument("--n", type=int, default=100_000)
    parser.add_argument("--folder", default="bench-data")
    parser.add_argument("--no-arpack", action="store_true")
    parser.add_argument("--files", action="store_true")
    parser.add_argument("--side", choices=["ours", "arpack"])
    given = parser.parse_args()
    path = rows_of(given.data, Path(given.folder), given.n)
    run = f"{given.folder}/eigen-{given.data}-{given.n}.zarr"
    if given.side:
        neighbors = NEIGHBORS.get(given.data, 15)
        print(json.dumps(ours(path, run, neighbors, given.files) if given.side == "ours" else arpack(run)))
        return
    rows: dict[str, dict[str, Any]] = {}
    for side in ("ours", *([] if given.no_arpack else ["arpack"])):
        command = [sys.executable, __file__, "--data", given.data, "--n", str(given.n), "--folder", given.folder]
        command += ["--files"] if given.files else []
        done = subprocess.run([*command, "--side", side], stdout=subprocess.PIPE, text=True, check=True)
        rows[side] = json.loads(done.stdout.strip().splitlines()[-1])
    if "arpack" in rows:
        rows["ratio"] = {name: rows["ours"][name] / rows["arpack"][name] for name in ("seconds", "passes")}
    table("eigenpairs", {"data": given.data, "n": given.n} | ({"files": True} if given.files else {}), rows)


if __name__ == "__main__":
    main()
