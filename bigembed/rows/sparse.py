"""Sparse rows that a block task can read by range: SciPy CSR in memory, and CSR groups in Zarr.

A CSR group holds ``indptr``, ``indices`` and ``data`` (the layout of AnnData, encoding ``csr_matrix``). Several
of them in a row are one source, so the blocks of a Dask array are written each by its own task.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import cached_property, partial
from hashlib import sha256
from typing import Any

import numpy as np
from scipy import sparse

from bigembed.errors import DamagedError, InputError, MissingPathError
from bigembed.rows import RowSource, as_worked, require_declared, work_dtype
from bigembed.rows.opening import open_zarr
from bigembed.runtime.blocks import BLOCK_BYTES, MAX_BLOCK_ROWS, Array, bounds, offsets
from bigembed.runtime.executors import compute_together
from bigembed.store import AnyPath, at, metadata, remove, requests
from bigembed.store.arrays import cached, read_array, reading, write_array, write_npy, zarr_group
from bigembed.store.attributes import columns_of, prove_group
from bigembed.store.files import read_sealed, reading_foreign, require_files, sealed, write_json

ENTRY_BYTES = 12
"""A stored entry as it is worked on: a value and a column, with a share of the row pointers."""
NAMES = ("indptr", "indices", "data")
COPY = "copy.json"
"""Written last beside the groups of a copy: which rows they are of, and how many entries each has."""
WIDEST = 1 << 40
"""Columns of sparse rows at the most."""


@dataclass(frozen=True)
class SparseSource(RowSource):
    """CSR rows: of a matrix of this process (``held``), or of the groups ``parts`` (path, rows), one after another."""

    held: Any = None
    parts: tuple[tuple[str, int], ...] = ()
    entries: int = 0
    """Stored entries in all."""

    def read(self, start: int, stop: int) -> Any:
        """Rows ``start:stop`` as a CSR array."""
        if self.held is not None:
            return sparse.csr_array(self.held[start:stop])
        low, high = self._groups(start, stop)
        found = []
        for (path, rows), first in zip(self.parts[low:high], self.starts[low:high].tolist(), strict=True):
            begin, end = max(start + self.offset - first, 0), min(stop + self.offset - first, rows)
            if begin < end:
                found.append(read_csr(path, begin, end, self.width, self.dtype))
        if not found:
            return sparse.csr_array((0, self.width), dtype=self.dtype)
        return found[0] if len(found) == 1 else sparse.csr_array(sparse.vstack(found, format="csr"))

    def part(self, start: int, stop: int) -> RowSource:
        """With the groups of these rows only: the paths of all would go to the task of every block."""
        if len(self.parts) <= 1:
            return self
        low, high = self._groups(start, stop)
        return replace(self, parts=self.parts[low:high], offset=self.offset - int(self.starts[low]))

    @cached_property
    def starts(self) -> Array:
        """Where the rows of each group begin, those of the first at 0, and how many rows there are."""
        return offsets(rows for _, rows in self.parts)

    def _groups(self, start: int, stop: int) -> tuple[int, int]:
        """First and one past the last group that holds some of the rows ``start:stop``."""
        low = int(np.searchsorted(self.starts, start + self.offset, "right")) - 1
        return low, int(np.searchsorted(self.starts, stop + self.offset))

    def matrix(self, start: int, stop: int) -> Any:
        """Rows ``start:stop`` in the work dtype."""
        return as_worked(self.read(start, stop), self.work, start)

    @property
    def sparse(self) -> bool:
        return True

    @property
    def features(self) -> tuple[str, ...]:
        return columns_of(self.parts[0][0]) if len(self.parts) == 1 else ()

    @property
    def grain(self) -> int:
        return 1

    @property
    def row_bytes(self) -> int:
        """Bytes of a row on average."""
        return csr_row_bytes(self.entries, self.shape[0])

    @property
    def block(self) -> int:
        """Rows of a canonical block: about 32 MiB of entries on average."""
        return csr_block_rows(self.row_bytes)

    def fingerprint(self) -> str:
        digest = sha256(repr((self.shape, str(self.dtype), self.entries)).encode())
        if self.held is not None:
            for name in NAMES:
                digest.update(np.ascontiguousarray(getattr(self.held, name)).tobytes())
        for path, rows in self.parts:
            digest.update(RowSource((rows,), self.dtype, path=path).fingerprint().encode())
        for name, other in sorted(self.aligned.items()):
            digest.update(f"{name} {other.fingerprint()}".encode())
        return digest.hexdigest()


def csr_row_bytes(entries: int, n: int) -> int:
    """Bytes of a CSR row on average, of n with these entries."""
    return ENTRY_BYTES * (1 + entries // max(1, n))


def csr_block_rows(row_bytes: int) -> int:
    """Rows of a canonical block of CSR rows: about 32 MiB of entries on average."""
    return int(min(MAX_BLOCK_ROWS, max(1, BLOCK_BYTES // row_bytes)))


def held_source(matrix: Any) -> SparseSource:
    """The rows of a SciPy sparse matrix of this process; formats other than CSR are converted once."""
    rows = sparse.csr_array(matrix)
    if rows.dtype.kind == "c":
        raise InputError("Complex data not supported: rows must be real numbers")
    work_dtype(rows.dtype)
    if not rows.has_canonical_format:
        rows = rows.copy()
        rows.sum_duplicates()
    return SparseSource(tuple(rows.shape), np.dtype(rows.dtype), held=rows, entries=int(rows.nnz))


def group_source(path: AnyPath) -> SparseSource:
    """The rows of a CSR group in Zarr."""
    with requests.asking(path), reading_foreign(path):
        return _group_source(path)


def _group_source(path: AnyPath) -> SparseSource:
    require_files(path, deep=True)
    group = zarr_group(path)
    attributes: dict[str, Any] = dict(group.attrs)
    missing = [name for name in NAMES if name not in group]
    if missing or attributes.get("encoding-type", "csr_matrix") != "csr_matrix":
        raise InputError(
            f"{path}: a group that is {attributes.get('encoding-type', 'not a CSR matrix')}"
            f"{f', without {missing}' if missing else ''}. Give a Zarr array, or a group of indptr, indices and data "
            "by rows (encoding-type csr_matrix; of a csc_matrix write matrix.tocsr())"
        )
    prove_group(path)
    indptr, indices, data = (open_zarr(path / name) for name in NAMES)
    if any(part.ndim != 1 for part in (indptr, indices, data)) or indices.shape != data.shape or not indptr.size:
        raise DamagedError(f"{path}: indices and data have different lengths, or no rows")
    if indptr.dtype.kind not in "iu" or indices.dtype.kind not in "iu":
        raise DamagedError(f"{path}: indptr and indices are {indptr.dtype} and {indices.dtype}; they are integers")
    n, shape = int(indptr.shape[0]) - 1, attributes.get("shape")
    if not isinstance(shape, list) or len(shape) != 2 or shape[0] != n or not 0 < shape[1] <= WIDEST:
        raise InputError(f"{path}: its attribute 'shape' is {shape}; it must be [{n}, number of columns]")
    dtype = np.dtype(data.dtype)
    work_dtype(dtype)
    return SparseSource((n, int(shape[1])), dtype, parts=((str(path), n),), entries=int(data.shape[0]))


def is_csr_group(path: AnyPath) -> bool:
    """Whether the path is a Zarr group, not an array."""
    return any((path / name).exists() for name in NAMES) or (path / ".zgroup").exists()


def read_csr(path: str, start: int, stop: int, columns: int, dtype: Any) -> Any:
    """Rows ``start:stop`` of a CSR group."""
    with reading(path, f"rows {start}:{stop}"):
        pointers = read_array(f"{path}/indptr", start, stop + 1).astype(np.int64)
        low, high, entries = int(pointers[0]), int(pointers[-1]), cached(f"{path}/data").shape[0]
        if not 0 <= low <= high <= entries:
            raise ValueError(f"its pointers are not between 0 and {entries}")
        column = read_array(f"{path}/indices", low, high)
        values = read_array(f"{path}/data", low, high).astype(dtype)
    if (np.diff(pointers) < 0).any() or (len(column) and (column.min() < 0 or column.max() >= columns)):
        raise DamagedError(f"{path}: rows {start}:{stop} have pointers or columns out of range (0 to {columns - 1})")
    rows = sparse.csr_array((values, column, pointers - low), shape=(stop - start, columns))
    rows.sum_duplicates()
    return rows


def write_csr(path: AnyPath, matrix: Any) -> int:
    """Write a CSR group, checksummed; the number of its entries."""
    rows = sparse.csr_array(matrix)
    metadata.make_group(path, {"encoding-type": "csr_matrix", "shape": list(rows.shape)}, overwrite=True)
    write_array(path / "indptr", rows.indptr.astype(np.int64))
    write_array(path / "indices", rows.indices)
    write_array(path / "data", rows.data)
    return int(rows.nnz)


def stored(source: SparseSource, path: AnyPath) -> SparseSource:
    """The rows copied into groups at ``path``, for tasks in other processes; left as they are where they are there."""
    spans = bounds(source.shape[0], source.block)

    def write() -> list[int]:
        return [write_csr(path / str(number), source.read(*span)) for number, span in enumerate(spans)]

    _write_once(path, source.fingerprint(), len(spans), write)
    parts = tuple((str(path / str(number)), stop - start) for number, (start, stop) in enumerate(spans))
    return SparseSource(source.shape, source.dtype, parts=parts, entries=source.entries)


def dask_source(X: Any, path: AnyPath) -> SparseSource:
    """The rows of a Dask array of SciPy sparse blocks, each row of blocks written by its own task, once."""
    from dask.delayed import delayed

    rows = [int(count) for count in X.chunks[0]]

    def write() -> list[int]:
        task, grid = partial(delayed(_write_blocks, pure=False), dtype=X.dtype), X.to_delayed()
        starts = offsets(rows).tolist()
        return compute_together(
            [task(str(path / str(number)), list(blocks), start=starts[number]) for number, blocks in enumerate(grid)],
            "rows",
        )

    entries = _write_once(path, X.name, len(rows), write)
    parts = tuple((str(path / str(number)), count) for number, count in enumerate(rows))
    work_dtype(X.dtype)
    return SparseSource(tuple(map(int, X.shape)), np.dtype(X.dtype), parts=parts, entries=sum(entries))


def is_stored(source: SparseSource, path: AnyPath) -> bool:
    """Whether the groups at ``path`` are copies of these rows."""
    return _entries_there(path, source.fingerprint(), len(bounds(source.shape[0], source.block))) is not None


def _entries_there(path: AnyPath, rows: str, count: int) -> list[int] | None:
    with suppress(DamagedError, MissingPathError):
        known = read_sealed(path / COPY)
        if known["rows"] == rows and all((path / str(number) / "zarr.json").is_file() for number in range(count)):
            return list(known["entries"])
    return None


def _write_once(path: AnyPath, rows: str, count: int, write: Callable[[], list[int]]) -> list[int]:
    """Write ``count`` groups of rows unless all are there: by unchanged files a later fit knows the rows again."""
    if (there := _entries_there(path, rows, count)) is not None:
        return there
    remove(path)
    path.mkdir(parents=True)
    entries = write()
    write_json(path / COPY, sealed({"rows": rows, "entries": entries}))
    return entries


def _write_blocks(path: str, blocks: Sequence[Any], *, dtype: np.dtype[Any], start: int) -> int:
    rows = sparse.csr_array(blocks[0] if len(blocks) == 1 else sparse.hstack(blocks, format="csr"))
    require_declared(rows, dtype, start)
    return write_csr(at(path), rows)


# ------------------------------------------------------------------------------------------------------------ copies
# Copies of the rows of this process that tasks of other processes read, found again while they are as they were.


def keep_npy(path: AnyPath, array: Array) -> None:
    """Write an array unless it is there: by an unchanged file a later fit knows the rows again."""
    if not is_kept(path, array):
        write_npy(path, array)


def is_kept(path: AnyPath, array: Array) -> bool:
    """Whether a file holds this array, to the last bit."""
    with suppress(OSError, ValueError, EOFError):
        there = np.load(str(path), mmap_mode="r")
        spans = bounds(len(array), max(1, BLOCK_BYTES // max(1, array.nbytes // max(1, len(array)))))
        return (there.shape, there.dtype) == (array.shape, array.dtype) and all(
            there[start:stop].tobytes() == array[start:stop].tobytes() for start, stop in spans
        )
    return False


def kept_rows(source: RowSource, scratch: AnyPath, name: str = "input") -> RowSource:
    """The copy of these rows that a fit in other processes has left in its scratch; without one, the rows themselves.

    Nothing is written; by the copy a plan tells whether stages are those of an earlier fit.
    """
    aligned = {label: kept_rows(one, scratch, label) for label, one in source.aligned.items()}
    if any(aligned[label] is not one for label, one in source.aligned.items()):
        source = replace(source, aligned=aligned)
    if isinstance(source, SparseSource):
        path = scratch / f"{name}-csr"
        if source.held is None or not is_stored(source, path):
            return source
        return replace(stored(source, path), aligned=source.aligned, named=source.named)
    path = scratch / f"{name}.npy"
    if source.array is None or source.array.dtype == object or not is_kept(path, source.array):
        return source
    return replace(source, array=None, path=str(path))
