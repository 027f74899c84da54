"""``fit``: what was given, which stages follow, what the results are. The same for every method."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from bigembed.errors import InputError, InputTypeError
from bigembed.estimator.graph_input import GraphShape, is_weights, rows_of_block, weight_stages
from bigembed.estimator.preprocessing import (
    all_stages,
    computing,
    passes_of,
    prepared,
    row_passes,
    said_of,
    stages_after,
    takes_missing,
)
from bigembed.estimator.reporting import telling
from bigembed.estimator.scikit_learn import feature_names
from bigembed.neighbors.given.distances import length_graph
from bigembed.neighbors.given.graph import GIVEN
from bigembed.neighbors.graph import NeighborGraph
from bigembed.neighbors.search.by_metric import by_metric
from bigembed.neighbors.survey import shape_in
from bigembed.rows.columns import MOST, Categories, absent, columns_of, is_frame, numbers_of
from bigembed.rows.graph_source import GraphSource
from bigembed.rows.input import StreamedRows, column_source, row_source
from bigembed.rows.reader import listed
from bigembed.rows.source import RowSource, as_worked
from bigembed.runtime.blocks import Array
from bigembed.runtime.executors import executor_now
from bigembed.stages.reuse import supersede
from bigembed.stages.runs import Run
from bigembed.stages.stage import Stage, locked, run_stages

# ---------------------------------------------------------------------------------------------------- text columns
# Data frames in memory with columns of text that a step encodes: as numbers, with the texts that they stand for.


@dataclass(frozen=True)
class CodedRows(RowSource):
    """Rows with columns of categories whose texts something else than a table on disk says."""

    texts: Mapping[str, Sequence[str]] = field(default_factory=dict)

    @property
    def categories(self) -> Categories:
        return self.texts


def coded(X: Any, estimators: Sequence[Any], known: Categories | None = None) -> tuple[Any, Categories]:
    """The numbers of a data frame, and the texts of its columns of categories; anything else as it is, without texts.

    Columns of text must be among those that a one-hot step of ``estimators`` encodes. ``known``: the texts that were
    fitted; others get the number −1.
    """
    if not is_frame(X) or not any(hasattr(one, "texts") for one in estimators):
        return X, {}
    columns = dict(columns_of(X))
    text = [name for name, values in columns.items() if _is_text(values)]
    if not text or len(columns) < X.shape[1]:
        return X, {}
    if strange := [name for name in text if name not in _encoded(estimators, list(columns))]:
        raise InputError(
            f"the columns {listed(map(str, strange))} hold text, and numbers are needed. Encode them, too "
            "(OneHotEncoder, by their names), or leave them out"
        )
    texts = {str(name): (known or {}).get(str(name)) or _texts(name, columns[name]) for name in text}
    numbers = {name: _codes(values, texts[name]) if name in texts else values for name, values in columns.items()}
    if odd := [(name, values) for name, values in numbers.items() if values.dtype.kind not in "biuf"]:
        numbers |= zip(dict(odd), numbers_of(odd).T, strict=True)
    dtype = np.result_type(np.float32, *(values.dtype for values in numbers.values()))
    return np.column_stack([as_worked(values, dtype, what=f"column {name}") for name, values in numbers.items()]), texts


def with_texts(source: RowSource, texts: Categories) -> RowSource:
    """Rows that :func:`coded` made numbers of, with their texts."""
    if not texts:
        return source
    return CodedRows(source.shape, source.dtype, path=source.path, array=source.array, texts=texts)


def known_texts(estimators: Sequence[Any]) -> Categories:
    """The texts that fitted one-hot steps know, by the names of their columns."""
    return {name: one for step in estimators if hasattr(step, "texts") for name, one in step.texts().items()}


def _encoded(estimators: Sequence[Any], names: Sequence[Any]) -> set[Any]:
    """The columns that the one-hot steps encode; by their numbers where nothing goes before."""
    found: set[Any] = set()
    for number, step in enumerate(estimators):
        if hasattr(step, "texts"):
            asked = range(len(names)) if step.columns is None else step.columns
            found |= {names[one] if not isinstance(one, str) and not number else one for one in asked}
    return found


def _is_text(values: Array) -> bool:
    if values.dtype.kind in "UT":
        return True
    return values.dtype == object and any(isinstance(value, str) for value in values)


def _texts(name: Any, values: Array) -> tuple[str, ...]:
    """The different texts of a column, sorted."""
    found = sorted({str(value) for value in values[~absent(values)]})
    if len(found) > MOST:
        raise InputError(f"column {name} has more than {MOST:,} different texts, too many for categories. Leave it out")
    return tuple(found)


def _codes(values: Array, texts: Sequence[str]) -> Array:
    """The place of each entry among the texts; −1 for one that is not there, NaN for none."""
    place = {text: number for number, text in enumerate(texts)}
    missing = absent(values)
    found = (np.nan if gone else place.get(str(value), -1) for value, gone in zip(values, missing, strict=True))
    return np.fromiter(found, np.float32, len(values))


# --------------------------------------------------------------------------------------------------------- fitting

STREAMED = 2
"""Passes up to which a Dask array is computed in each; for more it is written once."""


@contextmanager
def _unchanged_if_stopped(estimator: Any) -> Iterator[None]:
    """Leave the estimator as it was where a fit is refused, or stopped by the keyboard."""
    before = dict(estimator.__dict__)
    try:
        yield
    except BaseException as error:
        estimator.__dict__.clear()
        estimator.__dict__.update(before)
        if isinstance(error, KeyboardInterrupt):  # (said in a few lines)
            raise KeyboardInterrupt(*error.args) from None
        raise


def fit_rows(estimator: Any, X: Any, **aligned: Any) -> Any:
    """Run the stages for rows, and set the fitted attributes.

    ``aligned`` names vectors that belong to the rows (``weights``, ``labels``); None is left out. ``sparse``:
    whether the method takes sparse rows.
    """
    with _unchanged_if_stopped(estimator):
        return _fit_rows(estimator, X, aligned)


def _fit_rows(estimator: Any, X: Any, aligned: dict[str, Any]) -> Any:
    estimator._check()
    _need(estimator, X)
    if isinstance(X, GraphSource):
        return fit_graph(estimator, X)
    run = Run(estimator.workdir)
    scratch = run.root / "exchange"
    steps = estimator._steps
    taking = estimator.takes_nan or takes_missing(steps)
    given, texts = coded(X, [*steps, estimator])
    sparse = bool(steps) or estimator._sparse() or hasattr(estimator, "refuse_sparse")  # (a step says what to do)
    source, in_memory = row_source(given, scratch, sparse=sparse, missing=taking)
    source = with_texts(source, texts)
    columns = {
        name: column_source(values, source.shape[0], scratch, name)
        for name, values in aligned.items()
        if values is not None
    }
    names = () if source.features else feature_names(X)
    source = replace(source, aligned=columns, named=() if names is None else tuple(names))
    stages = all_stages(estimator, source, None)
    if isinstance(source, StreamedRows) and row_passes(stages) > STREAMED:
        source = source.stored_copy(scratch)
        stages = stages_after(estimator, source) if not steps else []
    remember_features(estimator, X, source.shape[1])
    if not steps:
        return finish(estimator, stages, run, in_memory, source)
    with locked(run):
        if not run.temporary:
            supersede(all_stages(estimator, source, run), run, whole=True)
    return _fit_after(estimator, source, run, in_memory)


def fit_listed(estimator: Any, stages: Sequence[Stage], run: Run, source: RowSource) -> Any:
    """Fit an estimator by stages that were listed for these rows, in a run where what they replace was superseded.

    A job prepares both once; ``fit`` does so by itself.
    """
    if isinstance(source, GraphSource):
        return fit_graph(estimator, source, run)
    remember_features(estimator, source, source.shape[1])
    if estimator._steps:
        return _fit_after(estimator, source, run, False)
    return finish(estimator, stages, run, False, source, supersede_first=False)


def _fit_after(estimator: Any, source: RowSource, run: Run, in_memory: bool) -> Any:
    """Fit the steps before an estimator, one after the other, and then the estimator to what they make of the rows."""
    before = prepared(estimator._steps, source, run, passes_of(estimator), computing(estimator))
    estimator.steps_ = before.steps
    stages = stages_after(estimator, before.source)
    finish(estimator, stages, run, in_memory, before.source, before.stages)
    estimator.certificate_["steps"] = said_of(before.steps)
    return estimator


def fit_on_graph(estimator: Any, X: Any) -> Any:
    """Run the stages of a method on a graph for rows, a graph or weights, and set the fitted attributes."""
    with _unchanged_if_stopped(estimator):
        if not isinstance(X, NeighborGraph) and not (is_weights(X) and not estimator._steps):
            return _fit_rows(estimator, X, {})
        estimator._check()
        return _fit_on_neighbors(estimator, X) if isinstance(X, NeighborGraph) else _fit_on_matrix(estimator, X)


def _fit_on_neighbors(estimator: Any, X: NeighborGraph) -> Any:
    given = X.metric == GIVEN
    if given and not (X.scaled or estimator.of_lengths):
        raise InputTypeError(
            f"{type(estimator).__name__} reads the rows and the graph, and a graph of given distances "
            "does not hold rows; build the graph from rows, or open the distances along its edges (open_graph)"
        )
    run = Run(estimator.workdir, parents=[X.run])
    shape = X.shape if X.shape.trusted else shape_in(X.run.results("survey"), getattr(estimator, "metric", None))
    by = None if given else by_metric(shape)
    rule = X.n_neighbors, X.radius, X.dense
    known: dict[str, Any] = {"row_bytes": shape.ordered_bytes, "edges": X.edges}
    graph = GraphShape(X.n, X.block, shape.width, *rule, given, X.sampled, by=by, **known)
    stages = estimator._after_graph(graph, estimator._seed())
    estimator.n_features_in_ = X.n_features
    return finish(estimator, stages, run, X.in_memory, dtype=None if given else shape.dtype)


def _fit_on_matrix(estimator: Any, X: Any) -> Any:
    """A square sparse matrix: of lengths of edges, or of weights."""
    if estimator._pairwise():
        return fit_graph(estimator, length_graph(X, estimator._rule(X.shape[0])))
    if estimator.of_lengths:
        raise InputTypeError(
            f"{type(estimator).__name__} reads rows or a NeighborGraph; a sparse matrix is a graph of lengths with "
            "metric='precomputed' only, and weights are not lengths (sparse data was passed)"
        )
    run = Run(estimator.workdir)
    rest = estimator._after_graph(GraphShape(X.shape[0], rows_of_block(X), weighted=True), estimator._seed())
    estimator.n_features_in_ = X.shape[0]
    return finish(estimator, [*weight_stages(X), *rest], run, True, dtype=X.dtype)


def fit_graph(estimator: Any, source: GraphSource, run: Run | None = None) -> Any:
    """Run the stages of a method for a user's graph, and set the fitted attributes."""
    estimator._check()
    if not estimator.takes_graphs:
        raise InputTypeError(f"{type(estimator).__name__} reads rows, and this is a graph (open_graph). Give its rows")
    if estimator._steps:
        raise InputTypeError("steps map rows, and a graph has none. Give the rows, or leave the steps out")
    run = run or Run(estimator.workdir)
    readable = source if executor_now().in_this_process else source.stored_copy(run.root / "exchange")
    estimator.n_features_in_ = source.n
    return finish(estimator, estimator.stages(readable), run, source.path is None)


