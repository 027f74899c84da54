"""The figures of seed 002: the spiral by PCA and by a diffusion map, two disks with a corridor, the digits 0 to 4."""

from __future__ import annotations

from typing import Any

import numpy as np
from book import Book, Entry, order, points

import bigembed as be
from bigembed.datasets import dataset
from bigembed.plotting import thumbnails


def draw(book: Book) -> None:
    """All of them."""
    book.chapter("Seed 002: a course assignment on diffusion maps")
    spiral(book)
    disks(book)
    digits(book)


def spiral(book: Book) -> None:
    rows, truth = dataset("spiral", n=600).draw()
    arc = truth["arc_length"]
    linear, found = be.PCA(1).fit(rows), be.DiffusionMap(1, n_neighbors=10, t=1).fit(rows)
    projected, walked = (one.embedding_[:, 0] for one in (linear, found))

    def data(axis: Any) -> None:
        points(rows, arc, 4, equal=True)(axis)
        direction = linear.components_[0] * 8
        axis.annotate("", direction, (0, 0), arrowprops={"arrowstyle": "->", "color": "green", "linewidth": 1.5})

    entry = Entry(
        "seed002_1", "Figure 1: the spiral and its first principal component",
        "the projection onto the first principal component is a jumble.",
        f"It follows the spiral with ρ = {order(projected, arc):.2f} only.", order(projected, arc) < 0.5,
    )  # fmt: skip
    book.add(entry, [("the spiral", "", data), ("projected", "", points(projected, arc, 6))])
    by_arc = walked[np.argsort(arc)]
    steps = np.diff(by_arc)
    wrong = int(min((steps < 0).sum(), (steps > 0).sum()))
    entry = Entry(
        "seed002_3", "Figure 3: the spiral by a diffusion map",
        "the first coordinate lays the points out in exactly the order they occur along the spiral.",
        f"ρ with the length along the spiral is {order(walked, arc):.6f}"
        + (
            ", and no two neighbors are exchanged." if not wrong
            else f"; {wrong} of the {len(steps)} pairs of points that follow each other are exchanged, all at most "
            f"{_farthest(by_arc, np.sort(arc)):.2g} apart. “Exactly” does not hold for random points: eigenvectors of "
            "a "
            "weighted graph order points that share their neighbors by chance."
        ),
        wrong == 0,
        [("pairs exchanged", "0", f"{wrong} of {len(steps)}")],
    )  # fmt: skip
    beside = points(np.column_stack([arc, walked]), arc, 4)
    panels = [("first coordinate", "", points(walked, arc, 6)), ("against the length along the spiral", "", beside)]
    book.add(entry, panels)


def _farthest(values: Any, arc: Any) -> float:
    """The largest distance along the spiral of two that follow each other and are exchanged."""
    steps = np.diff(values)
    wrong = steps < 0 if (steps < 0).sum() < (steps > 0).sum() else steps > 0
    return float(np.diff(arc)[wrong].max())


def disks(book: Book) -> None:
    rows, truth = dataset("disks", n=1500, gap=0.4, width=0.15).draw()
    label = truth["label"]
    nearest = lambda x, y, side: int(np.flatnonzero(label == side)[  # noqa: E731
        ((rows[label == side] - [x, y]) ** 2).sum(1).argmin()])  # fmt: skip
    a, b, c = nearest(-0.6, 0.0, 0), nearest(0.5, 0.0, 1), nearest(1.5, 0.0, 1)
    graph = be.build_neighbor_graph(rows, 12)
    geodesic = be.geodesic_distances(graph, b)
    t = be.DiffusionMap(2, n_neighbors=12, t="auto", delta=0.2).fit(rows).t_
    found = be.DiffusionMap(10, n_neighbors=12, t=t).fit(rows)
    walked = np.linalg.norm(found.embedding_ - found.embedding_[b], axis=1)
    by_path, by_walk = (float(one[a] / one[c]) for one in (geodesic, walked))
    entry = Entry(
        "seed002_2", "Figure 2: two disks with a corridor",
        "by shortest paths A is not much farther from B than C is; by diffusion C is nearer to B than A.",
        f"d(A, B) / d(B, C) is {by_path:.2f} by shortest paths and {by_walk:.1f} by diffusion (t = {t:.0f}, where the "
        "second "
        "coordinate is down to 0.2 of the first).",
        by_path < 1.3 and by_walk > 1.5,
        [("d(A, B) / d(B, C), shortest paths", "“not much” above 1", f"{by_path:.2f}"),
         ("d(A, B) / d(B, C), diffusion", "above 1", f"{by_walk:.2f}")],
    )  # fmt: skip

    def panel(values: Any) -> Any:
        def inner(axis: Any) -> None:
            axis.scatter(*rows.T, c=values, s=3, linewidths=0)
            for name, row in (("A", a), ("B", b), ("C", c)):
                axis.scatter(*rows[row], s=24, color="red")
                axis.annotate(name, rows[row], xytext=(3, 4), textcoords="offset points", fontsize=9, weight="bold")
            axis.set_aspect("equal")

        return inner

    book.add(entry, [("distance from B by paths", "", panel(geodesic)), ("by diffusion", "", panel(walked))])


def digits(book: Book) -> None:
    rows, truth = dataset("digits", classes=5).draw()
    label = truth["label"]
    found = be.DiffusionMap(2).fit(rows)
    agree = _agreement(found.embedding_, label)
    entry = Entry(
        "seed002_digits", "The digits 0 to 4, with thumbnails",
        "the map puts images of the same digit together.",
        f"Of the five nearest images on the map {100 * agree:.1f} % are of the same digit.", agree > 0.9,
    )  # fmt: skip
    thumbnails(book.folder / "seed002_digits.png", found.embedding_, rows, labels=label, invert=True, side=54)
    book.note(entry)


def _agreement(at: Any, label: Any) -> float:
    """Share of the five nearest on the map that have the same label."""
    away = ((at[:, None] - at[None]) ** 2).sum(2)
    np.fill_diagonal(away, np.inf)
    return float((label[np.argsort(away, axis=1)[:, :5]] == label[:, None]).mean())
