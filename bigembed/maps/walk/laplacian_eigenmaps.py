"""Laplacian eigenmaps (Belkin & Niyogi): the smoothest functions on a neighbor graph; starts of other maps."""

from __future__ import annotations

import os
import warnings
from dataclasses import KW_ONLY, dataclass
from typing import Annotated, Any

import numpy as np

from bigembed import errors
from bigembed.errors import InputError
from bigembed.estimator.graph_input import ISLANDS, POLICIES, GraphShape
from bigembed.estimator.reporting import warn
from bigembed.maps.kernels import BINARY, LOCAL
from bigembed.maps.start import localized
from bigembed.maps.walk import SpectralEstimator, WalkOptions
from bigembed.neighbors.given import GraphMetric
from bigembed.neighbors.search import ALGORITHMS
from bigembed.runtime import parameters
from bigembed.runtime.blocks import Array
from bigembed.stages import Run
from bigembed.store.arrays import read_array

# ------------------------------------------------------------------------------------------------------------ heat
# The walk of a Laplacian eigenmap: heat or binary weights on a graph, as they are (seed 000 §9.3).

EDGES = ("heat", BINARY)
"""Weights of the edges."""
REACH = 0.25
"""ε of a graph of a radius, over the squared radius: e⁻⁴ at its end, as the adaptive kernel has at least."""


def require_heat(asked: Any, need: parameters.Requirements) -> None:
    """What the parameters of the graph and of the weights need to go together."""
    need(
        asked.radius is None or asked.bandwidth not in LOCAL,
        "bandwidth",
        "'auto' or 'fixed' with a radius, for local scales are distances to the k nearest neighbors",
    )
    plain = asked.epsilon == "auto" and asked.bandwidth == "auto"
    need(asked.weights != BINARY or plain, "weights", "'heat' where epsilon or bandwidth is given")
    need(
        asked.weights != BINARY or asked.radius is not None or asked.n_neighbors is not None,
        "weights",
        "'heat' where n_neighbors is None: all pairs would weigh the same",
    )


def heat_walk(asked: Any, graph: GraphShape, islands: str = ISLANDS, **others: Any) -> WalkOptions:
    """The options of the walk for an estimator with the parameters of :class:`~bigembed.LaplacianEigenmaps`.

    ``islands``: the policy of components="auto".
    """
    others["components"] = islands if asked.components == "auto" else asked.components
    if asked.weights == BINARY and not graph.weighted:
        if graph.dense:
            raise InputError("weights='binary' on a graph of every pair: all weigh the same. Take weights='heat'")
        others |= {"bandwidth": BINARY, "epsilon": 1.0}  # (which multiplies nothing)
    elif graph.radius is not None:
        if asked.bandwidth in LOCAL:
            raise InputError(
                f"bandwidth={asked.bandwidth!r} takes scales from the k nearest neighbors, and the graph is one of a "
                "radius. Take bandwidth='auto'"
            )
        epsilon = REACH * float(graph.radius) ** 2 if asked.epsilon == "auto" else asked.epsilon
        others |= {"epsilon": epsilon}
    return WalkOptions.of(asked, **others)


# --------------------------------------------------------------------------------------------- laplacian eigenmaps


