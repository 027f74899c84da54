"""Spectral clustering (Shi & Malik; Ng, Jordan & Weiss): k-means of the coordinates of a walk, and clusters of new
rows.
"""

from __future__ import annotations

from dataclasses import KW_ONLY, asdict, dataclass
from functools import partial
from typing import Annotated, Any, ClassVar

import numpy as np

from bigembed.distance.pairwise import paired_squared
from bigembed.errors import InputError
from bigembed.estimator.extension import Extension, stored_coordinates
from bigembed.estimator.graph_input import POLICIES, SEPARATED, GraphShape
from bigembed.maps.descent import RowDescent
from bigembed.maps.kernels import LOCAL
from bigembed.maps.landmark_rows import uniform
from bigembed.maps.walk.extension import WalkModel, extend_rows, grouping, model_of
from bigembed.maps.walk.laplacian_eigenmaps import EDGES, heat_walk, require_heat
from bigembed.maps.walk.stages import SpectralEstimator, WalkOptions
from bigembed.neighbors.given.graph import GraphMetric
from bigembed.neighbors.given.query import AnyIndex
from bigembed.neighbors.partition import TILE_ENTRIES, lloyd_means, nearest_centers
from bigembed.neighbors.search.recall import ALGORITHMS
from bigembed.neighbors.survey import Shape
from bigembed.rows.passes import Parts, map_row_blocks
from bigembed.rows.source import RowBlock, RowSource
from bigembed.runtime.blocks import Array, block_rows
from bigembed.runtime.parameters import Auto, Count, Fraction, Positive, Requirements, Seed, at_least, interval, one_of
from bigembed.stages.runs import Run
from bigembed.stages.stage import WINDOW, Context, Cost, Stage
from bigembed.store.arrays import create_rows, read_array, read_rows, write_array, write_rows

# -------------------------------------------------------------------------------------------------------- clusters
# k-means of stored coordinates of any number of rows: a start from a sample, then Lloyd's iterations, a pass each.

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


def spread_centers(rows: Array, count: int, generator: np.random.Generator) -> Array:
    """k-means++ (Arthur & Vassilvitskii 2007): each center a row, drawn by its squared distance to those before."""
    chosen = [int(generator.integers(len(rows)))]
    squared = np.full(len(rows), np.inf)
    for _ in range(count - 1):
        squared = np.minimum(squared, paired_squared(rows, np.broadcast_to(rows[chosen[-1]], rows.shape)))
        mass = np.cumsum(squared)
        chosen.append(int(np.searchsorted(mass, generator.random() * mass[-1], side="right")) if mass[-1] > 0 else 0)
    return rows[chosen]


def best_centers(rows: Array, count: int, starts: int, seed: int) -> Array:
    """Centers (count, d) with the least sum of squares on a sample, of several starts of k-means."""
    best, least = rows[:0], np.inf
    for start in range(starts):
        centers = spread_centers(rows, count, np.random.default_rng([seed, 11, start]))
        for _ in range(SAMPLE_STEPS):
            moved = lloyd_means(rows, centers)
            if (moved == centers).all():
                break
            centers = moved
        squares = float(paired_squared(rows, centers[nearest_centers(rows, centers)]).sum())
        if squares < least:
            best, least = centers, squares
    return best


# --- one block -----------------------------------------------------------------------------------


def lloyd_block(block: RowBlock, centers: Array, normalize_rows: bool) -> Parts:
    """Of the points nearest to each center how many there are and their sum; Σ of all squared distances."""
    points = points_of(block.rows, normalize_rows)
    labels = nearest_centers(points, centers)
    squares = paired_squared(points, centers[labels]).sum()
    sums = np.stack([np.bincount(labels, column, len(centers)) for column in points.T], axis=1)
    return {"counts": np.bincount(labels, minlength=len(centers)), "sums": sums, "squares": np.array(squares)}


def labels_block(block: RowBlock, centers: Array, normalize_rows: bool, components: str, out: str) -> None:
    """Write the nearest center of each row; −1 where ``components`` (which may be empty) says that it has no place."""
    labels = nearest_centers(points_of(block.rows, normalize_rows), centers).astype(np.int32)
    if components:
        labels[read_array(components, block.start, block.stop) < 0] = -1
    write_rows(out, block.start, labels)


# --- the stage -----------------------------------------------------------------------------------


