"""New rows on a map that stays as it is: each by itself, whatever the others, from its edges to the fitted rows."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from functools import lru_cache, partial
from typing import Any

import numpy as np

from bigembed.blocks.rows import Array
from bigembed.embedding.extension import Extension, Grouping
from bigembed.embedding.graph.new_rows import block_of_rows, fitted_shape, ready_rows
from bigembed.neighbors.given.query import GivenIndex
from bigembed.neighbors.joined import Joined
from bigembed.neighbors.ordering.order import Ordered
from bigembed.neighbors.ordering.survey import Shape
from bigembed.neighbors.query import MAX_PAIRS
from bigembed.neighbors.radius_query import AnyIndex, any_index_of, join_parts, joining_memory
from bigembed.runs import Run
from bigembed.store.arrays.io import read_array


@dataclass(frozen=True)
class Placing(ABC):
    """What a task needs to place rows: paths into the run or the saved model, and small numbers."""

    index: AnyIndex
    shape: Shape
    starts: tuple[int, ...]
    points: str
    version: str
    """Of what lies at the paths."""
    width: int
    """Coordinates of a row."""

    @property
    def n_neighbors(self) -> int:
        """Neighbors of a row in the graph, which is not one of a radius."""
        return self.index.n_neighbors  # type: ignore[union-attr]

    @abstractmethod
    def placed(self, joined: Joined) -> Array:
        """Coordinates (rows, m) of new rows from their edges."""


def places_of(run: Run, metric: Any = None) -> tuple[AnyIndex, Shape, tuple[int, ...], str, str]:
    """What every :class:`Placing` of a fitted run begins with."""
    shape = fitted_shape(run, metric)
    return (
        any_index_of(run, shape),
        shape,
        Ordered.open(run.path("order")).starts,
        run.path("coordinates", "points"),
        run.digest("coordinates"),
    )


@lru_cache(maxsize=1)
def held_array(path: str, version: str) -> Array:
    """A whole array of a model, once for all blocks of rows that a process places."""
    return read_array(path)


def extension_of(model: Placing) -> Extension:
    """How new rows are brought to the blocks of fitted rows that they belong to (sparse ones are not), and placed."""
    blocks = len(Ordered.open(model.index.order).blocks)
    most = MAX_PAIRS // (2 * model.n_neighbors)
    together = Grouping(block_of_rows, blocks, model.shape.row_bytes, most, partial(placing_memory, model))
    apart = model.shape.sparse or isinstance(model.index, GivenIndex)
    grouping, d = None if apart else together, model.shape.d
    return Extension(place_rows, model, model.width, d, grouping=grouping, cheap=False, sparse=True)


def placing_memory(model: Placing, rows: int) -> int:
    """Bytes that :func:`place_rows` holds at most for that number of rows, without the rows themselves."""
    edges = rows * 2 * model.n_neighbors
    return joining_memory(model.index, model.shape, rows) + edges * (16 + 8 * model.width) + (64 << 20)


def place_rows(rows: Any, model: Placing) -> Array:
    """Coordinates of finite new rows (n, m)."""
    rows = ready_rows(rows, model.shape)
    coordinates = np.empty((rows.shape[0], model.width))
    for members, joined in join_parts(rows, model.index):
        coordinates[members] = model.placed(joined)
    return coordinates
