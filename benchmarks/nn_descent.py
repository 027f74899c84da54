"""Rows of high intrinsic dimension: recall over time beside in-memory pynndescent with longer and longer lists.

    python benchmarks/nn_descent.py --n 1000000 --d 64 --target .85 --length 60 --folder /tmp/bench
    python benchmarks/nn_descent.py --set embedding --n 400000 --d 300 --target .95 --folder /tmp/bench
    python benchmarks/nn_descent.py --set groups --n 1000000 --d 128 --target .99 --algorithm auto --no-peer
    python benchmarks/nn_descent.py --n 1000000 --d 128 --target .2 --target .4 --no-peer

Independent Gaussian columns, unit rows like vectors of words (clusters in clusters of uneven size around a common mean,
a spectrum that falls slowly; cosine), or 1 000 groups about centers of normal coordinates; k = 15. The first and the
last are the rows of TorchDR's benchmark, whose figures on a B200 are put beside ours where the size is one of its own.
Our side, two workers of 1.5 GiB, asks for one recall after the other; pynndescent, two threads, lengthens its lists,
from ``--length`` on, until it has the recall that ours measured last. The table gives time, processor time, peak memory
of all processes of a side, and the measured recall, in the last two lines of both sides on the same sampled rows
against all rows; the ratios are of these two. Compilation is left out on both sides. ``--alone``: both in one process
with one thread, by processor time, which another load of the machine changes little.
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
from common import data_set, peak_of, table
from neighbors import WORKERS, ours, peer, recall_of

from bigembed import build_neighbor_graph
from bigembed.datasets import Dataset, dataset

LIMIT = 3 << 29
"""Bytes of each of the two workers."""
TARGETS = {32: (0.8, 0.9, 0.95), 64: (0.6, 0.75, 0.85), 128: (0.4, 0.55)}
METRICS = {"gaussian": "euclidean", "embedding": "cosine", "groups": "euclidean"}
GROUPS, SPREAD, NOISE = 1000, 10.0, 0.5
PUBLISHED = {
    ("groups", 1_000_000): {"seconds": 2.9, "recall": 0.999},
    ("groups", 10_000_000): {"seconds": 54.7, "recall": 0.999},
    ("gaussian", 1_000_000): {"seconds": 50.7, "recall": 0.911},
    ("gaussian", 10_000_000): {"seconds": 611.0, "recall": 0.463},
}
"""Of TorchDR with faiss on a B200, 128 columns."""
TOPICS, SUBJECTS = 100, 30
LENGTHS = (15, 20, 25, 30, 35, 40, 45, 50, 60, 70, 80, 100)


def line(arguments: list[str]) -> dict[str, object]:
    """One side in a process of its own: what it says, and its peak."""
    process = subprocess.Popen([sys.executable, __file__, *arguments], stdout=subprocess.PIPE, text=True)
    peak = peak_of(process.pid)
    output, _ = process.communicate()
    found = json.loads(output.strip().splitlines()[-1]) | {"peak_gib": round(peak() / 2**30, 2)}
    print(" ".join(arguments[-4:]), found, flush=True)
    return found


def vectors(start: int, stop: int, rng: np.random.Generator, n: int, d: int) -> tuple[np.ndarray, dict]:
    """Unit rows: a common mean, topics of falling size, subjects inside them, and each row's own part."""
    fixed, scale = np.random.default_rng(7), np.sqrt(1 / np.arange(1, d + 1))
    mean, topics, subjects = (scale * fixed.standard_normal((count, d)) for count in (1, TOPICS, TOPICS * SUBJECTS))
    weights = 1 / np.arange(1, TOPICS + 1)
    topic = rng.choice(TOPICS, stop - start, p=weights / weights.sum())
    subject = SUBJECTS * topic + rng.integers(0, SUBJECTS, stop - start)
    own = rng.lognormal(0, 0.25, (stop - start, 1)) * scale * rng.standard_normal((stop - start, d))
    rows = 0.5 * mean + 0.6 * topics[topic] + 0.5 * subjects[subject] + own
    return rows / np.linalg.norm(rows, axis=1, keepdims=True), {}


