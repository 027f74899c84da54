"""Methods that begin with a neighbor graph, of rows, of distances, or one that is given: what they share."""

from __future__ import annotations

from abc import abstractmethod
from typing import Any, Self

from bigembed.embedding.graph.shape import GraphShape
from bigembed.embedding.graph.weights import edge_weight_stages
from bigembed.estimator.base import Estimator
from bigembed.neighbors.given_distances import Rule, distance_graph, distance_stages
from bigembed.neighbors.given_graph import edge_graph_stages, is_given, mean_neighbors
from bigembed.neighbors.graph import NeighborGraph
from bigembed.runs import Run
from bigembed.stages import Stage
from bigembed.store.graph_source import GraphSource
from bigembed.store.source import RowSource


class GraphEstimator(Estimator):
    """Base of the methods that take rows, distances, a neighbor graph or a user's graph.

    A method says in :meth:`_of_rows` which graph of rows it needs, and in :meth:`_after_graph` what follows a graph.
    """

    takes_graphs = True
    takes_sparse = True

    def fit(self, X: Any, y: Any = None) -> Self:
        """Fit rows or distances (any kind that :func:`bigembed.open_array` takes), a NeighborGraph, symmetric sparse
        weights, or a graph of any size (:func:`bigembed.open_graph`)."""
        from bigembed.estimator.fitting import fit_on_graph

        fit_on_graph(self, X)
        return self

    def stages(self, source: RowSource) -> list[Stage]:
        """All stages from rows, an array of distances, or a user's graph, to coordinates."""
        self._check()
        if isinstance(source, GraphSource):
            return self._of_edges(source)
        return self._of_distances(source) if self._pairwise() else self._of_rows(source)

    @abstractmethod
    def _of_rows(self, source: RowSource) -> list[Stage]:
        """All stages from rows to coordinates."""

    def _of_edges(self, source: GraphSource) -> list[Stage]:
        """All stages from a user's graph: of distances by a kernel, of weights as they are."""
        block = min(source.block, source.n)
        if source.values == "weights":
            shape = GraphShape(source.n, block, weighted=True)
            return [*edge_weight_stages(source), *self._after_graph(shape, self._seed())]
        shape = GraphShape(source.n, block, source.n, mean_neighbors(source), given=True)
        return [*edge_graph_stages(source), *self._after_graph(shape, self._seed())]

    def _of_distances(self, source: RowSource) -> list[Stage]:
        """All stages from an array of distances."""
        rule = self._joins(source.shape[0])
        graph = distance_graph(source, rule)
        shape = GraphShape(graph.n, min(graph.block, graph.n), graph.n, rule.n_neighbors, given=True, sampled=True)
        return [*distance_stages(source, rule), *self._after_graph(shape, self._seed())]

    def _after_graph(self, graph: GraphShape, seed: int) -> list[Stage]:
        """The stages that follow a neighbor graph, or a user's weights."""
        raise NotImplementedError

    def _joins(self, n: int) -> Rule:
        """Which of given distances between n rows are edges."""
        raise NotImplementedError

    def _pairwise(self) -> bool:
        return is_given(getattr(self, "metric", None))

    def _set_graph(self, run: Run, stage: str = "graph") -> None:
        """``graph_``, unless this is a model, which keeps parts of it, or the run has none."""
        if run.has("graph") and run.kind != "model":
            self.graph_ = NeighborGraph(run, stage=stage, metric=getattr(self, "metric", None))
