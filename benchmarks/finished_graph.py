"""A fit on a finished graph in one process, beside scikit-learn's ``amg`` on the same weights: time and residuals.

    python benchmarks/finished_graph.py --n 200000                  # a swiss roll; --data mixture | sphere_with_relief

The graph is made first, and left out of every time. ``ours`` is ``DiffusionMap(10, tol=1e-6).fit(graph)``: kernel,
components, solve, coordinates, certificate, all published in a store, with the seconds of each stage. ``amg`` and
``amg_1e-6`` are ``sklearn.manifold.spectral_embedding(W, n_components=11, eigen_solver="amg")`` by its default and with
``eigen_tol=1e-6``, W the kernel of that fit on the largest component, in memory. Each side is a process of its own with
the threads that the environment allows, and computes its map twice from the same input, with nothing kept in between:
``first`` is the time of the first map, which loads compiled code, ``seconds`` that of the second. ``residual`` is
‖Sv − λv‖ with S = D^{-1/2} W D^{-1/2}, v of length one and λ its Rayleigh quotient; ``processor`` the seconds of all
threads.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import time
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from common import table
from eigenpairs import DATA, NEIGHBORS, PAIRS, TOL, rows_of, weights
from laplacian_eigenmaps import residuals


def ours(path: str, place: str, neighbors: int, kept: str) -> dict[str, Any]:
    """Seconds of the fit and its stages; the residual of what the solve left. The kernel is kept for the others."""
    from scipy.sparse import csr_matrix, save_npz

    import bigembed as be
    from bigembed.runtime import using
    from bigembed.store.arrays import read_array

    graph = be.build_neighbor_graph(be.open_array(path), neighbors, workdir=place)
    stages: dict[str, float] = {}

    def fitted() -> Any:
        return be.DiffusionMap(PAIRS, tol=TOL, components="largest").fit(graph)

    with using(observer=lambda event: stages.update({event.stage: event.seconds}) if event.kind == "done" else None):
        dm, times = twice(fitted)
    kernel, inside = weights(dm._run)
    save_npz(kept, csr_matrix(kernel), compressed=False)
    right = sorted(Path(dm._run.path("solve", "right")).iterdir(), key=lambda block: int(block.name))
    vectors = np.concatenate([read_array(str(block)) for block in right])[inside]
    return {
        **times,
        "passes": dm.certificate_["passes"],
        "residual": float(residuals(kernel, vectors)[1].max()),
        **{stage: round(each, 3) for stage, each in stages.items()},
    }


def theirs(kept: str, tolerance: str | float) -> dict[str, Any]:
    """Seconds and residual of scikit-learn's map of the kernel."""
    from scipy.sparse import csr_matrix, load_npz
    from sklearn.manifold import spectral_embedding

    kernel = csr_matrix(load_npz(kept))
    options: dict[str, Any] = {"n_components": PAIRS + 1, "eigen_solver": "amg", "random_state": 0, "drop_first": False}
    coordinates, times = twice(lambda: spectral_embedding(kernel, eigen_tol=tolerance, **options))
    residual = residuals(kernel, coordinates[:, 1:])[1].max()
    return {**times, "residual": float(residual)}


def twice(run: Callable[[], Any]) -> tuple[Any, dict[str, float]]:
    """The result of the second run; seconds of the first, and seconds and processor time of the second."""
    times = []
    for _ in range(2):
        began, busy = time.perf_counter(), time.process_time()
        result = run()
        times.append((time.perf_counter() - began, time.process_time() - busy))
    (first, _), (seconds, processor) = times
    return result, {"seconds": seconds, "processor": processor, "first": first}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", choices=sorted(DATA), default="swiss_roll")
    parser.add_argument("--n", type=int, default=200_000)
    parser.add_argument("--folder", default="bench-data")
    parser.add_argument("--side", choices=["ours", "amg", "amg_1e-6"])
    given = parser.parse_args()
    warnings.simplefilter("ignore")
    kept = f"{given.folder}/finished-{given.data}-{given.n}.npz"
    if given.side in ("amg", "amg_1e-6"):
        print(json.dumps(theirs(kept, "auto" if given.side == "amg" else TOL)))
        return
    path, neighbors = rows_of(given.data, Path(given.folder), given.n), NEIGHBORS.get(given.data, 15)
    place = f"{given.folder}/finished-graph-{given.data}-{given.n}.zarr"
    if given.side:
        print(json.dumps(ours(path, place, neighbors, kept)))
        return
    import bigembed as be

    be.build_neighbor_graph(be.open_array(path), neighbors, workdir=place)
    rows: dict[str, dict[str, Any]] = {}
    for side in ("ours", "amg", "amg_1e-6"):
        command = [sys.executable, __file__, "--data", given.data, "--n", str(given.n), "--folder", given.folder]
        done = subprocess.run([*command, "--side", side], stdout=subprocess.PIPE, text=True, check=True)
        rows[side] = json.loads(done.stdout.strip().splitlines()[-1])
    for side in ("amg", "amg_1e-6"):
        rows[f"ours over {side}"] = {
            name: rows["ours"][name] / rows[side][name] for name in ("seconds", "processor", "first", "residual")
        }
    table("finished_graph", {"data": given.data, "n": given.n}, rows)


if __name__ == "__main__":
    main()
