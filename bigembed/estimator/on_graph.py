"""What methods share that begin with a neighbor graph: of rows, of distances, of two views, or one that is given."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import astuple, replace
from typing import TYPE_CHECKING, Any, ClassVar, Self

from bigembed.errors import InputError, InputTypeError
from bigembed.estimator import base, preprocessing, run_of
from bigembed.estimator.graph_input import GraphShape, edge_weight_stages, is_weights, rows_of_block, weight_stages
from bigembed.neighbors.given import GIVEN, edge_graph_stages, is_given, mean_neighbors
from bigembed.neighbors.given.distances import Rule, distance_graph, distance_stages, length_graph
from bigembed.neighbors.graph import NeighborGraph
from bigembed.neighbors.graph_stages import QUERY_ARRAYS, neighbor_stages, require_euclidean
from bigembed.neighbors.outside_lists import Outside, outside_by
from bigembed.neighbors.radius import is_dense
from bigembed.neighbors.row_weights import KINDS, row_weight_stages
from bigembed.neighbors.search import doubts
from bigembed.neighbors.search.by_metric import by_metric
from bigembed.neighbors.survey import shape_in, shape_of
from bigembed.neighbors.views import MAPPED_IDS, SECOND, view_of
from bigembed.rows import RowSource, graph_source, passes
from bigembed.stages import Run, Stage, within

if TYPE_CHECKING:
    from bigembed.estimator.fitting import PreparedFit


class StoredArray:
    """An attribute of an estimator that is an array of a published stage, as ``_set_array`` says."""

    def __set_name__(self, owner: type[Any], name: str) -> None:
        self.name = name

    def __get__(self, instance: Any, owner: type[Any] | None = None) -> Any:
        if instance is None:
            return self
        where = instance.__dict__.get("_stored_arrays", {}).get(self.name)
        if where is None:
            raise AttributeError(f"{type(instance).__name__!r} object has no attribute {self.name!r}")
        found = instance.__dict__[self.name] = run_of(instance).array(*where)
        return found


class FittedGraph:
    """``graph_``, which a fit sets where it has one: elsewhere the error says why there is none."""

    def __get__(self, instance: Any, owner: type[Any] | None = None) -> Any:
        if instance is None:
            return self
        raise AttributeError(f"{type(instance).__name__!r} object has no attribute 'graph_'{without_graph(instance)}")


def without_graph(instance: Any) -> str:
    """Return why a fitted estimator has no graph, and what to do; "" of one that is not fitted or was given weights."""
    run = getattr(instance, "_run", None)
    build = "build the neighbor graph again (bigembed.build_neighbor_graph)"
    if run is None:
        return ""
    if run.kind == "model":
        return f": a saved model keeps none; {build}"
    if instance.keep == "all" or not run.has("graph"):
        return ""
    return f": keep={instance.keep!r} dropped it; fit with keep='all', or {build}"


class OnGraph(base.Estimator):
    """Base of the methods that may be fitted to a neighbor graph, or to a sparse matrix of its edges.

    A method says in :meth:`_after_graph` what follows a graph.
    """

    graph_: Any = FittedGraph()
    algorithm: str

    @abstractmethod
    def _after_graph(self, graph: GraphShape, seed: int) -> list[Stage]:
        """The stages that follow a neighbor graph, or a user's weights."""

    def _check(self) -> None:
        """InputError that lists every parameter out of its range; and for those of the search."""
        super()._check()
        try:
            self._outside(0)
        except InputError as error:
            raise InputError(f"{type(self).__name__}: {error}") from None

    def _outside(self, seed: int) -> Outside | None:
        """What finds candidates for the lists of neighbors, where it has parameters of its own."""
        return outside_by(getattr(self, "algorithm_params", None), self.algorithm, seed)

    def _listed(
        self, graph_stages: Sequence[Stage], graph: GraphShape, seed: int, vectors: Mapping[str, RowSource]
    ) -> list[Stage]:
        """All stages: those of a graph, and what follows it; in between those of the ``vectors`` that are weights of
        the rows, in the order of the graph, which were checked first of all. Others (labels) go with the graph."""
        there = {KINDS[kind]: (kind, vector) for kind, vector in sorted(vectors.items()) if kind in KINDS}
        both = [row_weight_stages(*one, min(graph.block, graph.n), graph.ordered) for one in there.values()]
        checks, ordered = [one for one, _ in both], [one for _, one in both]
        others = {kind: vector for kind, vector in vectors.items() if kind not in KINDS}
        graph = replace(graph, vectors=tuple(there), aligned=others)
        return [*checks, *graph_stages, *ordered, *self._after_graph(graph, seed)]

    def _rule(self, n: int) -> Rule:
        """Which of n rows are joined: the nearest ones of each, or all within a radius."""
        k, radius = getattr(self, "n_neighbors", None), getattr(self, "radius", None)
        return Rule(None if k is None else int(k), None if radius is None else float(radius))

    def _prepare(self, X: Any, aligned: Mapping[str, Any]) -> PreparedFit:
        if isinstance(X, NeighborGraph):
            return self._prepare_neighbors(X, aligned)
        if is_weights(X) and not self._steps:
            return self._prepare_matrix(X, aligned)
        return super()._prepare(graph_source.as_graph(X), aligned)

    def _prepare_neighbors(self, X: NeighborGraph, aligned: Mapping[str, Any]) -> PreparedFit:
        from bigembed.estimator.fitting import PreparedFit, aligned_columns

        given = X.metric == GIVEN
        if given and not (X.scaled or self.of_lengths):
            raise InputTypeError(
                f"{type(self).__name__} reads the rows and the graph, and a graph of given distances "
                "does not hold rows; build the graph from rows, or open the distances along its edges (open_graph)"
            )
        run = Run(self.workdir, parents=[X.run])
        shape = X.shape if X.shape.trusted else shape_in(X.run.results("survey"), getattr(self, "metric", None))
        by = None if given else by_metric(shape)
        rule = X.n_neighbors, X.radius, X.dense
        columns = aligned_columns(aligned, X.n, run.root / "exchange")
        known: dict[str, Any] = {"by": by, "row_bytes": shape.ordered_bytes, "edges": X.edges, "dtype": shape.dtype}
        graph = GraphShape(X.n, X.block, shape.width, *rule, given, X.sampled, **known)
        stages, dtype = self._listed([], graph, self._seed(), columns), None if given else shape.dtype
        return PreparedFit(run, stages, X.n_features, in_memory=X.in_memory, dtype=dtype)

    def _prepare_matrix(self, X: Any, aligned: Mapping[str, Any]) -> PreparedFit:
        """Prepare a fit to a square sparse matrix, of lengths of edges or of weights."""
        from bigembed.estimator.fitting import PreparedFit, aligned_columns, prepare_graph_fit

        n, run = X.shape[0], Run(self.workdir)
        columns = aligned_columns(aligned, n, run.root / "exchange")
        if self._pairwise():
            return prepare_graph_fit(self._spec(), replace(length_graph(X, self._rule(n)), aligned=columns), run)
        if self.of_lengths:
            raise InputTypeError(
                f"{type(self).__name__} reads rows or a NeighborGraph; a sparse matrix is a graph of lengths with "
                "metric='precomputed' only, and weights are not lengths (sparse data was passed)"
            )
        graph = GraphShape(n, rows_of_block(X), weighted=True)
        stages = self._listed(weight_stages(X), graph, self._seed(), columns)
        return PreparedFit(run, stages, n, in_memory=True, dtype=X.dtype)


