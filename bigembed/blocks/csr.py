"""Sparse rows by block: local columns, and a halo list of the rows of other blocks that they name."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Protocol

from bigembed.blocks.rows import Array


@dataclass(frozen=True)
class CSRBlock:
    """Rows of one block of a symmetric sparse matrix."""

    indptr: Array
    """int64 (rows+1,)."""
    indices: Array
    """int32: 0 … rows−1 are own columns, rows + h is halo entry h; ascending in each row."""
    data: Array
    """Values, exactly symmetric across blocks."""
    halo_sources: Array
    """int32, the source block of each halo segment, ascending."""
    halo_offsets: Array
    """int64 (len(halo_sources)+1,)."""
    halo_rows: Array
    """int32, row inside the source block, ascending within a segment."""

    def segments(self) -> Iterator[tuple[int, Array]]:
        """Each source block, and the rows needed of it."""
        for i, source in enumerate(self.halo_sources):
            yield int(source), self.halo_rows[self.halo_offsets[i] : self.halo_offsets[i + 1]]


class BlockMatrix(Protocol):
    """A picklable handle of a matrix: opens a block from the store inside a worker, or indexes a list."""

    @property
    def rows(self) -> tuple[int, ...]:
        """Rows of each block."""
        ...

    def block(self, b: int) -> CSRBlock:
        """One block of rows."""
        ...

    def outbox(self, b: int) -> list[tuple[int, Array]]:
        """For each block that needs rows of this one: its number and those rows."""
        ...
