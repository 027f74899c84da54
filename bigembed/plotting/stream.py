"""Rows read block by block: how blocks are walked, limits, classes and pixel counts."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

from bigembed.blocks.rows import Array
from bigembed.errors import InputError
from bigembed.plotting.canvas import padded
from bigembed.store.labels import no_label

PIXELS = 640
SAMPLE = 100_000
BLOCK = 262_144
MOST_CLASSES = 20
NO_CLASS = ""

Rows = Any
"""Rows to draw: an array (NumPy, Dask or Zarr), a sequence of blocks, or a function that returns
an iterator over blocks, called once for each pass."""


@dataclass(frozen=True)
class Extent:
    """What one pass over the coordinates tells: count, columns and the limits of the picture."""

    count: int
    columns: int
    x: tuple[float, float]
    y: tuple[float, float]
    outside: int


def survey(coordinates: Rows, axes: tuple[int, int]) -> Extent:
    """Limits from a sample of the rows: all of them, or without the few far ones that would hide the rest."""
    sample: list[Array] = []
    count, columns, step = 0, 0, 1
    low, high = np.full(2, np.inf), np.full(2, -np.inf)
    for first, block in numbered(coordinates):
        columns = block.shape[1]
        pair = pair_of(block, first, axes)
        low, high = np.minimum(low, pair.min(axis=0)), np.maximum(high, pair.max(axis=0))
        sample.append(pair[(-first) % step :: step].copy())  # a view would keep the block
        count += len(pair)
        while sum(map(len, sample)) > SAMPLE:
            step *= 2
            sample = [np.concatenate(sample)[::2].copy()]
    if count == 0:
        raise InputError("scatter: there are no rows to draw")
    if not (np.isfinite(low).all() and np.isfinite(high).all()):
        raise InputError("scatter: the coordinates hold NaN or infinite values")
    points = np.concatenate(sample)
    inner = np.quantile(points, [0.001, 0.999], axis=0)
    wide = (high - low) > 3.0 * (inner[1] - inner[0])
    degenerate = inner[1] <= inner[0]
    left, right = np.where(wide & ~degenerate, inner, np.stack([low, high]))
    limits = [padded(float(a), float(b)) for a, b in zip(left, right, strict=True)]
    outside = _count_outside(coordinates, axes, limits) if wide.any() else 0
    return Extent(count, columns, limits[0], limits[1], outside)


def _count_outside(coordinates: Rows, axes: tuple[int, int], limits: list[tuple[float, float]]) -> int:
    low, high = np.array(limits).T
    blocks = (pair_of(block, first, axes) for first, block in numbered(coordinates))
    return sum(int(np.any((pair < low) | (pair > high), axis=1).sum()) for pair in blocks)


def rasterize(
    coordinates: Rows, values: Rows, classes: Array | None, extent: Extent, axes: tuple[int, int], layers: int
) -> tuple[Array, float, float]:
    """Layers of the grid: the count of each class, or the count and the sum of the values."""
    grid = np.zeros((layers, PIXELS * PIXELS))
    low, high = np.inf, -np.inf
    stream = None if values is None else Aligned(values)
    for first, block in numbered(coordinates):
        pair = pair_of(block, first, axes)
        cells, inside = _cells(pair, extent)
        if stream is None:
            grid[0] += np.bincount(cells, minlength=PIXELS * PIXELS)
            continue
        given = stream.take(len(pair))[inside]
        if classes is not None:
            flat = class_numbers(given, classes) * (PIXELS * PIXELS) + cells
            grid += np.bincount(flat, minlength=grid.size).reshape(grid.shape)
        elif len(given):
            grid[0] += np.bincount(cells, minlength=PIXELS * PIXELS)
            grid[1] += np.bincount(cells, weights=given, minlength=PIXELS * PIXELS)
            low, high = min(low, float(given.min())), max(high, float(given.max()))
    if stream is not None:
        stream.finish()
    return grid.reshape(layers, PIXELS, PIXELS), low, high


def _cells(pair: Array, extent: Extent) -> tuple[Array, Array]:
    """Pixel of each point inside the frame (row-major, y upwards), and which points are inside."""
    low = np.array([extent.x[0], extent.y[0]])
    high = np.array([extent.x[1], extent.y[1]])
    inside = np.all((pair >= low) & (pair <= high), axis=1)
    scaled = ((pair[inside] - low) / (high - low) * PIXELS).astype(np.int64)
    column, row = np.minimum(scaled, PIXELS - 1).T
    return row * PIXELS + column, inside


def pair_of(block: Array, first: int, axes: tuple[int, int]) -> Array:
    """The two columns to draw, float64; the row number where there is only one column."""
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
    elif len(rows) and np.ndim(rows[0]) > 0 and not isinstance(rows[0], list | tuple):
        yield from (plain(block) for block in rows)
    else:
        yield plain(rows)


def plain(rows: Any) -> Array:
    """Numbers or text: objects (as pandas holds text) by what they say, without a value as :data:`NO_CLASS`."""
    values = np.asarray(rows)
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


def classes_of(labels: Rows) -> Array:
    """The classes to tell apart: all of them, or the most frequent ones where there are many."""
    total: dict[Any, int] = {}
    for block in blocks_of(labels):
        values, counts = np.unique(block, return_counts=True)
        for value, count in zip(values.tolist(), counts.tolist(), strict=True):
            total[value] = total.get(value, 0) + count
    total.pop(NO_CLASS, None)
    if len(total) > MOST_CLASSES:
        kept = sorted(total, key=lambda value: -total[value])[: MOST_CLASSES - 1]
        return np.array(sorted(kept))
    return np.array(sorted(total))


def class_numbers(given: Array, classes: Array) -> Array:
    """Number of the class of each value; ``len(classes)`` for a value that is none of them."""
    position = np.minimum(np.searchsorted(classes, given), len(classes) - 1)
    return np.where(classes[position] == given, position, len(classes))
