"""The neighbor graph of a Zarr array of distances, read once by tiles, beside scikit-learn with the array in memory.

    python benchmarks/given_distances.py --n 20000 --folder /tmp/bench

``bigembed`` checks all entries and leaves the symmetric graph on disk; ``scikit-learn`` reads the array (float32) and
finds the lists of the k = 15 nearest. Each side is a process of its own, its memory watched from outside. ``wrong``
is how many of the edges of the lists are not in our graph; ties aside it is 0.
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
from common import peak_of, table

K, CHUNK = 15, 1_000


def distances(n: int, folder: Path) -> str:
    """Path of the distances of n normal rows, written once."""
    import zarr
    from scipy.spatial.distance import cdist

    path = folder / f"distances-{n}.zarr"
    if not path.exists():
        rows = np.random.default_rng(0).normal(size=(n, 8))
        array = zarr.create_array(str(path), shape=(n, n), chunks=(min(n, CHUNK),) * 2, dtype="f4", compressors=None)
        for start in range(0, n, CHUNK):
            array[start : start + CHUNK] = cdist(rows[start : start + CHUNK], rows)
    return str(path)


def ours(path: str) -> Any:
    import bigembed as be

    return be.build_neighbor_graph(path, K, metric="precomputed").to_scipy()


def theirs(path: str) -> Any:
    import zarr
    from sklearn.neighbors import NearestNeighbors

    nearest = NearestNeighbors(n_neighbors=K, metric="precomputed").fit(zarr.open_array(path, mode="r")[:])
    return nearest.kneighbors_graph(mode="distance")


SIDES = {"bigembed": ours, "scikit-learn": theirs}


def measured(side: str, path: str, folder: Path) -> dict[str, Any]:
    """Seconds and peak memory of one side."""
    command = [sys.executable, __file__, "--run", side, path, str(folder / f"{side}.npz")]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    peak = peak_of(process.pid)
    out, _ = process.communicate()
    return {**json.loads(out.splitlines()[-1]), "peak_gib": round(peak() / 2**30, 2)}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--n", type=int, default=20_000)
    parser.add_argument("--folder", type=Path, default=Path("bench-data"))
    parser.add_argument("--run", nargs=3)
    given = parser.parse_args()
    from scipy import sparse

    if given.run:
        began = time.perf_counter(), time.process_time()
        graph = SIDES[given.run[0]](given.run[1])
        took = {"seconds": round(time.perf_counter() - began[0], 1), "cpu": round(time.process_time() - began[1], 1)}
        sparse.save_npz(given.run[2], graph.tocsr())
        print(json.dumps(took))
        return
    given.folder.mkdir(parents=True, exist_ok=True)
    path = distances(given.n, given.folder)
    rows = {side: measured(side, path, given.folder) for side in SIDES}
    graphs = {side: sparse.load_npz(given.folder / f"{side}.npz") for side in SIDES}
    lists = graphs["scikit-learn"] != 0
    rows["bigembed"]["wrong"] = int(lists.sum() - lists.multiply(graphs["bigembed"] != 0).sum())
    table("given_distances", {"n": given.n, "k": K}, rows)


if __name__ == "__main__":
    main()
