"""Coordinates from the random walk on a neighbor graph: diffusion maps, Laplacian eigenmaps, spectral clustering.

The stages that follow a neighbor graph are here: its kernel, its eigenvectors, and what their estimators share.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass, fields, replace
from typing import Any, ClassVar, Self

from bigembed.errors import InputError, InputTypeError
from bigembed.estimator.base import MANY_ROWS
from bigembed.estimator.certificate import certificate
from bigembed.estimator.extension import Extension
from bigembed.estimator.frame import FrameRule
from bigembed.estimator.graph_input import ISLANDS, GraphShape, require_rows, weighted_kernel_stage
from bigembed.estimator.on_graph import WeightedGraphEstimator
from bigembed.maps.bandwidth import EDGES, LISTS, PAIRS, Bandwidth, bandwidth_stage, bandwidth_within_stage
from bigembed.maps.kernels import BINARY, Target
from bigembed.maps.scales import SCALES, WIDER, mass_scales_stage, scale_warnings, weights_in
from bigembed.maps.walk import coordinates, judgement, landmark_solve, spectral
from bigembed.maps.walk.affinity import ALPHA, BISTOCHASTIC, kernel_stage
from bigembed.neighbors.components import bridge_stage
from bigembed.neighbors.given.distances import Rule
from bigembed.neighbors.graph_stages import QUERY_ARRAYS
from bigembed.neighbors.radius import EDGES_PLANNED
from bigembed.neighbors.row_weights import DENSITY, WEIGHTS
from bigembed.quality.dimension import dimension_of_pairs_stage, dimension_stage, dimension_within_stage
from bigembed.stages import Run, Stage
from bigembed.store.arrays import read_array

# ---------------------------------------------------------------------------------------------------------- stages
# The stages of a random walk and its eigenvectors that follow a neighbor graph, or a user's weights.

ONE_SCALE = "for rules and local scales come from the distances to the k nearest neighbors, which it does not hold"
"""Why a radius needs a number."""
TO_DENSITY = "laplace-beltrami"
"""The target to which a density that the rows are to have adds its drift: Δ + ∇log μ · ∇."""
AUTO = 15
"""Eigenpairs that ``n_components="auto"`` computes, and chooses from."""


@dataclass(frozen=True, kw_only=True)
class WalkOptions:
    """What is asked of the walk and its coordinates: the parameters of :class:`~bigembed.DiffusionMap`.

    The defaults are the walk with plain weights, P = Q⁻¹K, and its eigenvectors as they are.
    """

    n_components: int | str
    n_neighbors: int | None = None
    alpha: float = 0.0
    normalization: str = ALPHA
    epsilon: float | str = "auto"
    sigma: float | None = None
    t: float | str = 0.0
    delta: float | None = None
    truncation: str = "relative"
    bandwidth: str = "auto"
    target: str | None = None
    dimension: float | str = "auto"
    truncated: bool = False
    components: str = "auto"
    solver: str = "exact"
    n_landmarks: int = 0
    landmarks: str = "max-min"
    extension: str = "galerkin"
    tol: float = 1e-6
    max_passes: int = 300

    @classmethod
    def of(cls, estimator: Any, **others: Any) -> Self:
        """The parameters that an estimator has, and ``others`` in their place."""
        own = {f.name: getattr(estimator, f.name) for f in fields(cls) if hasattr(estimator, f.name)}
        return cls(**own | others)


def walk_stages(asked: WalkOptions, graph: GraphShape, seed: int) -> list[Stage]:
    """Scales, kernel, components, eigenvectors, coordinates, and how far to trust them."""
    if DENSITY in graph.vectors:
        asked = replace(asked, target=TO_DENSITY)
    n, k, block = graph.n, _neighbors(asked, graph), min(graph.block, graph.n)
    rows = not (graph.weighted or graph.given)
    policy = asked.components if asked.components != "auto" else ISLANDS if rows else "joint"
    landmarks = None
    if asked.solver == "landmarks":
        landmarks = landmark_solve.Landmarks(int(asked.n_landmarks), asked.landmarks, asked.extension)
    if not rows and (landmarks or (asked.target and graph.weighted)):
        asks = "target_density" if DENSITY in graph.vectors else f"target={asked.target!r}"
        what = "solver='landmarks' interpolates" if landmarks else f"{asks} measures distances"
        raise InputTypeError(
            f"{what} between rows, and a graph of {'weights' if graph.weighted else 'given distances'} has none. Give "
            "rows or a NeighborGraph, or leave it out"
        )
    if graph.weighted and asked.normalization == BISTOCHASTIC:
        raise InputTypeError(
            "normalization='bistochastic' takes rows, distances or a NeighborGraph: weights of your own need not have "
            "factors that make their sums 1. Leave it out, or balance them first"
        )
    if graph.by and landmarks:
        raise InputTypeError(
            f"solver='landmarks' interpolates between dense rows by their Euclidean distances, and these are compared "
            f"by {graph.by.metric.text}. Take solver='exact'"
        )
    if graph.given and policy in ("bridge", "largest"):
        raise InputError(
            f"components={policy!r} looks for near rows in other components, and distances that are given have no "
            "rows; allowed: 'joint', 'per-component' or 'error'. Or add edges to the graph"
        )
    auto = isinstance(asked.n_components, str)
    wanted = max(1, min(AUTO, n - 2)) if auto else int(asked.n_components)
    spectrum = spectral.Spectrum(wanted, policy, asked.tol, asked.max_passes, seed, landmarks)
    kernel = (
        [weighted_kernel_stage(asked.alpha, n, 2 * n * k, graph.vectors)]
        if graph.weighted
        else kernel_stages(asked, graph, policy)
    )
    edges = "bridge" if policy == "bridge" and rows else graph.stage
    scaling = {"t": asked.t, "delta": asked.delta, "truncation": asked.truncation}
    lists = graph.radius is None and not graph.dense
    return [
        *kernel,
        spectral.components_stage(edges, n, k, block),
        spectral.solve_stage(spectrum, edges, n, k, block),
        coordinates.coordinates_stage(policy, wanted, scaling, graph, auto=auto, rows=rows),
        judgement.judgement_stage(graph, wanted, asked.tol, seed, rows=rows, lists=lists),
    ]


def kernel_stages(asked: WalkOptions, graph: GraphShape, policy: str) -> list[Stage]:
    """Bridges, the dimension and ε from what the graph says of distances, and the weights of its edges."""
    n, k, bridged, lists = graph.n, _neighbors(asked, graph), policy == "bridge", graph.radius is None
    target = Target(asked.target, asked.dimension) if asked.target else None
    asked_k = graph.asked or k
    choice = bandwidth_of(asked, lists and asked_k == n - 1 and not graph.given, bridged)
    if not lists and (choice.local or isinstance(choice.epsilon, str)):
        raise InputError(f"a graph of a radius has one scale, {ONE_SCALE}: give epsilon (or sigma) as a number")
    scale_stage, weighted = "", WEIGHTS in graph.vectors
    if graph.radius is not None:
        radius = float(graph.radius)
        scales = [dimension_within_stage(radius, 2 * n * k), bandwidth_within_stage(choice, radius)]
    else:
        lengths = PAIRS if graph.dense else EDGES if graph.given else LISTS
        scale_stage = lengths.neighbors
        known = lengths.neighbors, lengths.nearest
        scales = [dimension_of_pairs_stage(n) if graph.dense else dimension_stage(n, k, *known)]
        by_mass = weighted and not graph.dense and asked_k < n - 1
        if by_mass:
            scales.append(mass_scales_stage(scale_stage, n, asked_k, k, graph.block))
            lengths, scale_stage = replace(lengths, scales=SCALES), SCALES
        pairs = n if weighted and choice.complete else 0
        scales.append(bandwidth_stage(choice, replace(lengths, weighted=weighted), pairs))
        choice = replace(choice, within=by_mass and not bridged)
    edges = "bridge" if bridged else "graph"
    first = [bridge_stage(n, k, graph.dtype, graph.by)] if bridged else []
    balanced = asked.normalization == BISTOCHASTIC
    edge_block = min(graph.block, n)
    kernel = kernel_stage(
        choice, asked.alpha, n, k, edge_block, edges, target, scale_stage, graph.vectors, balanced=balanced
    )
    return [*first, *scales, kernel]


def _neighbors(asked: WalkOptions, graph: GraphShape) -> int:
    """Neighbors of a row; of a graph of a radius half of the edges that a plan counts with."""
    return graph.k or asked.n_neighbors or graph.n - 1 if graph.radius is None else -(-min(graph.n, EDGES_PLANNED) // 2)


def bandwidth_of(asked: WalkOptions, complete: bool, bridged: bool = False) -> Bandwidth:
    """The kernel; for ``bandwidth="auto"`` of one scale where ε is given, or every pair is taken (``complete``)."""
    given = asked.epsilon != "auto" or asked.sigma is not None or asked.truncated or complete
    kernel = asked.bandwidth if asked.bandwidth != "auto" else "fixed" if given else "adaptive"
    epsilon = asked.epsilon if isinstance(asked.epsilon, str) else float(asked.epsilon)
    if asked.sigma is not None:
        epsilon = 2.0 * asked.sigma**2
    return Bandwidth(epsilon, kernel, asked.truncated, complete, bridged, target=asked.target is not None)


def generator_eigenvalues(eigenvalues: Any, scale: dict[str, Any], kernel: dict[str, Any]) -> Any:
    """(4/ε′)(1 − λ)/(share of the walk that moves), in units of the kernel; None of a model before 0.2."""
    if "effective_epsilon" not in scale or "stayed" not in kernel:
        return None
    unit = kernel["unit"] or 1.0 - kernel["stayed"]
    return 4.0 * (1.0 - eigenvalues) / (scale["effective_epsilon"] * unit)


# -------------------------------------------------------------------------------------------------------- spectral
# Methods whose coordinates are eigenvectors of the random walk on a graph: what they share.


class SpectralEstimator(WeightedGraphEstimator):
    """Base of the methods that take rows, a neighbor graph or weights, and find eigenvectors of the walk on it.

    They have the parameters below, and say in :meth:`_walk` what walk it is.
    """

    frame_rule: ClassVar = FrameRule(top=1.0)
    compiled_from: ClassVar = MANY_ROWS
    saved_stages: ClassVar[Mapping[str, tuple[str, ...]]] = {
        **QUERY_ARRAYS,
        "bandwidth": ("",),
        "kernel": ("q",),
        WEIGHTS: ("values",),
        DENSITY: ("values",),
        SCALES: ("rho_squared",),
        "components": ("labels",),
        "solve": ("right", "averaged", "eigenvalues", "residuals"),
        "coordinates": ("embedding", "labels"),
        "weights": ("starts",),
    }
    shown_arrays: ClassVar = {"solve": ("eigenvalues", "residuals")}

    kept_stages: ClassVar = {"kernel": ("degree", "mass"), "survey": ("sample",)}

    wider = WIDER
    radius: float | None
    tol: float

    def _rule(self, n: int) -> Rule:
        """Nearest rows, or rows within a radius; of given distances only the nearest."""
        if self.radius is not None and self._pairwise():
            raise InputError(
                "radius: metric='precomputed' takes the n_neighbors nearest of the given distances, whose scales the "
                "kernel follows; give n_neighbors and no radius"
            )
        return super()._rule(n)

    def _after_graph(self, graph: GraphShape, seed: int) -> list[Stage]:
        walk = self._walk(graph)
        if walk.n_components != "auto":
            require_rows(int(walk.n_components), graph.n)
        return walk_stages(walk, graph, seed)

    @abstractmethod
    def _walk(self, graph: GraphShape) -> WalkOptions:
        """The walk, and which of its eigenvectors are coordinates."""

    def _set_fitted(self, run: Run) -> None:
        """Coordinates, residuals, the scale and the graph as attributes."""
        self.residuals_ = read_array(run.path("solve", "residuals"))
        self.n_components_ = run.results("coordinates")["n_components"]
        scale = run.results("bandwidth") if run.has("bandwidth") else {"kernel": BINARY}
        self.epsilon_ = None if scale.get("kernel") == BINARY else scale["epsilon"]
        self._set_array("embedding_", "coordinates", "embedding")
        self._set_graph(run)

    def _certificate(self, run: Run) -> dict[str, Any]:
        found = certificate(run, self.tol)
        if run.kind != "model" and run.results("kernel").get(WEIGHTS):
            found |= weights_in(run)
            found["warnings"] = {**found["warnings"]}
            found["warnings"]["degenerate"] = [*found["warnings"].get("degenerate", []), *scale_warnings(found)]
        return found

    def _extension(self, run: Run) -> Extension:
        """The α-correct Nyström formula; a row that was fitted gets its ``embedding_`` back, to ``tol``.

        ψ_l(x) = λ_l^{-1} Σ_j p(x, j) ψ_l(j), p(x, j) = k(x, x_j) q_j^{-α} / Σ_m k(x, x_m) q_m^{-α}, over the rows j
        that the symmetric graph would join to x.
        """
        from bigembed.maps.walk.extension import extend_rows, grouping, model_of

        model = model_of(run, self.metric)
        d, near = model.shape.d, grouping(model)
        return Extension(extend_rows, model, model.fitted.width, d, grouping=near, cheap=False, sparse=True)
