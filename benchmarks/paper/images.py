"""Figure 2 of seed 004: recall@10 of PCA minus LDM against the number of coordinates, on MNIST or COIL-20.

    python benchmarks/paper/images.py mnist --data FOLDER      # mnist.png, mnist.csv
    python benchmarks/paper/images.py coil20 --data FOLDER     # coil20.png, coil20.csv

FOLDER holds the idx files of MNIST (train), or the PNG files of COIL-20. The truth are the ten nearest rows in pixels,
exactly, for ``--queries`` sampled rows against all rows. Also drawn: the overlap of the lists of PCA and LDM (dashed).

COIL-20 has more columns (16 384) than rows (1440). Its rows are first written in an orthonormal basis of the space
they span, which changes no distance and no inner product, hence neither PCA nor LDM.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
from compare import COLORS, LDM, POWERS, Queries, all_pairs, arguments, compared, write_csv
from scipy.linalg import svd

from bigembed.datasets import dataset
from bigembed.plotting.canvas import new_figure, save

DIMENSIONS = {
    "mnist": (2, 5, 10, 15, 20, 30, 50, 75, 100, 150, 200, 300, 400, 500, 600, 700),
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
    parser.add_argument("--queries", type=int, default=1440, help="rows whose neighbors are looked at")
    parser.add_argument("--n", type=int, help="only the first n rows")
    given = parser.parse_args()
    rows = load(given.name, given.data, given.n)
    most = min(rows.shape[0] - 2, rows.shape[1] - 1)
    queries = Queries.of(rows, given.queries)
    pairs = all_pairs(rows, most)
    most = min(len(found.values) for found in pairs.values())
    table = [
        {"data": given.name, "scaling": convention, "method": name, "d": d, **numbers}
        for convention, power in POWERS.items()
        for d in DIMENSIONS[given.name]
        if d <= most
        for name, numbers in compared(pairs, power, d, queries).items()
    ]
    write_csv(given.out / f"{given.name}.csv", table)
    draw(given.out / f"{given.name}.png", table, f"{given.name}, {len(rows)} rows, {len(queries.ids)} queries")


def draw(path: Path, table: list[dict[str, object]], title: str) -> None:
    """A panel for each convention: the difference, and the overlap on the right axis."""
    figure, axes = new_figure(13.5, 4.8, columns=len(POWERS), sharey=True)
    for axis, convention in zip(axes, POWERS, strict=True):
        right = axis.twinx()
        right.set_ylim(0, 1.02)
        right.spines[["top", "left"]].set_visible(False)
        for name in LDM:
            of = [row for row in table if row["scaling"] == convention and row["method"] == name]
            d = [row["d"] for row in of]
            low = [row["difference"] - 2 * row["standard_error"] for row in of]
            high = [row["difference"] + 2 * row["standard_error"] for row in of]
            axis.fill_between(d, low, high, color=COLORS[name], alpha=0.15, linewidth=0)
            axis.plot(d, [row["difference"] for row in of], "o-", color=COLORS[name], ms=3, lw=1.4, label=name)
            right.plot(d, [row["overlap"] for row in of], "--", color=COLORS[name], lw=1, alpha=0.7)
        axis.axhline(0, color="#8a919c", lw=0.8)
        axis.set_xscale("log")
        axis.set(xlabel="coordinates d", title=convention)
        axis.set_zorder(right.get_zorder() + 1)
        axis.patch.set_visible(False)
    axes[0].set_ylabel("recall@10, PCA − LDM")
    right.set_ylabel("overlap of PCA and LDM (dashed)", fontsize=9.5)
    figure.legend(*axes[0].get_legend_handles_labels(), loc="outside lower center", ncols=len(LDM), frameon=False)
    figure.suptitle(f"{title}: above 0 PCA finds more of the true neighbors", fontsize=11.5)
    save(figure, path)
    print(path)


if __name__ == "__main__":
    main()
