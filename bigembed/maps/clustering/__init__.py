"""Clusters after the map: of coordinates by HDBSCAN or k-means, of a graph by Leiden; how stable they are.

What is asked of them is here (the parameters of a job's table [clusters] and of ``be.cluster``, checked), and how
clusters are found in memory.
"""

from __future__ import annotations

import random
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from types import ModuleType
from typing import Any

import numpy as np
from scipy.optimize import linear_sum_assignment
from scipy.sparse import csr_array
from scipy.spatial import cKDTree

from bigembed.errors import InputError, needed
from bigembed.maps.clusters import best_centers
from bigembed.neighbors import nearest_centers
from bigembed.runtime.blocks import Array
from bigembed.runtime.parameters import is_integer

METHODS = ("hdbscan", "kmeans", "leiden")
"""How clusters are found: the first two of coordinates, the third of a graph."""
OWN = {
    "hdbscan": ("min_cluster_size", "min_samples", "sample"),
    "kmeans": ("n_clusters", "n_init"),
    "leiden": ("resolution", "sample"),
}
"""The parameters of each."""
SAMPLE = 20_000
"""Rows that HDBSCAN takes, and anchors of new rows, at the most, where nothing else is asked for."""
SUBSETS = 10
"""Subsets of the rows in which clusters are looked for again, where nothing else is asked for."""
STABLE = 0.6
"""Mean Jaccard coefficient below which a cluster is not found again (Hennig 2007: it should not be trusted)."""


@dataclass(frozen=True)
class Clustering:
    """What is asked of clusters after a map."""

    method: str = "hdbscan"
    n_clusters: int = 8
    min_cluster_size: int | None = None
    min_samples: int | None = None
    resolution: float = 1.0
    n_init: int = 10
    sample: int = SAMPLE
    n_subsets: int = SUBSETS
    seed: int = 0

    def of_method(self) -> dict[str, Any]:
        """Return what decides the labels: the parameters of the method that is taken."""
        return {name: value for name, value in asdict(self).items() if name in ("method", "seed", *OWN[self.method])}


def clusters_problems(given: Mapping[str, Any]) -> list[str]:
    """Return what is wrong with the parameters of clusters, of a job or of a call, each as its key has it."""
    method = given.get("method", "hdbscan")
    if method not in METHODS:
        return [f"[clusters] method={method!r}; allowed: {', '.join(METHODS)}"]
    least = {"n_clusters": 1, "min_cluster_size": 2, "min_samples": 1, "sample": 2, "n_subsets": 0, "random_state": 0}
    problems = [
        f"[clusters] {name}={given[name]!r}; a whole number ≥ {low} is needed"
        for name, low in least.items()
        if name in given and not (is_integer(given[name]) and given[name] >= low)
    ]
    if "resolution" in given and not 0 < given["resolution"] < float("inf"):
        problems.append(f"[clusters] resolution={given['resolution']!r}; a finite number > 0 is needed")
    for name in ("n_clusters", "min_cluster_size", "min_samples", "resolution", "sample"):
        takes = [one for one in METHODS if name in OWN[one]]
        if name in given and method not in takes:
            problems.append(
                f"[clusters] {name}: belongs to {' and '.join(takes)}, and method is {method}; leave it out"
            )
    return problems


def checked_clustering(given: Mapping[str, Any]) -> Clustering:
    """Return what is asked of clusters; InputError that lists all that is wrong. ``random_state`` is the seed."""
    if problems := clusters_problems(given):
        raise InputError("cluster: " + "; ".join(one.removeprefix("[clusters] ") for one in problems))
    names = {"random_state": "seed"}
    return Clustering(**{names.get(name, name): value for name, value in given.items()})


# -------------------------------------------------------------------------------------------------------- partitions
# Clusters of points and of graphs in memory: HDBSCAN by scikit-learn, Leiden by igraph, k-means; new points; the
# numbers of clusters. Pure functions, without files.

