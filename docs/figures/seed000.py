"""The figures of seed 000 that a method of ours draws: cities, Isomap, LLE, t-SNE, diffusion maps of rolls and of a "
"turned picture."""

from __future__ import annotations

from typing import Any

import numpy as np
from book import Book, Entry, line, matrix, order, points
from scipy.cluster.hierarchy import fcluster, linkage
from scipy.spatial import cKDTree
from scipy.spatial.distance import pdist, squareform
from scipy.stats import mode

import bigembed as be
from bigembed.datasets import dataset
from bigembed.datasets.closed_forms import US_CITIES

NEIGHBORS = 10
"""k of the source's code."""
EIGENVALUES = 20
EARLY: dict[str, Any] = {"early_exaggeration": 4, "early_exaggeration_iter": 99}
"""As Matlab's ``tsne``, by which the source draws."""


def draw(book: Book) -> None:
    """All of them."""
    book.chapter("Seed 000: lecture notes on dimensionality reduction")
    cities(book)
    for name, n, noise in (("seed000_1", 1600, 0.0), ("seed000_2", 800, 0.8)):
        isomap(book, name, n, noise)
    locally_linear(book)
    neighbor_embedding(book)
    if book.mnist is not None:
        handwritten(book, str(book.mnist))
    mesh = {"name": "swiss_roll_mesh", "n": 1060}
    roll(book, "seed000_6", "Figure 6", {**mesh, "noise": 0.0}, 0.7717928, 147)
    roll(book, "seed000_7", "Figure 7", {**mesh, "noise": 0.4}, 0.6108029, 300)
    roll(book, "seed000_8", "Figure 8", {"name": "swiss_roll", "n": 800, "noise": 0.8}, 2.104531, 1705)
    pacman(book)


def cities(book: Book) -> None:
    distances, truth = dataset("us_cities").draw()
    mds = be.ClassicalMDS(n_components=2, metric="precomputed").fit(distances)
    at = mds.embedding_ * np.sign([mds.embedding_[:, 0] @ (truth["longitude"] - truth["longitude"].mean()),
                                   mds.embedding_[:, 1] @ (truth["latitude"] - truth["latitude"].mean())])  # fmt: skip

    def named(axis: Any) -> None:
        axis.scatter(*at.T, s=8)
        for name, place in zip(US_CITIES, at, strict=True):
            axis.annotate(name, place, fontsize=5.5, xytext=(2, 2), textcoords="offset points")
        axis.set_aspect("equal")

    centered = -0.5 * np.asarray(distances, float) ** 2
    centered = centered - centered.mean(0) - centered.mean(1)[:, None] + centered.mean()
    values = np.linalg.eigvalsh(centered)[::-1]
    negative = int((values < -1e-6 * values[0]).sum())
    entry = Entry(
        "seed000_cities", "§3: US cities by their distances",
        "distances on the Earth are not Euclidean: some eigenvalues of the centered matrix are negative.",
        f"{negative} of {len(values)} are; the largest of them is {-values[-1] / values[0]:.1e} of the first "
        "eigenvalue.",
        negative > 0,
    )  # fmt: skip
    book.add(entry, [("classical MDS, km", "", named), ("eigenvalues", "", line(values))])


def isomap(book: Book, name: str, n: int, noise: float) -> None:
    rows, truth = dataset("swiss_roll", n=n, noise=noise).draw()
    arc = truth["arc_length"]
    graph = be.build_neighbor_graph(rows, NEIGHBORS)
    start, end = int(arc.argmin()), int(arc.argmax())
    length, path = be.shortest_path(graph, start, end)
    away = be.geodesic_distances(graph, start)
    found = be.Isomap(2, n_neighbors=NEIGHBORS).fit(rows)
    along = order(found.embedding_[:, 0], arc)
    true = float(arc[end] - arc[start])

    def route(axis: Any) -> None:
        axis.scatter(*rows.T, c=away, s=5, cmap="viridis", linewidths=0, depthshade=False)
        axis.plot(*rows[path].T, color="red", linewidth=1.5)

    clean = noise == 0
    entry = Entry(
        name, f"Figure {1 if clean else 2}: k-Isomap of the Swiss roll{'' if clean else ', 800 points, noise 0.8'}",
        "the roll is unrolled into its rectangle." if clean
        else "shortcuts mess the distances up; Isomap does not recognize the sheet.",
        f"The path from one end to the other is {length / true:.2f} of the length along the roll, and the first "
        "coordinate "
        f"follows that with ρ = {along:.3f}.",
        along > 0.98 if clean else along < 0.9,
        [("k", "10", str(NEIGHBORS)), ("length along the roll; by the graph", "", f"{true:.1f}; {length:.1f}")],
    )  # fmt: skip
    panels = [
        ("(a) the data", "3d", points(rows, arc, 5)),
        ("(b) distances from one end, path", "3d", route),
        ("(c) Isomap", "", points(found.embedding_, arc, 4)),
    ]
    book.add(entry, panels)


