"""The hybrid search of seed 004, §5, on MNIST: candidates by PCA, ordered by LDM coordinates or by the pixels.

    python benchmarks/paper/hybrid.py --data FOLDER            # hybrid.png, hybrid.csv

For several numbers of candidates a row: recall@10 against the ten nearest rows in pixels, measured on sampled rows,
and the seconds of the whole graph (candidates, order, symmetric graph). ``--direct`` adds the graph that is searched
in the pixels from the start.
"""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import numpy as np
from compare import LDM, K, arguments, write_csv

import bigembed as be
from bigembed.datasets import dataset
from bigembed.plotting.canvas import legend, new_figure, save
from bigembed.plotting.palette import ACCENT, INK, PALE, WARM

CANDIDATES = (10, 20, 40, 80, 160)


def measured(order: np.ndarray, rows: np.ndarray, **candidates: Any) -> dict[str, float]:
    """recall@10 in the pixels and the seconds of a graph."""
    began = time.perf_counter()
    graph = be.build_neighbor_graph(order, K, **candidates)
    seconds = time.perf_counter() - began
    found = graph.recall_in(rows, K)
    return {"recall": found.recall, "standard_error": found.standard_error, "seconds": seconds}


def main() -> None:
    parser = arguments(__doc__)
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--components", type=int, default=30, help="principal components that give candidates")
    parser.add_argument("--order", type=int, default=150, help="coordinates of LDM, and of PCA, that order them")
    parser.add_argument("--n", type=int, help="only the first n rows")
    parser.add_argument("--direct", action="store_true", help="also search in the pixels; minutes")
    given = parser.parse_args()
    rows = dataset("mnist", folder=str(given.data), **({} if given.n is None else {"n": given.n})).rows()
    wide = np.asarray(be.PCA(given.order).fit_transform(rows))
    pca = np.ascontiguousarray(wide[:, : given.components])
    ldm = np.asarray(be.LinearizedDiffusionMap(given.order, scaling="sqrt", **LDM["LDM"]).fit_transform(rows))
    orders = {
        f"the same {given.components} coordinates": pca,
        f"{given.order} of PCA": wide,
        f"{given.order} of LDM": ldm,
        "pixels": rows,
    }
    be.build_neighbor_graph(pca[:20_000], K, candidates=pca[:20_000])  # compiles what is compiled once
    table = []
    for wanted in CANDIDATES:
        for name, order in orders.items():
            found = measured(order, rows, candidates=pca, n_candidates=wanted)
            table.append({"candidates": wanted, "ordered_by": name, **found})
    if given.direct:
        table.append({"candidates": len(rows) - 1, "ordered_by": "direct search", **measured(rows, rows)})
    write_csv(given.out / "hybrid.csv", table)
    figure, axis = new_figure(6.8, 4.6)
    for name, color in zip(orders, (PALE, INK, WARM, ACCENT), strict=True):
        of = [row for row in table if row["ordered_by"] == name]
        axis.plot(
            [row["candidates"] for row in of], [row["recall"] for row in of], "o-", color=color, label=f"by {name}"
        )
    axis.set_xscale("log")
    axis.set_xticks(CANDIDATES, [str(wanted) for wanted in CANDIDATES])
    title = f"MNIST, {len(rows)} rows: candidates by {given.components} principal components"
    axis.set(xlabel="candidates a row", ylabel="recall@10", title=title)
    axis.grid(color="#e7e9ec")
    legend(axis)
    save(figure, given.out / "hybrid.png")
    print(given.out / "hybrid.png")


if __name__ == "__main__":
    main()
