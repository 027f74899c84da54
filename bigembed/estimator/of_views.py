"""Methods on the graphs of two views of the rows, which stand side by side: what they share."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from bigembed.errors import InputError, InputTypeError
from bigembed.estimator.graph_input import GraphShape
from bigembed.estimator.on_graph import GraphEstimator
from bigembed.estimator.preprocessing import with_cost_of_mapping
from bigembed.neighbors.graph_stages import QUERY_ARRAYS, require_euclidean
from bigembed.neighbors.search.recall import doubts
from bigembed.neighbors.survey import shape_of
from bigembed.neighbors.views import MAPPED_IDS, SECOND, view_of
from bigembed.rows.passes import checked_shape
from bigembed.rows.source import RowSource
from bigembed.stages.runs import Run
from bigembed.stages.stage import Stage
from bigembed.stages.within import within

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
        d = checked_shape(source)[1]
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
        costly = [*(with_cost_of_mapping(stage, views[0]) for stage in stages)]
        costly += [within(with_cost_of_mapping(stage, views[1]), SECOND) for stage in others]
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
