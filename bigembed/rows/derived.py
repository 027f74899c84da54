"""Rows that are made of other rows when they are read: mapped by a function, some of them, or as a lazy array."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from hashlib import sha256
from time import monotonic
from typing import TYPE_CHECKING, Any

import numpy as np
from scipy.sparse import csr_array

from bigembed.errors import ChangedInputError
from bigembed.rows import RowBlock, RowSource, reader, row_block, row_maps, rows_at
from bigembed.rows.sparse import csr_block_rows, csr_row_bytes
from bigembed.runtime.blocks import Array, bounds, one_blas_thread
from bigembed.store import arrays, at, parcels, superseded

if TYPE_CHECKING:
    import dask.array as da


# --------------------------------------------------------------------------------------------------------- derived
# Rows that are made of other rows when a task reads them: what all such sources share.


@dataclass(frozen=True)
class DerivedRows(RowSource):
    """Rows made of those of another source whenever they are read; nothing of their size is written."""

    base: RowSource | None = None
    stamp: str = ""
    """What says how they are made: its part of the fingerprint."""
    entries: int | None = None
    """Of sparse rows, how many entries are stored at the most."""

    @property
    def source(self) -> RowSource:
        """The rows that these are made of."""
        assert self.base is not None
        return self.base

    @property
    def nothing(self) -> Any:
        """A block of no rows."""
        empty = np.empty((0, *self.shape[1:]), self.dtype)
        return empty if self.entries is None else csr_array(empty)

    def window(self, rows: tuple[int, int], columns: tuple[int, int]) -> Array:
        return np.asarray(self.read(*rows)[:, slice(*columns)])

    @property
    def sparse(self) -> bool:
        return self.entries is not None

    @property
    def row_bytes(self) -> int:
        return super().row_bytes if self.entries is None else csr_row_bytes(self.entries, self.shape[0])

    @property
    def block(self) -> int:
        return super().block if self.entries is None else csr_block_rows(self.row_bytes)

    @property
    def behind(self) -> int:
        """Bytes that a task holds of the source: one block of its rows, and the larger of what making that block takes
        and of two more blocks, which are held while it is mapped."""
        block = min(self.source.block, self.source.shape[0]) * self.source.row_bytes
        return max(self.source.behind, 2 * block) + block

    @property
    def read_bytes(self) -> int:
        return self.source.read_bytes

    @property
    def categories(self) -> Mapping[str, Sequence[str]]:
        """Those of the columns that have kept their names."""
        features = set(self.features)
        return {name: texts for name, texts in self.source.categories.items() if name in features}

    def fingerprint(self) -> str:
        aligned = "".join(f" {name} {other.fingerprint()}" for name, other in sorted(self.aligned.items()))
        made = f"{self.shape} {self.dtype} {self.source.fingerprint()} {self.stamp}{aligned}"
        return sha256(made.encode()).hexdigest()


# ------------------------------------------------------------------------------------------------------------ kept
# Some of the rows of a source, and the numbers of rows.


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
            kept = np.flatnonzero(self.mask_of(first, first + self.mask_block))
            chosen = kept[start - before : end - before] + first
            parts.append(self.source.read(int(chosen[0]), int(chosen[-1]) + 1)[chosen - chosen[0]])
            start = end
        return parcels.stacked(parts) if parts else self.nothing

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

    def mask_of(self, start: int, stop: int) -> Array:
        """Which of the rows ``start:stop`` of the other source are kept, bool."""
        return arrays.read_array(self.mask, start, stop).astype(bool)

    def count_before(self, row: int) -> int:
        """How many of the rows before one of the other source are kept."""
        block, inside = divmod(row, self.mask_block)
        kept = int(self._ends[block - 1]) if block else 0
        return kept + int(self.mask_of(row - inside, row).sum())

    def restored(self, rows: RowSource) -> RestoredRows:
        """Rows (r, …) that belong to the kept ones, in the places of these."""
        return RestoredRows((self.source.shape[0], *rows.shape[1:]), rows.dtype, base=rows, kept=self)

    def of(self, other: RowSource) -> KeptRows:
        """The entries of another source, as long as the one whose rows are kept, that belong to the kept rows."""
        shape = (self.shape[0], *other.shape[1:])
        return KeptRows(
            shape,
            other.dtype,
            base=other,
            entries=reader.entries_of(other),
            mask=self.mask,
            counts=self.counts,
            mask_block=self.mask_block,
        )


@dataclass(frozen=True)
class OtherRows(DerivedRows):
    """The rows of another source but a few, in their order."""

    left_out: tuple[int, ...] = ()
    """The numbers of those, ascending."""

    def read(self, start: int, stop: int) -> Any:
        stop = min(stop, self.shape[0])
        if start >= stop:
            return self.source.read(0, 0)
        before = np.array(self.left_out) - np.arange(len(self.left_out))
        numbers = np.arange(start, stop)
        numbers += np.searchsorted(before, numbers, side="right")
        return self.source.read(int(numbers[0]), int(numbers[-1]) + 1)[numbers - numbers[0]]

    @property
    def grain(self) -> int:
        return 1


def all_but(rows: RowSource, numbers: Array) -> RowSource:
    """The rows but those of these numbers, which ascend.

    >>> rows = all_but(RowNumbers((6,), np.dtype(np.int64)), np.array([0, 3]))
    >>> rows.read(0, 9).tolist(), rows.read(1, 3).tolist()
    ([1, 2, 4, 5], [2, 4])
    """
    if not len(numbers):
        return rows
    shape = (rows.shape[0] - len(numbers), *rows.shape[1:])
    named = rows.features if len(rows.shape) > 1 else ()
    left_out = tuple(numbers.tolist())
    return OtherRows(shape, rows.dtype, base=rows, left_out=left_out, stamp=f"all but {left_out}", named=named)


@dataclass(frozen=True)
class RestoredRows(DerivedRows):
    """Rows that were kept back in their places among all rows, which have NaN where they were left out."""

    kept: KeptRows | None = None
    """Which rows were kept, with the number of rows in all as its source."""

    def read(self, start: int, stop: int) -> Array:
        assert self.kept is not None
        mask = self.kept.mask_of(start, stop)
        out = np.full((stop - start, *self.shape[1:]), np.nan, self.dtype)
        first = self.kept.count_before(start)
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


def kept_on_the_way(source: RowSource) -> tuple[KeptRows, ...]:
    """Return the numbers of the rows that were kept, for each time that rows were left out on the way to a source, the
    first time first."""
    if isinstance(source, (PlannedRows, WrittenRows)) and source.left:
        return source.left
    if not isinstance(source, DerivedRows) or source.base is None:
        return ()
    before = kept_on_the_way(source.base)
    if not isinstance(source, KeptRows):
        return before
    return (*before, source.of(RowNumbers((source.base.shape[0],), np.dtype(np.int64))))


# ---------------------------------------------------------------------------------------------------------- mapped
# Rows of a source as a function maps them when they are read; and what stands for them in plans and once written.


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
        parts = [row_maps.as_typed(self.function(block), self.dtype) for block in blocks]
        return parcels.stacked(parts) if parts else self.nothing

    def part(self, start: int, stop: int) -> RowSource:
        part = self.source.part(start, stop)
        return self if part is self.source else replace(self, base=part)

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
    left: tuple[KeptRows, ...] = ()
    """Where rows were left out on the way to rows that will be written."""

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
    left: tuple[KeptRows, ...] = ()
    """Where rows were left out on the way to them."""

    def fingerprint(self) -> str:
        return self.stamp


def written_rows(path: str, like: RowSource) -> RowSource:
    """The rows at a path, which are those of a source that was mapped."""
    found = rows_at(at(path))
    known: dict[str, Any] = {"stamp": like.fingerprint(), "left": kept_on_the_way(like)}
    return WrittenRows(found.shape, found.dtype, path=path, aligned=like.aligned, **known)


# ------------------------------------------------------------------------------------------------------------ lazy
# Rows computed from rows when they are asked for: what a lazy result is made of.


class MappedRows:
    """An array (n, width) that is ``function(block)`` of the rows of a source, block by block, on indexing.

    ``keep`` stays alive as long as this object does (a temporary directory that holds what is read). ``stamp``: the
    fingerprint that the source must still have; empty if any rows will do. ``marks``: of the stages that the function
    reads, which must still be what is published. ``sparse``: whether these are CSR rows.
    """

    ndim = 2

    def __init__(
        self,
        source: RowSource,
        function: Callable[[RowBlock], Any],
        width: int,
        dtype: Any,
        keep: Any = None,
        stamp: str = "",
        marks: Sequence[superseded.Mark] = (),
        sparse: bool = False,
    ) -> None:
        self.source, self.function, self._keep, self.stamp, self.marks = source, function, keep, stamp, marks
        self._look_at, self.sparse = 0.0, sparse
        self.shape = (source.shape[0], width)
        self.dtype = np.dtype(dtype)

    def __getitem__(self, index: Any) -> Any:
        rows, columns = index if isinstance(index, tuple) else (index, slice(None))
        chosen = np.arange(self.shape[0])[rows]
        if not chosen.size:
            nothing = np.zeros((*chosen.shape, self.shape[1]), self.dtype)[..., columns]
            return csr_array(nothing) if self.sparse else nothing
        self._look()
        first, last = int(chosen.min()), int(chosen.max()) + 1
        with one_blas_thread():
            parts = [
                self.function(row_block(self.source, first + start, first + stop))
                for start, stop in bounds(last - first, self.source.block)
            ]
        for mark in self.marks:
            mark.check()
        found = parcels.stacked(parts).astype(self.dtype, copy=False)[chosen - first]
        return found[:, columns] if self.sparse else found[..., columns]

    def _look(self) -> None:
        """Refuse rows that were changed; looking takes a tenth of the time at most, however many files there are."""
        began = monotonic()
        if self.stamp and began >= self._look_at:
            refuse_changed(self.source, self.stamp)
            self._look_at = monotonic() + 10 * (monotonic() - began)

    def __getstate__(self) -> dict[str, Any]:
        return self.__dict__ | {"_keep": None, "_look_at": 0.0}

    def lazy(self) -> da.Array:
        """A Dask array in canonical blocks, computed when it is read."""
        import dask.array as da

        chunks = (self.source.block, self.shape[1])
        meta = csr_array((0, 0), dtype=self.dtype) if self.sparse else None
        lazy: da.Array = da.from_array(self, chunks=chunks, name=False, asarray=False, fancy=False, meta=meta)
        return lazy


def refuse_changed(source: RowSource, stamp: str) -> None:
    """ChangedInputError unless the rows still have this fingerprint."""
    if source.fingerprint() != stamp:
        raise ChangedInputError(
            f"{source.path or 'the array'}: its bytes are not those that were fitted any more, so the coordinates of "
            "the rows fitted cannot be had from it. Give rows to transform; or use fit_transform, or ask for "
            "embedding_ (and compute it, if it is lazy) before the rows change"
        )
