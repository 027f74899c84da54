"""What colours the points of a map: nothing (their density), a number a row, or a class a row; light and dark."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from bigembed.blocks.rows import Array
from bigembed.errors import InputError
from bigembed.plotting.canvas import CLASSES, PALE
from bigembed.plotting.limits import Limits, limits_of
from bigembed.plotting.stream import MOST_CLASSES, NO_CLASS, Rows, blocks_of, class_numbers

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
            known = along(RAMP, first + (last - first) * share)
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
    if block.dtype.kind in "OTSmM":
        return block.astype(str)
    return block


def rgb(name: str) -> Array:
    """Red, green and blue in 0 to 1.

    >>> rgb("#ff0000").tolist()
    [1.0, 0.0, 0.0]
    """
    return np.array([int(name[place : place + 2], 16) for place in (1, 3, 5)]) / 255.0


def along(stops: tuple[str, ...], share: Array) -> Array:
    """Colours at shares in 0 to 1 of the way along equally spaced stops, (..., 3)."""
    table = np.array([rgb(stop) for stop in stops])
    place = np.linspace(0.0, 1.0, len(stops))
    return np.stack([np.interp(share, place, table[:, channel]) for channel in range(3)], axis=-1)


def gradient(scheme: Scheme) -> str:
    """The colours of numbers, low to high, as a CSS gradient."""
    colors = along(RAMP, np.linspace(*scheme.ramp, 12))
    return "linear-gradient(to top, " + ", ".join(hexadecimal(color) for color in colors) + ")"


def lifted(color: str, scheme: Scheme) -> str:
    """The colour of a class on a page of this scheme."""
    return hexadecimal(rgb(color) * (1.0 - scheme.lift) + scheme.lift)


def hexadecimal(color: Array) -> str:
    """A colour as CSS writes it."""
    return "#" + "".join(f"{round(255 * float(channel)):02x}" for channel in color)
