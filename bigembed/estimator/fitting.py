"""``fit``: what was given, which stages follow, what the results are. The same for every method."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import Any, TypeGuard

import numpy as np

from bigembed import estimator as estimators
from bigembed.errors import InputError, InputTypeError
from bigembed.estimator import preprocessing, reporting, scikit_learn
from bigembed.rows import RowSource, as_worked
from bigembed.rows.categories import MOST, Categories, refuse_codes
from bigembed.rows.graph_source import GraphSource
from bigembed.rows.input import StreamedRows, column_source, row_source
from bigembed.rows.passes import runs_of_rows
from bigembed.rows.reader import absent, columns_of, is_frame, listed, numbers_of
from bigembed.runtime.blocks import Array
from bigembed.runtime.executors import executor_now
from bigembed.stages import Run, Stage, locked, require_worker_memory, run_stages, supersede
from bigembed.stages.runs import Retention
from bigembed.store import AnyPath, remove

# ---------------------------------------------------------------------------------------------------- text columns
# Data frames in memory with columns of text that a step encodes: as numbers, with the texts that they stand for.


@dataclass(frozen=True)
class CodedRows(RowSource):
    """Rows with columns of categories whose texts something else than a table on disk says."""

    texts: Mapping[str, Sequence[str]] = field(default_factory=dict)

    @property
    def categories(self) -> Categories:
        return self.texts


def encode_text(X: Any, steps: Sequence[Any], known: Categories | None = None) -> tuple[Any, Categories]:
    """The numbers of a data frame, and the texts of its columns of categories; anything else as it is, without texts.

    Columns of text must be among those that a one-hot step of ``steps`` encodes. ``known``: the texts that were
    fitted; others get the number −1.
    """
    if not is_frame(X) or not any(hasattr(one, "texts") for one in steps):
        return X, {}
    columns = dict(columns_of(X))
    text = [name for name, values in columns.items() if _is_text(values)]
    if not text or len(columns) < X.shape[1]:
        return X, {}
    if strange := [name for name in text if name not in _encoded(steps, list(columns))]:
        raise InputError(
            f"the columns {listed(map(str, strange))} hold text, and numbers are needed. Encode them, too "
            "(OneHotEncoder, by their names), or leave them out"
        )
    texts = {str(name): (known or {}).get(str(name)) or _texts(name, columns[name]) for name in text}
    numbers = {name: _codes(values, texts[name]) if name in texts else values for name, values in columns.items()}
    for name, instead in strict_texts(steps).items() if known is not None else ():
        if name in texts:
            refuse_codes(name, columns[name], numbers[name], instead)
    if odd := [(name, values) for name, values in numbers.items() if values.dtype.kind not in "biuf"]:
        numbers |= zip(dict(odd), numbers_of(odd).T, strict=True)
    dtype = np.result_type(np.float32, *(values.dtype for values in numbers.values()))
    return np.column_stack([as_worked(values, dtype, what=f"column {name}") for name, values in numbers.items()]), texts


def with_texts(source: RowSource, texts: Categories) -> RowSource:
    """Rows that :func:`encode_text` made numbers of, with their texts."""
    if not texts:
        return source
    return CodedRows(source.shape, source.dtype, path=source.path, array=source.array, texts=texts)


def known_texts(steps: Sequence[Any]) -> Categories:
    """The texts that fitted one-hot steps know, by the names of their columns."""
    return {name: one for step in steps if hasattr(step, "texts") for name, one in step.texts().items()}


def strict_texts(steps: Sequence[Any]) -> dict[str, str]:
    """The columns of text in which fitted steps refuse other texts, each with what ``unknown`` could be instead."""
    encoders = [step for step in steps if hasattr(step, "texts")]
    strict = [step for step in encoders if estimators.fitted_parameters(step)["unknown"] == "error"]
    return {name: step.instead for step in strict for name in step.texts()}


def _encoded(steps: Sequence[Any], names: Sequence[Any]) -> set[Any]:
    """The columns that the one-hot steps encode; by their numbers where nothing goes before."""
    found: set[Any] = set()
    for number, step in enumerate(steps):
        if hasattr(step, "texts"):
            asked = names if step.columns is None else step.columns
            by_number = step.columns is not None and not number
            found |= {names[one] if by_number and not isinstance(one, str) else one for one in asked}
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


@dataclass(frozen=True)
class PreparedFit:
    """What a fit computes and what its results are read from: made once, before anything is computed."""

    run: Run
    stages: Sequence[Stage]
    """Of the steps and of the method; those of the method are listed again when the steps have learned."""
    n_features: int
    names: Any = None
    """Of the columns of a data frame."""
    source: RowSource | None = None
    in_memory: bool = False
    """Whether the rows came as an array of this process."""
    dtype: Any = None
    """Of the rows, where there is no source of them."""
    steps: tuple[Any, ...] = ()
    """What went before the method, as it has learned."""
    superseded: bool = False
    """Whether what the stages replace in the run is superseded already, by a job that holds it."""
    retention: Retention | None = None
    """What stays of the stages, if not all of it."""
    index: Any = None
    """Of a data frame of pandas: what its rows are called."""


@contextmanager
def unchanged_if_stopped(estimator: Any) -> Iterator[None]:
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


def prepare_fit(method: estimators.MethodSpec, X: Any, aligned: Mapping[str, Any]) -> PreparedFit:
    """Prepare a fit to rows of any kind, or to a user's graph.

    ``aligned`` names vectors that belong to the rows (``weights``, ``labels``); None is left out.
    """
    estimator, steps = method.estimator, method.steps
    _need(method, X)
    run = Run(estimator.workdir)
    scratch = run.root / "exchange"
    if isinstance(X, GraphSource):
        columns = aligned_columns(aligned, X.n, scratch)
        return prepare_graph_fit(method, replace(X, aligned=columns) if columns else X, run)
    taking = estimator.takes_nan or preprocessing.takes_missing(steps)
    given, texts = encode_text(X, [*steps, estimator])
    sparse = bool(steps) or method.sparse or hasattr(estimator, "refuse_sparse")  # (a step says what to do)
    source, in_memory = row_source(given, scratch, sparse=sparse, missing=taking)
    source = with_texts(source, texts)
    names = scikit_learn.feature_names(X)
    known = () if source.features or names is None else tuple(names)
    source = replace(source, aligned=aligned_columns(aligned, source.shape[0], scratch), named=known)
    stages = preprocessing.all_stages(method, source, None)
    if is_copied(source, stages, estimator.persist) and source.has_copy(scratch):
        source = source.stored_copy(scratch)
        stages = preprocessing.all_stages(method, source, None)
    require_worker_memory(stages, run, blocks_of(source))
    return PreparedFit(run, stages, source.shape[1], names, source, in_memory, index=scikit_learn.index_of(X))


def is_copied(source: RowSource | None, stages: Sequence[Stage], persist: str | None) -> TypeGuard[StreamedRows]:
    """Return whether a fit writes the rows once before it reads them; ``persist``: as the estimator has it."""
    return isinstance(source, StreamedRows) and (persist == "store" or preprocessing.row_passes(stages) > STREAMED)


def load_notes(source: RowSource | None, stages: Sequence[Stage], persist: str | None) -> list[str]:
    """Return a line on how often the chunks of a lazy array are computed; none for other rows."""
    if not isinstance(source, StreamedRows):
        return []
    chunks, passes = source.lazy.npartitions, preprocessing.row_passes(stages)
    if is_copied(source, stages, persist):
        return [f"the {chunks:,} lazy chunks are computed once: the rows are written, and read from there"]
    loads = int(passes * source.count_loads(runs_of_rows(source)))
    return [
        f"the {chunks:,} lazy chunks are computed {loads:,} times at least, in {passes:g} passes: by every task "
        f"that reads of one (a block has {source.block:,} rows); persist='store' writes the rows and computes each once"
    ]


def blocks_of(source: RowSource) -> int:
    """Count the canonical blocks of the rows."""
    return -(-source.shape[0] // source.block)


def aligned_columns(given: Mapping[str, Any], n: int, scratch: Any) -> dict[str, RowSource]:
    """Open the vectors that were given with n rows."""
    return {name: column_source(values, n, scratch, name) for name, values in given.items() if values is not None}


def prepare_graph_fit(method: estimators.MethodSpec, source: GraphSource, run: Run | None = None) -> PreparedFit:
    """Prepare a fit to a user's graph."""
    estimator = method.estimator
    if not estimator.takes_graphs:
        raise InputTypeError(f"{method.name} reads rows, and this is a graph (open_graph). Give its rows")
    if method.steps:
        raise InputTypeError("steps map rows, and a graph has none. Give the rows, or leave the steps out")
    run = run or Run(estimator.workdir)
    readable = source if executor_now().in_this_process else source.stored_copy(run.root / "exchange")
    return PreparedFit(run, method.list_stages(readable), source.n, in_memory=source.path is None)


