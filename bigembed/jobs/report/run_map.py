"""The map of a run for its page: which coordinates, which colours, the pictures. Blocks of rows, one at a time."""

from __future__ import annotations

import base64
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from itertools import combinations
from pathlib import Path
from typing import Any

import numpy as np

from bigembed.datasets import Dataset, dataset
from bigembed.errors import BigembedError, InputError
from bigembed.estimator.frame import place_of
from bigembed.estimator.graph_input import ISLAND
from bigembed.jobs.inputs import IDS
from bigembed.jobs.job import ALIGNED
from bigembed.jobs.report import RunSummary, rows_of_stage
from bigembed.maps.umap.views import NUMERIC
from bigembed.plotting import palette
from bigembed.plotting.canvas import Grid, View, count_points, png
from bigembed.plotting.vector import Series, chart, ends, number
from bigembed.rows import RowSource, derived, formats, rows_at
from bigembed.rows.formats.copying import rows_of_reader
from bigembed.runtime.blocks import Array, block_rows, bounds
from bigembed.steps.each_column import kept_of
from bigembed.store import PathLike, at
from bigembed.store.files import temporary
from bigembed.viewer.columns import Names, column_at, ids_of

# -------------------------------------------------------------------------------------------------------- coloring
# What a map is coloured by: an array, a column, labels, the truth of a data set, components; or nothing.

COLUMN = "column:"

COMPONENT = "component of the graph"


@dataclass(frozen=True)
class Coloring:
    """Values of the rows, what they are called, and how they are read."""

    name: str = ""
    values: palette.Rows = None
    kind: str = "auto"


def blocks(source: RowSource) -> Callable[[], Iterator[Array]]:
    """Yield a walk over canonical blocks."""
    spans = bounds(source.shape[0], block_rows(source.width, 8))
    return lambda: (np.asarray(source.read(start, stop)) for start, stop in spans)


def coloring_of(summary: RunSummary, color: str | None, n: int, scratch: Path, ids: PathLike | None = None) -> Coloring:
    """Return what to colour by: what was asked for, or the first there is of: labels of the job, what its data set
    knows, clusters, components.

    ``color``: path of an array with a number or a label for each row of the input (Zarr or .npy), a table and its
    column, ``column:J`` (column J of the input, from 0), ``"cluster"``, ``"component"``, or ``"none"``. Of rows that a
    step has left out the colours are left out, too. ``ids``: what the rows of an array or a table are called, where
    that is not a column of the name that the ids of the job have.
    """
    if color == "none":
        return Coloring()
    found_by = {"cluster": _clusters, "component": _components}.get(color or "")
    if found_by and not at(str(color)).exists():
        if (own := found_by(summary, n)) is None:
            raise InputError(f"color: {color!r}: this run has no {color}s, and there is no such path")
        return own
    kept = kept_of(summary.run)
    every = n if kept is None else kept.source.shape[0]
    if color is not None:
        of_input = color.startswith(COLUMN)
        found = _column(summary, color, every) if of_input else _given(summary, color, every, scratch, ids)
        return _of_kept(found, kept)
    for known in (_labels, _truth):
        if (given := known(summary, every)) is not None:
            return _of_kept(given, kept)
    return _clusters(summary, n) or _components(summary, n) or Coloring()


def _of_kept(coloring: Coloring, kept: derived.KeptRows | None) -> Coloring:
    """Return the colours of the rows that a step has left of all of them."""
    if kept is None:
        return coloring
    mask_of, every = kept.mask_of, coloring.values

    def walk() -> Iterator[Array]:
        first = 0
        for part in every():
            yield part[mask_of(first, first + len(part))]
            first += len(part)

    return replace(coloring, values=walk)


def _given(summary: RunSummary, color: str, n: int, scratch: Path, ids: PathLike | None) -> Coloring:
    """Return an array with an entry for each row, or a column of a table, joined by the ids of the run."""
    run, called = summary.run, str(summary.job.get("input", {}).get("ids", ""))
    if ids is not None and not run.has(IDS):
        raise InputError(f"ids: {ids}: the rows of this run have no names to join them by ([input] ids of its job)")
    names = rows_of_stage(run, IDS, IDS) if run.has(IDS) else None
    found = column_at(color, scratch, Names(names, called, None if ids is None else ids_of(ids, scratch)))
    if len(found) != 1:
        raise InputError(f"color: {color} holds {len(found)} columns; choose one: {color}:NAME")
    name, values = found[0]
    return _checked(values, at(color).name if at(color).exists() else name, color, n)