def clusters_stage(n: int, width: int, asked: ClusterOptions, seed: int) -> Stage:
    """``centers`` (k, ·) and ``labels`` (n,) int32 of the stored coordinates, the largest cluster first."""

    k, block, passes = asked.n_clusters, min(n, block_rows(width, 8)), PLANNED + 2
    vectors, sample = 8 * n * width, 8 * (width + 1) * min(n, max(SAMPLE, EACH * k))
    cost = Cost(
        passes=passes,
        read=passes * vectors,
        write=4 * n,
        disk=4 * n + 8 * k * (width + 1),
        memory=8 * block * (width + 1) * (WINDOW + 4) + 32 * TILE_ENTRIES + 32 * k * (width + 2),
        coordinator=4 * sample + 32 * TILE_ENTRIES,
        flops=2 * passes * n * k * (width + 1),
    )
    return Stage(
        "clusters",
        ("coordinates",),
        asdict(asked) | {"seed": seed},
        partial(run_clusters, asked=asked, seed=seed),
        cost,
        resumes=True,
    )


def run_clusters(context: Context, asked: ClusterOptions, seed: int) -> dict[str, Any]:
    source, _ = stored_coordinates(context.of("coordinates", "embedding"))
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
        points = points_of(rows, self.asked.normalize_rows)
        self.centers, self.objectives = best_centers(points, k, self.asked.n_init, self.seed), []

    def step(self) -> None:
        """One pass; a center that has lost all its rows stays where it is."""
        found = self._pass(f"lloyd{self.done + 1}")
        filled = found["counts"] > 0
        self.centers[filled] = found["sums"][filled] / found["counts"][filled, None]
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


# -------------------------------------------------------------------------------------------------------- clusters
# Clusters of new rows: their coordinates by the Nyström formula, then the nearest center.


@dataclass(frozen=True)
class ClusterModel:
    """The walk, and where the centers are."""

    walk: WalkModel
    centers: str
    normalize_rows: bool

    @property
    def index(self) -> AnyIndex:
        """Where the fitted rows are."""
        return self.walk.index

    @property
    def shape(self) -> Shape:
        """What the fitted rows were like."""
        return self.walk.shape


def labels_of_rows(rows: Array, model: ClusterModel) -> Array:
    """The cluster of each of finite new rows, (n, 1)."""
    points = points_of(extend_rows(rows, model.walk), model.normalize_rows)
    return nearest_centers(points, read_array(model.centers))[:, None]


def prediction(run: Run, metric: Any = None) -> Extension:
    """What turns new rows into numbers of clusters."""
    walk = model_of(run, metric)
    normalize_rows = run.parameters("clusters")["normalize_rows"]
    model = ClusterModel(walk, run.path("clusters", "centers"), normalize_rows)
    d, near = walk.shape.d, grouping(walk)
    return Extension(labels_of_rows, model, 1, d, dtype="int32", grouping=near, cheap=False, sparse=True)


# --------------------------------------------------------------------------------------------- spectral clustering
# Spectral clustering (Shi & Malik; Ng, Jordan & Weiss): k-means of the eigenvectors of a Laplacian eigenmap.

TOGETHER = tuple(policy for policy in POLICIES if policy != "per-component")
"""Policies after which all rows have one set of coordinates."""