@dataclass(eq=False, repr=False)
class LaplacianEigenmaps(SpectralEstimator, registered="laplacian_eigenmaps"):
    """Embed rows, a neighbor graph or a weighted graph by a Laplacian eigenmap.

    With K_ij = exp(−‖x_i − x_j‖²/ε) or 1 on the edges of the graph (K_ii = 1), Q = diag(K1) and L = Q − K, the
    coordinates of row i are (r_1(i), …, r_m(i)) (seed 000 eq. 39), where L R = Q R M (eq. 36), μ ascending (eq. 37),
    and the trivial r_0 = 1, μ_0 = 0 is left out. They minimize Σ K_ij ‖y_i − y_j‖² for a given YᵀQY (eq. 40). The
    eigenvectors are those of the walk Q⁻¹K, so M = I − Λ (eq. 38): the map is the diffusion map of α = 0 and t = 0.

    Parameters
    ----------
    n_components : int ≥ 1 or "auto"
        The number m of coordinates; "auto" computes 15 and ends at the clearest gap of the spectrum.
    n_neighbors : int ≥ 1 or None
        The number k of neighbors, the row itself not counted: two rows are joined if either is among the k nearest of
        the other. None takes every pair (n ≤ 4096), as one dense block. It is not used where a radius is given.
    radius : float > 0 or None
        The radius within which all rows are joined instead (the ε-graph), found exactly; in units of the data.
    weights : {"heat", "binary"}
        The weights of the edges: those of the heat kernel, or 1 for every edge (heat after infinite time). A user's
        graph takes neither: its weights are taken as they are.
    epsilon : float > 0 or "auto"
        The time of the heat kernel (t in the source). With one scale it is in squared units of the data; "auto" is the
        median squared distance to the k-th neighbor, a quarter of the squared radius, or, for the complete graph,
        chosen by the kernel sum. With a local bandwidth it is a pure number; "auto" is ½ for "adaptive" and 1 for
        "self-tuned".
    bandwidth : {"auto", "adaptive", "self-tuned", "fixed"}
        What the kernel has in place of ε. "adaptive" is ε (ρ_i² + ρ_j²)/2, ρ the distance to the k-th neighbor, at
        least 1 % of its median; no row is cut off, however far it lies. "self-tuned" is ε ρ_i ρ_j. "fixed" is ε, as in
        the source; rows farther from their neighbors than √ε are cut off, and the certificate says so. "auto" is
        "fixed" where ``epsilon`` is given, n_neighbors is None or there is a radius, else "adaptive".
    metric : str or function
        The distance between rows: "euclidean", "cosine" (between rows scaled to length one), another one of
        :func:`bigembed.build_neighbor_graph`, or a function of two rows. With "precomputed" X holds distances (n, n),
        all of them, or as a SciPy sparse matrix the lengths of the edges there are, of which the n_neighbors smallest
        of each row count. ``transform`` then takes distances of new rows to the fitted ones (k, n): all of them, or,
        sparse, those to their nearest rows, as neighbors transformers leave them (fitted rows that would list a new
        row, and whose distance is not stored, are then unknown to it).
    components : {"auto", "joint", "largest", "per-component", "bridge", "error"}
        What to do with a disconnected graph. With "auto", islands are components of fewer than max(2, n/100) rows
        (n ≤ 10⁴), 100 rows (n ≤ 10⁵) or n/1000 rows (beyond): their rows take the coordinates of their nearest row
        outside (0 in a graph without rows) and the label −1. Larger parts are embedded jointly, with at most half of
        the coordinates telling them apart. "joint" embeds all components, all contrasts first. "largest" embeds the
        largest, and the other rows take the coordinates of their nearest row in it. "per-component" embeds each by
        itself. "bridge" joins them by their shortest edges. "error" refuses the graph.
    recall : float in (0, 1]
        The target share of true neighbors in the graph; it is measured, and warned about where missed.
    algorithm : {"auto", "cells", "nn-descent", "pynndescent"}
        How neighbors are searched. "cells" searches exactly in the cells of near rows; "nn-descent" is for rows of high
        intrinsic dimension; "auto" takes cells unless these would miss ``recall`` and NN-descent fits.
    algorithm_params : dict or None
        Parameters for ``pynndescent.NNDescent``, such as n_trees or n_iters, with algorithm="pynndescent"; else None.
    tol : float in (0, 1)
        The largest residual ‖Q^{-1/2} L Q^{-1/2} v − μ v‖ of the wanted eigenpairs, v = Q^{1/2} r of length one. The
        solve goes on, down to tol/10⁴, until it is at most μ/10 too.
    max_passes : int ≥ 4
        The passes over the matrix before the solver gives up (with a warning).
    random_state : int, generator or None
        The seed of everything that is drawn.
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
    embedding_ : array of shape (n, m)
        The coordinates, in the order of the input: NumPy for NumPy input, else a lazy Dask array. RᵀQR = ΣQ · I, so
        that each column has mean 0 and mean square 1 under Q; its largest |entry| is positive. Rows that are equal have
        the same coordinates.
    eigenvalues_ : array of shape (m,)
        The eigenvalues μ, ascending, the trivial one left out; (c, m) for components="per-component". For
        n_components="auto" these are all that were computed.
    residuals_ : array of shape (m,)
        The residuals of the eigenpairs, shaped like ``eigenvalues_``.
    certificate_ : dict
        How far the map can be trusted: solver, passes, gaps, recall, components, bandwidth, dimension, with eigenvalues
        λ = 1 − μ of the walk; under "judgement" what each coordinate shows, and how well the map keeps neighborhoods;
        "warnings".
    epsilon_ : float or None
        The ε that was used; None for binary weights and a user's graph.
    n_components_, n_features_in_ : int
        The numbers of coordinates and of columns of the rows.
    labels_ : array of shape (n,)
        The component of each row, 0 the largest; −1 for rows of islands.
    graph_ : NeighborGraph
        The neighbor graph.

    Raises
    ------
    InputError
        If rows hold NaN or infinity (they are named), there are as many neighbors as rows, parameters are out of range,
        or a user's graph is not symmetric, has negative weights or nodes without an edge.
    DisconnectedGraphError
        If the graph has several components and components="error"; their sizes are listed.
    PlanError
        If a radius joins too many rows; one that joins fewer is proposed.

    Warns
    -----
    BigembedWarning
        If there is reason to doubt the map: see the warnings of :class:`~bigembed.DiffusionMap`.

    Notes
    -----
    Every warning stands in the certificate, too.
    Cost: 2 passes over the input, 5–6 over the ordered copy, some 20–80 over the sparse matrix (2·8·k·n bytes).
    Memory: a few canonical blocks (32 MiB) a worker; nothing of size n·d or n·m in one process. The exception is
    n_neighbors=None, at most 4096 rows: one task of 40 n² bytes at the most.

    scikit-learn's SpectralEmbedding leaves the diagonal of the weights out of Q. Of a graph of weights whose diagonal
    is 0 both find the same vectors; its columns are scaled by 1/√ΣQ, and signs may differ. A user's weights are taken
    as they are, so give them a diagonal of 0 for that, or of 1 for the map of this page.

    ``transform`` averages over neighbors by the Nyström formula r(x) = Σ_j K(x, x_j) r(j) / (λ Σ_j K(x, x_j)).

    References
    ----------
    M. Belkin, P. Niyogi, Laplacian eigenmaps for dimensionality reduction and data representation, Neural Computation
    15 (2003). M. Cameron, lecture notes, §9.3 (seed 000). Y. Bengio et al., Out-of-sample extensions for LLE, Isomap,
    MDS, eigenmaps, and spectral clustering, NIPS 16 (2003). L. Haghverdi et al., Diffusion pseudotime, Nature Methods
    13 (2016), for the adaptive scale.

    Examples
    --------
    >>> import numpy as np
    >>> angle = np.linspace(0, 2 * np.pi, 200, endpoint=False)
    >>> ring = np.column_stack([np.cos(angle), np.sin(angle)])
    >>> le = LaplacianEigenmaps(n_components=2, n_neighbors=2, weights="binary").fit(ring)
    >>> bool(np.allclose(le.eigenvalues_, 2 / 3 * (1 - np.cos(2 * np.pi / 200))))
    True
    """

    n_components: parameters.Count | parameters.Auto = 2
    _: KW_ONLY
    n_neighbors: parameters.Count | None = 15
    radius: parameters.Positive | None = None
    weights: Annotated[str, parameters.one_of(*EDGES)] = "heat"
    epsilon: parameters.Positive | parameters.Auto = "auto"
    bandwidth: Annotated[str, parameters.one_of("auto", "fixed", *LOCAL)] = "auto"
    metric: GraphMetric = "euclidean"
    components: Annotated[str, parameters.one_of("auto", *POLICIES)] = "auto"
    recall: Annotated[float, parameters.interval(0, 1, closed="right")] = 0.99
    algorithm: Annotated[str, parameters.one_of(*ALGORITHMS)] = "auto"
    algorithm_params: dict[str, Any] | None = None
    tol: parameters.Fraction = 1e-6
    max_passes: Annotated[int, parameters.at_least(4)] = 300
    random_state: parameters.Seed = 0

    def _require(self, need: parameters.Requirements) -> None:
        require_heat(self, need)

    def _walk(self, graph: GraphShape) -> WalkOptions:
        return heat_walk(self, graph)

    def _set_fitted(self, run: Run) -> None:
        """Eigenvalues, coordinates and the scale as attributes."""
        super()._set_fitted(run)
        self.eigenvalues_ = 1.0 - read_array(run.path("solve", "eigenvalues"))
        self._set_array("labels_", "coordinates", "labels")

    def _certificate(self, run: Run) -> dict[str, Any]:
        return {name: value for name, value in super()._certificate(run).items() if name != "t"}


