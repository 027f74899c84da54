"""How well the map of a point shows the rows, where its method does not measure that itself."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from bigembed.blocks.metrics import NAMES
from bigembed.errors import InputError
from bigembed.estimator.through import of_mapped
from bigembed.quality.neighborhoods import NEIGHBORS, cost_of, preserved
from bigembed.stages import Context, Stage
from bigembed.store.inputs.graph_source import GraphSource
from bigembed.store.rows.opening import open_zarr
from bigembed.store.rows.source import RowSource

NAME, SAMPLES = "quality", 400
JUDGED = "judgement"
"""The stage of a method that measures it."""


def quality_stages(stages: Sequence[Stage], estimator: Any, source: RowSource) -> list[Stage]:
    """A stage more, or none: for rows with a metric that has a name, and coordinates that nothing judged.

    Cost: that of :func:`bigembed.quality.neighborhoods.preserved`.
    """
    names = [stage.name for stage in stages]
    metric = getattr(estimator, "metric", "euclidean")
    known = isinstance(metric, str) and metric in NAMES
    n, of_rows = int(source.shape[0]), not (source.sparse or isinstance(source, GraphSource))
    if JUDGED in names or "coordinates" not in names or not (of_rows and known) or n <= 2 * NEIGHBORS:
        return []
    asked: dict[str, Any] = {"n_neighbors": NEIGHBORS, "samples": SAMPLES, "seed": 0}

    def run(context: Context) -> dict[str, Any]:
        array = open_zarr(path := context.of("coordinates", "embedding"))
        coordinates = RowSource(tuple(map(int, array.shape)), np.dtype(array.dtype), path=path)
        try:
            return preserved(source, coordinates, context.exchange, metric=metric, **asked)
        except InputError as error:  # (distances beyond float64)
            return {"unmeasured": str(error)}

    width = getattr(estimator, "n_components", None) or source.width
    shown = RowSource((n, int(width)), np.dtype(np.float64))
    cost = cost_of(source, shown, n_neighbors=NEIGHBORS, samples=SAMPLES)
    return [of_mapped(Stage(NAME, ("coordinates",), {"metric": metric, **asked}, run, cost), source)]
