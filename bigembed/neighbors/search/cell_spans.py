"""Cells of the ordered rows, read in spans, block by block: what a query and the filling of components sweep over."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from bigembed.blocks.rows import Array
from bigembed.neighbors.ordering.order import CellIndex
from bigembed.neighbors.search.local import Cells
from bigembed.store.arrays.io import read_array

GAP_BYTES = 1 << 20
"""Cells nobody asked for are read too where they lie between others and are fewer bytes than this."""


@dataclass(frozen=True)
class CellSpan:
    """Consecutive cells of one block."""

    block: int
    start: int
    """First row of the span, counted inside its block."""
    stop: int
    cells: Cells

    def read(self, path: str) -> Array:
        """The span's rows of a per-row array that is stored by block under ``path/b``."""
        return read_array(f"{path}/{self.block}", self.start, self.stop)


class StoredCells(CellIndex):
    """All cells, whose rows are read in spans."""

    def spans(self, cells: Array, blocks_first: Array | None = None) -> Iterator[CellSpan]:
        """Spans that hold all of ``cells`` (ascending), each read once; ``blocks_first`` come before other blocks."""
        owner = self.block_of(cells)
        blocks = np.unique(owner)
        if blocks_first is not None:
            blocks = np.concatenate([blocks[np.isin(blocks, blocks_first)], blocks[~np.isin(blocks, blocks_first)]])
        for b in blocks.tolist():
            mine = cells[owner == b]
            apart = (self.starts[mine[1:]] - self.starts[mine[:-1] + 1]) * self._row_bytes() > GAP_BYTES
            for run in np.split(mine, np.flatnonzero(apart) + 1):
                yield self._read(b, int(run[0]), int(run[-1]) + 1)

    def _row_bytes(self) -> int:
        return int(self.centers.shape[1] * self.centers.itemsize)

    def _read(self, b: int, first: int, last: int) -> CellSpan:
        base = self.ordered.starts[b]
        start, stop = int(self.starts[first]), int(self.starts[last])
        rows = self.ordered.compared(b, start - base, stop - base)
        ids = np.arange(start, stop, dtype=np.int64)
        numbers = np.arange(first, last)
        cells = Cells(numbers, self.starts[first : last + 1] - start, rows, ids, self.centers[first:last])
        return CellSpan(b, start - base, stop - base, cells)