def _checked(values: RowSource, name: str, color: str, n: int) -> Coloring:
    """Return values as colours, if there is a real one for each row."""
    if tuple(values.shape) != (n,):
        raise InputError(f"color: {color} has shape {values.shape}; it needs an entry for each of the {n} rows: ({n},)")
    if values.dtype.kind == "c":
        raise InputError(f"color: {color} holds complex numbers; give real numbers, text or booleans")
    return Coloring(name, blocks(values))


def _column(summary: RunSummary, color: str, n: int) -> Coloring:
    text = color.removeprefix(COLUMN)
    place = summary.record.get("plan", {}).get("input")
    if not text.isdigit() or place is None:
        raise InputError(f"color: {color!r}; column:J takes column J of the input of a job, counted from 0")
    rows = formats.open_reader(place)
    j = int(text)
    if j >= rows.shape[1] or rows.shape[0] != n:
        raise InputError(f"color: {color!r}; the input {place} has shape {rows.shape}, and the run has {n} rows")
    spans = bounds(n, block_rows(rows.shape[1], 8))

    def walk() -> Iterator[Array]:
        return (np.asarray(part)[:, j] for start, stop in spans for part in rows_of_reader(rows, start, stop))

    return Coloring(f"column {j} of the input", walk)


def _labels(summary: RunSummary, n: int) -> Coloring | None:
    """Labels that the job was given: classes, or numbers that the map follows as such."""
    given = summary.job.get("input", {}).get("labels")
    path = summary.record.get("beside", {}).get("labels", given) if given else None
    with suppress(BigembedError, OSError, ValueError):
        numeric = summary.job.get("method", {}).get("target_metric") in NUMERIC
        if path:
            found = _checked(rows_at(at(path).absolute()), "labels", path, n)
            return replace(found, kind="numbers" if numeric else "classes")
    return None


def _truth(summary: RunSummary, n: int) -> Coloring | None:
    """Return what is known of the rows of a data set: its labels, or the first of its numbers."""
    given = summary.job.get("input", {})
    if (name := given.get("dataset")) is None:
        return None
    asked = {key: value for key, value in given.items() if key not in ("dataset", "path", *ALIGNED)}
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
    """Return the cluster of each row, where clusters were looked for."""
    return _numbered("cluster", summary.run.path("clusters", "labels"), n) if summary.has("clusters") else None


def _components(summary: RunSummary, n: int) -> Coloring | None:
    """Return the component of each row, where there are several."""
    found: Any = summary.run.results("components") if summary.has("components") else {}
    if found.get("components", 1) <= 1:
        return None
    path = summary.run.path("coordinates", "labels")
    return _numbered(COMPONENT, path, n) if at(path).exists() else None


def _numbered(name: str, path: str, n: int) -> Coloring:
    """Return the numbers that a stage gave the rows."""
    return Coloring(name, blocks(RowSource((n,), np.dtype(np.int32), path=path)), "classes")


# ------------------------------------------------------------------------------------------------------------- map

LARGE, SMALL = 840, 380
"""Pixels of a side: of the first pair, and of the others."""
DRAWN = 4
"""Coordinates whose pairs are drawn."""
BINS = 120
CLOSE = 1e-3
"""Distance to 1 below which an eigenvalue is written as that distance."""


@dataclass(frozen=True)
class Picture:
    """A pair of coordinates: names, limits, points outside the frame, data URLs of the PNGs."""

    names: tuple[str, str]
    short: tuple[str, str]
    x: tuple[str, str]
    y: tuple[str, str]
    outside: int
    light: str
    dark: str


@dataclass(frozen=True)
class Legend:
    """Of numbers: low, high and two gradients. Of classes: colour on light, on dark, name, rows; or how many."""

    name: str
    numbers: tuple[str, str, str, str] | None = None
    classes: tuple[tuple[str, str, str, int], ...] = ()
    repeated: int = 0
    """Classes, where several have each colour."""
    missing: int = 0


