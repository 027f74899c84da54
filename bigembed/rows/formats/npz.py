"""Sparse rows of ``scipy.sparse.save_npz``: compressed arrays, each read by one task from its first byte on."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
from scipy.sparse import csr_array

from bigembed.errors import DamagedError, InputError
from bigembed.rows.edges import PIECE, Member, about_npz, opened_npz
from bigembed.rows.reader import Choice, read_ranges
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
            for low in range(0, start, PIECE):
                member.read(min(PIECE, start - low))
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
            for member in (near, value):
                for low in range(0, int(pointers[start]), PIECE):
                    member.read(min(PIECE, int(pointers[start]) - low))
            for low, high in read_ranges(start, stop, 1, d * self.dtype.itemsize):
                count = int(pointers[high] - pointers[low])
                columns, values = near.read(count), value.read(count)
                if count and not 0 <= columns.min() <= columns.max() < d:
                    raise DamagedError(f"{self.path}: rows {low}:{high} have columns out of range")
                yield csr_array((values, columns, pointers[low : high + 1] - pointers[low]), (high - low, d)).toarray()


def open_npz_rows(path: AnyPath, choice: Choice) -> NpzRows:
    """The rows of a file of ``scipy.sparse.save_npz`` in CSR format."""
    choice.only(path, "a sparse matrix of SciPy")
    with opened_npz(path) as archive:
        names = set(archive.namelist())
    if not {"format.npy", "shape.npy", "data.npy"} <= names:
        raise InputError(
            f"{path}: .npz holds several compressed arrays, which cannot be read by blocks. Save the "
            'one wanted with numpy.save("rows.npy", numpy.load("….npz")["NAME"]) and ingest that'
        )
    kind, shape, sizes = about_npz(path)
    if kind != "csr":
        raise InputError(f"{path}: a matrix in {kind} format; rows are read of CSR. Save matrix.tocsr()")
    n, d = (int(one) for one in shape)
    if sizes[0] != n + 1 or sizes[1] != sizes[2]:
        raise DamagedError(f"{path}: {', '.join(NAMES)} do not fit each other and its shape {(n, d)}")
    with opened_npz(path) as archive:
        vectors = []
        for name, size in zip(("indptr", "indices", "data"), sizes, strict=True):
            with Member(archive, name) as member:
                vectors.append(NpzVector(str(path), name, (size,), member.dtype.newbyteorder("=")))
    return NpzRows(str(path), (n, d), vectors[2].dtype, sizes[2], tuple(vectors))
