"""A folder with a page that shows every row of a map: tiles, points, neighbors, an index, opened by double-click.

What is shown is here: coordinates, names of rows, columns, a graph, what is known of them; one pass surveys them.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from hashlib import sha256
from typing import Any, Protocol

import numpy as np

from bigembed.errors import InputError
from bigembed.plotting.palette import FAR, pair_of
from bigembed.rows import RowSource
from bigembed.rows.labels import no_label
from bigembed.runtime.blocks import Array, bounds, map_blocks
from bigembed.viewer.cells import Frame, frame_of

BLOCK = 1 << 18
"""Rows that a task reads."""
SAMPLE = 1 << 17
"""Rows of the sample, at least, of a large table."""
MOST_CLASSES = 4096
"""A column of text with more different values is shown at its points, and is no layer."""
FEW = 20
"""A column of whole numbers with at most so many different values is one of classes."""
NAMED = 19
"""Classes that have a colour of their own; all others share one."""
KINDS = "biufMSUTO"
"""Of the dtypes of columns: numbers, dates, text."""
NOWHERE = 0xFFFFFFFF
"""The place of a row without finite coordinates."""
MISSING = 65535
"""The number of the class of a row without one."""
BINS = 16
"""Of numbers, equally full, from which quantiles of a pixel are taken."""
BARS = 24
"""Of a histogram."""
EXACT = 1 << 24
"""Whole numbers beyond are kept in 8 bytes."""

# ----------------------------------------------------------------------------------------------------------- scene


class Graph(Protocol):
    """Lists of nearest rows, block by block, in an order of their own: its numbers count through the blocks."""

    @property
    def starts(self) -> Sequence[int]:
        """First number of each block, and how many rows there are."""
        ...

    def rows(self, block: int) -> Array:
        """The row that each number of a block is."""
        ...

    @property
    def listed(self) -> Array | None:
        """The rows that have a list, ascending; None where all have."""
        ...

    def prepare(self) -> None:
        """Find what is not there yet, before tasks ask for it."""
        ...

    def lists(self, block: int, k: int) -> tuple[Array, Array]:
        """Numbers (r, k) of the nearest rows, nearest first, −1 where there are fewer; and their distances."""
        ...


@dataclass(frozen=True)
class Warned:
    """A kind of doubt, how serious it is, and what was said."""

    title: str
    level: str
    messages: tuple[str, ...]


@dataclass(frozen=True)
class Scene:
    """All that a page shows of one map."""

    title: str
    coordinates: RowSource
    names: tuple[str, ...]
    """Of the coordinates."""
    pairs: tuple[tuple[int, int], ...] = ((0, 1),)
    ids: RowSource | None = None
    columns: tuple[tuple[str, RowSource], ...] = ()
    graph: Graph | None = field(default=None, repr=False)
    warnings: tuple[Warned, ...] = ()
    facts: tuple[tuple[str, str], ...] = ()
    """What the certificate says, as names and values."""

    @property
    def rows(self) -> int:
        """How many there are."""
        return self.coordinates.shape[0]

    @property
    def vectors(self) -> tuple[tuple[str, RowSource], ...]:
        """The columns, and before them the ids under the empty name, if there are any."""
        return ((("", self.ids),) if self.ids is not None else ()) + self.columns

    def points(self, start: int, stop: int, pair: tuple[int, int]) -> Array:
        """Two of the coordinates, float64; of one coordinate the number of the row is the other."""
        return pair_of(self.coordinates.read(start, stop), start, pair)

    def require_fitting(self) -> None:
        """InputError where columns or ids do not belong to the rows."""
        if not 0 < self.rows < NOWHERE:
            raise InputError(f"{self.title}: {self.rows:,} rows; from one to {NOWHERE - 1:,} can be shown")
        if self.coordinates.dtype.kind not in "buif":
            raise InputError(f"coordinates have dtype {self.coordinates.dtype}; they are numbers")
        for name, vector in self.vectors:
            if vector.dtype.kind not in KINDS:
                raise InputError(f"{name or 'ids'}: dtype {vector.dtype}; a column holds numbers, dates or text")
            if tuple(vector.shape) != (self.rows,):
                raise InputError(
                    f"{name or 'ids'}: shape {tuple(vector.shape)}; an entry for each of the {self.rows} rows is needed"
                )

    def fingerprint(self) -> str:
        """Digest of all that is shown."""
        said = [self.title, self.names, self.pairs, [repr(one) for one in self.warnings], self.facts]
        read = [source.fingerprint() for source in (self.coordinates, *(source for _, source in self.vectors))]
        graph = getattr(self.graph, "digest", "")
        return sha256(repr((said, [name for name, _ in self.vectors], read, graph)).encode()).hexdigest()


def in_memory(values: Any) -> Array:
    """A column of this process as an array of numbers, dates or UTF-8."""
    array = np.asarray(values)
    if array.ndim != 1:
        raise InputError(f"a column has shape {array.shape}; it needs an entry for each row")
    if array.dtype == object and not any(isinstance(value, str) for value in array):
        kept = [np.nan if no_label(value) else value for value in array.tolist()]
        array = np.array(kept) if len(kept) else array.astype(float)
    if array.dtype.kind not in KINDS:
        raise InputError(f"a column has dtype {array.dtype}; it holds numbers, dates or text")
    return array if array.dtype.kind in "biufM" else encoded(array)


def encoded(values: Any) -> Array:
    """Text and numbers of any kind as UTF-8; what is missing as nothing.

    >>> encoded(np.array(["a", None, "é"], dtype=object)).tolist(), encoded([7.0, np.nan]).tolist()
    ([b'a', b'', b'\\xc3\\xa9'], [b'7', b''])
    """
    array = np.asarray(values)
    if array.dtype.kind == "S":
        return array
    if array.dtype.kind == "f":  # (whole numbers, as labels have them)
        names = np.array([f"{value + 0.0:.17g}".encode() for value in array.tolist()] or [b""])[: len(array)]
        return np.where(np.isfinite(array), names, b"")
    if array.dtype.kind in "iu":
        return array.astype("S20")
    if array.dtype.kind not in "UTO":
        array = array.astype(str)
    texts = ["" if no_label(value) else str(value) for value in array.tolist()]
    return np.array([text.replace("\0", " ").encode("utf-8", "replace") for text in texts] or [b""])[: len(texts)]


# ---------------------------------------------------------------------------------------------------------- columns


@dataclass(frozen=True)
class Column:
    """What a column holds, and how its values are coded."""

    name: str
    kind: str
    """``"number"``, ``"date"`` (milliseconds), ``"class"`` or ``"text"``."""
    dtype: str
    """Of a stored value."""
    low: float = 0.0
    high: float = 1.0
    edges: tuple[float, ...] = ()
    """Of equally full bins of numbers."""
    classes: tuple[str, ...] = ()
    """The most frequent first."""
    missing: int = 0

    @property
    def numeric(self) -> bool:
        """Whether it holds numbers, dates among them."""
        return self.kind in ("number", "date")

    @property
    def layered(self) -> bool:
        """Whether the map can be coloured by it."""
        return self.kind != "text"

    @property
    def bins(self) -> int:
        """How many codes a pixel counts."""
        return BINS if self.numeric else min(len(self.classes), NAMED + 1)

    def stored(self, values: Any) -> Array:
        """Values as they are kept: numbers, the number of the class, UTF-8."""
        if self.kind == "text":
            return encoded(values).astype(self.dtype)
        if self.numeric:
            return numbers_of(values).astype(self.dtype)
        names = {name.encode(): number for number, name in enumerate(self.classes)}
        given, which = np.unique(class_names(values), return_inverse=True)
        return np.array([names.get(one, MISSING) for one in given.tolist()], self.dtype)[which]

    def codes(self, stored: Array) -> Array:
        """Which bin each value is in, −1 for a missing one."""
        if self.numeric:
            found = np.clip(np.searchsorted(np.array(self.edges[1:-1]), stored, side="right"), 0, BINS - 1)
            return np.where(np.isfinite(stored), found, -1)
        return np.where(stored == MISSING, -1, np.minimum(stored, self.bins - 1).astype(np.int64))

    def bars(self, stored: Array) -> Array:
        """Which bar of the histogram each value is in, −1 for a missing one."""
        if not self.numeric:
            return self.codes(stored)
        share = (np.nan_to_num(stored.astype(np.float64)) - self.low) / ((self.high - self.low) or 1.0)
        return np.where(np.isfinite(stored), np.clip(share * BARS, 0, BARS - 1), -1).astype(np.int64)

    def as_dict(self) -> dict[str, Any]:
        """For the page."""
        bars = BARS if self.numeric else self.bins
        return {"name": self.name, "kind": self.kind, "dtype": self.dtype, "low": self.low, "high": self.high,
                "classes": self.classes, "bars": bars, "missing": self.missing}  # fmt: skip


def numbers_of(values: Any) -> Array:
    """Numbers as float64, dates as milliseconds; NaN for what is missing."""
    array = np.asarray(values)
    if array.dtype.kind == "M":
        found = array.astype("datetime64[ms]").astype(np.int64).astype(np.float64)
        return np.where(np.isnat(array), np.nan, found)
    return array.astype(np.float64)


def class_names(values: Any) -> Array:
    """The names of classes as UTF-8, nothing for a missing one."""
    array = np.asarray(values)
    return encoded(array.astype(np.int64) if array.dtype.kind == "u" else array)


@dataclass
class Counted:
    """What a block of a column holds."""

    names: Counter[bytes] | None
    width: int
    largest: float
    missing: int
    sample: Array

    @classmethod
    def of(cls, values: Array, places: Array) -> Counted:
        """Of one block; its entries at ``places`` are those of the sample."""
        kind = values.dtype.kind
        if kind in "fM":
            found = numbers_of(values)
            finite = found[np.isfinite(found)]
            whole = kind == "f" and bool((finite == np.floor(finite)).all())
            few = Counter(class_names(finite).tolist()) if whole and len(np.unique(finite)) <= FEW else None
            missing = len(found) - len(finite)
            return cls(few, 1, float(np.abs(finite).max(initial=0)), missing, found[places])
        if kind in "iu":
            given, counts = np.unique(values, return_counts=True)
            largest = float(max(abs(int(given[0])), abs(int(given[-1])))) if len(given) else 0.0
            names = None if len(given) > MOST_CLASSES else Counter(dict(zip(encoded(given).tolist(), counts.tolist())))
            return cls(names, 20, largest, 0, values[places].astype(np.float64))
        texts = encoded(values)
        found_names = Counter(texts.tolist())
        missing = found_names.pop(b"", 0)
        several = None if len(found_names) > MOST_CLASSES else found_names
        return cls(several, max(texts.dtype.itemsize, 1), 0.0, missing, np.zeros(0))

    def join(self, other: Counted) -> Counted:
        """Both blocks together."""
        names = None if self.names is None or other.names is None else self.names + other.names
        names = None if names is not None and len(names) > MOST_CLASSES else names
        largest, width = max(self.largest, other.largest), max(self.width, other.width)
        return Counted(names, width, largest, self.missing + other.missing, np.append(self.sample, other.sample))


def column_of(name: str, kind: str, found: Counted) -> Column:
    """A column of values of this dtype kind."""
    if kind == "M" or (kind in "fiu" and (found.names is None or not 0 < len(found.names) <= FEW)):
        sample = np.sort(found.sample[np.isfinite(found.sample)])
        sample = sample if len(sample) else np.zeros(1)
        edges = np.quantile(sample, np.linspace(0, 1, BINS + 1))
        low, high = np.quantile(sample, [0.005, 0.995])
        low, high = (low, high) if high > low else (sample[0], max(sample[-1], sample[0] + 1))
        dtype = "<f8" if kind == "M" or (kind in "iu" and found.largest > EXACT) else "<f4"
        shown = "date" if kind == "M" else "number"
        return Column(name, shown, dtype, float(low), float(high), tuple(edges.tolist()), missing=found.missing)
    if found.names is None:
        return Column(name, "text", f"S{found.width}", missing=found.missing)
    names = sorted(found.names, key=_natural if len(found.names) <= NAMED else lambda one: (-found.names[one], one))
    return Column(name, "class", "<u2", classes=tuple(one.decode() for one in names), missing=found.missing)


def _natural(name: bytes) -> tuple[float, bytes]:
    """Numbers by their value, before other names."""
    try:
        return float(name), name
    except ValueError:
        return np.inf, name


KEPT = Column("neighbors kept", "number", "<f4", 0.0, 1.0, tuple(np.linspace(0, 1, BINS + 1).tolist()))
"""The share of the nearest rows of a row, in the data, that are near it on the map."""


# ----------------------------------------------------------------------------------------------------------- survey


@dataclass(frozen=True)
class Survey:
    """What one pass over a scene says."""

    frames: tuple[Frame, ...]
    """Of each pair of coordinates."""
    columns: tuple[Column, ...]
    ids: Column | None
    missing: int
    """Rows without finite coordinates."""
    samples: tuple[Array, ...]
    """Sorted keys of sampled rows, for each pair."""
    share: float
    """Of the rows, sampled."""

    @property
    def record(self) -> np.dtype[Any]:
        """A row as it is distributed: its key, its number, its columns, its id."""
        fields = [("key", "<u8"), ("row", "<u8"), *((f"c{i}", one.dtype) for i, one in enumerate(self.columns))]
        return np.dtype(fields + ([("id", self.ids.dtype)] if self.ids is not None else []))


def survey_scene(scene: Scene) -> Survey:
    """Look at all rows once."""
    step = max(1, scene.rows // max(SAMPLE, scene.rows // 2048))
    plain = replace(scene, graph=None)
    parts = map_blocks(survey_block, bounds(scene.rows, BLOCK), "survey", scene=plain, step=step)
    counted: list[Counted] = []
    for number in range(len(scene.vectors)):
        found = parts[0]["columns"][number]
        for part in parts[1:]:
            found = found.join(part["columns"][number])
        counted.append(found)
    columns = [
        column_of(name, vector.dtype.kind, found) for (name, vector), found in zip(scene.vectors, counted, strict=True)
    ]
    ids = None
    if scene.ids is not None:
        ids, columns = Column("id", "text", f"S{counted[0].width}"), columns[1:]
    frames, samples = [], []
    for number in range(len(scene.pairs)):
        low = np.min([part["low"][number] for part in parts], axis=0)
        high = np.max([part["high"][number] for part in parts], axis=0)
        sample = np.concatenate([part["sample"][number] for part in parts])
        frames.append(_framed(low, high, sample))
        samples.append(np.sort(frames[-1].keys(sample)))
    missing = sum(part["missing"] for part in parts)
    return Survey(tuple(frames), tuple(columns), ids, missing, tuple(samples), 1 / step)


def _framed(low: Array, high: Array, sample: Array) -> Frame:
    """The frame of finite points between low and high, by a sample."""
    if not np.isfinite(low).all():
        return frame_of(np.zeros(2), np.ones(2), np.array([[0.0, 0.0], [1.0, 1.0]]))
    whole = np.array([low, high])
    if not len(sample):
        return frame_of(low, high, whole)
    inner = np.quantile(sample, [0.001, 0.999], axis=0)
    wide = ((high - low) > FAR * (inner[1] - inner[0])) & (inner[1] > inner[0])
    return frame_of(low, high, np.where(wide, inner, whole))


def survey_block(start: int, stop: int, *, scene: Scene, step: int) -> dict[str, Any]:
    """Limits of the points, sampled ones, and what the columns hold."""
    out: dict[str, Any] = {"low": [], "high": [], "sample": [], "columns": []}
    places = np.arange(-start % step, stop - start, step)
    for pair in scene.pairs:
        points = scene.points(start, stop, pair)
        finite = np.asarray(np.isfinite(points).all(axis=1))
        there = points[finite]
        out["low"].append(there.min(axis=0, initial=np.inf))
        out["high"].append(there.max(axis=0, initial=-np.inf))
        out["sample"].append(points[places][finite[places]])
        out["missing"] = int(len(points) - len(there))
    for name, vector in scene.vectors:
        values = np.asarray(vector.read(start, stop))
        out["columns"].append(Counted.of(values if name else encoded(values), places))
    return out
