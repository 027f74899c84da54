"""Coordinates of new rows by a fitted map, streamed block by block: the same for every method.

A method says how rows become coordinates (:class:`Extension`); here they come from any kind of input,
and go into memory, a lazy Dask array, or a new Zarr array.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np

from bigembed import store
from bigembed.errors import ExistingOutputError, InputError
from bigembed.estimator import extension as extensions
from bigembed.estimator import extension_of, fitting, run_of, scikit_learn
from bigembed.estimator.likeness import warn_of_unlike
from bigembed.estimator.preprocessing import mapped_new_rows, refuse_sparse, takes_missing, with_cost_of_mapping
from bigembed.rows import RowSource, derived, opening, passes
from bigembed.rows.input import column_source, row_source
from bigembed.runtime import once
from bigembed.runtime.blocks import Array, block_rows, bounds, map_blocks
from bigembed.runtime.executors import executor_now
from bigembed.stages import ArraySpec, Context, Cost, Run, Stage, buffer, largest, run_stages
from bigembed.stages.cost import output_cost
from bigembed.store import arrays, parcels
from bigembed.store.attributes import COORDINATES, describe, seal_rows
from bigembed.store.exchange import Exchange


def transform(estimator: Any, X: Any, **aligned: Any) -> Any:
    """Coordinates of new rows: NumPy for arrays in memory, a lazy Dask array otherwise."""
    return apply(estimator, X, extension_of(estimator), compare=True, **aligned)


def apply(estimator: Any, X: Any, extension: extensions.Extension, *, compare: bool = False, **aligned: Any) -> Any:
    """What a function of the row makes of new rows: NumPy for arrays in memory, a lazy Dask array otherwise.

    ``compare``: whether a warning says where they are unlike the fitted ones; lazy results are not computed for that.
    """
    source, in_memory = new_rows(estimator, X, extension, aligned)
    if compare and (in_memory or not extension.cheap):
        warn_of_unlike(estimator, source)
    if in_memory and (extension.grouping is None or source.shape[0] <= extension.grouping.batch(source.shape[0])):
        return extensions.in_one_array(source, extension)
    if extension.cheap:
        run: Run = run_of(estimator)
        sparse = source.sparse and extension.keeps_sparse
        found = derived.MappedRows(
            source, extension, extension.width, extension.dtype, run, marks=run.marks(), sparse=sparse
        )
        return found.lazy()
    fitted, shared = run_of(estimator), not in_memory or not executor_now().in_this_process
    inside = shared and fitted.kind != "model"
    scratch = Run(fitted.root / f"transform-{uuid.uuid4().hex[:8]}" if inside else None)
    kept = False
    try:
        out = scratch.root / "coordinates"
        write_coordinates(source, extension, out, fitted)
        kept = not in_memory
        lazy = (fitted if inside else scratch).kept_by(opening.open_array(out))
        return lazy if kept else np.asarray(lazy)
    finally:
        if not kept:
            store.remove(scratch.root)


def transform_to(estimator: Any, X: Any, out: store.PathLike, **aligned: Any) -> None:
    """Coordinates of new rows into a new Zarr array: written aside, renamed when whole.

    A stopped one is taken up by the same call: what is there already lies in ``OUT.partial``.
    """
    store.require_array_name(out)
    extension = extension_of(estimator)
    source = new_rows(estimator, X, extension, aligned)[0]
    warn_of_unlike(estimator, source)
    run_to(written_coordinates(source, extension, run_of(estimator)), out, run_of(estimator))


def stage_for(estimator: Any, X: Any, **aligned: Any) -> Stage:
    """What :func:`transform_to` runs."""
    extension = extension_of(estimator)
    return written_coordinates(new_rows(estimator, X, extension, aligned)[0], extension, run_of(estimator))


def new_rows(
    estimator: Any, X: Any, extension: extensions.Extension, aligned: Mapping[str, Any]
) -> tuple[RowSource, bool]:
    """New rows with their aligned vectors, and whether they are in memory; InputError if they do not fit."""
    given = {name: values for name, values in aligned.items() if values is not None}
    if set(given) != set(extension.aligned):
        raise InputError(_wrong_aligned(estimator, given, extension.aligned))
    scikit_learn.check_names(estimator, X)
    scratch = scratch_of(estimator)
    steps = getattr(estimator, "steps_", ())
    missing = takes_missing(steps) or extension.missing == "taken"
    rows, _ = fitting.encode_text(X, [*steps, estimator], fitting.known_texts([*steps, estimator]))
    source, in_memory = row_source(rows, scratch, "query", sparse=extension.sparse or bool(steps), missing=missing)
    columns = {name: column_source(values, source.shape[0], scratch, name) for name, values in given.items()}
    return through_steps(estimator, replace(source, aligned=columns), extension), in_memory


def through_steps(estimator: Any, source: RowSource, extension: extensions.Extension) -> RowSource:
    """New rows as the steps before an estimator make them; InputError if they have another width than those fitted."""
    steps = getattr(estimator, "steps_", ())
    check_width(source, steps[0].n_features_in_ if steps else extension.n_features, estimator)
    found = mapped_new_rows(estimator, source)
    if found.sparse and not extension.sparse:
        refuse_sparse(type(estimator).__name__)
    return found


def _wrong_aligned(estimator: Any, given: Iterable[str], needed: Iterable[str]) -> str:
    name = type(estimator).__name__
    if missing := sorted(set(needed) - set(given)):
        what = ", ".join(missing)
        return f"this {name} was fitted with {what}: new rows need theirs, too; give {what}, one number a row"
    what = ", ".join(sorted(set(given) - set(needed)))
    return f"this {name} was fitted without {what}; leave them out for new rows"


def write_coordinates(source: RowSource, extension: extensions.Extension, out: store.PathLike, fitted: Run) -> None:
    """Coordinates of all rows of a source into a new Zarr array, by the map of a fitted run: aside and renamed."""
    run_to(written_coordinates(source, extension, fitted), out, fitted)


def written_coordinates(source: RowSource, extension: extensions.Extension, fitted: Run) -> Stage:
    """The stage that writes the coordinates of new rows; InputError where they would be sparse."""
    if source.sparse and extension.keeps_sparse:
        raise InputError(
            "an array is dense, and the step leaves sparse rows sparse. Give the steps and a method to a "
            "Pipeline (to a job: [[steps]]); nothing between them is written then"
        )
    return coordinates_of(source, extension, fitted)


def run_to(
    stage: Stage, out: store.PathLike, fitted: Run, attributes: Mapping[str, Any] | None = None, keep: bool = False
) -> None:
    """Run a stage of coordinates aside, and put its array, with these attributes, in its place when it is whole.

    ``keep``: what else lies aside stays there, for a caller who has more to do.
    """
    target, aside = store.at(out).absolute(), aside_of(out)
    refuse_existing(target)
    run = Run(aside, [fitted])
    try:
        run_stages([stage], run)
    except InputError:
        store.remove(aside)
        raise
    refuse_existing(target)
    if attributes:
        describe(run.path(STAGE, "coordinates"), attributes)
    seal_rows(store.at(run.path(STAGE, "coordinates")), "transform", COORDINATES)
    try:
        store.move(run.path(STAGE, "coordinates"), target)
    except OSError:
        refuse_existing(target)
        raise
    if not keep:
        store.remove(aside)


def aside_of(out: store.PathLike) -> store.AnyPath:
    """Where coordinates are written before they are whole."""
    return store.at(f"{store.at(out)}.partial").absolute()


def coordinates_of(source: RowSource, extension: extensions.Extension, fitted: Run) -> Stage:
    """The stage that writes the coordinates of new rows; it depends on all stages of the fitted run."""
    inputs = tuple(fitted.published())
    if extension.grouping is not None:
        return with_cost_of_mapping(grouped_stage(source, extension, extension.grouping, inputs), source)

    parameters = {"source": source.fingerprint(), "width": extension.width, "dtype": extension.dtype}
    cost = output_cost(source, extension.width, extension.dtype)
    return with_cost_of_mapping(
        Stage(
            STAGE,
            inputs,
            parameters,
            partial(run_coordinates_of, source=source, extension=extension),
            cost,
            parameters_of=inputs,
        ),
        source,
    )


def run_coordinates_of(context: Context, source: RowSource, extension: extensions.Extension) -> dict[str, Any]:
    extensions.write_extended(source, extension, context.path("coordinates"))
    return {"rows": source.shape[0]}


def scratch_of(estimator: Any) -> store.AnyPath:
    """Where inputs are copied that tasks cannot read in place: with the run, but not with a saved model, which may be
    anybody's; then in a temporary folder."""
    run: Run = run_of(estimator)
    if run.kind != "model":
        return run.root / "exchange"
    if run.aside is None:
        run.aside = Run(None)
    return run.aside.root


