"""Locally linear embedding of the swiss roll: by landmarks at 10⁶ rows, exact beside scikit-learn at ``--peer`` rows.

    python benchmarks/lle.py --folder bench-data                       # both
    python benchmarks/lle.py --folder bench-data --part landmarks --n 100000

Parts. ``landmarks``: from rows on disk to coordinates on disk, by 1 000 and 3 000 landmarks. ``exact``: all rows
of a smaller roll, beside scikit-learn's dense and ARPACK solvers: seconds, peak memory, and the largest angle between
the subspaces. ``spearman`` is the rank correlation of the first coordinate with the arc length; ``r2_length`` and
``r2_height`` the shares of the variance of the true coordinates that are linear in the two found. The roll is a strip
of 1 : 24, so that LLE shows its length first, and a harmonic of it second. Two workers of one thread; peak memory is
that of all processes of a side together. Compilation is left out on our side by a small map before.
"""

from __future__ import annotations

import argparse
import json
import shutil
import sys
import time
import warnings
from pathlib import Path
from typing import Any

import numpy as np
from common import data_set, table, watched

LANDMARKS = (1_000, 3_000)


def figures(embedding: np.ndarray, n: int) -> dict[str, float]:
    """How well coordinates show the true ones."""
    from scipy.stats import spearmanr

    from bigembed.datasets import dataset

    truth = dataset("swiss_roll", n=n).truth(0, n)
    true = np.column_stack([truth["arc_length"], truth["height"]])
    basis = np.column_stack([embedding, np.ones(n)])
    rest = true - basis @ np.linalg.lstsq(basis, true, rcond=None)[0]
    shares = 1 - rest.var(axis=0) / true.var(axis=0)
    first = abs(float(spearmanr(embedding[:, 0], true[:, 0]).statistic))
    return {"spearman": first, "r2_length": float(shares[0]), "r2_height": float(shares[1])}


def ours(path: str, n: int, k: int, solver: str, landmarks: int, run: str) -> dict[str, Any]:
    """From rows on disk to coordinates on disk."""
    import bigembed as be
    from bigembed.jobs.places import ClusterTable
    from bigembed.jobs.places.cluster import cluster
    from bigembed.runtime import using

    warnings.simplefilter("ignore")
    with cluster(ClusterTable(workers=2, memory=3 << 29), "embedded") as place, using(executor=place.executor):
        small = np.random.default_rng(0).normal(size=(6_000, 3)).astype(np.float32)
        be.LocallyLinearEmbedding(n_neighbors=8, solver=solver, n_landmarks=200).fit(small)
        shutil.rmtree(run, ignore_errors=True)
        began = time.perf_counter()
        asked: dict[str, Any] = {"n_neighbors": k, "solver": solver, "n_landmarks": landmarks, "workdir": run}
        found = be.LocallyLinearEmbedding(2, **asked).fit(path)
        seconds = time.perf_counter() - began
    posed, part = found.certificate_["posed"], found.certificate_["eigenpairs"]["0"]
    stages = {name: found._run.manifest(name).measured["seconds"] for name in found._run.published()}
    embedding = np.asarray(found.embedding_)
    np.save(f"{run}.npy", embedding)
    return {
        "n": n,
        "seconds": seconds,
        **figures(embedding, n),
        "condition": posed["condition"],
        "first_eigenvalue": posed["first_eigenvalue"],
        "of_all_rows": posed["first_eigenvalue_of_all_rows"],
        "rounding": posed["rounding"],
        "factor_mib": part["factor_bytes"] >> 20,
        "stages": stages,
    }


def peer(path: str, n: int, k: int, solver: str, run: str) -> dict[str, Any]:
    """scikit-learn's LocallyLinearEmbedding of all rows, in memory."""
    import zarr
    from scipy.linalg import subspace_angles
    from sklearn.manifold import LocallyLinearEmbedding

    rows = zarr.open_array(path, mode="r")[:]
    began = time.perf_counter()
    asked: dict[str, Any] = {"n_neighbors": k, "eigen_solver": solver, "random_state": 0, "max_iter": 1000}
    found = LocallyLinearEmbedding(n_components=2, n_jobs=-1, **asked).fit(rows)
    seconds = time.perf_counter() - began
    out: dict[str, Any] = {"n": n, "seconds": seconds, **figures(found.embedding_, n)}
    if Path(f"{run}.npy").exists():
        out["angle_to_ours"] = float(subspace_angles(found.embedding_, np.load(f"{run}.npy")).max())
    return out


def side(given: argparse.Namespace, name: str, path: str, n: int, landmarks: int = 0) -> dict[str, Any]:
    """One side in a process of its own, its memory watched."""
    command = [sys.executable, __file__, "--folder", given.folder, "--side", name, "--path", path]
    command += ["--n", str(n), "--k", str(given.k), "--landmarks", str(landmarks or 3_000)]
    return watched(*command)


def one_side(given: argparse.Namespace) -> dict[str, Any]:
    """What a process of its own does."""
    run = f"{given.folder}/lle-{given.n}.zarr"
    if given.side in ("dense", "arpack"):
        return peer(given.path, given.n, given.k, given.side, run)
    return ours(given.path, given.n, given.k, given.side, given.landmarks, run)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--n", type=int, default=1_000_000)
    parser.add_argument("--peer", type=int, nargs="+", default=[2_000, 20_000])
    parser.add_argument("--k", type=int, default=12)
    parser.add_argument("--landmarks", type=int, default=3_000)
    parser.add_argument("--folder", default="bench-data")
    parser.add_argument("--part", choices=("landmarks", "exact"), nargs="+", default=["landmarks", "exact"])
    parser.add_argument("--side", choices=["landmarks", "exact", "dense", "arpack"])
    parser.add_argument("--path")
    given = parser.parse_args()
    folder = Path(given.folder)
    if given.side:
        print(json.dumps(one_side(given)))
        return
    if "landmarks" in given.part:
        path = data_set("swiss_roll", folder, n=given.n)
        found = {f"L={count}": side(given, "landmarks", path, given.n, count) for count in LANDMARKS}
        table("lle-landmarks", {"n": given.n, "k": given.k}, found)
    if "exact" in given.part:
        for n in given.peer:
            path = data_set("swiss_roll", folder, n=n, dtype="float64")
            sides = ["exact", *(["dense"] if n <= 5_000 else []), "arpack"]
            table("lle-exact", {"n": n, "k": given.k}, {name: side(given, name, path, n) for name in sides})


if __name__ == "__main__":
    main()
