"""Neighbor graph: bigembed beside in-memory pynndescent, from the same file to the symmetrized graph.

    python benchmarks/neighbors.py --n 1000000 --folder /tmp/bench

Both sides read the same Zarr array of a Gaussian mixture (64 columns, intrinsic dimension 12). Left
out on both sides: compilation (each side builds a small graph first) and the recall check against
exact neighbors of sampled rows, done here, once, for both. Included for bigembed: the choice of
the number of cells to probe, writing and digesting every stage. Peak memory is the resident
memory of all processes of a side together, sampled ten times a second.
"""

from __future__ import annotations

import argparse
import json
import shutil
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import psutil
from common import data_set, peak_of, table

WORKERS, LIMIT, RECALL = 2, 1 << 30, 0.99


def processor_seconds() -> float:
    """Of this process and all it started."""
    processes = [psutil.Process(), *psutil.Process().children(recursive=True)]
    return float(sum(sum(process.cpu_times()[:2]) for process in processes))


def peak_so_far(process: psutil.Process) -> int:
    """Resident bytes of a process at most until now (Linux)."""
    lines = Path(f"/proc/{process.pid}/status").read_text().splitlines()
    return 1024 * next(int(line.split()[1]) for line in lines if line.startswith("VmHWM:"))


def ours(
    path: str,
    k: int,
    out: str,
    recall: float = RECALL,
    limit: int = LIMIT,
    algorithm: str = "auto",
    metric: str = "euclidean",
) -> dict[str, object]:
    """Two workers of one thread each, and this process with the scheduler."""
    from bigembed import build_neighbor_graph
    from bigembed.jobs.places import ClusterTable
    from bigembed.jobs.places.cluster import cluster
    from bigembed.neighbors.graph_stages import neighbor_stages
    from bigembed.rows import rows_at
    from bigembed.runtime import Event, using
    from bigembed.store import at

    seconds: dict[str, float] = {}
    rounds: dict[str, float] = {}

    def note(event: Event) -> None:
        if event.kind == "done":
            seconds[event.stage] = round(event.seconds, 2)
        if event.message.startswith("NN-descent: recall"):  # (a run that is killed leaves these)
            rounds[event.message] = round(time.perf_counter() - began, 1)
            print(f"after {rounds[event.message]} s: {event.message}", file=sys.stderr, flush=True)

    with cluster(ClusterTable(workers=WORKERS, memory=limit), "embedded") as place, using(executor=place.executor):
        small = np.random.default_rng(0).normal(size=(70_000, 64)).astype(np.float32)
        build_neighbor_graph(small[:, :8], k)
        build_neighbor_graph(small[:10_000], k, algorithm="nn-descent", recall=0.8, metric=metric)
        shutil.rmtree(out, ignore_errors=True)
        with using(observer=note):
            began, used = time.perf_counter(), processor_seconds()
            graph = build_neighbor_graph(path, k, recall=recall, workdir=out, algorithm=algorithm, metric=metric)
            total, used = time.perf_counter() - began, processor_seconds() - used
        workers = max(map(peak_so_far, psutil.Process().children(recursive=True)))
    stages = neighbor_stages(rows_at(at(path)), k, metric, recall, 0, algorithm=algorithm)
    return {
        "seconds": total - seconds["recall"],
        "cpu_seconds": used,
        "stages": seconds,
        **({"rounds": rounds} if rounds else {}),
        "algorithm": graph.run.results("recall").get("algorithm", "cells"),
        "probes": graph.run.results("search")["n_probes"],
        "compared": graph.run.results("search")["compared_per_row"],
        "worker_gib": round(workers / 2**30, 2),
        "planned_gib": round(max(stage.cost.memory for stage in stages) / 2**30, 2),
        "measured": graph.recall,
        "of_new_rows": graph.run.results("recall").get("recall_of_new_rows"),
    }


