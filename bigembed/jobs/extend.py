"""Coordinates of new rows by a saved model, into a new Zarr array: planned, refused if too large, resumed."""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

from bigembed import store
from bigembed.errors import DamagedError, ExistingOutputError, MissingPathError
from bigembed.estimator import extension_of, method_parameters, preprocessing, run_of, scikit_learn, steps_before
from bigembed.estimator.extension import left_out_of
from bigembed.estimator.fitting import strict_texts
from bigembed.estimator.likeness import Likeness, warn_of_unlike
from bigembed.estimator.transform import aside_of, refuse_existing, run_to, stage_for, through_steps
from bigembed.jobs.inputs import IDS, Input, find_rows, rows_named
from bigembed.jobs.places import ClusterTable, Place
from bigembed.jobs.places.cluster import KINDS, choose, known_place
from bigembed.jobs.planning import rates
from bigembed.jobs.planning.plan import Plan, compiled_from, input_costs
from bigembed.jobs.planning.resources import remains, resources_of, runs_at
from bigembed.jobs.record import key_of_extension
from bigembed.jobs.row_ids import copy_ids
from bigembed.jobs.scene import ABOUT, CLUSTER, export, made_by
from bigembed.jobs.session import copied, session, working
from bigembed.jobs.watching import RunOptions, status
from bigembed.jobs.watching.logs import plain
from bigembed.maps import load
from bigembed.maps.clustering.stages import has_clusters, new_clusters
from bigembed.rows import RowSource, rows_at
from bigembed.rows.formats.copying import aligned_path, copy_vector, is_whole, link
from bigembed.rows.formats.tables import check_table
from bigembed.rows.reader import Choice
from bigembed.runtime import using
from bigembed.runtime.parameters import Functions
from bigembed.stages import Run, Stage, keeping
from bigembed.store.attributes import ABOUT as SOURCE
from bigembed.store.attributes import attributes_of
from bigembed.store.files import read_json, read_sealed, write_json
from bigembed.store.locks import FOLDER, Owner, holder, output_lock

ASKED = "asked.json"
"""In what lies aside: what the extension is of."""


