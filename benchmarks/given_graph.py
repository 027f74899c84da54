"""A graph of the user's own: from Parquet to symmetric blocks on disk, beside pandas and SciPy in memory.

    python benchmarks/given_graph.py --n 1000000 --degree 30 --folder /tmp/bench

Both sides read the same edge list (source, target, weight; each edge once, in random order), and leave the symmetric
matrix on disk: bigembed as the published stage of its blocks, pandas and SciPy as one ``.npz`` of a CSR matrix.
``ordering`` is what it takes to order the nodes by nearness on top of that, and ``inside`` the share of edges that then
stay in a block. Then
both are compared, entry by entry, on a sample of rows. Peak memory is that of all processes of a side, sampled ten
times a second.
"""

from __future__ import annotations

import argparse
import json
import shutil
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
from common import peak_of, table

GROUP = 1 << 20


def edges_file(n: int, degree: int, folder: Path) -> Path:
    """An edge list with n · degree / 2 edges: near each other on a ring, and some anywhere."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    path = folder / f"edges-{n}-{degree}.parquet"
    if path.exists():
        return path
    folder.mkdir(parents=True, exist_ok=True)
    rng, names = np.random.default_rng(0), ("source", "target", "weight")
    steps = np.unique(np.concatenate([np.arange(1, degree // 2), rng.integers(degree, n // 3, 4)]))[: degree // 2]
    with pq.ParquetWriter(
        path, pa.schema([(name, t) for name, t in zip(names, ("i8", "i8", "f8"), strict=True)])
    ) as file:
        for start in range(0, n, GROUP // degree):
            source = np.repeat(np.arange(start, min(start + GROUP // degree, n)), len(steps))
            target = (source + np.tile(steps, len(source) // len(steps))) % n
            order = rng.permutation(len(source))
            columns = source[order], target[order], rng.random(len(source)) + 0.1
            file.write_table(pa.table(dict(zip(names, columns, strict=True)), schema=file.schema))
    return path


def ours(path: str, out: str) -> dict[str, Any]:
    """Two workers of one thread each, and this process with the scheduler."""
    from bigembed import open_graph
    from bigembed.estimator.graph_input import edge_weight_stages
    from bigembed.jobs.places import ClusterTable
    from bigembed.jobs.places.cluster import cluster
    from bigembed.runtime import using
    from bigembed.stages.runs import Run
    from bigembed.stages.stage import run_stages

    with cluster(ClusterTable(workers=2, memory=1 << 30), "embedded") as place, using(executor=place.executor):
        began = time.perf_counter()
        source = open_graph(path, symmetrize="max")
        stages = edge_weight_stages(source)
        run = Run(out)
        run_stages(stages[:1], run)
        seconds = time.perf_counter() - began
        run_stages(stages, run)
        ordering = time.perf_counter() - began - seconds
    found = {
        "entries": run.results(stages[-1].name)["edges"],
        "inside": run.results(stages[-1].name).get("inside", 1.0),
    }
    return {"seconds": seconds, "ordering": ordering, **found, "planned_task": stages[0].cost.memory / 2**20}


def theirs(path: str, out: str) -> dict[str, Any]:
    """pandas and SciPy, in memory."""
    import pandas as pd
    from scipy import sparse

    began = time.perf_counter()
    frame = pd.read_parquet(path)
    n = int(max(frame.source.max(), frame.target.max())) + 1
    matrix = sparse.coo_array((frame.weight, (frame.source, frame.target)), shape=(n, n)).tocsr()
    matrix = sparse.csr_array(matrix.maximum(matrix.T))
    sparse.save_npz(f"{out}.npz", matrix, compressed=False)
    return {"seconds": time.perf_counter() - began, "entries": int(matrix.nnz)}


def difference(out: str, theirs_out: str) -> float:
    """Largest difference of the entries of one block, both scaled to their largest."""
    from scipy import sparse

    from bigembed.stages.runs import Run
    from bigembed.store.arrays import read_array

    run, matrix = Run(out), sparse.load_npz(f"{theirs_out}.npz")
    name = "edges" if run.has("edges") else "weights"  # (in the order of the input)
    stored, starts = run.matrix(name, "given"), read_array(run.path(name, "starts"))
    b = len(stored.rows) // 2
    block, first = stored.block(b), int(starts[b])
    ids = block.ids(b, starts)
    found = sparse.csr_array((block.data, ids[block.indices], block.indptr), shape=(stored.rows[b], matrix.shape[0]))
    scale = 2.0 ** int(np.frexp(matrix.data.max())[1])
    return float(abs(found * scale - matrix[first : first + stored.rows[b]]).max())


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--n", type=int, default=1_000_000)
    parser.add_argument("--degree", type=int, default=30)
    parser.add_argument("--folder", type=Path, default=Path("/tmp/bench"))
    parser.add_argument("--side", choices=["ours", "theirs"])
    parser.add_argument("--out", default="")
    asked = parser.parse_args()
    path = edges_file(asked.n, asked.degree, asked.folder)
    if asked.side:
        print(json.dumps({"ours": ours, "theirs": theirs}[asked.side](str(path), asked.out)))
        return
    rows: dict[str, dict[str, Any]] = {}
    for side in ("ours", "theirs"):
        out = str(asked.folder / f"given-{side}")
        shutil.rmtree(out, ignore_errors=True)
        command = [sys.executable, __file__, "--n", str(asked.n), "--degree", str(asked.degree)]
        command += ["--folder", str(asked.folder), "--side", side, "--out", out]
        process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
        peak = peak_of(process.pid)
        said, _ = process.communicate()
        rows[side] = {**json.loads(said.splitlines()[-1]), "peak_gib": peak() / 2**30}
    places = [str(asked.folder / f"given-{side}") for side in ("ours", "theirs")]
    rows["ratio"] = {"seconds": rows["ours"]["seconds"] / rows["theirs"]["seconds"], "difference": difference(*places)}
    table("given-graph", {"n": asked.n, "degree": asked.degree}, rows)


if __name__ == "__main__":
    main()
