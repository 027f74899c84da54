"""k-means of stored coordinates of any number of rows: a start from a sample, then passes until the centers rest."""

from __future__ import annotations

from dataclasses import asdict, dataclass, replace
from functools import partial
from typing import Any

import numpy as np

from bigembed.distance import paired_squared
from bigembed.estimator.extension import stored_coordinates
from bigembed.maps.descent import RowDescent
from bigembed.maps.landmark_rows import uniform
from bigembed.neighbors import TILE_ENTRIES, nearest_centers
from bigembed.neighbors.partition import lloyd_means
from bigembed.neighbors.row_weights import WEIGHTS
from bigembed.rows import RowBlock, RowSource, rows_at
from bigembed.rows.passes import Parts, map_row_blocks
from bigembed.runtime.blocks import Array, block_rows
from bigembed.stages import ArraySpec, Context, Cost, Stage
from bigembed.stages.cost import WINDOW
from bigembed.store import at
from bigembed.store.arrays import create_rows, read_array, read_rows, write_array, write_rows

SAMPLE, EACH = 16_384, 64
"""Rows of the sample that the start is taken from, and how many there are for each cluster at least."""
SAMPLE_STEPS = 100
"""Lloyd's iterations on the sample, at most."""
STEPS = 300
"""Lloyd's iterations over all rows, at most."""
SETTLED = 1e-6
"""An iteration that takes a smaller share off the root of the sum of squares is the last."""
PLANNED = 20
"""Iterations over all rows that a plan counts on."""


@dataclass(frozen=True)
class ClusterOptions:
    """What is asked of k-means."""

    n_clusters: int
    normalize_rows: bool
    n_init: int


def directions(coordinates: Array) -> Array:
    """Rows (1, r_1, …, r_m) scaled to length one, (n, m + 1).

    With R = Q^{-1/2} V these are the rows of all m + 1 eigenvectors V of Q^{-1/2} K Q^{-1/2}, the trivial one too,
    scaled to length one (Ng, Jordan & Weiss 2002): the factor of a row cancels.

    >>> directions(np.array([[0.0], [1.0]])).round(3).tolist()
    [[1.0, 0.0], [0.707, 0.707]]
    """
    whole = np.column_stack([np.ones(len(coordinates)), coordinates])
    return np.asarray(whole / np.sqrt(np.einsum("ij,ij->i", whole, whole))[:, None])


def points_of(coordinates: Array, normalize_rows: bool) -> Array:
    """What is clustered."""
    return directions(coordinates) if normalize_rows else np.asarray(coordinates, np.float64)


def spread_centers(rows: Array, count: int, generator: np.random.Generator, weights: Array | None = None) -> Array:
    """k-means++ (Arthur & Vassilvitskii 2007): each center a row, drawn by its squared distance to those before, times
    its weight."""
    if weights is None:
        chosen = [int(generator.integers(len(rows)))]
    else:
        mass = np.cumsum(weights)
        chosen = [min(int(np.searchsorted(mass, generator.random() * mass[-1], side="right")), len(rows) - 1)]
    squared = np.full(len(rows), np.inf)
    for _ in range(count - 1):
        squared = np.minimum(squared, paired_squared(rows, np.broadcast_to(rows[chosen[-1]], rows.shape)))
        mass = np.cumsum(squared if weights is None else weights * squared)
        chosen.append(int(np.searchsorted(mass, generator.random() * mass[-1], side="right")) if mass[-1] > 0 else 0)
    return rows[chosen]


def best_centers(rows: Array, count: int, starts: int, seed: int, weights: Array | None = None) -> Array:
    """Centers (count, d) with the least sum of squares on a sample (by ``weights``), of several starts of k-means."""
    best, least = rows[:0], np.inf
    for start in range(starts):
        centers = spread_centers(rows, count, np.random.default_rng([seed, 11, start]), weights)
        for _ in range(SAMPLE_STEPS):
            moved = lloyd_means(rows, centers) if weights is None else weighted_means(rows, centers, weights)
            if (moved == centers).all():
                break
            centers = moved
        squared = paired_squared(rows, centers[nearest_centers(rows, centers)])
        squares = float(squared.sum() if weights is None else weights @ squared)
        if squares < least:
            best, least = centers, squares
    return best


def weighted_means(rows: Array, centers: Array, weights: Array) -> Array:
    """The means by weight of the rows nearest to each center; a center without rows stays where it is.

    >>> weighted_means(np.array([[0.0], [3.0], [9.0]]), np.array([[1.0], [8.0]]), np.array([1.0, 2.0, 5.0])).tolist()
    [[2.0], [9.0]]
    """
    labels = nearest_centers(rows, centers)
    mass = np.bincount(labels, weights, len(centers))
    sums = np.stack([np.bincount(labels, weights * column, len(centers)) for column in rows.T], axis=1)
    return np.asarray(np.where(mass[:, None] > 0, sums / np.where(mass > 0, mass, 1.0)[:, None], centers))


# --- one block -----------------------------------------------------------------------------------


