"""``spectral_start`` of a user's graph beside SciPy's LOBPCG and ARPACK, stopped at ten times our time.

    python benchmarks/spectral_start.py --n 100000
    python benchmarks/spectral_start.py --n 1000000           # 3·10⁷ edges, each counted from both of its nodes
    python benchmarks/spectral_start.py --n 300000 --sides ours

The graph joins near rows of a data set (k = 27, weights of a heat kernel) and comes as a list of edges in Parquet, its
nodes in random order, as a user's are. ``ours`` is ``be.spectral_start(be.open_graph("edges.parquet"))``, from the file
to the array in memory. The others have the graph in memory, as a SciPy matrix, and look for the same two eigenvectors
(and the trivial one) of S = D^{-1/2} W D^{-1/2} as umap-learn asks for them: LOBPCG from normal random vectors and √d,
tol 1e-4; ARPACK from ones, tol 1e-4, with as many Lanczos vectors as umap takes, √n.
Each side is a process of its own. ``residual`` is ‖Sv − λv‖ of the array that came out.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import time
import warnings
from pathlib import Path
from typing import Any

import numpy as np
from common import data_set, table
from laplacian_eigenmaps import SETS, residuals

M, TOL, K = 2, 1e-4, 27
TIMES = 10.0
"""The others are stopped at so many times our seconds."""


class OutOfTimeError(Exception):
    """A side has had its time."""


def weights_of(path: str) -> Any:
    """Heat weights between near rows, the nodes in random order."""
    from scipy.sparse import csr_array

    import bigembed as be

    graph = be.build_neighbor_graph(path, K).to_scipy()
    graph.data = np.exp(-(graph.data**2) / np.median(graph.data) ** 2)
    order = np.random.default_rng(0).permutation(graph.shape[0])
    return csr_array(graph[order][:, order])


def write_edges(weights: Any, path: str) -> None:
    """Source, target and weight of each edge, from both of its nodes."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    edges = weights.tocoo()
    row, column = edges.coords
    pq.write_table(pa.table({"source": row, "target": column, "weight": edges.data}), path)


def ours(path: str) -> tuple[np.ndarray, dict[str, Any]]:
    import bigembed as be
    from bigembed.runtime import using

    done: dict[str, Any] = {}
    with using(observer=lambda event: done.update({event.stage: event}) if event.kind == "done" else None):
        start = be.spectral_start(be.open_graph(path), M, tol=TOL)
    seconds = {stage: event.seconds for stage, event in done.items() if stage in ("edges", "order", "weights", "solve")}
    return start, {
        **seconds,
        "passes": done["solve"].results["passes"],
        "inside": done["weights"].results.get("inside"),
    }


def counted(weights: Any, limit: float) -> tuple[Any, np.ndarray, list[int]]:
    """S as an operator that counts its products and ends the solve when the time is over; 1/√d."""
    from scipy.sparse.linalg import LinearOperator

    scale = 1 / np.sqrt(np.asarray(weights.sum(axis=1)).ravel())
    products, began = [0], time.perf_counter()

    def product(x: np.ndarray) -> np.ndarray:
        if time.perf_counter() - began > limit:
            raise OutOfTimeError
        products[0] += 1
        s = scale if x.ndim == 1 else scale[:, None]
        return s * (weights @ (s * x))

    return LinearOperator(weights.shape, matvec=product, matmat=product, dtype=np.float64), scale, products


def lobpcg(weights: Any, limit: float) -> tuple[np.ndarray, dict[str, Any]]:
    from scipy.sparse.linalg import lobpcg as solve

    operator, scale, products = counted(weights, limit)
    x = np.random.default_rng(0).normal(size=(weights.shape[0], M + 1))
    x[:, 0] = 1 / scale
    try:
        vectors = solve(operator, x, largest=True, tol=TOL, maxiter=5 * weights.shape[0])[1][:, 1:]
    except OutOfTimeError:
        return np.zeros((0, M)), {"products": products[0]}
    return vectors * scale[:, None], {"products": products[0]}


def arpack(weights: Any, limit: float) -> tuple[np.ndarray, dict[str, Any]]:
    from scipy.sparse.linalg import eigsh

    operator, scale, products = counted(weights, limit)
    n = weights.shape[0]
    try:
        values, vectors = eigsh(
            operator, M + 1, which="LA", ncv=max(2 * M + 3, int(n**0.5)), tol=TOL, v0=np.ones(n), maxiter=5 * n
        )
    except OutOfTimeError:
        return np.zeros((0, M)), {"products": products[0]}
    return vectors[:, np.argsort(-values)[1:]] * scale[:, None], {"products": products[0]}


def side(name: str, path: str, limit: float) -> dict[str, Any]:
    """The figures of one side."""
    from scipy.sparse import csr_array, load_npz

    warnings.simplefilter("ignore")
    weights = csr_array(load_npz(path))
    began = time.perf_counter()
    if name == "ours":
        coordinates, found = ours(f"{path}.parquet")
    else:
        coordinates, found = {"lobpcg": lobpcg, "arpack": arpack}[name](weights, limit)
    seconds = time.perf_counter() - began
    if not len(coordinates):
        return {"seconds": seconds, **found, "stopped": True}
    return {"seconds": seconds, **found, "residual": float(residuals(weights, coordinates)[1].max())}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--set", choices=sorted(SETS), default="swiss_roll")
    parser.add_argument("--n", type=int, default=100_000)
    parser.add_argument("--folder", default="bench-data")
    parser.add_argument("--sides", nargs="+", default=["ours", "lobpcg", "arpack"])
    parser.add_argument("--side", nargs=3, help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.side:
        print(json.dumps(side(given.side[0], given.side[1], float(given.side[2]))))
        return
    from scipy.sparse import csr_matrix, save_npz

    warnings.simplefilter("ignore")
    weights = weights_of(data_set(given.set, Path(given.folder), n=given.n, **SETS[given.set]))
    path = f"{given.folder}/start-{given.set}-{given.n}.npz"
    save_npz(path, csr_matrix(weights), compressed=False)
    write_edges(weights, f"{path}.parquet")
    found: dict[str, dict[str, Any]] = {}
    for name in given.sides:
        limit = TIMES * found["ours"]["seconds"] if "ours" in found else np.inf
        command = [sys.executable, __file__, "--side", name, path, str(limit)]
        done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True)
        found[name] = json.loads(done.stdout.strip().splitlines()[-1])
        found[name]["times_ours"] = found[name]["seconds"] / found[given.sides[0]]["seconds"]
    table("spectral_start", {"set": given.set, "n": given.n, "entries": int(weights.nnz)}, found)


if __name__ == "__main__":
    main()
