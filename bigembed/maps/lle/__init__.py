"""Locally linear embedding and its variants: coordinates that meet local linear conditions best."""

from __future__ import annotations

from abc import abstractmethod
from dataclasses import KW_ONLY, dataclass, replace
from functools import partial
from typing import Annotated, Any, ClassVar, Self

import numpy as np

from bigembed.errors import InputError, InputTypeError
from bigembed.estimator import certificate, search_of, seed_of
from bigembed.estimator.base import MANY_ROWS
from bigembed.estimator.extension import Extension
from bigembed.estimator.graph_input import ISLAND, ISLANDS, GraphShape
from bigembed.estimator.on_graph import OnGraph, StoredArray
from bigembed.maps import graph_judgement, isomap, landmark_rows, write_coordinates
from bigembed.maps.graph_rows import OrderedRows, find_replaced, first_replaced, repeats_of
from bigembed.maps.lle import landmarks as on_landmarks
from bigembed.maps.lle.solve import POLICIES, Conditions, alignment_stage, solve_stage
from bigembed.neighbors.graph import NeighborGraph
from bigembed.neighbors.graph_stages import QUERY_ARRAYS, neighbor_stages
from bigembed.neighbors.order import Ordered
from bigembed.neighbors.outside_lists import outside_by
from bigembed.neighbors.row_weights import WEIGHTS, row_weight_stages
from bigembed.neighbors.search import ALGORITHMS
from bigembed.neighbors.survey import Shape, shape_of
from bigembed.quality import few_carriers
from bigembed.quality.coordinates import carried_by_few
from bigembed.rows import RowSource
from bigembed.rows.graph_source import GraphSource
from bigembed.runtime.blocks import Array, block_rows
from bigembed.runtime.parameters import Count, Positive, Requirements, Seed, interval, is_integer, one_of
from bigembed.stages import ArraySpec, Context, Cost, Run, Stage
from bigembed.store.arrays import read_array, read_by_id

# ------------------------------------------------------------------------------------------------------- judgement
# How far a map from local conditions can be trusted: what its certificate warns of.

TURNED = 0.1
"""Sine of the angle of a coordinate to the eigenvector from which it is called undetermined."""


def why_solved_so(solve: dict[str, Any], n: int, m: int) -> dict[str, Any]:
    """Why it was solved exactly or by landmarks: the first eigenvalue of the largest part beside rounding.

    Of all n rows it would be about λ (c/n)^{4/m} where c landmarks have λ, if the rows fill m dimensions.
    """
    first = solve["solved"]["0"]
    value, rounding = first["eigenvalues"][0], float(np.finfo(np.float64).eps) * first["norm"]
    all_rows = value * (first["rows"] / n) ** (4 / m) if solve["solver"] == "landmarks" else value
    return {
        "condition": first["condition"],
        "first_eigenvalue": value,
        "rounding": rounding,
        "first_eigenvalue_of_all_rows": all_rows,
        "well_posed": bool(value > rounding),
    }


def unconverged(solve: dict[str, Any]) -> list[str]:
    """Parts whose eigenvectors were not found to the end."""
    return [
        f"component {c} of the graph: the eigensolver stopped after {part['steps']} steps with coordinates that still "
        f"turn (sine of the angle: {min(1.0, max(part['turns'])):.2g}). Ask for another number of components, or raise "
        "n_neighbors"
        for c, part in solve["solved"].items()
        if not part["converged"]
    ]


def degenerate(solve: dict[str, Any]) -> list[str]:
    """Groups of rows that no row outside decides, beside each other in a part."""
    out = []
    for c, part in solve["solved"].items():
        if part["closed"] > 1:
            first = ", ".join(map(str, part["closed_rows"][0]))
            out.append(
                f"component {c} of the graph has {part['closed']} groups of rows whose neighbors all lie in the same "
                f"group (one holds the rows {first}): the first coordinates tell these groups apart. Drop rows that "
                "repeat, or raise n_neighbors"
            )
    return out


