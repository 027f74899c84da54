"""Binary files of benchmarks: idx, the format of MNIST, and fvecs, bvecs and ivecs."""

from __future__ import annotations

import gzip
import zlib
from collections.abc import Iterator
from dataclasses import dataclass
from math import prod
from pathlib import Path
from typing import Any

import numpy as np

from bigembed.errors import DamagedError, InputError
from bigembed.rows.reader import Choice, read_ranges
from bigembed.runtime.blocks import Array, block_rows
from bigembed.store import AnyPath, PathLike, at
from bigembed.store.files import reading_foreign, refuse_unpacked, require_regular

# ------------------------------------------------------------------------------------------------------------- idx
# idx files, the format of MNIST, compressed or not: whole, or streamed as rows.

TYPES = {8: "u1", 9: "i1", 11: ">i2", 12: ">i4", 13: ">f4", 14: ">f8"}


def read_idx(path: str | Path) -> Array:
    """The array of an idx file (the format of MNIST), compressed or not."""
    path = Path(path)
    require_regular(path)
    with reading_foreign(path), _open_bytes(path) as file:
        shape, kind = _header(path, file)
        size = prod(shape) * kind.itemsize
        refuse_unpacked(path, "an array", shape, kind.itemsize)
        content = file.read(size + 1)
    if len(content) != size:
        raise InputError(f"{path}: {len(content)} bytes or more; its header promises {size} for shape {shape}")
    return np.frombuffer(content, dtype=kind).reshape(shape)


def _header(path: Path, file: Any) -> tuple[tuple[int, ...], np.dtype[Any]]:
    """Shape and dtype; the file is then at the first number."""
    magic = file.read(4)
    if len(magic) < 4 or magic[:2] != b"\0\0" or magic[2] not in TYPES or not magic[3]:
        raise InputError(f"{path}: not an idx file; it starts with {magic!r}")
    sizes = file.read(4 * magic[3])
    if len(sizes) != 4 * magic[3]:
        raise DamagedError(f"{path}: ends within its header")
    return tuple(np.frombuffer(sizes, ">u4").tolist()), np.dtype(TYPES[magic[2]])


@dataclass(frozen=True)
class IdxReader:
    """Rows of an idx file: item i, flattened. A compressed one is read by one task, from its start."""

    path: str
    shape: tuple[int, int]
    dtype: np.dtype[Any]
    head: int
    grain: int = 1

    def stream(self, start: int, stop: int) -> Iterator[Array]:
        row = self.shape[1] * self.dtype.itemsize
        step = block_rows(self.shape[1], self.dtype.itemsize)
        with _open_bytes(Path(self.path)) as file:
            try:
                file.seek(self.head + start * row)
                for first in range(start, stop, step):
                    count = min(step, stop - first)
                    data = file.read(count * row)
                    if len(data) != count * row:
                        raise EOFError(f"ends in the rows {first}:{first + count}")
                    if first + count == self.shape[0] and file.read(1):  # (at its end a .gz is held against its CRC)
                        raise EOFError("goes on behind its last row")
                    yield np.frombuffer(data, self.dtype).reshape(count, -1).astype(self.dtype.newbyteorder("="))
            except (EOFError, OSError, zlib.error) as error:
                raise DamagedError(f"{self.path}: not as long as its header says, or damaged ({error})") from error


def open_idx(path: Path) -> IdxReader:
    """The items of an idx file as rows."""
    with reading_foreign(path), _open_bytes(path) as file:
        sizes, dtype = _header(path, file)
    if len(sizes) < 2:
        raise InputError(f"{path}: one number an item (labels?), shape {sizes}; rows need at least one more axis")
    shape, head = (sizes[0], prod(sizes[1:])), 4 + 4 * len(sizes)
    packed = path.suffix == ".gz"
    if not packed and path.stat().st_size != head + prod(shape) * dtype.itemsize:
        raise DamagedError(
            f"{path}: {path.stat().st_size:,} bytes; its header promises {head + prod(shape) * dtype.itemsize:,} for "
            f"shape {sizes}"
        )
    return IdxReader(str(path), shape, dtype, head, max(1, shape[0]) if packed else 1)


def is_idx(path: PathLike) -> bool:
    """Whether the file begins as an idx file does; none in an object store."""
    place = at(path)
    if not isinstance(place, Path) or not place.is_file():
        return False
    try:
        with _open_bytes(place) as file:
            magic = file.read(4)
    except (OSError, EOFError, zlib.error):
        return False
    return len(magic) == 4 and magic[:2] == b"\0\0" and magic[2] in TYPES and magic[3] > 0


def _open_bytes(path: Path) -> Any:
    return gzip.open(path, "rb") if path.suffix == ".gz" else open(path, "rb")


# ----------------------------------------------------------------------------------------------------------- fvecs
# fvecs, bvecs and ivecs files (the format of the nearest-neighbor benchmarks): before each row stands its length.

VECTOR_TYPES: dict[str, np.dtype[Any]] = {
    ".fvecs": np.dtype("<f4"),
    ".bvecs": np.dtype("u1"),
    ".ivecs": np.dtype("<i4"),
}
LENGTH = np.dtype("<i4")


@dataclass(frozen=True)
class VecsReader:
    """Rows of such a file; the length before each is compared with the first one."""

    path: str
    shape: tuple[int, int]
    dtype: np.dtype[Any]
    grain: int = 1

    def stream(self, start: int, stop: int) -> Iterator[Array]:
        d = self.shape[1]
        row = np.dtype([("length", LENGTH), ("values", self.dtype, (d,))])
        with at(self.path).open("rb") as file:
            file.seek(start * row.itemsize)
            for low, high in read_ranges(start, stop, 1, row.itemsize):
                yield self._values(file.read((high - low) * row.itemsize), row, low, high)

    def _values(self, data: bytes, row: np.dtype[Any], low: int, high: int) -> Array:
        if len(data) != (high - low) * row.itemsize:
            raise DamagedError(f"{self.path}: ends before row {high}")
        part = np.frombuffer(data, row)
        wrong = np.flatnonzero(part["length"] != self.shape[1])
        if len(wrong):
            raise DamagedError(
                f"{self.path}: row {low + wrong[0]} says that it has {part['length'][wrong[0]]} entries, the first one "
                f"has {self.shape[1]}; all rows must be of one length"
            )
        return np.ascontiguousarray(part["values"])


def open_vecs(path: AnyPath, choice: Choice) -> VecsReader:
    """The rows of a file of this name."""
    choice.only(path, path.suffix[1:])
    dtype, size = VECTOR_TYPES[path.suffix], path.stat().st_size
    with path.open("rb") as file:
        head = file.read(LENGTH.itemsize)
    d = int(np.frombuffer(head, LENGTH)[0]) if len(head) == LENGTH.itemsize else 0
    row = LENGTH.itemsize + d * dtype.itemsize
    if d < 1 or row > size:
        raise InputError(f"{path}: not a {path.suffix[1:]} file: {size} bytes, a first row of {d} entries")
    if size % row:
        raise DamagedError(f"{path}: {size} bytes are not a whole number of rows of {d} entries ({row} bytes each)")
    return VecsReader(str(path), (size // row, d), dtype)
