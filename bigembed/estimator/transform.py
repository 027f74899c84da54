"""Coordinates of new rows by a fitted map, streamed block by block: the same for every method.

A method says how rows become coordinates (:class:`Extension`); here they come from any kind of input,
and go into memory, a lazy Dask array, or a new Zarr array.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterable, Mapping
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np

from bigembed.errors import ExistingOutputError, InputError
from bigembed.estimator.extension import Extension, in_one_array, write_extended
from bigembed.estimator.fitting import encode_text, known_texts
from bigembed.estimator.grouped import STAGE, grouped_stage
from bigembed.estimator.preprocessing import mapped_new_rows, refuse_sparse, takes_missing, with_cost_of_mapping
from bigembed.estimator.protocol import extension_of, run_of
from bigembed.estimator.scikit_learn import check_names
from bigembed.rows.derived import MappedRows
from bigembed.rows.input import column_source, row_source
from bigembed.rows.opening import open_array
from bigembed.rows.passes import checked_shape
from bigembed.rows.source import RowSource
from bigembed.runtime.executors import executor_now
from bigembed.stages import Context, Run, Stage, run_stages
from bigembed.stages.cost import output_cost
from bigembed.store import manifests
from bigembed.store.attributes import describe, seal_rows
from bigembed.store.manifests import COORDINATES
from bigembed.store.paths import AnyPath, PathLike, at, move, published, remove, require_array_name


def transform(estimator: Any, X: Any, **aligned: Any) -> Any:
    """Coordinates of new rows: NumPy for arrays in memory, a lazy Dask array otherwise."""
    return apply(estimator, X, extension_of(estimator), **aligned)


def apply(estimator: Any, X: Any, extension: Extension, **aligned: Any) -> Any:
    """What a function of the row makes of new rows: NumPy for arrays in memory, a lazy Dask array otherwise."""
    source, in_memory = new_rows(estimator, X, extension, aligned)
    if in_memory and (extension.grouping is None or source.shape[0] <= extension.grouping.batch(source.shape[0])):
        return in_one_array(source, extension)
    if extension.cheap:
        run: Run = run_of(estimator)
        sparse = source.sparse and extension.keeps_sparse
        found = MappedRows(source, extension, extension.width, extension.dtype, run, marks=run.marks(), sparse=sparse)
        return found.lazy()
    fitted, shared = run_of(estimator), not in_memory or not executor_now().in_this_process
    inside = shared and fitted.kind != "model"
    scratch = Run(fitted.root / f"transform-{uuid.uuid4().hex[:8]}" if inside else None)
    kept = False
    try:
        out = scratch.root / "coordinates"
        write_coordinates(source, extension, out, fitted)
        kept = not in_memory
        lazy = (fitted if inside else scratch).kept_by(open_array(out))
        return lazy if kept else np.asarray(lazy)
    finally:
        if not kept:
            remove(scratch.root)


def transform_to(estimator: Any, X: Any, out: PathLike, **aligned: Any) -> None:
    """Coordinates of new rows into a new Zarr array: written aside, renamed when whole.

    A stopped one is taken up by the same call: what is there already lies in ``OUT.partial``.
    """
    require_array_name(out)
    run_to(stage_for(estimator, X, **aligned), out, run_of(estimator))


def stage_for(estimator: Any, X: Any, **aligned: Any) -> Stage:
    """What :func:`transform_to` runs."""
    extension = extension_of(estimator)
    return written_coordinates(new_rows(estimator, X, extension, aligned)[0], extension, run_of(estimator))


def new_rows(estimator: Any, X: Any, extension: Extension, aligned: Mapping[str, Any]) -> tuple[RowSource, bool]:
    """New rows with their aligned vectors, and whether they are in memory; InputError if they do not fit."""
    given = {name: values for name, values in aligned.items() if values is not None}
    if set(given) != set(extension.aligned):
        raise InputError(_wrong_aligned(estimator, given, extension.aligned))
    check_names(estimator, X)
    scratch = scratch_of(estimator)
    steps = getattr(estimator, "steps_", ())
    missing = takes_missing(steps) or extension.missing == "taken"
    rows, _ = encode_text(X, [*steps, estimator], known_texts([*steps, estimator]))
    source, in_memory = row_source(rows, scratch, "query", sparse=extension.sparse or bool(steps), missing=missing)
    columns = {name: column_source(values, source.shape[0], scratch, name) for name, values in given.items()}
    return through_steps(estimator, replace(source, aligned=columns), extension), in_memory


def through_steps(estimator: Any, source: RowSource, extension: Extension) -> RowSource:
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


def write_coordinates(source: RowSource, extension: Extension, out: PathLike, fitted: Run) -> None:
    """Coordinates of all rows of a source into a new Zarr array, by the map of a fitted run: aside and renamed."""
    run_to(written_coordinates(source, extension, fitted), out, fitted)


def written_coordinates(source: RowSource, extension: Extension, fitted: Run) -> Stage:
    """The stage that writes the coordinates of new rows; InputError where they would be sparse."""
    if source.sparse and extension.keeps_sparse:
        raise InputError(
            "an array is dense, and the step leaves sparse rows sparse. Give the steps and a method to a "
            "Pipeline (to a job: [[steps]]); nothing between them is written then"
        )
    return coordinates_of(source, extension, fitted)


def run_to(
    stage: Stage, out: PathLike, fitted: Run, attributes: Mapping[str, Any] | None = None, keep: bool = False
) -> None:
    """Run a stage of coordinates aside, and put its array, with these attributes, in its place when it is whole.

    ``keep``: the manifest of what was moved stays there, for a caller who has more to do (:func:`moved`).
    """
    target, aside = at(out).absolute(), aside_of(out)
    refuse_existing(target)
    run = Run(aside, [fitted])
    try:
        run_stages([stage], run)
    except InputError:
        remove(aside)
        raise
    refuse_existing(target)
    if attributes:
        describe(run.path(STAGE, "coordinates"), attributes)
    seal_rows(at(run.path(STAGE, "coordinates")), "transform", COORDINATES)
    try:
        move(run.path(STAGE, "coordinates"), target)
    except OSError:
        refuse_existing(target)
        raise
    if not keep:
        remove(aside)


def is_in_place(out: PathLike) -> bool:
    """Whether what is at the path are the coordinates that lay aside: a call was killed after it had moved them."""
    aside, place = aside_of(out), "coordinates/"
    found = manifests.find(aside, STAGE) if published(out) else None
    if found is None:
        return False
    listed = {name.removeprefix(place): entry for name, entry in found.files.items() if name.startswith(place)}
    there = manifests.digests(at(out).absolute(), list(listed))
    return all(there.get(name) == entry for name, entry in listed.items() if name != "zarr.json")  # (it has attributes)


def aside_of(out: PathLike) -> AnyPath:
    """Where coordinates are written before they are whole."""
    return at(f"{at(out)}.partial").absolute()


def coordinates_of(source: RowSource, extension: Extension, fitted: Run) -> Stage:
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


def run_coordinates_of(context: Context, source: RowSource, extension: Extension) -> dict[str, Any]:
    write_extended(source, extension, context.path("coordinates"))
    return {"rows": source.shape[0]}


def scratch_of(estimator: Any) -> AnyPath:
    """Where inputs are copied that tasks cannot read in place: with the run, but not with a saved model, which may be
    anybody's; then in a temporary folder."""
    run: Run = run_of(estimator)
    if run.kind != "model":
        return run.root / "exchange"
    if run.aside is None:
        run.aside = Run(None)
    return run.aside.root


def refuse_existing(out: PathLike) -> None:
    """ExistingOutputError if there is something at the path."""
    if published(out):
        raise ExistingOutputError(f"{out}: exists already. Nothing was changed; choose another path")


def check_width(source: RowSource, fitted: int, estimator: Any) -> None:
    """InputError unless the rows have the features of those that were fitted."""
    d = checked_shape(source)[1]
    if d != fitted:
        raise InputError(f"X has {d} features, but {type(estimator).__name__} is expecting {fitted} features as input.")