def left_open(solve: dict[str, Any]) -> list[str]:
    """Parts in which more coordinates than are asked for meet every condition; groups of rows are named elsewhere."""
    out = []
    for c, part in solve["solved"].items():
        asked, free = len(part["eigenvalues"]), part.get("free", 0)
        if free > asked and part["closed"] <= 1:
            out.append(
                f"component {c} of the graph: {free} or more independent coordinates meet all local conditions (their "
                f"eigenvalues are 0 but for rounding), and {asked} {'is' if asked == 1 else 'are'} asked for: rounding "
                "decides which are found. The conditions are too few. Raise n_neighbors, ask for more coordinates, or "
                "take another method (of HessianLLE with one component own_row='auto')"
            )
    return out


def undetermined(solve: dict[str, Any]) -> list[str]:
    """Coordinates that may be turned among themselves."""
    out = []
    for c, part in solve["solved"].items():
        turned = [at + 1 for at, turn in enumerate(part["turns"]) if turn > TURNED]
        if turned:
            numbers = ", ".join(map(str, turned))
            out.append(
                f"coordinates {numbers} of component {c} of the graph may be turned: their eigenvalues lie too close "
                "together, or to the next. Read them together, or ask for one component more or fewer"
            )
    return out


# ---------------------------------------------------------------------------------------------------------- stages
# The stages of locally linear embedding and its variants, from rows or from a neighbor graph.

AUTO_ROWS = 5_000
"""Up to here solver="auto" is exact."""


def by_landmarks(solver: str, n: int) -> bool:
    """Whether n rows are solved by landmarks."""
    return solver == "landmarks" or (solver == "auto" and n > AUTO_ROWS)


def row_stages(asked: Any, conditions: Conditions, source: RowSource, shape: Shape, seed: int) -> list[Stage]:
    """All stages from rows. ``asked`` has the parameters of :class:`~bigembed.LocallyLinearEmbedding`."""
    refuse_few(asked, shape.n)
    given = source.aligned.get("weights")
    there = () if given is None else row_weight_stages("weights", given, shape.largest_block, True)
    if by_landmarks(asked.solver, shape.n):
        return [*there[:1], *_landmark_stages(asked, conditions, source, shape, seed)]
    source = replace(source, aligned={})  # (the graph is that of the rows, whatever they weigh)
    search: dict[str, Any] = {
        "algorithm": search_of(asked),
        "outside": outside_by(asked.algorithm_params, asked.algorithm, seed),
    }
    graph = neighbor_stages(source, int(asked.n_neighbors), shape.metric, asked.recall, seed, **search)
    vectors = (WEIGHTS,) if there else ()
    exact = _exact_stages(asked, conditions, source, shape, seed, vectors=vectors)
    return [*there[:1], *graph, *there[1:], *exact]


def graph_stages(asked: Any, conditions: Conditions, graph: GraphShape, seed: int) -> list[Stage]:
    """The stages that follow a neighbor graph, which decides what the neighbors are where the solve is exact."""
    if graph.rowless or graph.k is None or graph.dense:
        what = "a graph of your own has no rows" if graph.rowless else "this graph has no lists of k nearest neighbors"
        raise InputTypeError(
            f"{type(asked).__name__} reconstructs each row from its k nearest rows, and {what}. Give rows, or a "
            "NeighborGraph of n_neighbors"
        )
    shape = Shape(graph.n, graph.width, "float64", "euclidean")
    rows = OrderedRows((graph.n, graph.width), np.dtype(np.float64))
    if by_landmarks(asked.solver, graph.n):
        return _landmark_stages(asked, conditions, rows, shape, seed, graph.vectors)
    return _exact_stages(asked, conditions, rows, shape, seed, graph.k, graph.vectors)


def refuse_few(asked: Any, n: int) -> None:
    """InputError for fewer rows than the neighbors or the coordinates need."""
    k, m = int(asked.n_neighbors), int(asked.n_components)
    if n <= max(k, m):
        raise InputError(
            f"n_neighbors={k} and n_components={m} need at least {max(k, m) + 1} rows (the row itself is not "
            f"counted); got n_samples = {n}. Lower them, or give more rows"
        )


def policy_of(asked: Any) -> str:
    """What is done with several components."""
    return ISLANDS if asked.components == "auto" else str(asked.components)


