"""Isomap (Tenenbaum, de Silva, Langford): classical scaling of shortest paths along a neighbor graph."""

from __future__ import annotations

from dataclasses import KW_ONLY, dataclass
from typing import Annotated, Any, ClassVar

import numpy as np

from bigembed.errors import InputError, InputTypeError
from bigembed.estimator import certificate, frame, on_graph, seed_of
from bigembed.estimator.extension import Extension
from bigembed.estimator.graph_input import ISLANDS, GraphShape, parts_from, require_rows
from bigembed.maps import graph_judgement, isomap, landmark_rows
from bigembed.maps.isomap.extension import degenerate, extend_rows, grouping, model_of, parts_warnings, unconverged
from bigembed.maps.isomap.scaling import coordinates_stage, exact_solve_stage, landmark_solve_stage
from bigembed.neighbors import given, graph_stages, search, shortest_paths
from bigembed.neighbors.components import bridge_stage
from bigembed.neighbors.graph import NeighborGraph
from bigembed.runtime import parameters
from bigembed.runtime.blocks import Array
from bigembed.stages import Run, Stage
from bigembed.store.arrays import read_array

# ---------------------------------------------------------------------------------------------------------- stages
# The stages of an Isomap that follow a graph.

AUTO_ROWS = 4_096
"""Up to here solver="auto" is exact."""


def geodesic_stages(asked: Any, graph: GraphShape, seed: int) -> list[Stage]:
    """Components, distances along the graph, their scaling, coordinates, and how far to trust them.

    ``asked`` has the parameters of :class:`~bigembed.Isomap`.
    """
    n, m, block = graph.n, int(asked.n_components), min(graph.block, graph.n)
    policy = ISLANDS if asked.components == "auto" else asked.components
    edges, by = graph.planned_edges, graph.by
    if graph.given and policy in ("bridge", "largest"):
        raise InputError(
            f"components={policy!r} looks for near rows in other components, and distances that are given have no "
            "rows; allowed: 'auto', 'error' or 'per-component'. Raise n_neighbors or radius, or add edges to the graph"
        )
    lengths, first = _components(policy, graph, edges, block)
    parts = "bridge" if policy == ISLANDS and not graph.given else "components"
    judgement = graph_judgement.map_judgement_stages(graph, m, seed, parts="" if policy == "bridge" else parts)
    if asked.solver == "exact" or (asked.solver == "auto" and n <= AUTO_ROWS):
        return [
            *first,
            isomap.all_distances_stage(lengths, policy, m, n, edges),
            exact_solve_stage(policy, m, n, asked.tol, asked.max_passes, seed, graph.vectors),
            coordinates_stage(policy, m, n, block, by=by, parts=parts),
            *judgement,
        ]
    count, rule = min(n, int(asked.n_landmarks)), "uniform" if graph.given else asked.landmarks
    return [
        *first,
        isomap.landmarks_stage(policy, m, count, rule, graph.row_bytes, n, seed, graph.vectors),
        isomap.landmark_distances_stage(lengths, n, edges, count, block),
        landmark_solve_stage(policy, m, n, count, block, graph.vectors),
        coordinates_stage(policy, m, n, block, count, by, parts),
        *judgement,
    ]


