"""Coordinates of a row by its distances to rows whose coordinates are known: Gower's formula.

With B = −½ H Δ H = V Λ Vᵀ of the squared distances Δ between the known rows, and μ the mean column of Δ, a row with
squared distances δ to them lies at y = −½ Λ^{-1/2} Vᵀ (δ − μ) (Gower 1968, eq. 10; for landmarks de Silva & Tenenbaum
2004, §2). Known rows come out where they are. An affine map of δ, so coordinates may be turned and moved with it.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from bigembed.blocks.distances import Metric, refuse_distances
from bigembed.blocks.rows import Array
from bigembed.embedding.affine import AffineMap
from bigembed.store.arrays.io import read_array


@dataclass(frozen=True)
class ByDistance:
    """Where a task finds the map, and the rows that distances are taken to."""

    metric: Metric | None
    """None: the rows given are the distances."""
    known: str
    map: AffineMap
    squared: bool = False
    """Whether what is given, or what the metric returns, are squared distances."""
    columns: str = ""
    """Where the numbers of the columns are that are taken of rows of distances; empty: all."""


def coordinates_by_distance(rows: Array, model: ByDistance, first: int = 0) -> Array:
    """Coordinates (n, m) of rows, or of rows of distances; each the same whatever rows stand beside it.

    Raises InputError where a distance is NaN, infinite or negative, naming the row (``first`` is the number of the
    first one) and the known row.
    """
    found = model.map.read()
    out = np.empty((len(rows), found.matrix.shape[1]))
    if model.columns:
        rows = rows[:, read_array(model.columns)]
    parts = [(0, rows)] if model.metric is None else model.metric.tiles(rows, read_array(model.known))
    for start, distances in parts:
        refuse_distances(distances, model.metric, first + start)
        squares = np.asarray(distances, np.float64) if model.squared else np.square(distances, dtype=np.float64)
        out[start : start + len(distances)] = found(squares)
    return out
