"""Where a point lies on the map: its key along a Z-shaped curve, and the cells of the quadtree that keys make.

A point of the square [0, 1)² has two numbers of 31 bits; its key interleaves them. Keys of one cell of any level are
consecutive, so that a sorted file of keys is the quadtree: a cell is a range of it.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

from bigembed.errors import InputError
from bigembed.runtime.blocks import Array

BITS = 31
"""Of each coordinate."""
DEEPEST = 22
"""Level of the smallest cells: their points lie together on any screen."""
EQUAL = 4.0
"""Both axes have one scale if neither extent is so many times the other."""
LARGEST = 1e300

_STEPS = ((16, 0x0000FFFF0000FFFF), (8, 0x00FF00FF00FF00FF), (4, 0x0F0F0F0F0F0F0F0F), (2, 0x3333333333333333),
          (1, 0x5555555555555555))  # fmt: skip


def interleave(x: Array, y: Array) -> Array:
    """Keys of points on a grid of 2³¹ cells a side: bits of x at even, of y at odd places.

    >>> interleave(np.array([1, 2, 3]), np.array([0, 0, 1])).tolist()
    [1, 4, 7]
    """
    spread = []
    for value in (x, y):
        found = value.astype(np.uint64)
        for shift, mask in _STEPS:
            found = (found | (found << np.uint64(shift))) & np.uint64(mask)
        spread.append(found)
    keys: Array = spread[0] | (spread[1] << np.uint64(1))
    return keys


def places(keys: Array) -> Array:
    """The points (n, 2) of keys, the inverse of :func:`interleave`.

    >>> places(interleave(np.array([5, 1 << 30]), np.array([9, 3]))).tolist()
    [[5, 9], [1073741824, 3]]
    """
    out = []
    for shifted in (keys, keys >> np.uint64(1)):
        found = shifted & np.uint64(_STEPS[-1][1])
        for (shift, _), (_, mask) in zip(reversed(_STEPS), [*reversed(_STEPS[:-1]), (32, 0xFFFFFFFF)], strict=True):
            found = (found | (found >> np.uint64(shift))) & np.uint64(mask)
        out.append(found.astype(np.int64))
    return np.stack(out, axis=1)


@dataclass(frozen=True)
class Frame:
    """The square that holds all points, the two scales, and the part that is shown first."""

    low: tuple[float, float]
    """Least x, and the largest y: the second axis of the square goes down."""
    unit: tuple[float, float]
    """The side of the square in either coordinate; that of y is negative."""
    first: tuple[float, float, float, float]
    """What is shown first: x from, to, y from, to. Few far points lie outside."""

    def keys(self, points: Array) -> Array:
        """The keys of points (n, 2), all within the square."""
        share = (points - np.array(self.low)) / np.array(self.unit)
        grid = np.clip(np.floor(share * 2.0**BITS), 0, 2**BITS - 1).astype(np.int64)
        return interleave(grid[:, 0], grid[:, 1])

    def as_dict(self) -> dict[str, Any]:
        """For the page."""
        return {"low": self.low, "unit": self.unit, "first": self.first}


def frame_of(low: Array, high: Array, inner: Array) -> Frame:
    """The frame of points between ``low`` and ``high`` (2,), nearly all of which are between ``inner`` (2, 2)."""
    if max(np.abs(low).max(), np.abs(high).max()) > LARGEST:
        raise InputError(f"coordinates are as large as {max(np.abs(low).max(), np.abs(high).max()):g}; scale them down")
    extent = inner[1] - inner[0]
    scale = np.where(extent > 0, extent, 1.0)
    if extent.max() <= EQUAL * extent.min():
        scale = np.full(2, scale.max())
    side = max(float(((high - low) / scale).max()), 1e-9) * (1 + 1e-9)
    middle = (low + high) / 2
    unit = side * scale
    corner = middle + unit * np.array([-0.5, 0.5])
    pad = 0.03 * scale
    shown = (inner[0, 0] - pad[0], inner[1, 0] + pad[0], inner[0, 1] - pad[1], inner[1, 1] + pad[1])
    return Frame((float(corner[0]), float(corner[1])), (float(unit[0]), -float(unit[1])), tuple(map(float, shown)))  # type: ignore[arg-type]


@dataclass(frozen=True)
class Cell:
    """A cell of the quadtree: level 0 is the square, and ``number`` counts the cells of a level along the curve."""

    level: int
    number: int

    @property
    def start(self) -> int:
        """Its first key."""
        return self.number << 2 * (BITS - self.level)

    @property
    def stop(self) -> int:
        """One past its last key."""
        return (self.number + 1) << 2 * (BITS - self.level)

    @property
    def name(self) -> str:
        """The way to it: a digit a level."""
        return "".join(str(self.number >> 2 * l & 3) for l in reversed(range(self.level)))

    def quarters(self) -> list[Cell]:
        """Its four cells of the next level."""
        return [Cell(self.level + 1, 4 * self.number + quarter) for quarter in range(4)]


def coarse_cells(sample: Array, most: float, cell: Cell | None = None) -> Iterator[Cell]:
    """Cells that cover the square, in order, none with more than ``most`` of the sorted sample of keys.

    >>> [cell.name for cell in coarse_cells(interleave(np.array([0, 1 << 30]), np.array([0, 0])), 1)]
    ['0', '1', '2', '3']
    """
    cell = cell or Cell(0, 0)
    if len(sample) <= most or cell.level >= DEEPEST:
        yield cell
        return
    quarters = cell.quarters()
    cuts = np.searchsorted(sample, np.array([one.start for one in quarters[1:]], np.uint64))
    for quarter, part in zip(quarters, np.split(sample, cuts), strict=True):
        yield from coarse_cells(part, most, quarter)