def refuse_existing(out: store.PathLike) -> None:
    """ExistingOutputError if there is something at the path."""
    if store.published(out):
        raise ExistingOutputError(f"{out}: exists already. Nothing was changed; choose another path")


def check_width(source: RowSource, fitted: int, estimator: Any) -> None:
    """InputError unless the rows have the features of those that were fitted."""
    d = passes.checked_shape(source)[1]
    if d != fitted:
        raise InputError(f"X has {d} features, but {type(estimator).__name__} is expecting {fitted} features as input.")


# ------------------------------------------------------------------------------------------------------------ groups
# Coordinates by methods that look up the fitted rows around each new one: rows are brought to the blocks of fitted rows
# that they belong to, so that a task reads few blocks, each for many rows; then back into the order of the input.

STAGE = "extend"
WAVE_ROWS = 1 << 25
"""New rows that are brought together at a time: what is on its way takes no more of the disk than these do."""


def grouped_stage(
    source: RowSource, extension: extensions.Extension, grouping: extensions.Grouping, inputs: tuple[str, ...]
) -> Stage:
    """``coordinates`` (n, width) of the rows of a source, in their order. Two passes over the new rows."""
    n = source.shape[0]
    block, width = source.block, extension.width
    batch, out_rows = grouping.batch(n), block_rows(width, 8)
    wave = min(n, wave_rows(out_rows))
    held, columns, dtype = min(n, batch), source.shape[1], source.dtype
    rows, coordinates = ArraySpec("rows", n, columns, dtype), ArraySpec("coordinates", n, width)
    cost = Cost.of(
        reads=[rows],
        writes=[ArraySpec("embedding", n, width, extension.dtype)],
        leaves=[replace(rows, rows=wave), ArraySpec("numbers of rows", wave, 2, "i8"), replace(coordinates, rows=wave)],
        task=largest(
            [
                ArraySpec("rows to group", min(n, block), columns, dtype, 3),
                ArraySpec("rows as compared", min(n, block), grouping.row_bytes, "u1", 3),
            ],
            [
                ArraySpec("rows of a batch", held, columns, dtype, 2),
                ArraySpec("rows as compared", held, grouping.row_bytes, "u1", 2),
                buffer("neighbors of a batch", grouping.memory(held)),
            ],
            [ArraySpec("coordinates and numbers", min(n, out_rows), width + 2, times=3)],
        ),
        passes=2,
    )
    parameters = {"source": source.fingerprint(), "batch": batch, "width": width}
    run = partial(run_grouped, source=source, extension=extension, grouping=grouping)
    return Stage(STAGE, inputs, parameters, run, cost, parameters_of=inputs)