def extend(
    model: store.PathLike,
    new: store.PathLike,
    out: store.PathLike,
    table: ClusterTable | None = None,
    options: RunOptions | None = None,
    aligned: Mapping[str, str] | None = None,
    choice: Choice | None = None,
    results: store.PathLike | None = None,
    functions: Functions = (),
) -> dict[str, Any]:
    """Write the coordinates (n, m) of the rows at ``new`` to ``out``. Returns what was done.

    What the same call has written to its end is left as it is (``"unchanged": True``); what is missing or damaged
    beside whole coordinates is written anew.

    ``aligned``: vectors that belong to the new rows, by their path or their name in ``new``: what a model was fitted
    with (``epsilons``), and ``ids``, which then lie at ``OUT-ids.zarr``. ``choice``: what of ``new`` is wanted where it
    holds several things. ``results``: a table that is written at the end. A format without quick access by rows is
    copied beside ``out`` until the coordinates are there. ``functions``: as :func:`bigembed.load` takes them.

    ``out`` appears when it is whole. A stopped one leaves what it has in ``OUT.partial``, and the same command goes
    on from there; ``OUT.status.json`` says how it stands. Raises :class:`PlanError` before anything is written if
    memory or disk do not suffice, :class:`LockedError` if another process writes the same, :class:`InterruptedRun` on a
    signal or at the deadline, :class:`ExistingOutputError`, :class:`InputError`.
    """
    table, began = table or ClusterTable(), time.perf_counter()
    with session(out, options, "extend") as command:
        store.require_apart(new, out, results)
        store.require_apart(model, out, results)
        if results is not None:
            check_table(results)
        if not (_key_left(out) or store.published(out)):
            _refuse_existing(out, results)
        fitted = load(model, functions)
        rows, seen = _rows(fitted, new, out, choice, aligned), Likeness()
        asked = key_of_extension(fitted, rows, results)
        outcome = {
            "model": str(model),
            "input": str(new),
            "output": str(out),
            "n": rows.shape[0],
            "n_components": int(fitted.n_components_),
            "table": None if results is None else str(results),
        }
        if _is_done(fitted, rows, out, results, asked):
            return {**outcome, "unchanged": True}
        if not _is_written(out, asked):
            _refuse_existing(out, results)
        beside = _beside(fitted, rows, out)
        _refuse_others(beside.values(), out, results, asked)
        kind, prepared = choose(table, rows.shape, rows.nbytes), None
        if KINDS[kind].planned:
            prepared = prepare_extension(fitted, rows, new, out, table)
            prepared.plan.refuse()
        make = partial(prepare_extension, fitted, rows, new, out, table)
        with (
            _hold_output(out, results, asked) as (owner, placed),
            command.reported(owner, status_path(out)) as reporter,
            working(table, kind, reporter, lambda place: prepared or make(place)) as (place, ours),
        ):
            compilation = ours.plan.compilation
            place.prove_access(store.nearest_folder(store.at(out).absolute().parent), None)
            named = IDS not in beside or _is_written(beside[IDS], asked)
            if not (placed and named):
                rows = copied(rows, reporter)
                place.prove_access(store.nearest_folder(store.at(out).absolute().parent), str(rows.path))
            if not named and rows.ids is not None:
                _write_ids(rows.ids, beside[IDS], out, asked)
            if not placed:
                stage = ours.stage if rows is ours.rows else stage_of(fitted, rows)
                with rows_named(store.at(new)):
                    with using(progress=None):  # (a look at some rows is no stage)
                        seen = warn_of_unlike(fitted, prepared_rows(fitted, rows))
                    about = _about(model, fitted, out, rows, asked)
                    run_to(stage, store.absolute(out), run_of(fitted), about, keep=True)
            if CLUSTER in beside:
                with reporter.stage("clusters"):
                    _write_clusters(fitted, beside[CLUSTER], out, asked)
            if results is not None:
                with reporter.stage("table"):
                    export(out, results, overwrite=True)
                    reporter.status.write(table=_mark_of_table(results, asked))
            _remove_leftovers(rows, out)
            left_out = left_out_of(store.absolute(out), getattr(fitted, "steps_", ()))
    assert reporter.plan is not None
    return {
        **outcome,
        "unchanged": False,
        "left_out": left_out,
        "missing": list(seen.missing),
        "warnings": [seen.warning] if seen.warning else [],
        "seconds": round(time.perf_counter() - began, 3),
        "predicted_seconds": reporter.plan.seconds,
        "compilation": compilation,
        "predicted": reporter.plan.memory,
        "measured": reporter.measured,
    }


def _is_done(fitted: Any, rows: Input, out: store.PathLike, results: store.PathLike | None, asked: str) -> bool:
    """Return whether this very extension has left nothing aside, and all that it writes is there as it was written."""
    return (
        not aside_of(out).is_dir()
        and (results is None or _is_own_table(out, results, asked))
        and all(_is_written(place, asked) for place in (out, *_beside(fitted, rows, out).values()))
    )


def _beside(fitted: Any, rows: Input, out: store.PathLike) -> dict[str, store.AnyPath]:
    """Return where the vectors lie that are written beside the coordinates, by their names."""
    names = [IDS] * (rows.ids is not None) + [CLUSTER] * has_clusters(fitted)
    return {name: aligned_path(store.at(out).absolute(), name) for name in names}


def _key_of(place: store.PathLike) -> str | None:
    """Return which extension has written coordinates, or a vector beside them; None where nothing such lies."""
    said = (attributes_of(place) or {}) if store.published(place) else {}
    for attribute, name in ((ABOUT, "asked"), (SOURCE, "key")):
        if isinstance(one := said.get(attribute), dict) and name in one:
            return str(one[name])
    return None


def _is_written(place: store.PathLike, asked: str) -> bool:
    """Return whether what lies here is of this very extension, and whole."""
    return _key_of(place) == asked and is_whole(place)


def _mark_of_table(results: store.PathLike, asked: str) -> list[str]:
    """What the status says of the table that was written: a file that was written since has another one."""
    return [asked, store.stamp(results)]


