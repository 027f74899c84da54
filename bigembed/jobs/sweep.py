"""A grid of parameters over one input: every stage that points share is computed once.

Each stage of each point is a separate run, in a folder addressed by what the stage depends on: its parameters and
those of the stages before it. Points whose first stages agree meet in the same folders; so does a sweep that is started
again, or with more values.
"""

from __future__ import annotations

import csv
import io
import itertools
import time
import tomllib
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from typing import Any

import numpy as np

from bigembed.errors import InputError, JobError
from bigembed.jobs.inputs import Input, find_input
from bigembed.jobs.job import JobSpec
from bigembed.jobs.places.cluster import choose
from bigembed.jobs.places.place import Place
from bigembed.jobs.planning.plan import make_plan
from bigembed.jobs.session import session, working
from bigembed.jobs.spec import checked_parameters
from bigembed.jobs.watching.reporter import Reporter, RunOptions
from bigembed.methods import method
from bigembed.runs import Run
from bigembed.stages import Stage, run_stages
from bigembed.store import roots
from bigembed.store.documents import digest_of, write_json
from bigembed.store.paths import AnyPath, put

KIND = "sweep"
TABLE = "table"
SKIPPED = ("versions", "warnings", "input", "seed")
"""What of a certificate does not differ between points, or is said elsewhere."""


def sweep(job: JobSpec, grid: Mapping[str, Sequence[Any]], options: RunOptions | None = None) -> dict[str, Any]:
    """Fit the job's method for every combination of the values; ``table.csv`` and ``table.json`` in its output grow
    by a row with every point.

    ``grid``: values by parameter; all other parameters are the job's. A row holds the parameters, the eigenvalues,
    the figures of the certificate, the seconds that its stages took (whenever they were computed) and how many of
    them were computed for it. A point that the data refuse (:class:`InputError`) is a row with the reason. Raises
    :class:`JobError`, :class:`PlanError` before anything is computed, and what a run raises.
    """
    began = time.perf_counter()
    points = list(grid_points(job, grid))
    rows = find_input(job)
    with session(job.output_path, options, job.method.name, job.output.scratch) as command:
        roots.prepare(job.output_path, KIND)
        root = job.output_path
        with command.held(root) as (reporter, _):
            kind = choose(job.cluster, rows.shape, rows.nbytes)
            with working(job.cluster, kind, reporter) as place:
                rows = _planned(points, rows, place, reporter)
                table = []
                for point in points:
                    table.append(_row(point, grid, root, rows))
                    write_table(root / TABLE, table)
    return {
        "output": str(root),
        "table": str(root / f"{TABLE}.csv"),
        "points": len(points),
        "asked": sum(row["stages"] for row in table),
        "stages": sum(row["stages_computed"] for row in table),
        "refused": [row["error"] for row in table if row["error"]],
        "rows": table,
        "seconds": round(time.perf_counter() - began, 3),
    }


def grid_points(job: JobSpec, grid: Mapping[str, Sequence[Any]]) -> Iterator[JobSpec]:
    """The job of each combination, checked: the last parameter of the grid varies quickest."""
    problems: dict[str, None] = {}
    points = []
    for values in itertools.product(*grid.values()):
        given = {**job.method.parameters, **dict(zip(grid, values, strict=True))}
        typed, wrong = checked_parameters(job.method.name, given, job.functions)
        problems |= dict.fromkeys(wrong)
        output = {"path": str(job.output_path / "point"), "model": None, "picture": None, "report": None}
        points.append(
            job.model_copy(
                update={
                    "method": job.method.model_copy(update={"parameters": typed}),
                    "output": job.output.model_copy(update=output),
                    "input": job.input.model_copy(update={"path": str(job.input_path)}),
                }
            )
        )
    if problems:
        raise JobError(f"{job.file}: " + "".join(f"\n  {problem}" for problem in problems))
    yield from points


