"""A data set as a function from row numbers to rows, so that any number of rows needs little memory."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any
from zlib import crc32

import numpy as np

from bigembed.blocks.rows import Array, block_rows, bounds
from bigembed.errors import InputError

GRANULE = 4096

Truth = dict[str, Array]
"""What is known of each row: arrays of one entry a row (label, arc length, height, angle, …)."""

BlockFunction = Callable[..., tuple[Array, Truth]]
"""``function(start, stop, rng, n=..., **parameters) -> (rows, truth)``, pure and importable."""


@dataclass(frozen=True)
class Dataset:
    """Rows that are made (or read) when they are asked for. Small and picklable: it holds no rows.

    Random rows are drawn in granules of 4096 rows, each from its own stream (seed, name, granule):
    a row is a function of the seed and its number, whatever the blocks in which it is asked for,
    and of n only for the sets that are laid out regularly.
    """

    name: str
    shape: tuple[int, int]
    function: BlockFunction
    seed: int = 0
    dtype: str = "float32"
    parameters: Mapping[str, Any] = field(default_factory=dict)
    granule: int | None = GRANULE

    def __post_init__(self) -> None:
        n, d = self.shape
        if n < 1 or d < 1:
            raise InputError(f"data set {self.name!r}: n gives shape {self.shape}; both numbers must be at least 1")
        if self.seed < 0:
            raise InputError(f"data set {self.name!r}: seed {self.seed}; it must be 0 or more")
        if not _is_floating(self.dtype):
            raise InputError(f"data set {self.name!r}: dtype {self.dtype!r}; it must be a floating-point type")

    def __len__(self) -> int:
        return self.shape[0]

    def rows(self, start: int = 0, stop: int | None = None) -> Array:
        """Rows start to stop, shape (stop − start, d)."""
        return self.draw(start, stop)[0]

    def truth(self, start: int = 0, stop: int | None = None) -> Truth:
        """What is known of rows start to stop."""
        return self.draw(start, stop)[1]

    def draw(self, start: int = 0, stop: int | None = None) -> tuple[Array, Truth]:
        """Rows start to stop, and what is known of them."""
        n = self.shape[0]
        stop = n if stop is None else stop
        if not 0 <= start <= stop <= n:
            raise InputError(f"data set {self.name!r}: rows {start} to {stop} asked for; it has rows 0 to {n}")
        if self.granule is None:
            return self._typed(*self.function(start, stop, self._rng(0), n=n, **self.parameters))
        first = start - start % self.granule
        parts = [self._part(begin, start, stop) for begin in range(first, max(stop, first + 1), self.granule)]
        truth = {key: np.concatenate([part[1][key] for part in parts]) for key in parts[0][1]}
        return np.concatenate([part[0] for part in parts]), truth

    def blocks(self, rows: int | None = None) -> Iterator[tuple[int, int, Array]]:
        """(start, stop, rows) block by block; ``rows`` a block, by default the canonical number."""
        rows = rows or block_rows(self.shape[1], np.dtype(self.dtype).itemsize)
        for start, stop in bounds(self.shape[0], rows):
            yield start, stop, self.rows(start, stop)

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> Array:
        rows = self.rows()
        return rows if dtype is None else rows.astype(dtype, copy=False)

    def _part(self, begin: int, start: int, stop: int) -> tuple[Array, Truth]:
        """The rows of one granule that lie in start to stop. The whole granule is drawn."""
        assert self.granule is not None
        rng = self._rng(begin // self.granule)
        rows, truth = self.function(begin, begin + self.granule, rng, n=self.shape[0], **self.parameters)
        keep = slice(max(start - begin, 0), max(stop - begin, 0))
        return self._typed(rows[keep], {key: value[keep] for key, value in truth.items()})

    def _typed(self, rows: Array, truth: Truth) -> tuple[Array, Truth]:
        return np.ascontiguousarray(rows, dtype=self.dtype), truth

    def _rng(self, granule: int) -> np.random.Generator:
        return np.random.default_rng([self.seed, crc32(self.name.encode()), granule])


def _is_floating(dtype: str) -> bool:
    try:
        return bool(np.issubdtype(np.dtype(dtype), np.floating))
    except (TypeError, ValueError, SyntaxError):  # (NumPy parses the text)
        return False