def _is_own_table(out: store.PathLike, results: store.PathLike, asked: str) -> bool:
    """Return whether the table is the one that this very extension has written."""
    known: dict[str, Any] = {}
    with suppress(DamagedError, MissingPathError):
        known = read_sealed(status_path(out))
    return store.at(results).exists() and known.get("table") == _mark_of_table(results, asked)


def _write_ids(ids: store.AnyPath, place: store.AnyPath, out: store.PathLike, asked: str) -> None:
    """Write the ids of the new rows beside their coordinates; damaged ones of this very extension are replaced."""
    if _key_of(place) == asked:
        store.remove(place)
    copy_ids(ids, place, {"of": store.absolute(out), "key": asked})


def _write_clusters(fitted: Any, place: store.AnyPath, out: store.PathLike, asked: str) -> None:
    """Write the clusters of the new rows beside their coordinates, unless this very extension has done so."""
    if not _is_written(place, asked):
        store.remove(place)
        labels = new_clusters(run_of(fitted), rows_at(store.at(out)))
        copy_vector(labels, place, label=CLUSTER, attributes={SOURCE: {"of": store.absolute(out), "key": asked}})


def _rows(
    fitted: Any, new: store.PathLike, out: store.PathLike, choice: Choice | None, aligned: Mapping[str, str] | None
) -> Input:
    """Return the new rows with their aligned vectors. Of a table the fitted columns are taken; others are refused."""
    given = dict(aligned or {})
    expected = tuple(getattr(fitted, "feature_names_in_", ()))
    missing = preprocessing.takes_missing(steps_before(fitted))
    encoders = [step for step in getattr(fitted, "steps_", ()) if hasattr(step, "texts")]
    categories = tuple((name, tuple(texts)) for step in encoders for name, texts in step.texts().items())
    known: dict[str, Any] = {"categories": categories, "strict": tuple(strict_texts(encoders).items())}
    chosen = replace(choice or Choice(), aligned=tuple(given.values()), expected=expected, missing=missing, **known)
    copy = store.at(f"{store.at(out).absolute().with_suffix('')}-input.zarr")
    rows = find_rows(store.at(new).absolute(), copy, chosen, given, Path.cwd(), lambda: _takes_sparse(fitted))
    scikit_learn.require_names(fitted, rows.columns)
    return rows


def _takes_sparse(fitted: Any) -> bool:
    return bool(extension_of(fitted).sparse) or bool(getattr(fitted, "steps_", ()))


def _about(model: store.PathLike, fitted: Any, out: store.PathLike, rows: Input, asked: str) -> dict[str, Any]:
    """Attributes of the output: what made it of what, and the vectors aligned with it."""
    made = made_by(type(fitted).registered, int(fitted.n_components_), method_parameters(fitted))
    about = plain({**made, "model": store.absolute(model), "asked": asked})
    return {ABOUT: about, **link(store.at(out), _beside(fitted, rows, out))}


def status_path(out: store.PathLike) -> store.AnyPath:
    """Return where the status of an extension lies: beside its output, which is nothing but an array."""
    return store.at(f"{store.absolute(out)}.{status.NAME}")


@contextmanager
def _hold_output(out: store.PathLike, results: store.PathLike | None, asked: str) -> Iterator[tuple[Owner, bool]]:
    """Hold the folder aside of an extension; yield its owner, and whether the coordinates are in their place already.

    If ``out`` is something else by now, the folder is removed: ExistingOutputError.
    """
    aside = aside_of(out)
    with keeping(Run(aside)) as lock:
        placed = _key_of(out) == asked  # (whole: it was found so, or has been moved there since)
        if store.published(out) and not placed:
            store.remove(aside)
            refuse_existing(out)
        write_json(aside / ASKED, asked)
        with output_lock(*([] if results is None else [results])):
            yield lock.owner, placed


def _key_left(out: store.PathLike) -> str | None:
    """Return the key of the extension that has left something aside; None where that is not known."""
    record = aside_of(out) / ASKED
    with suppress(DamagedError):
        return str(read_json(record)) if record.is_file() else None
    return None


