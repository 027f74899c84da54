"""New rows on a map by sampled edges and rows: each moves among the fitted rows, which stay."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from bigembed.blocks.rows import Array
from bigembed.embedding.placing import Placing, held_array, places_of
from bigembed.embedding.sampling.options import SamplingOptions
from bigembed.neighbors.joined import Joined
from bigembed.runs import Run
from bigembed.store.arrays.io import read_by_id

SHARE = 3
"""Epochs of the fit for one epoch of a new row."""
RATE = 0.25
"""Of the learning rate, where its epochs begin."""


@dataclass(frozen=True)
class SampledPlacing(Placing):
    """The pool of the map, and what was asked of it."""

    pool: str
    asked: SamplingOptions
    k: int
    connectivity: float

    def placed(self, joined: Joined) -> Array:
        """Coordinates (rows, m) of new rows from their edges."""
        from bigembed.kernels.sampled_placing import place  # imports numba: only here

        first = self.asked.n_epochs + 1  # (its epochs draw by themselves)
        keys = [self.asked.key(first + epoch) for epoch in range(max(1, self.asked.n_epochs // SHARE))]
        return place(
            joined.indptr,
            joined.squared.astype(np.float64, copy=False),
            read_by_id(self.points, self.starts, joined.ids),
            self.n_neighbors,
            self.k,
            self.connectivity,
            held_array(self.pool, self.version),
            np.array(keys),
            self.asked.at(0, 1.0),
            RATE * self.asked.learning_rate,
        )


def model_of(run: Run, asked: SamplingOptions, connectivity: float, metric: Any = None) -> SampledPlacing:
    """The model of a fitted run; ``metric``: what the caller gave, by which a function is known."""
    places, kernel = places_of(run, metric), run.results("kernel")
    width = run.results("coordinates")["n_components"]
    pool = run.path("coordinates", "pool")
    return SampledPlacing(*places, width, pool, asked, kernel["n_neighbors"], connectivity)