@dataclass(eq=False, repr=False)
class SpectralClustering(SpectralEstimator, registered="spectral_clustering"):
    """Clusters of rows, of a neighbor graph, or of a weighted graph, that few and weak edges join to each other.

    L R = Q R M as in :class:`~bigembed.LaplacianEigenmaps` (seed 000 eq. 36), and k-means of the rows
    (r_1(i), …, r_m(i)) (Shi & Malik 2000); with ``normalize_rows`` of (1, r_1(i), …, r_m(i)) scaled to length one:
    the normalized rows of the m + 1 leading eigenvectors of Q^{-1/2} K Q^{-1/2} (Ng, Jordan & Weiss 2002).

    Parameters
    ----------
    n_clusters : int ≥ 1.
    n_components : int ≥ 1 or None. m, the trivial r_0 = 1 not counted; None is n_clusters − 1 (at least 1).
    n_neighbors : int ≥ 1 or None. Join two rows if either is among the k nearest of the other, the row itself not
        counted; None takes every pair (n ≤ 4096), as one dense block. Not used where a radius is given.
    radius : number > 0 or None. Join all rows within it instead, found exactly; in units of the data.
    weights : "heat", or "binary": every edge has weight 1. Of a user's graph the weights are taken as they are.
    epsilon : number > 0 or "auto", the scale of the heat kernel exp(−‖x_i − x_j‖²/ε). With one scale in squared units
        of the data; "auto" is the median squared distance to the k-th neighbor, a quarter of the squared radius, or,
        for the complete graph, chosen by the kernel sum. With a local bandwidth a pure number; "auto" is ½ for
        "adaptive" and 1 for "self-tuned".
    bandwidth : "fixed": ε, one scale for all rows. "adaptive": ε (ρ_i² + ρ_j²)/2 in place of ε, ρ the distance to the
        k-th neighbor. "self-tuned": ε ρ_i ρ_j. "auto" is "fixed" where ``epsilon`` is given, n_neighbors is None or
        there is a radius, else "adaptive".
    normalize_rows : bool. Whether rows are scaled to length one: clusters of unlike size and density are then found
        more evenly.
    n_init : int ≥ 1. Starts of k-means++ on a sample of 16 384 rows (64 a cluster, if that is more); the best goes on.
    metric : "euclidean", "cosine" (distances between rows scaled to length one), or another one of
        :func:`bigembed.build_neighbor_graph`, or a function of two rows; or "precomputed": X holds distances (n, n),
        all of them, or as a SciPy sparse matrix the lengths of the edges there are, of which the n_neighbors smallest
        of each row count; ``transform`` takes distances of new rows to the fitted ones (k, n): all
        of them, or, sparse, those to their nearest rows, as neighbors transformers leave them (fitted rows that would
        list a new row, and whose distance is not stored, are then unknown to it).
    components : what to do with a disconnected graph. "auto": islands, components of fewer than 1 % of few rows, 100
        rows, or 0.1 % of many, take the coordinates and so the cluster of their nearest row outside (in a graph
        without rows they have the label −1); the first eigenvectors tell larger parts apart. "joint": every component
        is a part. "largest": other rows take the cluster of their nearest row in it. "bridge": joined by their
        shortest edges. "error": refused.
    recall : float in (0, 1]. Target share of true neighbors in the graph; measured, and warned about where missed.
    algorithm : "auto", "cells" or "nn-descent". How neighbors are searched: exactly in the cells of near rows; by
        NN-descent, for rows of high intrinsic dimension; "auto" takes cells unless these would miss ``recall``
        and NN-descent fits.
    tol : float. Largest residual ‖Q^{-1/2} L Q^{-1/2} v − μ v‖ of the eigenpairs.
    max_passes : int. Passes over the matrix before the solver gives up (with a warning).
    random_state : int, None or a generator: the graph, the solver, and the starts of k-means.
    workdir : path or None. Where the stages are kept and resumed from; None is temporary.
    verbose : bool. Whether ``fit`` shows its progress.
    callbacks : sequence of functions or None. ``fit`` calls each with every event: a stage starts, goes on, ends.

    Attributes
    ----------
    labels_ : (n,) int32, the cluster of each row, 0 the largest; NumPy for NumPy input, else a lazy Dask array.
    cluster_centers_ : (n_clusters, m), or (n_clusters, m + 1) with normalized rows, 1/‖·‖ first.
    inertia_ : float, the sum of squared distances of the rows to their centers.
    n_iter_ : int, Lloyd's iterations over all rows.
    embedding_ : (n, m), the eigenvectors in the order of the input, with RᵀQR = ΣQ · I: each column has mean 0 and mean
        square 1 under Q, and its largest |entry| is positive.
    eigenvalues_ : (m,) μ, ascending, trivial one left out.
    residuals_ : (m,).
    certificate_ : dict: that of the eigenvectors, and under "clusters" sizes, iterations, whether k-means converged.
    epsilon_ : float, the ε that was used; None for binary weights and a user's graph.
    n_components_, n_features_in_ : int.
    graph_ : the neighbor graph.

    Raises
    ------
    InputError : fewer rows than clusters, NaN or infinity (rows named), parameters out of range, a user's graph that is
        not symmetric, has negative weights or nodes without an edge.
    DisconnectedGraphError : several components and components="error"; their sizes are listed.
    PlanError : a radius that joins too many rows.
    Warnings, also in the certificate: a solve or k-means that stops early (ConvergenceWarning), parts and islands
        (ComponentsWarning), clusters without rows (DegenerateWarning), eigenvectors carried by few rows.

    Notes
    -----
    Cost: 2 passes over the input, 5–6 over an ordered copy, some 20–80 over the sparse matrix (2·8·k·n bytes), then
    some 5–20 over the coordinates, 8·n·m bytes each. Memory: a few
    canonical blocks (32 MiB) a worker; the sample, and nothing of size n, in the coordinating process. Sums are taken
    in a fixed tree: the same labels for any chunks and workers. ``predict`` places new rows among the eigenvectors as
    ``transform`` does (the Nyström formula) and takes the nearest center.

    References
    ----------
    J. Shi, J. Malik, Normalized cuts and image segmentation, IEEE TPAMI 22 (2000). A. Ng, M. Jordan, Y. Weiss, On
    spectral clustering, NIPS 14 (2002). U. von Luxburg, A tutorial on spectral clustering, Statistics and Computing 17
    (2007). D. Arthur, S. Vassilvitskii, k-means++, SODA (2007). M. Cameron, lecture notes, §9.3 (seed 000).

    Examples
    --------
    >>> import numpy as np
    >>> angle = np.linspace(0, 2 * np.pi, 100, endpoint=False)
    >>> ring = np.column_stack([np.cos(angle), np.sin(angle)])
    >>> sc = SpectralClustering(n_clusters=2, n_neighbors=5).fit(np.concatenate([ring, 3 * ring]))
    >>> sorted([set(sc.labels_[:100].tolist()), set(sc.labels_[100:].tolist())], key=str)
    [{0}, {1}]
    """

    saved_stages: ClassVar = {**SpectralEstimator.saved_stages, "clusters": ("",)}

    unasked = ("harmonic", "map")

    n_clusters: Count = 8
    _: KW_ONLY
    n_components: Count | None = None
    n_neighbors: Count | None = 15
    radius: Positive | None = None
    weights: Annotated[str, one_of(*EDGES)] = "heat"
    epsilon: Positive | Auto = "auto"
    bandwidth: Annotated[str, one_of("auto", "fixed", *LOCAL)] = "auto"
    normalize_rows: bool = True
    n_init: Count = 10
    metric: GraphMetric = "euclidean"
    components: Annotated[str, one_of("auto", *TOGETHER)] = "auto"
    recall: Annotated[float, interval(0, 1, closed="right")] = 0.99
    algorithm: Annotated[str, one_of(*ALGORITHMS)] = "auto"
    tol: Fraction = 1e-6
    max_passes: Annotated[int, at_least(4)] = 300
    random_state: Seed = 0

    def fit_predict(self, X: Any, y: Any = None) -> Any:
        """``fit``, then the cluster of each row (n,)."""
        return self.fit(X).labels_

    def predict(self, X: Any) -> Any:
        """The cluster of each new row (n,) int32, whatever the batch: NumPy for NumPy, else a lazy Dask array."""
        from bigembed.estimator.transform import apply

        self._check_fitted()
        self._map()
        return apply(self, X, prediction(self._run, self.as_fitted().metric))[:, 0]

    def _after_graph(self, graph: GraphShape, seed: int) -> list[Stage]:
        """The stages of the eigenvectors, and k-means of them."""
        if graph.n < self.n_clusters:
            raise InputError(f"n_samples={graph.n} should be >= n_clusters={self.n_clusters}. Ask for fewer clusters")
        asked = ClusterOptions(int(self.n_clusters), bool(self.normalize_rows), int(self.n_init))
        width = int(self._walk(graph).n_components)
        return [*super()._after_graph(graph, seed), clusters_stage(graph.n, width, asked, seed)]

    def _require(self, need: Requirements) -> None:
        require_heat(self, need)

    def _walk(self, graph: GraphShape) -> WalkOptions:
        width = max(1, self.n_clusters - 1) if self.n_components is None else self.n_components
        return heat_walk(self, graph, SEPARATED, n_components=int(width))

    def _set_fitted(self, run: Run) -> None:
        """Eigenvalues, coordinates and clusters as attributes."""
        super()._set_fitted(run)
        clusters = run.results("clusters")
        self.eigenvalues_ = 1.0 - read_array(run.path("solve", "eigenvalues"))
        self.cluster_centers_ = read_array(run.path("clusters", "centers"))
        self.inertia_, self.n_iter_ = clusters["squares"], clusters["iterations"]
        self._set_array("labels_", "clusters", "labels")

    def _certificate(self, run: Run) -> dict[str, Any]:
        found, clusters = super()._certificate(run), run.results("clusters")
        warnings = {kind: list(said) for kind, said in found["warnings"].items()}
        count, empty = len(clusters["sizes"]), clusters["sizes"].count(0)
        if found["parts"] > count:
            warnings["components"].append(
                f"the graph has {found['parts']} parts that no edges join, more than n_clusters={count}: some share a "
                "cluster, and nothing says which belong together. Take more neighbors, so that the parts join, or at "
                "least as many clusters"
            )
        if empty:
            warnings["degenerate"].append(
                f"{empty} of {count} clusters have no rows: there are fewer different coordinates. Ask for "
                "fewer clusters"
            )
        if not clusters["converged"]:
            warnings["convergence"].append(
                f"k-means stopped after {clusters['iterations']} iterations: the clusters run into each other. Ask for "
                "another number of clusters or of components"
            )
        kept = {name: value for name, value in found.items() if name not in ("t", "seed", "warnings")}
        return {**kept, "clusters": clusters, "seed": found["seed"], "warnings": warnings}

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.estimator_type = "clusterer"
        return tags
