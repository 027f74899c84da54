"""Figure 1 of seed 004: the Swiss roll by PCA and by LDM, for each convention.

    python benchmarks/paper/swiss_roll.py            # swiss_roll.png, swiss_roll.csv, swiss_roll_points.csv

The first two coordinates of each method, and for the unscaled ones also the second and third. The table says of each
pair: how well they are explained by those of PCA (R² of a linear
regression; 1 is the same picture up to a linear map), their rank correlation with the arc length of the roll,
and recall@10 against neighbors on the roll itself (arc length and height) and in space.
"""

from __future__ import annotations

import numpy as np
from compare import LDM, POWERS, Queries, all_pairs, arguments, write_csv
from scipy.stats import spearmanr

from bigembed.datasets import dataset
from bigembed.neighbors.search import recall_at
from bigembed.plotting.canvas import new_figure, save
from bigembed.plotting.palette import COLORMAP


def explained(target: np.ndarray, by: np.ndarray) -> float:
    """R² of the columns of ``target`` as linear functions of ``by``."""
    design = np.column_stack([by, np.ones(len(by))])
    rest = target - design @ np.linalg.lstsq(design, target, rcond=None)[0]
    return float(1 - rest.var(axis=0).sum() / target.var(axis=0).sum())


def correlation(a: np.ndarray, b: np.ndarray) -> float:
    """|Spearman's rank correlation|."""
    return abs(float(spearmanr(a, b).statistic))


PICTURES = [*((convention, (0, 1)) for convention in POWERS), ("eigenvector", (1, 2))]
"""Convention and coordinates of each line of the figure."""


def main() -> None:
    parser = arguments(__doc__)
    parser.add_argument("--n", type=int, default=1600)
    parser.add_argument("--noise", type=float, default=0.0)
    given = parser.parse_args()
    rows, truth = dataset("swiss_roll", n=given.n, noise=given.noise).draw()
    pairs = all_pairs(rows, 3)
    unrolled = np.column_stack([truth["arc_length"], truth["height"]])
    on_roll, in_space = Queries.of(unrolled, given.n), Queries.of(rows, given.n)
    table, points = [], {"arc_length": truth["arc_length"], "height": truth["height"]}
    panels: list[tuple[str, np.ndarray]] = []
    for convention, which in PICTURES:
        power, numbers = POWERS[convention], f"{which[0] + 1} and {which[1] + 1}"
        of_pca = pairs["PCA"].coordinates(power, 3)[:, which].astype(np.float64)
        for name, found in pairs.items():
            y = np.ascontiguousarray(found.coordinates(power, 3)[:, which])
            panels.append((f"{name}, {convention}, {numbers}", y))
            if which == (0, 1):
                points |= {f"{name} {convention} {axis + 1}": y[:, axis] for axis in (0, 1)}
            near = in_space.lists(y)
            table.append(
                {
                    "scaling": convention,
                    "coordinates": numbers,
                    "method": name,
                    "eigenvalue_1": float(found.values[which[0]]),
                    "eigenvalue_2": float(found.values[which[1]]),
                    "explained_by_pca": explained(y.astype(np.float64), of_pca),
                    "arc_length_1": correlation(y[:, 0], truth["arc_length"]),
                    "arc_length_2": correlation(y[:, 1], truth["arc_length"]),
                    "height_2": correlation(y[:, 1], truth["height"]),
                    "recall_on_roll": float(recall_at(near, on_roll.truth).mean()),
                    "recall_in_space": float(recall_at(near, in_space.truth).mean()),
                }
            )
    write_csv(given.out / "swiss_roll.csv", table)
    write_csv(
        given.out / "swiss_roll_points.csv",
        [dict(zip(points, map(float, values), strict=True)) for values in zip(*points.values(), strict=True)],
    )
    figure, axes = new_figure(13.5, 12.6, rows=len(PICTURES), columns=len(LDM) + 1)
    for axis, (title, y) in zip(np.ravel(axes), panels, strict=True):
        axis.scatter(*y.T, c=truth["arc_length"], cmap=COLORMAP, s=5, linewidths=0)
        axis.set_title(title, fontsize=10)
        axis.set(xticks=[], yticks=[])
        axis.set_aspect("equal", adjustable="datalim")
    figure.suptitle(f"Swiss roll, {given.n} rows, colour: arc length", fontsize=11.5)
    save(figure, given.out / "swiss_roll.png")
    print(given.out / "swiss_roll.png")


if __name__ == "__main__":
    main()