def _components(policy: str, graph: GraphShape, edges: int, block: int) -> tuple[tuple[str, ...], list[Stage]]:
    """The stages that may hold the graph that is embedded (:func:`lengths_in`); the bridges that the policy asks for,
    and the components of what is joined then."""
    n, k = graph.n, -(-edges // (2 * graph.n))
    lengths: tuple[str, ...] = ("graph",)
    bridges: list[Stage] = []
    if policy == "bridge":
        lengths, bridges = ("bridge",), [bridge_stage(n, k, graph.dtype, graph.by)]
    if policy == ISLANDS and not graph.given:
        lengths, bridges = ("bridge", "graph"), [bridge_stage(n, k, graph.dtype, graph.by, joined_parts)]
    return lengths, [*bridges, isomap.graph_components_stage(lengths, edges, n, block)]


def joined_parts(found: dict[str, Any]) -> int:
    """How many components are parts, and none an island."""
    return parts_from(ISLANDS, found).count


def is_bridged(run: Run) -> bool:
    """Whether the graph that was embedded is one with bridges (of one part there are none to build)."""
    return run.has("bridge") and bool(run.results("bridge")["bridges"] or not run.results("bridge").get("parts"))


# ---------------------------------------------------------------------------------------------------------- isomap
# Isomap (Tenenbaum, de Silva, Langford): classical scaling of shortest paths on a neighbor graph.


@dataclass(eq=False, repr=False)
class Isomap(on_graph.WeightedGraphEstimator, registered="isomap"):
    """Embed rows or a neighbor graph by Isomap: distances between coordinates are those along the data (seed 000 §6).

    The graph joins each row to its k nearest rows or to all within a radius, an edge being as long as its rows are
    apart. With Δ the squared lengths of shortest paths, B = −½ H Δ H = V Λ Vᵀ, H = I − 11ᵀ/n, the coordinates are
    V_m Λ_m^{1/2}. ``solver="landmarks"`` takes Δ between L landmarks only and places every other row by its distances
    δ to them at −½ L^# (δ − μ) (de Silva & Tenenbaum 2004), turned to the principal axes of all rows. With weights w
    (``sample_weight``), H subtracts weighted means, √w B √w is solved, the axes are weighted, and landmarks are drawn
    by w.

    Parameters
    ----------
    n_components : int ≥ 1
        The number m of coordinates.
    n_neighbors : int ≥ 1 or None
        The number k of neighbors, the point itself not counted. Paths exceed distances along a surface by some 3 % at
        10 and 1.5 % at 15.
    radius : float > 0 or None
        The radius within which all rows are joined instead (then n_neighbors=None), in units of the data.
    solver : {"exact", "landmarks", "auto"}
        The solver: "exact" takes all pairs (n ≤ 100 000, 4·n² bytes of disk), "landmarks" 4·n·L bytes; "auto" is exact
        for n ≤ 4096.
    n_landmarks : int > n_components
        The number L of landmarks. 100 to 300 are usual.
    landmarks : {"max-min", "uniform"}
        How landmarks are chosen: "max-min" takes rows far from each other, among 30·L sampled rows; "uniform" takes
        any, as always with given distances.
    metric : str or function
        The distance between rows: "euclidean", "cosine" (between rows scaled to length one), another one of
        :func:`bigembed.build_neighbor_graph`, or a function of two rows. With "precomputed" X holds distances (n, n),
        all of them, or as a SciPy sparse matrix the lengths of the edges there are. The edges are the k smallest of
        each row, or those within the radius; ``transform`` takes distances of new rows to the fitted ones (k, n): all
        of them, or, sparse, those to their nearest rows, as neighbors transformers leave them.
    components : {"auto", "bridge", "largest", "per-component", "error"}
        What to do with a disconnected graph. With "auto", islands are components of fewer than max(2, n/100) rows
        (n ≤ 10⁴), 100 rows (n ≤ 10⁵) or n/1000 rows (beyond): their rows take the coordinates of their nearest row in a
        larger component. The larger ones are joined by the shortest edges found between them, at their true length;
        with given distances, where there are no rows, each is embedded by itself, about its own mean, and islands are
        at 0. "bridge" joins all components in this way. "largest" embeds the largest, and the other rows take the
        coordinates of their nearest row in it. "per-component" embeds each by itself. "error" refuses the graph. Given
        distances take "auto", "per-component" and "error".
    recall : float in (0, 1]
        The target share of true neighbors in the graph; it is measured, and warned about where missed.
    algorithm : {"auto", "cells", "nn-descent", "pynndescent"}
        How neighbors are searched. "cells" searches exactly in the cells of near rows; "nn-descent" is for rows of high
        intrinsic dimension; "auto" takes cells unless these would miss ``recall`` and NN-descent fits.
    algorithm_params : dict or None
        Parameters for ``pynndescent.NNDescent``, such as n_trees or n_iters, with algorithm="pynndescent"; else None.
    tol : float in (0, 1)
        The largest residual of the exact solver, relative to tr B.
    max_passes : int ≥ 3
        The passes over all pairs before the exact solver gives up (with a warning).
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
        The coordinates, in the order of the input: NumPy for NumPy input, else a lazy Dask array. The largest |entry|
        of each column is positive.
    eigenvalues_ : array of shape (m,)
        The sums of squares of the coordinates, descending: the eigenvalues of B (exact), or what the landmarks make of
        them. Of several components with components="per-component" the shape is (c, m).
    residuals_ : array of shape (m,)
        The residuals of the exact solver, relative to tr B; those of the landmarks are rounding, for their problem is
        solved densely.
    n_components_, n_features_in_ : int
        The numbers of coordinates and of columns of the rows.
    dist_matrix_ : array of shape (n, n), float32
        All geodesic distances, lazy, of the exact solver and a connected graph.
    reconstruction_error_ : float
        ‖B − B_m‖_F / n, of the landmarks where these were used (scikit-learn's definition).
    landmarks_ : array of shape (L,), or None
        The rows of the input that are landmarks.
    labels_ : array of shape (n,)
        The component of each row, 0 the largest; −1 for the rows of islands with components="auto".
    graph_ : NeighborGraph
        The neighbor graph.
    certificate_ : dict
        How far the map can be trusted: the smallest eigenvalue seen (negative ones say how far the distances are from
        Euclidean), rounds and visits of the shortest paths, recall, components.

    Raises
    ------
    InputError
        If rows hold NaN or infinity (they are named), or parameters are out of range.
    DisconnectedGraphError
        If the graph has several components and components="error"; their sizes are listed.
    PlanError
        If there are too many rows for solver="exact", or a radius joins too many.

    Notes
    -----
    Cost: the graph (2–3 passes over the rows); landmarks: about 2·L/8 visits of every block of the graph, 3 passes
    over the distances; exact: n shortest-path trees, some 25 passes over n² distances. Memory: blocks of the graph, and
    of distances (block × L), a worker; nothing of size n·L or n² in one process.

    References
    ----------
    J. Tenenbaum, V. de Silva, J. Langford, A global geometric framework for nonlinear dimensionality reduction,
    Science 290 (2000). V. de Silva, J. Tenenbaum, Sparse multidimensional scaling using landmark points (2004).
    Y. Bengio et al., Out-of-sample extensions for LLE, Isomap, MDS, eigenmaps, and spectral clustering, NIPS 16 (2003).

    Examples
    --------
    >>> import numpy as np
    >>> angle = np.linspace(0, np.pi, 100)
    >>> half = Isomap(n_components=1, n_neighbors=2).fit(np.column_stack([np.cos(angle), np.sin(angle)]))
    >>> float(np.ptp(half.embedding_).round(2))
    3.14
    """

    of_lengths = True
    frame_rule: ClassVar = frame.FrameRule("whole", shift=True)
    saved_stages: ClassVar = {
        **graph_stages.QUERY_ARRAYS,
        "components": ("labels",),
        "landmarks": ("rows", "component"),
        "geodesics": ("distances", "starts", "pairs", "positions"),
        "solve": ("mean", "matrix", "offset", "eigenvalues", "residuals"),
        "coordinates": ("embedding", "labels"),
    }
    shown_arrays: ClassVar = {"landmarks": ("rows",), "solve": ("eigenvalues", "residuals")}

    n_components: parameters.Count = 2
    _: KW_ONLY
    n_neighbors: parameters.Count | None = 15
    radius: parameters.Positive | None = None
    solver: Annotated[str, parameters.one_of("auto", "exact", "landmarks")] = "auto"
    n_landmarks: int = 200
    landmarks: Annotated[str, parameters.one_of(*landmark_rows.SELECTIONS)] = "max-min"
    metric: given.GraphMetric = "euclidean"
    components: Annotated[str, parameters.one_of("auto", *isomap.POLICIES)] = "auto"
    recall: Annotated[float, parameters.interval(0, 1, closed="right")] = 0.99
    algorithm: Annotated[str, parameters.one_of(*search.ALGORITHMS)] = "auto"
    algorithm_params: dict[str, Any] | None = None
    tol: parameters.Fraction = 1e-8
    max_passes: Annotated[int, parameters.at_least(3)] = 300
    random_state: parameters.Seed = 0

    def _after_graph(self, graph: GraphShape, seed: int) -> list[Stage]:
        require_rows(self.n_components, graph.n)
        return geodesic_stages(self, graph, seed)

    def geodesic_distances(self, rows: Any) -> Array:
        """Find the lengths of shortest paths from rows of the input, as :func:`bigembed.geodesic_distances`.

        Parameters
        ----------
        rows : int or array of shape (s,)
            The rows of the input, from 0 to n − 1.

        Returns
        -------
        ndarray of shape (s, n), float64
            The lengths, (n,) for a single row.
        """
        return shortest_paths.geodesic_distances(self._paths_on(), rows)

    def shortest_path(self, i: int, j: int) -> tuple[float, Array]:
        """Find the shortest path between two rows of the input, as :func:`bigembed.shortest_path`.

        Parameters
        ----------
        i, j : int
            The two rows of the input, from 0 to n − 1.

        Returns
        -------
        length : float
            The length of the path.
        rows : ndarray of int64
            The rows on it.
        """
        return shortest_paths.shortest_path(self._paths_on(), i, j)

    @property
    def dist_matrix_(self) -> Any:
        """Return all geodesic distances (n, n), float32, lazily: of the exact solver and a connected graph."""
        self._check_fitted()
        if not self._run.has("geodesics") or self.certificate_["solver"] != "exact":
            raise AttributeError("dist_matrix_: only solver='exact' keeps the distances between all rows")
        if self._run.results("components")["components"] > 1:
            raise AttributeError("dist_matrix_: the graph has several components; some distances do not exist")
        return self._run.array("geodesics", "pairs/0")

    def _paths_on(self) -> NeighborGraph:
        self._check_fitted()
        if not hasattr(self, "graph_"):
            then = "and call bigembed.geodesic_distances or shortest_path"
            raise InputTypeError(f"paths need the neighbor graph{on_graph.without_graph(self)}, {then}")
        graph: NeighborGraph = self.graph_
        return graph

    def _require(self, need: parameters.Requirements) -> None:
        both = self.radius is not None and self.n_neighbors is not None
        need(not both, "radius", "None, or a number > 0, and then n_neighbors=None")
        need(
            self.radius is not None or self.n_neighbors is not None, "n_neighbors", "an integer ≥ 1; None with a radius"
        )
        least = self.n_components + 1 if parameters.is_integer(self.n_components) else 2
        need(
            parameters.is_integer(self.n_landmarks) and self.n_landmarks >= least,
            "n_landmarks",
            "an integer > n_components (fewer landmarks do not span the coordinates)",
        )

    def _set_fitted(self, run: Run) -> None:
        """Eigenvalues, coordinates, landmarks and the graph as attributes."""
        solve = run.results("solve")
        self.eigenvalues_ = read_array(run.path("solve", "eigenvalues"))
        self.residuals_ = read_array(run.path("solve", "residuals"))
        self.n_components_ = solve["n_components"]
        errors = [solve["solved"][str(c)]["error"] for c in solve["targets"]]
        self.reconstruction_error_ = errors[0] if len(errors) == 1 else np.array(errors)
        self.landmarks_ = read_array(run.path("landmarks", "rows")) if run.has("landmarks") else None
        self._set_array("embedding_", "coordinates", "embedding")
        self._set_array("labels_", "coordinates", "labels")
        self._set_graph(run, "bridge" if is_bridged(run) else "graph")

    def _certificate(self, run: Run) -> dict[str, Any]:
        solve, coordinates = run.results("solve"), run.results("coordinates")
        policy, bridged = run.parameters("coordinates")["policy"], is_bridged(run)
        components = run.results("bridge" if bridged and policy == ISLANDS else "components")
        out: dict[str, Any] = {
            "solver": solve["solver"],
            "eigenpairs": solve["solved"],
            "converged": solve["converged"],
            "passes": solve["passes"],
            "geodesics": run.results("geodesics"),
            "components": components["components"],
            "component_sizes": components["sizes"][:20],
            "parts": coordinates.get("parts", components["components"]),
            "filled_rows": coordinates["filled_rows"],
            **certificate.input_of(run),
            "seed": seed_of(self, run, "solve", "landmarks"),
        }
        for stage in ("recall", "landmarks", "density", "judgement", *(("bridge",) if bridged else ())):
            if run.has(stage):
                out[stage] = run.results(stage)
        seen, apart = out.get("judgement", {}), self.components == "per-component" and components["components"] > 1
        out["warnings"] = {
            "convergence": unconverged(out["eigenpairs"]),
            "recall": certificate.recall_warnings(out),
            "components": (
                parts_warnings(out, certificate.joining_advice(out, ""))
                if policy == ISLANDS
                else certificate.components_warnings(out, policy)
            )
            + certificate.island_warnings(out, run),
            "degenerate": degenerate(out, self.n_components_),
            "localized": [] if apart else certificate.spike_warnings(seen),
            "map": certificate.map_warnings(seen, apart),
        }
        return out

    def _extension(self, run: Run) -> Extension:
        """δ(x) = min over the rows j joined to x of ‖x − x_j‖ + d(j, ·), and y = −½ L^# (δ² − μ) (Bengio et al. 2003).

        The exact solver's formula is the same with all rows as landmarks. A row that was fitted gets its own distances.
        """
        model = model_of(run, self.metric)
        d, near = model.shape.d, grouping(model)
        return Extension(extend_rows, model, model.width, d, grouping=near, cheap=False, sparse=True)
