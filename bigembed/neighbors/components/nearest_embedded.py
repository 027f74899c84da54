"""The nearest row of the components that are embedded, for rows outside them."""

from __future__ import annotations

from typing import Any

import numpy as np

from bigembed.blocks.rows import Array
from bigembed.neighbors.exact import empty_lists, update_lists
from bigembed.neighbors.ordering.order import Ordered
from bigembed.neighbors.ordering.sketch import compared_of
from bigembed.neighbors.search.by_metric import ByMetric
from bigembed.neighbors.search.cell_spans import StoredCells
from bigembed.neighbors.search.ground_truth import EXACT_ROWS
from bigembed.neighbors.search.local import Cells, search_cells
from bigembed.neighbors.search.probes import Probing, group_probes, nearest_centers
from bigembed.store.arrays.io import read_array

_NEAREST_CELLS = 16
_TILE = 256


def nearest_embedded(
    ordered: Ordered,
    labels: str,
    given: Any,
    block: Array,
    cell: Array,
    parts: int = 1,
    by: ByMetric | None = None,
    embedded: Array | None = None,
) -> Array:
    """Internal id of the nearest row of the first ``parts`` components, for rows (n, d) in cells ``cell`` of ``block``.

    Searched exactly in the 16 cells nearest to their own (by center) that hold such rows;
    among equally near ones the lowest id. ``embedded``: which cells hold some (:func:`embedded_block` of all blocks),
    where many ask; else the labels of all rows are read.
    """
    cells, rows = StoredCells(ordered), compared_of(given)
    if embedded is None:
        blocks = range(len(ordered.blocks))
        embedded = np.concatenate([embedded_block(b, ordered=ordered, labels=labels, parts=parts) for b in blocks])
    open_cells = np.flatnonzero(embedded)
    home, of_home = np.unique(cells.block_starts[block] + cell, return_inverse=True)
    probes = _nearest_open(cells.centers, home, open_cells)[of_home]
    probing, nobody = group_probes(probes.astype(np.int32)), np.full(len(cell), -1, np.int64)
    ids, squared = empty_lists(len(nobody), 1, given.dtype)
    few = ordered.starts[-1] <= EXACT_ROWS  # compiled only for large n
    search = by.search_cells if by else _search_few if few else search_cells
    for span in cells.spans(probing.cells):
        search(ids, squared, rows, nobody, probing, _only(span.cells, span.read(labels) < parts))
    return ids[:, 0]


def embedded_block(b: int, *, ordered: Ordered, labels: str, parts: int) -> Array:
    """Which cells of block b hold rows of the first ``parts`` components."""
    before = np.concatenate([[0], np.cumsum(read_array(f"{labels}/{b}") < parts)])
    return np.diff(before[ordered.cells(b)[0]]) > 0


def _nearest_open(centers: Array, home: Array, open_cells: Array) -> Array:
    """The open cells (m, 16) whose centers are nearest to those of the cells ``home`` (m,), ties by number."""
    if len(open_cells) <= _NEAREST_CELLS:
        return np.broadcast_to(open_cells, (len(home), len(open_cells)))
    candidates = centers[open_cells]
    parts = [
        nearest_centers(centers[home[start : start + _TILE]], candidates, _NEAREST_CELLS)
        for start in range(0, len(home), _TILE)
    ]
    return np.asarray(open_cells[np.concatenate(parts)])


def _only(cells: Cells, kept: Array) -> Cells:
    """The cells with some of their rows."""
    offsets = np.concatenate([[0], np.cumsum(kept)])[cells.offsets]
    return Cells(cells.numbers, offsets, cells.rows[kept], cells.ids[kept], cells.centers)


def _search_few(ids: Array, squared: Array, rows: Array, row_ids: Array, probing: Probing, piece: Cells) -> None:
    """:func:`~bigembed.neighbors.search.local.search_cells` without compiled code."""
    for c, number in enumerate(piece.numbers.tolist()):
        asking, part = probing.of(number), slice(int(piece.offsets[c]), int(piece.offsets[c + 1]))
        lists = ids[asking], squared[asking]
        if len(asking):
            update_lists(*lists, rows[asking], row_ids[asking], piece.rows[part], piece.ids[part])
            ids[asking], squared[asking] = lists
