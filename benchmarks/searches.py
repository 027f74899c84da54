"""The neighbor searches beside each other on rows that fit in one process: recall against all rows, processor time.

    python benchmarks/searches.py --n 9000 --d 12 --k 10

Independent Gaussian columns. Each search is asked for a recall of .99 and runs twice in one process; the second time
counts, when all that it needs is compiled. Recall is measured on 1 000 sampled rows against all rows.
"""

from __future__ import annotations

import argparse
import time

import numpy as np
from common import table

from bigembed import build_neighbor_graph

ALGORITHMS = ("cells", "nn-descent", "pynndescent")
SAMPLED = 1000


def searched(rows: np.ndarray, k: int, algorithm: str) -> dict[str, float]:
    """Recall and processor time of a search."""
    for _ in range(2):
        began = time.process_time()
        graph = build_neighbor_graph(rows, k, algorithm=algorithm, random_state=0)
        spent = time.process_time() - began
    return {"recall": graph.recall_in(rows, k, rows=SAMPLED).recall, "processor": round(spent, 2)}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    for name, value in (("n", 9000), ("d", 12), ("k", 10)):
        parser.add_argument(f"--{name}", type=int, default=value)
    given = vars(parser.parse_args())
    rows = np.random.default_rng(0).normal(size=(given["n"], given["d"])).astype(np.float32)
    table("searches", given, {name: searched(rows, given["k"], name) for name in ALGORITHMS})


if __name__ == "__main__":
    main()
