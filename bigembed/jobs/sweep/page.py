"""The page of a sweep: all maps side by side, and a row for each point in its table."""

from __future__ import annotations

import csv
import io
import itertools
import shlex
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from bigembed import __version__
from bigembed.estimator.protocol import run_of
from bigembed.jobs.identity import definition
from bigembed.jobs.inputs import Input
from bigembed.jobs.job import JobSpec
from bigembed.jobs.report.map import Legend, Map, draw_map
from bigembed.jobs.report.page import filled, refuse_page
from bigembed.jobs.report.summary import RunSummary, job_file
from bigembed.jobs.units import duration
from bigembed.quality.neighborhoods import FIGURES
from bigembed.store.files import write_json
from bigembed.store.paths import AnyPath, at, put, require_apart

# ----------------------------------------------------------------------------------------------------------- table
# A row for each point of a sweep: its parameters, how good its map is, what it cost; as CSV and as JSON.

TABLE = "table"
SKIPPED = ("versions", "warnings", "input", "seed", "judgement", "drawn")
"""What of a certificate does not differ between points, or is said elsewhere."""


def outcome(fitted: Any, quality: Mapping[str, Any]) -> dict[str, Any]:
    """What came out: the figures of the map, eigenvalues (or explained variances), and the rest of the certificate.

    ``quality``: the figures against all rows, where those of the certificate are of some.
    """
    certificate = fitted.certificate_
    figures = quality or certificate.get("judgement", {}).get("map", {})
    out: dict[str, Any] = {}
    for name in (name for name in FIGURES if name in figures):
        out |= {name: figures[name]["value"], f"{name}_error": figures[name]["standard_error"]}
    out["warnings"] = " | ".join(text for texts in certificate.get("warnings", {}).values() for text in texts)
    out["n_components"] = fitted.n_components_
    values = getattr(fitted, "eigenvalues_", getattr(fitted, "explained_variance_", None))
    if values is not None:
        leading = np.asarray(values)
        out |= {f"eigenvalue_{i}": float(v) for i, v in enumerate(leading[0] if leading.ndim == 2 else leading, 1)}
    return out | dict(_flat({name: value for name, value in certificate.items() if name not in SKIPPED}))


def _flat(value: Mapping[Any, Any], prefix: str = "") -> Iterator[tuple[str, Any]]:
    """Single values of nested tables, by dotted names; of the eigenpairs those of the first component."""
    for name, entry in value.items():
        if isinstance(entry, Mapping):
            first = dict(itertools.islice(entry.items(), 1)) if name == "eigenpairs" else entry
            yield from _flat(first, f"{prefix}{name}.")
        elif isinstance(entry, (bool, int, float, str, np.generic)):
            yield f"{prefix}{name}", entry.item() if isinstance(entry, np.generic) else entry


def unlike(table: Sequence[Mapping[str, Any]]) -> str:
    """That maps have different numbers of coordinates, where their figures stand beside each other; else nothing.

    >>> unlike([{"coordinates": "a", "n_components": 2}, {"coordinates": "b", "n_components": 10}, {"error": "no"}])
    'maps of 2 and of 10 coordinates: the more there are, the more neighbors they keep, so compare figures of as many'
    """
    counts = sorted({row["n_components"] for row in table if "coordinates" in row})
    if len(counts) < 2:
        return ""
    return (
        f"maps of {' and of '.join(map(str, counts))} coordinates: the more there are, the more neighbors they keep, "
        "so compare figures of as many"
    )


def compared(table: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """The rows, where they are of different numbers of coordinates with a column ``compare`` that says so."""
    mixed = unlike(table)
    return [dict(row) | ({"compare": mixed if "coordinates" in row else ""} if mixed else {}) for row in table]


def write_table(root: AnyPath, table: Sequence[Mapping[str, Any]]) -> None:
    """``table.csv`` and ``table.json``: a reader sees the old one or the new one."""
    names = list(dict.fromkeys(name for row in table for name in row))
    text = io.StringIO()
    writer = csv.DictWriter(text, names, lineterminator="\n")
    writer.writeheader()
    writer.writerows(table)
    put(root / f"{TABLE}.csv", text.getvalue().encode())
    write_json(root / f"{TABLE}.json", list(table))


# ------------------------------------------------------------------------------------------------------------ page
# The page of a sweep: all maps side by side, with what is known of each.

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
        names=[FIGURES[name][0] for name in _measured(points)],
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
    run = run_of(one.estimator)
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
        (name, f"{row[key]:.3f} ± {row[f'{key}_error']:.1g}") for key, (name, _) in FIGURES.items() if key in row
    )


def _measured(points: Sequence[Shown]) -> list[str]:
    return [key for key in FIGURES if any(key in one.row for one in points)]


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
