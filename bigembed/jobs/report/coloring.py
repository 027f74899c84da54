"""What a map is coloured by: an array, a column, labels, the truth of a data set, components; or nothing."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from bigembed.blocks.rows import Array, block_rows, bounds
from bigembed.datasets import Dataset, dataset
from bigembed.errors import BigembedError, InputError
from bigembed.jobs.job import ALIGNED
from bigembed.jobs.report.summary import RunSummary
from bigembed.plotting.stream import Rows
from bigembed.steps.kept_rows import kept_of
from bigembed.store.arrays.npy import npy_rows
from bigembed.store.formats.copying import rows_of_reader
from bigembed.store.formats.registry import open_reader
from bigembed.store.rows.kept import KeptRows
from bigembed.store.rows.opening import open_zarr
from bigembed.store.rows.source import RowSource
from bigembed.store.storage.paths import at

COLUMN = "column:"

COMPONENT = "component of the graph"


@dataclass(frozen=True)
class Coloring:
    """Values of the rows, what they are called, and how they are read."""

    name: str = ""
    values: Rows = None
    kind: str = "auto"


def blocks(source: RowSource) -> Callable[[], Iterator[Array]]:
    """A walk over canonical blocks."""
    spans = bounds(source.shape[0], block_rows(source.width, 8))
    return lambda: (np.asarray(source.read(start, stop)) for start, stop in spans)


def coloring_of(summary: RunSummary, color: str | None, n: int) -> Coloring:
    """What to colour by: what was asked for, or the first there is of: labels of the job, what its data set knows,
    clusters, components.

    ``color``: path of an array with a number or a label for each row of the input (Zarr or .npy), ``column:J``
    (column J of the input, from 0), or ``"none"``. Of rows that a step has left out the colours are left out, too.
    """
    if color == "none":
        return Coloring()
    kept = kept_of(summary.run)
    every = n if kept is None else kept.source.shape[0]
    if color is not None:
        found = _column(summary, color, every) if color.startswith(COLUMN) else _array(color, every)
        return _of_kept(found, kept)
    for known in (_labels, _truth):
        if (given := known(summary, every)) is not None:
            return _of_kept(given, kept)
    return _clusters(summary, n) or _components(summary, n) or Coloring()


def _of_kept(coloring: Coloring, kept: KeptRows | None) -> Coloring:
    """The colours of the rows that a step has left of all of them."""
    if kept is None:
        return coloring
    among, every = kept.among, coloring.values

    def walk() -> Iterator[Array]:
        first = 0
        for part in every():
            yield part[among(first, first + len(part))]
            first += len(part)

    return replace(coloring, values=walk)


def _array(path: str, n: int) -> Coloring:
    """An array with an entry for each row."""
    found: Any = npy_rows(path) if path.endswith(".npy") else open_zarr(path)
    if tuple(found.shape) != (n,):
        raise InputError(f"color: {path} has shape {found.shape}; it needs an entry for each of the {n} rows: ({n},)")
    if found.dtype.kind == "c":
        raise InputError(f"color: {path} holds complex numbers; give real numbers, text or booleans")
    return Coloring(at(path).name, blocks(RowSource((n,), found.dtype, path=path)))


def _column(summary: RunSummary, color: str, n: int) -> Coloring:
    text = color.removeprefix(COLUMN)
    place = summary.record.get("plan", {}).get("input")
    if not text.isdigit() or place is None:
        raise InputError(f"color: {color!r}; column:J takes column J of the input of a job, counted from 0")
    rows = open_reader(place)
    j = int(text)
    if j >= rows.shape[1] or rows.shape[0] != n:
        raise InputError(f"color: {color!r}; the input {place} has shape {rows.shape}, and the run has {n} rows")
    spans = bounds(n, block_rows(rows.shape[1], 8))

    def walk() -> Iterator[Array]:
        return (np.asarray(part)[:, j] for start, stop in spans for part in rows_of_reader(rows, start, stop))

    return Coloring(f"column {j} of the input", walk)


def _labels(summary: RunSummary, n: int) -> Coloring | None:
    """Labels that the job was given."""
    given = summary.job.get("input", {}).get("labels")
    path = summary.record.get("beside", {}).get("labels", given) if given else None
    try:
        return Coloring("labels", _array(path, n).values, "classes") if path else None
    except (BigembedError, OSError, ValueError):
        return None


def _truth(summary: RunSummary, n: int) -> Coloring | None:
    """What is known of the rows of a data set: its labels, or the first of its numbers."""
    asked = dict(summary.job.get("input", {}))
    name = asked.pop("dataset", None)
    if name is None:
        return None
    for key in ("path", *ALIGNED):
        asked.pop(key, None)
    try:
        made: Dataset = dataset(name, **asked)
        truth = list(made.truth(0, 1))
    except (BigembedError, OSError, TypeError, ImportError):
        return None
    if made.shape[0] != n or not truth:
        return None
    what = "label" if "label" in truth else truth[0]
    spans = bounds(n, block_rows(made.shape[1], 8))

    def walk() -> Iterator[Array]:
        return (made.truth(start, stop)[what] for start, stop in spans)

    return Coloring(f"{what} of the data set {name}", walk, "classes" if what == "label" else "numbers")


def _clusters(summary: RunSummary, n: int) -> Coloring | None:
    """The cluster of each row, where clusters were looked for."""
    if not summary.has("clusters"):
        return None
    path = summary.run.path("clusters", "labels")
    return Coloring("cluster", blocks(RowSource((n,), np.dtype(np.int32), path=path)), "classes")


def _components(summary: RunSummary, n: int) -> Coloring | None:
    """The component of each row, where there are several."""
    found: Any = summary.run.results("components") if summary.has("components") else {}
    path = summary.run.path("coordinates", "labels")
    if found.get("components", 1) < 2 or not at(path).exists():
        return None
    return Coloring(COMPONENT, blocks(RowSource((n,), np.dtype(np.int32), path=path)), "classes")
