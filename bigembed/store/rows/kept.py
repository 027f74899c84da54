"""Some of the rows of a source, and the numbers of rows."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from bigembed.blocks.rows import Array
from bigembed.store.arrays.io import read_array
from bigembed.store.blockwise.sparse_parts import stacked
from bigembed.store.rows.derived import DerivedRows
from bigembed.store.rows.reader import entries_of
from bigembed.store.rows.source import RowSource


@dataclass(frozen=True)
class KeptRows(DerivedRows):
    """Those rows of another source that a mask keeps, in their order."""

    mask: str = ""
    """The path of a vector (N,) of 0 and 1, one entry a row of the other source."""
    counts: tuple[int, ...] = ()
    """Rows that are kept of each ``mask_block`` consecutive ones."""
    mask_block: int = 1

    def read(self, start: int, stop: int) -> Any:
        ends = self._ends
        parts: list[Any] = []
        while start < stop:
            block = int(np.searchsorted(ends, start, side="right"))
            before, end = (int(ends[block - 1]) if block else 0), min(stop, int(ends[block]))
            first = block * self.mask_block
            kept = np.flatnonzero(self.among(first, first + self.mask_block))
            chosen = kept[start - before : end - before] + first
            parts.append(self.source.read(int(chosen[0]), int(chosen[-1]) + 1)[chosen - chosen[0]])
            start = end
        return stacked(parts) if parts else self.nothing

    @cached_property
    def _ends(self) -> Array:
        return np.cumsum(self.counts)

    @property
    def grain(self) -> int:
        return 1

    def boundary(self, row: int) -> int:
        return min(row, self.shape[0])

    @property
    def chunks(self) -> tuple[int, int]:
        return 1, 1

    def among(self, start: int, stop: int) -> Array:
        """Which of the rows ``start:stop`` of the other source are kept, bool."""
        return read_array(self.mask, start, stop).astype(bool)

    def before(self, row: int) -> int:
        """How many of the rows before one of the other source are kept."""
        block, inside = divmod(row, self.mask_block)
        kept = int(self._ends[block - 1]) if block else 0
        return kept + int(self.among(row - inside, row).sum())

    def spread(self, rows: RowSource) -> SpreadRows:
        """Rows (r, …) that belong to the kept ones, in the places of these."""
        return SpreadRows((self.source.shape[0], *rows.shape[1:]), rows.dtype, base=rows, kept=self)

    def of(self, other: RowSource) -> KeptRows:
        """The entries of another source, as long as the one whose rows are kept, that belong to the kept rows."""
        shape = (self.shape[0], *other.shape[1:])
        return KeptRows(
            shape,
            other.dtype,
            base=other,
            entries=entries_of(other),
            mask=self.mask,
            counts=self.counts,
            mask_block=self.mask_block,
        )


@dataclass(frozen=True)
class SpreadRows(DerivedRows):
    """Rows that were kept back in their places among all rows, which have NaN where they were left out."""

    kept: KeptRows | None = None
    """Which rows were kept, with the number of rows in all as its source."""

    def read(self, start: int, stop: int) -> Array:
        assert self.kept is not None
        mask = self.kept.among(start, stop)
        out = np.full((stop - start, *self.shape[1:]), np.nan, self.dtype)
        first = self.kept.before(start)
        out[mask] = self.source.read(first, first + int(mask.sum()))
        return out

    @property
    def grain(self) -> int:
        return 1


@dataclass(frozen=True)
class RowNumbers(RowSource):
    """The numbers of rows, from 0 on."""

    def read(self, start: int, stop: int) -> Array:
        return np.arange(start, stop)

    @property
    def grain(self) -> int:
        return 1
