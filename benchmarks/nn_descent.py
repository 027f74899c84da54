"""Rows of high intrinsic dimension: recall over time beside in-memory pynndescent with longer and longer lists.

    python benchmarks/nn_descent.py --n 1000000 --d 64 --folder /tmp/bench

Independent Gaussian columns, k = 15. Our side asks for one recall after the other; pynndescent lengthens its lists
until it has the recall that ours measured last. The table gives time, peak memory of all processes of a side, and the
measured recall, in the last two lines of both sides on the same sampled rows against all rows; the ratios are of these
two. Compilation is left out on both sides.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
from pathlib import Path

from common import data_set, peak_of, table
from neighbors import ours, peer, recall_of

from bigembed.datasets import dataset

LIMIT = 3 << 29
"""Bytes of each of the two workers."""
TARGETS = {32: (0.8, 0.9, 0.95), 64: (0.6, 0.75, 0.85), 128: (0.4, 0.55)}
LENGTHS = (15, 25, 30, 35, 40, 50, 60, 80, 100)


def line(arguments: list[str]) -> dict[str, object]:
    """One side in a process of its own: what it says, and its peak."""
    process = subprocess.Popen([sys.executable, __file__, *arguments], stdout=subprocess.PIPE, text=True)
    peak = peak_of(process.pid)
    output, _ = process.communicate()
    return json.loads(output.strip().splitlines()[-1]) | {"peak_gib": round(peak() / 2**30, 2)}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--n", type=int, default=100_000)
    parser.add_argument("--d", type=int, default=64)
    parser.add_argument("--k", type=int, default=15)
    parser.add_argument("--folder", default="bench-data")
    parser.add_argument("--target", type=float, action="append")
    parser.add_argument("--algorithm", default="nn-descent")
    parser.add_argument("--length", type=int)
    parser.add_argument("--side", choices=["ours", "peer"])
    given = parser.parse_args()
    folder = Path(given.folder)
    made = dataset("mixture", n=given.n, d=given.d, n_clusters=1, intrinsic=given.d, noise=0.0)
    path = data_set("gaussian", folder, made, n=given.n, d=given.d)
    graph, lists = f"{folder}/nn-descent-{given.n}-{given.d}.zarr", f"{folder}/nn-descent-{given.n}-{given.d}.npy"
    if given.side:
        found = (
            ours(path, given.k, graph, given.target[0], LIMIT, given.algorithm)
            if given.side == "ours"
            else peer(path, given.k, lists, given.length)
        )
        print(json.dumps(found))
        return
    shared = ["--n", str(given.n), "--d", str(given.d), "--k", str(given.k), "--folder", given.folder]
    rows: dict[str, dict[str, object]] = {}
    for target in given.target or TARGETS.get(given.d, (0.5, 0.8)):
        asked = ["--side", "ours", "--target", str(target), "--algorithm", given.algorithm]
        best = rows[f"recall {target}"] = line([*shared, *asked])
    for length in LENGTHS:
        theirs = rows[f"lists of {length}"] = line([*shared, "--side", "peer", "--length", str(length)])
        best["recall"], theirs["recall"] = recall_of(path, given.k, graph, lists)
        if theirs["recall"] >= best["recall"]:
            break
    rows["ratio"] = {
        "seconds": best["seconds"] / theirs["seconds"],
        "peak_gib": best["peak_gib"] / theirs["peak_gib"],
        "recall": best["recall"] - theirs["recall"],
    }
    table("nn_descent", {"n": given.n, "d": given.d, "k": given.k}, rows)


if __name__ == "__main__":
    main()
