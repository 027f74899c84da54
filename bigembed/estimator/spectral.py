"""Methods whose coordinates are eigenvectors of the random walk on a graph: what they share."""

from __future__ import annotations

from abc import abstractmethod
from typing import Any, ClassVar, Self

from bigembed.embedding.extension import Extension
from bigembed.embedding.graph.shape import GraphShape
from bigembed.embedding.walk.stages import WalkOptions, walk_stages
from bigembed.errors import InputError
from bigembed.estimator.base import Estimator
from bigembed.kernels.gaussian import BINARY
from bigembed.neighbors.by_metric import by_metric
from bigembed.neighbors.every_pair import is_dense
from bigembed.neighbors.given_distances import Rule
from bigembed.neighbors.given_graph import GIVEN, is_given
from bigembed.neighbors.graph import NeighborGraph
from bigembed.neighbors.graph_stages import QUERY_ARRAYS, neighbor_stages
from bigembed.neighbors.survey import shape_of
from bigembed.runs import Run
from bigembed.stages import Stage
from bigembed.store.arrays import read_array
from bigembed.store.graph_source import GraphSource
from bigembed.store.source import RowSource


class SpectralEstimator(Estimator):
    """Base of the methods that take rows, a neighbor graph or weights, and find eigenvectors of the walk on it.

    They have the parameters ``n_neighbors``, ``radius``, ``metric``, ``recall`` and ``algorithm``, and say in
    :meth:`_walk` what walk it is.
    """

    takes_graphs = True
    takes_sparse = True
    saved_stages: ClassVar = {
        **QUERY_ARRAYS,
        "bandwidth": ("",),
        "kernel": ("q",),
        "components": ("labels",),
        "solve": ("right", "averaged", "eigenvalues", "residuals"),
        "coordinates": ("embedding", "labels"),
        "weights": ("starts",),
    }

    def fit(self, X: Any, y: Any = None) -> Self:
        """Fit rows or distances (any kind that :func:`bigembed.open_array` takes), a NeighborGraph, symmetric sparse
        weights, or a graph of any size (:func:`bigembed.open_graph`)."""
        from bigembed.estimator.fitting import fit_spectral

        fit_spectral(self, X)
        return self

    def stages(self, source: RowSource) -> list[Stage]:
        """All stages from rows, or a user's graph, to coordinates."""
        from bigembed.estimator.fitting import distance_map_stages, graph_stages

        self._check()
        if isinstance(source, GraphSource):
            return graph_stages(self, source)
        asked: Any = self
        if is_given(asked.metric):
            return distance_map_stages(self, source)
        shape, seed = shape_of(source, asked.metric), self._seed()
        searched = {"radius": asked.radius, "algorithm": asked.algorithm}
        stages = neighbor_stages(source, asked.n_neighbors, asked.metric, asked.recall, seed, **searched)
        dense = asked.radius is None and is_dense(asked.n_neighbors, shape)
        graph = GraphShape(
            shape.n, shape.block, shape.width, asked.n_neighbors, asked.radius, dense, by=by_metric(shape)
        )
        return [*stages, *self._after_graph(graph, seed)]

    def _joins(self, n: int) -> Rule:
        """Which of given distances between n rows are edges."""
        asked: Any = self
        if asked.radius is not None:
            raise InputError(
                "radius: metric='precomputed' takes the n_neighbors nearest of the given distances, whose scales the "
                "kernel follows; give n_neighbors and no radius"
            )
        return Rule(asked.n_neighbors)

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.pairwise = is_given(getattr(self, "metric", None))
        tags.input_tags.sparse = self.takes_sparse and not tags.input_tags.pairwise
        return tags

    def _after_graph(self, graph: GraphShape, seed: int) -> list[Stage]:
        """The stages that follow a neighbor graph, or a user's weights."""
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
        self.embedding_ = run.array("coordinates", "embedding", self._in_memory)
        if run.has("graph") and run.kind != "model":  # (of which a model keeps parts)
            self.graph_ = NeighborGraph(run, metric=getattr(self, "metric", None))

    def _certificate(self, run: Run) -> dict[str, Any]:
        from bigembed.estimator.certificate import certificate

        return certificate(run, getattr(self, "tol", 0.0))

    def _extension(self, run: Run) -> Extension:
        """The α-correct Nyström formula; a row that was fitted gets its ``embedding_`` back, to ``tol``.

        ψ_l(x) = λ_l^{-1} Σ_j p(x, j) ψ_l(j), p(x, j) = k(x, x_j) q_j^{-α} / Σ_m k(x, x_m) q_m^{-α}, over the rows j
        that the symmetric graph would join to x.
        """
        from bigembed.embedding.walk.extension import extend_rows, grouping, model_of

        model = model_of(run, getattr(self, "metric", None))
        d, near, sparse = model.shape.d, grouping(model), model.shape.metric != GIVEN
        return Extension(extend_rows, model, model.fitted.width, d, grouping=near, cheap=False, sparse=sparse)
