"""Laplacian eigenmap beside scikit-learn's SpectralEmbedding on the same weights: time, explicit residual, subspace.

    python benchmarks/laplacian_eigenmaps.py --data FOLDER             # MNIST 70 000 (the four *-ubyte.gz files)
    python benchmarks/laplacian_eigenmaps.py --n 500000                # a swiss roll; --set mixture
    python benchmarks/laplacian_eigenmaps.py --n 1000000 --sides ours  # passes at a million rows

The graph is made once by bigembed (k = 15); its heat weights, with the scale that follows the density and a diagonal
of 0, as scikit-learn wants it, lie in one SciPy matrix of the largest component. ``ours`` is
``LaplacianEigenmaps(10).fit(weights)``: checking and storing the weights, the solve, the coordinates, and figures of
the certificate; ``solve`` is the seconds of the solve stage alone, ``pass`` the median of one of its iterations,
``product`` those of the bare SciPy product of the weights with as many columns, in the same process, and
``pass_over_product`` their ratio. ``files`` is the same with the vectors of the solver in files. ``arpack`` and ``amg``
are ``SpectralEmbedding(10, affinity="precomputed", eigen_tol=1e-6)``, each stopped at ``--limit`` times our seconds.
Every side is a process of its
own, with the threads that the environment allows. ``residual`` is ‖Sv − λv‖ with S = D^{-1/2} W D^{-1/2}, v of length
one and λ its Rayleigh quotient, from the coordinates that came out; ``sine`` that of the largest angle between the span
of a side and ours.
"""

from __future__ import annotations

import argparse
import gzip
import json
import subprocess
import sys
import time
import warnings
from pathlib import Path
from typing import Any

import numpy as np
from common import data_set, table

PAIRS, TOL, K = 10, 1e-6, 15
SETS: dict[str, dict[str, Any]] = {"swiss_roll": {"noise": 0.05}, "mixture": {"d": 64}}


def mnist(data: Path) -> np.ndarray:
    """All 70 000 rows of 784 pixels."""
    names = ("train-images-idx3-ubyte.gz", "t10k-images-idx3-ubyte.gz")
    files = [gzip.decompress((data / name).read_bytes()) for name in names]
    parts = [np.frombuffer(file, np.uint8, offset=16).reshape(-1, 784) for file in files]
    return np.concatenate(parts).astype(np.float32)


def heat(rows: Any) -> Any:
    """Heat weights of the largest component, ε half of the mean of two squared distances to the k-th neighbor."""
    from scipy.sparse import csr_array
    from scipy.sparse.csgraph import connected_components

    import bigembed as be

    graph = be.build_neighbor_graph(rows, K).to_scipy()
    label = connected_components(graph, directed=False)[1]
    inside = np.flatnonzero(label == np.bincount(label).argmax())
    graph = csr_array(graph[inside][:, inside])
    first, count = graph.indptr[:-1], np.diff(graph.indptr)
    row = np.repeat(np.arange(graph.shape[0]), count)
    ordered = graph.data[np.lexsort((graph.data, row))]
    squared = ordered[first + np.minimum(K, count) - 1] ** 2  # (those that are joined besides are farther)
    graph.data = np.exp(-(graph.data**2) / (0.25 * (squared[row] + squared[graph.indices])))
    return (graph + graph.T) / 2


