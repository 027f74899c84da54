"""The figures of seed 003: PCA, the basic and the modified diffusion map of four sets, in one and two dimensions."""

from __future__ import annotations

from typing import Any

import numpy as np
from book import Book, Entry, order, points

import bigembed as be
from bigembed.datasets import dataset

ROWS = 2500
SETS = {
    "clusters": ("clusters", {}, "label"),
    "plane": ("linear", {}, "u"),
    "s_curve": ("S-curve", {}, "arc_length"),
    "swiss_roll": ("Swiss roll", {"noise": 0.05}, "arc_length"),
}
METHODS = {
    "PCA": be.PCA(2),
    "basic map (α = 0, ε = median)": be.DiffusionMap(2, n_neighbors=None, alpha=0, epsilon="median", t=1),
    "modified map (α = ½, ε = max-min)": be.DiffusionMap(2, n_neighbors=None, alpha=0.5, epsilon="max-min", t=1),
}
PCA, BASIC, MODIFIED = METHODS


def draw(book: Book) -> None:
    """The data, then a figure for each set."""
    book.chapter("Seed 003: basic and modified diffusion maps beside PCA")
    made = {name: dataset(name, n=ROWS, **given).draw() for name, (_, given, _) in SETS.items()}
    colors = {name: made[name][1][key] for name, (_, _, key) in SETS.items()}
    maps = ("tab10", "viridis", "viridis", "viridis")
    entry = Entry("seed003_1", "Figure 1: the data", "2500 points each.", "Drawn from the descriptions.", True)
    panels = [
        (shown, "3d", points(made[name][0], colors[name], 5, cmap))
        for (name, (shown, _, _)), cmap in zip(SETS.items(), maps, strict=True)
    ]
    book.add(entry, panels)
    for number, (name, judge) in enumerate(JUDGES.items(), 2):
        fits = {what: one.__class__(**one.get_params()).fit(made[name][0]).embedding_ for what, one in METHODS.items()}
        entry = judge(f"seed003_{number}", f"Figure {number}: {SETS[name][0]}", fits, made[name][1])
        cmap = "tab10" if name == "clusters" else "viridis"
        panels = [
            (f"{width}D, {what}", "", points(at[:, :width], colors[name], 3, cmap))
            for width in (1, 2)
            for what, at in fits.items()
        ]
        book.add(entry, panels, columns=3)


def along(fits: Any, truth: Any) -> dict[str, float]:
    return {what: order(at[:, 0], truth) for what, at in fits.items()}


def numbers(found: dict[str, float], what: str) -> list[tuple[str, str, str]]:
    return [(f"ρ of the first coordinate with {what}: {name}", "", f"{one:.3f}") for name, one in found.items()]


def clusters(name: str, title: str, fits: Any, truth: Any) -> Entry:
    label = truth["label"]

    def spread(at: Any) -> tuple[float, float]:
        """Radius of the clusters, and the distance of the two nearest ones, over the extent of the map."""
        centers = np.array([at[label == one].mean(0) for one in range(4)])
        wide = np.linalg.norm(at - centers[label], axis=1)
        radius = np.mean([np.sqrt((wide[label == one] ** 2).mean()) for one in range(4)])
        between = np.linalg.norm(centers[:, None] - centers[None], axis=2)
        return float(radius / between.max()), float(between[np.triu_indices(4, 1)].min() / between.max())

    figures = {what: spread(at) for what, at in fits.items()}
    points_of, near = figures[MODIFIED]
    holds = points_of < 0.05 and near < 0.05
    return Entry(
        name, title,
        "PCA and the basic map show four clusters; the modified map shrinks each to a point, and the two nearest "
        "overlap.",
        f"With the modified map the radius of a cluster is {points_of:.3f} of the largest distance between them (PCA "
        f"{figures[PCA][0]:.3f}), and the two nearest are {near:.3f} of it apart (PCA {figures[PCA][1]:.3f})"
        + ("." if holds else ": not both so on our points; ε is the largest distance of any point to its nearest one, "
           "so a single far point decides it."),
        holds,
        [(f"radius, distance of the nearest two: {what}", "", f"{r:.3f}, {d:.3f}") for what, (r, d) in figures.items()],
    )  # fmt: skip


def plane(name: str, title: str, fits: Any, truth: Any) -> Entry:
    flat = {what: _curved(at) for what, at in fits.items()}
    found = along(fits, truth["u"])
    holds = flat[BASIC] > 0.95 and flat[MODIFIED] > 0.95 and flat[PCA] < 0.5
    return Entry(
        name, title,
        "PCA flattens the plane; both diffusion maps reduce it to a single curve in the order of the plane.",
        f"How much of the second coordinate is a function of the first: {flat[PCA]:.2f} (PCA), {flat[BASIC]:.2f} "
        "(basic), "
        f"{flat[MODIFIED]:.2f} (modified)."
        + ("" if holds else " It depends on the sides of the rectangle, which the source does not give: here 2 and 1, "
           "so that 1 − λ of the short side is that of the second harmonic of the long one, and the second coordinate "
           "mixes both. "
           f"With the long side stretched to 3 it is {_stretched(truth, MODIFIED):.2f} for the modified map, which is "
           "a curve then, "
           f"and {_stretched(truth, BASIC):.2f} for the basic one, whose scale is that of the whole set: it keeps the "
           "sheet."),
        holds, numbers(found, "the long side"),
    )  # fmt: skip


def _stretched(truth: Any, what: str) -> float:
    """The same for a rectangle of sides 3 and 1."""
    rows = np.column_stack(
        [1.5 * truth["u"], truth["v"], 0.05 * np.random.default_rng(0).standard_normal(len(truth["u"]))]
    )
    one = METHODS[what]
    return _curved(one.__class__(**one.get_params()).fit(rows).embedding_)


def _curved(at: Any) -> float:
    """R² of the second coordinate as a function of the first: a polynomial of degree 6."""
    from numpy.polynomial import Polynomial

    x, y = at[:, 0], at[:, 1]
    return float(1 - (y - Polynomial.fit(x, y, 6)(x)).var() / y.var())


def curve(says: str) -> Any:
    def judge(name: str, title: str, fits: Any, truth: Any) -> Entry:
        found, flat = along(fits, truth["arc_length"]), _curved(fits[MODIFIED])
        holds = found[MODIFIED] > 0.98 and found[MODIFIED] > max(found[PCA], found[BASIC]) and flat > 0.95
        return Entry(
            name, title, says,
            f"The first coordinate follows the curve with ρ = {found[PCA]:.2f} (PCA), {found[BASIC]:.2f} (basic) and "
            f"{found[MODIFIED]:.3f} (modified); the two-dimensional modified map is a curve to R² {flat:.2f}.",
            holds, numbers(found, "the length along the curve"),
        )  # fmt: skip

    return judge


JUDGES: dict[str, Any] = {
    "clusters": clusters,
    "plane": plane,
    "s_curve": curve(
        "PCA and the basic map keep the shape of the S and fold its ends in one dimension; the modified map follows "
        "the curve, and "
        "is a parabola in two."
    ),
    "swiss_roll": curve(
        "PCA and the basic map keep the spiral and struggle in one dimension; the modified map performs well in one "
        "and two."
    ),
}
