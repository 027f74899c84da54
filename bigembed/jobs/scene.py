"""What a run shows of itself on the page of every row: its map, graph and certificate, what it knows of its rows."""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from bigembed.datasets import dataset
from bigembed.errors import BigembedError
from bigembed.estimator.judged import compares_rows
from bigembed.estimator.preprocessing import passes_of, prepare_steps
from bigembed.estimator.protocol import spec_of
from bigembed.jobs.condensed_input import find_job_input
from bigembed.jobs.export import table_of
from bigembed.jobs.job import ALIGNED
from bigembed.jobs.prepared import estimator
from bigembed.jobs.report.page import warnings_of
from bigembed.jobs.report.summary import RunSummary, job_file
from bigembed.jobs.spec import parse_job
from bigembed.rows.derived import KeptRows
from bigembed.rows.formats.copying import vector_source
from bigembed.rows.formats.tables import ID
from bigembed.rows.source import RowSource
from bigembed.runtime.blocks import Array
from bigembed.runtime.executors import chosen_executor
from bigembed.steps.missing import kept_of
from bigembed.store.files import temporary
from bigembed.store.paths import AnyPath, PathLike, at, local
from bigembed.viewer.building import View, build_view
from bigembed.viewer.scene import Warned
from bigembed.viewer.sources import columns_of_run, first_pairs, graph_of, rows_behind, scene_of

Found = tuple[Any, dict[str, Any], list[tuple[str, RowSource]]]
"""Coordinates, what is known of them, and their own columns."""


def view_run(root: AnyPath, out: PathLike) -> View:
    """Write the page of a run, as a job does at its end."""
    return write_view(shown_by_run(root), out)


def write_view(found: Found, out: PathLike) -> View:
    """Write the page of what is shown."""
    place = local(out, "the folder of a page").absolute()
    place.parent.mkdir(parents=True, exist_ok=True)
    source, known, columns = found
    with temporary("view", place.parent, hidden=True) as scratch, chosen_executor():
        return build_view([scene_of(source, scratch, **known, columns=tuple(columns))], place)


def names_of(coordinates: RowSource) -> tuple[str, ...]:
    return tuple(f"coordinate {number + 1}" for number in range(coordinates.width))


def shown_by_run(place: AnyPath) -> Found:
    """The coordinates of a run, its graph, its certificate, and what it knows of its rows."""
    table, summary = table_of(place), RunSummary.read(place)
    return shown_by(summary, table.coordinates, table.aligned.get(ID), kept_of(summary.run))


def shown_by(summary: RunSummary, coordinates: RowSource, ids: RowSource | None, kept: KeptRows | None) -> Found:
    """The same, of coordinates with ids; of all rows of the input some may be ``kept``."""
    n = coordinates.shape[0]
    own = [*([("row", kept)] if kept is not None else []), *columns_of_run(summary.run, summary.certificate)]
    with suppress(BigembedError, OSError, ValueError):
        own = [*_labels(summary, n, kept), *own]
    drawn = summary.drawn.get("pair", (0, 1))
    return coordinates, {
        "title": f"{summary.title} of {summary.source}",
        "names": names_of(coordinates),
        "pairs": first_pairs(n, coordinates.width, drawn),
        "ids": ids,
        "graph": graph_of(summary.run, n),
        "kept": kept,
        **rows_of_run(summary, n),
        "warnings": warned_in(summary),
        "facts": facts_of(summary),
    }, own  # fmt: skip


def rows_of_run(summary: RunSummary, n: int) -> dict[str, Any]:
    """The rows that a run without a graph was made of, and their metric, if they are there as they were."""
    if graph_of(summary.run, n) is not None:
        return {}
    with suppress(BigembedError, OSError, ValueError, KeyError):
        job = parse_job(tomllib.loads(job_file(summary.job)), Path(str(summary.root)) / "job.toml")
        chosen, given = spec_of(estimator(job)), find_job_input(job).source
        source = prepare_steps(chosen.steps, given, summary.run, passes_of(chosen)).source
        if compares_rows(chosen) and source.shape[0] == n and rows_behind(summary.run, source):
            return {"rows": source, "metric": getattr(chosen.estimator, "metric", "euclidean")}
    return {}


def warned_in(summary: RunSummary) -> tuple[Warned, ...]:
    """The warnings of the report."""
    return tuple(Warned(one.title, one.level, one.messages) for one in warnings_of(summary))


def facts_of(summary: RunSummary) -> tuple[tuple[str, str], ...]:
    """The figures of the map as a whole."""
    return tuple((figure.name, str(figure.value)) for figure in summary.figures)


def _labels(summary: RunSummary, n: int, kept: KeptRows | None) -> list[tuple[str, RowSource]]:
    """Labels of the job, and what its data set knows of its rows."""
    found = []
    asked: Mapping[str, Any] = summary.job.get("input", {})
    every = n if kept is None else kept.source.shape[0]
    if given := asked.get("labels"):
        found.append(("labels", vector_source(at(summary.record.get("beside", {}).get("labels", given)))))
    elif name := asked.get("dataset"):
        options = {key: value for key, value in asked.items() if key not in ("dataset", "path", *ALIGNED)}
        made = dataset(name, **options)
        if made.shape[0] == every:
            known = made.truth(0, 1).items()
            found += [(what, Truth((every,), one.dtype, made=made, what=what)) for what, one in known]
    return [(name, one if kept is None else kept.of(one)) for name, one in found if one.shape == (every,)]


@dataclass(frozen=True)
class Truth(RowSource):
    """What is known of the rows of a data set."""

    made: Any = None
    what: str = ""

    def read(self, start: int, stop: int) -> Array:
        return np.asarray(self.made.truth(start, stop)[self.what])

    def fingerprint(self) -> str:
        return f"{self.made!r} {self.what} {self.shape}"
