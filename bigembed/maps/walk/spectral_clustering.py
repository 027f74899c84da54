"""Spectral clustering (Shi & Malik; Ng, Jordan & Weiss): k-means of the coordinates of a walk, and clusters of new
rows.
"""

from __future__ import annotations

from dataclasses import KW_ONLY, dataclass
from typing import Annotated, Any, ClassVar

from bigembed.errors import InputError
from bigembed.estimator.extension import Extension
from bigembed.estimator.graph_input import POLICIES, SEPARATED, GraphShape
from bigembed.estimator.transform import apply
from bigembed.maps.clusters import ClusterOptions, clusters_stage, points_of
from bigembed.maps.kernels import LOCAL
from bigembed.maps.walk import SpectralEstimator, WalkOptions
from bigembed.maps.walk.extension import WalkModel, extend_rows, grouping, model_of
from bigembed.maps.walk.laplacian_eigenmaps import EDGES, heat_walk, require_heat
from bigembed.neighbors import given, nearest_centers, search, survey
from bigembed.neighbors.given.query import AnyIndex
from bigembed.runtime.blocks import Array
from bigembed.runtime.parameters import Auto, Count, Fraction, Positive, Requirements, Seed, at_least, interval, one_of
from bigembed.stages import Run, Stage
from bigembed.store.arrays import read_array

