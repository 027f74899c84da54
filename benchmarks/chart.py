"""The chart on the first page: time and peak memory over the number of rows, beside peers, drawn from ``results/``.

    python benchmarks/chart.py

Filled marks are bigembed, open ones its peers. A dotted line leads from the last size at which a peer was measured to
the size at which its memory, growing as measured (Isomap of scikit-learn: with n², the others: with n), would be that
of the machine. ``--out`` says where the two pictures go.
"""

from __future__ import annotations

import argparse
import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from matplotlib.figure import Figure
from matplotlib.lines import Line2D

HERE = Path(__file__).resolve().parent
MACHINE_GIB = 23
Point = tuple[float, float, float]
"""Rows, seconds, GiB."""


@dataclass(frozen=True)
class Series:
    """What was measured of one program at one task."""

    task: str
    who: str
    points: list[Point]
    grows: float = 1.0
    """Power of n by which the memory of a peer grows."""


def measured(file: str, side: str, seconds: str = "seconds", gib: str = "peak_gib") -> Point:
    """Return what a side of a benchmark took."""
    record = json.loads((HERE / "results" / f"{file}.json").read_text())
    row = record["rows"][side]
    return float(row.get("n", record["parameters"]["n"])), row[seconds], row[gib]


def all_series() -> list[Series]:
    """Return what the chart shows."""
    graphs = [f"neighbors-n{n}-k15" for n in (1_000_000, 4_000_000)]
    linear = [f"linear-n{n}-d256" for n in (2_000_000, 4_000_000)]
    isomap = "isomap-landmarks-n1000000-k30-landmarks200"
    many = measured("linear_memory-n16000000-d256-workers2", "pca", gib="measured_gib")
    runs = ["end_to_end-n1000000-d64-workers2", "end_to_end-n10000000-d16-workers2"]
    return [
        Series("neighbor graph", "bigembed", [measured(file, "ours") for file in graphs]),
        Series("neighbor graph", "pynndescent", [measured(file, "peer") for file in graphs]),
        Series("PCA to coordinates", "bigembed", [*(measured(file, "ours_output") for file in linear), many]),
        Series("PCA to coordinates", "dask-ml", [measured(file, "randomized_output") for file in linear]),
        Series("Isomap", "bigembed", [measured(isomap, "ours")]),
        Series("Isomap", "scikit-learn", [measured(isomap, "peer")], grows=2.0),
        Series("diffusion map", "bigembed", [measured(file, "bigembed", gib="measured_gib") for file in runs]),
    ]


COLORS = {
    "light": {"neighbor graph": "#2166ac", "PCA to coordinates": "#c2571a", "Isomap": "#2b8a3e",
              "diffusion map": "#7b3fb0", "ink": "#2b2f36", "pale": "#8a919c", "plate": "#ffffff"},
    "dark": {"neighbor graph": "#6cb2ee", "PCA to coordinates": "#f0a06a", "Isomap": "#74cf8b",
             "diffusion map": "#c69af0", "ink": "#e6edf3", "pale": "#8b949e", "plate": "#0d1117"},
}  # fmt: skip


def draw(series: list[Series], colors: dict[str, str], path: Path) -> None:
    """Draw the chart in these colours."""
    figure = Figure(figsize=(9.6, 4.0), layout="constrained", facecolor=colors["plate"])
    time, memory = figure.subplots(1, 2)
    for one in series:
        ours, color = one.who == "bigembed", colors[one.task]
        style: dict[str, Any] = {"color": color, "marker": "o", "markersize": 7, "linestyle": "-" if ours else "--"}
        style |= {} if ours else {"markerfacecolor": colors["plate"]}
        n, seconds, gib = zip(*one.points, strict=True)
        time.plot(n, seconds, **style)
        memory.plot(n, gib, **style)
        if not ours:
            end = n[-1] * (MACHINE_GIB / gib[-1]) ** (1 / one.grows)
            memory.plot([n[-1], end], [gib[-1], MACHINE_GIB], color=color, linestyle=":")
            memory.plot([end], [MACHINE_GIB], marker="x", color=color, markersize=9, markeredgewidth=2)
            memory.annotate(one.who, (n[-1], gib[-1]), (-8, 4), textcoords="offset points", color=color, ha="right")
            time.annotate(one.who, (n[-1], seconds[-1]), (9, -4), textcoords="offset points", color=color)
    memory.axhline(MACHINE_GIB, color=colors["pale"], linewidth=1)
    memory.annotate(f"memory of the machine, {MACHINE_GIB} GiB: peers stop", (4.5e3, MACHINE_GIB), (0, 4),
                    textcoords="offset points", color=colors["ink"], fontsize=9)  # fmt: skip
    for axis, title in ((time, "seconds"), (memory, "peak memory, GiB")):
        axis.set(xscale="log", yscale="log", xlabel="rows", title=title, facecolor=colors["plate"], xlim=(4e3, 4e7))
        axis.spines[["top", "right"]].set_visible(False)
        axis.spines[["left", "bottom"]].set_color(colors["pale"])
        axis.tick_params(which="both", colors=colors["ink"])
        axis.xaxis.label.set_color(colors["ink"])
        axis.title.set_color(colors["ink"])
        axis.grid(alpha=0.25, color=colors["pale"])
    memory.set_ylim(0.1, 50)
    tasks = list(dict.fromkeys(one.task for one in series))
    handles = [Line2D([], [], color=colors[task], marker="o", label=task) for task in tasks]
    handles.append(Line2D([], [], color=colors["pale"], marker="o", markerfacecolor=colors["plate"], linestyle="--",
                          label="the same by a peer"))  # fmt: skip
    figure.legend(handles=handles, loc="outside lower center", ncols=5, frameon=False, labelcolor=colors["ink"])
    figure.savefig(path, dpi=110, metadata={"Software": None})


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, default=HERE.parent / "docs" / "pictures", help="folder of the pictures")
    given = parser.parse_args()
    given.out.mkdir(parents=True, exist_ok=True)
    for name, colors in COLORS.items():
        draw(all_series(), colors, given.out / f"beside_{name}.png")


if __name__ == "__main__":
    main()
