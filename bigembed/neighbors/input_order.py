"""Columns of the input, and weights of its rows, in the order of a graph."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Self

import numpy as np

from bigembed.errors import InputError
from bigembed.neighbors.order import Ordered
from bigembed.neighbors.search.rerank import internal_ids_of, places_block
from bigembed.rows.passes import map_row_blocks
from bigembed.rows.source import RowBlock, RowSource
from bigembed.runtime.blocks import Array, is_sparse, map_blocks, owner_of
from bigembed.stages.stage import Context
from bigembed.store.exchange import Exchange
from bigembed.store.parcels import Delivery, by_receiver, merge_parcels, send

# ----------------------------------------------------------------------------------------------------- input order
# Columns of the input brought to the blocks of a graph, panel by panel.


@dataclass(frozen=True)
class InputOrder:
    """Which rows of the input the blocks of the graph hold. Small and picklable."""

    starts: tuple[int, ...]
    ordered: Ordered | None
    """None where the graph has the order of the input."""

    @classmethod
    def of(cls, context: Context, rows: Sequence[int]) -> Self:
        """That of the stage ``order``, where it is among the inputs; else blocks of so many rows follow the input."""
        if context.home.has("order"):
            ordered = Ordered.open(context.of("order"))
            return cls(ordered.starts, ordered)
        return cls(tuple(np.cumsum([0, *rows]).tolist()), None)

    @property
    def blocks(self) -> int:
        """Blocks of the graph."""
        return len(self.starts) - 1

    def ids(self, b: int) -> Array:
        """Rows of the input in one block."""
        return self.ordered.ids(b) if self.ordered else np.arange(self.starts[b], self.starts[b + 1])


def carry(columns: RowSource, order: InputOrder, panels: Sequence[slice], exchange: Exchange) -> list[Delivery]:
    """Leave each panel of the columns, or a vector, with the blocks of the graph: one pass. InputError for NaN and
    infinity."""
    places = None
    if order.ordered is not None:
        blocks = [(b,) for b in range(order.blocks)]
        map_blocks(places_block, blocks, old=order.ordered, rows=columns.block, exchange=exchange)
        places = merge_parcels(exchange, "places", order.blocks)
    found = map_row_blocks(columns, carry_columns, panels=list(panels), order=order, places=places, exchange=exchange)
    if rows := [row for part in found for row in part]:
        raise InputError(
            f"the columns hold NaN or infinity: in {len(rows):,} rows or more, the first are {rows[:10]}. Fill or drop "
            "them first"
        )
    return [merge_parcels(exchange, f"carried{number}", len(found)) for number in range(len(panels))]


def carry_columns(
    span: RowBlock, *, panels: Sequence[slice], order: InputOrder, places: Delivery | None, exchange: Exchange
) -> list[int]:
    """Leave the columns of some rows of the input with the blocks of the graph; rows that are not finite."""
    internal = internal_ids_of(places, span) if places else np.arange(span.start, span.stop)
    owner = owner_of(order.starts, internal)
    rows, receivers = by_receiver(owner, order.blocks)
    at = (internal - np.array(order.starts)[owner])[rows]
    bad = np.zeros(len(internal), bool)
    for number, columns in enumerate(panels):
        part = span.rows[:, columns] if span.rows.ndim == 2 else span.rows[:, None]
        part = (part.toarray() if is_sparse(part) else part).astype(np.float64)
        bad |= ~np.isfinite(part).all(axis=1)
        carried = {"at": (at, receivers), "columns": (part[rows], receivers)}
        send(exchange, f"carried{number}", span.number, carried)
    return (np.flatnonzero(bad) + span.start).tolist()[:1_000]