class GraphEstimator(OnGraph):
    """Base of the methods that take rows, distances, a neighbor graph or a user's graph."""

    embedding_ = StoredArray()
    labels_ = StoredArray()
    takes_graphs = True
    takes_sparse = True

    n_neighbors: int | None
    metric: Any
    recall: float
    wider: ClassVar[int] = 1
    """Times ``n_neighbors`` rows are searched where rows have weights."""

    def fit(self, X: Any, y: Any = None) -> Self:
        """Fit the map to rows, distances or a graph.

        Parameters
        ----------
        X : array of shape (n, d) or (n, n), NeighborGraph, sparse matrix or graph
            Rows or distances (any kind that :func:`bigembed.open_array` takes), a NeighborGraph, symmetric sparse
            weights, or a graph of any size (:func:`bigembed.open_graph`).
        y : None
            Not used; scikit-learn's protocol has it.

        Returns
        -------
        Estimator
            The estimator itself.
        """
        return self._fit_rows(X)

    def stages(self, source: RowSource) -> list[Stage]:
        """List all stages from rows, an array of distances, or a user's graph, to coordinates."""
        self._check()
        seed, vectors = self._seed(), source.aligned
        source = replace(source, aligned={})  # (the graph is that of the rows, whatever they weigh)
        if isinstance(source, graph_source.GraphSource):
            stages, graph = self._of_edges(source)
        else:
            wider = self.wider if "weights" in vectors else 1
            stages, graph = self._of_distances(source) if self._pairwise() else self._of_rows(source, seed, wider)
        return self._listed(stages, graph, seed, vectors)

    def _block_rows(self, k: int) -> int | None:
        """Rows of a block, at most, where each is joined to k; None where only the size of the rows decides."""
        return None

    def _of_rows(self, source: RowSource, seed: int, wider: int = 1) -> tuple[list[Stage], GraphShape]:
        """The stages from rows to a graph, of ``wider`` times as many neighbors as are asked for, and what it is."""
        shape = shape_of(source, self.metric)
        asked, radius = astuple(self._rule(shape.n))
        widened = wider > 1 and radius is None and asked is not None and asked < shape.n - 1
        k = min(wider * asked, shape.n - 1) if widened else asked
        most = self._block_rows(k)
        search: dict[str, Any] = {"algorithm": self._search(), "outside": self._outside(seed)}
        stages = neighbor_stages(source, k, self.metric, self.recall, seed, radius=radius, most=most, **search)
        dense = radius is None and is_dense(k, shape)
        block = shape.block if most is None else min(most, shape.block)
        known: dict[str, Any] = {"by": by_metric(shape), "row_bytes": shape.ordered_bytes, "dtype": shape.dtype}
        graph = GraphShape(shape.n, block, shape.width, k, radius, dense, **known)
        return stages, replace(graph, asked=asked if widened else None)

    def _of_edges(self, source: graph_source.GraphSource) -> tuple[list[Stage], GraphShape]:
        """The stages of a user's graph: of distances by a kernel, of weights as they are."""
        block = min(source.block, source.n)
        if source.values == "weights" and not self.of_lengths:
            return edge_weight_stages(source), GraphShape(source.n, block, weighted=True)
        k, edges = mean_neighbors(source), 2 * source.entries
        return edge_graph_stages(source), GraphShape(source.n, block, source.n, k, given=True, edges=edges)

    def _of_distances(self, source: RowSource) -> tuple[list[Stage], GraphShape]:
        """The stages of an array of distances."""
        rule = self._rule(source.shape[0])
        graph = distance_graph(source, rule)
        n, block, edges = graph.n, min(graph.block, graph.n), 2 * graph.entries
        shape = GraphShape(n, block, n, rule.n_neighbors, given=True, sampled=True, edges=edges)
        return distance_stages(source, rule), shape

    def _pairwise(self) -> bool:
        return is_given(getattr(self, "metric", None))

    def _set_graph(self, run: Run, stage: str = "graph") -> None:
        """``graph_``, unless this is a model, which keeps parts of it, or the run has none, or has dropped it."""
        if run.kind != "model" and run.holds("graph"):
            self.graph_ = NeighborGraph(run, stage=stage, metric=getattr(self, "metric", None))