def finish(
    estimator: Any,
    stages: Sequence[Stage],
    run: Run,
    in_memory: bool,
    source: RowSource | None = None,
    done: Sequence[Stage] = (),
    dtype: Any = None,
    supersede_first: bool = True,
) -> Any:
    """Run the stages that are not on demand, and have the estimator adopt the run. ``done``: those run before.

    ``dtype``: of the rows, where there is no source of them. ``supersede_first``: as :func:`run_stages` takes it.
    """
    shared = any(parent.root == run.root for parent in run.parents)  # with the stages of a graph
    with telling(estimator, [stage for stage in stages if not stage.on_demand]) as todo:
        run_stages(todo, run, of=() if shared else [*done, *stages], supersede_first=supersede_first)
    on_demand = [stage for stage in stages if stage.on_demand]
    return estimator.adopt(run, source=source, in_memory=in_memory, on_demand=on_demand, dtype=dtype)


def write_output(estimator: Any) -> None:
    """Run the stages that ``fit`` left out (coordinates of all rows, written), and take their results."""
    if estimator._on_demand:
        run_stages(estimator._on_demand, estimator._run)
        known = {"source": estimator._source, "in_memory": estimator._in_memory, "certificate": estimator.certificate_}
        estimator.adopt(estimator._run, **known)


def remember_features(estimator: Any, X: Any, d: int) -> None:
    """``n_features_in_`` and, of a data frame, ``feature_names_in_``."""
    estimator.n_features_in_ = d
    names = feature_names(X)
    if names is not None:
        estimator.feature_names_in_ = names
    elif hasattr(estimator, "feature_names_in_"):
        del estimator.feature_names_in_


def _need(estimator: Any, X: Any) -> None:
    if X is None:
        raise InputTypeError(
            "fit needs rows, a NeighborGraph or a sparse matrix of weights; got None. This "
            f"{type(estimator).__name__} estimator requires X to be passed"
        )