def peer(
    path: str, k: int, out: str, length: int = 0, threads: int = WORKERS, metric: str = "euclidean"
) -> dict[str, object]:
    """pynndescent on the whole array, then the symmetric graph; lists of ``length`` cut to k."""
    import zarr
    from pynndescent import NNDescent
    from scipy.sparse import csr_array

    NNDescent(
        np.random.default_rng(0).normal(size=(5_000, 64)).astype(np.float32),
        n_neighbors=k + 1,
        n_jobs=threads,
        metric=metric,
    )
    began, used = time.perf_counter(), time.process_time()
    rows = zarr.open_array(path, mode="r")[...]
    length = max(length, k)
    index = NNDescent(rows, n_neighbors=length + 1, n_jobs=threads, random_state=0, metric=metric)
    ids, distances = index.neighbor_graph
    ids, distances = ids[:, : k + 1], distances[:, : k + 1]
    indptr = np.arange(0, k * len(rows) + 1, k)
    graph = csr_array((distances[:, 1:].ravel(), ids[:, 1:].ravel(), indptr), shape=(len(rows), len(rows)))
    graph = graph.maximum(graph.T)
    seconds, used = time.perf_counter() - began, time.process_time() - used
    np.save(out, ids[:, 1:])
    return {"seconds": seconds, "cpu_seconds": used, "edges": int(graph.nnz)}


def recall_of(path: str, k: int, graph: str, lists: str, samples: int = 1_000) -> tuple[float, float]:
    """Recall of both sides on the same sampled rows, against all rows."""
    import zarr

    from bigembed.neighbors import empty_lists, update_lists
    from bigembed.neighbors.order import Ordered
    from bigembed.store.arrays import read_array

    array = zarr.open_array(path, mode="r")
    chosen = np.sort(np.random.default_rng(1).choice(array.shape[0], samples, replace=False))
    queries = array.get_orthogonal_selection((chosen, slice(None)))
    ids, squared = empty_lists(samples, k, queries.dtype)
    for start in range(0, array.shape[0], 65_536):
        part = array[start : start + 65_536]
        update_lists(ids, squared, queries, chosen, part, np.arange(start, start + len(part)))
    theirs = np.load(lists, mmap_mode="r")[chosen]
    ordered = Ordered.open(f"{graph}/stages/order")
    original = np.concatenate([ordered.ids(b) for b in range(len(ordered.blocks))])
    place = np.argsort(original)[chosen]
    mine = np.empty((samples, k), np.int64)
    for b in range(len(ordered.blocks)):
        here = (place >= ordered.starts[b]) & (place < ordered.starts[b + 1])
        mine[here] = original[read_array(f"{graph}/stages/search/neighbors/{b}")[place[here] - ordered.starts[b]]]
    share = [
        np.mean([len(np.intersect1d(a, t)) / k for a, t in zip(found, ids, strict=True)]) for found in (mine, theirs)
    ]
    return float(share[0]), float(share[1])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--n", type=int, default=1_000_000)
    parser.add_argument("--k", type=int, default=15)
    parser.add_argument("--folder", default="bench-data")
    parser.add_argument("--side", choices=["ours", "peer"])
    given = parser.parse_args()
    path = data_set("mixture", Path(given.folder), n=given.n, d=64)
    graph, lists = f"{given.folder}/graph-{given.n}.zarr", f"{given.folder}/lists-{given.n}.npy"
    if given.side:
        result = ours(path, given.k, graph) if given.side == "ours" else peer(path, given.k, lists)
        print(json.dumps(result))
        return
    rows = {}
    for side in ("peer", "ours"):
        command = [
            sys.executable,
            __file__,
            "--n",
            str(given.n),
            "--k",
            str(given.k),
            "--folder",
            given.folder,
            "--side",
            side,
        ]
        process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
        peak = peak_of(process.pid)
        output, _ = process.communicate()
        rows[side] = json.loads(output.strip().splitlines()[-1]) | {"peak_gib": round(peak() / 2**30, 2)}
    rows["ours"]["recall"], rows["peer"]["recall"] = recall_of(path, given.k, graph, lists)
    rows["ratio"] = {
        "seconds": rows["ours"]["seconds"] / rows["peer"]["seconds"],
        "peak_gib": rows["ours"]["peak_gib"] / rows["peer"]["peak_gib"],
        "recall": rows["ours"]["recall"] - rows["peer"]["recall"],
    }
    table("neighbors", {"n": given.n, "k": given.k}, rows)


if __name__ == "__main__":
    main()
