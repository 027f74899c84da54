"""Ten eigenpairs of a graph of rows that grew, from those of fewer rows: passes beside those from the coarse matrix.

    python benchmarks/warm_start.py --data swiss_roll --n 110000 --before 100000

The kernel is that of ``eigenpairs.py``, of the first ``--before`` rows and of all. Eigenvectors of the former stand at
its rows; a new row has the weighted mean of its neighbors there. Starts: ``coarse``, the one of the solver;
``earlier``, these in its place (its last five columns are left as guards); ``both``, side by side in the first
Rayleigh–Ritz, which keeps the best; ``smoothed``, side by side after one more product, which is not counted.
"""

from __future__ import annotations

import argparse
import shutil
import warnings
from pathlib import Path
from typing import Any

import numpy as np
from coarse_solve import PAIRS, operator_of
from common import table
from eigenpairs import DATA, NEIGHBORS, matrix, rows_of

import bigembed as be
from bigembed.linalg import SparseOperator, lobpcg, lobpcg_sweeps
from bigembed.neighbors.order import Ordered
from bigembed.runtime.blocks import Array, offsets, one_blas_thread
from bigembed.stages.runs import Run
from bigembed.store.arrays import read_array
from bigembed.store.vector_space import assembled


def fitted(rows: Array, name: str, run: str) -> None:
    """The kernel and its eigenvectors, in ``run``."""
    shutil.rmtree(run, ignore_errors=True)
    be.DiffusionMap(PAIRS, n_neighbors=NEIGHBORS.get(name, 15), components="largest", workdir=run).fit(rows)


def in_order(run: Run, n: int) -> tuple[Array, Array]:
    """Row numbers in the order of the graph; eigenvectors (n, PAIRS) in that of the input, NaN where there are none."""
    ordered = Ordered.open(run.path("order"))
    ids = np.concatenate([ordered.ids(b) for b in range(len(ordered.blocks))])
    right, labels = (
        np.concatenate([read_array(run.path(stage, f"{name}/{b}")) for b in range(len(ordered.blocks))])
        for stage, name in (("solve", "right"), ("components", "labels"))
    )
    out = np.full((n, PAIRS), np.nan)
    out[ids[labels == 0]] = right[labels == 0]
    return ids, out


def earlier(operator: SparseOperator, new: Run, old: Run, n: int) -> Array:
    """Orthonormal vectors over the rows of the graph: √d times the eigenvectors of before, carried to the new rows."""
    ids, _ = in_order(new, n)
    known = in_order(old, n)[1][ids]
    scale = assembled(operator.space, "scale")[:, 0]
    inside = scale > 0
    there = inside & ~np.isnan(known[:, 0])
    whole = matrix(str(new.root))  # S of the rows inside, in their order
    root = np.zeros(len(scale))
    root[inside] = 1 / scale[inside]
    value = np.where(there[:, None], known, 0.0)
    total = whole @ (there / 1.0 * root)[inside]
    mean = (whole @ (value * root[:, None])[inside]) / np.where(total > 0, total, 1.0)[:, None]
    value[inside] = np.where(there[inside, None], value[inside], mean)
    trivial = assembled(operator.space, "trivial")
    x = value * root[:, None]
    return np.linalg.qr(x - trivial @ (trivial.T @ x))[0]


def passes_from(operator: SparseOperator, columns: Array | None, replace: bool) -> int:
    """Passes to the tolerance from the start of the solver, with these columns beside it or in place of it."""
    start, first = offsets(operator.space.rows), lobpcg_sweeps.start_block

    def started(block: int, *given: Any) -> Any:
        (x, known), result = first(block, *given)
        if columns is not None:
            own = columns[start[block] : start[block + 1]]
            x = np.concatenate([own, x[:, own.shape[1] :] if replace else x], axis=1)
        return (x, known), result

    lobpcg_sweeps.start_block = started
    try:
        with one_blas_thread():
            state = lobpcg.init(operator, PAIRS, deflate="trivial")
            state = state.replaced(sizes=(len(state.gram), 0, 0))
            return lobpcg.solve(operator, state).passes
    finally:
        lobpcg_sweeps.start_block = first


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", choices=sorted(DATA), default="swiss_roll")
    parser.add_argument("--n", type=int, default=110_000)
    parser.add_argument("--before", type=int, default=100_000)
    parser.add_argument("--folder", default="bench-data")
    given = parser.parse_args()
    warnings.simplefilter("ignore")
    rows = np.asarray(be.open_array(rows_of(given.data, Path(given.folder), given.n)))
    runs = [f"{given.folder}/warm-{given.data}-{n}.zarr" for n in (given.before, given.n)]
    for run, count in zip(runs, (given.before, given.n), strict=True):
        fitted(rows[:count], given.data, run)
    operator = operator_of(runs[1])
    x = earlier(operator, Run(runs[1]), Run(runs[0]), given.n)
    scale = assembled(operator.space, "scale")[:, 0] > 0
    smoothed = np.zeros_like(x)
    smoothed[scale] = 0.3 * x[scale] + 0.7 * (matrix(runs[1]) @ x[scale])
    starts = {"coarse": (None, False), "earlier": (x, True), "both": (x, False)}
    starts["smoothed"] = (np.linalg.qr(smoothed)[0], False)
    found = {name: {"passes": passes_from(operator, *start)} for name, start in starts.items()}
    table("warm_start", {"data": given.data, "n": given.n, "before": given.before}, found)


if __name__ == "__main__":
    main()