SCALES = ("openTSNE", "umap")
OPENTSNE = 1e-4
"""Standard deviation of the first column."""
JITTER = 1e-2
"""Standard deviation of the noise, over that of the first column: what openTSNE adds to its own starts."""
UMAP = 10.0
"""Largest |entry|."""
UMAP_NOISE = 1e-4
OF_MAPS = (errors.HarmonicWarning, errors.LocalizedWarning, errors.MapWarning, errors.SeparationWarning)
"""Warnings of a map that is to be looked at, not of one that another one starts from."""


@parameters.declared
def spectral_start(
    graph: Any,
    n_components: parameters.Count = 2,
    *,
    scale: Annotated[str, parameters.one_of(*SCALES)] | None = None,
    tol: parameters.Fraction = 1e-4,
    max_passes: Annotated[int, parameters.at_least(4)] = 300,
    random_state: parameters.Seed = 0,
    workdir: str | os.PathLike[str] | None = None,
) -> Array:
    """Compute spectral coordinates of a graph as an array, from which UMAP, t-SNE or a layout may start.

    The Laplacian eigenmap of the graph (seed 000 eqs. 36, 39), by a solver that converges in tens of passes over graphs
    of millions of nodes: the start that umap-learn and openTSNE take from SciPy's LOBPCG or ARPACK.

    Parameters
    ----------
    graph : graph, sparse matrix or estimator
        The weights as a symmetric SciPy sparse matrix (``graph_`` of a fitted ``umap.UMAP``, ``P`` of openTSNE's
        affinities, ``connectivities`` of scanpy), a graph of any size (:func:`bigembed.open_graph`), a
        :class:`~bigembed.NeighborGraph` (of which the weights are those of :class:`~bigembed.LaplacianEigenmaps`), or
        whatever else ``fit`` of that class takes. Of a fitted estimator its ``graph_`` is taken.
    n_components : int ≥ 1
        The number m of columns.
    scale : {"openTSNE", "umap"} or None
        How the columns are scaled: None as the eigenmap is (mean square 1); "openTSNE" to the standard deviation 1e-4
        of the first column, with normal noise of 1e-6, in float64; "umap" to the largest |entry| 10, with normal noise
        of 1e-4, in float32.
    tol : float in (0, 1)
        The largest residual ‖Q^{-1/2} L Q^{-1/2} v − μ v‖.
    max_passes : int ≥ 4
        The passes over the graph before the solver gives up (with a warning).
    random_state : int, generator or None
        The seed of the solver and the noise.
    workdir : path or None
        Where the stages are kept, and from where a fit that was stopped goes on; None is a temporary folder.

    Returns
    -------
    ndarray of shape (n, m)
        The columns in the order of the input, by ascending μ, the trivial one left out; the largest |entry| of each is
        positive. Of a graph in several parts at most half of the columns tell the largest apart, and the others show
        the inside of single parts. Nodes of islands (components of fewer than max(2, n/100) nodes for n ≤ 10⁴, 100 for
        n ≤ 10⁵, n/1000 beyond) are at the place of their nearest row, or, in a graph without rows, at 0.

    Raises
    ------
    InputError
        If weights are not symmetric, negative or not finite, nodes have no edge, or there are as many columns as nodes.

    Warns
    -----
    ConvergenceWarning
        If the solve stops early.
    ComponentsWarning
        If the graph has islands or several parts.
    LocalizedWarning
        If less than 5 % of the nodes carry a column.

    Notes
    -----
    Cost: two passes over the graph to check and store it, some twelve light ones to order the nodes of more than one
    block by nearness, then 10–40 over blocks of it. Memory: a few blocks a worker; in this process the array that is
    returned, 8·n·m bytes, up to 160·n bytes while the nodes are ordered, and the weights, if they came in memory.

    References
    ----------
    M. Belkin, P. Niyogi, Laplacian eigenmaps, Neural Computation 15 (2003). M. Cameron, lecture notes, §9.3 (seed 000).
    D. Kobak, G. Linderman, Initialization is critical for preserving global data structure in both t-SNE and UMAP,
    Nature Biotechnology 39 (2021).

    Examples
    --------
    >>> from scipy.sparse import diags_array
    >>> path = diags_array([np.ones(9), np.ones(9)], offsets=[-1, 1])
    >>> start = spectral_start(path, scale="openTSNE")
    >>> start.shape, float(start[:, 0].std().round(6))
    ((10, 2), 0.0001)

    With the packages themselves: ``openTSNE.TSNE().fit(affinities=a, initialization=spectral_start(a.P,
    scale="openTSNE"))``, ``umap.UMAP(init=spectral_start(graph, scale="umap"))``.
    """
    if hasattr(graph, "fit") and not hasattr(graph, "graph_"):
        raise errors.InputTypeError(
            f"spectral_start: this {type(graph).__name__} has no graph_: it is not fitted, was fitted to weights, or "
            "is a saved model. Give the graph or the weights"
        )
    eigenmap = LaplacianEigenmaps(
        n_components, tol=tol, max_passes=max_passes, random_state=random_state, workdir=workdir
    )
    with warnings.catch_warnings():
        for category in OF_MAPS:
            warnings.simplefilter("ignore", category)
        eigenmap.fit(getattr(graph, "graph_", graph))
    coordinates = np.asarray(eigenmap.embedding_)
    moments = np.stack([(coordinates**2).sum(axis=0), (coordinates**4).sum(axis=0)])
    if reason := localized(moments, len(coordinates)):
        warn(
            f"spectral_start: {reason}: groups of a map that starts from it may lie on top of each other. Start from "
            "principal coordinates, or leave these nodes out",
            errors.LocalizedWarning,
        )
    return coordinates if scale is None else scaled(coordinates, scale, eigenmap.certificate_["seed"])


def scaled(coordinates: Array, scale: str, seed: int) -> Array:
    """Coordinates (n, m) as openTSNE or umap begins with them.

    >>> np.abs(scaled(np.array([[1.0], [-2.0]]), "umap", 0)).round(2).tolist()
    [[5.0], [10.0]]
    """
    noise = np.random.default_rng([seed, 12]).normal(size=coordinates.shape)
    if scale == "umap":
        return np.asarray(UMAP / np.abs(coordinates).max() * coordinates + UMAP_NOISE * noise, np.float32)
    jittered = coordinates + JITTER * coordinates[:, 0].std() * noise
    return np.asarray(OPENTSNE / jittered[:, 0].std() * jittered)
