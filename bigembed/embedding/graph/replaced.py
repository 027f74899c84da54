"""Rows that take the coordinates of another row: those outside the components that are embedded, and repeated ones.

Which of many equal rows are neighbors is decided by their numbers, so that their eigenvector entries differ a little.
They are one point: all have the coordinates of the first.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from bigembed.blocks.owners import owner_of
from bigembed.blocks.rows import Array, map_blocks
from bigembed.neighbors.components.nearest_embedded import embedded_block, nearest_embedded
from bigembed.neighbors.ordering.order import Ordered
from bigembed.neighbors.search.by_metric import ByMetric
from bigembed.stages import Context
from bigembed.store.arrays.io import read_array, write_array
from bigembed.store.blockwise.exchange import Exchange
from bigembed.store.blockwise.matrix import StoredMatrix

NAMED = 5
"""Rows that a warning names."""


def find_replaced(
    context: Context, order: str, parts: int = 1, graph: StoredMatrix | None = None, by: ByMetric | None = None
) -> list[tuple[int, int]]:
    """Find the rows that take the coordinates of another one: how many of each block are outside, and repeated."""
    ordered, labels = Ordered.open(order), context.of("components", "labels")
    blocks = [(b,) for b in range(len(ordered.blocks))]
    fixed: dict[str, Any] = {"ordered": ordered, "labels": labels, "parts": parts}
    outside = parts < context.results("components")["components"]
    embedded = np.concatenate(map_blocks(embedded_block, blocks, **fixed)) if outside else None
    return map_blocks(fill_block, blocks, exchange=context.exchange, graph=graph, by=by, embedded=embedded, **fixed)


def first_replaced(filled: list[tuple[int, int]], ordered: Ordered, exchange: Exchange) -> list[int]:
    """Numbers in the input of the first :data:`NAMED` rows that were placed by their nearest row."""
    ids = [ordered.ids(b)[exchange.piece("nearest", b, "rows")[:count]] for b, (count, _) in enumerate(filled) if count]
    return np.sort(np.concatenate(ids))[:NAMED].tolist()  # type: ignore[no-any-return]


def fill_block(
    b: int,
    *,
    ordered: Ordered,
    labels: str,
    exchange: Exchange,
    parts: int,
    graph: StoredMatrix | None,
    by: ByMetric | None,
    embedded: Array | None,
) -> tuple[int, int]:
    """Leave the rows of block b that take the coordinates of another one, and the internal ids of these; how many.

    Rows outside the first ``parts`` components take those of their nearest row in these; then, with the ``graph``,
    rows that repeat another one those of the first such row.
    """
    label = read_array(f"{labels}/{b}")
    outside = np.flatnonzero(label >= parts)
    nearest = np.zeros(0, np.int64)
    if len(outside):
        offsets, _ = ordered.cells(b)
        cell = owner_of(offsets, outside)
        rows = ordered.located(b)[outside]
        nearest = nearest_embedded(ordered, labels, rows, np.full(len(cell), b), cell, parts, by, embedded)
    repeated, firsts = repeated_block(b, graph, ordered.starts) if graph else (outside[:0], nearest[:0])
    inside = label[repeated] < parts
    repeated, firsts = repeated[inside], firsts[inside]
    pieces = {"rows": np.concatenate([outside, repeated]), "ids": np.concatenate([nearest, firsts])}
    exchange.put("nearest", b, pieces)
    return len(outside), len(repeated)


def repeated_matrix(context: Context) -> StoredMatrix | None:
    """The squared distances between neighbors, if any are 0; else None."""
    return context.home.matrix("graph") if context.results("graph")["zero_edges"] else None


def repeated_block(b: int, graph: StoredMatrix, starts: Sequence[int]) -> tuple[Array, Array]:
    """Rows of block b that an edge of length 0 joins to a row of lower internal id, and the lowest such id.

    Ties among neighbors go to the lower id, so that of rows that are equal each is joined to the first, however many
    they are: the row that a new row that equals them is taken for, too.
    """
    block = graph.block(b)
    own = np.arange(starts[b], starts[b + 1])
    zeros = np.flatnonzero(block.data == 0)
    column = block.ids(b, starts)[block.indices[zeros]]
    first = np.searchsorted(zeros, block.indptr[:-1])  # the diagonal is one of them, in every row
    lowest = np.minimum.reduceat(column, first)
    repeated = np.flatnonzero(lowest < own)
    return repeated, lowest[repeated]


def keep_block(b: int, *, exchange: Exchange, out: str) -> None:
    """Keep which rows of block b were placed (``outside``), and by which ones (``nearest``, internal ids)."""
    for name, key in (("outside", "rows"), ("nearest", "ids")):
        write_array(f"{out}{name}/{b}", exchange.piece("nearest", b, key))
