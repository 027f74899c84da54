"""Isomap of the Swiss roll: by landmarks at 10⁶ rows, exact at 30 000, beside scikit-learn; rounds; the seed's figures.

    python benchmarks/isomap.py --folder bench-data                     # all of it
    python benchmarks/isomap.py --folder bench-data --part landmarks --n 1000000 --k 30

Parts. ``landmarks``: 200 landmarks, from the rows on disk to coordinates (graph included), beside scikit-learn's Isomap
at ``--peer`` rows (0: none), which keeps n² distances in memory. ``exact``: 30 000 rows, two workers of 600 MiB.
``rounds``: rounds of the shortest paths, and the largest number of hops, by n. ``seed``: seed 000 §6, 1600 points, and
800 with noise 0.8. ``r`` is the correlation of a coordinate with the true one; ``stretch`` the mean ratio of graph
distances to true ones, which on the unrolled rectangle are straight lines. Two workers of one thread; peak memory is
that of all processes of a side together. Compilation is left out on our side by a small map before.
"""

from __future__ import annotations

import argparse
import json
import shutil
import sys
import time
import warnings
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
from common import data_set, table, watched

PARTS = ("landmarks", "exact", "rounds", "seed")
LANDMARKS = 200


def flat(n: int, noise: float = 0.0) -> np.ndarray:
    """True coordinates on the unrolled rectangle: arc length and height."""
    from bigembed.datasets import dataset

    truth = dataset("swiss_roll", n=n, **({"noise": noise} if noise else {})).truth(0, n)
    return np.column_stack([truth["arc_length"], truth["height"]])


def correlations(embedding: np.ndarray, true: np.ndarray) -> dict[str, float]:
    """|r| of each true coordinate with the coordinate found that is nearest to it."""
    found = [[abs(np.corrcoef(y, x)[0, 1]) for y in embedding.T] for x in true.T]
    return {"r_length": float(max(found[0])), "r_height": float(max(found[1]))}


@contextmanager
def workers(memory: int) -> Iterator[None]:
    """Two workers of one thread."""
    from bigembed.jobs.places import ClusterTable
    from bigembed.jobs.places.cluster import cluster
    from bigembed.runtime import using

    with cluster(ClusterTable(workers=2, memory=memory), "embedded") as place, using(executor=place.executor):
        yield


