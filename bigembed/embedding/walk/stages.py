"""The stages of a random walk and its eigenvectors that follow a neighbor graph, or a user's weights."""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import Any, Self

from bigembed.embedding.graph.parts import ISLANDS
from bigembed.embedding.graph.shape import GraphShape
from bigembed.embedding.graph.weights import weighted_kernel_stage
from bigembed.embedding.walk.coordinates import coordinates_stage
from bigembed.embedding.walk.judgement import judgement_stage
from bigembed.embedding.walk.landmark_solve import Landmarks
from bigembed.embedding.walk.spectral import Spectrum, components_stage, solve_stage
from bigembed.errors import InputError, InputTypeError
from bigembed.kernels.affinity import kernel_stage
from bigembed.kernels.scale import EDGES, LISTS, PAIRS, Bandwidth, bandwidth_stage, bandwidth_within_stage
from bigembed.kernels.target import Target
from bigembed.neighbors.components.bridge import bridge_stage
from bigembed.neighbors.radius import EDGES_PLANNED
from bigembed.quality.dimension import dimension_of_pairs_stage, dimension_stage, dimension_within_stage
from bigembed.stages import Stage

ONE_SCALE = "for rules and local scales come from the distances to the k nearest neighbors, which it does not hold"
"""Why a radius needs a number."""
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
    n, k, block = graph.n, _neighbors(asked, graph), min(graph.block, graph.n)
    rows = not (graph.weighted or graph.given)
    policy = asked.components if asked.components != "auto" else ISLANDS if rows else "joint"
    landmarks = None
    if asked.solver == "landmarks":
        landmarks = Landmarks(int(asked.n_landmarks), asked.landmarks, asked.extension)
    if not rows and (landmarks or (asked.target and graph.weighted)):
        what = "solver='landmarks' interpolates" if landmarks else f"target={asked.target!r} measures distances"
        raise InputTypeError(
            f"{what} between rows, and a graph of {'weights' if graph.weighted else 'given distances'} has none. Give "
            "rows or a NeighborGraph, or leave it out"
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
    spectrum = Spectrum(wanted, policy, asked.tol, asked.max_passes, seed, landmarks)
    kernel = [weighted_kernel_stage(asked.alpha, n)] if graph.weighted else _kernel_stages(asked, graph, policy)
    edges = "bridge" if policy == "bridge" and rows else graph.stage
    scaling = {"t": asked.t, "delta": asked.delta, "truncation": asked.truncation}
    lists = graph.radius is None and not graph.dense
    return [
        *kernel,
        components_stage(edges, n, k, block),
        solve_stage(spectrum, edges, n, k, block),
        coordinates_stage(policy, wanted, scaling, graph, auto=auto, rows=rows),
        judgement_stage(graph, wanted, asked.tol, seed, rows=rows, lists=lists),
    ]


def _kernel_stages(asked: WalkOptions, graph: GraphShape, policy: str) -> list[Stage]:
    """Bridges, the dimension and ε from what the graph says of distances, and the weights of its edges."""
    n, k, bridged, lists = graph.n, _neighbors(asked, graph), policy == "bridge", graph.radius is None
    target = Target(asked.target, asked.dimension) if asked.target else None
    choice = bandwidth_of(asked, lists and k == n - 1 and not graph.given, bridged)
    if not lists and (choice.local or isinstance(choice.epsilon, str)):
        raise InputError(f"a graph of a radius has one scale, {ONE_SCALE}: give epsilon (or sigma) as a number")
    if graph.radius is not None:
        radius = float(graph.radius)
        scales = [dimension_within_stage(radius, 2 * n * k), bandwidth_within_stage(choice, radius)]
    elif graph.dense:
        scales = [dimension_of_pairs_stage(n), bandwidth_stage(choice, PAIRS)]
    elif graph.given:
        scales = [dimension_stage(n, k, "graph", "nearest"), bandwidth_stage(choice, EDGES)]
    else:
        scales = [dimension_stage(n, k), bandwidth_stage(choice, LISTS)]
    scale_stage = "graph" if graph.dense or graph.given else "search" if lists else ""
    edges = "bridge" if bridged else "graph"
    first = [bridge_stage(n, k, graph.by)] if bridged else []
    return [*first, *scales, kernel_stage(choice, asked.alpha, n, k, min(graph.block, n), edges, target, scale_stage)]


def _neighbors(asked: WalkOptions, graph: GraphShape) -> int:
    """Neighbors of a row; of a graph of a radius half of the edges that a plan counts with."""
    return graph.k or asked.n_neighbors or graph.n - 1 if graph.radius is None else -(-min(graph.n, EDGES_PLANNED) // 2)


def bandwidth_of(asked: WalkOptions, complete: bool, bridged: bool = False) -> Bandwidth:
    """The kernel; for ``bandwidth="auto"`` of one scale where ε is given, or every pair is taken (``complete``)."""
    given = asked.epsilon != "auto" or asked.sigma is not None or asked.truncated or complete
    rule = asked.bandwidth if asked.bandwidth != "auto" else "fixed" if given else "adaptive"
    epsilon = asked.epsilon if isinstance(asked.epsilon, str) else float(asked.epsilon)
    if asked.sigma is not None:
        epsilon = 2.0 * asked.sigma**2
    return Bandwidth(epsilon, rule, asked.truncated, complete, bridged, target=asked.target is not None)


def generator_eigenvalues(eigenvalues: Any, scale: dict[str, Any], kernel: dict[str, Any]) -> Any:
    """(4/ε′)(1 − λ)/(share of the walk that moves), in units of the kernel; None of a model before 0.2."""
    if "effective_epsilon" not in scale or "stayed" not in kernel:
        return None
    unit = kernel["unit"] or 1.0 - kernel["stayed"]
    return 4.0 * (1.0 - eigenvalues) / (scale["effective_epsilon"] * unit)
