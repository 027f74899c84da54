"""Coordinates of new rows by a saved model, into a new Zarr array: planned, refused if too large, resumed."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

from bigembed.blocks.rows import executor
from bigembed.jobs import status
from bigembed.jobs.calibrate import rates
from bigembed.jobs.cluster import Place, choose, cluster
from bigembed.jobs.export import ABOUT, export, made_by
from bigembed.jobs.ids import copy_ids
from bigembed.jobs.inputs import Input, find_rows
from bigembed.jobs.logs import plain
from bigembed.jobs.measure import MemoryPeak
from bigembed.jobs.metrics import Metrics
from bigembed.jobs.performance import check_performance, performance
from bigembed.jobs.plan import UNCOMPILED_ROWS, Plan, input_costs, place_of
from bigembed.jobs.spec import ClusterTable
from bigembed.jobs.stopping import stoppable
from bigembed.jobs.telling import Telling, Wishes, telling
from bigembed.methods import AROUND
from bigembed.methods.extension import aside_of, refuse_existing, require_names, transform_to
from bigembed.stages import Run, keeping, observing
from bigembed.store.beside import link, place_beside
from bigembed.store.lock import Owner
from bigembed.store.paths import AnyPath, PathLike, absolute, at, free_bytes, nearest_folder, published, remove
from bigembed.store.reader import Choice
from bigembed.store.tables import check_table


def extend(
    model: PathLike,
    new: PathLike,
    out: PathLike,
    table: ClusterTable | None = None,
    wishes: Wishes | None = None,
    beside: Mapping[str, str] | None = None,
    choice: Choice | None = None,
    results: PathLike | None = None,
) -> dict[str, Any]:
    """Write the coordinates (n, m) of the rows at ``new`` to ``out``. Returns what was done.

    ``beside``: vectors that belong to the new rows, by their path or their name in ``new``: what a model was fitted
    with (``epsilons``), and ``ids``, which then lie at ``OUT-ids.zarr``. ``choice``: what of ``new`` is wanted where it
    holds several things. ``results``: a table that is written at the end. A format without quick access by rows is
    copied beside ``out`` until the coordinates are there.

    ``out`` appears when it is whole. A stopped one leaves what it has in ``OUT.partial``, and the same command goes
    on from there; ``OUT.status.json`` says how it stands. Raises :class:`PlanError` before anything is written if
    memory or disk do not suffice, :class:`LockedError` if another process writes the same, :class:`InterruptedRun` on a
    signal or at the deadline, :class:`ExistingOutputError`, :class:`InputError`.
    """
    from bigembed.methods.base import load

    table, wishes = table or ClusterTable(), wishes or Wishes()
    began = time.perf_counter()
    metrics = Metrics(wishes.metrics, str(out), "extend")
    with stoppable(str(out), wishes.deadline), metrics:
        check_performance(wishes.performance_report)
        refuse_existing(out)
        if results is not None:
            check_table(results)
            refuse_existing(results)
        fitted = load(model)
        rows = _rows(fitted, new, out, choice, beside)
        kind = choose(table, rows.shape, rows.nbytes)
        plan = None
        if kind != "remote":
            plan = _plan(fitted, rows, new, out, table, None)
            plan.refuse()
        with (
            _held(out) as owner,
            telling(wishes, str(out), owner, status_path(out), metrics) as told,
            cluster(table, kind, told.progress, told) as place,
        ):
            if plan is None:
                plan = _plan(fitted, rows, new, out, table, place)
                plan.refuse()
            told.planned(plan)
            place.prove_access(nearest_folder(at(out).absolute().parent), None)
            with (
                MemoryPeak(place.local_pids) as peak,
                executor(place.executor),
                observing(told),
                performance(place, wishes.performance_report),
            ):
                told.peak = peak
                rows = _ready(rows, out, told, place)
                about = _about(model, fitted, out, rows)
                transform_to(fitted, rows.given, absolute(out), about, **_vectors(rows))
                if rows.about:  # a copy, which has served
                    remove(rows.path)
                    for name in rows.beside:
                        remove(place_beside(rows.path, name))
                if results is not None:
                    with told.stage("table"):
                        export(out, results)
    return {
        "model": str(model),
        "input": str(new),
        "output": str(out),
        "n": rows.shape[0],
        "n_components": int(fitted.n_components_),
        "seconds": round(time.perf_counter() - began, 3),
        "predicted_seconds": plan.seconds,
        "predicted": plan.as_dict()["memory"],
        "measured": peak.as_dict(),
        "table": None if results is None else str(results),
    }


def _rows(fitted: Any, new: PathLike, out: PathLike, choice: Choice | None, beside: Mapping[str, str] | None) -> Input:
    """The new rows, with what lies beside them. Of a table the columns that were fitted; others are refused."""
    given = dict(beside or {})
    expected = tuple(getattr(fitted, "feature_names_in_", ()))
    chosen = replace(choice or Choice(), beside=tuple(given.values()), expected=expected)
    copy = at(f"{at(out).absolute().with_suffix('')}-input.zarr")
    rows = find_rows(at(new).absolute(), copy, chosen, given, Path.cwd(), lambda: bool(fitted._map().sparse))
    require_names(fitted, rows.columns)
    return rows


def _ready(rows: Input, out: PathLike, told: Telling, place: Place) -> Input:
    """The rows, copied if they have to be, and their ids beside the output."""
    if not rows.written:
        with told.stage("input"):
            rows = rows.ready()
    place.prove_access(nearest_folder(at(out).absolute().parent), str(rows.path))
    if rows.ids is not None:
        copy_ids(rows.ids, place_beside(at(out).absolute(), "ids"), {"of": absolute(out)})
    return rows


def _vectors(rows: Input) -> dict[str, str]:
    return {name: str(path) for name, path in rows.beside.items() if name != "ids"}


def _about(model: PathLike, fitted: Any, out: PathLike, rows: Input) -> dict[str, Any]:
    """Attributes of the output: what made it, and what lies beside it."""
    names = [name for name in rows.beside if name == "ids"]
    given = {name: value for name, value in fitted.get_params().items() if name not in AROUND}
    made = made_by(type(fitted).registered, int(fitted.n_components_), given)
    return {ABOUT: plain({**made, "model": absolute(model)}), **link(at(out), dict.fromkeys(names))}


def status_path(out: PathLike) -> AnyPath:
    """Where the status of an extension lies: beside its output, which is nothing but an array."""
    return at(f"{absolute(out)}.{status.NAME}")


@contextmanager
def _held(out: PathLike) -> Iterator[Owner]:
    """Hold what the extension writes aside, and leave nothing of it if somebody else has finished it meanwhile."""
    aside = aside_of(out)
    with keeping(Run(aside)) as lock:
        if published(out):
            remove(aside)
            refuse_existing(out)
        yield lock.owner


def plan_extension(
    model: PathLike,
    new: PathLike,
    out: PathLike,
    table: ClusterTable | None = None,
    beside: Mapping[str, str] | None = None,
    choice: Choice | None = None,
) -> Plan:
    """What :func:`extend` would read, hold and write. Nothing is written."""
    from bigembed.methods.base import load

    refuse_existing(out)
    table, fitted = table or ClusterTable(), load(model)
    rows = _rows(fitted, new, out, choice, beside)
    if table.address and not (table.workers and table.memory):
        with cluster(table, "remote") as place:
            return _plan(fitted, rows, new, out, table, place)
    return _plan(fitted, rows, new, out, table, None)


def _plan(fitted: Any, rows: Input, new: PathLike, out: PathLike, table: ClusterTable, place: Place | None) -> Plan:
    from bigembed.methods.extension import stage_for

    source = rows.source()
    stage = stage_for(fitted, replace(source, beside={}), **source.beside)
    run = fitted._run
    compiled = run.has("survey") and run.results("survey")["n"] > UNCOMPILED_ROWS
    return Plan(
        str(new),
        str(out),
        rows.shape,
        str(rows.dtype),
        place_of(table, rows.shape, rows.nbytes, place, False, compiled),
        (*input_costs(rows), (stage.name, stage.cost)),
        (),
        free_bytes(nearest_folder(at(out).absolute().parent)),
        rates(nearest_folder(at(out).absolute().parent)),
    )
