"""PHATE, PaCMAP, truncated SVD and random projections beside their references: processor time, objective, trust.

    python benchmarks/map_peers.py phate --rows tree                    # 10 000 rows of a tree of 20 branches
    python benchmarks/map_peers.py pacmap --rows mnist --peer-python ~/pacmap/bin/python
    python benchmarks/map_peers.py truncated_svd gaussian_projection sparse_projection

Both sides start from the same rows on disk, with default parameters and one thread; processor seconds are from rows to
coordinates, in a process of its own, of compiled functions. ``objective`` is what the method makes small, of both maps
by one function: of PHATE Kruskal's stress-1 to the potential distances of phate (of its landmarks, to which the place
of each on a map is the mean of its rows), of the map scaled as suits them best; of PaCMAP the loss of the last phase
over the pairs that pacmap drew; of truncated SVD the share of the squared norm of the rows that is left; of
projections the mean of |log(d'²/d²)| over pairs of 2 000 rows. ``alike`` is the correlation of distances on both maps
of 2 000 rows.

The rows are 10 000 of MNIST (50 principal components), of the tree (100 columns), or of a file ``.npy``. The peers run
in the environment given by ``--peer-python`` (phate, pacmap; scikit-learn), by default this one; ``--peer 0``: without
them. ``--images`` is the folder of the IDX files of MNIST, by default $BIGEMBED_DATA/mnist.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import time
import warnings
from pathlib import Path
from typing import Any

import numpy as np
from scipy.spatial.distance import cdist, pdist

BRANCHES, COLUMNS = 20, 100
SOME = 2_000
METHODS = ("phate", "pacmap", "truncated_svd", "gaussian_projection", "sparse_projection")
PROJECTED = 40
"""Coordinates of a projection, whose defaults are hundreds of them."""


def tree(n: int, folder: Path) -> str:
    """Random walks joined to points of the first of them, with noise: as ``phate.tree`` makes them."""
    path = folder / f"tree-{n}.npy"
    if not path.exists():
        folder.mkdir(parents=True, exist_ok=True)
        random, length = np.random.default_rng(37), n // BRANCHES
        steps = random.uniform(-1, 1, (BRANCHES, length, COLUMNS)) * (500 / length) ** 0.5
        walks = np.cumsum(steps, axis=1)
        walks[1:] += walks[0, random.integers(length, size=BRANCHES - 1), None]
        rows = walks.reshape(-1, COLUMNS) + random.normal(0, 4, (BRANCHES * length, COLUMNS))
        np.save(path, rows.astype("f4"))
    return str(path)


# ------------------------------------------------------------------------------------------------------- the sides


def ours(method: str, rows: np.ndarray) -> Any:
    """What makes a map of rows, and what is known of it."""
    import bigembed as be

    if method == "phate":
        found = be.PHATE().fit(rows)
        return found.embedding_, {"t": found.t_}
    if method == "pacmap":
        return be.PaCMAP().fit(rows).embedding_, {}
    if method == "truncated_svd":
        return be.TruncatedSVD().fit_transform(rows), {}
    steps = {"gaussian_projection": be.GaussianRandomProjection, "sparse_projection": be.SparseRandomProjection}
    return steps[method](PROJECTED).fit_transform(rows), {}


def theirs(method: str, rows: np.ndarray) -> Any:
    """The same by the reference as it comes, and what it made the map from."""
    if method == "phate":
        import phate

        made = phate.PHATE(random_state=0, verbose=0)
        points = made.fit_transform(rows)
        groups = np.asarray(made.graph.clusters) if hasattr(made.graph, "clusters") else None
        return points, {"t": int(made.optimal_t), "potential": made.diff_potential, "groups": groups}
    if method == "pacmap":
        import pacmap

        found = pacmap.PaCMAP(random_state=1)
        points = found.fit_transform(rows)
        return points, {"near": found.pair_neighbors, "far": found.pair_FP}
    if method == "truncated_svd":
        from sklearn.decomposition import TruncatedSVD

        return TruncatedSVD(random_state=0).fit_transform(rows), {}
    from sklearn import random_projection

    name = {"gaussian_projection": "GaussianRandomProjection", "sparse_projection": "SparseRandomProjection"}[method]
    made = getattr(random_projection, name)(PROJECTED, random_state=0)
    return np.asarray(made.fit_transform(rows)), {}


def side(name: str, method: str, path: str, out: str) -> None:
    """Make one map, and print what it took; in the environment of the peer without the package."""
    warnings.simplefilter("ignore")
    make, rows = {"ours": ours, "theirs": theirs}[name], np.load(path)
    make(method, rows[: min(len(rows), 1_500)])  # (compiled)
    began = time.process_time()
    points, known = make(method, rows)
    seconds = time.process_time() - began
    np.save(f"{out}.npy", np.asarray(points))
    kept = {key: value for key, value in known.items() if isinstance(value, np.ndarray)}
    np.savez(f"{out}-made.npz", **kept)
    told = {key: value for key, value in known.items() if isinstance(value, (int, float))}
    print(json.dumps({"processor": seconds, **told}))


# -------------------------------------------------------------------------------------------------- the objectives


def objective(method: str, rows: np.ndarray, points: np.ndarray, made: dict[str, np.ndarray]) -> float:
    """What the method makes small, of a map; ``made``: what the reference made its map from."""
    if method == "phate":
        groups = made.get("groups")
        if groups is not None:  # (of each landmark)
            groups = np.unique(groups, return_inverse=True)[1]
            mass = np.bincount(groups)
            points = np.stack([np.bincount(groups, column) for column in points.T], axis=1) / mass[:, None]
        if len(points) != len(made["potential"]):  # (phate has not kept which rows are of which landmark)
            return float("nan")
        apart, shown = pdist(made["potential"]), pdist(points)
        scale = (apart @ shown) / (shown @ shown)
        return float(np.sqrt(np.square(apart - scale * shown).sum() / (apart @ apart)))
    if method == "pacmap":
        near, far = (1 + np.square(points[made[k][:, 0]] - points[made[k][:, 1]]).sum(axis=1) for k in ("near", "far"))
        return float((near / (10 + near)).sum() + (1 / (1 + far)).sum())
    if method == "truncated_svd":
        return 1.0 - float(np.square(points, dtype=np.float64).sum() / np.square(rows, dtype=np.float64).sum())
    some = np.random.default_rng(1).permutation(len(rows))[:SOME]
    apart, shown = (
        cdist(one[some[:500]].astype(np.float64), one[some[500:]].astype(np.float64)) for one in (rows, points)
    )
    return float(np.abs(2 * np.log(shown[apart > 0] / apart[apart > 0])).mean())


def judged(path: str, points: np.ndarray) -> dict[str, float]:
    """Trustworthiness and continuity of a map."""
    import bigembed as be

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        figures = be.certify(path, points.astype(float)).figures
    return {name: figures[name]["value"] for name in ("trustworthiness", "continuity")}


def main() -> None:
    from common import mnist_components, said, table

    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("methods", nargs="+", choices=METHODS)
    parser.add_argument("--folder", type=Path, default=Path("bench-data"))
    parser.add_argument("--images", default=str(Path(os.environ.get("BIGEMBED_DATA", ".")) / "mnist"), metavar="FOLDER")
    parser.add_argument("--rows", default="mnist", help="mnist, tree, or a file .npy")
    parser.add_argument("--n", type=int, default=10_000)
    parser.add_argument("--peer", type=int, default=1)
    parser.add_argument("--peer-python", default=sys.executable)
    asked = parser.parse_args()
    if asked.rows == "tree":
        path = tree(asked.n, asked.folder)
    else:
        path = mnist_components(asked.n, asked.folder, asked.images) if asked.rows == "mnist" else asked.rows
    os.environ |= {"OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1", "NUMBA_NUM_THREADS": "1"}
    pythons = {"ours": sys.executable} | ({"theirs": asked.peer_python} if asked.peer else {})
    rows, label = np.load(path), Path(asked.rows).stem
    for method in asked.methods:
        out = {name: str(asked.folder / f"{method}-{label}-{len(rows)}-{name}") for name in pythons}
        sides: dict[str, dict[str, Any]] = {
            name: said(python, __file__, "side", name, method, path, out[name]) for name, python in pythons.items()
        }
        maps = {name: np.load(f"{place}.npy") for name, place in out.items()}
        made = dict(np.load(f"{out['theirs']}-made.npz")) if asked.peer else {}
        for name, points in maps.items():
            if asked.peer or method not in ("phate", "pacmap"):
                sides[name]["objective"] = objective(method, rows, points, made)
            sides[name] |= judged(path, points)
        if asked.peer:
            some = np.random.default_rng(1).permutation(len(rows))[:SOME]
            sides["ours"]["alike"] = float(np.corrcoef(*(pdist(points[some]) for points in maps.values()))[0, 1])
        table("map_peers", {"method": method, "rows": label, "n": len(rows)}, sides)


if __name__ == "__main__":
    if sys.argv[1:2] == ["side"]:
        side(*sys.argv[2:])
    else:
        main()