def _refuse_existing(out: store.PathLike, results: store.PathLike | None) -> None:
    """ExistingOutputError where the coordinates, or the table, are there."""
    store.require_array_name(out)
    aside = aside_of(out)
    if store.published(out) and aside.is_dir() and _key_left(out) is None and holder(aside) is None:
        store.remove(aside)  # of a call that was killed while it did so
    if _key_of(out) is not None and not is_whole(out):
        raise ExistingOutputError(
            f"{out}: exists, and is damaged. Nothing was changed; move it away and run the same command"
        )
    refuse_existing(out)
    if results is not None:
        refuse_existing(results)


def _refuse_others(
    beside: Iterable[store.AnyPath], out: store.PathLike, results: store.PathLike | None, asked: str
) -> None:
    """ExistingOutputError where vectors, or a table, of something else lie in the place of those of this extension."""
    for place in beside:
        if _key_of(place) != asked:
            refuse_existing(place)
    if results is not None and _key_left(out) != asked and not _is_own_table(out, results, asked):
        refuse_existing(results)


def _remove_leftovers(rows: Input, out: store.PathLike) -> None:
    """Remove what has served: a copy of the rows; then what lies aside, the record of it last."""
    if rows.about:
        store.retire(rows.path)
        for name in rows.aligned:
            store.retire(aligned_path(rows.path, name))
    aside = aside_of(out)
    for file in store.stored(aside):
        if file.name not in (ASKED, "zarr.json") and not file.name.startswith(FOLDER):
            (aside / file.name).unlink(missing_ok=True)
    (aside / ASKED).unlink(missing_ok=True)
    store.remove(aside)


def plan_extension(
    model: store.PathLike,
    new: store.PathLike,
    out: store.PathLike,
    table: ClusterTable | None = None,
    aligned: Mapping[str, str] | None = None,
    choice: Choice | None = None,
    functions: Functions = (),
) -> Plan:
    """Return what :func:`extend` would read, hold and write. Nothing is written."""
    store.require_array_name(out)
    refuse_existing(out)
    table, fitted = table or ClusterTable(), load(model, functions)
    rows = _rows(fitted, new, out, choice, aligned)
    with known_place(table) as place:
        return prepare_extension(fitted, rows, new, out, table, place).plan


@dataclass(frozen=True)
class PreparedExtension:
    """New rows with the stage that places them and the plan of it."""

    rows: Input
    stage: Stage
    plan: Plan


def prepare_extension(
    fitted: Any, rows: Input, new: store.PathLike, out: store.PathLike, table: ClusterTable, place: Place | None = None
) -> PreparedExtension:
    """Prepare the extension of a model to new rows."""
    stage, folder = stage_of(fitted, rows), store.nearest_folder(store.at(out).absolute().parent)
    where = resources_of(table, rows.shape, rows.nbytes, place, False, extends_compiled(fitted), loading=rows.loading)
    costs, left = (*input_costs(rows), (stage.name, stage.cost)), remains(runs_at([aside_of(out)]), None)
    given = str(new), str(out), rows.shape, str(rows.dtype), where, costs, ()
    plan = Plan(*given, store.free_bytes(folder), rates(folder), method=getattr(fitted, "registered", ""), remains=left)
    return PreparedExtension(rows, stage, plan)


def stage_of(fitted: Any, rows: Input) -> Stage:
    """Return the stage that places the rows of an extension."""
    return stage_for(fitted, replace(rows.source, aligned={}), **rows.source.aligned)


def prepared_rows(fitted: Any, rows: Input) -> RowSource:
    """Return the new rows as the steps before the method make them."""
    return through_steps(fitted, replace(rows.source, aligned={}), extension_of(fitted))


def extends_compiled(fitted: Any) -> bool:
    """Return whether compiled functions place the new rows: if a fit on a graph to as many rows uses them."""
    run = run_of(fitted)
    n = run.results("survey")["n"] if run.has("survey") else 0
    return bool(n >= compiled_from(fitted.registered, fitted.get_params()))
