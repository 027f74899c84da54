"""New rows on a map by attraction and repulsion: where the forces of all fitted rows on each of them vanish."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from bigembed.blocks.rows import Array
from bigembed.embedding.placing import Placing, held_array, places_of
from bigembed.neighbors.joined import Joined
from bigembed.runs import Run
from bigembed.store.arrays.io import read_by_id


@dataclass(frozen=True)
class PlacingModel(Placing):
    """The field of the map, and what it is read with."""

    field: str
    spacing: float
    low: tuple[int, ...]
    box: tuple[tuple[float, ...], tuple[float, ...]]
    total: float
    """Z of the map."""
    perplexity: float
    dof: float

    def placed(self, joined: Joined) -> Array:
        """Coordinates (rows, m) of new rows from their edges."""
        from bigembed.kernels.placing import place  # imports numba: only here

        return place(
            joined.indptr,
            joined.squared.astype(np.float64, copy=False),
            read_by_id(self.points, self.starts, joined.ids),
            self.n_neighbors,
            self.perplexity,
            1.0 / self.dof,
            self.spacing,
            np.array(self.low),
            held_array(self.field, self.version),
            self.shape.n / self.total,
            np.array(self.box),
            (0,) * self.width,
        )


def model_of(run: Run, dof: float, metric: Any = None) -> PlacingModel:
    """The model of a fitted run; ``metric``: what the caller gave, by which a function is known."""
    places, found = places_of(run, metric), run.results("coordinates")
    return PlacingModel(
        *places,
        found["n_components"],
        run.path("coordinates", "field"),
        found["spacing"],
        tuple(found["low"]),
        (tuple(found["box"][0]), tuple(found["box"][1])),
        found["total"],
        run.parameters("kernel")["perplexity"],
        dof,
    )
