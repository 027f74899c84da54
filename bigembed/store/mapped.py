"""Rows that are made of other rows when a task reads them: each mapped by itself, or only some of them kept."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cached_property
from hashlib import sha256
from typing import Any

import numpy as np

from bigembed.blocks.rows import Array, bounds
from bigembed.store.arrays import read_array
from bigembed.store.paths import at
from bigembed.store.row_blocks import RowBlock
from bigembed.store.source import RowSource, rows_at


@dataclass(frozen=True)
class MappedSource(RowSource):
    """``function(block)`` of the rows of another source, whose blocks are read one at a time; nothing is written.

    The function must give each row the same whatever rows stand near it, so that any range can be read.
    """

    base: RowSource | None = None
    function: Callable[[RowBlock], Array] | None = None
    stamp: str = ""
    """Of what the function is: its part of the fingerprint."""

    def read(self, start: int, stop: int) -> Any:
        assert self.base is not None
        assert self.function is not None
        spans = [(start + low, start + high) for low, high in bounds(stop - start, self.base.block)]
        blocks = (RowBlock(low // self.block, low, self.base.matrix(low, high)) for low, high in spans)
        parts = [np.asarray(self.function(block), self.dtype) for block in blocks]
        return np.concatenate(parts) if parts else np.empty((0, self.width), self.dtype)

    def window(self, rows: tuple[int, int], columns: tuple[int, int]) -> Array:
        return np.asarray(self.read(*rows)[:, slice(*columns)])

    def part(self, start: int, stop: int) -> RowSource:
        assert self.base is not None
        return replace(self, base=self.base.part(start, stop))

    @property
    def grain(self) -> int:
        return _of(self).grain

    def boundary(self, row: int) -> int:
        return _of(self).boundary(row)

    @property
    def chunks(self) -> tuple[int, int]:
        return self.grain, self.width

    @property
    def behind(self) -> int:
        return _held(_of(self))

    @property
    def read_bytes(self) -> int:
        return _of(self).read_bytes

    def fingerprint(self) -> str:
        return _digest(self, _of(self).fingerprint(), self.stamp)


@dataclass(frozen=True)
class KeptRows(RowSource):
    """Those rows of another source that a mask keeps, in their order."""

    base: RowSource | None = None
    mask: str = ""
    """The path of a vector (N,) of 0 and 1, one entry a row of the other source."""
    counts: tuple[int, ...] = ()
    """Rows that are kept of each ``mask_block`` consecutive ones."""
    mask_block: int = 1
    stamp: str = ""

    def read(self, start: int, stop: int) -> Any:
        ends = self._ends
        parts: list[Any] = []
        while start < stop:
            block = int(np.searchsorted(ends, start, side="right"))
            before, end = (int(ends[block - 1]) if block else 0), min(stop, int(ends[block]))
            first = block * self.mask_block
            kept = np.flatnonzero(read_array(self.mask, first, first + self.mask_block))
            chosen = kept[start - before : end - before] + first
            parts.append(_of(self).read(int(chosen[0]), int(chosen[-1]) + 1)[chosen - chosen[0]])
            start = end
        return np.concatenate(parts) if parts else np.empty((0, *self.shape[1:]), self.dtype)

    def window(self, rows: tuple[int, int], columns: tuple[int, int]) -> Array:
        return np.asarray(self.read(*rows)[:, slice(*columns)])

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

    @property
    def behind(self) -> int:
        return _held(_of(self))

    @property
    def read_bytes(self) -> int:
        return _of(self).read_bytes

    def fingerprint(self) -> str:
        return _digest(self, _of(self).fingerprint(), self.stamp)

    def of(self, other: RowSource) -> KeptRows:
        """The entries of another source, as long as the one whose rows are kept, that belong to the kept rows."""
        shape = (self.shape[0], *other.shape[1:])
        return KeptRows(shape, other.dtype, base=other, mask=self.mask, counts=self.counts, mask_block=self.mask_block)


@dataclass(frozen=True)
class RowNumbers(RowSource):
    """The numbers of rows, from 0 on."""

    def read(self, start: int, stop: int) -> Array:
        return np.arange(start, stop)

    @property
    def grain(self) -> int:
        return 1


@dataclass(frozen=True)
class PlannedRows(RowSource):
    """Rows that are not known yet, or not written yet, as many as there can be at the most: enough for a plan."""

    base: RowSource | None = None
    """What they will be made of whenever they are read."""
    stamp: str = "not known yet"

    def fingerprint(self) -> str:
        return self.stamp

    @property
    def grain(self) -> int:
        return self.block if self.base is None else self.base.grain

    @property
    def chunks(self) -> tuple[int, int]:
        return self.grain, self.width

    @property
    def behind(self) -> int:
        return 0 if self.base is None else _held(self.base)

    @property
    def read_bytes(self) -> int:
        return super().read_bytes if self.base is None else self.base.read_bytes


@dataclass(frozen=True)
class WrittenRows(RowSource):
    """Mapped rows that a stage has written."""

    stamp: str = ""

    def fingerprint(self) -> str:
        return self.stamp


def written_rows(path: str, like: RowSource) -> RowSource:
    """The rows at a path, which are those of a source that was mapped."""
    found = rows_at(at(path))
    return WrittenRows(found.shape, found.dtype, path=path, aligned=like.aligned, stamp=like.fingerprint())


def _of(source: Any) -> RowSource:
    base: RowSource | None = source.base
    assert base is not None
    return base


def _held(base: RowSource) -> int:
    """Bytes that a task holds of the rows that others are made of."""
    return base.behind + 3 * min(base.block, base.shape[0]) * base.row_bytes


def _digest(source: RowSource, base: str, stamp: str) -> str:
    aligned = "".join(f" {name} {other.fingerprint()}" for name, other in sorted(source.aligned.items()))
    return sha256(f"{source.shape} {source.dtype} {base} {stamp}{aligned}".encode()).hexdigest()
