"""What colours the points of a map, read block by block: nothing (their density), a number a row, or a class."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from bigembed.errors import InputError
from bigembed.rows.labels import no_label
from bigembed.rows.opening import as_array, refuse_other
from bigembed.runtime.blocks import Array

# ------------------------------------------------------------------------------------------------------------ colours

INK = "#2b2f36"
PALE = "#8a919c"
ACCENT = "#2f6fb0"
WARM = "#d1603d"
COLORMAP = "viridis"
CLASSES = (
    "#4269d0", "#efb118", "#ff725c", "#3ca951", "#97bbf5", "#a463f2", "#9c6b4e", "#ff8ab7",
    "#6cc5b0", "#5f6770", "#1b4f9c", "#a87900", "#c23b22", "#1f7a34", "#5b8fd6", "#6a2bb8",
    "#5e3f2c", "#c74f80", "#2f8a76", "#b4bac3",
)  # fmt: skip


def padded(low: float, high: float) -> tuple[float, float]:
    pad = 0.03 * (high - low) or 0.03 * max(abs(low), 1.0)
    return low - pad, high + pad


# ---------------------------------------------------------------------------------------------------------- stream
# Rows to draw, read block by block, and the values of them that are read along.

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


# ---------------------------------------------------------------------------------------------------------- limits
# Limits of columns of any length in one pass; a few far values that would hide the rest are left outside.

SAMPLE = 100_000
FAR = 3.0
"""A range that exceeds that of the inner 99.8 % this many times is cut to the inner part."""


@dataclass(frozen=True)
class Limits:
    """The extents of columns, taken over the rows that are finite in all of them."""

    count: int
    """Rows in all."""
    missing: int
    """Rows with NaN or infinity."""
    low: Array
    high: Array

    def padded(self) -> tuple[Array, Array]:
        """A little wider, and never of no width."""
        pairs = [padded(float(low), float(high)) for low, high in zip(self.low, self.high, strict=True)]
        return np.array([pair[0] for pair in pairs]), np.array([pair[1] for pair in pairs])


def limits_of(rows: Rows, columns: Sequence[int]) -> Limits:
    """One pass; memory of a block and a sample of at most 10⁵ rows. Without a finite row the limits are 0 and 1."""
    sample: list[Array] = []
    count = missing = kept = 0
    step = 1
    low, high = np.full(len(columns), np.inf), np.full(len(columns), -np.inf)
    for _, block in numbered(rows):
        part = block[:, list(columns)].astype(np.float64)
        count += len(part)
        part = part[np.isfinite(part).all(axis=1)]
        missing += len(block) - len(part)
        if not len(part):
            continue
        low, high = np.minimum(low, part.min(axis=0)), np.maximum(high, part.max(axis=0))
        sample.append(part[(-kept) % step :: step].copy())  # a view would keep the block
        kept += len(part)
        while sum(map(len, sample)) > SAMPLE:
            step *= 2
            sample = [np.concatenate(sample)[::2].copy()]
    if not kept:
        return Limits(count, missing, np.zeros(len(columns)), np.ones(len(columns)))
    inner = np.quantile(np.concatenate(sample), [0.001, 0.999], axis=0)
    wide = ((high - low) > FAR * (inner[1] - inner[0])) & (inner[1] > inner[0])
    return Limits(count, missing, np.where(wide, inner[0], low), np.where(wide, inner[1], high))


# ----------------------------------------------------------------------------------------------------------- paint
# What colours the points of a map: nothing (their density), a number a row, or a class a row; light and dark.

COUNTED = 4096
"""Most classes with a colour each; a different label for every row, as a name, is an input error."""

RAMP = (
    "#440154", "#481467", "#482576", "#453781", "#404688", "#39558c", "#33638d", "#2d718e", "#287d8e", "#238a8d",
    "#1f968b", "#20a386", "#29af7f", "#3dbc74", "#56c667", "#75d054", "#95d840", "#bade28", "#dde318", "#fde725",
)  # fmt: skip
"""Viridis at twenty equal steps: equal differences of a number look equally different."""


@dataclass(frozen=True)
class Scheme:
    """Colours on a light or on a dark page."""

    name: str
    plate: str
    """Behind the points."""
    density: tuple[str, ...]
    ramp: tuple[float, float]
    """The part of :data:`RAMP` that stands out from the plate."""
    lift: float
    """Share of white in the colours of classes."""


LIGHT = Scheme("light", "#f7f8fa", ("#b9d3ea", "#5d9bd0", "#2166ac", "#0d3b73", "#071d3d"), (0.0, 0.93), 0.0)
DARK = Scheme("dark", "#12161c", ("#1d3f63", "#2f6da8", "#58a4e0", "#a9d6fb", "#f4fbff"), (0.16, 1.0), 0.25)
SCHEMES = (LIGHT, DARK)


@dataclass(frozen=True)
class Paint:
    """How the values of the rows become colours."""

    kind: str = "density"
    """``"density"``, ``"numbers"`` or ``"classes"``."""
    low: float = 0.0
    high: float = 1.0
    classes: Array = field(default_factory=lambda: np.empty(0))
    """Ascending."""
    counts: tuple[int, ...] = ()
    """Rows of each class."""
    missing: int = 0
    """Rows without a value."""

    @property
    def repeats(self) -> bool:
        """Whether there are more classes than colours, so that each colour is that of several."""
        return len(self.classes) > len(CLASSES)

    @property
    def layers(self) -> int:
        """Sums that a pixel keeps in addition to its count."""
        return {"density": 0, "numbers": 2, "classes": 3}[self.kind]

    def weights(self, values: Array) -> list[Array]:
        """What each point adds to the layers: its value and whether it has one; or red, green and blue."""
        if self.kind == "numbers":
            there = np.isfinite(values)
            return [np.where(there, values, 0.0).astype(np.float64), there.astype(np.float64)]
        palette = np.array([rgb(name) for name in (*CLASSES, PALE)])
        order = class_numbers(as_labels(values), self.classes)
        return list(palette[np.where(order < len(self.classes), order % len(CLASSES), len(CLASSES))].T)

    def frequent(self) -> Paint:
        """With at most :data:`MOST_CLASSES` colours: the most frequent classes, and one colour for all others."""
        if len(self.classes) <= MOST_CLASSES:
            return self
        most = np.argsort(-np.array(self.counts), kind="stable")[: MOST_CLASSES - 1]
        kept = np.sort(most)
        return replace(self, classes=self.classes[kept], counts=tuple(self.counts[place] for place in kept))

    def legend(self) -> list[tuple[str, str, int]]:
        """Colour, name and rows of each class; nothing where colours repeat."""
        if self.repeats:
            return []
        return [
            (color, f"{name:g}" if isinstance(name, float) else str(name), count)
            for color, name, count in zip(CLASSES, self.classes.tolist(), self.counts, strict=False)
        ]

    def colors(self, count: Array, layers: Array, scheme: Scheme) -> Array:
        """Colour of each pixel of a grid, (size, size, 3) in 0 to 1, where numbers or classes were given."""
        if self.kind == "numbers":
            mean = layers[0] / np.maximum(layers[1], 1e-12)
            share = np.clip((mean - self.low) / ((self.high - self.low) or 1.0), 0.0, 1.0)
            first, last = scheme.ramp
            known = interpolate_colors(RAMP, first + (last - first) * share)
            return np.where((layers[1] > 0)[..., None], known, rgb(PALE))
        mean_color = np.moveaxis(layers, 0, -1) / np.maximum(count, 1e-12)[..., None]
        return np.clip(mean_color * (1.0 - scheme.lift) + scheme.lift, 0.0, 1.0)


def paint_of(values: Rows, kind: str = "auto", most: float = COUNTED) -> Paint:
    """What the values are: one pass over them.

    ``kind``: ``"classes"``, ``"numbers"``, or ``"auto"``: text and booleans are classes, floats are numbers, and
    integers are classes if there are at most :data:`MOST_CLASSES` of them. With more classes colours repeat; InputError
    for more than ``most``.
    """
    if values is None:
        return Paint()
    if kind == "auto":
        kind = _kind(values)
    if kind == "numbers":
        found: Limits = limits_of(values, [0])
        return Paint("numbers", float(found.low[0]), float(found.high[0]), missing=found.missing)
    total: Counter[Any] = Counter()
    missing = 0
    for block in blocks_of(values):
        labels = as_labels(block)
        there = np.ones(len(labels), bool)
        if labels.dtype.kind in "fU":
            there = np.isfinite(labels) if labels.dtype.kind == "f" else labels != NO_CLASS
        missing += int(len(labels) - there.sum())
        names, counts = np.unique(labels[there], return_counts=True)
        total.update(dict(zip(names.tolist(), counts.tolist(), strict=True)))
        if len(total) > most:
            raise InputError(f"color: more than {most} different labels; give classes, or a number for each row")
    named = sorted(total)
    return Paint("classes", classes=np.array(named), counts=tuple(total[name] for name in named), missing=missing)


def _kind(values: Rows) -> str:
    """Whether values are numbers or classes: integers are looked through."""
    seen: set[Any] = set()
    for block in blocks_of(values):
        kind = np.asarray(block).dtype.kind
        if kind == "f":
            return "numbers"
        if kind not in "iu":
            return "classes"
        seen.update(np.unique(block).tolist())
        if len(seen) > MOST_CLASSES:
            return "numbers"
    return "classes"


def as_labels(block: Array) -> Array:
    """Labels that can be sorted; of objects their text."""
    block = np.asarray(block).ravel()
    if block.dtype.kind == "T":  # (NumPy casts it to no other text)
        block = block.astype(object)
    if block.dtype.kind in "OSmM":
        return block.astype(str)
    return block


def rgb(name: str) -> Array:
    """Red, green and blue in 0 to 1.

    >>> rgb("#ff0000").tolist()
    [1.0, 0.0, 0.0]
    """
    return np.array([int(name[place : place + 2], 16) for place in (1, 3, 5)]) / 255.0


def interpolate_colors(stops: tuple[str, ...], share: Array) -> Array:
    """Colours at shares in 0 to 1 of the way along equally spaced stops, (..., 3)."""
    table = np.array([rgb(stop) for stop in stops])
    place = np.linspace(0.0, 1.0, len(stops))
    return np.stack([np.interp(share, place, table[:, channel]) for channel in range(3)], axis=-1)


def gradient(scheme: Scheme) -> str:
    """The colours of numbers, low to high, as a CSS gradient."""
    colors = interpolate_colors(RAMP, np.linspace(*scheme.ramp, 12))
    return "linear-gradient(to top, " + ", ".join(hexadecimal(color) for color in colors) + ")"


def lifted(color: str, scheme: Scheme) -> str:
    """The colour of a class on a page of this scheme."""
    return hexadecimal(rgb(color) * (1.0 - scheme.lift) + scheme.lift)


def hexadecimal(color: Array) -> str:
    """A colour as CSS writes it."""
    return "#" + "".join(f"{round(255 * float(channel)):02x}" for channel in color)
