"""Rows as a fitted step makes them, when they are read; new rows through all steps before a method."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any, NoReturn

import numpy as np

from bigembed.errors import InputTypeError
from bigembed.stages import Stage
from bigembed.store.rows.mapped import MappedSource
from bigembed.store.rows.reader import entries_of
from bigembed.store.rows.source import RowSource
from bigembed.store.storage.documents import digest_of


def through(step: Any, source: RowSource) -> RowSource:
    """The rows of a source as a fitted step maps them, when they are read."""
    extension, run = step._map(), step._run
    if source.sparse and not extension.sparse:
        step.refuse_sparse()
    stages = [name for name in type(step).saved_stages if name != "coordinates" and run.has(name)]
    stamp = digest_of({name: [run.digest(name), run.asked(name)] for name in stages})
    names = tuple(step._names_out(list(source.features))) if source.features else ()
    shape, dtype = (source.shape[0], extension.width), np.dtype(extension.dtype)
    entries = entries_left(source, extension.width) if extension.keeps_sparse else None
    known: dict[str, Any] = {"function": extension.of_block, "stamp": stamp, "entries": entries}
    found = MappedSource(shape, dtype, base=replace(source, aligned={}), **known)
    return replace(found, aligned=source.aligned, named=names)


def entries_left(source: RowSource, width: int) -> int | None:
    """How many entries of sparse rows are left at the most in ``width`` columns; None of dense rows."""
    entries = entries_of(source)
    return None if entries is None else min(entries, source.shape[0] * width)


def refuse_sparse(method: str) -> NoReturn:
    """InputTypeError: the rows are still sparse when they come to a method that takes dense ones."""
    raise InputTypeError(
        f"{method} takes dense rows, and these steps leave sparse rows sparse. Add a PCA as the last of the steps, "
        "which makes few dense columns of them, or take a method that takes sparse rows"
    )


def new_rows_through(estimator: Any, source: RowSource) -> RowSource:
    """New rows as the fitted steps of an estimator map them: each in its place, with NaN where values are missing."""
    for step in getattr(estimator, "steps_", ()):
        source = through(step, source)
    return source


def takes_missing(steps: Sequence[Any]) -> bool:
    """Whether some step knows what to do with missing values."""
    return any(getattr(step, "takes_missing", False) for step in steps)


def of_mapped(stage: Stage, source: RowSource) -> Stage:
    """The stage with the cost of reading what its rows are made of."""
    more = source.read_bytes - source.shape[0] * source.row_bytes
    cost = stage.cost
    if not cost.passes or (not more and not source.behind):
        return stage
    read = max(0, cost.read + int(cost.passes * more))
    return replace(stage, cost=replace(cost, read=read, memory=cost.memory + source.behind))