def ours(path: str, n: int, k: int, solver: str, run: str, memory: int) -> dict[str, Any]:
    """From rows on disk to coordinates on disk."""
    import bigembed as be

    with workers(memory):
        small = np.random.default_rng(0).normal(size=(6_000, 3)).astype(np.float32)
        be.Isomap(2, n_neighbors=5, solver="landmarks", n_landmarks=20, components="bridge").fit(small)
        shutil.rmtree(run, ignore_errors=True)
        began = time.perf_counter()
        found = be.Isomap(2, n_neighbors=k, solver=solver, n_landmarks=LANDMARKS, workdir=run).fit(path)
        seconds = time.perf_counter() - began
    true, geodesic = flat(n), found.certificate_["geodesics"]
    stages = {name: found._run.manifest(name).measured["seconds"] for name in found._run.published()}
    out: dict[str, Any] = {"n": n, "k": k, "seconds": seconds, **correlations(np.asarray(found.embedding_), true)}
    if solver == "exact":
        chosen = np.arange(0, n, n // 50)
        out["stretch"] = stretch([(np.asarray(found.dist_matrix_[chosen]).T, np.arange(n))], chosen, true)
    else:
        out["stretch"] = stretch(blocks_of(found), found.landmarks_, true)
        out |= {"rounds": geodesic["rounds"], "visits": geodesic["visits"] / geodesic["groups"] / geodesic["blocks"]}
    return out | {"passes": found.certificate_["passes"], "stages": stages}


def blocks_of(found: Any) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    """Distances (rows, L) of each block of rows, and the numbers of its rows in the input."""
    from bigembed.store.arrays import read_array

    ids, starts = found.graph_.original_ids(), read_array(found._run.path("geodesics", "starts")).tolist()
    for b, (start, stop) in enumerate(pairwise(starts)):
        yield read_array(found._run.path("geodesics", f"distances/{b}")), ids[start:stop]


def stretch(blocks: Iterable[tuple[np.ndarray, np.ndarray]], chosen: np.ndarray, true: np.ndarray) -> float:
    """Mean ratio of graph distances to true ones, where these are longer than 5."""
    total = pairs = 0.0
    for distances, ids in blocks:
        apart = np.linalg.norm(true[ids][:, None] - true[chosen], axis=2)
        far = apart > 5
        total, pairs = total + float((distances[far] / apart[far]).sum()), pairs + float(far.sum())
    return total / pairs


def peer(path: str, n: int, k: int) -> dict[str, Any]:
    """scikit-learn's Isomap on the first n rows, all cores."""
    import zarr
    from sklearn.manifold import Isomap

    began = time.perf_counter()
    rows = zarr.open_array(path, mode="r")[:n]
    found = Isomap(n_components=2, n_neighbors=k, n_jobs=-1).fit(rows)
    seconds = time.perf_counter() - began
    true = flat_of_prefix(path, n)
    chosen = np.arange(0, n, n // 50)
    distances = found.dist_matrix_[chosen].T
    return {
        "n": n,
        "k": k,
        "seconds": seconds,
        **correlations(found.embedding_, true),
        "stretch": stretch([(distances, np.arange(n))], chosen, true),
    }


def flat_of_prefix(path: str, n: int) -> np.ndarray:
    """True coordinates of the first rows of a stored roll."""
    from bigembed.datasets import dataset

    total = int(Path(path).stem.split("-n")[1].split("-")[0])
    truth = dataset("swiss_roll", n=total).truth(0, n)
    return np.column_stack([truth["arc_length"], truth["height"]])


def rounds(folder: Path, sizes: list[int], k: int) -> dict[str, dict[str, Any]]:
    """Rounds and hops for growing n: 24 landmarks spread over the rows, hops from the first."""
    import tempfile

    from scipy.sparse.csgraph import dijkstra

    import bigembed as be
    from bigembed.neighbors.geodesic import shortest_paths
    from bigembed.store.exchange import Exchange

    out = {}
    for n in sizes:
        with workers(3 << 29):
            graph = be.build_neighbor_graph(data_set("swiss_roll", folder, n=n), k, workdir=folder / f"roll-{n}.zarr")
            sources = np.sort(np.random.default_rng(0).choice(n, LANDMARKS, replace=False))[::8][:24]
            with tempfile.TemporaryDirectory(dir=folder) as scratch:
                found = shortest_paths(graph.matrix, sources, Exchange(scratch))
        hops = dijkstra(graph.to_scipy(), indices=[int(graph.original_ids()[sources[0]])], unweighted=True)
        out[str(n)] = {"blocks": found["blocks"], "rounds": found["rounds"], "hops": int(hops.max())}
        out[str(n)]["settled_per_row"] = found["settled"] / n / len(sources)
    return out


def seed(folder: Path) -> dict[str, dict[str, Any]]:
    """1600 points, k = 10 counting the point itself, as in the source; and 800 with noise 0.8."""
    import bigembed as be
    from bigembed.datasets import dataset

    out = {}
    warnings.simplefilter("ignore")
    for name, n, noise in (("1600", 1600, 0.0), ("800 noisy", 800, 0.8)):
        made = dataset("swiss_roll", n=n, noise=noise)
        found = be.Isomap(2, n_neighbors=9, components="bridge").fit(made.rows(0, n))
        true = flat(n, noise)
        i, j = np.random.default_rng(0).integers(0, n, (2, 100_000))
        apart = [np.linalg.norm(points[i] - points[j], axis=1) for points in (found.embedding_, true)]
        out[name] = {**correlations(found.embedding_, true), "r_distances": float(np.corrcoef(*apart)[0, 1])}
    return out


def side(given: argparse.Namespace, name: str, path: str) -> dict[str, Any]:
    """One side in a process of its own, its memory watched."""
    command = [sys.executable, __file__, "--folder", given.folder, "--side", name, "--path", path]
    command += ["--n", str(given.n), "--k", str(given.k), "--peer", str(given.peer)]
    return watched(*command)


def one_side(given: argparse.Namespace) -> dict[str, Any]:
    """What a process of its own does."""
    if given.side == "peer":
        return peer(given.path, given.peer, given.k)
    exact = given.side == "exact"
    run = f"{given.folder}/isomap-{given.side}.zarr"
    n = int(Path(given.path).stem.split("-n")[1].split("-")[0])
    return ours(given.path, n, given.k, "exact" if exact else "landmarks", run, (600 << 20) if exact else 3 << 29)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--n", type=int, default=1_000_000)
    parser.add_argument("--k", type=int, default=30)
    parser.add_argument("--peer", type=int, default=15_000)
    parser.add_argument("--rows-exact", type=int, default=30_000)
    parser.add_argument("--sizes", type=int, nargs="+", default=[250_000, 500_000, 1_000_000, 2_000_000])
    parser.add_argument("--folder", default="bench-data")
    parser.add_argument("--part", choices=PARTS, nargs="+", default=list(PARTS))
    parser.add_argument("--side", choices=["landmarks", "exact", "peer"])
    parser.add_argument("--path")
    given = parser.parse_args()
    folder = Path(given.folder)
    if given.side:
        print(json.dumps(one_side(given)))
        return
    if "landmarks" in given.part:
        path = data_set("swiss_roll", folder, n=given.n)
        found = {"ours": side(given, "landmarks", path)} | ({"peer": side(given, "peer", path)} if given.peer else {})
        table("isomap-landmarks", {"n": given.n, "k": given.k, "landmarks": LANDMARKS}, found)
    if "exact" in given.part:
        path = data_set("swiss_roll", folder, n=given.rows_exact)
        table("isomap-exact", {"n": given.rows_exact, "k": given.k}, {"ours": side(given, "exact", path)})
    if "rounds" in given.part:
        table("isomap-rounds", {"k": given.k}, rounds(folder, given.sizes, given.k))
    if "seed" in given.part:
        table("isomap-seed", {"k": 9}, seed(folder))


if __name__ == "__main__":
    main()