NOISE = -1
"""The number of rows that belong to no cluster."""
LEAST, SHARE = 5, 100
"""Rows of the smallest cluster of HDBSCAN where none is asked for: one in so many, and so many at the least."""
SAMPLES = 10
"""Neighbors by which HDBSCAN measures the density where no number is asked for, at the most."""
FEW = 20
"""Rows about a border from which it is judged."""
ITERATIONS = 10
"""Iterations of Leiden's algorithm, at most; it ends when nothing moves."""


# --------------------------------------------------------------------------------------------------------- numbers
# The largest cluster is 0; numbers of an earlier version stay where clusters have most of their rows in common.


def largest_first(labels: Array) -> Array:
    """Number clusters by their sizes, the largest 0, of equal ones the one that begins first; −1 stays; int32.

    >>> largest_first(np.array([7, 3, 3, -1])).tolist()
    [1, 0, 0, -1]
    """
    known, first, place = np.unique(labels, return_index=True, return_inverse=True)
    sizes = np.bincount(place, minlength=len(known))
    order = np.lexsort((first, -sizes, known < 0))  # (noise last)
    numbers = np.empty(len(known), np.int32)
    numbers[order] = np.arange(len(known))
    numbers[known < 0] = NOISE
    return numbers[place]


def overlaps(old: Array, new: Array) -> Array:
    """Count the rows (a, b) that are in cluster i of ``old`` and j of ``new``; rows of −1 in either are not counted.

    >>> overlaps(np.array([0, 0, 1, -1]), np.array([1, 1, 0, 0])).tolist()
    [[0, 2], [1, 0]]
    """
    both = (old >= 0) & (new >= 0)
    shape = int(old.max(initial=-1)) + 1, int(new.max(initial=-1)) + 1
    counts = np.bincount(old[both].astype(np.int64) * shape[1] + new[both], minlength=shape[0] * shape[1])
    return counts.reshape(shape)


def kept_numbers(old: Array, new: Array, count: int | None = None, free: int = 0) -> Array:
    """Return the number that each cluster of ``new`` keeps or gets, by the rows that both versions have.

    Clusters are matched one to one so that the matched ones have as many rows in common as possible (the assignment
    problem); one without a match gets the next number that no cluster has had, larger ones first.

    Parameters
    ----------
    old, new : ndarray of int, shape (rows,)
        The clusters of the rows in the earlier version and in this one, −1 for none.
    count : int or None
        The number of clusters of ``new``; None is one more than the largest among the rows.
    free : int
        The first number that no cluster of any earlier version has had; at least one more than those of ``old``.

    Returns
    -------
    ndarray of int32, shape (count,)
        ``numbers[j]`` is the lasting number of cluster j of ``new``.

    Examples
    --------
    >>> kept_numbers(np.array([0, 0, 1, 1, 1]), np.array([1, 1, 0, 0, 2]), free=5).tolist()
    [1, 0, 5]
    """
    counts = overlaps(old, new)
    numbers = np.full(counts.shape[1] if count is None else count, NOISE, np.int32)
    for i, j in zip(*linear_sum_assignment(-counts), strict=True):
        if counts[i, j]:
            numbers[j] = i
    fresh = np.flatnonzero(numbers < 0)
    sizes = np.bincount(new[new >= 0], minlength=len(numbers))[fresh]
    numbers[fresh[np.argsort(-sizes, kind="stable")]] = max(free, counts.shape[0]) + np.arange(len(fresh))
    return numbers


# -------------------------------------------------------------------------------------------------------- clusters


