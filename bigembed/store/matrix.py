"""A sparse matrix by row blocks, in memory or stored, and the halo of rows of other blocks that its products need."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, fields, replace
from functools import lru_cache
from threading import Lock
from typing import Any, Protocol

import numpy as np

from bigembed.errors import DamagedError
from bigembed.runtime.blocks import Array, Starts, offsets, owner_of
from bigembed.store.arrays import read_array, write_array
from bigembed.store.exchange import Exchange
from bigembed.store.files import read_ahead

# ------------------------------------------------------------------------------------------------------------- csr
# Sparse rows by block: local columns, and a halo list of the rows of other blocks that they name.

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
        """Yield each source block, and the rows needed of it."""
        for i, source in enumerate(self.halo_sources):
            yield int(source), self.halo_rows[self.halo_offsets[i] : self.halo_offsets[i + 1]]

    def ids(self, b: int, starts: Starts) -> Array:
        """Return the global row of each column, own rows and then the halo; block b begins at ``starts[b]``."""
        far = np.repeat(np.asarray(starts)[self.halo_sources], np.diff(self.halo_offsets)) + self.halo_rows
        return np.concatenate([np.arange(starts[b], starts[b + 1]), far])


def products(block: CSRBlock, own: Array, halo: Array) -> Array:
    """Return x_i x_j of the stored entries (i, j) of a block, x (rows,) of its rows and (h,) of its halo."""
    if len(block.data) == len(own) ** 2 and not len(halo):  # all entries of the only block
        return np.outer(own, own).ravel()
    if len(block.data) >= COMPILED:
        from bigembed.store import matrix_compiled  # imports numba: only here

        return _of_pairs(matrix_compiled.products, block, own, halo)
    return np.asarray(np.repeat(own, np.diff(block.indptr)) * np.concatenate([own, halo])[block.indices])


def mean_squares(block: CSRBlock, own: Array, halo: Array) -> Array:
    """Return (x_i² + x_j²) / 2 of the stored entries (i, j) of a block, as :func:`products` does."""
    if len(block.data) >= COMPILED:
        from bigembed.store import matrix_compiled

        return _of_pairs(matrix_compiled.mean_squares, block, own, halo)
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
        """Return one block of rows."""
        ...

    def outbox(self, b: int) -> list[tuple[int, Array]]:
        """Return, for each block that needs rows of this one, its number and those rows."""
        ...


@dataclass(frozen=True)
class MemoryMatrix:
    """The blocks of a matrix in the memory of this process."""

    blocks: tuple[CSRBlock, ...]

    @property
    def rows(self) -> tuple[int, ...]:
        """Rows of each block."""
        return tuple(len(block.indptr) - 1 for block in self.blocks)

    def block(self, b: int) -> CSRBlock:
        """Return one block of rows."""
        return self.blocks[b]

    def outbox(self, b: int) -> list[tuple[int, Array]]:
        """Return, for each block that needs rows of this one, its number and those rows."""
        needed = [(other, dict(block.segments())) for other, block in enumerate(self.blocks)]
        return [(other, segments[b]) for other, segments in needed if b in segments]


def take_halo(block: CSRBlock, nothing: Array, rows_of: Callable[[int, Array], Array]) -> Array:
    """Return the rows of other blocks that a block needs, in the order of its halo list.

    ``rows_of(source, rows)`` gives the rows of one other block; ``nothing``: an array of no rows, for an empty halo.
    """
    out: Array | None = None
    for number, (source, rows) in enumerate(block.segments()):
        piece = rows_of(source, rows)
        if out is None:
            out = np.empty((len(block.halo_rows), *piece.shape[1:]), piece.dtype)
        out[block.halo_offsets[number] : block.halo_offsets[number + 1]] = piece
    return nothing if out is None else out


def halo_of(starts: Starts, far: Array) -> tuple[Array, Array, Array]:
    """Return halo sources, offsets and rows of the global rows that a block needs of others, ascending."""
    owner = owner_of(starts, far)
    sources, counts = np.unique(owner, return_counts=True)
    return sources.astype(np.int32), offsets(counts), (far - np.asarray(starts)[owner]).astype(np.int32)


# ---------------------------------------------------------------------------------------------------------- matrix
# A sparse matrix stored by row blocks, and the handle that opens its blocks inside a worker.
#
# The structure (who is next to whom, which rows cross block borders) and the values are separate arrays, so that one
# neighbor graph carries distances, and any number of kernels on it weights.

KEPT_BYTES = 32 << 20
"""Blocks that a process keeps open, the last one however large it is."""
_STRUCTURE = ("indptr", "indices", "halo_sources", "halo_offsets", "halo_rows")


@dataclass(frozen=True)
class StoredMatrix:
    """Blocks of a symmetric sparse matrix: structure under one path, values under another."""

    structure: str
    values: str
    rows: tuple[int, ...]
    version: str
    """Digest of what is stored: a worker keeps the last blocks that it opened under it."""
    chosen: tuple[int, ...] | None = None
    """The blocks that are there, ascending, where the others and the entries that lead to them are left out."""

    def part(self, chosen: Sequence[int]) -> StoredMatrix:
        """Return some of the blocks, ascending, as a matrix of its own, without the entries that lead to the others."""
        if list(chosen) == list(range(len(self.rows))):
            return self
        return replace(self, rows=tuple(self.rows[b] for b in chosen), chosen=tuple(map(self.number, chosen)))

    def number(self, b: int) -> int:
        """Return the number under which a block is stored."""
        return b if self.chosen is None else self.chosen[b]

    def block(self, b: int) -> CSRBlock:
        """Return one block of rows."""
        return _block(self.structure, self.values, self.number(b), self.version, self.chosen)

    def outbox(self, b: int) -> list[tuple[int, Array]]:
        """Return, for each block that needs rows of this one, its number and those rows."""
        return _outbox(self.structure, self.number(b), self.version, self.chosen)

    def expect(self, b: int) -> None:
        """Let the system read the columns and values of a block ahead, while something else is computed."""
        for array in (f"{self.structure}/indices", self.values):
            if 0 <= b < len(self.rows):
                read_ahead(f"{array}/{self.number(b)}/c/0")


@dataclass(frozen=True)
class MappedMatrix:
    """The blocks of a matrix from a far store, in the exchange of a solver, mapped by each pass over them.

    The first task that asks for a block leaves it there; one that is damaged is made anew. (Of a matrix in files the
    copy would take 8 bytes an entry of the disk, to save .07 µs a row and pass of 25 entries, a thirtieth of a pass.)
    """

    given: BlockMatrix
    exchange: Exchange

    @property
    def rows(self) -> tuple[int, ...]:
        """Rows of each block."""
        return self.given.rows

    def block(self, b: int) -> CSRBlock:
        """Return one block of rows."""
        return CSRBlock(**dict(zip(_PARTS, self._mapped(b, _PARTS), strict=True)))

    def outbox(self, b: int) -> list[tuple[int, Array]]:
        """Return, for each block that needs rows of this one, its number and those rows."""
        return _cut(*self._mapped(b, _OUTBOX))

    def _mapped(self, b: int, names: tuple[str, ...]) -> list[Array]:
        try:
            return self.exchange.mapped("matrix", b, names)
        except DamagedError:
            block = decoded(self.given.block(b))
            pieces = {name: getattr(block, name) for name in _PARTS}
            self.exchange.put("matrix", b, pieces | dict(zip(_OUTBOX, _joined(self.given.outbox(b)), strict=True)))
            return self.exchange.mapped("matrix", b, names)


_PARTS = ("data", *(field.name for field in fields(CSRBlock) if field.name != "data"))
_OUTBOX = ("outbox_sizes", "outbox_destinations", "outbox_rows")
STRUCTURE = (*_STRUCTURE, *_OUTBOX, "starts")
"""Arrays of a stored graph without the values of its edges."""


def decoded(block: CSRBlock) -> CSRBlock:
    """Return a block as products take it: indices of 32 bits, and where it can be the pointers to them."""
    pointer = block.indptr.astype(np.int32, copy=False) if len(block.data) < 1 << 31 else block.indptr
    return replace(block, indptr=pointer)


def entries_of(matrix: BlockMatrix, b: int) -> tuple[Array, Array, Array]:
    """Return pointers, local columns and values of a block, as products take them."""
    block = decoded(matrix.block(b))
    return block.indptr, block.indices, block.data


def write_structure(path: str, b: int, block: CSRBlock) -> None:
    """Write the structure of one block."""
    for name in _STRUCTURE:
        write_array(f"{path}/{name}/{b}", narrow(block) if name == "indices" else getattr(block, name))


def narrow(block: CSRBlock) -> Array:
    """Return the columns of a block as they are written: in 16 bits, where there are few enough of them."""
    few = len(block.indptr) - 1 + len(block.halo_rows) <= 1 << 16
    return block.indices.astype(np.uint16) if few else block.indices


def write_outbox(path: str, b: int, outbox: list[tuple[int, Array]]) -> None:
    """Write what other blocks need of this one."""
    for name, array in zip(_OUTBOX, _joined(outbox), strict=True):
        write_array(f"{path}/{name}/{b}", array)


def _joined(outbox: list[tuple[int, Array]]) -> tuple[Array, Array, Array]:
    """Sizes, destinations and rows of an outbox."""
    rows = [rows for _, rows in outbox] or [np.zeros(0, np.int32)]
    sizes, destinations = [len(rows) for _, rows in outbox], [destination for destination, _ in outbox]
    return np.array(sizes, np.int64), np.array(destinations, np.int32), np.concatenate(rows).astype(np.int32)


def _cut(sizes: Array, destinations: Array, rows: Array) -> list[tuple[int, Array]]:
    """Return an outbox from its sizes, destinations and rows."""
    parts = np.split(rows, np.cumsum(sizes)[:-1]) if len(sizes) else []
    return [(int(destination), part) for destination, part in zip(destinations, parts, strict=True)]


def write_values(path: str, b: int, data: Array) -> None:
    """Write the values of one block, in the order of its structure."""
    write_array(f"{path}/{b}", data)


def _block(structure: str, values: str, b: int, version: str, chosen: tuple[int, ...] | None) -> CSRBlock:
    key = (structure, values, b, version, chosen)
    if (block := _kept.get(key)) is None:
        parts = {name: read_array(f"{structure}/{name}/{b}") for name in _STRUCTURE}
        parts["indices"] = parts["indices"].astype(np.int32, copy=False)
        block = CSRBlock(data=read_array(f"{values}/{b}"), **parts)
        block = block if chosen is None else _among(block, np.array(chosen))
        _kept.put(key, block)
    return block


def _among(block: CSRBlock, chosen: Array) -> CSRBlock:
    """Return a block with the numbers that its sources have among the chosen ones, and without what leads to others."""
    there = np.isin(block.halo_sources, chosen)
    numbers = np.searchsorted(chosen, block.halo_sources[there]).astype(np.int32)
    if there.all():
        return replace(block, halo_sources=numbers)
    sizes, own = np.diff(block.halo_offsets), len(block.indptr) - 1
    column = np.concatenate([np.ones(own, bool), np.repeat(there, sizes)])
    place, entry = np.cumsum(column) - 1, column[block.indices]
    return CSRBlock(
        indptr=np.concatenate([[0], np.cumsum(entry)])[block.indptr],
        indices=place[block.indices[entry]].astype(np.int32),
        data=block.data[entry],
        halo_sources=numbers,
        halo_offsets=offsets(sizes[there]),
        halo_rows=block.halo_rows[column[own:]],
    )


class _Kept:
    """The latest blocks of this process, up to :data:`KEPT_BYTES`."""

    def __init__(self) -> None:
        self._blocks: OrderedDict[Any, CSRBlock] = OrderedDict()
        self._bytes, self._lock = 0, Lock()

    def get(self, key: Any) -> CSRBlock | None:
        with self._lock:
            if key in self._blocks:
                self._blocks.move_to_end(key)
            return self._blocks.get(key)

    def put(self, key: Any, block: CSRBlock) -> None:
        with self._lock:
            if key in self._blocks:  # (of another thread)
                return
            self._blocks[key] = block
            self._bytes += _bytes(block)
            while len(self._blocks) > 1 and self._bytes > KEPT_BYTES:
                self._bytes -= _bytes(self._blocks.popitem(last=False)[1])


def _bytes(block: CSRBlock) -> int:
    return sum(int(getattr(block, name).nbytes) for name in (*_STRUCTURE, "data"))


_kept = _Kept()


@lru_cache(maxsize=16)
def _outbox(structure: str, b: int, version: str, chosen: tuple[int, ...] | None) -> list[tuple[int, Array]]:
    whole = _cut(*(read_array(f"{structure}/{name}/{b}") for name in _OUTBOX))
    if chosen is None:
        return whole
    numbers = {stored: number for number, stored in enumerate(chosen)}
    return [(numbers[destination], rows) for destination, rows in whole if destination in numbers]
