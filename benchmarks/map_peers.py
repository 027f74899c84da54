"""PHATE, PaCMAP, truncated SVD and random projections beside their references: processor time, objective, trust.

    python benchmarks/map_peers.py phate --rows tree                    # 10 000 rows of a tree of 20 branches
    python benchmarks/map_peers.py pacmap --rows mnist masscyt digits mixture --peer-python ~/pacmap/bin/python
    python benchmarks/map_peers.py truncated_svd gaussian_projection sparse_projection

Both sides start from the same rows on disk, with default parameters and one thread; processor seconds are from rows to
coordinates, in a process of its own, of compiled functions. ``objective`` is what the method makes small, of both maps
by one function: of PHATE Kruskal's stress-1 of the map, scaled as suits it best, to the distances between the
potentials of 1 000 rows without landmarks, by the walk of phate and the t that the side has taken (which is the larger
the smaller t is: a third map is ours with the t of phate); of PaCMAP the loss of the last phase over the near pairs of
pacmap and as many further ones, drawn anew (a map is 8 % better by the further pairs that it was made of); of truncated
SVD the share of the squared norm of the rows that is left; of projections the mean of |log(d'²/d²)| over pairs of 2 000
rows. ``alike`` is the correlation of distances on both maps of 2 000 rows. Of PHATE, ``own_stress`` is that of each
side's landmarks to the potentials of its own walk.

The rows are 10 000 of MNIST (50 principal components), of the tree (100 columns), of cells, of the digits of
scikit-learn (all 1 797), of a mixture, or of a file ``.npy``. The peers run in the environment given by
``--peer-python`` (phate, pacmap; scikit-learn), by default this one; ``--peer 0``: without them. ``--data`` is the
folder of the real sets, in it mnist (IDX files) and masscyt; by default $BIGEMBED_DATA.
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
from scipy import sparse
from scipy.spatial.distance import cdist, pdist

BRANCHES, COLUMNS = 20, 100
SOME = 2_000
ADDED = 1e-7
"""To probabilities, before their logarithm."""
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


def ours(method: str, rows: np.ndarray, **given: Any) -> Any:
    """A map of rows, and what is known of it; ``given``: other parameters than the default ones."""
    import bigembed as be

    if method == "phate":
        found = be.PHATE(**given).fit(rows)
        return found.embedding_, {"t": found.t_, "own_stress": found.stress_}
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
        walk = np.linalg.matrix_power(np.asarray(made.diff_op), int(made.optimal_t))  # (between landmarks)
        own = stress(-np.log(walk + ADDED), np.asarray(made.embedding))
        walk = sparse.csr_array(made.graph.diff_op)
        steps = {"data": walk.data, "indices": walk.indices, "indptr": walk.indptr}
        return points, {"t": int(made.optimal_t), "own_stress": own} | steps
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


def side(name: str, method: str, path: str, out: str, given: str = "{}") -> None:
    """Make one map, and print what it took; in the environment of the peer without the package."""
    warnings.simplefilter("ignore")
    make, rows, asked = {"ours": ours, "theirs": theirs}[name], np.load(path), json.loads(given)
    make(method, rows[: min(len(rows), 1_500)])  # (compiled)
    began = time.process_time()
    points, known = make(method, rows, **asked)
    seconds = time.process_time() - began
    np.save(f"{out}.npy", np.asarray(points))
    kept = {key: value for key, value in known.items() if isinstance(value, np.ndarray)}
    np.savez(f"{out}-made.npz", **kept)
    told = {key: value for key, value in known.items() if isinstance(value, (int, float))}
    print(json.dumps({"processor": seconds, **told}))


# -------------------------------------------------------------------------------------------------- the objectives


def some_of(n: int) -> np.ndarray:
    """The rows by which both sides are compared."""
    return np.random.default_rng(1).permutation(n)[:SOME]


def stress(high: np.ndarray, points: np.ndarray) -> float:
    """Kruskal's stress-1 of points to the distances of rows, of the points scaled as suits them best."""
    apart, shown = pdist(high), pdist(points)
    scale = (apart @ shown) / (shown @ shown)
    return float(np.sqrt(np.square(apart - scale * shown).sum() / (apart @ apart)))