def parse_values(texts: Sequence[str]) -> dict[str, list[Any]]:
    """Values by parameter from texts such as ``n_neighbors=10,20``; words that are no TOML values are text.

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


def _planned(points: Sequence[JobSpec], rows: Input, place: Place, reporter: Reporter) -> Input:
    """The rows, written if they were not; PlanError if a point cannot fit."""
    for point in points:
        with suppress(InputError):  # its row will say so
            make_plan(point, place, rows).refuse()
    root = points[0].output_path.parent
    place.prove_access(root, None)
    if not rows.written:
        with reporter.stage("input"):
            rows = rows.ready()
    place.prove_access(root, str(rows.path))
    return rows


def _row(point: JobSpec, grid: Mapping[str, Any], root: AnyPath, rows: Input) -> dict[str, Any]:
    """Fit one point, and what came out."""
    out: dict[str, Any] = {name: point.method.parameters[name] for name in grid}
    runs: list[tuple[Stage, Run, bool]] = []
    try:
        fitted = _fitted(point, root, rows, runs)
        out |= {"error": "", **_outcome(fitted)}
    except InputError as error:
        out |= {"error": str(error)}
    seconds = [run.manifest(stage.name).measured["seconds"] for stage, run, _ in runs]
    return out | {
        "stages": len(runs),
        "stages_computed": sum(computed for _, _, computed in runs),
        "seconds": round(sum(seconds), 3),
    }


def _fitted(point: JobSpec, root: AnyPath, rows: Input, runs: list[tuple[Stage, Run, bool]]) -> Any:
    """The estimator of a point; its stages, each in the folder of its key, are added to ``runs``."""
    estimator, source = method(point.method.name)(**point.method.parameters), rows.source()
    stages = [stage for stage in estimator.stages(source) if not stage.on_demand]
    keys: dict[str, str] = {}
    run: Run | None = None
    for stage in stages:
        inputs = {name: keys[name] for name in stage.inputs}
        keys[stage.name] = digest_of({"stage": stage.name, "parameters": stage.parameters, "inputs": inputs})
        folder = root / "stages" / f"{stage.name}-{keys[stage.name][:16]}"
        run = Run(folder, [run] if run else [])
        there = stage.name in run.published()
        run_stages([stage], run)
        runs.append((stage, run, not there))
    assert run is not None
    estimator.n_features_in_ = source.shape[1]
    return estimator.adopt(run, source=source)


def _outcome(fitted: Any) -> dict[str, Any]:
    """Eigenvalues (or explained variances) and the figures of the certificate."""
    values = getattr(fitted, "eigenvalues_", getattr(fitted, "explained_variance_", None))
    out: dict[str, Any] = {"n_components": fitted.n_components_}
    if values is not None:
        leading = np.asarray(values)
        out |= {f"eigenvalue_{i}": float(v) for i, v in enumerate(leading[0] if leading.ndim == 2 else leading, 1)}
    found = {name: value for name, value in fitted.certificate_.items() if name not in SKIPPED}
    given = [text for texts in fitted.certificate_.get("warnings", {}).values() for text in texts]
    return {**out, **dict(_flat(found)), "warnings": len(given)}


def _flat(value: Mapping[Any, Any], prefix: str = "") -> Iterator[tuple[str, Any]]:
    """Single values of nested tables, by dotted names; of the eigenpairs those of the first component."""
    for name, entry in value.items():
        if isinstance(entry, Mapping):
            first = dict(itertools.islice(entry.items(), 1)) if name == "eigenpairs" else entry
            yield from _flat(first, f"{prefix}{name}.")
        elif isinstance(entry, (bool, int, float, str, np.generic)):
            yield f"{prefix}{name}", entry.item() if isinstance(entry, np.generic) else entry


def write_table(path: AnyPath, table: Sequence[Mapping[str, Any]]) -> None:
    """The table as CSV and as JSON: a reader sees the old one or the new one."""
    names = list(dict.fromkeys(name for row in table for name in row))
    text = io.StringIO()
    writer = csv.DictWriter(text, names, lineterminator="\n")
    writer.writeheader()
    writer.writerows(table)
    put(path.with_suffix(".csv"), text.getvalue().encode())
    write_json(path.with_suffix(".json"), list(table))