def run_grouped(
    context: Context, source: RowSource, extension: extensions.Extension, grouping: extensions.Grouping
) -> dict[str, Any]:
    n, width = source.shape[0], extension.width
    batch, out_rows = grouping.batch(n), block_rows(width, 8)
    exchange, made = context.exchange, 0
    for first, last in bounds(n, wave_rows(out_rows)):
        spans = bounds(last - first, source.block)
        new = [(number, first + start, first + stop) for number, (start, stop) in enumerate(spans)]
        wrong = map_blocks(sort_block, new, source=source, extension=extension, grouping=grouping, exchange=exchange)
        if any(wrong):  # not raised in the tasks: when it reaches the caller, none of them writes any more
            raise InputError("; ".join(message for message in wrong if message))
        tasks = once(partial(_tasks_of, exchange, len(new), batch))
        numbered = [(number, *task) for number, task in enumerate(tasks)]
        fixed: dict[str, Any] = {"extension": extension, "batch": batch, "out_rows": out_rows, "exchange": exchange}
        map_blocks(extend_group, numbered, first_row=first, n=last - first, **fixed)
        if not first:
            arrays.create_rows(context.path("coordinates"), (n, width), extension.dtype, out_rows, overwrite=True)
        left = extensions.restore(
            exchange, len(tasks), ("coordinates",), last - first, out_rows, context.path(""), first
        )
        made += len(tasks)
        if last < n:
            left.drop()
            exchange.drop("new")
    return {"rows": n, "tasks": made}


