"""The command that condenses rows to cells: planned, refused if too large, resumed."""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from bigembed.jobs.inputs import Input, find_rows
from bigembed.jobs.places.cluster import KINDS, choose, known_place
from bigembed.jobs.places.place import ClusterTable, Place
from bigembed.jobs.planning.machine import rates
from bigembed.jobs.planning.plan import Plan, input_costs
from bigembed.jobs.planning.resources import remains, resources_of
from bigembed.jobs.session import copied, session, working
from bigembed.jobs.watching import logs, status
from bigembed.jobs.watching.reporter import RunOptions
from bigembed.neighbors.condense import Condensing, condense_stages
from bigembed.neighbors.condensed import Condensed, checked_condensing
from bigembed.rows.reader import Choice
from bigembed.stages.reuse import outdated
from bigembed.stages.runs import Run, run_at
from bigembed.stages.stage import keeping, run_stages
from bigembed.store.paths import AnyPath, PathLike, at, free_bytes, nearest_folder, require_apart


def condense(
    source: PathLike,
    out: PathLike,
    asked: Mapping[str, Any],
    table: ClusterTable | None = None,
    options: RunOptions | None = None,
    choice: Choice | None = None,
    aligned: Mapping[str, str] | None = None,
) -> dict[str, Any]:
    """Condense the rows at ``source`` into a new folder ``out``. Returns what was done.

    ``asked``: ``rows`` or ``radius``, ``metric``, ``cell`` and ``seed``. ``aligned``: ``weights``, by their path or
    their name in ``source``. A stopped one goes on by the same call. Raises what
    :func:`~bigembed.neighbors.condensed.condense` raises, and :class:`PlanError`, :class:`LockedError`,
    :class:`InterruptedRun`.
    """
    table, began, metric = table or ClusterTable(), time.perf_counter(), asked["metric"]
    what = checked_condensing(**asked)
    with session(out, options, "condense") as command:
        root = at(out).absolute()
        require_apart(source, root)
        rows = _rows(source, root, choice, aligned)
        kind, prepared = choose(table, rows.shape, rows.nbytes), None
        if KINDS[kind].planned:
            prepared = _prepared(rows, root, table, what, metric)
            prepared.refuse()
        run = Run(root)
        with (
            keeping(run) as lock,
            command.reported(lock.owner, root / status.NAME, root / logs.NAME) as reporter,
            working(
                table,
                kind,
                reporter,
                lambda place: _Planned(prepared or _prepared(rows, root, table, what, metric, place)),
            ) as (place, _),
        ):
            place.prove_access(root, None)
            rows = copied(rows, reporter)
            place.prove_access(root, str(rows.path))
            stages = condense_stages(rows.source, metric, what)
            run_stages(stages, run, of=stages)
        found = Condensed(run)
    return {
        "input": str(source),
        "output": str(out),
        **found.totals,
        "metric": found.metric,
        "seconds": round(time.perf_counter() - began, 3),
        "measured": reporter.measured,
        "lines": found.lines(),
    }


@dataclass(frozen=True)
class _Planned:
    """What the command works on: its plan."""

    plan: Plan


def plan_condensing(
    source: PathLike,
    out: PathLike,
    asked: Mapping[str, Any],
    table: ClusterTable | None = None,
    choice: Choice | None = None,
    aligned: Mapping[str, str] | None = None,
) -> Plan:
    """Return what :func:`condense` would read, hold and write. Nothing is written."""
    table, root = table or ClusterTable(), at(out).absolute()
    what = checked_condensing(**asked)
    rows = _rows(source, root, choice, aligned)
    with known_place(table) as place:
        return _prepared(rows, root, table, what, asked["metric"], place)


def _rows(source: PathLike, root: AnyPath, choice: Choice | None, aligned: Mapping[str, str] | None) -> Input:
    given = dict(aligned or {})
    chosen = replace(choice or Choice(), aligned=tuple(given.values()))
    copy = at(f"{root.with_suffix('')}-input.zarr")
    return find_rows(at(source).absolute(), copy, chosen, given, Path.cwd(), lambda: False)


def _prepared(
    rows: Input, root: AnyPath, table: ClusterTable, what: Condensing, metric: str, place: Place | None = None
) -> Plan:
    """The plan of a condensation."""
    stages, folder = condense_stages(rows.source, metric, what), nearest_folder(root.parent)
    where = resources_of(table, rows.shape, rows.nbytes, place, False, True)
    run = run_at(root)
    why = outdated(stages, run)
    there = tuple(stage.name for stage in stages if stage.name not in why)
    costs = (*input_costs(rows), *((stage.name, stage.cost) for stage in stages))
    left = remains([] if run.temporary else [run], None)
    given = str(rows.path), str(root), rows.shape, str(rows.dtype), where, costs, there
    return Plan(*given, free_bytes(folder), rates(folder), remains=left, folder="OUT")
