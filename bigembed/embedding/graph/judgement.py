"""The stage that measures how well a map on a graph, or of rows, keeps the neighborhoods of the rows."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np

from bigembed.embedding.graph.ordered_rows import InOrder, compared_rows, comparison
from bigembed.errors import InputError
from bigembed.neighbors.by_metric import ByMetric
from bigembed.neighbors.order import Ordered
from bigembed.neighbors.survey import Shape
from bigembed.quality.neighborhoods import cost_of, preserved
from bigembed.stages import Context, Stage
from bigembed.store.source import RowSource

SAMPLES = 400
"""Rows that are compared with all rows."""
NEIGHBORS = 15


def judgement_stage(
    source: RowSource, shape: Shape, m: int, seed: int, *, ordered: bool, by: ByMetric | None = None
) -> Stage:
    """How well the coordinates keep the neighborhoods of the rows; ``ordered``: rows are read as a graph has them."""
    n = shape.n
    rows, coordinates = RowSource((n, shape.d), np.dtype(shape.dtype)), RowSource((n, m), np.dtype(np.float64))

    def run(context: Context) -> dict[str, Any]:
        if n <= 2 * NEIGHBORS:
            return {}
        there, shown = source, replace(coordinates, path=context.of("coordinates", "embedding"))
        if ordered:
            lies = Ordered.open(context.of("order"))
            there = compared_rows(lies, shape.d)
            shown = InOrder((n, m), shown.dtype, path=shown.path, ordered=lies)
        exchange = context.exchange
        try:
            asked: dict[str, Any] = {"n_neighbors": NEIGHBORS, "samples": SAMPLES, "seed": seed, **comparison(by)}
            return {"map": preserved(there, shown, exchange, **asked)}
        except InputError as error:  # distances beyond float64
            return {"map": {"unmeasured": str(error)}}

    inputs = ("order", "coordinates") if ordered else ("coordinates",)
    cost = cost_of(rows, coordinates, n_neighbors=NEIGHBORS, samples=SAMPLES, terms=by.every if by else 0.0)
    parameters = {"seed": seed, "samples": SAMPLES, "source": "" if ordered else source.fingerprint()}
    return Stage("judgement", inputs, parameters, run, cost)