def wave_rows(out_rows: int) -> int:
    """Rows that are brought together at a time: whole blocks of the output.

    >>> wave_rows(65_536), wave_rows(10_699) % 10_699
    (33554432, 0)
    """
    return out_rows * max(1, WAVE_ROWS // out_rows)


def _tasks_of(exchange: Exchange, sources: int, batch: int) -> list[tuple[int, int, int, int]]:
    return list(groups(np.stack([exchange.piece("new", number, "counts") for number in range(sources)]), batch))


def sort_block(
    number: int,
    start: int,
    stop: int,
    *,
    source: RowSource,
    extension: extensions.Extension,
    grouping: extensions.Grouping,
    exchange: Exchange,
) -> str:
    """Leave the rows of one block of the input, by the block of fitted rows that each belongs to.

    Returns what is wrong with them, or nothing.
    """
    rows = source.read(start, stop)
    try:
        label = labels(rows, start, extension, grouping)
    except InputError as error:
        return str(error)
    order, starts = parcels.by_receiver(label, grouping.blocks)
    pieces: dict[str, Array] = {"counts": np.diff(starts)}
    for b in np.flatnonzero(pieces["counts"]):
        members = order[starts[b] : starts[b + 1]]
        pieces |= {f"rows{b}": rows[members], f"at{b}": members + start}
    exchange.put("new", number, pieces)
    return ""


def labels(rows: Array, start: int, extension: extensions.Extension, grouping: extensions.Grouping) -> Array:
    """The block (m,) of fitted rows that each new row belongs to; 0 for one that has no place."""
    there = extensions.complete(rows) if extension.missing == "passed" else np.ones(rows.shape[0], bool)
    if not there.any():
        return np.zeros(len(there), np.int64)
    if not there.all():  # (a complete row stands in for each of the others, so that errors number all of them)
        rows = rows[np.where(there, np.arange(len(there)), int(there.argmax()))]
    with extensions.consistent(extension.saved):
        return np.where(there, grouping.block_of(rows, extension.model, start), 0)


def groups(counts: Array, batch: int) -> Iterator[tuple[int, int, int, int]]:
    """What each task takes, of ``counts`` (sources, blocks): a range of blocks and a range of sources.

    Consecutive blocks go together until they are half a batch; of a block with more, some of the sources.

    >>> list(groups(np.array([[1, 1, 9, 1], [1, 0, 9, 1]]), 8))
    [(0, 2, 0, 2), (2, 3, 0, 1), (2, 3, 1, 2), (3, 4, 0, 2)]
    """
    sources, blocks = counts.shape
    first = held = 0
    for b, size in enumerate(counts.sum(axis=0).tolist()):
        if 2 * size > batch:
            if held:
                yield first, b, 0, sources
            yield from ((b, b + 1, start, stop) for start, stop in _runs(counts[:, b], batch))
            first, held = b + 1, 0
            continue
        held += size
        if 2 * held >= batch:
            yield first, b + 1, 0, sources
            first, held = b + 1, 0
    if held:
        yield first, blocks, 0, sources


def _runs(sizes: Array, batch: int) -> Iterator[tuple[int, int]]:
    """Consecutive ranges of half a batch or more, as far as there is so much."""
    first = held = 0
    for number, size in enumerate(sizes.tolist()):
        held += size
        if 2 * held >= batch:
            yield first, number + 1
            first, held = number + 1, 0
    if held:
        yield first, len(sizes)


def extend_group(
    number: int,
    first: int,
    last: int,
    start: int,
    stop: int,
    *,
    extension: extensions.Extension,
    batch: int,
    first_row: int,
    n: int,
    out_rows: int,
    exchange: Exchange,
) -> None:
    """Coordinates of the new rows in the blocks ``first:last`` from the sources ``start:stop``, by output block.

    ``first_row`` is that of the ``n`` that are brought together.
    """
    parts = [part for source in range(start, stop) for part in _rows_of(source, first, last, exchange)]
    if not parts:
        empty = {"coordinates": np.empty((0, extension.width), extension.dtype)}
        return extensions.leave_rows(exchange, number, np.zeros(0, np.int64), empty, n, out_rows)
    rows, at = (np.concatenate(part) for part in zip(*parts, strict=True))
    del parts
    coordinates = np.empty((len(rows), extension.width), extension.dtype)
    for low, high in bounds(len(rows), batch):
        coordinates[low:high] = extension.of_rows(rows[low:high])
    extensions.leave_rows(exchange, number, at - first_row, {"coordinates": coordinates}, n, out_rows)


def _rows_of(source: int, first: int, last: int, exchange: Exchange) -> Iterator[tuple[Array, Array]]:
    found = exchange.find("new", source, [f"{name}{b}" for b in range(first, last) for name in ("rows", "at")])
    pairs = zip(found[::2], found[1::2], strict=True)
    return ((rows, at) for rows, at in pairs if rows is not None and at is not None)
