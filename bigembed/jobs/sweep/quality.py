"""How well the map of a point shows all rows, where its method has measured that of some of them only."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from bigembed.errors import InputError
from bigembed.estimator.judged import NAME as JUDGED
from bigembed.estimator.through import of_mapped
from bigembed.quality.neighborhoods import NEIGHBORS, cost_of, preserved
from bigembed.stages import Context, Stage
from bigembed.store.rows.opening import open_zarr
from bigembed.store.rows.source import RowSource

NAME, SAMPLES = "quality", 400


def quality_stages(stages: Sequence[Stage], estimator: Any, source: RowSource) -> list[Stage]:
    """A stage more, or none: where the figures of the method are of sampled rows among each other, those against all
    rows, so that points can be compared.

    Cost: that of :func:`bigembed.quality.neighborhoods.preserved`.
    """
    n, metric = int(source.shape[0]), getattr(estimator, "metric", "euclidean")
    if all(stage.name != JUDGED or stage.parameters.get("rows", n) == n for stage in stages):
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
