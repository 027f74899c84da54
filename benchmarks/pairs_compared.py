"""Pairs of rows that the search of neighbors compares, a row, as a function of n.

    python benchmarks/pairs_compared.py --n 30000 100000 300000 1000000

``mixture``: 200 Gaussian clusters of 12 dimensions in 64 columns, ``cluster``: one of them. ``solid``: rows of 4
dimensions, ``surface``: of 2, both bent into 16 columns by sines of random directions, with noise of 10⁻³. In one
process: processor time a row, of all stages of the search and of the last alone, cells that each row probes, and the
share of true neighbors found. The rows of a cell are the same for every n. What grows with n is the dimension that the
cells see: a cluster of less than a cell has none.
"""

from __future__ import annotations

import argparse
import time
import warnings
from typing import Any

import dask
import numpy as np
from common import table

from bigembed.datasets import dataset
from bigembed.neighbors.graph_stages import search_stages
from bigembed.neighbors.search.ground_truth import recall_stage
from bigembed.rows.input import row_source
from bigembed.runtime import Event, using
from bigembed.runtime.blocks import Array
from bigembed.stages.runs import Run
from bigembed.stages.stage import run_stages

DIMENSIONS = {"solid": 4, "surface": 2}
CLUSTERS = {"mixture": 200, "cluster": 1}
SETS = (*CLUSTERS, *DIMENSIONS)


def rows_of(name: str, n: int) -> Array:
    """n rows of a set, float32."""
    if name in CLUSTERS:
        return np.asarray(dataset("mixture", n=n, d=64, n_clusters=CLUSTERS[name]).rows(0, n), np.float32)
    generator = np.random.default_rng(0)
    directions, turns = generator.normal(size=(DIMENSIONS[name], 16)), generator.uniform(0, 2 * np.pi, 16)
    rows = np.sin(generator.random((n, DIMENSIONS[name])) @ directions * 2 + turns)
    return (rows + 1e-3 * generator.normal(size=rows.shape)).astype(np.float32)


def searched(name: str, n: int, k: int, recall: float) -> dict[str, Any]:
    """What the search of k neighbors of n rows took."""
    used: dict[str, float] = {}

    def note(event: Event) -> None:
        if event.kind in ("start", "done"):
            used[event.stage] = time.process_time() - used.get(event.stage, 0.0)

    run = Run(None)
    source, _ = row_source(rows_of(name, n), run.root / "exchange")
    with using(observer=note):
        run_stages([*search_stages(source, k, "euclidean", recall, 0, algorithm="cells"), recall_stage(recall)], run)
    found = run.results("search")
    return {
        "compared": round(found["compared_per_row"]),
        "probes": found["n_probes"],
        "recall": round(run.results("recall")["recall"], 4),
        "rows_of_a_cell": round(n / run.results("order")["cells"]),
        "us_a_row": 1e6 * sum(seconds for stage, seconds in used.items() if stage != "recall") / n,
        "us_of_search": 1e6 * used["search"] / n,
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--n", type=int, nargs="+", default=[30_000, 100_000, 300_000])
    parser.add_argument("--k", type=int, default=15)
    parser.add_argument("--recall", type=float, default=0.99)
    parser.add_argument("--sets", nargs="+", choices=SETS, default=list(SETS))
    given = parser.parse_args()
    warnings.simplefilter("ignore")
    rows: dict[str, dict[str, Any]] = {}
    with dask.config.set(scheduler="synchronous"):
        searched("surface", 20_000, given.k, given.recall)  # (compiles)
        for name in given.sets:
            for n in given.n:
                rows[f"{name}, n = {n:,}"] = searched(name, n, given.k, given.recall)
                print(list(rows.items())[-1], flush=True)
    table("pairs_compared", {"k": given.k, "recall": given.recall}, rows)


if __name__ == "__main__":
    main()
