"""The stages around those of a method: the steps before it, also as new rows go through them, and a judgement."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, NoReturn

import numpy as np

from bigembed import estimator as estimators
from bigembed.errors import InputError, InputTypeError
from bigembed.estimator.filled import filled_stages
from bigembed.estimator.frame import with_frame
from bigembed.estimator.reporting import notify_callbacks
from bigembed.estimator.sampling import BYTES, count_blocks, count_rows, dense_bytes, drawn_numbers, sampled_rows
from bigembed.quality import DOUBTED, FAITHFUL, NEIGHBORS, cost_of, kept_arrays, preserved
from bigembed.quality.left_out import left_out
from bigembed.quality.likeness import GROUPED, grouped_columns
from bigembed.rows import RowSource, graph_source, reader, rows_at
from bigembed.rows.derived import MappedSource, PlannedRows, kept_on_the_way, written_rows
from bigembed.runtime.blocks import Array, is_sparse
from bigembed.runtime.executors import executor_now
from bigembed.stages import (
    ArraySpec,
    Context,
    Cost,
    PartOfRun,
    Run,
    Stage,
    outdated,
    rows_of,
    run_stages,
    window_of,
    within,
)
from bigembed.store import arrays, at, files

# ----------------------------------------------------------------------------------------------------- mapped rows
# Rows as a fitted step makes them, when they are read; new rows through all steps before a method.


def mapped_rows(step: Any, source: RowSource) -> RowSource:
    """The rows of a source as a fitted step maps them, when they are read."""
    extension, run = estimators.extension_of(step), estimators.run_of(step)
    if source.sparse and not extension.sparse:
        step.refuse_sparse()
    stages = [name for name in type(step).saved_stages if name != "coordinates" and run.has(name)]
    stamp = files.digest_of({name: [run.digest(name), run.asked(name)] for name in stages} | _set_by_hand(step))
    names = estimators.names_made(step, source.features)
    shape, dtype = (source.shape[0], extension.width), np.dtype(extension.dtype)
    entries = entries_left(source, extension.width) if extension.keeps_sparse else None
    known: dict[str, Any] = {"function": extension.of_block, "stamp": stamp, "entries": entries}
    found = MappedSource(shape, dtype, base=replace(source, aligned={}), **known)
    return replace(found, aligned=source.aligned, named=names)


def _set_by_hand(step: Any) -> dict[str, Any]:
    """The parameters that a step maps rows by and no stage knows of, where they are not the default."""
    given = {name: getattr(step, name) for name in getattr(step, "mapped_by", ())}
    found = {name: value for name, value in given.items() if value != getattr(type(step), name)}
    return {"parameters": found} if found else {}


def entries_left(source: RowSource, width: int) -> int | None:
    """How many entries of sparse rows are left at the most in ``width`` columns; None of dense rows."""
    entries = reader.entries_of(source)
    return None if entries is None else min(entries, source.shape[0] * width)


def refuse_sparse(method: str) -> NoReturn:
    """InputTypeError: the rows are still sparse when they come to a method that takes dense ones."""
    raise InputTypeError(
        f"{method} takes dense rows, and these steps leave sparse rows sparse. Add a PCA as the last of the steps, "
        "which makes few dense columns of them, or take a method that takes sparse rows"
    )


def mapped_new_rows(estimator: Any, source: RowSource) -> RowSource:
    """New rows as the fitted steps of an estimator map them: each in its place, with NaN where values are missing."""
    for step in getattr(estimator, "steps_", ()):
        source = mapped_rows(step, source)
    return source


def takes_missing(steps: Sequence[Any]) -> bool:
    """Whether some step knows what to do with missing values."""
    return any(getattr(step, "takes_missing", False) for step in steps)


def with_cost_of_mapping(stage: Stage, source: RowSource) -> Stage:
    """The stage with the cost of reading what its rows are made of."""
    more = source.read_bytes - source.shape[0] * source.row_bytes
    cost = stage.cost
    if not cost.passes or (not more and not source.behind):
        return stage
    read = max(0, cost.read + int(cost.passes * more))
    return replace(stage, cost=replace(cost, read=read, memory=cost.memory + source.behind))


# ---------------------------------------------------------------------------------------------------------- before
# The steps before a method: their stages in the run of the method, and the rows that come out of them.
#
# A step learns from the rows that the steps before it make. Nothing of their size is written: rows are mapped block
# by block as they are read, unless a copy of what the last step makes costs less than the passes that follow.


@dataclass(frozen=True)
class Prepared:
    """What comes of the steps before a method."""

    stages: tuple[Stage, ...]
    """Theirs, with that of a copy where it pays."""
    source: RowSource
    """The rows that the method reads; planned ones where they are not known yet."""
    steps: tuple[Any, ...] = ()
    """The steps, fitted, as far as they are published."""


def row_passes(stages: Sequence[Stage]) -> float:
    """How often ``fit`` reads the rows as they were given: what follows reads a copy in the order of the graph."""
    return sum(stage.cost.passes for stage in reading_rows(stages) if not stage.on_demand)


def reading_rows(stages: Sequence[Stage]) -> Sequence[Stage]:
    """The stages that read the rows as they were given."""
    last = next((number for number, stage in enumerate(stages) if stage.name == "order"), len(stages))
    return stages[: last + 1]


def all_stages(method: estimators.MethodSpec, source: RowSource, run: Run | None) -> list[Stage]:
    """All stages of the steps and of the method. What is not known before a step has run is planned by its bound."""
    found = prepare_steps(method.steps, source, run, passes_of(method))
    return [*found.stages, *stages_after(method, found.source)]


def stages_after(method: estimators.MethodSpec, source: RowSource) -> list[Stage]:
    """The stages of the method for rows that steps make, their costs with what lies behind these rows."""
    if method.steps and source.sparse and not method.sparse:
        refuse_sparse(method.name)
    listed = with_judgement(method, method.list_stages(source), source)
    if not method.steps and estimators.places_rows(method):
        listed += filled_stages(source)
    stages = with_frame(method.estimator._frame, method.estimator.frame_rule, listed, source)
    if not method.steps:
        return stages
    reading = {stage.name for stage in reading_rows(stages)}
    return [with_cost_of_mapping(stage, source) if stage.name in reading else stage for stage in stages]


def passes_of(method: estimators.MethodSpec) -> Callable[[RowSource], float]:
    """How often a method reads the rows that it is fitted to."""
    return lambda source: row_passes(method.list_stages(source))


def computer_for(estimator: Any) -> Callable[[Sequence[Stage], Run], None]:
    """What computes stages of the steps before an estimator, which tells of them as of its own."""

    def compute(stages: Sequence[Stage], run: Run) -> None:
        with notify_callbacks(estimator, stages) as todo:
            run_stages(todo, run)

    return compute


def prepare_steps(
    steps: Sequence[Any],
    source: RowSource,
    run: Run | None,
    passes: Callable[[RowSource], float],
    compute: Callable[[Sequence[Stage], Run], None] | None = None,
) -> Prepared:
    """What comes of steps, as far as they are published in the run; all of it where something can ``compute`` them.

    ``passes``: how often the rows that come out will be read.
    """
    if not steps:
        return Prepared((), source)
    stages: list[Stage] = []
    fitted: list[Any] = []
    written: Stage | None = None
    known, place, looked = run is not None, "", filled_stages(source)
    for number, step in enumerate(steps, 1):
        prefix, step = f"step{number}-{type(step).registered}-", _for_rows(step, source)
        own = [
            within(with_cost_of_mapping(stage, source), prefix) for stage in step.stages(replace(source, aligned={}))
        ]
        todo = [stage for stage in own if not stage.on_demand]
        stages += todo
        written = next((stage for stage in own if stage.on_demand), None)
        if compute and run is not None:
            compute(todo, run)
        known = known and (bool(compute) or not outdated(stages, run))  # type: ignore[arg-type]
        if known and run is not None:
            made = step.read_run(PartOfRun(run, prefix), source=source, certificate=None if compute else {})
            fitted.append(made)
            source = _after(made, source)
        else:
            source = _planned(step, source)
    stages += looked
    if compute and run is not None:
        compute(looked, run)
    if written is None or source.sparse or not _pays(source, passes(source)):
        return Prepared(tuple(stages), source, tuple(fitted))
    stages.append(replace(written, on_demand=False))
    if compute and run is not None:
        compute([written], run)
    if known and run is not None and (compute or not outdated(stages, run)):
        place = run.path(written.name, "embedding")
        return Prepared(tuple(stages), written_rows(place, source), tuple(fitted))
    stamp, left = source.fingerprint(), kept_on_the_way(source)
    copy = PlannedRows(
        source.shape, source.dtype, aligned=source.aligned, named=source.features, stamp=stamp, left=left
    )
    return Prepared(tuple(stages), copy, tuple(fitted))


def described_steps(steps: Sequence[Any]) -> dict[str, str]:
    """What each step did with the rows fitted, in words, by its number and name."""
    return {f"{number} {type(step).registered}": step.describe() for number, step in enumerate(steps, 1)}


def _for_rows(step: Any, source: RowSource) -> Any:
    """A step that knows how many columns these rows have, and what they are called; it is not fitted."""
    made = type(step)(**estimators.method_parameters(step))
    made.n_features_in_ = source.width
    if source.features:
        made.feature_names_in_ = np.array(source.features, dtype=object)
    estimators.mark_as_step(made)
    return made


def _after(step: Any, source: RowSource) -> RowSource:
    """The rows fitted as a fitted step leaves them."""
    kept: RowSource | None = step.left_of(source) if getattr(step, "drops", False) else None
    return mapped_rows(step, source) if kept is None else kept


def _planned(step: Any, source: RowSource) -> RowSource:
    """As many rows, and as many columns, as the step makes at the most."""
    width = step.width(source)
    if not isinstance(width, int):
        raise InputError(
            f"the step {type(step).registered!r} needs a number of components, so that what follows can be planned; "
            f"got n_components={width!r}"
        )
    dtype = source.work if step.follows_dtype else np.dtype(np.float64)
    names = estimators.names_planned(step, source.features)
    shape = source.shape[0], width
    entries = entries_left(source, width) if getattr(step, "keeps_sparse", False) else None
    base = replace(source, aligned={})
    return PlannedRows(shape, dtype, base=base, aligned=source.aligned, named=names, entries=entries)


def _pays(source: RowSource, passes: float) -> bool:
    """Whether a copy of mapped rows is read and written with fewer bytes than their making in every pass takes."""
    copy = source.shape[0] * source.row_bytes
    return passes * source.read_bytes > source.read_bytes + (1 + passes) * copy


# --------------------------------------------------------------------------------------------------------- judgement
# How well a map shows its rows, where the method has no stage for that: sampled rows against each other.
#
# The methods on a graph compare sampled rows with all rows, in passes that are few beside those of the graph. A linear
# map takes one or two passes in all, and would take several times as long. So rows of a few blocks are drawn, mapped,
# and judged by the same figures and limits; of rows that are no more than the sample, the figures are those of all
# rows. Sparse rows are compared with all rows, too, which a linear map has read many times by then: a few of many texts
# have hardly a word in common. As many as fit into what drawn rows may take are made dense for that, without compiled
# code; more are compared as they are.

JUDGEMENT = "judgement"
SAMPLES = 200
"""Of the drawn rows those that are compared with all of them."""
COMPARED = 400
"""Of many sparse rows, those that are compared with all of them."""
FITTED_TO = ("labels", "weights", "target_density")
"""Vectors that a fit takes, and the map of a row does not."""


def with_judgement(method: estimators.MethodSpec, stages: Sequence[Stage], source: RowSource) -> list[Stage]:
    """The stages of a method and, where none of them judges the map of these rows, the one that does.

    Rows whose distances are functions of pairs, or are given, are not judged, nor are too few for neighborhoods.
    """
    estimator = method.estimator
    metric = getattr(estimator, "metric", "euclidean")
    shown = next((stage for stage in stages if stage.name == "coordinates"), None)
    there = any(stage.name == JUDGEMENT for stage in stages) or isinstance(source, graph_source.GraphSource)
    if (
        shown is None
        or there
        or not (estimators.compares_rows(method) and estimator.makes_maps)
        or source.shape[0] <= 2 * NEIGHBORS
    ):
        return list(stages)
    return [*stages, _judgement_stage(estimator, shown, source, metric)]


def compares_sparse(source: RowSource) -> bool:
    """Whether rows are compared as they are, being sparse and too many to be made dense: by compiled code."""
    return source.sparse and source.shape[0] * dense_bytes(source) > BYTES


def _judgement_stage(estimator: Any, shown: Stage, source: RowSource, metric: str) -> Stage:
    source = replace(source, aligned={name: one for name, one in source.aligned.items() if name not in FITTED_TO})
    mapped = shown.on_demand
    inputs = shown.inputs if mapped else (shown.name,)
    parameters: dict[str, Any] = {"n_neighbors": NEIGHBORS, "metric": metric, "source": source.fingerprint()}
    given = {"estimator": estimator, "source": source, "metric": metric, "mapped": mapped}
    if compares_sparse(source):
        width = next((one.width for one in shown.cost.arrays if one.width), 1)
        cost = cost_of(source, RowSource((source.shape[0], int(width)), np.dtype(np.float64)), samples=COMPARED)
        parameters["samples"], run = COMPARED, partial(run_whole_judgement, **given)
    else:
        cost = _cost_of_drawn(source)
        parameters |= {"samples": SAMPLES, "rows": count_rows(source)}
        run = partial(run_judgement, **given)
    return Stage(JUDGEMENT, inputs, parameters, run, cost, parameters_of=shown.parameters_of if mapped else ())


def _cost_of_drawn(source: RowSource) -> Cost:
    share, drawn = count_blocks(source) / -(-source.shape[0] // source.block), count_rows(source)
    pairs = min(SAMPLES, drawn) * drawn
    sample = drawn, source.width, source.work
    return Cost.of(
        reads=[rows_of(source, share)],
        writes=[] if source.sparse else [*kept_arrays(source), ArraySpec(GROUPED, source.width, dtype="?")],
        task=[*window_of(source), ArraySpec("drawn rows", *sample, times=3)],
        coordinator=[ArraySpec("drawn rows", *sample, times=6), ArraySpec("distances of pairs", pairs, times=8)],
        passes=share,
        flops=40.0 * pairs * source.width,  # (some five passes, most of them not by matrix products)
        scalar_ops=8 * pairs,
        maps=8,
    )


def run_judgement(context: Context, estimator: Any, source: RowSource, metric: Any, mapped: bool) -> dict[str, Any]:
    numbers = drawn_numbers(source)
    extension = estimators.extension_in(estimator, context.home) if mapped else None
    beside = {name: source.aligned[name] for name in (extension.aligned if extension else ())}
    sample = sampled_rows(replace(source, aligned=beside), numbers)
    if extension:
        coordinates = extension.of_block(sample)
    else:
        coordinates = arrays.read_rows(context.of("coordinates", "embedding"), numbers)
    rows = sample.rows.toarray() if is_sparse(sample.rows) else sample.rows
    kept = "" if source.sparse else context.path("")
    drawn = _as_source(context, "drawn", rows), _as_source(context, "shown", coordinates)
    found = _figures(context, *drawn, metric, SAMPLES, kept, RowSource(numbers.shape, numbers.dtype, array=numbers))
    if kept:
        every = count_blocks(source) == -(-source.shape[0] // source.block)
        grouped = np.zeros(source.width, bool) if every else grouped_columns(rows, numbers // source.block)
        arrays.write_array(f"{kept}{GROUPED}", grouped)
    low = min(found[name]["value"] for name in DOUBTED) < FAITHFUL if "unmeasured" not in found else False
    if low and getattr(estimator, "principal", False):
        found["left_out"] = left_out(rows, coordinates)
    return {"map": found | ({"of": source.shape[0]} if len(numbers) < source.shape[0] else {})}


def run_whole_judgement(
    context: Context, estimator: Any, source: RowSource, metric: Any, mapped: bool
) -> dict[str, Any]:
    rows, n = replace(source, aligned={}), source.shape[0]
    if mapped:
        extension = estimators.extension_in(estimator, context.home)
        place = (n, extension.width), np.dtype(extension.dtype)
        base = replace(source, aligned={name: source.aligned[name] for name in extension.aligned})
        shown: RowSource = MappedSource(*place, base=base, function=extension.of_block)
    else:
        shown = rows_at(at(context.of("coordinates", "embedding")))
    return {"map": _figures(context, rows, shown, metric, COMPARED)}


def _figures(
    context: Context,
    rows: RowSource,
    shown: RowSource,
    metric: Any,
    samples: int,
    kept: str = "",
    numbers: RowSource | None = None,
) -> dict[str, Any]:
    asked = {"n_neighbors": NEIGHBORS, "samples": samples, "seed": 0, "metric": metric, "kept": kept}
    try:
        return preserved(rows, shown, context.exchange, numbers=numbers, **asked)
    except InputError as error:  # (distances beyond float64, zeros by cosine)
        return {"unmeasured": str(error)}


def _as_source(context: Context, name: str, rows: Array) -> RowSource:
    """Rows of this process as a source: as they are, or in a file for tasks that run elsewhere."""
    if executor_now().in_this_process:
        return RowSource(rows.shape, rows.dtype, array=rows)
    path = f"{context.exchange.root}/{name}"
    arrays.write_array(path, rows)
    return RowSource(rows.shape, rows.dtype, path=path)
