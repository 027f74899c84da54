"""Figure 1 of seed 004. Its other figures take the data of a user and hours: ``benchmarks/paper`` redraws them."""

from __future__ import annotations

from book import Book, Entry, explained, order, points

import bigembed as be
from bigembed.datasets import dataset


def draw(book: Book) -> None:
    """The Swiss roll by PCA and by LDM."""
    book.chapter("Seed 004: linearized diffusion maps")
    rows, truth = dataset("swiss_roll", n=1600).draw()
    arc = truth["arc_length"]
    linear, walked = be.PCA(3).fit(rows), be.LinearizedDiffusionMap(3).fit(rows)
    same = explained(walked.embedding_[:, :2], linear.embedding_[:, :2])
    entry = Entry(
        "seed004_1", "Figure 1: the Swiss roll by PCA and by LDM",
        "PCA draws a spiral, LDM folded sheets.",
        f"LDM draws the spiral, too: {100 * same:.1f} % of its first two coordinates are a linear function of PCA's. "
        "Coordinates 2 "
        "and 3 are folded sheets, of both. Figures 2 and 3 (MNIST, COIL-20, hyperspheres) are redrawn by "
        "`benchmarks/paper`, with tables of what is seen of them and what is not.",
        same < 0.9,
        [("ρ of coordinate 1 with the length: PCA, LDM", "",
          ", ".join(f"{order(one.embedding_[:, 0], arc):.2f}" for one in (linear, walked)))],
    )  # fmt: skip
    panels = [
        (f"{name}, coordinates {columns[0] + 1} and {columns[1] + 1}", "", points(one.embedding_[:, columns], arc, 3))
        for columns in ([0, 1], [1, 2])
        for name, one in (("PCA", linear), ("LDM", walked))
    ]
    book.add(entry, panels)