def smallest_cluster(asked: int | None, n: int, sampled: int) -> int:
    """Rows that a cluster of HDBSCAN has at the least among ``sampled`` of n rows.

    >>> smallest_cluster(None, 100_000, 20_000), smallest_cluster(50, 100_000, 20_000), smallest_cluster(None, 90, 90)
    (200, 10, 5)
    """
    wanted = max(LEAST, n // SHARE) if asked is None else asked
    return min(sampled, max(2 if asked is not None else LEAST, round(wanted * sampled / n)))


def hdbscan_labels(points: Array, min_cluster_size: int, min_samples: int | None) -> Array:
    """Clusters of points by density (Campello, Moulavi & Sander 2013), −1 for noise: int32, the largest 0.

    >>> hdbscan_labels(np.zeros((1, 2)), 5, None).tolist()
    [-1]
    """
    if len(points) < 2:  # (no group)
        return np.full(len(points), NOISE, np.int32)
    from sklearn.cluster import HDBSCAN

    samples = min(SAMPLES, min_cluster_size) if min_samples is None else min_samples
    found = HDBSCAN(
        min_cluster_size=min_cluster_size, min_samples=min(samples, len(points)), algorithm="kd_tree", copy=True
    ).fit(points)
    return largest_first(found.labels_)


def k_means_labels(points: Array, n_clusters: int, n_init: int, seed: int, weights: Array | None = None) -> Array:
    """Clusters of points, by their weights, by k-means in memory: int32, the largest 0."""
    return largest_first(nearest_centers(points, best_centers(points, n_clusters, n_init, seed, weights)))


def local_weights(squared: csr_array) -> csr_array:
    """Weights exp(−d_ij²/(ρ_i ρ_j)) of the edges of a graph of squared distances, ρ_i² the median of those of row i.

    The self-tuned kernel (Zelnik-Manor & Perona 2004): the same for rows in any unit, and for dense and sparse
    regions. Rows at distance 0 of all their neighbors have weights 1.

    >>> local_weights(csr_array(np.array([[0.0, 4.0], [4.0, 0.0]]))).toarray().round(3).tolist()
    [[0.0, 0.368], [0.368, 0.0]]
    """
    degrees = np.diff(squared.indptr)
    row = np.repeat(np.arange(len(degrees)), degrees)
    ascending = squared.data[np.lexsort((squared.data, row))]
    middle = squared.indptr[:-1] + np.maximum(degrees - 1, 0) // 2
    scale = np.zeros(len(degrees))
    scale[degrees > 0] = np.sqrt(ascending[middle[degrees > 0]], dtype=np.float64)
    apart = scale[row] * scale[squared.indices]
    ratio = np.divide(squared.data, apart, out=np.where(squared.data > 0, np.inf, 0.0), where=apart > 0)
    return csr_array((np.exp(-ratio), squared.indices, squared.indptr), shape=squared.shape)


def igraph() -> ModuleType:
    """Import igraph; MissingExtraError where it is not installed."""
    found: ModuleType = needed("igraph", "leiden", "clusters by Leiden's algorithm")
    return found


def leiden_labels(weights: csr_array, resolution: float, seed: int) -> Array:
    """Clusters of a symmetric graph by Leiden's algorithm (Traag, Waltman & van Eck 2019): int32, the largest 0.

    They maximize the modularity Σ_ij (w_ij − γ s_i s_j/Σs) over pairs within clusters, γ the ``resolution`` and s the
    sums of weights of rows. One edge is read of each pair; edges of weight 0 are none.
    """
    package = igraph()
    row = np.repeat(np.arange(weights.shape[0], dtype=np.int32), np.diff(weights.indptr))
    once = (weights.indices > row) & (weights.data > 0)
    ends = np.column_stack([row[once], weights.indices[once].astype(np.int32)])
    graph = package.Graph(n=weights.shape[0], edges=ends, directed=False)
    package.set_random_number_generator(random.Random(seed))
    try:
        found = graph.community_leiden(
            objective_function="modularity",
            weights=weights.data[once].tolist(),
            resolution=resolution,
            n_iterations=ITERATIONS,
        )
    finally:
        package.set_random_number_generator(random)
    return largest_first(np.array(found.membership))


def nearest_labels(points: Array, anchors: Array, labels: Array) -> Array:
    """Return the label (m,) of the anchor that each point is nearest to; of equally near ones the first: int32."""
    apart, place = map(np.asarray, cKDTree(anchors).query(points, k=[1, 2] if len(anchors) > 1 else [1]))
    first = np.where(apart[:, 0] == apart[:, -1], place.min(axis=1), place[:, 0])
    return np.asarray(labels[first], np.int32)


def voted_labels(near: Array) -> Array:
    """Return the label that is most frequent in each row (m, k), of equally frequent ones the first of the row.

    >>> voted_labels(np.array([[3, 1, 1], [0, 2, 5]])).tolist()
    [1, 0]
    """
    counts = (near[:, :, None] == near[:, None, :]).sum(axis=2)
    return np.asarray(near[np.arange(len(near)), counts.argmax(axis=1)], np.int32)


# ------------------------------------------------------------------------------------------------------- stability


def rand_index(of: Array, other: Array) -> float:
    """The Rand index of two partitions of the same rows, corrected for chance (Hubert & Arabie 1985); noise is a part.

    >>> rand_index(np.array([0, 0, 1, 1]), np.array([1, 1, 0, 0]))
    1.0
    """
    from sklearn.metrics import adjusted_rand_score

    return float(adjusted_rand_score(of, other))


def best_jaccard(of: Array, other: Array) -> Array:
    """For each cluster of ``of``, the largest |A ∩ B|/|A ∪ B| over the clusters B of ``other``; NaN without rows.

    Noise of ``other`` is none of its clusters, but its rows count in A (Hennig 2007, §2).

    >>> best_jaccard(np.array([0, 0, 0, 1]), np.array([0, 0, 1, 1])).round(3).tolist()
    [0.667, 0.5]
    """
    both = overlaps(of, other)
    mine = np.bincount(of[of >= 0], minlength=both.shape[0])[:, None]
    theirs = np.bincount(other[other >= 0], minlength=both.shape[1])[None, :]
    shares = both / np.maximum(mine + theirs - both, 1)
    best = shares.max(axis=1, initial=0.0)
    return np.where(mine[:, 0] > 0, best, np.nan)


def valleys(points: Array, centers: Array) -> Array:
    """Return how full the border of each cluster of k-means is, beside the way to it: (k,); NaN where few rows are.

    Of the rows between a center and the one that is second nearest to them, at shares t of the way between the two
    (½ at the border), those of t > .4 over those of .2 < t ≤ .3, of both sides, towards the neighbor with the most rows
    at the border. Near 0 there is a gap; near 1 and above k-means cuts through a region without any.

    >>> even = np.linspace(0, 1, 1001)[:, None]
    >>> valleys(even, np.array([[0.25], [0.75]])).round(1).tolist()
    [1.0, 1.0]
    >>> valleys(even[(even[:, 0] < 0.4) | (even[:, 0] > 0.6)], np.array([[0.2], [0.8]])).round(1).tolist()
    [0.0, 0.0]
    """
    k = len(centers)
    found = np.full(k, np.nan)
    if k < 2:
        return found
    _, near = map(np.asarray, cKDTree(centers).query(points, k=[1, 2]))
    own, other = centers[near[:, 0]], centers[near[:, 1]]
    way = other - own
    length = np.einsum("ij,ij->i", way, way)
    share = np.einsum("ij,ij->i", points - own, way) / np.where(length > 0, length, 1.0)
    pair = near.min(axis=1) * k + near.max(axis=1)
    border, before = (
        np.bincount(pair[chosen], minlength=k * k).reshape(k, k)
        for chosen in (share > 0.4, (share > 0.2) & (share <= 0.3))
    )
    border, before = border + border.T, before + before.T
    towards = (border + before / (before.max() + 1)).argmax(axis=1)  # (of empty borders that of the fullest way)
    at, way_to = border[np.arange(k), towards], before[np.arange(k), towards]
    there = at + way_to >= FEW
    found[there] = at[there] / np.maximum(way_to[there], 1)
    return found