class WeightedGraphEstimator(GraphEstimator):
    """Base of the methods on a graph that take weights of the rows: their stages read ``row_weights`` where
    ``graph.vectors`` names it."""

    aligned: ClassVar[tuple[str, ...]] = ("weights",)

    def fit(self, X: Any, y: Any = None, sample_weight: Any = None) -> Self:
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

        Returns
        -------
        Estimator
            The estimator itself.
        """
        return self._fit_rows(X, weights=sample_weight)


# ------------------------------------------------------------------------------------------------------------- views

VIEW_QUERY_ARRAYS: dict[str, tuple[str, ...]] = {
    **{SECOND + name: arrays for name, arrays in QUERY_ARRAYS.items()},
    **MAPPED_IDS,
}
"""Stages and arrays of the second view that a query of new rows reads: what a saved model keeps besides."""


def split_of(columns: int, d: int) -> int:
    """Return how many of d columns are the first view; InputError where that leaves none for the second."""
    if d < 2:
        raise InputError(f"two views need at least 2 columns, one each; got n_features = {d}")
    if columns >= d:
        raise InputError(
            f"view_columns={columns} of {d} columns leaves none for the second view; it must be from 1 to {d - 1}. "
            f"Rows hold both views side by side: np.hstack([first, second]); got n_features = {d}"
        )
    return columns


class ViewsEstimator(GraphEstimator):
    """Base of the methods that take two views of the rows: the first ``view_columns`` columns, and the others."""

    view_columns: int | None

    def _split(self, d: int) -> int | None:
        """Return how many of d columns are the first view; None where the rows are one. InputError for none of one."""
        return None if self.view_columns is None else split_of(int(self.view_columns), d)

    def _of_rows(self, source: RowSource, seed: int, wider: int = 1) -> tuple[list[Stage], GraphShape]:
        d = passes.checked_shape(source)[1]
        split = self._split(d)
        if split is None:
            return super()._of_rows(source, seed, wider)
        if source.sparse:
            raise InputTypeError(
                f"{type(self).__name__}: two views (view_columns) are columns of dense rows, and these are sparse. "
                "Make few columns of each view first (TruncatedSVD), and give them side by side"
            )
        views = [view_of(source, 0, split), view_of(source, split, d)]
        for view in views:
            require_euclidean(shape_of(view, self.metric), "two views (view_columns) are")
        (stages, first), (others, second) = (GraphEstimator._of_rows(self, view, seed, wider) for view in views)
        costly = [*(preprocessing.with_cost_of_mapping(stage, views[0]) for stage in stages)]
        costly += [within(preprocessing.with_cost_of_mapping(stage, views[1]), SECOND) for stage in others]
        neighbors = sum(first.n - 1 if one.k is None else one.k for one in (first, second))
        return costly, replace(first, k=neighbors, dense=False, views=(first, second))

    def _listed(
        self, graph_stages: Sequence[Stage], graph: GraphShape, seed: int, vectors: Mapping[str, RowSource]
    ) -> list[Stage]:
        if self.view_columns is not None and graph.views is None:
            raise InputTypeError(
                f"{type(self).__name__}: two views (view_columns) are columns of rows, and this is a graph, or "
                "distances. Give the rows of both views side by side: np.hstack([first, second])"
            )
        return super()._listed(graph_stages, graph, seed, vectors)


def second_recall(run: Run) -> list[str]:
    """Return what is warned of the lists of neighbors in the second view."""
    found = run.results(f"{SECOND}recall") if run.has(f"{SECOND}recall") else None
    return [f"in the second view, {text}" for text in doubts(found)] if found else []
