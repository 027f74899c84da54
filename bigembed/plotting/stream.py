"""Rows to draw, read block by block, and the values of them that are read along."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

import numpy as np

from bigembed.blocks.rows import Array
from bigembed.errors import InputError
from bigembed.store.inputs.labels import no_label
from bigembed.store.rows.given import as_array, refuse_other

BLOCK = 262_144
MOST_CLASSES = 20
NO_CLASS = ""
WHAT = "values to draw"

Rows = Any
"""Rows to draw: an array (NumPy, Dask or Zarr), a sequence of blocks, or a function that returns
an iterator over blocks, called once for each pass."""


def pair_of(block: Array, first: int, axes: tuple[int, int]) -> Array:
    """The two columns to draw, float64; the row number where there is only one column."""
    if block.dtype.kind not in "buif":
        raise InputError(f"coordinates to draw have dtype {block.dtype}; numbers are needed")
    if block.shape[1] == 1:
        numbers = np.arange(first, first + len(block), dtype=np.float64)
        return np.stack([block[:, 0].astype(np.float64), numbers], axis=1)
    if max(axes) >= block.shape[1] or min(axes) < 0:
        raise InputError(f"scatter: axes {axes} asked for; there are columns 0 to {block.shape[1] - 1}")
    return block[:, list(axes)].astype(np.float64)


def numbered(coordinates: Rows) -> Iterator[tuple[int, Array]]:
    """Blocks with the number of their first row, in at most BLOCK rows; a vector is one column."""
    first = 0
    for given in blocks_of(coordinates):
        block = np.asarray(given)
        block = block[:, None] if block.ndim == 1 else block
        for start in range(0, len(block), BLOCK):
            part = block[start : start + BLOCK]
            yield first, part
            first += len(part)


def blocks_of(rows: Rows) -> Iterator[Array]:
    """Blocks of an array, of a sequence of arrays, or of what a function returns."""
    if callable(rows) and not hasattr(rows, "shape"):
        function: Callable[[], Iterable[Any]] = rows
        yield from (plain(block) for block in function())
    elif hasattr(rows, "shape"):
        for start in range(0, int(rows.shape[0]), BLOCK):
            yield plain(rows[start : start + BLOCK])
    elif _several(rows):
        yield from (plain(block) for block in rows)
    else:
        yield plain(rows)


def _several(rows: Any) -> bool:
    """Whether it is a sequence of arrays, and not one of numbers or of lists."""
    refuse_other(rows, WHAT)
    if not isinstance(rows, Sequence) or not len(rows) or isinstance(rows[0], list | tuple):
        return False
    return np.ndim(rows[0]) > 0


def plain(rows: Any) -> Array:
    """Numbers or text: objects (as pandas holds text) by what they say, without a value as :data:`NO_CLASS`."""
    values = as_array(rows, WHAT)
    if values.dtype == object and not any(isinstance(value, str) for value in values.ravel()):
        values = np.array(values.tolist())
    if values.dtype != object:
        return values
    return np.array([NO_CLASS if no_label(value) else str(value) for value in values.ravel()]).reshape(values.shape)


class Aligned:
    """Values handed out in pieces of any length, however their blocks are cut."""

    def __init__(self, values: Rows) -> None:
        self._blocks = blocks_of(values)
        self._held: Array = np.empty(0)

    def take(self, count: int) -> Array:
        """The next ``count`` values."""
        while len(self._held) < count:
            block = next(self._blocks, None)
            if block is None:
                raise InputError("scatter: fewer colors or labels than rows")
            self._held = np.concatenate([self._held, block.ravel()]) if len(self._held) else block.ravel()
        taken, self._held = self._held[:count], self._held[count:]
        return taken

    def finish(self) -> None:
        """Refuse values that are left over."""
        if len(self._held) or any(block.size for block in self._blocks):
            raise InputError("scatter: more colors or labels than rows")


def class_numbers(given: Array, classes: Array) -> Array:
    """Number of the class of each value; ``len(classes)`` for any other value."""
    position = np.minimum(np.searchsorted(classes, given), len(classes) - 1)
    return np.where(classes[position] == given, position, len(classes))