def fit_listed(estimator: Any, stages: Sequence[Stage], run: Run, source: RowSource) -> Any:
    """Fit an estimator by stages that were listed for these rows, in a run where what they replace was superseded.

    A job prepares both once; ``fit`` does so by itself.
    """
    method = estimators.spec_of(estimator)
    if isinstance(source, GraphSource):
        return estimators.read_fit(estimator, compute_fit(method, prepare_graph_fit(method, source, run)))
    names = scikit_learn.feature_names(source)
    fit = PreparedFit(run, stages, source.shape[1], names, source, superseded=True)
    return estimators.read_fit(estimator, compute_fit(method, fit))


def compute_fit(method: estimators.MethodSpec, fit: PreparedFit) -> PreparedFit:
    """Compute the steps before a method, one after the other, and its stages but those on demand."""
    estimator = method.estimator
    remember_features(estimator, fit.names, fit.n_features)
    estimator._index = fit.index
    run, stages, source, learned = fit.run, fit.stages, fit.source, None
    if is_copied(source, stages, estimator.persist):
        source = source.stored_copy(run.root / "exchange")
        stages = [] if method.steps else preprocessing.stages_after(method, source)
    read = source
    if source is not None and method.steps:
        if not (run.temporary or fit.superseded):
            with locked(run):
                every = preprocessing.all_stages(method, source, run)
                supersede(every, run, all_listed=True, retention=estimators.retention_of(estimator, every))
        learned = preprocessing.prepare_steps(
            method.steps, source, run, preprocessing.passes_of(method), preprocessing.computer_for(estimator)
        )
        source = learned.source
        stages = preprocessing.stages_after(method, source)
    shared = any(parent.root == run.root for parent in run.parents)  # with the stages of a graph
    every = [] if shared else [*(learned.stages if learned else ()), *stages]
    retention = estimators.retention_of(estimator, every or stages)
    require_worker_memory(stages, run, None if source is None else blocks_of(source))
    with reporting.notify_callbacks(estimator, [stage for stage in stages if not stage.on_demand]) as todo:
        first = bool(learned) or not fit.superseded
        run_stages(todo, run, of=every, supersede_first=first, retention=retention)
    if read is not None and not (run.temporary or fit.superseded or shared):
        _remove_earlier_copies(run, read)
    return replace(fit, stages=stages, source=source, steps=learned.steps if learned else (), retention=retention)


