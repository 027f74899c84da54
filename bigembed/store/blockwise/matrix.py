"""A sparse matrix stored by row blocks, and the handle that opens its blocks inside a worker.

The structure (who is next to whom, which rows cross block borders) and the values are separate
arrays, so that one neighbor graph carries distances, and any number of kernels on it weights.
"""

from __future__ import annotations

from collections import OrderedDict
from dataclasses import dataclass, fields, replace
from functools import lru_cache
from threading import Lock
from typing import Any

import numpy as np

from bigembed.blocks.csr import BlockMatrix, CSRBlock
from bigembed.blocks.rows import Array
from bigembed.errors import DamagedError
from bigembed.store.arrays.io import read_array, write_array
from bigembed.store.blockwise.exchange import Exchange

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

    def block(self, b: int) -> CSRBlock:
        """One block of rows."""
        return _block(self.structure, self.values, b, self.version)

    def outbox(self, b: int) -> list[tuple[int, Array]]:
        """For each block that needs rows of this one: its number and those rows."""
        return _outbox(self.structure, b, self.version)


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
        """One block of rows."""
        return CSRBlock(**dict(zip(_PARTS, self._mapped(b, _PARTS), strict=True)))

    def outbox(self, b: int) -> list[tuple[int, Array]]:
        """For each block that needs rows of this one: its number and those rows."""
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


def decoded(block: CSRBlock) -> CSRBlock:
    """A block as products take it: indices of 32 bits, and where it can be the pointers to them."""
    pointer = block.indptr.astype(np.int32) if len(block.data) < 1 << 31 else block.indptr
    return replace(block, indptr=pointer)


def write_structure(path: str, b: int, block: CSRBlock) -> None:
    """Write the structure of one block."""
    for name in _STRUCTURE:
        write_array(f"{path}/{name}/{b}", getattr(block, name))


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
    """An outbox of its sizes, destinations and rows."""
    parts = np.split(rows, np.cumsum(sizes)[:-1]) if len(sizes) else []
    return [(int(destination), part) for destination, part in zip(destinations, parts, strict=True)]


def write_values(path: str, b: int, data: Array) -> None:
    """Write the values of one block, in the order of its structure."""
    write_array(f"{path}/{b}", data)


def _block(structure: str, values: str, b: int, version: str) -> CSRBlock:
    key = (structure, values, b, version)
    if (block := _kept.get(key)) is None:
        parts = {name: read_array(f"{structure}/{name}/{b}") for name in _STRUCTURE}
        block = CSRBlock(data=read_array(f"{values}/{b}"), **parts)
        _kept.put(key, block)
    return block


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
def _outbox(structure: str, b: int, version: str) -> list[tuple[int, Array]]:
    return _cut(*(read_array(f"{structure}/{name}/{b}") for name in _OUTBOX))
