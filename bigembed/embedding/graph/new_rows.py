"""New rows beside those of a graph: made ready as they were, and brought to the blocks that they belong to."""

from __future__ import annotations

from typing import Protocol

import numpy as np

from bigembed.blocks.rows import Array
from bigembed.errors import InputError
from bigembed.neighbors.order import Ordered
from bigembed.neighbors.query import locate_blocks
from bigembed.neighbors.radius_query import AnyIndex
from bigembed.neighbors.survey import Shape, prepare
from bigembed.store.offenders import LEAST_32, MOST_32, refuse_block, refuse_size
from bigembed.store.row_blocks import RowBlock


class Located(Protocol):
    """A model whose new rows are located among the fitted ones."""

    @property
    def index(self) -> AnyIndex:
        """Where the fitted rows are."""

    @property
    def shape(self) -> Shape:
        """What the fitted rows were like."""


def block_of_rows(rows: Array, model: Located, start: int) -> Array:
    """The block of the fitted rows that each new row belongs to, as they were ordered; ``start`` numbers the first."""
    refuse_block(RowBlock(0, start, rows))
    return locate_blocks(ready_rows(rows, model.shape), Ordered.open(model.index.order), model.index.centers)


def ready_rows(rows: Array, shape: Shape) -> Array:
    """New rows as the fitted ones were made ready for the search."""
    if shape.metric != "cosine" and shape.dtype == "float32" and (size := float(np.abs(rows).max(initial=0))) > MOST_32:
        refuse_size(size, MOST_32, LEAST_32)
    rows = prepare(rows, shape)
    if shape.metric == "cosine" and (~rows.any(axis=1)).any():
        raise InputError("metric='cosine' is not defined for rows of zeros")
    return rows
