"""Diffusion map of sparse rows from a CSR group in Zarr, never made dense: time, recall and peak memory.

    python benchmarks/graph_sparse.py --n 1000000 --d 20000 --density 0.001 --metric cosine --folder bench-data

Rows are texts of topics that lie on a curve: each draws its words from two neighboring topics of ``--topics``, so that
rows have near ones. The peer is pynndescent's graph of the same rows in memory (``--peer``), its recall measured on the
same sampled rows. Dense, the rows would take 8·n·d bytes. Peak memory is that of the fitting process and all it starts.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
from common import peak_of, table
from scipy import sparse

NEIGHBORS, SAMPLED = 15, 300
BLOCK = 50_000


def rows_of(folder: Path, n: int, d: int, density: float, topics: int) -> str:
    """Path of a CSR group of counts of words, written once."""
    from bigembed.rows.sparse import write_csr

    path = folder / f"topics-n{n}-d{d}-density{density}-t{topics}.zarr"
    if not path.exists():
        generator = np.random.default_rng(0)
        wide = max(1, int(4 * density * d))
        words = np.stack([generator.choice(d, wide, replace=False) for _ in range(topics + 1)])
        parts = []
        for start in range(0, n, BLOCK):
            size = min(BLOCK, n - start)
            place = generator.uniform(0, topics, size)
            counts = generator.poisson(density * d, size) + 2
            of_row = np.repeat(np.arange(size), counts)
            topic = np.floor(place[of_row] + generator.uniform(-0.5, 0.5, len(of_row)) + 0.5).astype(int)
            column = words[np.clip(topic, 0, topics), generator.integers(0, wide, len(of_row))]
            values = generator.exponential(size=len(column)).astype(np.float32)
            parts.append(sparse.csr_array((values, (of_row, column)), shape=(size, d)))
        folder.mkdir(parents=True, exist_ok=True)
        partial = path.with_suffix(".partial")
        write_csr(partial, sparse.vstack(parts, format="csr"))
        partial.rename(path)
    return str(path)


def fit(path: str, metric: str) -> None:
    """Fit, and print what it took."""
    from bigembed import DiffusionMap

    began, used = time.perf_counter(), time.process_time()
    fitted = DiffusionMap(n_neighbors=NEIGHBORS, metric=metric).fit(path)
    found = fitted.certificate_
    told = {
        "seconds": time.perf_counter() - began,
        "cpu_seconds": time.process_time() - used,
        "recall": found["recall"]["recall"],
        "compared_per_row": fitted.graph_.run.results("search").get("compared_per_row"),
        "trustworthiness": found["judgement"]["map"]["trustworthiness"]["value"],
        "warnings": sum(len(part) for part in found["warnings"].values()),
    }
    print(json.dumps(told))


def peer(path: str, metric: str) -> None:
    """pynndescent's graph in memory, and its recall."""
    import zarr
    from pynndescent import NNDescent
    from sklearn.neighbors import NearestNeighbors

    group = zarr.open_group(path, mode="r")
    arrays = [np.asarray(group[name][:]) for name in ("data", "indices", "indptr")]
    rows = sparse.csr_matrix(tuple(arrays), shape=group.attrs["shape"])
    began, used = time.perf_counter(), time.process_time()
    near, _ = NNDescent(rows, metric=metric, n_neighbors=NEIGHBORS + 1, random_state=0).neighbor_graph
    seconds, cpu = time.perf_counter() - began, time.process_time() - used
    chosen = np.random.default_rng(0).choice(rows.shape[0], SAMPLED, replace=False)
    exact = NearestNeighbors(n_neighbors=NEIGHBORS + 1, metric=metric, algorithm="brute").fit(rows)
    true = exact.kneighbors(rows[chosen], return_distance=False)
    shared = [len(set(a) & set(b) - {i}) / NEIGHBORS for i, a, b in zip(chosen, near[chosen], true, strict=True)]
    print(json.dumps({"seconds": seconds, "cpu_seconds": cpu, "recall": float(np.minimum(shared, 1).mean())}))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--n", type=int, default=1_000_000)
    parser.add_argument("--d", type=int, default=20_000)
    parser.add_argument("--density", type=float, default=0.001)
    parser.add_argument("--topics", type=int, default=60)
    parser.add_argument("--metric", default="cosine")
    parser.add_argument("--folder", default="bench-data")
    parser.add_argument("--peer", action="store_true")
    parser.add_argument("--run", nargs=2, help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.run:
        {"bigembed": fit, "pynndescent": peer}[given.run[0]](given.run[1], given.metric)
        return
    path = rows_of(Path(given.folder), given.n, given.d, given.density, given.topics)
    found = {}
    for name in ("bigembed", "pynndescent")[: 1 + given.peer]:
        command = [sys.executable, __file__, "--metric", given.metric, "--run", name, path]
        process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
        peak = peak_of(process.pid)
        output, _ = process.communicate()
        found[name] = json.loads(output.strip().splitlines()[-1]) | {"peak_gib": round(peak() / 2**30, 3)}
    asked = {"n": given.n, "d": given.d, "density": given.density, "metric": given.metric}
    table("graph_sparse", asked | {"dense_gib": 8 * given.n * given.d / 2**30}, found)


if __name__ == "__main__":
    main()
