"""One graph, many embeddings: every stage that points share is computed once.

Each stage of each point is a run of its own (:mod:`bigembed.jobs.sweep`). What is there already is used again:
after a kill, and with values that were added or left out.
"""

from __future__ import annotations

import csv
import io
import itertools
import os
import re
import shlex
import time
import tomllib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any
from urllib.parse import quote

import numpy as np

from bigembed import __version__
from bigembed.errors import BigembedError, BigembedWarning, ClusterError, InterruptedRun, JobError, LockedError
from bigembed.estimator import preprocessing, reporting, run_of
from bigembed.jobs import duration
from bigembed.jobs.inputs import Input, find_input
from bigembed.jobs.job import JobSpec, SweepTable
from bigembed.jobs.parameters import points_of
from bigembed.jobs.places.cluster import choose, is_planned
from bigembed.jobs.record import definition
from bigembed.jobs.report import RunSummary, job_file, rows_of_stage
from bigembed.jobs.report.figures import figures_of, measured_in
from bigembed.jobs.report.page import filled, refuse_page
from bigembed.jobs.report.run_map import Map, draw_map
from bigembed.jobs.scene import shown_by, write_view
from bigembed.jobs.session import copied, session, working
from bigembed.jobs.sweep import FOLDER, PAGE, PointStage, PreparedPoint, fit_steps, prepare_sweep
from bigembed.jobs.sweep import NAME as QUALITY
from bigembed.jobs.watching import Reporter, RunOptions
from bigembed.jobs.watching.logs import warnings_changed
from bigembed.quality import FIGURES
from bigembed.rows.formats.copying import vector_source
from bigembed.runtime import Event, using
from bigembed.stages import Run, run_stages
from bigembed.steps.each_column import kept_of
from bigembed.store import AnyPath, at, is_url, local, manifests, put, require_apart
from bigembed.store.files import write_json
from bigembed.viewer.building import refuse_other as refuse_folder

# ------------------------------------------------------------------------------------------------------------ run

KIND = "sweep"
STOPS = (OSError, ClusterError, InterruptedRun, LockedError)
"""Errors that are not those of one point: of the disk, the cluster, the input, a signal."""


@dataclass
class FittedPoint:
    """A point while it is computed, and what came of it."""

    prepared: PreparedPoint
    runs: list[Run] = field(default_factory=list)
    computed: list[str] = field(default_factory=list)
    estimator: Any = None
    error: Exception | None = None


def sweep(job: JobSpec, options: RunOptions | None = None) -> dict[str, Any]:
    """Fit every point of the job's ``[sweep]``; ``table.csv`` and ``table.json`` in its output grow by a row with each.

    A row holds the parameters, the figures of the map, the path of the coordinates, eigenvalues, the rest of the
    certificate, the seconds that its stages took (whenever they were computed) and how many of them were computed for
    it. A point that is refused, or fails, is a row with the reason, and the others go on. At the end a page shows all
    maps, in ``[output] report`` or as ``maps.html`` in the output.

    Raises :class:`JobError`, :class:`PlanError` (if no point fits) before anything is computed, and of what a run
    raises all that is not of one point.
    """
    began = time.perf_counter()
    points_of(job)
    rows, root = find_input(job), job.output_path
    with session(root, options, job.method.name, job.output.scratch) as command:
        refuse_other(job)
        prepared = None
        if is_planned(job.cluster) and not root.exists():  # so that what is refused leaves nothing
            prepared = prepare_sweep(job, None, rows)
            prepared.plan.refuse()
        manifests.prepare(root, KIND)
        with command.hold_folder(root) as (reporter, _):
            kind = choose(job.cluster, rows.shape, rows.nbytes)
            make = partial(prepare_sweep, job, rows=rows)
            with working(job.cluster, kind, reporter, lambda place: prepared or make(place)) as (place, ours):
                place.prove_access(root, None)
                rows = copied(rows, reporter)
                place.prove_access(root, str(rows.path))
                after_steps = fit_steps(job, rows, reporter)
                fits, table, shown = [], [], set[str]()
                seen: set[AnyPath] = set()
                for point in ours.points_for(rows, after_steps):
                    fits.append(_fit(point, rows, after_steps, seen, shown, reporter))
                    table.append(_row(fits[-1], job))
                    write_table(root, compared(table))
                views = view_maps(job, rows, fits, reporter)
                with reporter.stage(PAGE):
                    write_page(job, rows, fits, table, views)
    return {
        "output": str(root),
        "table": str(root / f"{TABLE}.csv"),
        "page": str(page_of(job)),
        "view": job.output.view,
        "points": len(table),
        "asked": sum(row["stages"] for row in table),
        "stages": sum(row["stages_computed"] for row in table),
        "refused": [f"{row['point']}: {row['error']}" for row in table if row["error"]],
        "rows": compared(table),
        "compare": unlike(table),
        "seconds": round(time.perf_counter() - began, 3),
    }


