"""New rows beside those of a graph: made ready as they were, and brought to the blocks that they belong to."""

from __future__ import annotations

from typing import Any, Protocol

import numpy as np
from scipy.sparse import csr_array

from bigembed.blocks.rows import Array, is_sparse
from bigembed.errors import InputTypeError
from bigembed.neighbors.given.graph import GIVEN
from bigembed.neighbors.given.query import GivenIndex
from bigembed.neighbors.ordering.order import Ordered
from bigembed.neighbors.ordering.survey import SCALED, Shape, prepare, refuse_inadmissible, shape_in
from bigembed.neighbors.query import locate_blocks
from bigembed.neighbors.radius_query import AnyIndex
from bigembed.runs import Run
from bigembed.store.rows.offenders import LEAST_32, MOST_32, refuse_block, refuse_size
from bigembed.store.rows.row_blocks import RowBlock


class Located(Protocol):
    """A model whose new rows are located among the fitted ones, which were rows."""

    @property
    def index(self) -> AnyIndex:
        """Where the fitted rows are."""

    @property
    def shape(self) -> Shape:
        """What the fitted rows were like."""


def block_of_rows(rows: Array, model: Located, start: int) -> Array:
    """The block of the fitted rows that each new row belongs to, as they were ordered; ``start`` numbers the first."""
    refuse_block(RowBlock(0, start, rows))
    assert not isinstance(model.index, GivenIndex)
    return locate_blocks(ready_rows(rows, model.shape), Ordered.open(model.index.order), model.index.centers)


def fitted_shape(run: Run, metric: Any = None) -> Shape:
    """What the fitted rows were like; InputTypeError where a user's weights were fitted, which have no rows."""
    survey = run.results("survey") if run.has("survey") else {"metric": GIVEN}
    if survey["metric"] == GIVEN and not survey.get("all_pairs") and not run.has("survey"):
        raise InputTypeError(
            "transform needs the rows that were fitted; this map was fitted to a user's weights, which "
            "have no place for new rows. Fit the rows, or distances, or their lengths along the edges of a graph"
        )
    if survey["metric"] == GIVEN and not survey.get("all_pairs") and "reach" not in run.results("graph"):
        raise InputTypeError(
            "transform of this map of a user's graph of distances needs to know how far its rows list others, which "
            "earlier versions did not keep. Fit it again"
        )
    return shape_in(survey, metric)


def ready_rows(rows: Any, shape: Shape) -> Any:
    """New rows as the fitted ones were made ready for the search, sparse ones with their sketches; given distances."""
    if shape.metric == GIVEN:
        return rows
    if is_sparse(rows) != shape.sparse:
        rows = rows.toarray() if is_sparse(rows) else csr_array(rows)
    values = rows.data if is_sparse(rows) else rows
    if shape.metric not in SCALED and shape.dtype == "float32" and (size := _size(values)) > MOST_32:
        refuse_size(size, MOST_32, LEAST_32)
    refuse_inadmissible(rows, shape)
    return prepare(rows, shape)


def _size(values: Array) -> float:
    return float(np.abs(values).max(initial=0))
