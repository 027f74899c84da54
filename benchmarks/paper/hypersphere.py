"""Figure 3 of seed 004: PCA against LDM on random points of a hypersphere, by γ = N/D; and time against N.

    python benchmarks/paper/hypersphere.py quality        # hypersphere_10.png, hypersphere_half.png, hypersphere.csv
    python benchmarks/paper/hypersphere.py time           # hypersphere_time.png, hypersphere_time.csv

quality: recall@10 of PCA minus that of LDM with a fixed number of coordinates (10, and half of D), for several D.
time: both methods from a Zarr array of N × 100 to a Zarr array of coordinates; run nothing else beside it.
"""

from __future__ import annotations

import shutil
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np
from compare import LDM, Queries, all_pairs, arguments, compared, data_set, panels, write_csv

import bigembed as be
from bigembed.datasets import dataset
from bigembed.plotting.canvas import legend, new_figure, save
from bigembed.plotting.palette import ACCENT, WARM

COLUMNS = (50, 100, 200, 400)
RATIOS = (0.5, 1, 2, 4, 8, 16, 32, 64)
LATENT = {"10": lambda columns: 10, "half": lambda columns: columns // 2}
ROWS = (10_000, 30_000, 100_000, 300_000, 1_000_000)
MANY = 4_000
"""Rows above which one draw of the points is enough."""


def quality(out: Path, columns: list[int], ratios: list[float], seeds: int) -> None:
    """The difference for each D, γ, number of coordinates, convention and variant."""
    table = []
    for big_d in columns:
        for gamma in ratios:
            n = int(gamma * big_d)
            if n < 4 * 10:
                continue
            found = [one_draw(n, big_d, seed) for seed in range(seeds if n <= MANY else 1)]
            table += [{"D": big_d, "N": n, "gamma": gamma, **averaged(rows)} for rows in zip(*found, strict=True)]
    write_csv(out / "hypersphere.csv", table)
    for label in LATENT:
        rows = [row for row in table if row["latent"] == label and row["method"] == "LDM"]
        draw_quality(out / f"hypersphere_{label}.png", rows, "d = 10" if label == "10" else "d = D/2")


def one_draw(n: int, big_d: int, seed: int) -> list[dict[str, Any]]:
    """All comparisons on one draw of the points."""
    rows = dataset("hypersphere", n=n, d=big_d, seed=seed).rows()
    queries = Queries.of(rows, 1000, seed)
    wanted = {label: latent(big_d) for label, latent in LATENT.items()}
    pairs = all_pairs(rows, min(max(wanted.values()), n - 2))
    most = min(len(found.values) for found in pairs.values())
    return [{"latent": label, **row} for label, d in wanted.items() for row in compared(pairs, min(d, most), queries)]


def averaged(rows: tuple[dict[str, Any], ...]) -> dict[str, Any]:
    """Means over the draws; the standard error is that of the mean."""
    out = dict(rows[0])
    for key in ("recall_pca", "recall_ldm", "difference", "overlap"):
        out[key] = float(np.mean([row[key] for row in rows]))
    errors = np.array([row["standard_error"] for row in rows])
    return out | {"standard_error": float(np.sqrt((errors**2).sum()) / len(rows))}


def draw_quality(path: Path, table: list[dict[str, Any]], title: str) -> None:
    """A panel for each pair of conventions, a line for each D."""
    from matplotlib import colormaps

    columns = sorted({row["D"] for row in table})
    colors = colormaps["viridis"](np.linspace(0.05, 0.85, len(columns)))
    figure, axes = new_figure(13.5, 11.5, rows=3, columns=3, sharex=True)
    for axis, (name, rows) in zip(np.ravel(axes), panels(table), strict=True):
        for big_d, color in zip(columns, colors, strict=True):
            of = [row for row in rows if row["D"] == big_d]
            gamma, difference, error = (
                np.array([row[key] for row in of]) for key in ("gamma", "difference", "standard_error")
            )
            axis.errorbar(gamma, difference, 2 * error, color=color, marker="o", ms=3, lw=1.3, label=f"D = {big_d}")
        axis.axhline(0, color="#8a919c", lw=0.8)
        axis.set_xscale("log", base=2)
        axis.set_title(name, fontsize=10.5)
    for axis in axes[-1]:
        axis.set_xlabel("γ = N/D")
    axes[1, 0].set_ylabel("recall@10, PCA − LDM")
    figure.legend(
        *axes[0, 0].get_legend_handles_labels(), loc="outside lower center", ncols=len(columns), frameon=False
    )
    figure.suptitle(f"Hypersphere, {title}: below 0 LDM finds more of the true neighbors", fontsize=11.5)
    save(figure, path)
    print(path)


def timing(out: Path, folder: Path, rows: list[int]) -> None:
    """Seconds of fit and coordinates, Zarr to Zarr, and the exponents of N that fit them."""
    table = []
    for n in rows:
        path = data_set("hypersphere", folder, n=n, d=100)
        for name, method in (("PCA", be.PCA(10)), ("LDM", be.LinearizedDiffusionMap(10, **LDM["LDM"]))):
            seconds = min(once(method, path, folder / "coordinates.zarr") for _ in range(3))
            table.append({"N": n, "D": 100, "d": 10, "method": name, "seconds": seconds})
    write_csv(out / "hypersphere_time.csv", table)
    figure, axis = new_figure(6.8, 4.6)
    for name, color in (("PCA", ACCENT), ("LDM", WARM)):
        of = [row for row in table if row["method"] == name]
        n, seconds = np.array([row["N"] for row in of]), np.array([row["seconds"] for row in of])
        last = slice(-3, None)
        slope = np.polyfit(np.log(n[last]), np.log(seconds[last]), 1)[0]
        axis.loglog(n, seconds, "o-", color=color, label=f"{name}, N^{slope:.2f} over the last three")
    axis.set(xlabel="N", ylabel="seconds", title="Hypersphere, D = 100, 10 coordinates, Zarr to Zarr")
    axis.grid(color="#e7e9ec")
    legend(axis)
    save(figure, out / "hypersphere_time.png")
    print(out / "hypersphere_time.png")


def once(method: object, path: str, out: Path) -> float:
    """Seconds of one fit with its coordinates written."""
    shutil.rmtree(out, ignore_errors=True)
    began = time.perf_counter()
    method.fit_transform_to(path, out)
    return time.perf_counter() - began


def main() -> None:
    parser = arguments(__doc__)
    parser.add_argument("what", choices=("quality", "time"))
    parser.add_argument("--columns", type=int, nargs="+", default=list(COLUMNS))
    parser.add_argument("--ratios", type=float, nargs="+", default=list(RATIOS))
    parser.add_argument("--seeds", type=int, default=5, help="draws of few points that are averaged")
    parser.add_argument("--rows", type=int, nargs="+", default=list(ROWS), help="N of the times")
    parser.add_argument("--folder", type=Path, help="where the rows of the times go; by default temporary")
    given = parser.parse_args()
    if given.what == "quality":
        quality(given.out, given.columns, given.ratios, given.seeds)
        return
    with tempfile.TemporaryDirectory() as temporary:
        timing(given.out, given.folder or Path(temporary), given.rows)


if __name__ == "__main__":
    main()
