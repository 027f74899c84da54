"""t-SNE beside openTSNE's FIt-SNE: time, the divergence of both maps by one explicit function, neighbors kept.

    python benchmarks/tsne.py --folder bench-data                       # MNIST, 70 000 × 50, perplexity 30
    python benchmarks/tsne.py --folder bench-data --out-of-core         # the same, through the store, by two workers
    python benchmarks/tsne.py --folder bench-data --n 1000000           # a mixture of 64 columns, two workers of 1 GiB
    python benchmarks/tsne.py --folder bench-data --n 10000             # a part of MNIST, for a try

Both sides start from the same rows on disk (50 principal components of the pixels) and find their own neighbors. Time
is from rows to coordinates, in a process of its own, compiled before. ``kl`` is KL(p‖q) of each map for *one* p, of our
graph, and q summed over all pairs, tile by tile (of more than 70 000 rows: Z from 2 000 sampled rows with all, and only
our side). ``kept`` is the share of 15 nearest neighbors kept, of 1 000 rows. The peer runs in the environment given by
``--peer-python`` (openTSNE installed), by default this one; ``--peer 0``: without it. ``--images`` is the folder of the
IDX files of MNIST, by default $BIGEMBED_DATA/mnist.
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

PERPLEXITY = 30
TILE = 1_000
SAMPLED = 2_000


def ours(path: str, out: str, out_of_core: bool, memory: int) -> dict[str, Any]:
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
            be.TSNE(early_exaggeration_iter=2, n_iter=2, in_memory=not out_of_core, random_state=1).fit(warm)
        peak, began = peak_of(os.getpid()), time.perf_counter()
        found = be.TSNE(perplexity=PERPLEXITY, in_memory=not out_of_core, workdir=f"{out}.run").fit(path)
        seconds, most = time.perf_counter() - began, peak()
    np.save(f"{out}.npy", np.asarray(found.embedding_))
    stages = {name: found._run.manifest(name).measured["seconds"] for name in found._run.published()}
    search = sum(stages[name] for name in ("survey", "partition", "order", "shortlist", "witness", "search", "graph"))
    return {
        "seconds": seconds,
        "graph_seconds": search,
        "descent_seconds": stages["descent"],
        "own_kl": found.kl_divergence_,
        "recall": found.certificate_["recall"]["recall"],
        "peak_gib": most / 2**30,
    }


def theirs(path: str, out: str) -> dict[str, Any]:
    """openTSNE as it comes, with two threads."""
    import openTSNE

    rows = np.load(path)
    openTSNE.TSNE(n_jobs=2, early_exaggeration_iter=2, n_iter=2, negative_gradient_method="fft").fit(rows[:2_000])
    peak, began = peak_of(os.getpid()), time.perf_counter()
    tsne = openTSNE.TSNE(perplexity=PERPLEXITY, n_jobs=2, negative_gradient_method="fft", random_state=0)
    start = openTSNE.initialization.pca(rows, random_state=0)
    affinities = openTSNE.affinity.PerplexityBasedNN(rows, perplexity=PERPLEXITY, n_jobs=2, random_state=0)
    graph = time.perf_counter() - began
    found = tsne.fit(rows, affinities=affinities, initialization=start)
    seconds = time.perf_counter() - began
    np.save(f"{out}.npy", np.asarray(found))
    return {
        "seconds": seconds,
        "graph_seconds": graph,
        "descent_seconds": seconds - graph,
        "own_kl": float(found.kl_divergence),
        "peak_gib": peak() / 2**30,
    }


def divergence(run: str, points: np.ndarray) -> float:
    """KL(p‖q) of points in the order of the input, p of a run, Z over all pairs (of sampled rows with all)."""
    from bigembed.neighbors.order import Ordered
    from bigembed.stages.runs import Run

    opened = Run(run)
    affinities, ordered = opened.matrix("graph", "weights", "kernel"), Ordered.open(opened.path("order"))
    ids = np.concatenate([ordered.ids(b) for b in range(len(affinities.rows))])
    inner, n = points[ids], len(points)
    attraction = plogp = mass = 0.0
    for b, count in enumerate(affinities.rows):
        block = affinities.block(b)
        row = ordered.starts[b] + np.repeat(np.arange(count), np.diff(block.indptr))
        p, on = block.data.astype(np.float64), block.data > 0
        apart = ((inner[row[on]] - inner[block.ids(b, ordered.starts)[block.indices[on]]]) ** 2).sum(axis=1)
        attraction += float(p[on] @ np.log1p(apart))
        plogp += float(p[on] @ np.log(p[on]))
        mass += float(p.sum())
    chosen = np.arange(n) if n <= MNIST else np.random.default_rng(0).choice(n, SAMPLED, replace=False)
    total = 0.0
    for low in range(0, len(chosen), TILE):
        part = points[chosen[low : low + TILE]]
        squared = sum((part[:, c, None] - points[None, :, c]) ** 2 for c in range(points.shape[1]))
        total += float((1 / (1 + squared)).sum()) - len(part)
    return plogp + attraction + mass * float(np.log(total * n / len(chosen)))


def judged(path: str, run: str, out: str) -> dict[str, float]:
    """The divergence and the neighbors kept of a map."""
    import bigembed as be

    points = np.load(f"{out}.npy")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        figures = be.certify(path, points).figures
    return {
        "kl": divergence(run, points),
        "kept": figures["preservation"]["value"],
        "trustworthiness": figures["trustworthiness"]["value"],
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--folder", type=Path, default=Path("bench-data"))
    parser.add_argument("--images", default=str(Path(os.environ.get("BIGEMBED_DATA", ".")) / "mnist"), metavar="FOLDER")
    parser.add_argument("--n", type=int, default=MNIST)
    parser.add_argument("--out-of-core", action="store_true")
    parser.add_argument("--memory", type=int, default=1 << 30, help="bytes of a worker")
    parser.add_argument("--peer", type=int, default=1)
    parser.add_argument("--peer-python", default=sys.executable)
    parser.add_argument("--side", choices=("ours", "theirs"))
    parser.add_argument("--path")
    parser.add_argument("--out")
    asked = parser.parse_args()
    if asked.side:
        found = (
            ours(asked.path, asked.out, asked.out_of_core, asked.memory)
            if asked.side == "ours"
            else theirs(asked.path, asked.out)
        )
        print(json.dumps(found))
        return
    stored = asked.out_of_core or asked.n > MNIST
    path = mnist_components(asked.n, asked.folder, asked.images)
    outs = {side: str(asked.folder / f"tsne-{asked.n}-{side}") for side in ("ours", "theirs")}
    clear(f"{outs['ours']}.run")
    store = ["--out-of-core", "--memory", str(asked.memory)] if stored else []
    sides = {
        "ours": said(sys.executable, __file__, "--side", "ours", "--path", path, "--out", outs["ours"], *store),
    }
    if asked.peer and asked.n <= MNIST:
        given = ("--side", "theirs", "--path", path, "--out", outs["theirs"])
        sides["openTSNE"] = said(asked.peer_python, __file__, *given)
    for side, out in zip(sides, outs.values(), strict=False):
        sides[side] |= judged(path, f"{outs['ours']}.run", out)
    if "openTSNE" in sides:
        both = ("seconds", "kl", "kept", "trustworthiness", "peak_gib")
        sides["ratio"] = {name: sides["ours"][name] / sides["openTSNE"][name] for name in both}
    table("tsne", {"n": asked.n, "perplexity": PERPLEXITY, "out_of_core": stored}, sides)


if __name__ == "__main__":
    main()