def _exact_stages(
    asked: Any,
    conditions: Conditions,
    source: RowSource,
    shape: Shape,
    seed: int,
    k: int | None = None,
    vectors: tuple[str, ...] = (),
) -> list[Stage]:
    n, m, near, policy = shape.n, int(asked.n_components), k or int(asked.n_neighbors), policy_of(asked)
    block = shape.largest_block
    return [
        isomap.graph_components_stage(("graph",), 2 * n * near, n, block),
        alignment_stage(conditions, shape, near),
        solve_stage(conditions, policy, n, near, m, vectors),
        coordinates_stage(policy, n, m, block),
        graph_judgement.judgement_stage(source, shape, m, seed, ordered=True, parts="components", vectors=vectors),
    ]


def _landmark_stages(
    asked: Any, conditions: Conditions, source: RowSource, shape: Shape, seed: int, vectors: tuple[str, ...] = ()
) -> list[Stage]:
    m, k, count = int(asked.n_components), int(asked.n_neighbors), min(shape.n, int(asked.n_landmarks))
    weighted = [on_landmarks.landmark_masses_stage(source, shape, count, vectors)] if vectors or source.aligned else []
    judged, source = source, replace(source, aligned={})
    return [
        on_landmarks.landmarks_stage(source, count, asked.landmarks, max(k, m) + 1, seed),
        *weighted,
        on_landmarks.landmark_solve_stage(conditions, policy_of(asked), count, k, m, shape.d, bool(weighted)),
        on_landmarks.landmark_coordinates_stage(source, shape, count, k, m, float(asked.reg)),
        graph_judgement.judgement_stage(
            judged, shape, m, seed, ordered=isinstance(source, OrderedRows), vectors=vectors
        ),
    ]


# --------------------------------------------------------------------------------------------------------- aligned
# Methods whose coordinates meet local linear conditions best: locally linear embedding and its variants.


