"""idx files, the format of MNIST, compressed or not: whole, or streamed as rows."""

from __future__ import annotations

import gzip
import zlib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from bigembed.blocks.rows import Array, block_rows
from bigembed.errors import DamagedError, InputError
from bigembed.store.paths import PathLike, at

TYPES = {8: "u1", 9: "i1", 11: ">i2", 12: ">i4", 13: ">f4", 14: ">f8"}


def read_idx(path: str | Path) -> Array:
    """The array of an idx file (the format of MNIST), compressed or not."""
    path = Path(path)
    content = path.read_bytes()
    if path.suffix == ".gz":
        content = gzip.decompress(content)
    if len(content) < 4 or content[:2] != b"\0\0" or content[2] not in TYPES:
        raise InputError(f"{path}: not an idx file; it starts with {content[:4]!r}")
    kind, dimensions = np.dtype(TYPES[content[2]]), content[3]
    head = 4 + 4 * dimensions
    shape = tuple(int(size) for size in np.frombuffer(content[4:head].ljust(head - 4, b"\0"), dtype=">u4"))
    expected = head + int(np.prod(shape, dtype=np.int64)) * kind.itemsize
    if len(content) != expected:
        raise InputError(f"{path}: {len(content)} bytes; its header promises {expected} for shape {shape}")
    return np.frombuffer(content, dtype=kind, offset=head).reshape(shape)


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
                    yield (np.frombuffer(data, self.dtype).reshape(count, -1).astype(self.dtype.newbyteorder("=")))
            except (EOFError, OSError, zlib.error) as error:
                raise DamagedError(f"{self.path}: shorter than its header says, or damaged ({error})") from error


def open_idx(path: Path) -> IdxReader:
    """The items of an idx file as rows."""
    with _open_bytes(path) as file:
        magic = file.read(4)
        sizes = np.frombuffer(file.read(4 * magic[3]), ">u4").astype(int).tolist()
    if len(sizes) != magic[3]:
        raise DamagedError(f"{path}: ends within its header")
    if len(sizes) < 2:
        raise InputError(
            f"{path}: one number an item (labels?), shape {tuple(sizes)}; rows need at least one more axis"
        )
    shape = (sizes[0], int(np.prod(sizes[1:])))
    grain = max(1, sizes[0]) if path.suffix == ".gz" else 1
    return IdxReader(str(path), shape, np.dtype(TYPES[magic[2]]), 4 + 4 * magic[3], grain)


def is_idx(path: PathLike) -> bool:
    """Whether the file begins as an idx file does; none in an object store."""
    place = at(path)
    if not isinstance(place, Path):
        return False
    try:
        with _open_bytes(place) as file:
            magic = file.read(4)
    except OSError:
        return False
    return len(magic) == 4 and magic[:2] == b"\0\0" and magic[2] in TYPES and magic[3] > 0


def _open_bytes(path: Path) -> Any:
    return gzip.open(path, "rb") if path.suffix == ".gz" else open(path, "rb")
