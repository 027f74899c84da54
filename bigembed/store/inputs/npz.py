"""Sparse matrices of SciPy (``save_npz``), streamed: an archive of compressed arrays, read from its first byte on."""

from __future__ import annotations

import zipfile
import zlib
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from math import prod
from typing import Any

import numpy as np

from bigembed.blocks.rows import Array
from bigembed.errors import BigembedError, DamagedError, InputError
from bigembed.store.inputs.edges import PIECE, Piece
from bigembed.store.rows.reader import handle
from bigembed.store.storage.paths import at, stored

MEMBERS = {"csr": ("indptr", "indices", "data"), "csc": ("indptr", "indices", "data"), "coo": ("row", "col", "data")}


@dataclass(frozen=True)
class NpzMatrix:
    """A square matrix in CSR, CSC or COO format. One task reads it, and holds a few pieces of it."""

    path: str
    format: str
    nodes: int
    entries: int

    @property
    def units(self) -> int:
        return self.nodes

    @property
    def grain(self) -> int:
        """All rows: a compressed array can only be read from its first byte on."""
        return max(1, self.nodes)

    def stream(self, start: int, stop: int) -> Iterator[Piece]:
        with _opened(self.path) as archive, ExitStack() as stack:
            first, second, data = (stack.enter_context(_Member(archive, name)) for name in MEMBERS[self.format])
            if self.format == "coo":
                for _ in range(0, self.entries, PIECE):
                    yield first.read(PIECE), second.read(PIECE), data.read(PIECE)
                return
            for row, near, value in _by_rows(self.path, first, second, data):
                yield (row, near, value) if self.format == "csr" else (near, row, value)

    def fingerprint(self) -> str:
        from hashlib import sha256

        return sha256(repr([(file.name, file.size, file.stamp) for file in stored(self.path)]).encode()).hexdigest()


def open_npz(path: Any) -> NpzMatrix:
    """The matrix of a file of ``scipy.sparse.save_npz``, which must be square."""
    with _opened(path) as archive:
        names = set(archive.namelist())
        if not {"format.npy", "shape.npy", "data.npy"} <= names:
            raise InputError(f"{path}: not a file of scipy.sparse.save_npz; it holds {', '.join(sorted(names)[:10])}")
        name, shape = _small(archive, "format"), _small(archive, "shape")
        kind = name.item().decode() if name.dtype.kind == "S" else str(name.item())
        if kind not in MEMBERS:
            raise InputError(
                f"{path}: a matrix in {kind} format; CSR, CSC and COO can be read in pieces. Save matrix.tocsr()"
            )
        if shape.shape != (2,) or shape.dtype.kind not in "iu" or not 0 <= shape[0] == shape[1]:
            raise InputError(f"{path}: shape {_shown(shape)}; the matrix of a graph is square, (n, n), n an integer")
        with ExitStack() as stack:
            sizes = [stack.enter_context(_Member(archive, name)).size for name in MEMBERS[kind]]
    n, expected = int(shape[0]), sizes[2]
    if sizes[1] != expected or sizes[0] != (expected if kind == "coo" else n + 1):
        raise DamagedError(f"{path}: {', '.join(MEMBERS[kind])} do not fit each other and its shape {(n, n)}")
    return NpzMatrix(str(path), kind, n, expected)


def _shown(shape: Array) -> str:
    """What a file gives as the shape of its matrix."""
    return str(shape.tolist() if shape.dtype.kind in "buif" else shape.dtype)


class _Member:
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

    def __enter__(self) -> _Member:
        return self

    def __exit__(self, *_: Any) -> None:
        self.file.close()


def _by_rows(path: str, pointers: _Member, near: _Member, value: _Member) -> Iterator[Piece]:
    """Edges of a matrix by rows, some rows at a time and of a long row some entries."""
    last = int(pointers.read(1)[0])
    if last != 0:
        raise DamagedError(f"{path}: its pointers begin at {last}")
    row = 0
    while pointers.left:
        ends = pointers.read(PIECE).astype(np.int64)
        if ends[0] < last or (np.diff(ends) < 0).any() or ends[-1] > near.size:
            raise DamagedError(f"{path}: its pointers are not ascending, or beyond its {near.size} entries")
        for low in range(last, int(ends[-1]), PIECE):
            high = min(int(ends[-1]), low + PIECE)
            rows = row + np.searchsorted(ends, np.arange(low, high), side="right")
            yield rows, near.read(high - low), value.read(high - low)
        row, last = row + len(ends), int(ends[-1])


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
def _opened(path: Any) -> Iterator[zipfile.ZipFile]:
    try:
        with zipfile.ZipFile(handle(at(path))) as archive:
            yield archive
    except (BigembedError, FileNotFoundError, PermissionError):
        raise
    except (zipfile.BadZipFile, zlib.error, EOFError, KeyError, ValueError, OSError, SyntaxError) as error:
        raise DamagedError(f"{path}: not readable as .npz ({type(error).__name__}: {error})") from error