@dataclass(eq=False, repr=False)
class AlignedEstimator(OnGraph):
    """Base of the methods with local linear conditions: see :mod:`bigembed.maps.lle.solve`."""

    embedding_ = StoredArray()
    labels_ = StoredArray()
    aligned = ("weights",)
    compiled_from: ClassVar = MANY_ROWS
    saved_stages: ClassVar = {
        **QUERY_ARRAYS,
        "components": ("labels",),
        "landmarks": ("rows",),
        "solve": ("coordinates", "labels", "eigenvalues", "residuals"),
        "coordinates": ("embedding", "labels"),
    }
    shown_arrays: ClassVar = {"landmarks": ("rows",), "solve": ("labels", "eigenvalues", "residuals")}

    n_components: Count = 2
    _: KW_ONLY
    n_neighbors: Count = 12
    reg: Positive = 1e-3
    solver: Annotated[str, one_of("auto", "exact", "landmarks")] = "auto"
    n_landmarks: int = 3_000
    landmarks: Annotated[str, one_of(*landmark_rows.SELECTIONS)] = "max-min"
    components: Annotated[str, one_of("error", *POLICIES)] = "auto"
    recall: Annotated[float, interval(0, 1, closed="right")] = 0.99
    algorithm: Annotated[str, one_of(*ALGORITHMS)] = "auto"
    algorithm_params: dict[str, Any] | None = None
    random_state: Seed = 0

    @abstractmethod
    def _conditions(self, k: int) -> Conditions:
        """What the coordinates of a row and of its k neighbors should meet."""

    def fit(self, X: Any, y: Any = None, sample_weight: Any = None) -> Self:
        """Fit the map to rows or to a neighbor graph.

        Parameters
        ----------
        X : array of shape (n, d), or NeighborGraph
            Rows, of any kind that :func:`bigembed.open_array` takes, or a NeighborGraph of k neighbors.
        y : None
            Not used; scikit-learn's protocol has it.
        sample_weight : array of shape (n,), or None
            How much each row counts: finite numbers above 0, of any scale. The least squares and the normalization of
            the coordinates are weighted, the neighbors and what they reconstruct are not.

        Returns
        -------
        Estimator
            The estimator itself.
        """
        return self._fit_rows(X, weights=sample_weight)

    def stages(self, source: RowSource) -> list[Stage]:
        """List all stages from rows to coordinates."""
        self._check()
        if isinstance(source, GraphSource):
            return graph_stages(self, self._conditions(1), GraphShape(source.n, source.block, given=True), self._seed())
        shape, k = shape_of(source, "euclidean"), int(self.n_neighbors)
        self._fits(shape.d, k)
        return row_stages(self, self._conditions(k), source, shape, self._seed())

    def _after_graph(self, graph: GraphShape, seed: int) -> list[Stage]:
        """The stages that follow a neighbor graph."""
        exact = not by_landmarks(self.solver, graph.n)
        k = graph.k if exact and graph.k else int(self.n_neighbors)
        found = graph_stages(self, self._conditions(k), graph, seed)  # (which refuses graphs without rows)
        self._fits(graph.width, k)
        return found

    def _fits(self, d: int, k: int) -> None:
        """InputError where d columns or k neighbors are too few."""

    def _require(self, need: Requirements) -> None:
        known = all(is_integer(value) for value in (self.n_landmarks, self.n_neighbors, self.n_components))
        least = max(self.n_neighbors, self.n_components) if known else 0
        need(
            self.solver == "exact" or (known and least < self.n_landmarks <= on_landmarks.MAX_LANDMARKS),
            "n_landmarks",
            f"an integer > n_neighbors and n_components, at most {on_landmarks.MAX_LANDMARKS}",
        )

    def _set_fitted(self, run: Run) -> None:
        """Eigenvalues, coordinates, components and the graph as attributes."""
        self.eigenvalues_ = read_array(run.path("solve", "eigenvalues"))
        self.residuals_ = read_array(run.path("solve", "residuals"))
        self.n_components_ = run.results("solve")["n_components"]
        self.reconstruction_error_ = float(self.eigenvalues_.sum())
        self._set_array("embedding_", "coordinates", "embedding")
        exact = run.results("solve")["solver"] == "exact"
        if exact:
            self._set_array("labels_", "coordinates", "labels")
        else:
            self.labels_ = read_array(run.path("solve", "labels/0"))
        self.landmarks_ = None if exact else read_array(run.path("landmarks", "rows"))
        if exact and run.kind != "model" and run.holds("graph"):  # (of which a model keeps parts)
            self.graph_ = NeighborGraph(run)

    def _certificate(self, run: Run) -> dict[str, Any]:
        solve, coordinates = run.results("solve"), run.results("coordinates")
        exact = solve["solver"] == "exact"
        components = run.results("components") if exact else solve
        known = run.results("survey" if exact else "landmarks")
        out: dict[str, Any] = {
            "solver": solve["solver"],
            "posed": why_solved_so(solve, known["n"], self.n_components_),
            "eigenpairs": solve["solved"],
            "converged": solve["converged"],
            "components": components["components"],
            "component_sizes": components["sizes"][:20],
            "parts": solve["parts"],
            "filled_rows": coordinates["filled_rows"],
            "input": {name: known[name] for name in ("n", "d", "dtype")},
            "seed": seed_of(self, run, "landmarks", "judgement"),
            "judgement": {name: solve[name] for name in JUDGED} | run.results("judgement"),
        }
        for stage in ("recall",) if exact else ("landmarks",):
            out[stage] = run.results(stage)
        policy = run.parameters("solve")["policy"]
        carried = _carried(solve, out["judgement"].get("map", {}))
        remedy, apart = "raise n_neighbors or reg", policy == "per-component" and solve["parts"] > 1
        repeated = [] if exact else landmark_rows.duplicates_note(run.results("landmarks"))
        out["warnings"] = {
            "convergence": unconverged(solve),
            "recall": certificate.recall_warnings(out),
            "components": certificate.components_warnings(out, policy)
            + (certificate.island_warnings(out, run) if exact else []),
            "degenerate": degenerate(solve) + left_open(solve) + repeated,
            "localized": certificate.carried_warnings(carried, remedy),
            "separation": undetermined(solve),
            "harmonic": certificate.harmonic_warnings(solve),
            "map": certificate.map_warnings(out["judgement"], apart, solve["parts"]),
        }
        return out

    def _extension(self, run: Run) -> Extension:
        """Barycentric weights of the nearest fitted rows (or landmarks); a row that was fitted gets its coordinates."""
        if run.results("solve")["solver"] == "landmarks":
            found = run.results("landmarks")
            shape = Shape(found["n"], found["d"], found["dtype"], found.get("metric", "euclidean"))
            model = on_landmarks.landmark_model(run, shape, float(self.reg))
            return Extension(on_landmarks.extend_landmarks, model, model.width, shape.d, cheap=False)
        fitted = on_landmarks.graph_model(run, float(self.reg))
        return Extension(
            on_landmarks.extend_graph,
            fitted,
            fitted.width,
            fitted.shape.d,
            grouping=on_landmarks.grouping(fitted),
            cheap=False,
        )