@dataclass(frozen=True)
class Map:
    """All that the page draws of the coordinates."""

    count: int
    columns: int
    missing: int
    pictures: tuple[Picture, ...] = ()
    histogram: str = ""
    legend: Legend | None = None
    discs: bool = False
    first: str = ""
    """Why another pair than the first two coordinates is drawn first, where that is so."""


def draw_map(summary: RunSummary, color: str | None, side: int = 0, ids: PathLike | None = None) -> Map | None:
    """Two passes over the coordinates, and two over the colours; None where there are no coordinates.

    First comes the pair that the certificate says shows most. ``side``: pixels of a map of that pair alone; 0 for all
    pairs of four coordinates. ``ids``: see :func:`coloring_of`. Raises :class:`InputError` for a ``color`` that does
    not fit the rows. Coordinates that cannot be read become a warning of the page.
    """
    if not summary.has("coordinates"):
        return None
    try:
        source = rows_of_stage(summary.run, *place_of(summary.run))
        columns = drawn_columns(source.width, summary.drawn.get("pair"), 2 if side else DRAWN)
        limits = palette.limits_of(blocks(source), columns)
    except (BigembedError, OSError) as error:
        summary.warn("damaged", f"The coordinates cannot be read: {error}. bigembed verify says what is damaged")
        return None
    if limits.missing:
        summary.warn(
            "missing",
            f"{limits.missing:,} of {limits.count:,} rows have NaN or infinite coordinates; they "
            "are not on the map. bigembed verify says whether the stored values are those that were published",
        )
    names = _names(summary, source.width)
    with temporary("report") as scratch:  # (for a column of a table)
        coloring = coloring_of(summary, color, source.shape[0], scratch, ids)
        found = _drawn(source, columns, limits, coloring, names, side)
    return replace(found, first=why_first(summary.drawn))


def draw_coordinates(source: RowSource) -> Map:
    """Return the map of coordinates of which nothing else is known: two passes over them."""
    columns = drawn_columns(source.width, None, DRAWN)
    limits = palette.limits_of(blocks(source), columns)
    names = [f"coordinate {number + 1}" for number in range(source.width)]
    return _drawn(source, columns, limits, Coloring(), names)


def drawn_columns(m: int, pair: Sequence[int] | None, most: int) -> list[int]:
    """Return the coordinates that are drawn, at ``most`` so many: the pair that comes first, then the others.

    >>> drawn_columns(6, (0, 3), 4), drawn_columns(3, None, 4)
    ([0, 3, 1, 2], [0, 1, 2])
    """
    first = list(pair or ())
    return [*first, *(l for l in range(m) if l not in first)][:most]


def why_first(drawn: Mapping[str, Any]) -> str:
    """Return a sentence on the pair that is drawn first, where it is not the first two coordinates.

    >>> why_first({"pair": [0, 3], "why": "coordinates 2, 3 are made of earlier ones (harmonics)"})
    'Drawn first are coordinates 1 and 4, which show most: coordinates 2, 3 are made of earlier ones (harmonics).'
    """
    if not drawn:
        return ""
    x, y = drawn["pair"]
    return f"Drawn first are coordinates {x + 1} and {y + 1}, which show most: {drawn['why']}."


def _drawn(
    source: RowSource,
    columns: Sequence[int],
    limits: palette.Limits,
    coloring: Coloring,
    names: Sequence[str],
    side: int = 0,
) -> Map:
    n, m, rows, paint = source.shape[0], source.width, blocks(source), palette.paint_of(coloring.values, coloring.kind)
    legend = _legend(coloring, paint)
    if m == 1:
        return Map(n, m, limits.missing, histogram=_histogram(rows, limits, coloring, paint), legend=legend)
    pairs = combinations(range(len(columns)), 2)
    views = [View(x, y, side or (LARGE if (x, y) == (0, 1) else SMALL)) for x, y in pairs]
    grids = count_points(rows, columns, limits, views, coloring.values, paint)
    pictures = tuple(_picture(grid, paint, limits, columns, names) for grid in grids)
    return Map(n, m, limits.missing, pictures, legend=legend, discs=bool(grids[0].radius))


