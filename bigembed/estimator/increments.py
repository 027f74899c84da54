"""``partial_fit``: rows in batches, where sums over the rows are all that a fit needs, so that it is exact.

The sums of the last call are read, those of the batch are added, and the small problem is solved again.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

from bigembed.errors import InputError
from bigembed.estimator.base import Estimator
from bigembed.estimator.fitting import remember_features
from bigembed.estimator.names import check_names
from bigembed.estimator.progress import telling
from bigembed.estimator.transform import check_width
from bigembed.runs import Run
from bigembed.stages import Stage, run_stages
from bigembed.store.arrays.io import read_array
from bigembed.store.inputs.input import column_source, row_source
from bigembed.store.rows.source import RowSource
from bigembed.store.storage.paths import at

MOST_COLUMNS = 4096
"""Columns up to which d² sums are held in memory between two batches."""


def add_rows(
    estimator: Any, X: Any, stages: Callable[[RowSource, Any], Sequence[Stage]], held: Any, **aligned: Any
) -> None:
    """Fit a batch of rows on top of what is ``held``: run the stages that ``stages(source, held)`` lists."""
    estimator._check()
    fitted = estimator.__sklearn_is_fitted__()
    if fitted:
        check_names(estimator, X)
    run = Run(estimator.workdir)
    scratch = run.root / "exchange"
    source, in_memory = row_source(X, scratch, "batch", sparse=estimator._sparse())
    d = source.shape[-1]
    if fitted:
        check_width(source, estimator.n_features_in_, estimator)
    if d > MOST_COLUMNS:
        raise InputError(f"partial_fit holds d² sums, for at most {MOST_COLUMNS} columns; there are {d}. Use fit")
    columns = {
        name: column_source(values, source.shape[0], scratch, name)
        for name, values in aligned.items()
        if values is not None
    }
    listed = list(stages(replace(source, aligned=columns), held))
    with telling(estimator, listed) as todo:
        run_stages(todo, run)
    if not fitted:
        remember_features(estimator, X, d)
    estimator.adopt(run, in_memory=in_memory, dtype=source.dtype)


def sums_of(estimator: Estimator, stage: str, names: Sequence[str]) -> dict[str, Any] | None:
    """The arrays of a published stage, the numbers that it returned, and its digest; None before the first batch.

    InputError for a model that was loaded, which does not hold them.
    """
    if not estimator.__sklearn_is_fitted__():
        return None
    run = estimator._run
    if not all((at(run.path(stage)) / name).exists() for name in names):
        raise InputError(
            "this model was saved and loaded, and does not hold the sums that partial_fit adds to; go on with the "
            "estimator that was fitted, or fit again"
        )
    manifest = run.manifest(stage)
    return {name: read_array(run.path(stage, name)) for name in names} | manifest.results | {"digest": manifest.digest}