def _carried(solve: dict[str, Any], figures: dict[str, Any]) -> dict[str, Any]:
    """Which coordinates few rows carry: of landmarks, among which far ones are many, as the figures of the map say."""
    if solve["solver"] != "exact":
        return few_carriers(figures)
    share, rows = np.array(solve["participation"]), np.array(solve["rows_above_a_tenth"])
    few = (share > 0) & carried_by_few(share, rows, sum(part["rows"] for part in solve["solved"].values()))
    return solve | {"carried_by_few": few.tolist()}


JUDGED = ("participation", "rows_above_a_tenth", "leading_rows", "harmonic_residual", "harmonic_local", "harmonic")
"""What is said of each coordinate."""


# ------------------------------------------------------------------------------------------------------- coordinates
# The coordinates of an exact solve in the order of the input; rows outside of it are at their nearest ones.


@dataclass(frozen=True)
class SolvedCoordinates:
    """Where a task finds the coordinates of fitted rows by block."""

    path: str
    labels: str
    starts: tuple[int, ...]
    width: int

    def block(self, b: int) -> Array:
        """Coordinates (rows, width) of a block."""
        return read_array(f"{self.path}/{b}")

    def of_rows(self, ids: Array) -> Array:
        """Coordinates of rows by their numbers in the graph."""
        return read_by_id(self.path, self.starts, ids)


def coordinates_stage(policy: str, n: int, m: int, block: int) -> Stage:
    """``embedding`` (n, m) and ``labels`` (n,) in the order of the input."""
    rows = min(n, max(block, block_rows(m, 8)))
    coordinates = ArraySpec("coordinates/*", n, m)
    task = [ArraySpec("coordinates", rows, m + 1, times=6), ArraySpec("numbers", rows, times=2)]
    writes = [ArraySpec("embedding", n, m), ArraySpec("labels", n, dtype="i4")]
    writes += [ArraySpec(f"{name}/*", 0, dtype="i8") for name in ("outside", "nearest")]
    cost = Cost.of([coordinates], writes, [coordinates], task)
    return Stage(
        "coordinates",
        ("order", "graph", "components", "solve"),
        {"policy": policy, "n_components": m},
        partial(run_coordinates, policy=policy, m=m),
        cost,
    )


def run_coordinates(context: Context, policy: str, m: int) -> dict[str, Any]:
    order, components = context.of("order"), context.results("components")
    count = context.results("solve")["parts"]
    starts = Ordered.open(order).starts
    paths = context.of("solve", "coordinates"), context.of("components", "labels")
    repeats = repeats_of(context)
    replaced = count < components["components"] or repeats is not None
    filled = find_replaced(context, order, count, repeats) if replaced else []
    island = ISLAND if policy == ISLANDS else None
    write_coordinates(context, SolvedCoordinates(*paths, starts, m), order, replaced, count, island)
    outside = sum(rows for rows, _ in filled)
    return {
        "n_components": m,
        "parts": count,
        "filled_rows": outside,
        "repeated_rows": sum(rows for _, rows in filled),
        "first_filled": first_replaced(filled, Ordered.open(order), context.exchange) if outside else [],
    }
