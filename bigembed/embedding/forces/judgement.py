"""The stage that measures how well a map by attraction and repulsion shows the rows."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np

from bigembed.embedding.graph.ordered_rows import BlockRows, OrderedRows
from bigembed.embedding.graph.shape import GraphShape
from bigembed.errors import InputError
from bigembed.neighbors.order import Ordered
from bigembed.quality.neighborhoods import cost_of, preserved
from bigembed.stages import Context, Stage

SAMPLES = 400
"""Rows that are compared with all rows."""
NEIGHBORS = 15


def map_judgement_stage(graph: GraphShape, m: int, seed: int) -> Stage:
    """Neighbors kept, trustworthiness, continuity and triplets, in the order of the graph."""
    n, d, double = graph.n, graph.width, np.dtype(np.float64)

    def run(context: Context) -> dict[str, Any]:
        if n <= 2 * NEIGHBORS:
            return {}
        ordered = Ordered.open(context.of("order"))
        rows = OrderedRows((n, d), ordered.rows(0, 0, 1).dtype, ordered=ordered)
        points = BlockRows((n, m), double, path=context.of("coordinates", "points"), starts=ordered.starts)
        try:
            found = preserved(rows, points, context.exchange, n_neighbors=NEIGHBORS, samples=SAMPLES, seed=seed)
        except InputError as error:  # distances beyond float64
            found = {"unmeasured": str(error)}
        return {"map": found}

    shown = OrderedRows((n, d), double), BlockRows((n, m), double)
    cost = replace(cost_of(*shown, n_neighbors=NEIGHBORS, samples=SAMPLES))
    return Stage("judgement", ("order", "coordinates"), {"seed": seed, "samples": SAMPLES}, run, cost)
