"""Rows of a source as a function maps them when they are read; and what stands for them in plans and once written."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from bigembed.blocks.elementwise import as_typed
from bigembed.blocks.rows import Array, bounds
from bigembed.store.blockwise.sparse_parts import stacked
from bigembed.store.rows.derived import DerivedRows
from bigembed.store.rows.row_blocks import RowBlock
from bigembed.store.rows.source import RowSource, rows_at
from bigembed.store.storage.paths import at


@dataclass(frozen=True)
class MappedSource(DerivedRows):
    """``function(block)`` of the rows of another source, whose blocks are read one at a time.

    The function must give each row the same whatever rows stand near it, so that any range can be read.
    """

    function: Callable[[RowBlock], Any] | None = None

    def read(self, start: int, stop: int) -> Any:
        assert self.function is not None
        spans = [(start + low, start + high) for low, high in bounds(stop - start, self.source.block)]
        blocks = (RowBlock(low // self.block, low, self.source.matrix(low, high)) for low, high in spans)
        parts = [as_typed(self.function(block), self.dtype) for block in blocks]
        return stacked(parts) if parts else self.nothing

    def part(self, start: int, stop: int) -> RowSource:
        return replace(self, base=self.source.part(start, stop))

    @property
    def grain(self) -> int:
        return self.source.grain

    def boundary(self, row: int) -> int:
        return self.source.boundary(row)

    @property
    def chunks(self) -> tuple[int, int]:
        return self.grain, self.width


def densified(source: RowSource) -> RowSource:
    """Sparse rows as dense ones, a block of which is made when it is read; dense rows as they are."""
    if not source.sparse:
        return source
    made = MappedSource(source.shape, source.work, base=replace(source, aligned={}), function=dense_rows, stamp="dense")
    return replace(made, aligned=source.aligned, named=source.features)


def dense_rows(block: RowBlock) -> Array:
    """The rows of a block in one dense array."""
    return np.asarray(block.rows.toarray())


@dataclass(frozen=True)
class PlannedRows(DerivedRows):
    """Rows that are not known yet, or not written yet, as many as there can be at the most: enough for a plan.

    ``base``: what they will be made of whenever they are read; None where they will be written.
    """

    stamp: str = "not known yet"
    texts: Mapping[str, Sequence[str]] = field(default_factory=dict)
    """The texts of columns of categories, where the rows are not written yet."""

    @property
    def categories(self) -> Mapping[str, Sequence[str]]:
        return self.texts if self.base is None else super().categories

    def fingerprint(self) -> str:
        return self.stamp

    @property
    def grain(self) -> int:
        return self.block if self.base is None else self.base.grain

    @property
    def chunks(self) -> tuple[int, int]:
        return min(self.grain, self.shape[0]), self.width

    @property
    def behind(self) -> int:
        return 0 if self.base is None else super().behind

    @property
    def read_bytes(self) -> int:
        return self.shape[0] * self.row_bytes if self.base is None else self.base.read_bytes


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
