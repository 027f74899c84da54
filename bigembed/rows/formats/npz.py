"""Sparse rows of ``scipy.sparse.save_npz``: compressed arrays, each read by one task from its first byte on."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
from scipy.sparse import csr_array

from bigembed.errors import DamagedError, InputError
from bigembed.rows.npz import MEMBERS, PIECE, Member, opened_npz, saved_matrix
from bigembed.rows.reader import Choice, native, read_ranges
from bigembed.rows.sparse import NAMES
from bigembed.runtime.blocks import Array
from bigembed.store import AnyPath


@dataclass(frozen=True)
class NpzVector:
    """One of the arrays of a matrix."""

    path: str
    name: str
    shape: tuple[int, ...]
    dtype: np.dtype[Any]

    @property
    def grain(self) -> int:
        """All of it."""
        return max(1, self.shape[0])

    def stream(self, start: int, stop: int) -> Iterator[Array]:
        with opened_npz(self.path) as archive, Member(archive, self.name) as member:
            member.skip(start)
            for low in range(start, stop, PIECE):
                yield member.read(min(PIECE, stop - low))


@dataclass(frozen=True)
class NpzRows:
    """The rows of a CSR matrix; streamed dense, or copied array by array."""

    path: str
    shape: tuple[int, int]
    dtype: np.dtype[Any]
    entries: int
    vectors: tuple[NpzVector, ...]
    row_ids: ClassVar = None

    @property
    def grain(self) -> int:
        """All rows."""
        return self.shape[0]

    def parts(self) -> dict[str, NpzVector]:
        """Readers of the three vectors that the rows are made of."""
        return dict(zip(NAMES, self.vectors, strict=True))

    def stream(self, start: int, stop: int) -> Iterator[Array]:
        n, d = self.shape
        pointers = np.concatenate(list(self.vectors[0].stream(0, n + 1))).astype(np.int64)
        if pointers[0] or (np.diff(pointers) < 0).any() or pointers[-1] > self.entries:
            raise DamagedError(f"{self.path}: its pointers are not ascending, or beyond its {self.entries} entries")
        with opened_npz(self.path) as archive, Member(archive, "indices") as near, Member(archive, "data") as value:
            near.skip(int(pointers[start]))
            value.skip(int(pointers[start]))
            for low, high in read_ranges(start, stop, 1, d * self.dtype.itemsize):
                count = int(pointers[high] - pointers[low])
                columns, values = near.read(count), value.read(count)
                if count and not 0 <= columns.min() <= columns.max() < d:
                    raise DamagedError(f"{self.path}: rows {low}:{high} have columns out of range")
                yield csr_array((values, columns, pointers[low : high + 1] - pointers[low]), (high - low, d)).toarray()


def open_npz_rows(path: AnyPath, choice: Choice) -> NpzRows:
    """The rows of a file of ``scipy.sparse.save_npz`` in CSR format."""
    choice.only(path, "a sparse matrix of SciPy")
    found = saved_matrix(path)
    if found.format != "csr":
        raise InputError(f"{path}: a matrix in {found.format} format; rows are read of CSR. Save matrix.tocsr()")
    if found.shape is None:
        raise InputError(f"{path}: shape {found.said}; rows must be a 2-dimensional array (n, d)")
    (n, d), (pointers, columns, entries) = found.shape, found.sizes
    if pointers != n + 1 or columns != entries:
        raise DamagedError(f"{path}: {', '.join(NAMES)} do not fit each other and its shape {(n, d)}")
    known = zip(MEMBERS["csr"], found.sizes, found.dtypes, strict=True)
    vectors = tuple(NpzVector(str(path), name, (size,), native(dtype)) for name, size, dtype in known)
    return NpzRows(str(path), (n, d), vectors[2].dtype, entries, vectors)
