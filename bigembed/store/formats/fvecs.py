"""fvecs, bvecs and ivecs files (the format of the nearest-neighbor benchmarks): before each row stands its length."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

from bigembed.blocks.rows import Array
from bigembed.errors import DamagedError, InputError
from bigembed.store.rows.reader import Choice, read_ranges
from bigembed.store.storage.paths import AnyPath, at

TYPES: dict[str, np.dtype[Any]] = {".fvecs": np.dtype("<f4"), ".bvecs": np.dtype("u1"), ".ivecs": np.dtype("<i4")}
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
    dtype, size = TYPES[path.suffix], path.stat().st_size
    with path.open("rb") as file:
        head = file.read(LENGTH.itemsize)
    d = int(np.frombuffer(head, LENGTH)[0]) if len(head) == LENGTH.itemsize else 0
    row = LENGTH.itemsize + d * dtype.itemsize
    if d < 1 or row > size:
        raise InputError(f"{path}: not a {path.suffix[1:]} file: {size} bytes, a first row of {d} entries")
    if size % row:
        raise DamagedError(f"{path}: {size} bytes are not a whole number of rows of {d} entries ({row} bytes each)")
    return VecsReader(str(path), (size // row, d), dtype)
