"""Rows: what users hand over becomes a source that block tasks read, whatever its format.

The sources are here: rows read by range wherever they lie, and their canonical blocks.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from hashlib import sha256
from typing import Any, ClassVar

import numpy as np

from bigembed.errors import InputError, InputTypeError
from bigembed.rows.exact import refuse_rounded, rows_of_entries
from bigembed.rows.opening import open_zarr, unmasked
from bigembed.rows.reader import TEXT, is_text, read_ranges
from bigembed.runtime import reads
from bigembed.runtime.blocks import Array, align_arrays, block_rows, is_scipy_sparse, is_sparse
from bigembed.runtime.executors import executor_now
from bigembed.store import AnyPath, attributes, stored, superseded
from bigembed.store.arrays import cached, npy_rows, read_array, read_window

# ---------------------------------------------------------------------------------------------------------- source
# Rows that a block task can read by range, wherever they lie.

TEXT_BYTES = 512
"""Of a text, for how many are read at a time."""


@dataclass(frozen=True)
class RowSource:
    """Rows that a block task can read by range: a path of a Zarr array or .npy, or an array of this process.

    It is a :class:`~bigembed.rows.reader.Reader`, too.
    """

    shape: tuple[int, ...]
    dtype: np.dtype[Any]
    path: str | None = None
    array: Array | None = None
    aligned: Mapping[str, RowSource] = field(default_factory=dict)
    """Arrays of the same length that belong to the rows: ``weights``, ``labels``."""
    as_given: ClassVar = ("array", "aligned")
    offset: int = 0
    """Where the first row lies in the array at the path."""
    columns: tuple[int, int] | None = None
    """Those of the array at the path that are taken, where they are not all."""
    named: tuple[str, ...] = ()
    """Names of the columns, where something else than the array says them."""

    @reads
    def read(self, start: int, stop: int) -> Any:
        """Rows ``start:stop`` as stored."""
        if self.array is not None:
            return np.asarray(self.array[start:stop])
        if self.columns is not None:
            return self.window((start, stop), (0, self.width))
        assert self.path is not None
        if self.path.endswith(".npy"):
            return np.array(npy_rows(self.path)[start + self.offset : stop + self.offset])
        return read_array(self.path, start + self.offset, stop + self.offset)

    def stream(self, start: int, stop: int) -> Iterator[Any]:
        """Rows ``start:stop`` in pieces, text as :data:`~bigembed.rows.reader.TEXT`."""
        text = is_text(self.dtype)
        for low, high in read_ranges(start, stop, self.grain, TEXT_BYTES if text else self.width * self.dtype.itemsize):
            found = self.read(low, high)
            yield found.astype(TEXT) if text else found

    def part(self, start: int, stop: int) -> RowSource:
        """What a task needs that reads no rows but ``start:stop``: the source itself."""
        return self

    @reads
    def window(self, rows: tuple[int, int], columns: tuple[int, int]) -> Array:
        """A part of the rows and of the columns, as stored."""
        if self.array is not None:
            return np.asarray(self.array[slice(*rows), slice(*columns)])
        assert self.path is not None
        first = self.columns[0] if self.columns is not None else 0
        rows = rows[0] + self.offset, rows[1] + self.offset
        columns = columns[0] + first, columns[1] + first
        if self.path.endswith(".npy"):
            return np.array(npy_rows(self.path)[slice(*rows), slice(*columns)])
        return read_window(self.path, rows, columns)

    def matrix(self, start: int, stop: int) -> Any:
        """Rows ``start:stop`` as they are worked on: row by row in memory, in :attr:`work`."""
        return align_arrays(as_worked(self.read(start, stop), self.work, start))

    @property
    def work(self) -> np.dtype[Any]:
        """The dtype that rows are worked on in."""
        return work_dtype(self.dtype)

    @property
    def sparse(self) -> bool:
        """Whether blocks come as SciPy sparse rows."""
        return False

    @property
    def features(self) -> tuple[str, ...]:
        """Names of the columns, where the rows are the copy of a table."""
        if self.named or self.path is None or self.path.endswith(".npy"):
            return self.named
        return attributes.columns_of(self.path)

    @property
    def categories(self) -> Mapping[str, Sequence[str]]:
        """The texts of the columns of categories, by their names, where the rows are the copy of a table."""
        return {} if self.path is None or self.path.endswith(".npy") else attributes.categories_at(self.path)

    @property
    def width(self) -> int:
        """Numbers in a row; 1 for a vector."""
        return int(np.prod(self.shape[1:]))

    @property
    def block(self) -> int:
        """Rows of a canonical block: of the shape and dtype alone, never of how the rows are stored."""
        return block_rows(self.width, self.work.itemsize)

    @property
    def largest_block(self) -> int:
        """Rows of the largest block: all rows of a small set."""
        return min(self.block, self.shape[0])

    @property
    def grain(self) -> int:
        """Rows that are decompressed together; 1 where any range is read alone."""
        if self.array is not None or str(self.path).endswith(".npy"):
            return 1
        return int(cached(str(self.path)).chunks[0])

    def boundary(self, row: int) -> int:
        """The first border between stored chunks at or after this row; at most the number of rows."""
        end = -(-(row + self.offset) // self.grain) * self.grain - self.offset
        return min(self.shape[0], end)

    @property
    def chunks(self) -> tuple[int, int]:
        """Rows and columns that are decompressed together; (1, 1) where any part is read alone."""
        if self.array is not None or str(self.path).endswith(".npy"):
            return 1, 1
        rows, columns = cached(str(self.path)).chunks
        return int(rows), int(columns)

    @property
    def row_bytes(self) -> int:
        """Bytes of a row as it is worked on."""
        return self.width * self.work.itemsize

    @property
    def behind(self) -> int:
        """Bytes that a task holds, besides, of the rows that these are made of."""
        return 0

    @property
    def read_bytes(self) -> int:
        """Bytes that are read for all rows."""
        return self.shape[0] * self.row_bytes

    def fingerprint(self) -> str:
        """What says that the input is the one of the last run: names, sizes and times of its files, or its bytes."""
        digest = sha256(repr((self.shape, str(self.dtype))).encode())
        if self.array is not None:
            digest.update(np.ascontiguousarray(self.array).tobytes())
        elif self.path is not None:  # (neither: a shape that rows are to have)
            for file in stored(self.path):
                digest.update(repr((file.name, file.size, file.stamp)).encode())
        if self.offset or self.columns is not None:
            digest.update(repr((self.offset, self.columns)).encode())
        for name, other in sorted(self.aligned.items()):
            digest.update(f"{name} {other.fingerprint()}".encode())
        return digest.hexdigest()


LAZY = ("anndata", "dask", "dask_expr", "xarray")
"""Packages whose arrays may be computed once, and written, before they are read."""


def may_be_copied(X: Any) -> bool:
    """Whether rows may be written into a run before its tasks read them: lazy ones, or where tasks run elsewhere."""
    return not executor_now().in_this_process or type(X).__module__.partition(".")[0] in LAZY


def rows_at(path: AnyPath, packed: bool = False) -> RowSource:
    """Rows, or a vector, at a path: a Zarr array or .npy, opened once to see that it is whole.

    ``packed``: whether stored numbers may be others than the values (:mod:`bigembed.rows.packing`).
    """
    array = npy_rows(path) if path.suffix == ".npy" else open_zarr(path, packed)
    return RowSource(tuple(map(int, array.shape)), np.dtype(array.dtype), path=str(path))


@dataclass(frozen=True)
class MarkedRows(RowSource):
    """Rows of a stage, read only as long as it is what is published."""

    marks: tuple[superseded.Mark, ...] = ()

    def read(self, start: int, stop: int) -> Any:
        """Rows ``start:stop``; :class:`StaleError` if they may be of something else."""
        try:
            return super().read(start, stop)
        finally:
            for mark in self.marks:
                mark.check()


def refuse_fields(dtype: np.dtype[Any]) -> None:
    """InputError of a structured array."""
    if dtype.names:
        what = "take those that are columns of the rows: pandas.DataFrame(array)[['NAME', 'NAME']]"
        raise InputError(f"the rows are one array with the fields {', '.join(dtype.names[:9])}; {what}")


def work_dtype(dtype: Any) -> np.dtype[Any]:
    """The dtype that rows are worked on in: float32 for what it holds exactly, else float64.

    >>> work_dtype("uint8"), work_dtype("float16"), work_dtype("int64")
    (dtype('float32'), dtype('float32'), dtype('float64'))
    """
    dtype = np.dtype(dtype)
    refuse_fields(dtype)
    if dtype.kind not in "buif":
        raise InputError(
            f"rows have dtype {dtype}; numbers are needed (bool, int, uint or float). "
            "Complex data not supported; encode text and objects first"
        )
    return np.dtype(np.float32) if np.can_cast(dtype, np.float32, "safe") else np.dtype(np.float64)


def as_worked(rows: Any, dtype: Any, start: int = 0, what: str = "rows") -> Any:
    """Rows (an array, or a SciPy sparse matrix) in the dtype that they are worked on in.

    InputError that names the rows where float64 would round integers. ``start`` numbers the first row.

    >>> as_worked(np.array([[1 << 53]]), "f8").tolist()
    [[9007199254740992.0]]
    """
    sparse = hasattr(rows, "indptr")
    given = rows.data if sparse else np.asarray(rows)
    if np.dtype(dtype).kind == "f":
        refuse_rounded(given, rows.indptr if sparse else None, start, what)
    return rows.astype(dtype, copy=False) if sparse else np.asarray(given, dtype)


def as_declared(computed: Any, dtype: np.dtype[Any], start: int = 0) -> Array:
    """Dense rows as a lazy array has computed them; InputError where entries are masked, or not of the dtype that it
    declares."""
    if is_scipy_sparse(computed):
        raise InputTypeError(
            "rows are declared as dense, and computed as SciPy sparse blocks. Where the Dask array is made, give "
            "meta=scipy.sparse.csr_array((0, 0)), or make the blocks dense: X.map_blocks(lambda block: block.toarray())"
        )
    rows = np.asarray(unmasked(computed, start))
    require_declared(rows, dtype, start)
    return rows


def require_declared(rows: Any, dtype: np.dtype[Any], start: int = 0) -> None:
    """InputError that names a row where rows (an array, or CSR) would be others in the dtype that they are declared as.

    A wrong dtype alone is no error: float64 rows that are declared float32 are rounded as they are worked on, and whole
    numbers stay what they are. ``start`` numbers the first row.

    >>> require_declared(np.array([[0.0, 1.0]]), np.dtype("u1"))
    >>> require_declared(np.array([[0.5, 1.0]]), np.dtype("u1"))  # doctest: +ELLIPSIS
    Traceback (most recent call last):
        ...
    bigembed.errors.InputError: rows are declared as uint8, and hold other numbers as float64: 1, the first in row 0...
    """
    sparse = is_sparse(rows)
    given = rows.data if sparse else rows
    if given.dtype == dtype:
        return
    wrong = np.ones(given.shape, bool)
    if given.dtype.kind in "biufO":
        worked = as_worked(rows, work_dtype(dtype), start)
        expected = worked.data if sparse else worked
        with np.errstate(over="ignore", invalid="ignore"):
            declared = given.astype(dtype).astype(expected.dtype)
        wrong = (declared != expected) & ~(np.isnan(declared) & np.isnan(expected))
    if wrong.any():
        first = np.argwhere(wrong)[:1]
        row = rows_of_entries(first, rows.indptr if sparse else None)[0] + start
        raise InputError(
            f"rows are declared as {dtype}, and hold other numbers as {given.dtype}: {np.count_nonzero(wrong)}, the "
            f"first in row {row}, {given[tuple(first[0])]}. Where the Dask array is made, give the dtype of its blocks "
            f"(dtype= or meta=), or convert them: X.astype('{given.dtype}')"
        )


# ------------------------------------------------------------------------------------------------------ row blocks
# Canonical blocks as they are read: each stored chunk once along consecutive blocks, with what belongs to the rows.


@dataclass(frozen=True)
class RowBlock:
    """One canonical block, as a block function sees it."""

    number: int
    start: int
    rows: Any
    """(m, d) C-contiguous in the work dtype, or SciPy CSR rows."""
    aligned: Mapping[str, Array] = field(default_factory=dict)
    """The part of ``source.aligned`` that belongs to these rows."""

    @property
    def stop(self) -> int:
        """One past the last row."""
        return self.start + int(self.rows.shape[0])

    @property
    def weights(self) -> Array | None:
        """Weights of the rows, float64; None where all are one."""
        given = self.aligned.get("weights")
        return None if given is None else np.asarray(given, np.float64)


def row_blocks(source: RowSource, numbers: Sequence[int]) -> Iterator[RowBlock]:
    """The canonical blocks of these numbers, ascending, each stored chunk read once along consecutive ones."""
    n, rows = source.shape[0], source.block
    spans = [(number * rows, min((number + 1) * rows, n)) for number in numbers]
    columns = {name: windows(other, spans) for name, other in source.aligned.items()}
    for number, (start, _), part in zip(numbers, spans, windows(source, spans), strict=True):
        aligned = {name: next(parts) for name, parts in columns.items()}
        yield RowBlock(number, start, worked(part, source.work, start), aligned)


def row_block(source: RowSource, start: int, stop: int) -> RowBlock:
    """Any rows ``start:stop`` with their aligned vectors, as a block function sees them."""
    aligned = {name: other.read(start, stop) for name, other in source.aligned.items()}
    return RowBlock(start // source.block, start, source.matrix(start, stop), aligned)


def worked(rows: Any, dtype: np.dtype[Any], start: int = 0) -> Any:
    """Rows in the work dtype: C-contiguous, or CSR."""
    return as_worked(rows, dtype, start) if is_sparse(rows) else align_arrays(as_worked(rows, dtype, start))


def windows(source: RowSource, spans: Sequence[tuple[int, int]]) -> Iterator[Any]:
    """Rows of ascending spans through a window over whole stored chunks."""
    grain = source.grain
    held: Any = None
    first = 0
    for start, stop in spans:
        if grain == 1:
            yield source.read(start, stop)
            continue
        end = first + len(held) if held is not None else -1
        if not first <= start <= end:
            first, held, end = start, None, start
        if end < stop:
            upto = source.boundary(stop)
            fresh = source.read(end, upto)
            held = fresh if held is None or start == end else np.concatenate([held[start - first :], fresh])
            first = start
        assert held is not None
        yield held[start - first : stop - first]
        held, first = held[stop - first :], stop
        if not len(held):
            held = None