def locally_linear(book: Book) -> None:
    rows, truth = dataset("swiss_roll", n=2000).draw()
    rng = np.random.default_rng(0)
    angle, high = 1.5 * np.pi * (1 + 2 * rng.uniform(size=2000)), 21 * rng.uniform(size=2000)
    wide = np.stack([angle * np.cos(angle), high, angle * np.sin(angle)], axis=1)
    at, of_wide = (be.LocallyLinearEmbedding(2, n_neighbors=12).fit(one).embedding_ for one in (rows, wide))
    along, across = order(of_wide[:, 0], angle), order(of_wide[:, 1], high)
    first, second = order(at[:, 0], truth["arc_length"]), order(at[:, 1], truth["height"])
    entry = Entry(
        "seed000_3", "Figure 3: locally linear embedding of the Swiss roll",
        "the embedding unrolls the sheet (made with Roweis' code, whose sheet is 21 high, with angles from 3π/2 to "
        "9π/2).",
        f"Of such a sheet the coordinates follow length and height with ρ = {along:.3f} and {across:.2f}.",
        min(along, across) > 0.9,
        [("k", "12", "12")],
        f"of the sheet of §6, 24 times as long as high, only the length is found (ρ = {first:.3f}): the second "
        "coordinate follows "
        f"the height with ρ = {second:.2f}; it is another function of the length." if second < 0.9 else "",
    )  # fmt: skip
    panels = [
        ("Roweis' sheet", "3d", points(wide, angle, 5)),
        ("LLE, by length", "", points(of_wide, angle, 4)),
        ("LLE, by height", "", points(of_wide, high, 4)),
        ("LLE of the data of §6", "", points(at, truth["arc_length"], 4)),
    ]
    book.add(entry, panels)


def neighbor_embedding(book: Book) -> None:
    rows, truth = dataset("swiss_roll", n=800, noise=0.8).draw()
    arc = truth["arc_length"]
    maps = {perplexity: be.TSNE(perplexity=perplexity, **EARLY).fit(rows).embedding_ for perplexity in (30, 12)}
    groups = {perplexity: clusters(at) for perplexity, at in maps.items()}
    entry = Entry(
        "seed000_4", "Figure 4: t-SNE of the Swiss roll, 800 points, noise 0.8",
        "the map falls into clusters, and a lower perplexity leads to more of them.",
        f"{groups[30]} with perplexity 30, {groups[12]} with 12 (parts farther apart than four times the median "
        "distance to the nearest point).",
        groups[12] > groups[30] > 1,
        [("perplexities", "30, 12", "30, 12"), ("exaggeration, in the first 99 iterations", "4", "4")],
    )  # fmt: skip
    panels = [("(a) the data", "3d", points(rows, arc, 5))]
    panels += [(f"perplexity {perplexity}", "", points(at, arc, 4)) for perplexity, at in maps.items()]
    book.add(entry, panels)


def clusters(at: Any) -> int:
    """Parts of a map, of five points and more, farther from each other than the points of one are."""
    nearest = pdist(at)
    usual = np.median(np.sort(squareform(nearest), axis=1)[:, 1])
    part = fcluster(linkage(nearest), 4 * usual, "distance")
    return int((np.bincount(part) >= 5).sum())


def handwritten(book: Book, folder: str) -> None:
    rows, truth = dataset("mnist", folder=folder, part="test").draw()
    labels = np.asarray(truth["label"])
    found = be.TSNE(**EARLY).fit(np.asarray(rows, np.float32))
    near = cKDTree(found.embedding_).query(found.embedding_, 11)[1][:, 1:]
    right = (mode(labels[near], axis=1).mode == labels).mean()
    entry = Entry(
        "seed000_5", "Figure 5: t-SNE of 10 000 digits of MNIST",
        "the digits are clustered.",
        f"Of ten neighbors on the map most have the digit of the point for {right:.1%} of the points.",
        bool(right > 0.9),
        [("KL divergence", "", f"{found.kl_divergence_:.2f}")],
    )  # fmt: skip
    book.add(entry, [("t-SNE, by digit", "", points(found.embedding_, labels, 2, "tab10"))])


def walk(rows: Any, epsilon: float, t: float) -> tuple[Any, Any]:
    """Pᵗ and the eigenvalues of P, from the formulas (eqs. 17 and 18), all pairs of rows."""
    squared = ((rows[:, None].astype(float) - rows[None]) ** 2).sum(2) if rows.shape[1] < 10 else _squared(rows)
    kernel = np.exp(-squared / epsilon)
    degree = kernel.sum(1)
    values, vectors = np.linalg.eigh(kernel / np.sqrt(np.outer(degree, degree)))
    values, vectors = values[::-1], vectors[:, ::-1]
    powers = np.clip(values, 0, None) ** t
    half = np.sqrt(degree)
    return ((vectors * powers) @ vectors.T) * half[None] / half[:, None], values


def _squared(rows: Any) -> Any:
    rows = rows.astype(float)
    norms = (rows**2).sum(1)
    return np.maximum(norms[:, None] + norms[None] - 2 * rows @ rows.T, 0)


