"""Figure 2 of seed 004: recall@10 of PCA minus LDM against the number of coordinates, on MNIST or COIL-20.

    python benchmarks/paper/images.py mnist --data FOLDER      # mnist.png, mnist.csv
    python benchmarks/paper/images.py coil20 --data FOLDER --queries 1440     # coil20.png, coil20.csv

FOLDER holds the idx files of MNIST (train), or the PNG files of COIL-20. The truth are the ten nearest rows in pixels,
exactly, for ``--queries`` sampled rows against all rows. Also drawn: the overlap of the lists of PCA and LDM (dashed).

COIL-20 has more columns (16 384) than rows (1440). Its rows are first written in an orthonormal basis of the space
they span, which changes no distance and no inner product, hence neither PCA nor LDM.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
from compare import COLORS, LDM, Queries, all_pairs, arguments, compared, panels, write_csv
from scipy.linalg import svd

from bigembed.datasets import dataset
from bigembed.plotting.canvas import new_figure, save

DIMENSIONS = {
    "mnist": (2, 5, 10, 20, 30, 50, 100, 200, 300, 500, 700),
    "coil20": (2, 5, 10, 15, 20, 30, 50, 75, 100, 150, 200, 300, 400, 600, 800, 1000, 1200, 1400),
}


def load(name: str, folder: Path, n: int | None) -> np.ndarray:
    """All rows, in memory: MNIST are 188 MB."""
    rows = dataset(name, folder=str(folder), **({} if n is None else {"n": n})).rows()
    if rows.shape[1] <= rows.shape[0]:
        return rows
    left, lengths, _ = svd(rows.astype(np.float64), full_matrices=False)
    return left * lengths


def main() -> None:
    parser = arguments(__doc__)
    parser.add_argument("name", choices=sorted(DIMENSIONS))
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--queries", type=int, default=1000, help="rows whose neighbors are looked at")
    parser.add_argument("--n", type=int, help="only the first n rows")
    given = parser.parse_args()
    rows = load(given.name, given.data, given.n)
    most = min(rows.shape[0] - 2, rows.shape[1] - 1)
    queries = Queries.of(rows, given.queries)
    pairs = all_pairs(rows, most)
    most = min(len(found.values) for found in pairs.values())
    dimensions = [d for d in DIMENSIONS[given.name] if d <= most]
    table = [row for d in dimensions for row in compared(pairs, d, queries)]
    write_csv(given.out / f"{given.name}.csv", table)
    draw(given.out / f"{given.name}.png", table, f"{given.name}, {len(rows)} rows, {len(queries.ids)} queries")


def draw(path: Path, table: list[dict[str, Any]], title: str) -> None:
    """A panel for each pair of conventions: the difference, and the overlap on the right axis."""
    figure, axes = new_figure(13.5, 11.5, rows=3, columns=3, sharex=True)
    for axis, (name, rows) in zip(np.ravel(axes), panels(table), strict=True):
        right = axis.twinx()
        right.set_ylim(0, 1.02)
        right.spines[["top", "left"]].set_visible(False)
        for method in LDM:
            of = [row for row in rows if row["method"] == method]
            d, difference, error, overlap = (
                np.array([row[key] for row in of]) for key in ("d", "difference", "standard_error", "overlap")
            )
            style = {"color": COLORS[method]}
            axis.fill_between(d, difference - 2 * error, difference + 2 * error, alpha=0.15, linewidth=0, **style)
            axis.plot(d, difference, "o-", ms=3, lw=1.4, label=method, **style)
            right.plot(d, overlap, "--", lw=1, alpha=0.7, **style)
        axis.axhline(0, color="#8a919c", lw=0.8)
        axis.set_xscale("log")
        axis.set_title(name, fontsize=10.5)
        axis.set_zorder(right.get_zorder() + 1)
        axis.patch.set_visible(False)
        if axis is axes[1, 2]:
            right.set_ylabel("overlap of the lists of PCA and LDM (dashed)", fontsize=9.5)
    for axis in axes[-1]:
        axis.set_xlabel("coordinates d")
    axes[1, 0].set_ylabel("recall@10, PCA − LDM")
    figure.legend(*axes[0, 0].get_legend_handles_labels(), loc="outside lower center", ncols=len(LDM), frameon=False)
    figure.suptitle(f"{title}: above 0 PCA finds more of the true neighbors", fontsize=11.5)
    save(figure, path)
    print(path)


if __name__ == "__main__":
    main()
