"""The input of a job that condenses its rows first: cells with their counts, made before anything else."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from bigembed.errors import InputError
from bigembed.estimator.extension import batch_rows
from bigembed.estimator.transform import wave_rows
from bigembed.jobs.inputs import Input, find_input, rows_named
from bigembed.jobs.job import CondenseTable, JobSpec
from bigembed.maps import method
from bigembed.maps.walk.along import TOGETHER
from bigembed.neighbors.condense import Condensing, condense_stages
from bigembed.neighbors.condensed import Condensed, checked_condensing, holds_cells
from bigembed.rows import RowSource, work_dtype
from bigembed.rows.derived import PlannedRows
from bigembed.runtime.blocks import MAX_BLOCK_ROWS, block_rows
from bigembed.stages.cost import ArraySpec, Cost, largest, rows_of
from bigembed.stages.reuse import outdated
from bigembed.stages.runs import Run, run_at
from bigembed.stages.stage import Stage, run_stages
from bigembed.store import AnyPath, at, is_url

FOLDER = "condensed"
"""Where the cells of a job lie, in its run: what ``bigembed condense`` writes."""
PLACED = "placed"
"""The coordinates of all rows, in the run of a job that condenses: an array as ``bigembed extend`` writes it."""
EDGES = 80
"""Of a row that is placed, which a plan counts with."""
PLANNED_WIDTH = 10
"""Coordinates that a plan counts with where the method decides how many there are."""


@dataclass(frozen=True)
class CondensedInput(Input):
    """The input of a job that condenses: cells of the rows that it names, with their counts as weights."""

    of: Input | None = None
    """The rows themselves."""
    asked: Condensing | None = None
    metric: str = "euclidean"
    home: AnyPath | None = None

    @property
    def all_rows(self) -> Input:
        """The rows that are condensed."""
        assert self.of is not None
        return self.of

    @property
    def stages(self) -> list[Stage]:
        """From rows to cells."""
        assert self.asked is not None
        return condense_stages(self.all_rows.source, self.metric, self.asked)

    @property
    def cost(self) -> Cost:
        """Of the stages together."""
        first, *rest = (stage.cost for stage in self.stages)
        for cost in rest:
            first = first.then(cost)
        return first

    def placing(self, width: Any, dtype: str) -> Cost:
        """Of the coordinates of all rows: brought to the cells near them a wave at a time, placed, and brought back."""
        rows, n = self.all_rows.source, self.all_rows.shape[0]
        m = width if isinstance(width, int) else PLANNED_WIDTH
        wave = min(n, wave_rows(block_rows(m, 8)))
        held, together = (min(n, batch_rows(n, rows.row_bytes, *most)) for most in ((), (TOGETHER, TOGETHER)))
        near = min(self.rows.shape[0], 3 * MAX_BLOCK_ROWS)
        return Cost.of(
            reads=[rows_of(rows)],
            writes=[ArraySpec(PLACED, n, m, dtype)],
            leaves=[
                ArraySpec("rows of a wave", wave, rows.row_bytes, "u1"),
                ArraySpec("numbers of rows", wave, 2, "i8"),
                ArraySpec("coordinates", wave, m),
            ],
            task=largest(
                [ArraySpec("rows of a batch", held, rows.row_bytes, "u1", 4), ArraySpec("edges", held, EDGES, times=4)],
                [
                    ArraySpec("rows of a batch along the graph", together, rows.row_bytes + 8 * (m + 10), "u1", 3),
                    ArraySpec("cells and their edges", near, rows.row_bytes + 8 * (m + 6) + 6 * EDGES, "u1", 2),
                ],
            ),
            passes=1,
            scalar_ops=0.5 * n * EDGES * rows.width,
            maps=3 * -(-n // wave),
        )

    @property
    def ids(self) -> AnyPath | None:
        """None: cells have none."""
        return None

    @property
    def written(self) -> bool:
        """Whether the rows are written, and condensed as they are."""
        assert self.home is not None
        return self.all_rows.written and self.home.is_dir() and not outdated(self.stages, run_at(self.home))

    def ready(self) -> Input:
        """This input with the rows condensed, if they were not."""
        ready = replace(self, of=self.all_rows.ready())
        assert self.home is not None
        run = Run(self.home)
        with rows_named(self.all_rows.path):
            run_stages(ready.stages, run, of=ready.stages)
        return ready.opened()

    def opened(self) -> CondensedInput:
        """The input whose rows are the cells that are there."""
        assert self.home is not None
        found = Condensed.open(self.home)
        rows, counts = found.places
        return replace(self, path=at(str(rows.path)), rows=rows, aligned={"weights": counts})

    @property
    def source(self) -> RowSource:
        """The means with their counts; held in memory where they are not there yet, for a plan."""
        if self.aligned:
            return super().source
        n = self.rows.shape[0]
        weights = RowSource((n,), np.dtype(np.float64), array=np.broadcast_to(1.0, n))
        return replace(self.rows, aligned={"weights": weights})


def condensed_input(rows: Input, table: CondenseTable, metric: str, root: AnyPath) -> CondensedInput:
    """The cells of rows, as they are or, for a plan, will be: where a radius is given, as many as rows."""
    asked = checked_condensing(table.rows, table.radius, metric, table.cell, table.seed)
    home, (n, d) = root / FOLDER, rows.shape
    path = home / "stages" / "cells" / "rows"
    planned = PlannedRows(
        (min(n, table.rows or n), d),
        work_dtype(rows.dtype),
        path=str(path),
        stamp="not written yet",
        named=rows.columns,
    )
    found = CondensedInput(path, planned, named=rows.named, of=rows, asked=asked, metric=metric, home=home)
    return found.opened() if found.written else found


def _of_cells(job: JobSpec) -> JobSpec:
    """Return the job itself, or where its input is what ``bigembed condense`` wrote, one of the means with their counts
    as weights."""
    given = job.input
    if given.path is None or given.graph is not None or is_url(given.path) or not holds_cells(job.input_path):
        return job
    if given.weights is None and "weights" not in method(job.method.name).aligned:
        raise InputError(
            f"[input] path: {given.path} holds condensed rows, and {job.method.name} takes no weights: cells of many "
            f"rows would count as those of one. To map the means alike, give {given.path}/stages/cells/rows"
        )
    rows, counts = Condensed.open(job.input_path).places
    changed = given.model_copy(update={"path": str(rows.path), "weights": given.weights or str(counts)})
    return job.model_copy(update={"input": changed})


def find_job_input(job: JobSpec) -> Input:
    """Return the input of a job: its rows, or the cells that it condenses them to. Nothing is written yet."""
    if job.condense is None:
        return find_input(_of_cells(job))
    rows = find_input(job)
    return condensed_input(rows, job.condense, job.method.parameters.get("metric", "euclidean"), job.output_path)
