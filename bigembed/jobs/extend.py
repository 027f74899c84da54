"""Coordinates of new rows by a saved model, into a new Zarr array: planned, refused if too large, resumed."""

from __future__ import annotations

import shutil
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from bigembed.blocks.rows import executor
from bigembed.errors import ExistingOutputError, InputError
from bigembed.jobs.cluster import Place, Progress, choose, cluster, no_progress
from bigembed.jobs.measure import MemoryPeak
from bigembed.jobs.plan import UNCOMPILED_ROWS, Plan, nearest_folder, place_of
from bigembed.jobs.run import stoppable
from bigembed.jobs.spec import ClusterTable
from bigembed.stages import Observer, observing, silent
from bigembed.store.formats import NpyReader, ZarrReader, open_reader


def extend(
    model: Path,
    new: Path,
    out: Path,
    table: ClusterTable | None = None,
    progress: Progress = no_progress,
    observer: Observer = silent,
    beside: Mapping[str, Path] | None = None,
) -> dict[str, Any]:
    """Write the coordinates (n, m) of the rows at ``new`` to ``out``. Returns what was done.

    ``beside``: paths of vectors that belong to the new rows, for a model that was fitted with such (``epsilons``).

    ``out`` appears when it is whole. A stopped one leaves what it has in ``OUT.partial``, and the same command goes
    on from there. Raises :class:`PlanError` before anything is written if memory or disk do not suffice,
    :class:`LockedError` if another process writes the same, :class:`ExistingOutputError`, :class:`InputError`.
    """
    from bigembed.methods.base import load

    table = table or ClusterTable()
    rows = _reader(new, out)
    vectors = {name: str(path.absolute()) for name, path in (beside or {}).items()}
    began = time.perf_counter()
    fitted, kind = load(model), choose(table, rows.shape, _nbytes(rows))
    plan = None
    if kind != "remote":
        plan = _plan(fitted, rows, new, out, table, None, vectors)
        plan.refuse()
    with stoppable(out), cluster(table, kind, progress) as place:
        if plan is None:
            plan = _plan(fitted, rows, new, out, table, place, vectors)
            plan.refuse()
        place.prove_access(nearest_folder(out.absolute().parent), str(new.absolute()))
        with MemoryPeak(place.local_pids) as peak, executor(place.executor), observing(observer):
            fitted.transform_to(str(new.absolute()), str(out.absolute()), **vectors)
    return {
        "model": str(model),
        "input": str(new),
        "output": str(out),
        "n": rows.shape[0],
        "n_components": int(fitted.n_components_),
        "seconds": round(time.perf_counter() - began, 3),
        "predicted": plan.as_dict()["memory"],
        "measured": peak.as_dict(),
    }


def plan_extension(
    model: Path, new: Path, out: Path, table: ClusterTable | None = None, beside: Mapping[str, Path] | None = None
) -> Plan:
    """What :func:`extend` would read, hold and write. Nothing is written."""
    from bigembed.methods.base import load

    table, rows = table or ClusterTable(), _reader(new, out)
    vectors = {name: str(path.absolute()) for name, path in (beside or {}).items()}
    fitted = load(model)
    if table.address and not (table.workers and table.memory):
        with cluster(table, "remote") as place:
            return _plan(fitted, rows, new, out, table, place, vectors)
    return _plan(fitted, rows, new, out, table, None, vectors)


def _plan(
    fitted: Any,
    rows: NpyReader | ZarrReader,
    new: Path,
    out: Path,
    table: ClusterTable,
    place: Place | None,
    vectors: Mapping[str, str],
) -> Plan:
    from bigembed.methods.extension import stage_for

    stage = stage_for(fitted, str(new.absolute()), **vectors)
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
        shutil.disk_usage(nearest_folder(out.absolute().parent)).free,
    )


def _reader(new: Path, out: Path) -> NpyReader | ZarrReader:
    if out.exists():
        raise ExistingOutputError(f"{out}: exists. Nothing was changed; choose another path or move it away")
    rows = open_reader(new)
    if not isinstance(rows, (NpyReader, ZarrReader)):
        raise InputError(f"{new}: new rows are read from .npy or Zarr; bigembed ingest {new} new.zarr makes one")
    return rows


def _nbytes(rows: NpyReader | ZarrReader) -> int:
    return rows.shape[0] * rows.shape[1] * rows.dtype.itemsize