def _names(summary: RunSummary, m: int) -> list[str]:
    """Return the names of the coordinates, with their eigenvalue or share of variance where there is one."""
    names = [f"coordinate {number + 1}" for number in range(m)]
    share, values = summary.fitted("explained_variance_ratio_"), summary.fitted("eigenvalues_")
    if share is not None and share.ndim == 1 and len(share) >= m:
        return [f"{name} · {100 * part:.3g} %" for name, part in zip(names, share, strict=False)]
    if values is not None and values.ndim == 1 and len(values) >= m:
        return [f"{name} · λ = {near_one(float(value))}" for name, value in zip(names, values, strict=False)]
    return names


def near_one(value: float) -> str:
    """Return an eigenvalue as text; near 1 as its distance to 1, which says more than its digits.

    >>> near_one(0.5), near_one(0.9999995)
    ('0.5', '1 − 5·10⁻⁷')
    """
    left = 1.0 - value
    return f"1 − {number(float(f'{left:.3g}'))}" if 0 < left < CLOSE else number(value)


def _picture(
    grid: Grid, paint: palette.Paint, limits: palette.Limits, columns: Sequence[int], names: Sequence[str]
) -> Picture:
    low, high = limits.padded()
    view = grid.view
    pictures = (base64.b64encode(png(grid, paint, scheme)).decode("ascii") for scheme in palette.SCHEMES)
    light, dark = (f"data:image/png;base64,{picture}" for picture in pictures)
    x, y = (ends(float(low[axis]), float(high[axis])) for axis in (view.x, view.y))
    across, upwards = columns[view.x], columns[view.y]
    short = f"coordinate {across + 1}", f"coordinate {upwards + 1}"
    return Picture((names[across], names[upwards]), short, x, y, grid.outside, light, dark)


def _legend(coloring: Coloring, paint: palette.Paint) -> Legend | None:
    if paint.kind == "numbers":
        reach = ends(paint.low, paint.high)
        return Legend(
            coloring.name,
            (*reach, palette.gradient(palette.LIGHT), palette.gradient(palette.DARK)),
            missing=paint.missing,
        )
    if paint.kind == "classes":
        repeated = len(paint.classes) if paint.repeats else 0
        called = {str(ISLAND): "islands"} if coloring.name == COMPONENT else {}
        colors = [
            (palette.lifted(c, palette.LIGHT), palette.lifted(c, palette.DARK), called.get(name, name), rows)
            for c, name, rows in paint.legend()
        ]
        return Legend(coloring.name, classes=tuple(colors), repeated=repeated, missing=paint.missing)
    return None


def _histogram(rows: palette.Rows, limits: palette.Limits, coloring: Coloring, paint: palette.Paint) -> str:
    """Return how the rows lie along the only coordinate; of at most six classes, a line each."""
    low, high = (float(end[0]) for end in limits.padded())
    edges = np.linspace(low, high, BINS + 1)
    several = paint.kind == "classes" and 1 < len(paint.classes) <= 6
    counts = np.zeros((len(paint.classes) if several else 1, BINS))
    stream = palette.Aligned(coloring.values) if several else None
    for _, block in palette.numbered(rows):
        part = block[:, 0].astype(np.float64)
        finite = np.isfinite(part)
        if stream is None:
            counts[0] += np.histogram(part[finite], edges)[0]
            continue
        given = stream.take(len(part)).astype(paint.classes.dtype)
        for order, one in enumerate(paint.classes):
            counts[order] += np.histogram(part[finite & (given == one)], edges)[0]
    middle = (edges[1:] + edges[:-1]) / 2
    names = [str(one) for one in paint.classes.tolist()] if several else ["rows"]
    series = [
        Series(name, middle, count, "line" if several else "bars") for name, count in zip(names, counts, strict=True)
    ]
    return chart(
        "histogram", "Rows along the only coordinate", f"Counts in {BINS} bins from {low:.4g} to {high:.4g}.", series,
        x_label="coordinate 1", y_label="rows", zero=True,
    )  # fmt: skip
