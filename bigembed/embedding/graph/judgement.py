"""The stage that measures how well a map on a graph, or of rows, keeps the neighborhoods of the rows."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np

from bigembed.embedding.graph.joining import joined_at
from bigembed.embedding.graph.ordered_rows import InOrder, compared_rows, comparison
from bigembed.embedding.graph.own_rows import own_rows
from bigembed.embedding.graph.shape import GraphShape
from bigembed.errors import InputError
from bigembed.neighbors.ordering.order import Ordered
from bigembed.neighbors.ordering.survey import Shape
from bigembed.neighbors.search.by_metric import ByMetric
from bigembed.quality.neighborhoods import cost_of, preserved
from bigembed.quality.spaces import DistancesToSample
from bigembed.stages import Context, Cost, Stage
from bigembed.store.arrays.io import read_array
from bigembed.store.rows.opening import open_zarr
from bigembed.store.rows.source import RowSource

SAMPLES = 400
"""Rows that are compared with all rows."""
NEIGHBORS = 15
AGAIN = 0.2
"""A coordinate of which regression on earlier ones leaves less is called a harmonic: 96 % of its variance is there.

Harmonics of manifolds leave .17 and less. Groups of rows differ from them in what is left among nearby rows
(:func:`~bigembed.quality.harmonics.harmonics`).
"""


def preserved_given(context: Context, n: int, m: int, seed: int) -> dict[str, Any]:
    """Figures of the coordinates against the given distances of sampled rows to all rows."""
    sample, kept = read_array(context.of("survey", "sample")), context.of("survey", "sampled")
    rows = DistancesToSample((n, len(sample)), open_zarr(kept).dtype, path=kept, sample=sample)
    shown = RowSource((n, m), np.dtype(np.float64), path=context.of("coordinates", "embedding"))
    return preserved(rows, shown, context.exchange, n_neighbors=NEIGHBORS, seed=seed)


def given_cost(n: int, m: int) -> Cost:
    """What :func:`preserved_given` takes."""
    double = np.dtype(np.float64)
    rows = DistancesToSample((n, min(n, SAMPLES)), double)
    return cost_of(rows, RowSource((n, m), double), n_neighbors=NEIGHBORS, samples=SAMPLES)


def given_judgement_stage(n: int, m: int, seed: int) -> Stage:
    """How well the coordinates keep the neighborhoods that given distances say."""

    def run(context: Context) -> dict[str, Any]:
        return {"map": preserved_given(context, n, m, seed)} if n > 2 * NEIGHBORS else {}

    return Stage("judgement", ("survey", "coordinates"), {"seed": seed}, run, given_cost(n, m))


def map_judgement_stages(graph: GraphShape, m: int, seed: int, parts: str = "") -> list[Stage]:
    """The stage that measures how well a map of a graph shows the rows; none of a user's graph, which has no rows.

    ``parts``: the stage with the parts of the graph that the map depends on, so that what joins them is worth knowing.
    """
    if graph.sampled:
        return [given_judgement_stage(graph.n, m, seed)]
    if graph.rowless:
        return []
    rows = RowSource((graph.n, graph.width), np.dtype(np.float64))
    shape = Shape(graph.n, graph.width, "float64", "")
    return [judgement_stage(rows, shape, m, seed, ordered=True, by=graph.by, parts=parts)]


def preserved_in_order(
    context: Context, ordered: Ordered, d: int, shown: RowSource, seed: int, by: ByMetric | None
) -> dict[str, Any]:
    """Figures of coordinates in the order of a graph against its rows of d columns, of rows with their own ones."""
    rows, own = own_rows(context, ordered, (compared_rows(ordered, d), shown))
    return preserved_rows(context, rows, own, seed, **comparison(by))


def preserved_rows(context: Context, rows: RowSource, shown: RowSource, seed: int, **compared: Any) -> dict[str, Any]:
    """Figures of the coordinates of rows against these; nothing of too few rows."""
    if rows.shape[0] <= 2 * NEIGHBORS:
        return {}
    asked: dict[str, Any] = {"n_neighbors": NEIGHBORS, "samples": SAMPLES, "seed": seed, **compared}
    try:
        return preserved(rows, shown, context.exchange, **asked)
    except InputError as error:  # distances beyond float64
        return {"unmeasured": str(error)}


def judgement_stage(
    source: RowSource,
    shape: Shape,
    m: int,
    seed: int,
    *,
    ordered: bool,
    by: ByMetric | None = None,
    parts: str = "",
) -> Stage:
    """How well the coordinates keep the neighborhoods of the rows; ``ordered``: rows are read as a graph has them;
    ``parts``: the stage that has found the parts of the graph; with it goes what would join them."""
    n = shape.n
    rows, coordinates = RowSource((n, shape.d), np.dtype(shape.dtype)), RowSource((n, m), np.dtype(np.float64))

    def run(context: Context) -> dict[str, Any]:
        shown: RowSource = replace(coordinates, path=context.of("coordinates", "embedding"))
        if not ordered:
            found = preserved_rows(context, source, shown, seed)
        else:
            lies = Ordered.open(context.of("order"))
            shown = InOrder((n, m), shown.dtype, path=shown.path, ordered=lies)
            found = preserved_in_order(context, lies, shape.d, shown, seed, by)
        joined = joined_at(context, parts, shape.d, by) if parts else {}
        return ({"map": found} if found else {}) | ({"joined": joined} if joined else {})

    inputs = ("order", *((parts,) if parts else ()), "coordinates") if ordered else ("coordinates",)
    cost = cost_of(rows, coordinates, n_neighbors=NEIGHBORS, samples=SAMPLES, terms=by.listed if by else 0.0)
    parameters = {"seed": seed, "samples": SAMPLES, "source": "" if ordered else source.fingerprint()}
    return Stage("judgement", inputs, parameters, run, cost)
