"""Damage of a growing embedding, found by a job that holds it: named, and made again where rows and model allow it."""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from contextlib import contextmanager

import numpy as np

from bigembed.blocks.functions import Functions
from bigembed.errors import DamagedError, DamageWarning
from bigembed.jobs.growth.account import Range, attributes, damaged, span_digest
from bigembed.jobs.growth.ledger import Ledger, Snapshot, covering, head, new_ledger
from bigembed.jobs.growth.versions import CURRENT, Growth, Version, model_digest
from bigembed.jobs.job import JobSpec
from bigembed.methods import load
from bigembed.runs import Run
from bigembed.steps.kept_rows import kept_of, read_whole
from bigembed.store.formats.copying import write_dask
from bigembed.store.growing import append_source
from bigembed.store.inputs.input import row_source
from bigembed.store.rows.source import RowSource
from bigembed.store.storage.documents import read_json, write_json
from bigembed.store.storage.paths import retire


def warn(found: object) -> None:
    """Name what is damaged."""
    warnings.warn(f"{found}; it is made anew", DamageWarning, stacklevel=3)


@contextmanager
def advising(job: JobSpec) -> Iterator[None]:
    """What is damaged and cannot be made again alone is made again by a refresh."""
    try:
        yield
    except DamagedError as error:
        raise DamagedError(
            f"{error}. It cannot be made again alone; bigembed refresh {job.file} fits the rows anew"
        ) from error


def restore(growth: Growth) -> None:
    """Where ``current.json`` is damaged, gone or older, say anew that the newest version published is the current one.

    Versions of earlier releases do not say that they were published: of them the newest with coordinates.
    """
    try:
        _ = growth.history
        return
    except DamagedError as error:
        warn(error)
    if not (found := growth.published() or growth.placed()):
        raise DamagedError(f"{growth.root / CURRENT}: is damaged, and no version with coordinates is there")
    growth.point(found[0], [version.root.name for version in found[1:]])


def ledger_of(version: Version, there: Snapshot) -> Ledger:
    """The ledger; where it is damaged, made again of the rows, which must be those of the account."""
    try:
        return version.ledger
    except DamagedError as error:
        warn(error)
        if there.shape[0] < version.covered:
            raise
        fitted = covering(new_ledger(there), head(there, version.fitted))
        placed = version.ranges[1:]
        if fitted.content != version.content or any(
            span_digest(there.path, part.start, part.stop) != part.rows for part in placed
        ):
            raise DamagedError(f"{error}; and the rows that are there are not those of the coordinates") from error
        return covering(fitted, head(there, version.covered))


def repair(version: Version, functions: Functions = ()) -> None:
    """Drop coordinates that are not those published, from the first such range on, so that they are placed again.

    Those of the rows fitted are made again from the model. Reads all coordinates.
    """
    if version.published not in ("", model_digest(version.model)):
        raise DamagedError(f"{version.model}: another model than was published")
    try:
        ranges = version.ranges
    except DamagedError as error:
        warn(error)
        write_fitted(version, functions)
        return
    wrong = damaged(version.array, ranges)
    for part, why in wrong:
        warn(f"{version.array}: coordinates of rows {part.start}:{part.stop} are damaged ({why})")
    if wrong and not wrong[0][0].start:
        write_fitted(version, functions, ranges[0].coordinates)
    elif wrong:
        _cut(version, [part for part in ranges if part.start < wrong[0][0].start])


def write_fitted(version: Version, functions: Functions = (), published: str = "") -> None:
    """The coordinates of the rows fitted, by the model, as the whole array. ``published``: the digest they had.

    Rows that a step left out have NaN.
    """
    fitted, kept = load(version.model, functions), kept_of(Run(version.run))
    retire(version.array)
    embedding = fitted.embedding_
    if kept is not None:
        rows, _ = row_source(embedding, version.root / "placing")
        embedding = read_whole(kept.spread(rows), in_memory=False)
    write_dask(embedding, version.array)
    found = span_digest(str(version.array), 0, version.fitted)
    if published and found != published:
        retire(version.array)
        raise DamagedError(f"{version.model}: gives other coordinates than were published")
    left_out = 0 if kept is None else version.fitted - kept.shape[0]
    whole = Range(0, version.fitted, "fitted", version.content, model_digest(version.model), found, left_out)
    nothing = RowSource((0, *fitted.embedding_.shape[1:]), np.dtype(fitted.embedding_.dtype))
    append_source(version.array, nothing, attributes([whole]))


def _cut(version: Version, ranges: list[Range]) -> None:
    """Only these ranges are there, in one step."""
    file = version.array / "zarr.json"
    metadata = read_json(file)
    metadata["shape"][0] = ranges[-1].stop
    metadata["attributes"] |= attributes(ranges)
    write_json(file, metadata)
