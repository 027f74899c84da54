"""Sparse matrices of ``scipy.sparse.save_npz``: an archive of compressed arrays, each read from its first byte on."""

from __future__ import annotations

import zipfile
import zlib
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from math import prod
from typing import Any, ClassVar

import numpy as np
from scipy.sparse import csr_array

from bigembed.errors import BigembedError, DamagedError, InputError
from bigembed.rows.reader import Choice, handle, native, read_ranges
from bigembed.rows.sparse import NAMES
from bigembed.runtime.blocks import Array
from bigembed.store import AnyPath, at

# --------------------------------------------------------------------------------------------------------- archive
# What a file says of its matrix, and its arrays, for the graphs and the rows that are read of them.

PIECE = 1 << 19
"""Numbers that are passed over at a time."""

MEMBERS = {"csr": NAMES, "csc": NAMES, "coo": ("row", "col", "data")}
"""Names of the three arrays of a matrix, by its format."""


@dataclass(frozen=True)
class SavedMatrix:
    """What a file says of its matrix."""

    format: str
    """``"csr"``, ``"csc"`` or ``"coo"``."""
    shape: tuple[int, int] | None
    """None where the file gives something else than two numbers."""
    said: str
    """What it gives."""
    sizes: tuple[int, ...]
    """Of its three arrays, as :data:`MEMBERS` names them."""
    dtypes: tuple[np.dtype[Any], ...]


def saved_matrix(path: Any) -> SavedMatrix:
    """What the file says; InputError for an archive of other arrays."""
    with opened_npz(path) as archive:
        names = set(archive.namelist())
        if not {"format.npy", "shape.npy", "data.npy"} <= names:
            raise InputError(
                f"{path}: not a file of scipy.sparse.save_npz; it holds {', '.join(sorted(names)[:10])}. Compressed "
                'arrays cannot be read by blocks; save one with numpy.save("rows.npy", numpy.load("….npz")["NAME"])'
            )
        name, shape = _small(archive, "format"), _small(archive, "shape")
        kind = name.item().decode() if name.dtype.kind == "S" else str(name.item())
        if kind not in MEMBERS:
            raise InputError(
                f"{path}: a matrix in {kind} format; CSR, CSC and COO can be read in pieces. Save matrix.tocsr()"
            )
        with ExitStack() as stack:
            members = [stack.enter_context(Member(archive, name)) for name in MEMBERS[kind]]
    fine = shape.shape == (2,) and shape.dtype.kind in "iu" and (shape >= 0).all()
    size = (int(shape[0]), int(shape[1])) if fine else None
    said = str(shape.tolist() if shape.dtype.kind in "buif" else shape.dtype)
    return SavedMatrix(kind, size, said, tuple(one.size for one in members), tuple(one.dtype for one in members))


class Member:
    """An array of one dimension in an archive, read from its first number on."""

    def __init__(self, archive: zipfile.ZipFile, name: str) -> None:
        self.name = name
        self.file = archive.open(f"{name}.npy")
        try:
            shape, _, self.dtype = _header(self.file)
        except BaseException:
            self.file.close()
            raise
        self.size, self.left = prod(shape), prod(shape)
        if len(shape) != 1 or self.dtype.kind not in "buif":
            self.file.close()
            raise InputError(f"{archive.filename}: {name} holds {shape} {self.dtype}; numbers in one row are needed")

    def read(self, count: int) -> Array:
        """The next numbers, fewer where it ends."""
        count = min(count, self.left)
        data = self.file.read(count * self.dtype.itemsize)
        if len(data) != count * self.dtype.itemsize:
            raise DamagedError(f"{self.name}: ends before its {self.size} numbers")
        self.left -= count
        return np.frombuffer(data, self.dtype).astype(self.dtype.newbyteorder("="), copy=False)

    def skip(self, count: int) -> None:
        """Pass over the next numbers."""
        for low in range(0, count, PIECE):
            self.read(min(PIECE, count - low))

    def __enter__(self) -> Member:
        return self

    def __exit__(self, *_: Any) -> None:
        self.file.close()


def _small(archive: zipfile.ZipFile, name: str) -> Array:
    with archive.open(f"{name}.npy") as file:
        shape, _, dtype = _header(file)
        if prod(shape) > 16 or dtype.hasobject or dtype.itemsize > 64:
            raise InputError(f"{archive.filename}: {name} is {shape} {dtype}: not a file of scipy.sparse.save_npz")
        return np.frombuffer(file.read(prod(shape) * dtype.itemsize), dtype).reshape(shape)


def _header(file: Any) -> tuple[tuple[int, ...], bool, np.dtype[Any]]:
    version = np.lib.format.read_magic(file)
    read = np.lib.format.read_array_header_1_0 if version == (1, 0) else np.lib.format.read_array_header_2_0
    shape, fortran, dtype = read(file)
    return tuple(shape), fortran, dtype


@contextmanager
def opened_npz(path: Any) -> Iterator[zipfile.ZipFile]:
    """The archive, opened; DamagedError where it cannot be read."""
    try:
        with zipfile.ZipFile(handle(at(path))) as archive:
            yield archive
    except (BigembedError, FileNotFoundError, PermissionError):
        raise
    except (zipfile.BadZipFile, zlib.error, EOFError, KeyError, ValueError, OSError, SyntaxError) as error:
        raise DamagedError(f"{path}: not readable as .npz ({type(error).__name__}: {error})") from error


# ------------------------------------------------------------------------------------------------------------ rows
# The rows of a CSR matrix. One task copies each of its arrays, for a compressed one has no other beginning.


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
    known = zip(NAMES, found.sizes, found.dtypes, strict=True)
    vectors = tuple(NpzVector(str(path), name, (size,), native(dtype)) for name, size, dtype in known)
    return NpzRows(str(path), (n, d), vectors[2].dtype, entries, vectors)
