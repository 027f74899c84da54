"""Methods whose coordinates meet local linear conditions best: locally linear embedding and its variants."""

from __future__ import annotations

from abc import abstractmethod
from dataclasses import KW_ONLY, dataclass
from typing import Annotated, Any, ClassVar, Self

import numpy as np

from bigembed.blocks.declared import Count, Positive, Requirements, Seed, interval, is_integer, one_of
from bigembed.embedding.alignment.conditions import Conditions
from bigembed.embedding.alignment.exact import POLICIES
from bigembed.embedding.alignment.extension import extend_graph, extend_landmarks, graph_model, grouping, landmark_model
from bigembed.embedding.alignment.judgement import degenerate, left_open, posed, unconverged, undetermined
from bigembed.embedding.alignment.landmarks import MAX_LANDMARKS
from bigembed.embedding.alignment.stages import by_landmarks, graph_stages, row_stages
from bigembed.embedding.extension import Extension
from bigembed.embedding.graph.shape import GraphShape
from bigembed.embedding.landmark_rows import duplicates_note
from bigembed.estimator.base import Estimator, seed_of
from bigembed.estimator.certificate import (
    carried_warnings,
    components_warnings,
    harmonic_warnings,
    island_warnings,
    map_warnings,
    recall_warnings,
)
from bigembed.estimator.stored_array import StoredArray
from bigembed.landmarks.select import SELECTIONS
from bigembed.neighbors.algorithms import ALGORITHMS
from bigembed.neighbors.graph import NeighborGraph
from bigembed.neighbors.graph_stages import QUERY_ARRAYS
from bigembed.neighbors.ordering.survey import Shape, shape_of
from bigembed.quality.judgement import few_carriers
from bigembed.quality.participation import carried_by_few
from bigembed.runs import Run
from bigembed.stages import Stage
from bigembed.store.arrays.io import read_array
from bigembed.store.inputs.graph_source import GraphSource
from bigembed.store.rows.source import RowSource


@dataclass(eq=False, repr=False)
class AlignedEstimator(Estimator):
    """Base of the methods with local linear conditions: see :mod:`bigembed.embedding.alignment.conditions`."""

    embedding_ = StoredArray()
    labels_ = StoredArray()
    saved_stages: ClassVar = {
        **QUERY_ARRAYS,
        "components": ("labels",),
        "landmarks": ("rows",),
        "solve": ("coordinates", "labels", "eigenvalues", "residuals"),
        "coordinates": ("embedding", "labels"),
    }

    n_components: Count = 2
    _: KW_ONLY
    n_neighbors: Count = 12
    reg: Positive = 1e-3
    solver: Annotated[str, one_of("auto", "exact", "landmarks")] = "auto"
    n_landmarks: int = 3_000
    landmarks: Annotated[str, one_of(*SELECTIONS)] = "max-min"
    components: Annotated[str, one_of("error", *POLICIES)] = "auto"
    recall: Annotated[float, interval(0, 1, closed="right")] = 0.99
    algorithm: Annotated[str, one_of(*ALGORITHMS)] = "auto"
    random_state: Seed = 0

    @abstractmethod
    def _conditions(self, k: int) -> Conditions:
        """What the coordinates of a row and of its k neighbors should meet."""

    def fit(self, X: Any, y: Any = None) -> Self:
        """Fit rows (any kind that :func:`bigembed.open_array` takes), or a NeighborGraph of k neighbors."""
        from bigembed.estimator.fitting import fit_on_graph

        fit_on_graph(self, X)
        return self

    def stages(self, source: RowSource) -> list[Stage]:
        """All stages from rows to coordinates."""
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
            self.solver == "exact" or (known and least < self.n_landmarks <= MAX_LANDMARKS),
            "n_landmarks",
            f"an integer > n_neighbors and n_components, at most {MAX_LANDMARKS}",
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
        if exact and run.kind != "model":  # (of which a model keeps parts)
            self.graph_ = NeighborGraph(run)

    def _certificate(self, run: Run) -> dict[str, Any]:
        solve, coordinates = run.results("solve"), run.results("coordinates")
        exact = solve["solver"] == "exact"
        components = run.results("components") if exact else solve
        known = run.results("survey" if exact else "landmarks")
        out: dict[str, Any] = {
            "solver": solve["solver"],
            "posed": posed(solve, known["n"], self.n_components_),
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
        repeated = [] if exact else duplicates_note(run.results("landmarks"))
        out["warnings"] = {
            "convergence": unconverged(solve),
            "recall": recall_warnings(out),
            "components": components_warnings(out, policy) + (island_warnings(out, run) if exact else []),
            "degenerate": degenerate(solve) + left_open(solve) + repeated,
            "localized": carried_warnings(carried, remedy),
            "separation": undetermined(solve),
            "harmonic": harmonic_warnings(solve),
            "map": map_warnings(out["judgement"], apart, solve["parts"]),
        }
        return out

    def _extension(self, run: Run) -> Extension:
        """Barycentric weights of the nearest fitted rows (or landmarks); a row that was fitted gets its coordinates."""
        if run.results("solve")["solver"] == "landmarks":
            found = run.results("landmarks")
            shape = Shape(found["n"], found["d"], found["dtype"], found.get("metric", "euclidean"))
            model = landmark_model(run, shape, float(self.reg))
            return Extension(extend_landmarks, model, model.width, shape.d, cheap=False)
        fitted = graph_model(run, float(self.reg))
        return Extension(extend_graph, fitted, fitted.width, fitted.shape.d, grouping=grouping(fitted), cheap=False)


def _carried(solve: dict[str, Any], figures: dict[str, Any]) -> dict[str, Any]:
    """Which coordinates few rows carry: of landmarks, among which far ones are many, as the figures of the map say."""
    if solve["solver"] != "exact":
        return few_carriers(figures)
    share, rows = np.array(solve["participation"]), np.array(solve["rows_above_a_tenth"])
    few = (share > 0) & carried_by_few(share, rows, sum(part["rows"] for part in solve["solved"].values()))
    return solve | {"carried_by_few": few.tolist()}


JUDGED = ("participation", "rows_above_a_tenth", "leading_rows", "harmonic_residual", "harmonic_local", "harmonic")
"""What is said of each coordinate."""
