"""Sparse rows by block: local columns, and a halo list of the rows of other blocks that they name."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Protocol

import numpy as np

from bigembed.blocks.owners import Starts, owner_of
from bigembed.blocks.rows import Array, offsets

COMPILED = 1 << 17
"""Entries of a block from which compiled code is loaded."""


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

    @property
    def row(self) -> Array:
        """The row of each entry, int32."""
        return np.repeat(np.arange(len(self.indptr) - 1, dtype=np.int32), np.diff(self.indptr))

    @property
    def diagonal(self) -> Array:
        """Where the entries (i, i) stand among all; the graph of rows stores every one of them."""
        return np.flatnonzero(self.indices == self.row)

    def segments(self) -> Iterator[tuple[int, Array]]:
        """Each source block, and the rows needed of it."""
        for i, source in enumerate(self.halo_sources):
            yield int(source), self.halo_rows[self.halo_offsets[i] : self.halo_offsets[i + 1]]

    def ids(self, b: int, starts: Starts) -> Array:
        """The global row of each column, as block b of blocks that begin at ``starts``: own rows, then the halo."""
        far = np.repeat(np.asarray(starts)[self.halo_sources], np.diff(self.halo_offsets)) + self.halo_rows
        return np.concatenate([np.arange(starts[b], starts[b + 1]), far])


def products(block: CSRBlock, own: Array, halo: Array) -> Array:
    """x_i x_j of the stored entries (i, j) of a block, x (rows,) of its rows and (h,) of its halo."""
    if len(block.data) == len(own) ** 2 and not len(halo):  # all entries of the only block
        return np.outer(own, own).ravel()
    if len(block.data) >= COMPILED:
        from bigembed.blocks import edge_pairs  # imports numba: only here

        return _of_pairs(edge_pairs.products, block, own, halo)
    return np.asarray(np.repeat(own, np.diff(block.indptr)) * np.concatenate([own, halo])[block.indices])


def mean_squares(block: CSRBlock, own: Array, halo: Array) -> Array:
    """(x_i² + x_j²) / 2 of the stored entries (i, j) of a block, as of :func:`products`."""
    if len(block.data) >= COMPILED:
        from bigembed.blocks import edge_pairs

        return _of_pairs(edge_pairs.mean_squares, block, own, halo)
    square, other = own**2, halo**2
    return np.asarray((np.repeat(square, np.diff(block.indptr)) + np.concatenate([square, other])[block.indices]) / 2)


def _of_pairs(function: Callable[..., None], block: CSRBlock, *sides: Array) -> Array:
    out = np.empty(len(block.data))
    own, halo = (np.ascontiguousarray(side, np.float64) for side in sides)
    function(block.indptr.astype(np.int64, copy=False), block.indices, own, halo, out)
    return out


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


@dataclass(frozen=True)
class MemoryMatrix:
    """The blocks of a matrix held in this process: for small n, tests and experiments."""

    blocks: tuple[CSRBlock, ...]

    @property
    def rows(self) -> tuple[int, ...]:
        """Rows of each block."""
        return tuple(len(block.indptr) - 1 for block in self.blocks)

    def block(self, b: int) -> CSRBlock:
        """One block of rows."""
        return self.blocks[b]

    def outbox(self, b: int) -> list[tuple[int, Array]]:
        """For each block that needs rows of this one: its number and those rows."""
        needed = [(other, dict(block.segments())) for other, block in enumerate(self.blocks)]
        return [(other, segments[b]) for other, segments in needed if b in segments]


def halo_of(starts: Starts, far: Array) -> tuple[Array, Array, Array]:
    """Halo sources, offsets and rows of the global rows that a block needs of others, ascending."""
    owner = owner_of(starts, far)
    sources, counts = np.unique(owner, return_counts=True)
    return sources.astype(np.int32), offsets(counts), (far - np.asarray(starts)[owner]).astype(np.int32)