def groups(start: int, stop: int, rng: np.random.Generator, n: int, d: int) -> tuple[np.ndarray, dict]:
    """Groups about centers of normal coordinates."""
    centers = SPREAD * np.random.default_rng(7).standard_normal((GROUPS, d))
    return centers[rng.integers(0, GROUPS, stop - start)] + NOISE * rng.standard_normal((stop - start, d)), {}


def alone(path: str, k: int, out: str, recall: float, algorithm: str, metric: str) -> dict[str, object]:
    """Our side in this process, from rows on disk to the symmetric graph."""
    small = np.random.default_rng(0).normal(size=(10_000, 64)).astype(np.float32)
    build_neighbor_graph(small, k, algorithm="nn-descent", recall=0.8, metric=metric)
    shutil.rmtree(out, ignore_errors=True)
    began, used = time.perf_counter(), time.process_time()
    graph = build_neighbor_graph(path, k, recall=recall, workdir=out, algorithm=algorithm, metric=metric)
    return {
        "seconds": time.perf_counter() - began,
        "cpu_seconds": time.process_time() - used,
        "algorithm": graph.run.results("recall").get("algorithm", "cells"),
        "measured": graph.recall,
        "of_new_rows": graph.run.results("recall").get("recall_of_new_rows"),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--set", choices=list(METRICS), default="gaussian")
    parser.add_argument("--n", type=int, default=100_000)
    parser.add_argument("--d", type=int, default=64)
    parser.add_argument("--k", type=int, default=15)
    parser.add_argument("--folder", default="bench-data")
    parser.add_argument("--target", type=float, action="append")
    parser.add_argument("--algorithm", default="nn-descent")
    parser.add_argument("--length", type=int, default=0)
    parser.add_argument("--alone", action="store_true")
    parser.add_argument("--no-peer", action="store_true")
    parser.add_argument("--side", choices=["ours", "peer"])
    given = parser.parse_args()
    folder = Path(given.folder)
    if given.set == "gaussian":
        made = dataset("mixture", n=given.n, d=given.d, n_clusters=1, intrinsic=given.d, noise=0.0)
    else:
        function = vectors if given.set == "embedding" else groups
        made = Dataset(given.set, (given.n, given.d), function, parameters={"d": given.d})
    path = data_set(given.set, folder, made, n=given.n, d=given.d)
    metric, label = METRICS[given.set], f"{folder}/nn-descent-{given.set}-{given.n}-{given.d}"
    graph, lists = f"{label}.zarr", f"{label}.npy"
    if given.side:
        if given.side == "peer":
            found = peer(path, given.k, lists, given.length, 1 if given.alone else WORKERS, metric)
        elif given.alone:
            found = alone(path, given.k, graph, given.target[0], given.algorithm, metric)
        else:
            found = ours(path, given.k, graph, given.target[0], LIMIT, given.algorithm, metric)
        print(json.dumps(found))
        return
    shared = ["--set", given.set, "--folder", given.folder]
    shared += ["--n", str(given.n), "--d", str(given.d), "--k", str(given.k)]
    shared += ["--alone"] if given.alone else []
    rows: dict[str, dict[str, object]] = {}
    for target in given.target or TARGETS.get(given.d, (0.9, 0.95)):
        asked = ["--side", "ours", "--target", str(target), "--algorithm", given.algorithm]
        best = rows[f"recall {target}"] = line([*shared, *asked])
    asked = {"set": given.set, "n": given.n, "d": given.d, "k": given.k} | ({"threads": 1} if given.alone else {})
    if given.no_peer:
        if given.d == 128 and (given.set, given.n) in PUBLISHED:
            rows["TorchDR, B200"] = PUBLISHED[given.set, given.n]
        table("nn_descent", asked, rows)
        return
    for length in filter(given.length.__le__, LENGTHS):
        theirs = rows[f"lists of {length}"] = line([*shared, "--side", "peer", "--length", str(length)])
        best["recall"], theirs["recall"] = recall_of(path, given.k, graph, lists)
        if theirs["recall"] >= best["recall"]:
            break
    time_of = "cpu_seconds" if given.alone else "seconds"
    rows["ratio"] = {
        time_of: best[time_of] / theirs[time_of],
        "peak_gib": best["peak_gib"] / theirs["peak_gib"],
        "recall": best["recall"] - theirs["recall"],
    }
    table("nn_descent", asked, rows)


if __name__ == "__main__":
    main()
