"""PCA: bigembed beside dask-ml, scikit-learn's IncrementalPCA, and the bare read of the same Zarr array.

    python benchmarks/linear.py --n 2000000 --folder bench-data             # every side
    python benchmarks/linear.py --n 4000000 --folder bench-data --sides read gram ours

Rows of a Gaussian mixture, float32, 256 columns, 10 components. Each side runs in its own process on Dask's threads,
one a core, after a small fit that loads what it needs. ``fit`` has no output pass; ``output`` is fit_transform to a
new Zarr array. ``read`` reads every block and keeps nothing, ``gram`` also takes XᵀX of each block in float32, one
BLAS thread a core. ``ours_opened`` is what the README shows, ``fit(be.open_array(path))``. Peak memory is the
resident memory of all processes of a side together, sampled ten times a second; a side that ends by an error (or is
killed, out of memory) has ``failed``. ``variance``: largest relative difference of the explained variances to those
of the first side that has them among tsqr, ours.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from common import clear, data_set, peak_of, table
from threadpoolctl import threadpool_limits

COMPONENTS = 10
SIDES = ("read", "gram", "ours", "ours_opened", "ours_output", "randomized", "randomized_output", "tsqr", "incremental")


def rows_of(path: str) -> Any:
    """The stored array as Dask reads it: a shard a block."""
    import dask.array as da
    import zarr

    stored = zarr.open_array(path, mode="r")
    return da.from_zarr(path, chunks=stored.shards or stored.chunks)


def touched(block: Any) -> Any:
    """Nothing but that the block was read."""
    return block[:1, :1].copy()  # (a view would keep the block)


def product(block: Any) -> Any:
    """XᵀX of one block, as three axes."""
    return (block.T @ block)[None]


def read(path: str, out: str) -> None:
    """Every block, read."""
    rows = rows_of(path)
    rows.map_blocks(touched, chunks=((1,) * rows.numblocks[0], (1,)), dtype=rows.dtype).compute()


def gram(path: str, out: str) -> None:
    """Every block, read and multiplied, one BLAS thread a core."""
    rows, d = rows_of(path), rows_of(path).shape[1]
    chunks = ((1,) * rows.numblocks[0], (d,), (d,))
    with threadpool_limits(1):
        rows.map_blocks(product, chunks=chunks, new_axis=2, dtype=rows.dtype).sum(axis=0).compute()


def ours(path: str, out: str) -> Any:
    """Fit only."""
    from bigembed import PCA

    return PCA(COMPONENTS).fit(path).explained_variance_


def ours_opened(path: str, out: str) -> Any:
    """Fit only, of the lazy array."""
    from bigembed import PCA, open_array

    return PCA(COMPONENTS).fit(open_array(path)).explained_variance_


def ours_output(path: str, out: str) -> Any:
    """Fit, and coordinates to Zarr."""
    from bigembed import PCA

    pca = PCA(COMPONENTS)
    pca.fit_transform_to(path, out)
    return pca.explained_variance_


def peer(solver: str, output: bool) -> Callable[[str, str], Any]:
    """dask-ml's PCA."""

    def run(path: str, out: str) -> Any:
        from dask_ml.decomposition import PCA

        rows = rows_of(path)
        pca = PCA(COMPONENTS, svd_solver=solver, random_state=0)
        if output:
            pca.fit_transform(rows).to_zarr(out)
        else:
            pca.fit(rows)
        return pca.explained_variance_

    return run


def incremental(path: str, out: str) -> Any:
    """scikit-learn's IncrementalPCA, block after block."""
    import zarr
    from sklearn.decomposition import IncrementalPCA

    stored, pca = zarr.open_array(path, mode="r"), IncrementalPCA(COMPONENTS)
    for start in range(0, stored.shape[0], 65_536):
        pca.partial_fit(stored[start : start + 65_536])
    return pca.explained_variance_


RUN: dict[str, Callable[[str, str], Any]] = {
    "read": read,
    "gram": gram,
    "ours": ours,
    "ours_opened": ours_opened,
    "ours_output": ours_output,
    "randomized": peer("randomized", False),
    "randomized_output": peer("randomized", True),
    "tsqr": peer("tsqr", False),
    "incremental": incremental,
}


def side(name: str, path: str, warm: str, out: str) -> None:
    """Run one side, after a small one, and print what it took."""
    RUN[name](warm, f"{out}.warm")
    began, worked = time.perf_counter(), time.process_time()
    variance = RUN[name](path, out)
    seconds, worked = time.perf_counter() - began, time.process_time() - worked
    found = None if variance is None else np.asarray(variance, np.float64).tolist()
    print(json.dumps({"seconds": seconds, "cpu_seconds": worked, "variance": found}))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--n", type=int, default=2_000_000)
    parser.add_argument("--d", type=int, default=256)
    parser.add_argument("--folder", default="bench-data")
    parser.add_argument("--sides", nargs="+", choices=SIDES, default=SIDES)
    parser.add_argument("--side", choices=SIDES)
    given = parser.parse_args()
    folder = Path(given.folder)
    path = data_set("mixture", folder, n=given.n, d=given.d)
    warm = data_set("mixture", folder, n=70_000, d=given.d)
    out = str(folder / "linear-output.zarr")
    if given.side:
        side(given.side, path, warm, out)
        return
    rows: dict[str, dict[str, Any]] = {}
    for name in given.sides:
        clear(out)  # what a stopped run may have left
        command = [sys.executable, __file__, "--side", name, "--n", str(given.n), "--d", str(given.d)]
        process = subprocess.Popen([*command, "--folder", given.folder], stdout=subprocess.PIPE, text=True)
        peak = peak_of(process.pid)
        output, _ = process.communicate()
        told = {"failed": process.returncode} if process.returncode else json.loads(output.strip().splitlines()[-1])
        rows[name] = told | {"peak_gib": round(peak() / 2**30, 3)}
        clear(out)
    ended = {name: row for name, row in rows.items() if "failed" not in row}
    reference = next((ended[name]["variance"] for name in ("tsqr", "ours") if name in ended), None)
    for row in ended.values():
        found = row.pop("variance")
        if found is not None and reference is not None:
            row["variance"] = float(np.max(np.abs(np.array(found) / reference - 1)))
    table("linear", {"n": given.n, "d": given.d}, rows | ratios(ended))


def ratios(rows: dict[str, dict[str, Any]]) -> dict[str, dict[str, Any]]:
    """The claims, as ratios."""
    fits = [rows[name]["seconds"] for name in ("randomized", "tsqr") if name in rows]
    peaks = [rows[name]["peak_gib"] for name in ("randomized", "tsqr") if name in rows]
    found: dict[str, Any] = {}
    if fits and "ours" in rows:
        found["faster_than_dask_ml"] = min(fits) / rows["ours"]["seconds"]
        found["peak_of_dask_ml"] = rows["ours"]["peak_gib"] / min(peaks)
    if "ours_output" in rows and "randomized_output" in rows:
        found["output_faster"] = rows["randomized_output"]["seconds"] / rows["ours_output"]["seconds"]
    if "ours_opened" in rows and "ours" in rows:
        found["opened_over_path"] = rows["ours_opened"]["seconds"] / rows["ours"]["seconds"]
    if "gram" in rows and "ours" in rows:
        found["over_gram"] = rows["ours"]["seconds"] / rows["gram"]["seconds"]
    return {"ratio": found} if found else {}


if __name__ == "__main__":
    main()