def lloyd_block(block: RowBlock, centers: Array, normalize_rows: bool) -> Parts:
    """Of the points nearest to each center how many there are, what they weigh and their sum; Σ of all squared
    distances. Where rows have weights, both sums are by weight."""
    points, weights = points_of(block.rows, normalize_rows), block.weights
    labels = nearest_centers(points, centers)
    squared, counts = paired_squared(points, centers[labels]), np.bincount(labels, minlength=len(centers))
    if weights is None:
        sums = np.stack([np.bincount(labels, column, len(centers)) for column in points.T], axis=1)
        return {"counts": counts, "sums": sums, "squares": np.array(squared.sum())}
    sums = np.stack([np.bincount(labels, weights * column, len(centers)) for column in points.T], axis=1)
    mass = np.bincount(labels, weights, len(centers))
    return {"counts": counts, "mass": mass, "sums": sums, "squares": np.array(weights @ squared)}


def labels_block(block: RowBlock, centers: Array, normalize_rows: bool, components: str, out: str) -> None:
    """Write the nearest center of each row; −1 where ``components`` (which may be empty) says that it has no place."""
    labels = nearest_centers(points_of(block.rows, normalize_rows), centers).astype(np.int32)
    if components:
        labels[read_array(components, block.start, block.stop) < 0] = -1
    write_rows(out, block.start, labels)


# --- the stage -----------------------------------------------------------------------------------


def clusters_stage(n: int, width: int, asked: ClusterOptions, seed: int, vectors: tuple[str, ...] = ()) -> Stage:
    """``centers`` (k, ·) and ``labels`` (n,) int32 of the stored coordinates, the cluster of the most rows first; means
    and sums are by the weights of the rows, where ``vectors`` names them."""

    k, block, passes = asked.n_clusters, min(n, block_rows(width, 8)), PLANNED + 2
    sample = ArraySpec("sample", min(n, max(SAMPLE, EACH * k)), width + 1, times=4)
    cost = Cost.of(
        reads=[ArraySpec("embedding", n, width, times=passes)],
        writes=[ArraySpec("labels", n, dtype="i4"), ArraySpec("centers", k, width + 1), ArraySpec("objectives", 0)],
        task=[
            ArraySpec("blocks of coordinates", block, width + 1, times=WINDOW + 4),
            ArraySpec("tiles of distances", TILE_ENTRIES, times=4),
            ArraySpec("centers and sums", k, width + 2, times=4),
        ],
        coordinator=[sample, ArraySpec("tiles of distances", TILE_ENTRIES, times=4)],
        passes=passes,
        flops=2 * passes * n * k * (width + 1),
    )
    return Stage(
        "clusters",
        ("coordinates", *vectors),
        asdict(asked) | {"seed": seed},
        partial(run_clusters, asked=asked, seed=seed),
        cost,
        resumes=True,
    )


def run_clusters(context: Context, asked: ClusterOptions, seed: int) -> dict[str, Any]:
    source, _ = stored_coordinates(context.of("coordinates", "embedding"))
    if context.home.has(WEIGHTS):
        source = replace(source, aligned={"weights": rows_at(at(context.of(WEIGHTS, "given")))})
    return KMeans(source, context, asked, seed).run("sum of squares") | {"seed": seed}


class KMeans(RowDescent):
    """Lloyd's iterations; the objective is the sum of squared distances to the nearest center."""

    state = ("centers",)
    centers: Array

    def __init__(self, source: RowSource, context: Context, asked: ClusterOptions, seed: int) -> None:
        self.asked, self.seed = asked, seed
        super().__init__(source, context, SETTLED, STEPS)

    def begin(self) -> None:
        """The best centers of a sample."""
        n, k = self.source.shape[0], self.asked.n_clusters
        sampled = uniform(n, max(SAMPLE, EACH * k), [self.seed, 10])
        rows = read_rows(self.context.of("coordinates", "embedding"), sampled)
        points, weighed = points_of(rows, self.asked.normalize_rows), self.context.home.has(WEIGHTS)
        weights = read_rows(self.context.of(WEIGHTS, "given"), sampled) if weighed else None
        self.centers, self.objectives = best_centers(points, k, self.asked.n_init, self.seed, weights), []

    def move(self) -> None:
        """One pass; a center that has lost all its rows stays where it is."""
        found = self._pass(f"lloyd{self.done + 1}")
        filled = found["counts"] > 0
        self.centers[filled] = found["sums"][filled] / found.get("mass", found["counts"])[filled, None]
        self.objectives.append(float(found["squares"]))
        self.keep()

    def publish(self) -> dict[str, Any]:
        """Two more passes: how large the clusters are, and the labels."""
        found = self._pass("final")
        order = np.argsort(-found["counts"], kind="stable")
        centers, context = self.centers[order], self.context
        write_array(context.path("centers"), centers)
        write_array(context.path("objectives"), np.array([*self.objectives, float(found["squares"])]))
        create_rows(context.path("labels"), (self.source.shape[0],), np.int32, self.source.block, overwrite=True)
        unplaced = context.results("coordinates").get("unplaced_rows", 0)
        map_row_blocks(
            self.source,
            labels_block,
            centers=centers,
            normalize_rows=self.asked.normalize_rows,
            components=context.of("coordinates", "labels") if unplaced else "",
            out=context.path("labels"),
        )
        return {
            "sizes": found["counts"][order].tolist(),
            "squares": float(found["squares"]),
            "converged": self.converged,
        }

    def _pass(self, label: str) -> Parts:
        return self.sums(
            lloyd_block,
            label,
            partial_bytes=8 * self.centers.size,
            centers=self.centers,
            normalize_rows=self.asked.normalize_rows,
        )