def _fit(
    prepared: PreparedPoint,
    rows: Input,
    after_steps: preprocessing.Prepared,
    seen: set[AnyPath],
    shown: set[str],
    reporter: Reporter,
) -> FittedPoint:
    """Fit one point: its stages, each in its folder, see those before it.

    Its warnings begin with its name; what was ``shown`` of another point is left to the table.
    """
    fit = FittedPoint(prepared, error=prepared.refused)
    if fit.error is not None:
        return fit

    def named(message: Any, category: type[Warning]) -> Any:
        if not issubclass(category, BigembedWarning):
            return message
        known = (sentence := reporting.without_numbers(str(message))) in shown
        shown.add(sentence)
        return None if known else f"{prepared.point.label}: {message}"

    try:
        with warnings_changed(named):
            for one in prepared.stages:
                fit.runs.append(_run_stage(one, fit, seen, reporter))
            prepared.estimator.n_features_in_, prepared.estimator.steps_ = rows.shape[1], after_steps.steps
            fit.estimator = prepared.estimator.read_run(fit.runs[-1], source=prepared.source)
            if after_steps.steps:
                fit.estimator.certificate_["steps"] = preprocessing.described_steps(after_steps.steps)
    except (BigembedError, ArithmeticError, MemoryError, ValueError) as error:
        if isinstance(error, STOPS):
            raise
        fit.error = error
    return fit


def _run_stage(one: PointStage, fit: FittedPoint, seen: set[AnyPath], reporter: Reporter) -> Run:
    """Return the stage of a point, computed or found; one that this sweep has ``seen`` is not looked at again."""
    run, name = Run(one.folder, fit.runs[-1:]), one.stage.name

    def tell(event: Event) -> None:
        if event.kind == "done":
            fit.computed.append(one.name)
        reporter(replace(event, stage=one.name))

    if one.folder in seen:
        tell(Event("reused", name, results=run.results(name)))
        return run
    with using(observer=tell):
        run_stages([one.stage], run)
    seen.add(one.folder)
    return run


def _row(fit: FittedPoint, job: JobSpec) -> dict[str, Any]:
    """Return what is said of a point."""
    point, stages = fit.prepared.point, fit.prepared.stages
    known = fit.prepared.estimator.get_params()
    given = dict.fromkeys(name for one in points_of(job) for name in one.given)
    out: dict[str, Any] = {"point": point.label, "method": point.method}
    out |= {name: known.get(name, "") for name in given}
    out["error"] = "" if fit.error is None else str(fit.error)
    if fit.estimator is not None:
        last = fit.runs[-1]
        quality = last.results(QUALITY) if last.has(QUALITY) else {}
        out |= {"coordinates": last.path("coordinates", "embedding"), **outcome(fit.estimator, quality)}
    seconds = [run.manifest(one.stage.name).measured["seconds"] for run, one in zip(fit.runs, stages, strict=False)]
    return out | {"stages": len(stages), "stages_computed": len(fit.computed), "seconds": round(sum(seconds), 3)}


def varied(job: JobSpec, texts: Sequence[str]) -> JobSpec:
    """Return the job with these values in its ``[sweep]``, instead of those of the same parameters; it may have had
    none."""
    if not texts:
        return job
    given, sweep = parse_values(texts), job.sweep or SweepTable()
    methods = given.pop("method", sweep.method)
    update = {"method": methods, "parameters": {**sweep.parameters, **given}}
    return job.model_copy(update={"sweep": sweep.model_copy(update=update)})


def parse_values(texts: Sequence[str]) -> dict[str, list[Any]]:
    """Return the values by parameter from texts such as ``n_neighbors=10,20``; words that are not TOML values are text.

    >>> parse_values(["k=10,20", "epsilon=auto,0.5"])
    {'k': [10, 20], 'epsilon': ['auto', 0.5]}
    """
    grid: dict[str, list[Any]] = {}
    for text in texts:
        name, equals, values = text.partition("=")
        if not equals or not name.strip() or not values.strip() or name.strip() in grid:
            raise JobError(f"--vary {text!r}; NAME=VALUE,VALUE,… is needed, each name once")
        grid[name.strip()] = [_value(part.strip()) for part in values.split(",")]
    return grid


def _value(text: str) -> Any:
    try:
        return tomllib.loads(f"value = {text}")["value"]
    except tomllib.TOMLDecodeError:
        return text


# ----------------------------------------------------------------------------------------------------------- table
# A row for each point of a sweep: its parameters, how good its map is, what it cost; as CSV and as JSON.

TABLE = "table"
SKIPPED = ("versions", "warnings", "input", "seed", "judgement", "drawn")
"""What of a certificate does not differ between points, or is said elsewhere."""