def _remove_earlier_copies(run: Run, source: RowSource) -> None:
    """Delete what earlier fits in this workdir have written of other lazy rows: no stage is made from it any more."""
    used = [str(source.path), *(path for path, _ in getattr(source, "parts", ()))]
    copies: list[AnyPath] = list((run.root / "exchange").glob("input-*.zarr"))
    for copy in copies:
        if not any(f"{path}/".startswith(f"{copy}/") for path in used):
            remove(copy)


def write_output(estimator: Any) -> None:
    """Run the stages that ``fit`` left out (coordinates of all rows, written), and take their results."""
    if stages := estimators.stages_on_demand(estimator):
        run = estimators.run_of(estimator)
        run_stages(stages, run, retention=estimators.retention_in(estimator))
        known = {"source": estimators.rows_fitted(estimator), "in_memory": estimators.fitted_in_memory(estimator)}
        estimator.read_run(run, certificate=estimator.certificate_, **known)


def remember_features(estimator: Any, names: Any, d: int) -> None:
    """Set ``n_features_in_`` and, where columns have names, ``feature_names_in_``."""
    estimator.n_features_in_ = d
    if names is not None:
        estimator.feature_names_in_ = names
    elif hasattr(estimator, "feature_names_in_"):
        del estimator.feature_names_in_


def _need(method: estimators.MethodSpec, X: Any) -> None:
    if X is None:
        raise InputTypeError(
            "fit needs rows, a NeighborGraph or a sparse matrix of weights; got None. This "
            f"{method.name} estimator requires X to be passed"
        )
