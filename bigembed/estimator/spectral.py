"""Methods whose coordinates are eigenvectors of the random walk on a graph: what they share."""

from __future__ import annotations

from abc import abstractmethod
from typing import Any, ClassVar

from bigembed.embedding.extension import Extension
from bigembed.embedding.graph.shape import GraphShape
from bigembed.embedding.walk.stages import WalkOptions, walk_stages
from bigembed.errors import InputError
from bigembed.estimator.on_graph import GraphEstimator
from bigembed.kernels.gaussian import BINARY
from bigembed.neighbors.given.distances import Rule
from bigembed.neighbors.graph_stages import QUERY_ARRAYS
from bigembed.runs import Run
from bigembed.stages import Stage
from bigembed.store.arrays.io import read_array


class SpectralEstimator(GraphEstimator):
    """Base of the methods that take rows, a neighbor graph or weights, and find eigenvectors of the walk on it.

    They have the parameters below, and say in :meth:`_walk` what walk it is.
    """

    saved_stages: ClassVar = {
        **QUERY_ARRAYS,
        "bandwidth": ("",),
        "kernel": ("q",),
        "components": ("labels",),
        "solve": ("right", "averaged", "eigenvalues", "residuals"),
        "coordinates": ("embedding", "labels"),
        "weights": ("starts",),
    }

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
        from bigembed.embedding.walk.extension import extend_rows, grouping, model_of

        model = model_of(run, self.metric)
        d, near = model.shape.d, grouping(model)
        return Extension(extend_rows, model, model.fitted.width, d, grouping=near, cheap=False, sparse=True)
