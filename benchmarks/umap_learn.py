"""UMAP beside umap-learn: time, memory, neighbors kept and trustworthiness of both maps of the same rows.

    python benchmarks/umap_learn.py --folder bench-data                    # MNIST, 70 000 × 50
    python benchmarks/umap_learn.py --folder bench-data --out-of-core      # the same, through the store, by two workers
    python benchmarks/umap_learn.py --folder bench-data --n 1000000        # a mixture of 64 columns, two workers
    python benchmarks/umap_learn.py --folder bench-data --n 10000 --seeds 3  # a part of MNIST, several seeds

Both sides start from the same rows on disk (50 principal components of the pixels), with default parameters, and find
their own neighbors. Time is from rows to coordinates, in a process of its own, compiled before. ``kept`` is the share
of 15 nearest neighbors kept, of 10 000 rows (``certify``). umap-learn runs twice: with ``random_state``, by one thread,
as its results are only then the same again, and as it comes, by all threads (``--threaded 0``: not so). The peer runs
in the environment given by ``--peer-python`` (umap-learn installed), by default this one; ``--peer 0``: without it.
``--images`` is the folder of the IDX files of MNIST, by default $BIGEMBED_DATA/mnist.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import time
import warnings
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import numpy as np
from common import MNIST, clear, mnist_components, peak_of, said, table

FIGURES = ("kept", "trustworthiness")
SAMPLES = 10_000
"""Rows that are compared with all: of as many the share of neighbors kept has a standard error of .001."""


def ours(path: str, out: str, seed: int, out_of_core: bool, memory: int) -> dict[str, Any]:
    """From rows to coordinates: threads of one process, or two workers."""
    import bigembed as be
    from bigembed.jobs.places import ClusterTable
    from bigembed.jobs.places.cluster import cluster
    from bigembed.runtime import using

    place: Any = nullcontext()
    if out_of_core:
        place = cluster(ClusterTable(workers=2, memory=memory), "embedded")
    with place as workers, using(executor=workers.executor) if workers else nullcontext():
        warm = np.random.default_rng(0).normal(size=(10_000, 50)).astype(np.float32)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            be.UMAP(n_epochs=2, in_memory=not out_of_core, random_state=1).fit(warm)
        peak, began = peak_of(os.getpid()), time.perf_counter()
        found = be.UMAP(in_memory=not out_of_core, random_state=seed, workdir=f"{out}.run").fit(path)
        seconds, most = time.perf_counter() - began, peak()
    np.save(f"{out}.npy", np.asarray(found.embedding_))
    stages = {name: found._run.manifest(name).measured["seconds"] for name in found._run.published()}
    return {
        "seconds": seconds,
        "start_seconds": sum(stages.get(name, 0.0) for name in ("components", "solve", "start")),
        "descent_seconds": stages["descent"],
        "cross_entropy": found.cross_entropy_,
        "recall": found.certificate_["recall"]["recall"],
        "peak_gib": most / 2**30,
    }


def theirs(path: str, out: str, seed: int | None) -> dict[str, Any]:
    """umap-learn as it comes, or with a seed."""
    import umap

    rows = np.load(path)
    warnings.simplefilter("ignore")
    umap.UMAP(n_epochs=2, random_state=seed).fit(rows[:5_000])
    peak, began = peak_of(os.getpid()), time.perf_counter()
    found = umap.UMAP(random_state=seed).fit_transform(rows)
    seconds = time.perf_counter() - began
    np.save(f"{out}.npy", np.asarray(found))
    return {"seconds": seconds, "peak_gib": peak() / 2**30}


def judged(path: str, out: str) -> dict[str, float]:
    """Neighbors kept by a map, and its trustworthiness."""
    import bigembed as be

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        figures = be.certify(path, np.load(f"{out}.npy"), samples=SAMPLES).figures
    return {"kept": figures["preservation"]["value"], "trustworthiness": figures["trustworthiness"]["value"]}


def compared(sides: dict[str, dict[str, Any]]) -> dict[str, dict[str, Any]]:
    """Differences of the figures to each map of umap-learn, and ratios of time and memory."""
    out = {}
    for side, values in sides.items():
        if side.startswith("umap-learn"):
            number = side.rpartition(" ")[2]
            mine = sides[f"ours {number}"]
            out[f"ours to {side}"] = {name: mine[name] / values[name] for name in ("seconds", "peak_gib")} | {
                f"{name}_minus": mine[name] - values[name] for name in FIGURES
            }
    return out


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--folder", type=Path, default=Path("bench-data"))
    parser.add_argument("--images", default=str(Path(os.environ.get("BIGEMBED_DATA", ".")) / "mnist"), metavar="FOLDER")
    parser.add_argument("--n", type=int, default=MNIST)
    parser.add_argument("--seeds", type=int, default=1)
    parser.add_argument("--out-of-core", action="store_true")
    parser.add_argument("--memory", type=int, default=1 << 30, help="bytes of a worker")
    parser.add_argument("--peer", type=int, default=1)
    parser.add_argument("--threaded", type=int, default=1)
    parser.add_argument("--peer-python", default=sys.executable)
    parser.add_argument("--side", choices=("ours", "theirs"))
    parser.add_argument("--path")
    parser.add_argument("--out")
    parser.add_argument("--seed", type=int)
    asked = parser.parse_args()
    if asked.side:
        found = (
            ours(asked.path, asked.out, asked.seed, asked.out_of_core, asked.memory)
            if asked.side == "ours"
            else theirs(asked.path, asked.out, asked.seed)
        )
        print(json.dumps(found))
        return
    stored = asked.out_of_core or asked.n > MNIST
    path = mnist_components(asked.n, asked.folder, asked.images)
    store = ["--out-of-core", "--memory", str(asked.memory)] if stored else []
    sides: dict[str, dict[str, Any]] = {}

    def side(name: str, python: str, which: str, *more: str) -> None:
        out = str(asked.folder / f"umap-{asked.n}-{name.replace(' ', '-')}")
        clear(f"{out}.run")
        sides[name] = said(python, __file__, "--side", which, "--path", path, "--out", out, *more)
        sides[name] |= judged(path, out)

    for seed in range(asked.seeds):
        side(f"ours {seed}", sys.executable, "ours", "--seed", str(seed), *store)
        if asked.peer and asked.n <= MNIST:
            side(f"umap-learn {seed}", asked.peer_python, "theirs", "--seed", str(seed))
            if asked.threaded:
                side(f"umap-learn threaded {seed}", asked.peer_python, "theirs")
    table("umap", {"n": asked.n, "seeds": asked.seeds, "out_of_core": stored}, sides | compared(sides))


if __name__ == "__main__":
    main()
