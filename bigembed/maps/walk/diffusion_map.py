"""Diffusion maps (Coifman & Lafon): coordinates by the random walk on a neighbor graph."""

from __future__ import annotations

from dataclasses import KW_ONLY, dataclass
from typing import Annotated, Any, Self

import numpy as np

from bigembed.errors import InputError
from bigembed.estimator.graph_input import POLICIES, GraphShape
from bigembed.maps.bandwidth import RULES
from bigembed.maps.kernels import DRIFT, LOCAL
from bigembed.maps.landmark_rows import MAX_LANDMARKS, SELECTIONS
from bigembed.maps.walk import AUTO, ONE_SCALE, TO_DENSITY, SpectralEstimator, WalkOptions, generator_eigenvalues
from bigembed.maps.walk.affinity import ALPHA, BISTOCHASTIC, NORMALIZATIONS, unbalanced
from bigembed.maps.walk.landmark_solve import EXTENSIONS
from bigembed.neighbors.given import GraphMetric
from bigembed.neighbors.row_weights import DENSITY
from bigembed.neighbors.search import ALGORITHMS
from bigembed.runtime import parameters
from bigembed.runtime.blocks import Array
from bigembed.stages import Run
from bigembed.store.arrays import read_array


@dataclass(eq=False, repr=False)
class DiffusionMap(SpectralEstimator, registered="diffusion_map"):
    """Embed rows, a neighbor graph or a weighted graph by a diffusion map.

    With K_ij = exp(−‖x_i − x_j‖²/(ε s_ij)) on the symmetric graph of k nearest neighbors (K_ii = 1), s_ij by
    ``bandwidth``, q = K1, W_ij = K_ij/(q_i q_j)^α and P = D^{-1} W, D = diag(W1), the coordinates of row i are
    (λ_1^t r_1(i), …, λ_m^t r_m(i)) (seed 000 eq. 24), where P r_l = λ_l r_l, RᵀΠR = I (eq. 22),
    π = d/Σd, and the trivial r_0 = 1 is left out. Euclidean distances between coordinates are
    diffusion distances (eqs. 23, 25). A row of weight w (``fit(X, sample_weight=w)``) stands for w rows: then q = Kw,
    d = Ww, P_ij = W_ij w_j/d_i, π_i ∝ w_i d_i, and the k-th neighbor is the row up to which neighbors weigh k rows.

    Parameters
    ----------
    n_components : int ≥ 1 or "auto"
        The number m of coordinates; "auto" computes 15 and ends at the clearest gap of the spectrum.
    n_neighbors : int ≥ 1 or None
        The number k of neighbors, the point itself not counted; None takes every pair (n ≤ 4096), as one dense block.
        It is not used where a radius is given.
    radius : float > 0 or None
        The radius within which all rows are joined instead, found exactly; in units of the data, with one scale, and
        ``epsilon`` or ``sigma`` as a number. With radius² ≥ 4 ε the kernel is all but whole, and the limits under
        ``alpha`` hold for uneven rows too; edges grow in number with the density.
    alpha : float
        The power of q. With one scale for all rows and a kernel that is whole (n_neighbors=None, or a radius) the walk
        tends to Δ + (2 − 2α) ∇log p · ∇: the plain walk (0), Fokker–Planck (½), Laplace–Beltrami (1). With a local
        bandwidth q is even already, and α evens out how many edges rows have: give ``target`` to choose the limit.
    normalization : {"alpha", "bistochastic"}
        How the kernel is normalized before its rows are: "alpha" is K/(q_i q_j)^α. "bistochastic" is x_i K_ij x_j
        without the diagonal, with the factors x for which each row sums to 1 (Landa, Coifman, Kluger 2021). It is
        robust to noise whose size differs from row to row, in many dimensions, where the kernel has one scale and
        ``n_neighbors`` is large or None; without noise the limit is that of α = ½ (Marshall & Coifman 2019). The
        stationary distribution is uniform.
    epsilon : float > 0, "auto", "ksum", "max-min", "mean-min" or "median"
        The scale ε. With one scale for all rows it is in squared units of the data: "auto" (median squared distance to
        the k-th neighbor; "ksum" for the complete kernel), "max-min", "mean-min", or, for the complete kernel, "ksum"
        and "median"; with a radius it is a number. With a local bandwidth it is a pure number; "auto" is then ½ for
        "adaptive" without a target, and 1 else.
    sigma : float > 0 or None
        The scale in place of epsilon: K = exp(−r²/2σ²), so ε = 2σ².
    t : float ≥ 0 or "auto"
        The diffusion time. 0 leaves eigenvectors unscaled (seed 000 eq. 57); "auto" takes the smallest with
        (|λ_m|/|λ_1|)^t ≤ δ (eq. 29).
    delta : float in (0, 1), or None
        The accuracy δ: with t="auto" (0.2 where None), or to truncate the coordinates at |λ_l|^t ≤ δ|λ_1|^t (eq. 26).
        None keeps all m.
    truncation : {"relative", "absolute"}
        What ``delta`` is relative to: "relative" is to λ_1 (eq. 26), "absolute" is |λ_l|^t ≤ δ (seed 001 eq. 9).
    bandwidth : {"auto", "adaptive", "self-tuned", "fixed"}
        The scales s_ij. "adaptive" is (ρ_i² + ρ_j²)/2, ρ the distance to the k-th neighbor, at least 1 % of its median;
        no row is cut off, however far it lies. "self-tuned" is ρ_i ρ_j. "fixed" is 1; rows farther from their neighbors
        than ε are cut off, and the certificate says so. "auto" is "fixed" where ``epsilon``, ``sigma`` or ``truncated``
        is given, n_neighbors is None or there is a radius, else "adaptive".
    target : {"laplace-beltrami", "fokker-planck", "random-walk"} or None
        The operator Δ + c ∇log p · ∇, c = 0, 1, 2, that the walk tends to whatever the density p of the rows; α, scales
        and lengths of steps follow from it (``bigembed.maps.kernels``). None is, with a local bandwidth,
        Laplace–Beltrami of the metric in which the rows are even.
    dimension : float > 0 or "auto"
        The dimension of the rows, for ``target``; "auto" estimates it from the neighbors.
    truncated : bool
        Whether weights are dropped where r ≥ 3√(ε/2) (seed 000 §9.6).
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
        outside and the label −1. Larger parts are embedded jointly, with at most half of the coordinates telling them
        apart. "joint" embeds all components, all contrasts first (seed 001; what "auto" is for a user's graph).
        "largest" embeds the largest, and the other rows take the coordinates of their nearest row in it.
        "per-component" embeds each by itself. "bridge" joins them by their shortest edges. "error" refuses the graph.
        Edges with W_ij/√(d_i d_j) ≤ 1e-10 join nothing.
    recall : float in (0, 1]
        The target share of true neighbors in the graph; it is measured, and warned about where missed.
    algorithm : {"auto", "cells", "nn-descent", "pynndescent"}
        How neighbors are searched. "cells" searches exactly in the cells of near rows; "nn-descent" is for rows of high
        intrinsic dimension; "auto" takes cells unless these would miss ``recall`` and NN-descent fits.
    algorithm_params : dict or None
        Parameters for ``pynndescent.NNDescent``, such as n_trees or n_iters, with algorithm="pynndescent"; else None.
    solver : {"exact", "landmarks"}
        The solver: "exact" finds the eigenvectors themselves; "landmarks" finds eigenvectors in a subspace made from
        landmarks, in four passes over the matrix (of each component of more than n_landmarks rows), for rows and their
        graphs.
    n_landmarks : int > n_components
        The number of landmarks, at most 8192.
    landmarks : {"max-min", "uniform"}
        How landmarks are chosen: "max-min" takes rows far from each other; "uniform" takes any.
    extension : {"galerkin", "nystrom"}
        How landmarks are extended to rows. With "galerkin" rows are interpolated from their five nearest landmarks, and
        every landmark is a function, which is accurate; "nystrom" takes the few eigenvectors of the landmarks' own map.
    tol : float in (0, 1)
        The largest residual ‖Sv − λv‖ of the wanted eigenpairs, S = D^{-1/2} W D^{-1/2} (solver="exact"). The solve
        goes on, down to tol/10⁴, until it is at most (1 − λ)/10 too: eigenvalues near 1 differ by little.
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
        The coordinates, in the order of the input: NumPy for NumPy input, else a lazy Dask array. Rows that are equal
        have the same coordinates: those of the first of them, whose neighbors ``transform`` finds again.
    eigenvalues_ : array of shape (m,)
        The eigenvalues, descending, the trivial one left out; (c, m) for components="per-component". For
        n_components="auto" these are all that were computed.
    generator_eigenvalues_ : array of shape (m,), or None
        (4/ε′)(1 − λ)/s, shaped like ``eigenvalues_``: eigenvalues of minus the operator that the walk tends to, in
        inverse squared units of the rows with ``target`` or one scale, in units of the scales without. ε′ is ε
        corrected for the end of the kernel at the k-th neighbor or the radius; s < 1 is the share of the walk that
        moves, since the weight of a row on itself is no step. Their ratios are right to some 5 % at k
        = 15; their absolute scale to 7 % for random rows and Laplace–Beltrami, while with drift it is off by one factor
        (1.19 for c = 2, .86 for c = 1 on a curve at k = 15; 8 % at k = 120), and evenly spaced rows have too large ones
        (1.4 at k = 10 on a curve; warned about with ``target``). None for a user's graph.
    residuals_ : array of shape (m,)
        ‖Sv − λv‖ of each eigenpair, shaped like ``eigenvalues_``.
    certificate_ : dict
        How far the map can be trusted: solver, passes, gaps, recall, components, bandwidth, dimension; under
        "judgement" what each coordinate shows (participation, rows that carry it, whether it is a function of earlier
        ones, sin θ), and the map as a whole (neighbors kept, trustworthiness, continuity, triplets, with standard
        errors); "warnings".
    epsilon_, t_ : float
        The ε and the t that were used.
    n_components_, n_features_in_ : int
        The numbers of coordinates and of columns of the rows.
    labels_ : array of shape (n,)
        The component of each row, 0 the largest; −1 for rows of islands.
    graph_ : NeighborGraph
        The neighbor graph.

    Raises
    ------
    InputError
        If rows hold NaN or infinity (they are named), parameters are out of range, or a graph is not symmetric.
    DisconnectedGraphError
        If the graph has several components and components="error"; their sizes are listed.
    PlanError
        If a radius joins too many rows; one that joins fewer is proposed.

    Warns
    -----
    ConvergenceWarning
        If the solve stops early.
    ComponentsWarning
        If the graph has islands or several parts.
    LocalizedWarning
        If a coordinate is carried by few rows, or rows are cut off.
    HarmonicWarning
        If a coordinate is a function of earlier ones.
    SeparationWarning
        If eigenvalues are too close together.
    MapWarning
        If the map does not keep neighborhoods.
    DegenerateWarning
        If rows repeat.

    Notes
    -----
    Every warning stands in the certificate, too.
    Cost: 2 passes over the input, 5–6 over the ordered copy, some 20–80 over the sparse kernel (2·8·k·n bytes).
    Memory: a few canonical blocks (32 MiB) a worker; nothing of size n·d or n·m in one process. The exception is
    n_neighbors=None, at most 4096 rows: distances, kernel and solve are one task each, of 40 n² bytes at the most
    (640 MiB), and 24 n² typically. With ``sample_weight`` 3k neighbors are searched and stored, of which those beyond
    the scales weigh 0: count with 3k in place of k.

    References
    ----------
    R. Coifman, S. Lafon, Diffusion maps, ACHA 21 (2006). M. Cameron, lecture notes, §9 (seed 000). B. Landa, R.
    Coifman, Y. Kluger, Doubly stochastic normalization of the Gaussian kernel is robust to heteroskedastic noise, SIAM
    J. Math. Data Science 3 (2021). N. Marshall, R. Coifman, Manifold learning with bi-stochastic kernels, IMA J. Appl.
    Math. 84 (2019). T. Berry, J. Harlim, Variable bandwidth diffusion kernels, ACHA 40 (2016). L. Haghverdi et al.,
    Diffusion pseudotime, Nature Methods 13 (2016). L. Zelnik-Manor, P. Perona, Self-tuning spectral clustering, NIPS
    (2004). R. Banisch, Z. Trstanova, A. Bittracher, S. Klus, P. Koltai, Diffusion maps tailored to arbitrary
    non-degenerate Itô processes, ACHA 48 (2020), for target densities.

    Examples
    --------
    >>> import numpy as np
    >>> angle = np.linspace(0, 2 * np.pi, 200, endpoint=False)
    >>> dm = DiffusionMap(n_components=2, n_neighbors=4).fit(np.column_stack([np.cos(angle), np.sin(angle)]))
    >>> bool(np.allclose(np.hypot(*dm.embedding_.T) / np.hypot(*dm.embedding_[0]), 1, atol=1e-6))
    True
    """

    n_components: parameters.Count | parameters.Auto = 2
    _: KW_ONLY
    n_neighbors: parameters.Count | None = 15
    radius: parameters.Positive | None = None
    alpha: parameters.Finite = 1.0
    normalization: Annotated[str, parameters.one_of(*NORMALIZATIONS)] = ALPHA
    epsilon: parameters.Positive | Annotated[str, parameters.one_of(*RULES)] = "auto"
    sigma: parameters.Positive | None = None
    t: parameters.Nonnegative | parameters.Auto = 1
    delta: parameters.Fraction | None = None
    truncation: Annotated[str, parameters.one_of("relative", "absolute")] = "relative"
    bandwidth: Annotated[str, parameters.one_of("auto", "fixed", *LOCAL)] = "auto"
    target: Annotated[str, parameters.one_of(*DRIFT)] | None = None
    dimension: parameters.Positive | parameters.Auto = "auto"
    truncated: bool = False
    metric: GraphMetric = "euclidean"
    components: Annotated[str, parameters.one_of("auto", *POLICIES)] = "auto"
    recall: Annotated[float, parameters.interval(0, 1, closed="right")] = 0.99
    algorithm: Annotated[str, parameters.one_of(*ALGORITHMS)] = "auto"
    algorithm_params: dict[str, Any] | None = None
    solver: Annotated[str, parameters.one_of("exact", "landmarks")] = "exact"
    n_landmarks: int = 500
    landmarks: Annotated[str, parameters.one_of(*SELECTIONS)] = "max-min"
    extension: Annotated[str, parameters.one_of(*EXTENSIONS)] = "galerkin"
    tol: parameters.Fraction = 1e-6
    max_passes: Annotated[int, parameters.at_least(4)] = 300
    random_state: parameters.Seed = 0

    aligned = ("weights", DENSITY)

    def fit(self, X: Any, y: Any = None, sample_weight: Any = None, target_density: Any = None) -> Self:
        """Fit the map to rows, distances or a graph.

        Parameters
        ----------
        X : array of shape (n, d) or (n, n), NeighborGraph, sparse matrix or graph
            Rows or distances (any kind that :func:`bigembed.open_array` takes), a NeighborGraph, symmetric sparse
            weights, or a graph of any size (:func:`bigembed.open_graph`).
        y : None
            Not used; scikit-learn's protocol has it.
        sample_weight : array of shape (n,), or None
            How many rows each row stands for: finite numbers above 0, of any scale, in the order of the input (a NumPy
            or Dask array, or the path of a Zarr array or .npy). A row of weight m counts as m copies of it.
        target_density : array of shape (n,), or None
            The target density μ at each row, up to a factor: the walk then tends to Δ + ∇log μ · ∇, whatever the
            density of the rows (a target measure diffusion map: W = √(μ_i μ_j) K/(q_i q_j), and for local scales as
            with target="laplace-beltrami"). Finite numbers above 0.

        Returns
        -------
        DiffusionMap
            The estimator itself.
        """
        return self._fit_rows(X, weights=sample_weight, **{DENSITY: target_density})

    def _walk(self, graph: GraphShape) -> WalkOptions:
        if DENSITY in graph.vectors and (self.target not in (None, TO_DENSITY) or self.alpha != 1.0):
            raise InputError(
                f"target_density says what the walk tends to, and target={self.target!r}, alpha={self.alpha!r} say "
                f"something else: leave alpha at 1, and target at None or {TO_DENSITY!r}"
            )
        if DENSITY in graph.vectors and self.solver != "exact":
            raise InputError(f"solver={self.solver!r} with target_density: that walk is held back. Take solver='exact'")
        return WalkOptions.of(self)

    def _require(self, need: parameters.Requirements) -> None:
        need(
            self.radius is None or self.sigma is not None or not isinstance(self.epsilon, str),
            "epsilon",
            f"a number (or sigma) with a radius: there is one scale, {ONE_SCALE}",
        )
        need(
            self.radius is None or self.bandwidth not in LOCAL,
            "bandwidth",
            f"'auto' or 'fixed' with a radius: there is one scale, {ONE_SCALE}",
        )
        need(self.sigma is None or self.epsilon == "auto", "sigma", "None where epsilon is given")
        need(
            self.bandwidth not in LOCAL or not isinstance(self.epsilon, str) or self.epsilon == "auto",
            "epsilon",
            f"'auto' or a number where bandwidth={self.bandwidth!r}: it multiplies the scales of the rows",
        )
        need(self.target is None or self.alpha == 1.0, "alpha", "left at 1 where a target is given, which decides it")
        need(
            self.target is None or self.solver == "exact",
            "solver",
            "'exact' where a target is given: that walk is held back, and does not smooth what landmarks interpolate",
        )
        if self.normalization == BISTOCHASTIC:
            need(self.alpha == 1.0, "alpha", "left at 1 where normalization='bistochastic', which takes its place")
            need(self.target is None, "target", "None where normalization='bistochastic': each has its own limit")
            need(self.solver == "exact", "solver", "'exact' where normalization='bistochastic'")
        whole = parameters.is_integer(self.n_landmarks) and self.n_landmarks <= MAX_LANDMARKS
        most = AUTO if isinstance(self.n_components, str) else self.n_components
        enough = whole and parameters.is_integer(most) and self.n_landmarks > most
        need(enough or self.solver == "exact", "n_landmarks", f"an integer > n_components, at most {MAX_LANDMARKS}")

    def _set_fitted(self, run: Run) -> None:
        """Eigenvalues, coordinates and scales as attributes."""
        super()._set_fitted(run)
        self.eigenvalues_ = read_array(run.path("solve", "eigenvalues"))
        self.t_ = run.results("coordinates")["t"]
        self.generator_eigenvalues_ = None
        if run.has("bandwidth"):
            self.generator_eigenvalues_ = generator_eigenvalues(
                self.eigenvalues_, run.results("bandwidth"), run.results("kernel")
            )
        self._set_array("labels_", "coordinates", "labels")

    def _certificate(self, run: Run) -> dict[str, Any]:
        out = super()._certificate(run)
        found = run.results("kernel").get("balance")
        if found:
            out["balance"] = found
            out["warnings"]["convergence"] += [] if found["converged"] else [unbalanced(found)]
        return out

    def diffusion_distance(self, i: Any, j: Any) -> Array:
        """Compute the diffusion distance D_t between rows of the input: ‖Ψ_t(x_i) − Ψ_t(x_j)‖ (seed 000 eq. 27).

        Parameters
        ----------
        i, j : int or array of int
            The rows of the input, in pairs.

        Returns
        -------
        ndarray of shape (len(i),)
            The distance of each pair.
        """
        self._check_fitted()
        i, j = np.atleast_1d(i), np.atleast_1d(j)
        embedding = self._run.array("coordinates", "embedding", self._in_memory)
        return np.asarray(np.linalg.norm(_take(embedding, i) - _take(embedding, j), axis=1))


def _take(embedding: Any, rows: Array) -> Array:
    return np.asarray(embedding[np.asarray(rows)])