def potentials(made: dict[str, np.ndarray], t: int, some: np.ndarray) -> np.ndarray:
    """Return −log(p + 1e-7) of where the walk of the reference is after t steps from some rows."""
    n = len(made["indptr"]) - 1
    walk = sparse.csr_array((made["data"], made["indices"], made["indptr"]), shape=(n, n)).T.tocsr()
    found = np.zeros((n, len(some)))
    found[some, np.arange(len(some))] = 1.0
    for _ in range(t):
        found = walk @ found
    return np.asarray(-np.log(found.T + ADDED))


def objective(method: str, rows: np.ndarray, points: np.ndarray, made: dict[str, np.ndarray], t: int) -> float:
    """What the method makes small, of a map; ``made``: what the reference made its map from; ``t`` of PHATE."""
    if method == "phate":
        some = some_of(len(points))[:1_000]
        return stress(potentials(made, t, some), points[some])
    if method == "pacmap":
        pairs = made["near"], np.random.default_rng(5).integers(len(points), size=made["far"].shape)
        near, far = (1 + np.square(points[ends[:, 0]] - points[ends[:, 1]]).sum(axis=1) for ends in pairs)
        return float((near / (10 + near)).sum() + (1 / (1 + far)).sum())
    if method == "truncated_svd":
        return 1.0 - float(np.square(points, dtype=np.float64).sum() / np.square(rows, dtype=np.float64).sum())
    some = some_of(len(rows))
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


def compare(method: str, label: str, path: str, asked: argparse.Namespace) -> None:
    """Make a map by both sides, and keep what they took and what they show."""
    from common import said, table

    rows = np.load(path)
    pythons = {"ours": sys.executable} | ({"theirs": asked.peer_python} if asked.peer else {})
    out = {name: str(asked.folder / f"{method}-{label}-{len(rows)}-{name}") for name in pythons}
    sides: dict[str, dict[str, Any]] = {
        name: said(python, __file__, "side", name, method, path, out[name]) for name, python in pythons.items()
    }
    if asked.peer and method == "phate":
        out["ours, their t"] = f"{out['ours']}-same"
        given = json.dumps({"t": sides["theirs"]["t"]})
        sides["ours, their t"] = said(
            sys.executable, __file__, "side", "ours", method, path, out["ours, their t"], given
        )
    maps = {name: np.load(f"{place}.npy") for name, place in out.items()}
    made = dict(np.load(f"{out['theirs']}-made.npz")) if asked.peer else {}
    for name, points in maps.items():
        if asked.peer or method not in ("phate", "pacmap"):
            sides[name]["objective"] = objective(method, rows, points, made, sides[name].get("t", 0))
        sides[name] |= judged(path, points)
    if asked.peer:
        some = some_of(len(rows))
        apart = {name: pdist(points[some]) for name, points in maps.items()}
        for name in apart.keys() - {"theirs"}:
            sides[name]["alike"] = float(np.corrcoef(apart[name], apart["theirs"])[0, 1])
    table("map_peers", {"method": method, "rows": label, "n": len(rows)}, sides)


def main() -> None:
    from common import named_rows

    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("methods", nargs="+", choices=METHODS)
    parser.add_argument("--folder", type=Path, default=Path("bench-data"))
    parser.add_argument("--data", default=os.environ.get("BIGEMBED_DATA", "."), metavar="FOLDER")
    kinds = "mnist, masscyt, digits, mixture, tree, or a file .npy"
    parser.add_argument("--rows", nargs="+", default=["mnist"], help=kinds)
    parser.add_argument("--n", type=int, default=10_000)
    parser.add_argument("--peer", type=int, default=1)
    parser.add_argument("--peer-python", default=sys.executable)
    asked = parser.parse_args()
    os.environ |= {"OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1", "NUMBA_NUM_THREADS": "1"}
    for name in asked.rows:
        if name == "tree":
            path = tree(asked.n, asked.folder)
        else:
            path = name if name.endswith(".npy") else named_rows(name, asked.n, asked.folder, asked.data)[0]
        for method in asked.methods:
            compare(method, Path(name).stem, path, asked)


if __name__ == "__main__":
    if sys.argv[1:2] == ["side"]:
        side(*sys.argv[2:])
    else:
        main()