def outcome(fitted: Any, quality: Mapping[str, Any]) -> dict[str, Any]:
    """Return what came out: the figures of the map, eigenvalues (or explained variances), and the rest of the
    certificate.

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
    """Return the rows, where they are of different numbers of coordinates with a column ``compare`` that says so."""
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
class Tile:
    """A map of the page with what stands below it."""

    row: Mapping[str, Any]
    figures: Sequence[tuple[str, str]]
    map: Map | None
    view: str | None
    """From the page to that of every row of the map."""


def page_of(job: JobSpec) -> AnyPath:
    """Return the path of the page of a sweep."""
    return at(job.output.report) if job.output.report else job.output_path / NAME


def refuse_other(job: JobSpec) -> None:
    """ExistingOutputError where something else lies at the place of the page."""
    refuse_page(page_of(job))
    if job.output.report:
        require_apart(job.output_path / "stages", page_of(job))
    if job.output.view:
        require_apart(job.output_path / "stages", job.output.view)
        for place in view_folders(job).values():
            refuse_folder(place)


def view_folders(job: JobSpec) -> dict[str, Path]:
    """Return where the page of every row of each point lies, by its label."""
    home, found = local(job.output.view or "", "the folder of the pages"), dict[str, Path]()
    for point in points_of(job):
        name = re.sub(r"[^\w.=+-]+", "-", point.label).strip("-.")[:80]
        while home / name in found.values():
            name += "-"
        found[point.label] = home / name
    return found


def view_maps(job: JobSpec, rows: Input, fits: Sequence[FittedPoint], reporter: Reporter) -> dict[str, Path]:
    """Write the page of every row of each map, where the job asks for them, and return the pages by their points."""
    if job.output.view is None:
        return {}
    folders = view_folders(job)
    ids = None if rows.ids is None else vector_source(rows.ids)
    kept = kept_of(Run(job.output_path / FOLDER)) if job.steps else None
    pages = {}
    for fit in fits:
        if fit.estimator is None:
            continue
        label, summary = fit.prepared.point.label, _summary(job, rows, fit)
        with reporter.stage(f"view [{label}]"):
            shown = rows_of_stage(summary.run, "coordinates", "embedding")
            coordinates, known, columns = shown_by(summary, shown, ids, kept)
            known["title"] += f": {label}"
            pages[label] = write_view((coordinates, known, columns), folders[label]).page
    return pages


def write_page(
    job: JobSpec,
    rows: Input,
    fits: Sequence[FittedPoint],
    table: Sequence[Mapping[str, Any]],
    views: Mapping[str, Path],
) -> None:
    """Draw every map, two passes over its coordinates each, and write the page."""
    measured = measured_in(table)
    linked = {label: _link(page_of(job), view) for label, view in views.items()}
    tiles = [
        Tile(row, figures_of(row), _map(job, rows, fit), linked.get(row["point"]))
        for fit, row in zip(fits, table, strict=True)
    ]
    n, d = rows.shape
    asked, computed, seconds = (sum(row[name] for row in table) for name in ("stages", "stages_computed", "seconds"))
    failed = [row for row in table if row["error"]]
    legends = {tile.map.legend for tile in tiles if tile.map is not None}
    text = filled(
        TEMPLATE,
        None,
        title=f"{len(table)} maps of {rows.dataset.name if rows.dataset else rows.path.name}",
        output=str(job.output_path),
        failed=failed,
        maps=tiles,
        legend=legends.pop() if len(legends) == 1 else None,  # (of all maps)
        tiles=[
            ("Rows", f"{n:,}", f"of {d:,} columns"),
            ("Points", f"{len(table):,}", f"{len(failed)} refused or failed" if failed else "all have a map"),
            ("Stages", f"{computed:,}", f"computed for {asked:,} asked"),
            ("Time", duration(seconds), "of separate runs"),
        ],
        names=[FIGURES[name][0] for name in measured],
        measured=measured,
        unlike=unlike(table),
        job=job_file(_tables(job, rows)),
        command=shlex.join(["bigembed", "sweep", str(job.file)]),
        version=__version__,
    )
    put(page_of(job), text.encode())


def _map(job: JobSpec, rows: Input, fit: FittedPoint) -> Map | None:
    return None if fit.estimator is None else draw_map(_summary(job, rows, fit), None, side=SIDE)


def _link(page: AnyPath, view: Path) -> str:
    """The address of a page as another one names it."""
    return view.as_uri() if is_url(page) else quote(os.path.relpath(view, Path(str(page)).parent), "/=+")


def _summary(job: JobSpec, rows: Input, fit: FittedPoint) -> RunSummary:
    run = run_of(fit.estimator)
    record = {
        "job": definition(job.model_copy(update={"sweep": None}), rows),
        "beside": {name: str(path) for name, path in rows.aligned.items()},
        "plan": {"input": str(rows.path), "shape": rows.shape},
        "certificate": fit.estimator.certificate_,
    }
    return RunSummary(run.root, run, record, {})


def _tables(job: JobSpec, rows: Input) -> dict[str, Mapping[str, Any]]:
    """Return the job, as its file says it."""
    tables = definition(job, rows)
    sweep = {} if job.sweep is None else {"method": job.sweep.method, **job.sweep.parameters}
    points = [] if job.sweep is None else job.sweep.points
    return {**tables, "sweep": {**sweep, **({"points": points} if points else {})}}