# -------------------------------------------------------------------------------------------------------- new rows
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
    def shape(self) -> survey.Shape:
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
    """Find clusters of rows, of a neighbor graph or of a weighted graph, that few and weak edges join to each other.

    With L R = Q R M as in :class:`~bigembed.LaplacianEigenmaps` (seed 000 eq. 36), k-means clusters the vectors
    (r_1(i), …, r_m(i)) (Shi & Malik 2000), or, with ``normalize_rows``, (1, r_1(i), …, r_m(i)) scaled to length one:
    the normalized rows of the m + 1 leading eigenvectors of Q^{-1/2} K Q^{-1/2} (Ng, Jordan & Weiss 2002).

    Parameters
    ----------
    n_clusters : int ≥ 1
        The number of clusters.
    n_components : int ≥ 1 or None
        The number m of eigenvectors, the trivial r_0 = 1 not counted; None is n_clusters − 1 (at least 1).
    n_neighbors : int ≥ 1 or None
        The number k of neighbors, the row itself not counted: two rows are joined if either is among the k nearest of
        the other. None takes every pair (n ≤ 4096), as one dense block. It is not used where a radius is given.
    radius : float > 0 or None
        The radius within which all rows are joined instead, found exactly; in units of the data.
    weights : {"heat", "binary"}
        The weights of the edges: those of the heat kernel, or 1 for every edge. A user's graph keeps its weights as
        they are.
    epsilon : float > 0 or "auto"
        The scale of the heat kernel exp(−‖x_i − x_j‖²/ε). With one scale it is in squared units of the data; "auto" is
        the median squared distance to the k-th neighbor, a quarter of the squared radius, or, for the complete graph,
        chosen by the kernel sum. With a local bandwidth it is a pure number; "auto" is ½ for "adaptive" and 1 for
        "self-tuned".
    bandwidth : {"auto", "fixed", "adaptive", "self-tuned"}
        What the kernel has in place of ε. "fixed" is ε, one scale for all rows. "adaptive" is ε (ρ_i² + ρ_j²)/2, ρ the
        distance to the k-th neighbor. "self-tuned" is ε ρ_i ρ_j. "auto" is "fixed" where ``epsilon`` is given,
        n_neighbors is None or there is a radius, else "adaptive".
    normalize_rows : bool
        Whether rows are scaled to length one: clusters of unlike size and density are then found more evenly.
    n_init : int ≥ 1
        The starts of k-means++ on a sample of 16 384 rows (64 a cluster, if that is more); the best goes on.
    metric : str or function
        The distance between rows: "euclidean", "cosine" (between rows scaled to length one), another one of
        :func:`bigembed.build_neighbor_graph`, or a function of two rows. With "precomputed" X holds distances (n, n),
        all of them, or as a SciPy sparse matrix the lengths of the edges there are, of which the n_neighbors smallest
        of each row count. ``transform`` then takes distances of new rows to the fitted ones (k, n): all of them, or,
        sparse, those to their nearest rows, as neighbors transformers leave them (fitted rows that would list a new
        row, and whose distance is not stored, are then unknown to it).
    components : {"auto", "joint", "largest", "bridge", "error"}
        What to do with a disconnected graph. With "auto", islands are components of fewer than max(2, n/100) rows
        (n ≤ 10⁴), 100 rows (n ≤ 10⁵) or n/1000 rows (beyond): their rows take the coordinates, and so the cluster, of
        their nearest row outside (in a graph without rows they have the label −1). The first eigenvectors tell larger
        parts apart. With "joint" every component is a part. With "largest" the other rows take the cluster of their
        nearest row in it. "bridge" joins the components by their shortest edges. "error" refuses the graph.
    recall : float in (0, 1]
        The target share of true neighbors in the graph; it is measured, and warned about where missed.
    algorithm : {"auto", "cells", "nn-descent", "pynndescent"}
        How neighbors are searched. "cells" searches exactly in the cells of near rows; "nn-descent" is for rows of high
        intrinsic dimension; "auto" takes cells unless these would miss ``recall`` and NN-descent fits.
    algorithm_params : dict or None
        Parameters for ``pynndescent.NNDescent``, such as n_trees or n_iters, with algorithm="pynndescent"; else None.
    tol : float in (0, 1)
        The largest residual ‖Q^{-1/2} L Q^{-1/2} v − μ v‖ of the eigenpairs.
    max_passes : int ≥ 4
        The passes over the matrix before the solver gives up (with a warning).
    random_state : int, generator or None
        The seed of the graph, the solver, and the starts of k-means.
    workdir : path or None
        Where the stages are kept, and from where a fit that was stopped goes on; None is a temporary folder.
    persist : "store" or None
        Whether rows of a lazy array are written once and read from there: "store" says so; None does so only for rows
        that are read more than twice.
    keep : "all", "map" or "coordinates"
        What stays in ``workdir`` of the stages: all of it; what the map, new rows and a saved model need; or the map
        alone, which then places no new rows. The rest is deleted as soon as no stage is left to read it.
    verbose : bool
        Whether ``fit`` shows its progress.
    callbacks : sequence of functions, or None
        Functions that ``fit`` calls with every event: a stage starts, goes on or ends.

    Attributes
    ----------
    labels_ : array of shape (n,), int32
        The cluster of each row, 0 the largest: NumPy for NumPy input, else a lazy Dask array.
    cluster_centers_ : array of shape (n_clusters, m)
        The centers; with normalized rows (n_clusters, m + 1), 1/‖·‖ first.
    inertia_ : float
        The sum of squared distances of the rows to their centers.
    n_iter_ : int
        The number of Lloyd's iterations over all rows.
    embedding_ : array of shape (n, m)
        The eigenvectors, in the order of the input, with RᵀQR = ΣQ · I: each column has mean 0 and mean square 1 under
        Q, and its largest |entry| is positive.
    eigenvalues_ : array of shape (m,)
        The eigenvalues μ, ascending, the trivial one left out.
    residuals_ : array of shape (m,)
        The residuals of the eigenpairs.
    certificate_ : dict
        How far the clusters can be trusted: the certificate of the eigenvectors, and under "clusters" sizes,
        iterations, whether k-means converged.
    epsilon_ : float or None
        The ε that was used; None for binary weights and a user's graph.
    n_components_, n_features_in_ : int
        The numbers of coordinates and of columns of the rows.
    graph_ : NeighborGraph
        The neighbor graph.

    Raises
    ------
    InputError
        If there are fewer rows than clusters, rows hold NaN or infinity (they are named), parameters are out of range,
        or a user's graph is not symmetric, has negative weights or nodes without an edge.
    DisconnectedGraphError
        If the graph has several components and components="error"; their sizes are listed.
    PlanError
        If a radius joins too many rows.

    Warns
    -----
    ConvergenceWarning
        If the solve or k-means stops early.
    ComponentsWarning
        If the graph has islands or several parts.
    DegenerateWarning
        If clusters have no rows.
    LocalizedWarning
        If eigenvectors are carried by few rows.

    Notes
    -----
    Every warning stands in the certificate, too.
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
    metric: given.GraphMetric = "euclidean"
    components: Annotated[str, one_of("auto", *TOGETHER)] = "auto"
    recall: Annotated[float, interval(0, 1, closed="right")] = 0.99
    algorithm: Annotated[str, one_of(*search.ALGORITHMS)] = "auto"
    algorithm_params: dict[str, Any] | None = None
    tol: Fraction = 1e-6
    max_passes: Annotated[int, at_least(4)] = 300
    random_state: Seed = 0

    def fit_predict(self, X: Any, y: Any = None, sample_weight: Any = None) -> Any:
        """Fit the clusters, and return that of each row.

        Parameters
        ----------
        X : array, NeighborGraph, sparse matrix or graph
            What ``fit`` takes.
        y : None
            Not used; scikit-learn's protocol has it.
        sample_weight : array of shape (n,), or None
            How many rows each row stands for, as ``fit`` takes it.

        Returns
        -------
        array of shape (n,), int32
            The clusters.
        """
        return self.fit(X, sample_weight=sample_weight).labels_

    def predict(self, X: Any) -> Any:
        """Predict the cluster of each new row, whatever the batch.

        Parameters
        ----------
        X : array of shape (k, d)
            New rows, of any kind of rows that ``fit`` takes.

        Returns
        -------
        array of shape (k,), int32
            The clusters: NumPy for NumPy, else a lazy Dask array.
        """
        self._check_fitted()
        self._map()
        return apply(self, X, prediction(self._run, self.as_fitted().metric))[:, 0]

    def _after_graph(self, graph: GraphShape, seed: int) -> list[Stage]:
        """The stages of the eigenvectors, and k-means of them."""
        if graph.n < self.n_clusters:
            raise InputError(f"n_samples={graph.n} should be >= n_clusters={self.n_clusters}. Ask for fewer clusters")
        asked = ClusterOptions(int(self.n_clusters), bool(self.normalize_rows), int(self.n_init))
        width = int(self._walk(graph).n_components)
        return [*super()._after_graph(graph, seed), clusters_stage(graph.n, width, asked, seed, graph.vectors)]

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