def residuals(weights: Any, coordinates: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Orthonormal vectors of the span, and ‖Sv − λv‖ of each column."""
    root = np.sqrt(np.asarray(weights.sum(axis=1)).ravel())[:, None]
    v = coordinates * root
    v /= np.linalg.norm(v, axis=0)
    image = (weights @ (v / root)) / root
    return np.linalg.qr(v)[0], np.linalg.norm(image - v * (v * image).sum(axis=0), axis=0)


def ours(weights: Any, limit: int | None = None) -> tuple[np.ndarray, dict[str, Any]]:
    """``limit``: bytes of vectors in memory; 0 sends all through files."""
    import bigembed as be
    from bigembed.linalg.lobpcg import block_width
    from bigembed.runtime import using

    marks: list[float] = []
    with (
        using(vector_memory=limit),
        using(observer=lambda event: marks.append(time.perf_counter()) if event.kind == "note" else None),
    ):
        le = be.LaplacianEigenmaps(PAIRS, tol=TOL).fit(weights)
    found = {"solve": le._run.manifest("solve").measured["seconds"], "passes": le.certificate_["passes"]}
    if len(marks) > 2:
        found["pass"] = float(np.median(np.diff(marks)))
        found["product"] = product(weights, block_width(PAIRS))
        found["pass_over_product"] = found["pass"] / found["product"]
    return np.asarray(le.embedding_), found


def product(weights: Any, columns: int) -> float:
    """Seconds of the bare product, the median of nine."""
    x, seconds = np.random.default_rng(0).standard_normal((weights.shape[0], columns)), []
    for _ in range(9):
        began = time.perf_counter()
        weights @ x
        seconds.append(time.perf_counter() - began)
    return float(np.median(seconds))


def theirs(weights: Any, solver: str) -> tuple[np.ndarray, dict[str, Any]]:
    from scipy.sparse import csr_matrix
    from sklearn.manifold import SpectralEmbedding

    embedding = SpectralEmbedding(
        PAIRS, affinity="precomputed", eigen_solver=solver, eigen_tol=TOL, random_state=0, n_jobs=-1
    )
    return embedding.fit_transform(csr_matrix(weights)), {}


def side(name: str, path: str) -> dict[str, Any]:
    """The figures of one side; its span beside the weights."""
    from scipy.sparse import csr_array, load_npz

    warnings.simplefilter("ignore")
    weights = csr_array(load_npz(path))
    small = weights[:3_000][:, :3_000] + csr_array(([1e-3] * 5_998, (_ends(3_000))), shape=(3_000, 3_000))
    sides: dict[str, Any] = {"ours": ours, "files": lambda one: ours(one, 0)}
    solve = sides.get(name, lambda one: theirs(one, name))
    solve(small)  # what has to be imported and compiled is there
    began = time.perf_counter()
    coordinates, found = solve(weights)
    seconds = time.perf_counter() - began
    span, apart = residuals(weights, coordinates)
    np.save(f"{path}.{name}.npy", span)
    out = {"seconds": seconds, **found, "residual": float(apart.max())}
    if name != "ours":
        reference = np.load(f"{path}.ours.npy")
        out["sine"] = float(np.linalg.norm(span - reference @ (reference.T @ span), 2))
    return out


def _ends(n: int) -> tuple[np.ndarray, np.ndarray]:
    i = np.arange(n - 1)
    return np.r_[i, i + 1], np.r_[i + 1, i]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path)
    parser.add_argument("--set", choices=sorted(SETS), default="swiss_roll")
    parser.add_argument("--n", type=int)
    parser.add_argument("--folder", default="bench-data")
    parser.add_argument("--limit", type=float, default=10.0)
    parser.add_argument("--sides", nargs="+", default=["ours", "amg", "arpack"])
    parser.add_argument("--side", nargs=2, help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.side:
        print(json.dumps(side(*given.side)))
        return
    name = given.set if given.data is None else "mnist"
    rows: Any = data_set(name, Path(given.folder), n=given.n or 100_000, **SETS[name]) if given.data is None else None
    if rows is None:
        rows = mnist(given.data)[: given.n]
    from scipy.sparse import csr_matrix, save_npz

    warnings.simplefilter("ignore")
    Path(given.folder).mkdir(parents=True, exist_ok=True)
    path = f"{given.folder}/laplacian-{name}-{given.n or 'all'}.npz"
    weights = heat(rows)
    save_npz(path, csr_matrix(weights), compressed=False)
    found: dict[str, dict[str, Any]] = {}
    for one in given.sides:
        limit = given.limit * found["ours"]["seconds"] + 60 if "ours" in found else None
        try:
            done = subprocess.run(
                [sys.executable, __file__, "--side", one, path],
                stdout=subprocess.PIPE, text=True, check=True, timeout=limit,
            )  # fmt: skip
            found[one] = json.loads(done.stdout.strip().splitlines()[-1])
        except subprocess.TimeoutExpired:
            found[one] = {"seconds": float("inf"), "stopped": f"after {limit:.0f} s"}
    for one in found.keys() - {"ours"}:
        found[one]["times_ours"] = found[one]["seconds"] / found["ours"]["seconds"]
    table("laplacian_eigenmaps", {"set": name, "n": weights.shape[0], "entries": weights.nnz}, found)


if __name__ == "__main__":
    main()
