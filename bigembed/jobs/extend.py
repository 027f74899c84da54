"""Coordinates of new rows by a saved model, into a new Zarr array: planned, refused if too large, resumed."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from bigembed.blocks.rows import executor
from bigembed.errors import ExistingOutputError, InputError
from bigembed.jobs import status
from bigembed.jobs.calibrate import rates
from bigembed.jobs.cluster import Place, choose, cluster
from bigembed.jobs.measure import MemoryPeak
from bigembed.jobs.metrics import Metrics
from bigembed.jobs.performance import check_performance, performance
from bigembed.jobs.plan import UNCOMPILED_ROWS, Plan, nearest_folder, place_of
from bigembed.jobs.spec import ClusterTable
from bigembed.jobs.stopping import stoppable
from bigembed.jobs.telling import Wishes, telling
from bigembed.methods.extension import aside_of, refuse_existing
from bigembed.stages import Run, keeping, observing
from bigembed.store.formats import NpyReader, ZarrReader, open_reader
from bigembed.store.lock import Owner
from bigembed.store.paths import AnyPath, PathLike, absolute, at, free_bytes, published, remove


def extend(
    model: PathLike,
    new: PathLike,
    out: PathLike,
    table: ClusterTable | None = None,
    wishes: Wishes | None = None,
    beside: Mapping[str, PathLike] | None = None,
) -> dict[str, Any]:
    """Write the coordinates (n, m) of the rows at ``new`` to ``out``. Returns what was done.

    ``beside``: paths of vectors that belong to the new rows, for a model that was fitted with such (``epsilons``).

    ``out`` appears when it is whole. A stopped one leaves what it has in ``OUT.partial``, and the same command goes
    on from there; ``OUT.status.json`` says how it stands. Raises :class:`PlanError` before anything is written if
    memory or disk do not suffice, :class:`LockedError` if another process writes the same, :class:`InterruptedRun` on a
    signal or at the deadline, :class:`ExistingOutputError`, :class:`InputError`.
    """
    from bigembed.methods.base import load

    table, wishes = table or ClusterTable(), wishes or Wishes()
    vectors = {name: absolute(path) for name, path in (beside or {}).items()}
    began = time.perf_counter()
    metrics = Metrics(wishes.metrics, str(out), "extend")
    with stoppable(str(out), wishes.deadline), metrics:
        check_performance(wishes.performance_report)
        rows = _reader(new, out)
        fitted, kind = load(model), choose(table, rows.shape, _nbytes(rows))
        plan = None
        if kind != "remote":
            plan = _plan(fitted, rows, new, out, table, None, vectors)
            plan.refuse()
        with (
            _held(out) as owner,
            telling(wishes, str(out), owner, status_path(out), metrics) as told,
            cluster(table, kind, told.progress) as place,
        ):
            if plan is None:
                plan = _plan(fitted, rows, new, out, table, place, vectors)
                plan.refuse()
            told.planned(plan)
            place.prove_access(nearest_folder(at(out).absolute().parent), absolute(new))
            with (
                MemoryPeak(place.local_pids) as peak,
                executor(place.executor),
                observing(told),
                performance(place, wishes.performance_report),
            ):
                told.peak = peak
                fitted.transform_to(absolute(new), absolute(out), **vectors)
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
    }


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
    beside: Mapping[str, PathLike] | None = None,
) -> Plan:
    """What :func:`extend` would read, hold and write. Nothing is written."""
    from bigembed.methods.base import load

    table, rows = table or ClusterTable(), _reader(new, out)
    vectors = {name: absolute(path) for name, path in (beside or {}).items()}
    fitted = load(model)
    if table.address and not (table.workers and table.memory):
        with cluster(table, "remote") as place:
            return _plan(fitted, rows, new, out, table, place, vectors)
    return _plan(fitted, rows, new, out, table, None, vectors)


def _plan(
    fitted: Any,
    rows: NpyReader | ZarrReader,
    new: PathLike,
    out: PathLike,
    table: ClusterTable,
    place: Place | None,
    vectors: Mapping[str, str],
) -> Plan:
    from bigembed.methods.extension import stage_for

    stage = stage_for(fitted, absolute(new), **vectors)
    run = fitted._run
    compiled = run.has("survey") and run.results("survey")["n"] > UNCOMPILED_ROWS
    return Plan(
        str(new),
        str(out),
        rows.shape,
        str(rows.dtype),
        place_of(table, rows.shape, _nbytes(rows), place, False, compiled),
        ((stage.name, stage.cost),),
        (),
        free_bytes(nearest_folder(at(out).absolute().parent)),
        rates(nearest_folder(at(out).absolute().parent)),
    )


def _reader(new: PathLike, out: PathLike) -> NpyReader | ZarrReader:
    if published(out):
        raise ExistingOutputError(f"{out}: exists. Nothing was changed; choose another path or move it away")
    rows = open_reader(new)
    if not isinstance(rows, (NpyReader, ZarrReader)):
        raise InputError(f"{new}: new rows are read from .npy or Zarr; bigembed ingest {new} new.zarr makes one")
    return rows


def _nbytes(rows: NpyReader | ZarrReader) -> int:
    return rows.shape[0] * rows.shape[1] * rows.dtype.itemsize
