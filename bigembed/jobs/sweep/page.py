"""The page of a sweep: all maps side by side, with what is known of each."""

from __future__ import annotations

import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from bigembed import __version__
from bigembed.jobs.identity import definition
from bigembed.jobs.inputs import Input
from bigembed.jobs.job import JobSpec
from bigembed.jobs.report.figures import MEANING
from bigembed.jobs.report.job_file import job_file
from bigembed.jobs.report.map import Legend, Map, draw_map
from bigembed.jobs.report.page import filled, refuse_page
from bigembed.jobs.report.summary import RunSummary
from bigembed.jobs.sweep.table import unlike
from bigembed.jobs.units import duration
from bigembed.store.storage.output_paths import require_apart
from bigembed.store.storage.paths import AnyPath, at, put

TEMPLATE, NAME = "sweep.html", "maps.html"
SIDE = 420
"""Pixels of a map."""


@dataclass(frozen=True)
class Shown:
    """A point: its fitted estimator, if it came to one, and its row of the table."""

    estimator: Any
    row: Mapping[str, Any]


@dataclass(frozen=True)
class Tile:
    """A map of the page with what stands below it."""

    row: Mapping[str, Any]
    figures: tuple[tuple[str, str], ...]
    map: Map | None


def page_of(job: JobSpec) -> AnyPath:
    """Where the page lies."""
    return at(job.output.report) if job.output.report else job.output_path / NAME


def refuse_other(job: JobSpec) -> None:
    """ExistingOutputError where something else lies at the place of the page."""
    refuse_page(page_of(job))
    if job.output.report:
        require_apart(job.output_path / "stages", page_of(job))


def write_page(job: JobSpec, rows: Input, points: Sequence[Shown]) -> None:
    """Draw every map, two passes over its coordinates each, and write the page."""
    tiles = [Tile(one.row, _figures(one.row), _map(job, rows, one)) for one in points]
    n, d = rows.shape
    asked, computed = (sum(one.row[name] for one in points) for name in ("stages", "stages_computed"))
    failed = [one.row for one in points if one.row["error"]]
    source = rows.dataset.name if rows.dataset else rows.path.name
    text = filled(
        TEMPLATE,
        None,
        title=f"{len(points)} maps of {source}",
        output=str(job.output_path),
        failed=failed,
        maps=tiles,
        legend=_legend(tiles),
        tiles=[
            ("Rows", f"{n:,}", f"of {d:,} columns"),
            ("Points", f"{len(points):,}", f"{len(failed)} refused or failed" if failed else "all have a map"),
            ("Stages", f"{computed:,}", f"computed for {asked:,} asked"),
            ("Time", duration(sum(one.row["seconds"] for one in points)), "of separate runs"),
        ],
        names=[MEANING[name][0] for name in _measured(points)],
        measured=_measured(points),
        unlike=unlike([one.row for one in points]),
        job=job_file(_tables(job, rows)),
        command=shlex.join(["bigembed", "sweep", str(job.file)]),
        version=__version__,
    )
    put(page_of(job), text.encode())


def _map(job: JobSpec, rows: Input, one: Shown) -> Map | None:
    if one.estimator is None:
        return None
    run = one.estimator._run
    mine = job.model_copy(update={"sweep": None})
    record = {
        "job": definition(mine, rows),
        "beside": {name: str(path) for name, path in rows.aligned.items()},
        "plan": {"input": str(rows.path), "shape": rows.shape},
        "certificate": one.estimator.certificate_,
    }
    return draw_map(RunSummary(run.root, run, record, {}), None, side=SIDE)


def _figures(row: Mapping[str, Any]) -> tuple[tuple[str, str], ...]:
    """The figures of a map in words."""
    return tuple(
        (name, f"{row[key]:.3f} ± {row[f'{key}_error']:.1g}") for key, (name, _) in MEANING.items() if key in row
    )


def _measured(points: Sequence[Shown]) -> list[str]:
    return [key for key in MEANING if any(key in one.row for one in points)]


def _legend(tiles: Sequence[Tile]) -> Legend | None:
    """The legend of all maps, if they have the same."""
    found = {tile.map.legend for tile in tiles if tile.map is not None}
    return found.pop() if len(found) == 1 else None


def _tables(job: JobSpec, rows: Input) -> dict[str, Mapping[str, Any]]:
    """The job, as its file says it."""
    tables = definition(job, rows)
    sweep = {} if job.sweep is None else {"method": job.sweep.method, **job.sweep.parameters}
    points = [] if job.sweep is None else job.sweep.points
    return {**tables, "sweep": {**sweep, **({"points": points} if points else {})}}
