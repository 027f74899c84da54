"""What a run shows of itself on the page of every row: its map, graph and certificate, what it knows of its rows."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

import numpy as np

from bigembed.datasets import dataset
from bigembed.errors import BigembedError
from bigembed.jobs.export import table_of
from bigembed.jobs.job import ALIGNED
from bigembed.jobs.report.page import warnings_of
from bigembed.jobs.report.summary import RunSummary
from bigembed.rows.formats.copying import vector_source
from bigembed.rows.formats.tables import ID, Table
from bigembed.rows.source import RowSource
from bigembed.runtime.blocks import Array
from bigembed.runtime.executors import chosen_executor
from bigembed.steps.missing import kept_of
from bigembed.store.files import temporary
from bigembed.store.paths import AnyPath, PathLike, at, local
from bigembed.viewer.building import View, build_view
from bigembed.viewer.scene import Warned
from bigembed.viewer.sources import first_pairs, graph_of, scene_of

Found = tuple[Any, dict[str, Any], list[tuple[str, RowSource]]]
"""Coordinates, what is known of them, and their own columns."""


def view_run(root: AnyPath, out: PathLike) -> View:
    """Write the page of a run, as a job does at its end."""
    place = local(out, "the folder of a page").absolute()
    place.parent.mkdir(parents=True, exist_ok=True)
    source, known, columns = shown_by_run(root)
    with temporary("view", place.parent, hidden=True) as scratch, chosen_executor():
        return build_view([scene_of(source, scratch, **known, columns=tuple(columns))], place)


def names_of(table: Table) -> tuple[str, ...]:
    return tuple(f"coordinate {number + 1}" for number in range(table.coordinates.width))


def shown_by_run(place: AnyPath) -> Found:
    """The coordinates of a run, its graph, its certificate, and what it knows of its rows."""
    table, summary = table_of(place), RunSummary.read(place)
    n = table.rows
    own = [(name, one) for name, one in table.aligned.items() if name != ID]
    if sum(summary.certificate.get("component_sizes", [0, 0])[1:]) == 0:
        own = [(name, one) for name, one in own if name != "component"]
    with suppress(BigembedError, OSError, ValueError):
        own = [*_labels(summary, n), *own]
    drawn = summary.drawn.get("pair", (0, 1))
    return table.coordinates, {
        "title": f"{summary.title} of {summary.source}",
        "names": names_of(table),
        "pairs": first_pairs(n, table.coordinates.width, drawn),
        "ids": table.aligned.get(ID),
        "graph": graph_of(summary.run, n),
        "warnings": warned_in(summary),
        "facts": facts_of(summary),
    }, own  # fmt: skip


def warned_in(summary: RunSummary) -> tuple[Warned, ...]:
    """The warnings of the report."""
    return tuple(Warned(one.title, one.level, one.messages) for one in warnings_of(summary))


def facts_of(summary: RunSummary) -> tuple[tuple[str, str], ...]:
    """The figures of the map as a whole."""
    return tuple((figure.name, str(figure.value)) for figure in summary.figures)


def _labels(summary: RunSummary, n: int) -> list[tuple[str, RowSource]]:
    """Labels of the job, and what its data set knows of its rows."""
    kept, found = kept_of(summary.run), []
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
