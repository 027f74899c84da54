"""The graphs of seed 001: ring, complete graph, ring with a shortcut, two rings."""

from __future__ import annotations

from typing import Any

import numpy as np
from book import Book, Entry, Panel, line

import bigembed as be
from bigembed.datasets import complete_graph, ring_graph, ring_graphs


def draw(book: Book) -> None:
    """All of them."""
    book.chapter("Seed 001: diffusion maps of graphs")
    ring(book)
    complete(book)
    shortcut(book)
    two_rings(book)


def edges(at: Any, weights: Any) -> Panel:
    """Nodes and the edges between them."""
    i, j = np.nonzero(np.triu(weights.toarray()))

    def panel(axis: Any) -> None:
        axis.plot(*(np.stack([at[i, column], at[j, column]]) for column in (0, 1)), color="#97bbf5", linewidth=0.8)
        axis.scatter(*at[:, :2].T, c=np.arange(len(at)), s=10, cmap="twilight", linewidths=0, zorder=3)
        axis.set_aspect("equal")

    return panel


def fitted(weights: Any, width: int = 2) -> Any:
    return be.DiffusionMap(width, t=0).fit(weights)


def ring(book: Book) -> None:
    n = 50
    found = fitted(ring_graph(n))
    radius = np.linalg.norm(found.embedding_, axis=1)
    uneven = float(radius.std() / radius.mean())
    error = float(np.abs(found.eigenvalues_ - np.cos(2 * np.pi / n)).max())
    entry = Entry(
        "seed001_ring", "The ring graph", "the map is a circle; λ = cos(2π/n), twice.",
        f"The radius varies by {uneven:.0e}, the eigenvalues differ by {error:.0e} from the formula.",
        uneven < 1e-3 and error < 1e-6,
        [("λ₁ = λ₂, n = 50", f"{np.cos(2 * np.pi / n):.6f}", f"{found.eigenvalues_[0]:.6f}")],
    )  # fmt: skip
    book.add(entry, [("n = 50", "", edges(found.embedding_, ring_graph(n)))])


def complete(book: Book) -> None:
    n = 12
    weights = complete_graph(n)
    values = np.concatenate([[1.0], fitted(weights, n - 1).eigenvalues_])
    error = float(np.abs(values[1:] + 1 / (n - 1)).max())
    entry = Entry(
        "seed001_complete", "The complete graph",
        "all eigenvalues but the first are −1/(n − 1): all n − 1 coordinates are needed, no reduction.",
        f"They differ by {error:.0e} from that.", error < 1e-12,
    )  # fmt: skip
    book.add(entry, [(f"eigenvalues, n = {n}", "", line(values))])


def shortcut(book: Book) -> None:
    panels, shares, spans = [], {}, {}
    for n in (10, 100):
        weights = ring_graph(n, shortcut=True)
        at = fitted(weights).embedding_
        widest = np.linalg.norm(at[:, None] - at[None], axis=2).max()
        shares[n] = float(np.linalg.norm(at[0] - at[n // 2]) / widest)
        i, j = np.nonzero(np.triu(weights.toarray()))
        lengths = np.linalg.norm(at[i] - at[j], axis=1)
        spans[n] = float(lengths.max() / lengths.min())
        panels.append((f"n = {n}", "", edges(at, weights)))
    nearer, same = shares[100] < shares[10] < 1, max(spans.values()) < 2
    entry = Entry(
        "seed001_shortcut", "The ring graph with a shortcut",
        "the ends of the shortcut come together, nearer for n = 100 than for n = 10; the lengths of all edges are "
        "more or less "
        "the same.",
        f"The ends are {shares[10]:.2f} (n = 10) and {shares[100]:.3f} (n = 100) of the diameter of the map apart"
        + (". " if nearer else ", which is not so. ")
        + (
            "The edges are of about one length." if same
            else f"But the edges are not of one length: the longest is {spans[10]:.1f} times (n = 10) and "
            f"{spans[100]:.1f} times "
            "(n = 100) the shortest. That is the counterexample to “more or less the same”."
        ),
        nearer and same,
        [("distance of the ends over the diameter", "", f"{shares[10]:.3f}, {shares[100]:.3f}"),
         ("longest over shortest edge", "“more or less the same”", f"{spans[10]:.2f}, {spans[100]:.2f}")],
    )  # fmt: skip
    book.add(entry, panels)


def two_rings(book: Book) -> None:
    n, n2 = 60, 40
    weights = ring_graphs(n, n2)
    found = be.DiffusionMap(5, t=0, components="joint").fit(weights)
    at, values = found.embedding_, found.eigenvalues_
    first = at[:, 0]
    apart = first[:n].mean() - first[n:].mean()
    flat = max(first[:n].std(), first[n:].std()) / abs(apart)
    share = float(first[:n].mean() / first[n:].mean())
    larger = float((at[:n, 1:3] ** 2).sum() / (at[:, 1:3] ** 2).sum())
    holds = bool(flat < 1e-6 and larger > 0.999 and abs(share + n2 / n) < 1e-6)
    entry = Entry(
        "seed001_two_rings", "Two disjoint rings",
        "the first coordinate maps each ring to a point, n₂ and −n₁ up to a factor; the next two are those of the "
        "larger ring.",
        f"The first coordinate is constant on each ring to {flat:.0e}; of the next two, {100 * larger:.1f} % lie on "
        "the larger "
        "ring.",
        holds,
        [("ratio of the two places", f"{-n2 / n:.4f}", f"{share:.4f}"),
         ("eigenvalues", f"1, {np.cos(2 * np.pi / n):.5f} twice, {np.cos(2 * np.pi / n2):.5f} twice",
          ", ".join(f"{value:.5f}" for value in values))],
    )  # fmt: skip

    def along(axis: Any) -> None:
        axis.plot(first, ".", markersize=3)

    panels = [
        ("first coordinate by node", "", along),
        ("coordinates 2 and 3", "", edges(at[:, 1:3], weights)),
        ("coordinates 4 and 5", "", edges(at[:, 3:5], weights)),
    ]
    book.add(entry, panels)
