"""The stages of a random walk that follow a neighbor graph: its kernel, its eigenvectors, and what estimators of
them share.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields, replace
from functools import partial
from typing import Any, ClassVar, Self

import numpy as np

from bigembed.errors import InputError, InputTypeError
from bigembed.estimator.extension import Extension
from bigembed.estimator.frame import FrameRule
from bigembed.estimator.graph_input import (
    ISLANDS,
    GraphShape,
    normalize_block,
    row_sums,
    weigh_both,
    weighted_kernel_stage,
    weighted_sums,
    with_weights,
)
from bigembed.estimator.on_graph import WeightedGraphEstimator
from bigembed.maps.bandwidth import (
    EDGES,
    KERNEL,
    LISTS,
    PAIRS,
    Bandwidth,
    bandwidth_stage,
    bandwidth_within_stage,
    own_scales,
)
from bigembed.maps.kernels import BINARY, Target, Walk, local_squared_block
from bigembed.maps.mass_scales import EQUAL, SCALES, WIDER, mass_scales_stage
from bigembed.maps.walk.coordinates import coordinates_stage
from bigembed.maps.walk.judgement import judgement_stage
from bigembed.maps.walk.landmark_solve import Landmarks
from bigembed.maps.walk.spectral import Spectrum, components_stage, solve_stage
from bigembed.neighbors.components import bridge_stage
from bigembed.neighbors.given.distances import Rule
from bigembed.neighbors.graph_stages import QUERY_ARRAYS
from bigembed.neighbors.radius import EDGES_PLANNED
from bigembed.neighbors.row_weights import DENSITY, WEIGHTS, values_path
from bigembed.quality.dimension import dimension_of_pairs_stage, dimension_stage, dimension_within_stage
from bigembed.runtime.blocks import Array
from bigembed.stages.cost import ArraySpec, Cost
from bigembed.stages.runs import Run
from bigembed.stages.stage import Context, Stage
from bigembed.store.arrays import read_array, write_array
from bigembed.store.matrix import StoredMatrix, write_values
from bigembed.store.spaces import StoredSpace

# -------------------------------------------------------------------------------------------------------- affinity
# The kernel of a stored graph: weights, normalization, degrees, one block at a time.


def kernel_stage(
    choice: Bandwidth,
    alpha: float,
    n: int,
    n_neighbors: int,
    block: int,
    graph: str = "graph",
    target: Target | None = None,
    scales: str = "search",
    vectors: tuple[str, ...] = (),
) -> Stage:
    """Weights K/(q_i q_j)^α on the graph, q = K1, and the degrees d of the normalized kernel.

    ``scales``: the stage with the distance to the k-th neighbor, which is the scale ρ of a row; empty: rows have one.
    ``vectors``: of weights w of the rows q = Kw, and what is stored is w_i W_ij w_j and w_i d_i, d = Ww: then the walk
    is P_ij = W_ij w_j/d_i, its stationary distribution ∝ w_i d_i, and all that follows is as without weights.

    With ``target`` α follows from the operator that is wanted and the dimension, q is divided by ρ^d, and the walk is
    held back where it would move too fast: see :mod:`bigembed.maps.kernels`.
    """
    parameters: dict[str, Any] = {"alpha": alpha, KERNEL: choice.kernel, "truncated": choice.truncated}
    parameters |= {"bridged": True} if choice.bridged else {}
    parameters |= {"target": target.name, "dimension": target.dimension} if target else {}

    def holds(results: Mapping[str, Any]) -> bool:
        # (before, rows below the floor were raised to the floor itself, and nothing said to what)
        return not (choice.local and results.get("floored")) or results.get("floored_to") == "median"

    edges = 2 * n * n_neighbors
    writes = [ArraySpec("weights/*", edges, dtype="f8" if target else "f4")]
    writes += [ArraySpec(f"{name}/*", n) for name in ("q", "degree", *(("mass",) if target else ()))]
    cost = Cost.of(
        reads=[ArraySpec("edges", edges, 2, "f4", 3)],
        writes=writes,
        leaves=[ArraySpec("ρ, q and degrees of the rows and of the halo", n, 6)],
        task=[ArraySpec("edges", 2 * block * n_neighbors, 6 if target else 5)],
        passes=2,
    )
    inputs = tuple(dict.fromkeys(name for name in (graph, scales, "bandwidth", *vectors) if name))
    return Stage(
        "kernel",
        inputs,
        parameters,
        partial(run_kernel, choice=choice, alpha=alpha, graph=graph, target=target, scales=scales),
        cost,
        holds=holds,
    )


def run_kernel(
    context: Context, choice: Bandwidth, alpha: float, graph: str, target: Target | None, scales: str
) -> dict[str, Any]:
    distances = context.home.matrix(graph)
    rows = distances.rows
    space = StoredSpace(distances, context.exchange)
    found = context.results("bandwidth")
    epsilon, farthest, out = found["epsilon"], context.of(scales, "rho_squared") if scales else "", context.path("")
    mass, wanted = values_path(context), values_path(context, DENSITY)
    factors = (rows, mass, wanted)
    rho = space.sweep(rho_block, writes=["rho"], posts=["rho"], arguments=(farthest, found["floor"], *factors))
    smallest = min(part[0] for part in rho)
    walk = target.walk(choice.local, found["intrinsic_dimension"], smallest) if target else None
    power = alpha if walk is None else walk.alpha
    shared = (distances, epsilon, choice, walk)
    space.sweep(density_block, reads=["rho"], halos=["rho"], writes=["q"], posts=["q"], arguments=(*shared, out))
    parts = space.sweep(weights_block, reads=["rho", "q"], halos=["rho", "q"], arguments=(*shared, power, out))
    stayed = sum(part[2] for part in parts) / sum(rows)
    floored = sum(part[1] for part in rho)
    return {
        "edges": sum(part[0] for part in parts),
        "nonzero": sum(part[1] for part in parts),
        "rows": list(rows),
        "alpha": power,
        "unit": walk.unit if walk else 0.0,
        "stayed": stayed,
        "floored": floored,
        **({"floored_to": "median"} if floored else {}),
        **({WEIGHTS: True} if mass else {}),
        **({DENSITY: True} if wanted else {}),
    }


def rho_block(
    b: int, farthest: str, floor: float, rows: Sequence[int], weights: str, wanted: str
) -> tuple[tuple[Array], tuple[float, int]]:
    """Scale ρ of each row, (rows, 1): the distance to its k-th neighbor, or the median one; the smallest, and how
    many are below ``floor``. Where ``farthest`` is empty rows have one scale, 1. Where there are ``weights`` w they are
    a second column; where a density μ is ``wanted``, w√μ is a third one."""
    if not farthest:
        return (with_weights(b, np.ones((rows[b], 1)), weights, wanted),), (1.0, 0)
    rho = np.sqrt(read_array(f"{farthest}/{b}")[:, None].astype(np.float64))
    raised = own_scales(rho, floor)
    return (with_weights(b, raised, weights, wanted),), (float(raised.min()), int(np.count_nonzero(rho < floor)))


def _unnormalized(
    b: int, rho: Array, halo_rho: Array, distances: StoredMatrix, epsilon: float, choice: Bandwidth
) -> Array:
    block = distances.block(b)
    squared = local_squared_block(block, rho[:, 0], halo_rho[:, 0], choice.kernel) if choice.local else block.data
    weights = choice.weights(squared, epsilon)
    if choice.within:
        scales = np.concatenate([rho[:, 0], halo_rho[:, 0]]) ** 2
        reach = np.maximum(np.repeat(scales[: len(rho)], np.diff(block.indptr)), scales[block.indices])
        weights[block.data > reach * (1 + EQUAL)] = 0.0
    return weights


def density_block(
    b: int,
    rho: Array,
    halo_rho: Array,
    distances: StoredMatrix,
    epsilon: float,
    choice: Bandwidth,
    walk: Walk | None,
    out: str,
) -> tuple[tuple[Array], None]:
    """q = K1 of one block, (rows, 1), the density of the rows up to a factor; kept for the extension to new rows.

    Where rows have weights, a second column of ``rho``, q = Kw.
    """
    mass = weighted_sums(distances.block(b), _unnormalized(b, rho, halo_rho, distances, epsilon, choice), rho, halo_rho)
    q = mass if walk is None else walk.density(mass, rho[:, 0])
    write_array(f"{out}q/{b}", q)
    if walk is not None:
        write_array(f"{out}mass/{b}", mass)
    return (q[:, None],), None


def weights_block(
    b: int,
    rho: Array,
    q: Array,
    halo_rho: Array,
    halo_q: Array,
    distances: StoredMatrix,
    epsilon: float,
    choice: Bandwidth,
    walk: Walk | None,
    alpha: float,
    out: str,
) -> tuple[tuple[()], tuple[int, int, float]]:
    """Write the normalized weights and their row sums, the degrees; edges, those that are not 0, Σ W_ii/d_i.

    Where rows have weights, the last column of ``rho``, w_i W_ij w_j is written, and w_i d_i.
    """
    kernel = _unnormalized(b, rho, halo_rho, distances, epsilon, choice)
    block = distances.block(b)
    weights = weigh_both(block, normalize_block(block, kernel, q[:, 0], halo_q[:, 0], alpha), rho, halo_rho)
    own = block.diagonal
    if walk is None:
        weights = weights.astype(np.float32)
    else:
        weights[own] = 0.0
        weights[own] = walk.stay_share(row_sums(block.indptr, weights), rho[:, 0])
    degree = row_sums(block.indptr, weights)
    write_values(f"{out}weights", b, weights)
    write_array(f"{out}degree/{b}", degree)
    stayed = np.divide(weights[own], degree, out=np.zeros(len(degree)), where=degree > 0)
    stayed = stayed * rho[:, 1] if rho.shape[1] > 1 else stayed
    return (), (len(weights), int(np.count_nonzero(weights)), float(stayed.sum()))


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
    kernel = (
        [weighted_kernel_stage(asked.alpha, n, 2 * n * k, graph.vectors)]
        if graph.weighted
        else _kernel_stages(asked, graph, policy)
    )
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
    asked_k = graph.asked or k
    choice = bandwidth_of(asked, lists and asked_k == n - 1 and not graph.given, bridged)
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
    if WEIGHTS in graph.vectors and lists:
        lengths = PAIRS if graph.dense else EDGES if graph.given else LISTS
        by_mass = not graph.dense and asked_k < n - 1
        lengths = replace(lengths, weighted=True, scales=SCALES if by_mass else "")
        scales = [*scales[:-1], bandwidth_stage(choice, lengths)]
        if by_mass:
            scales.insert(1, mass_scales_stage(scale_stage, n, asked_k, k, graph.block))
            scale_stage, choice = SCALES, replace(choice, within=not bridged)
    edges = "bridge" if bridged else "graph"
    first = [bridge_stage(n, k, graph.by)] if bridged else []
    kernel = kernel_stage(choice, asked.alpha, n, k, min(graph.block, n), edges, target, scale_stage, graph.vectors)
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
    saved_stages: ClassVar = {
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
        return walk_stages(self._walk(graph), graph, seed)

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
        from bigembed.estimator.certificate import certificate

        return certificate(run, self.tol)

    def _extension(self, run: Run) -> Extension:
        """The α-correct Nyström formula; a row that was fitted gets its ``embedding_`` back, to ``tol``.

        ψ_l(x) = λ_l^{-1} Σ_j p(x, j) ψ_l(j), p(x, j) = k(x, x_j) q_j^{-α} / Σ_m k(x, x_m) q_m^{-α}, over the rows j
        that the symmetric graph would join to x.
        """
        from bigembed.maps.walk.extension import extend_rows, grouping, model_of

        model = model_of(run, self.metric)
        d, near = model.shape.d, grouping(model)
        return Extension(extend_rows, model, model.fitted.width, d, grouping=near, cheap=False, sparse=True)