def roll(book: Book, name: str, title: str, asked: dict[str, Any], epsilon: float, t: float) -> None:
    rows, truth = dataset(**asked).draw()
    order_of = np.argsort(truth["arc_length"])
    rows, arc = rows[order_of], truth["arc_length"][order_of]
    own = be.DiffusionMap(3, n_neighbors=None, alpha=0, epsilon="mean-min", t="auto", delta=0.2).fit(rows)
    theirs = be.DiffusionMap(3, n_neighbors=None, alpha=0, epsilon=epsilon, t=t).fit(rows)
    power, values = walk(rows, epsilon, t)
    ours = np.abs(values[1 : EIGENVALUES + 1])
    along = [order(theirs.embedding_[:, column], arc) for column in range(3)]
    gap = np.abs(theirs.eigenvalues_ - values[1:4]).max()
    needed = np.log(0.2) / np.log(theirs.eigenvalues_[2] / theirs.eigenvalues_[0])
    noisy = asked["noise"] > 0
    what = f"noise {asked['noise']}" if noisy else "a quasi-uniform mesh"
    entry = Entry(
        name, f"{title}: diffusion map of the Swiss roll, {what}",
        "ε from the nearest neighbors, t from δ = 0.2; the roll has been mostly unrolled." if not noisy
        else "the same with noise on the points; the map still follows the roll.",
        f"The first coordinate follows the length along the roll with ρ = {along[0]:.3f}. Eigenvalues equal those of "
        "the "
        f"formulas to {gap:.0e}.",
        along[0] > 0.98,
        [
            ("ε, by the rule 2 · mean of row minima", f"{epsilon:.7g}", f"{own.epsilon_:.4g} (our points)"),
            ("t, smallest with (λ₃/λ₁)ᵗ ≤ 0.2, at the source's ε", f"{t:g}", f"{np.ceil(needed):.0f}"),
            ("λ₁, λ₂, λ₃ at the source's ε", "", ", ".join(f"{value:.5f}" for value in theirs.eigenvalues_)),
        ],
        _doubts(epsilon, float(own.epsilon_) / 2, t, float(np.ceil(needed))),
    )  # fmt: skip
    panels = [
        ("(a) the data", "3d", points(rows, arc, 5)),
        (f"(b) Pᵗ, ε = {epsilon:.4g}, t = {t:g}", "", matrix(power)),
        ("(c) |λ|", "", line(ours)),
        ("(d) diffusion map", "3d", points(theirs.embedding_, arc, 5)),
    ]
    book.add(entry, panels)


def _doubts(epsilon: float, mean: float, t: float, needed: float) -> str:
    """What of ε and t is not as the source says that they are found."""
    found = []
    if abs(epsilon / mean - 1) < 0.1:
        found.append(
            f"ε is {epsilon / mean:.2f} times the mean of the row minima of our points, which lie as densely, and not "
            "twice that "
            "mean, as §9.2 says and figure 8 has it."
        )
    if not 0.5 < t / needed < 2:
        found.append(
            f"With it eq. 29 gives t = {needed:.0f}, not {t:g}: (λ₃/λ₁)ᵗ is {0.2 ** (t / needed):.2f} then, not 0.2."
        )
    return " ".join(found)


def pacman(book: Book) -> None:
    rows, truth = dataset("pacman", n=200).draw()
    angle = truth["angle"]
    linear = be.PCA(3).fit(rows)
    found = be.DiffusionMap(3, n_neighbors=None, alpha=0, epsilon=2335698.0, t=187).fit(rows)
    own = be.DiffusionMap(3, n_neighbors=None, alpha=0, epsilon="mean-min", t="auto", delta=0.5).fit(rows)
    _, values = walk(rows, 2335698.0, 1)
    turn = np.unwrap(np.arctan2(*found.embedding_[:, :2].T))
    steps = np.diff(turn)
    closed = bool((steps > 0).all() or (steps < 0).all())
    entry = Entry(
        "seed000_9", "Figure 9: 200 pictures of a turning Pacman",
        "PCA and the diffusion map both show a curve: the pictures are a one-dimensional manifold.",
        "The first two coordinates run once around a closed curve, every picture behind the one before it."
        if closed else "The first two coordinates do not run around a closed curve in the order of the angle.",
        closed,
        [
            ("ε, by the rule 2 · mean of row minima", "2335698", f"{own.epsilon_:.7g} (our Pacman)"),
            ("t for δ = 0.5", "187", f"{own.t_:g}"),
            ("variance that three principal components keep", "", f"{100 * linear.certificate_['explained']:.1f} %"),
        ],
    )  # fmt: skip

    def sample(axis: Any) -> None:
        tiles = rows[::10].reshape(4, 5, 65, 65).swapaxes(1, 2).reshape(4 * 65, 5 * 65)
        axis.imshow(tiles, cmap="gray")
        axis.set(xticks=[], yticks=[])

    panels = [
        ("(a) 20 of the pictures", "", sample),
        ("(b) PCA", "3d", points(linear.embedding_, angle, 5, "twilight")),
        ("(c) |λ|, the source's ε", "", line(np.abs(values[1 : EIGENVALUES + 1]))),
        ("(d) diffusion map", "3d", points(found.embedding_, angle, 5, "twilight")),
    ]
    book.add(entry, panels)
