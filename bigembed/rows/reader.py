"""The protocol of a reader of a format, the options that choose among what a file holds, and columns of text."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from datetime import date, time, timedelta
from decimal import Decimal
from fnmatch import fnmatchcase
from math import prod
from pathlib import Path
from typing import Any, Protocol, Self, cast

import numpy as np

from bigembed.errors import InputError, InputTypeError, meant
from bigembed.rows.exact import EXACT, refuse_rounded
from bigembed.runtime.blocks import BLOCK_BYTES, Array
from bigembed.store import everywhere
from bigembed.store.files import reading_foreign

TEXT: np.dtype[Any] = np.dtypes.StringDType()
"""Of a vector of text (names of the rows, say), which is stored as UTF-8 of any length."""
HINTED, LISTED = 3, 12
"""Names that an error lists."""
ARROW, HDF5 = 72 << 20, 32 << 20
"""Bytes that a process holds once it has read by pyarrow, and by h5py or netCDF4, besides the rows."""
FLOATS = ("halffloat", "float", "double")
INTEGERS = tuple(f"{sign}int{bits}" for sign in ("", "u") for bits in (8, 16, 32, 64))
"""Numbers of Arrow, as it names their types."""
DECIMAL = "decimal"
"""How the names of its types of decimals begin."""


class Reader(Protocol):
    """Rows of some format, or a vector aligned with them. Small and picklable: the task that reads opens its file."""

    @property
    def shape(self) -> tuple[int, ...]:
        """(n, d); of a vector (n,)."""
        ...

    @property
    def dtype(self) -> np.dtype[Any]:
        """As stored; :data:`TEXT` for text."""
        ...

    @property
    def grain(self) -> int:
        """Rows that one task had better read in one go (row groups, a packed stream); 1 if any will do."""
        ...

    def stream(self, start: int, stop: int) -> Iterator[Any]:
        """Rows start to stop, in pieces."""
        ...


@dataclass(frozen=True)
class Flat:
    """An array of several axes as rows of numbers, in C order: its leading axes make the rows, the others the columns.

    Frames of atoms of three coordinates, and images, are rows by their first axis; pixels of a cube (height, width,
    bands) by their first two; with none of them all is one row.
    """

    reader: Reader
    leading: int = 1

    @property
    def shape(self) -> tuple[int, int]:
        """(n, d), d the numbers of an item."""
        sizes = self.reader.shape
        return prod(sizes[: self.leading]), prod(sizes[self.leading :])

    @property
    def _rows_each(self) -> int:
        """Rows that an item of the first axis makes; 0 where all items make one."""
        return prod(self.reader.shape[1 : self.leading]) if self.leading else 0

    @property
    def dtype(self) -> np.dtype[Any]:
        """As stored."""
        return self.reader.dtype

    @property
    def grain(self) -> int:
        """As the reader says."""
        return self.reader.grain * max(1, self._rows_each)

    def stream(self, start: int, stop: int) -> Iterator[Array]:
        """Rows start to stop, in pieces."""
        each, width = self._rows_each, self.shape[1]
        if not each:
            whole = [part.reshape(-1) for part in self.reader.stream(0, self.reader.shape[0])]
            yield np.concatenate(whole)[None][start:stop]
            return
        first = start // each
        row = first * each
        for part in self.reader.stream(first, -(-stop // each)):
            rows = part.reshape(-1, width)
            yield rows[max(0, start - row) : stop - row]
            row += len(rows)


def leading_axes(path: Any, shape: Sequence[int], rows: Sequence[str], fewest: int = 1) -> int:
    """How many axes of an array make the rows, of those chosen (``rows``: a number); InputError.

    >>> leading_axes("cube.npy", (120, 100, 30), ["2"])
    2
    """
    if not rows:
        return 1
    text = rows[0] if len(rows) == 1 else ""
    if not (text.isdecimal() and fewest <= int(text) < len(shape)):
        raise InputError(
            f"{path}: rows = {', '.join(rows)}; of an array of shape {tuple(map(int, shape))} it is how many of its "
            f"axes, from the first on, make the rows: a number from {fewest} to {len(shape) - 1}"
        )
    return int(text)


class Named(Reader, Protocol):
    """A reader whose source holds vectors for its rows, by name: see :func:`named`."""

    @property
    def names(self) -> Mapping[str, str]:
        """Each name, and what it holds (a type, a shape)."""
        ...

    @property
    def row_ids(self) -> str | None:
        """The name of the vector that names the rows, where the format says which."""
        ...

    def vector(self, name: str) -> Reader:
        """A reader of the vector."""
        ...


def named(reader: Reader) -> Named | None:
    """The reader, if its source holds vectors; what their names are is not looked at yet."""
    if isinstance(reader, Flat):
        return named(reader.reader) if reader.leading == 1 else None
    return cast(Named, reader) if hasattr(type(reader), "vector") else None


def features_of(reader: Reader) -> tuple[str, ...]:
    """The names of the columns of the rows; none where the format, or the file, has no such names."""
    with reading_foreign(getattr(reader, "path", "the source"), "the names of its columns"):
        return tuple(getattr(reader, "features", ()))


def entries_of(reader: Reader) -> int | None:
    """Stored entries of sparse rows; None for dense ones."""
    return getattr(reader, "entries", None)


RECORDED = {"aligned": "beside"}
"""Names that attributes of a copy give to fields of :class:`Choice`, where they differ."""


@dataclass(frozen=True)
class Choice:
    """What is wanted of a source that holds several things. Empty: what the format says, if that is one thing."""

    columns: tuple[str, ...] = ()
    """Columns of a table, by names or patterns: see :meth:`named_in`."""
    array: tuple[str, ...] = ()
    """The array, by its path or its name; several netCDF variables of one shape become columns."""
    rows: tuple[str, ...] = ()
    """The dimensions of a netCDF variable that make the rows; of another array how many of its axes, a number."""
    fill_absent: bool = False
    """Whether absent chunks of a Zarr array hold its fill value."""
    dense: bool = False
    """Whether sparse rows are wanted dense."""
    aligned: tuple[str, ...] = ()
    """Columns of a table that are ids, labels or weights of the rows, so that they are not part of them."""
    expected: tuple[str, ...] = ()
    """Columns that a model was fitted with: those of a table where none are chosen."""
    growing: bool = False
    """Whether it is a store that rows are appended to, not a model, whose columns are expected."""
    missing: bool = False
    """Whether values that are missing come as NaN; they are refused otherwise."""
    categories: tuple[tuple[str, tuple[str, ...]], ...] = ()
    """Columns of a table whose entries are categories, each with the texts that are known; none: those it holds."""
    text: bool = False
    """Whether all columns of text are such columns."""
    strict: tuple[tuple[str, str], ...] = ()
    """Those of them in which other texts are refused, each with what ``unknown`` of a new fit could be instead."""

    def asked(self) -> dict[str, Any]:
        """What was chosen, by the name under which the attributes of a copy record it."""
        chosen = {RECORDED.get(one.name, one.name): getattr(self, one.name) for one in fields(self)}
        return {name: value for name, value in chosen.items() if value}

    def named_in(self, path: Any, there: Iterable[str]) -> Self:
        """The same with the columns that its patterns mean of those that are there (``b*``; ``!name``: without it).

        InputError where a pattern means none.

        >>> Choice(columns=("!b", "!c*")).named_in("x.csv", ["a", "b", "c1", "c2"]).columns
        ('a',)
        >>> Choice(columns=("c?", "a")).named_in("x.csv", ["a", "b", "c1", "c2"]).columns
        ('c1', 'c2', 'a')
        """
        there = list(there)
        if all(name in there for name in self.columns):
            return self
        found: dict[str, None] = {}
        if self.columns[0].startswith("!") and self.columns[0] not in there:
            found = dict.fromkeys(name for name in there if name not in self.aligned)
        for name in self.columns:
            without = name.startswith("!") and name not in there
            pattern = name[without:]
            alike = [one for one in there if fnmatchcase(one, pattern) and one not in self.aligned]
            if not alike and (without or "*" in name or "?" in name):
                raise InputError(
                    f"{path}: no column is called {pattern!r}{meant(pattern, there)}; there are {listed(there)}"
                )
            for one in [name] if name in there or not alike else alike:
                _ = found.pop(one, None) if without else found.setdefault(one)
        return replace(self, columns=tuple(found))

    def of_table(self, path: Any, there: Mapping[str, str]) -> tuple[str, ...]:
        """The columns of a table that make the rows; InputError where it lacks them. ``there``: see ``described``."""
        wanted = self.columns or self.expected or tuple(name for name in there if name not in self.aligned)
        if unknown := [name for name in wanted if name not in there]:
            whose = "The store has them" if self.growing else "The model was fitted with them"
            fitted = "" if self.columns else f". {whose}: new rows need the same columns"
            hinted = [f"{name}{meant(name, there)}" for name in unknown[:HINTED]] + unknown[HINTED:]
            raise InputError(f"{path}: no columns {listed(hinted)}; there are {described(there)}{fitted}")
        return wanted

    def only(self, path: Any, what: str, *known: str) -> None:
        """InputError if something was chosen that the format does not know."""
        others = ("dense", "aligned", "expected", "growing", "missing", "categories", "text", "strict")
        given = [one.name for one in fields(self) if one.name not in (*others, *known)]
        wrong = [name for name in given if getattr(self, name)]
        if wrong:
            can = f"in it can be chosen: {', '.join(known)}" if known else "nothing can be chosen in it"
            raise InputError(f"{path}: {', '.join(wrong)} cannot be chosen in {what}; {can}")


@everywhere(lambda place: place.open("rb"))
def handle(place: Path) -> Any:
    """What a library opens: a path of this file system, or an object as a file that is read by ranges."""
    return str(place)


def listed(names: Iterable[str]) -> str:
    """Names for an error, the first of many."""
    all_names = list(names)
    more = f", … ({len(all_names)} in all)" if len(all_names) > LISTED else ""
    return ", ".join(all_names[:LISTED]) + more


def columns_named(numbers: Iterable[int], names: Sequence[str]) -> str:
    """Columns for an error: by their names, where they have any, else by their numbers.

    >>> columns_named([1], ["age", "pay"]), columns_named([0, 3], ())
    ('column pay', 'columns 0, 3 (counted from 0)')
    """
    said = [str(names[number] if names else number) for number in numbers]
    return f"column{'s' * (len(said) > 1)} {listed(said)}{'' if names else ' (counted from 0)'}"


def described(names: Mapping[str, str]) -> str:
    """Names with what each holds, for an error."""
    return listed(f"{name} {what}".rstrip() for name, what in names.items()) or "nothing"


def native(dtype: np.dtype[Any]) -> np.dtype[Any]:
    """In the byte order of this machine; text as :data:`TEXT`."""
    return TEXT if is_text(dtype) else dtype.newbyteorder("=")


def is_text(dtype: np.dtype[Any]) -> bool:
    """Whether a vector is of text."""
    return dtype.kind in "USOT"


def two_dimensional(path: Any, shape: Sequence[int]) -> tuple[int, int]:
    """The shape of rows, or InputError."""
    if len(shape) != 2:
        raise InputError(
            f"{path}: shape {tuple(map(int, shape))}; rows must be a 2-dimensional array (n, d). "
            "Reshape it, one item a row"
        )
    return int(shape[0]), int(shape[1])


def read_ranges(start: int, stop: int, chunk: int, row_bytes: int) -> Iterator[tuple[int, int]]:
    """Ranges from start to stop that are cut where stored chunks of ``chunk`` rows end, each about a block.

    Chunks so tall that one does not fit are cut, and then decoded several times.

    >>> list(read_ranges(5, 200, 60, 1 << 20)), list(read_ranges(0, 3, 1, 1 << 30))
    ([(5, 60), (60, 120), (120, 180), (180, 200)], [(0, 1), (1, 2), (2, 3)])
    """
    step = fitting = max(1, BLOCK_BYTES // max(1, row_bytes))
    if chunk <= 8 * fitting:
        step = max(1, fitting // chunk) * chunk
    cuts = [*range(start - start % step + step, stop, step)]
    return zip([start, *cuts], [*cuts, stop], strict=True)


def as_text(values: Any) -> Array:
    """Text of any kind (objects, bytes, fixed or variable length) as :data:`TEXT`; what is not there as ""."""
    found = np.asarray(values)
    if found.dtype.kind == "S":
        found = np.char.decode(found, "utf-8")
    if found.dtype == object:
        plain = [one.decode() if isinstance(one, bytes) else "" if one is None else one for one in found.tolist()]
        found = np.array(plain, TEXT)
    return found.astype(TEXT)


# -------------------------------------------------------------------------------------------------- text and objects
# Columns of text and of objects as numbers: of data frames, and of arrays of objects; categories, what is missing.

REMEDY = "Make categories columns of 0 and 1 (OneHotEncoder; in a job the step 'one_hot'), or leave these columns out"
TIMES = (
    "Dates, times and durations become numbers where the table is written: in a column that counts days or seconds "
    "from a date of your choice"
)
"""What to do with columns of dates or times."""
NOTHING = ("NoneType", "NAType", "NaTType")
"""Types of what stands for a missing value."""


def is_frame(X: Any) -> bool:
    """Whether it is a data frame in memory (pandas, polars), or a table of Arrow."""
    if is_arrow(X):
        return True
    held = hasattr(X, "items") or hasattr(X, "iter_columns")  # (not so of a query of DuckDB)
    return held and all(hasattr(X, name) for name in ("columns", "dtypes", "shape")) and not hasattr(X, "dask")


def is_arrow(X: Any) -> bool:
    """Whether it is a table of Arrow in memory, or a batch of one."""
    return type(X).__module__.startswith("pyarrow.") and hasattr(X, "column_names")


def columns_of(X: Any) -> list[tuple[Any, Array]]:
    """The names of the columns of a data frame, and what they hold; several may have one name."""
    each: Iterable[tuple[Any, Any]]
    if is_arrow(X):
        each = zip(X.column_names, X.columns, strict=True)
    else:
        each = X.items() if hasattr(X, "items") else ((column.name, column) for column in X.iter_columns())
    return [(name, _values_of(name, column)) for name, column in each]


def _values_of(name: Any, column: Any) -> Array:
    """What a column holds; InputError where its integers, which are floats since some are missing, are rounded."""
    found = np.asarray(column)
    kind = str(getattr(column, "dtype", None) or getattr(column, "type", "")).lower()
    if found.dtype.kind == "f" and kind.startswith(("int64", "uint64")):
        fill = column.fill_null if hasattr(column, "fill_null") else column.fillna
        refuse_rounded(np.asarray(fill(0)), None, 0, f"column {name}")
    return found


def lazy_numbers(X: Any) -> Any:
    """A Dask data frame whose columns are numbers that NumPy has, NaN where a value is missing; InputError, which
    names them, for other columns."""
    decimals = {name: "string" for name, dtype in X.dtypes.items() if str(dtype).startswith(DECIMAL)}
    kinds = {name: "f" if name in decimals else getattr(dtype, "kind", "O") for name, dtype in X.dtypes.items()}
    if wrong := [f"{name} ({X.dtypes[name]})" for name, kind in kinds.items() if kind not in "biuf"]:
        times = [kind in "mM" for kind in kinds.values() if kind not in "biuf"]
        raise InputError(f"rows hold columns that are not numbers: {listed(wrong)}. {remedy(times)}")
    plain = all(isinstance(dtype, np.dtype) for dtype in X.dtypes) and len({kind == "b" for kind in kinds.values()}) < 2
    known = {name for name, dtype in X.dtypes.items() if isinstance(dtype, np.dtype) and dtype.kind != "b"}
    if {*kinds.values()} - {*"iu"} and any(str(dtype).lower().endswith("int64") for dtype in X.dtypes):
        X = X.map_partitions(_unrounded, meta=X._meta)
    X = X.astype(decimals) if decimals else X  # (from text each is rounded once)
    return X if plain else X.astype({name: "float64" for name in kinds if name not in known})


def _unrounded(frame: Any) -> Any:
    """A part of a Dask data frame, whose integers beside floats NumPy would round."""
    for name, column in frame.items():
        if getattr(column.dtype, "kind", "O") in "iu":
            refuse_rounded(column.dropna().to_numpy(), None, 0, f"column {name} (rows counted from its partition on)")
    return frame


def numbers_of(columns: Iterable[tuple[Any, Array]], numbered: bool = False) -> Array:
    """Columns as rows of float64, NaN where a value is missing (None, NA); InputError that names those of no numbers.

    ``numbered``: whether their names are their numbers.

    >>> numbers_of([("a", np.array([1, None])), ("b", np.array([True, False]))]).tolist()
    [[1.0, 1.0], [nan, 0.0]]
    """
    found, wrong, times, error = [], [], [], None
    for name, values in columns:
        try:
            found.append(as_numbers(name, values))
        except (TypeError, ValueError, OverflowError) as caught:
            if isinstance(caught, InputError):
                raise
            wrong.append(f"{name} ({caught})")
            times.append(_is_of_times(values))
            error = error if isinstance(error, TypeError) else caught
    if error is not None:
        what = "columns, counted from 0," if numbered else "columns"
        raise (InputTypeError if isinstance(error, TypeError) else InputError)(
            f"not all are numbers in the {what} {listed(wrong)}; the argument must be a string or a number that float "
            f"takes. {remedy(times)}"
        ) from error
    return np.column_stack(found)


def remedy(times: Sequence[bool]) -> str:
    """Return what to do with columns that are no numbers, where it is said of each whether it holds ``times``.

    >>> remedy([True]) == TIMES, remedy([False]) == REMEDY, remedy([True, False]) == f"{REMEDY}. {TIMES}"
    (True, True, True)
    """
    return ". ".join([REMEDY] * (not all(times)) + [TIMES] * any(times))


def _is_of_times(values: Array) -> bool:
    """Whether a column holds dates, times or durations."""
    if values.dtype != object:
        return values.dtype.kind in "mM"
    first = next(iter(values[~absent(values)]), None)
    return isinstance(first, date | time | timedelta)


def as_numbers(name: Any, values: Array) -> Array:
    """A column as float64; TypeError or ValueError where it is not of numbers."""
    if values.dtype.kind in "biuf":
        refuse_rounded(values, None, 0, f"column {name}")
        return values.astype(np.float64)
    if values.dtype.kind == "c":
        raise InputError(f"Complex data not supported: rows must be real numbers, and column {name} is complex")
    if values.dtype.kind in "mM":
        raise ValueError("dates and times")
    values = values.astype(object)  # (text of any kind)
    gone = absent(values)
    refuse_lists(values[~gone], f"column {name} holds")
    found = np.full(len(values), np.nan)
    found[~gone] = values[~gone].astype(np.float64)
    for row in np.flatnonzero((np.abs(found) >= EXACT) & np.isfinite(found)).tolist():
        whole = isinstance(values[row], int | Decimal) and int(values[row]) == values[row]
        if whole and int(found[row]) != values[row]:
            raise InputError(f"row {row} holds the integer {values[row]}, beyond 2^53, which float64 would round")
    return found


def refuse_lists(values: Array, what: str) -> None:
    """InputError for objects that are rows themselves, as a column of embeddings holds them."""
    if values.dtype == object and values.ndim == 1 and len(values) and isinstance(values[0], list | tuple | np.ndarray):
        raise InputError(
            f"{what} a list for each row. numpy.stack(column.to_numpy()) makes rows of them; other columns go beside "
            "these by numpy.column_stack"
        )


def absent(values: Array) -> Array:
    """Which entries of objects stand for nothing: None, NaN, NA and NaT of pandas."""
    if values.dtype != object:
        return np.zeros(len(values), bool)
    return np.array([type(one).__name__ in NOTHING or _unequal(one) for one in values.tolist()], bool)


def _unequal(value: Any) -> bool:
    """Whether it is NaN, of any type of number."""
    return isinstance(value, float | np.floating) and bool(value != value)
