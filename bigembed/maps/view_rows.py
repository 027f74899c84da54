"""New rows of two views, side by side: their edges in each view, and the block of the first that they belong to."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np

from bigembed.maps.graph_rows import ready_rows
from bigembed.neighbors.given.query import AnyIndex, any_index_of, join_parts, joining_memory
from bigembed.neighbors.order import Ordered
from bigembed.neighbors.query import Joined, in_row_order, locate_blocks
from bigembed.neighbors.survey import Shape, shape_in
from bigembed.neighbors.views import SECOND, VIEWS
from bigembed.rows.passes import refuse_block
from bigembed.rows.source import RowBlock
from bigembed.runtime.blocks import Array
from bigembed.stages.runs import PartOfRun, Run
from bigembed.store.arrays import read_by_id


@dataclass(frozen=True)
class View:
    """How new rows of a view find their edges to the fitted ones."""

    index: AnyIndex
    shape: Shape
    ids: str = ""
    """Where the numbers of its rows in the order of the first view lie, by its own blocks; empty of the first."""
    starts: tuple[int, ...] = ()

    @property
    def n_neighbors(self) -> int:
        """Neighbors of a row."""
        return self.index.n_neighbors  # type: ignore[union-attr]

    def edges(self, rows: Array) -> Joined:
        """Return the edges of new rows of this view."""
        return in_row_order(list(join_parts(ready_rows(rows, self.shape), self.index)), np.dtype(np.float64))

    def in_first(self, ids: Array) -> Array:
        """Return the numbers in the order of the first view of fitted rows by their numbers in this one."""
        return read_by_id(self.ids, self.starts, ids) if self.ids else ids

    def memory(self, rows: int) -> int:
        """Return the bytes that :meth:`edges` holds for so many rows."""
        return joining_memory(self.index, self.shape, rows)


def views_of(run: Run, metric: Any = None) -> tuple[View, View]:
    """Return both views of a fitted run; ``metric``: as the caller gave it."""
    part = PartOfRun(run, SECOND)
    shapes = [shape_in(one.results("survey"), metric) for one in (run, part)]
    starts = tuple(Ordered.open(part.path("order")).starts)
    first, second = (any_index_of(one, shape) for one, shape in zip((run, part), shapes, strict=True))
    return View(first, shapes[0]), View(second, shapes[1], run.path(VIEWS, "ids"), starts)


class OfViews(Protocol):
    """A model of two views."""

    @property
    def views(self) -> tuple[View, View]:
        """How new rows find their edges."""


def split_rows(rows: Array, model: OfViews) -> list[Array]:
    """Return the columns of each view."""
    return np.split(rows, [model.views[0].shape.d], axis=1)


def block_of_first(rows: Array, model: OfViews, start: int) -> Array:
    """Return the block of the first view that each new row belongs to; ``start`` numbers the first row."""
    refuse_block(RowBlock(0, start, rows))
    index: Any = model.views[0].index
    given = ready_rows(split_rows(rows, model)[0], model.views[0].shape)
    return locate_blocks(given, Ordered.open(index.order), index.centers)
