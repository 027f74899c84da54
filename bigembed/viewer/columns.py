"""Columns and names of rows as users hand them over; brought to the order of the map where their names say another.

A table or a data frame may have its rows in another order than the map. Where both name their rows (by a column of the
name that the run's ids have, by the index of the frame, or by ids that are given beside the columns), the columns are
joined to the map by these names; else row i of a column is row i of the map.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from hashlib import sha256
from pathlib import Path
from typing import Any

import numpy as np

from bigembed.errors import FeatureNamesWarning, InputError, MissingPathError
from bigembed.rows import RowSource, formats, rows_at
from bigembed.rows.derived import RowNumbers
from bigembed.rows.formats import copying
from bigembed.rows.formats.folders import delimited_files, is_table, open_columns
from bigembed.rows.formats.tables import parquet_files
from bigembed.rows.reader import Choice, Reader, described
from bigembed.runtime.blocks import Array, bounds
from bigembed.store import AnyPath, arrays, at, is_path, no_such_path, stamp
from bigembed.store.attributes import seal_rows
from bigembed.viewer import BLOCK, encoded, in_memory

COMPARED = 100
"""Names of the map that differ from those given, which are looked for among all that are given."""

Columns = tuple[tuple[str, RowSource], ...]


# ------------------------------------------------------------------------------------------------------------- names


@dataclass(frozen=True)
class Names:
    """What the rows of a map are called, and those of columns that are given for it."""

    rows: RowSource | None = None
    """The names of the rows of the map; None where they have none."""
    column: str = ""
    """The column of a table that names its rows so; empty where that is not known."""
    given: RowSource | None = None
    """The names of the rows of the columns."""
    index: RowSource | None = None
    """The index of the data frame that the map is of."""
    places: dict[str, Array | None] = field(default_factory=dict, repr=False)
    """Orders that were found, by the names that they are of."""

    @property
    def shown(self) -> RowSource | None:
        """The names that the page shows: those given, unless they are those of the map in another order."""
        if self.given is not None and self.place(self.given) is None:
            return self.given
        return self.rows or (None if isinstance(self.index, RowNumbers) else self.index)

    def place(self, other: RowSource, where: str = "") -> Array | None:
        """The row of ``other`` that each row of the map is, −1 where it has none; None where the order is the same.

        Also None where ``other`` are names of another kind; they are refused if it is said ``where`` they stand.
        """
        if self.rows is None:
            return None
        key = f"{where} {self.rows.fingerprint()} {other.fingerprint()}"
        if key not in self.places:
            self.places[key] = _place(self.rows, other, where)
        return self.places[key]

    def of_index(self) -> Names:
        """The same, to be found by the index of another data frame."""
        return self if self.index is None else replace(self, rows=self.index)


def _place(rows: RowSource, other: RowSource, where: str) -> Array | None:
    same_length = other.shape == rows.shape
    apart = _apart(rows, other) if same_length else encoded(rows.read(0, min(COMPARED, rows.shape[0]))).tolist()
    if not apart or not (where or _holds_most(other, apart)):
        return None
    found, absent = copying.positions(other, rows) if other.shape[0] else (np.empty(0), [])
    if len(absent) == len(found):
        raise InputError(
            f"{where}: none of its names is that of a row of the map, such as {apart[0].decode()!r}. Give the names of "
            "its rows (ids), or the column alone as a vector, whose row i is row i of the map"
        )
    copying.check_ids(other)
    if absent:
        warnings.warn(
            f"{where or 'columns'}: {len(absent):,} of the {len(found):,} rows of the map are not there and have no "
            f"value, such as {absent[0]!r}",
            FeatureNamesWarning,
            stacklevel=2,
        )
    return found


def _apart(rows: RowSource, other: RowSource) -> list[bytes]:
    """Names of the first block in which any differ from those at their place; some of them."""
    for start, stop in bounds(rows.shape[0], BLOCK):
        own, given = (encoded(one.read(start, stop)) for one in (rows, other))
        if len(differ := np.flatnonzero(own != given)):
            return own[differ[:COMPARED]].tolist()  # type: ignore[no-any-return]
    return []


def _holds_most(other: RowSource, names: Sequence[bytes]) -> bool:
    """Whether half of some names, or more, are among the others."""
    sought = set(names)
    enough = len(sought) // 2
    for span in bounds(other.shape[0], BLOCK):
        sought.difference_update(encoded(other.read(*span)).tolist())
        if len(sought) <= enough:
            return True
    return False


def index_names(index: Any) -> RowSource | None:
    """The names in the index of a pandas object, of 0, 1, 2, … the numbers of rows; None of anything else."""
    if not type(index).__module__.startswith("pandas.") or index.nlevels != 1:
        return None
    if type(index).__name__ == "RangeIndex" and (index.start, index.step) == (0, 1):
        return RowNumbers((len(index),), np.dtype(np.int64))
    array = encoded(index.to_numpy())
    return RowSource(array.shape, array.dtype, array=array)


# -------------------------------------------------------------------------------------------------------------- join


@dataclass(frozen=True)
class CopiedColumn(RowSource):
    """A column of a table, copied to where any part of it is read at once."""

    origin: str = ""
    """Which column, of which file, as it was; and by which names it was joined."""

    def fingerprint(self) -> str:
        return sha256(self.origin.encode()).hexdigest()


def joined(columns: Columns, names: RowSource | None, known: Names, scratch: Path, where: str = "") -> Columns:
    """Columns whose rows have ``names`` in the order of the map; they are missing where a row has no such name."""
    order = None if names is None else known.place(names, where)
    if names is None or order is None:
        if names is not None and known.rows is not None and known.rows.shape == names.shape:
            _warn_of_others(known.rows, names)
        return columns
    for name, column in columns:
        if column.shape != names.shape:
            raise InputError(f"{name}: shape {column.shape}; there are {names.shape[0]:,} names of its rows")
    return tuple((name, _taken(column, order, scratch)) for name, column in columns)


def _warn_of_others(rows: RowSource, names: RowSource) -> None:
    """Warn where columns are taken by position, and their rows have other names than those of the map."""
    if apart := _apart(rows, names):
        warnings.warn(
            f"ids: {apart[0].decode()!r}, as a row of the map is called, is not among the names given: row i of the "
            "columns is taken for row i of the map, and shown by the name given",
            FeatureNamesWarning,
            stacklevel=2,
        )


def _taken(column: RowSource, order: Array, scratch: Path) -> RowSource:
    """A column in another order: written block by block; of one that does not lie in Zarr, in memory."""
    stored = column.path is not None and not column.path.endswith(".npy")
    if not stored:
        values = _rows_of(column, order, bool((order < 0).any()))
        return RowSource(values.shape, values.dtype, array=values)
    origin = f"{column.fingerprint()} {sha256(order.tobytes()).hexdigest()}"
    place = scratch / f"joined-{sha256(origin.encode()).hexdigest()[:16]}.zarr"
    if not place.exists():
        gaps = bool((order < 0).any())
        dtype = _rows_of(column, order[:1], gaps).dtype
        arrays.create_rows(place, order.shape, dtype if dtype.kind in "biuf" else str, BLOCK)
        for start, stop in bounds(len(order), BLOCK):
            arrays.write_rows(place, start, _rows_of(column, order[start:stop], gaps))
        seal_rows(place, "columns")
    found = rows_at(place)
    return CopiedColumn(found.shape, found.dtype, path=found.path, origin=origin)


def _rows_of(column: RowSource, rows: Array, gaps: bool) -> Array:
    """Some entries, in any order; NaN, NaT or nothing for row −1, if there are such."""
    values = copying.rows_of(column, np.maximum(rows, 0))
    if not gaps:
        return values
    kind = values.dtype.kind
    values = values.astype(np.float64) if kind in "biu" else values.copy()
    values[rows < 0] = np.nan if kind in "biuf" else np.datetime64("NaT") if kind == "M" else values.dtype.type("")
    return values


# ------------------------------------------------------------------------------------------------------------ tables


@dataclass(frozen=True)
class _OneColumn:
    """The only column of rows, as a vector."""

    reader: Reader

    @property
    def shape(self) -> tuple[int, ...]:
        return (self.reader.shape[0],)

    @property
    def dtype(self) -> np.dtype[Any]:
        return self.reader.dtype

    @property
    def grain(self) -> int:
        return self.reader.grain

    def stream(self, start: int, stop: int) -> Iterator[Any]:
        for part in self.reader.stream(start, stop):
            yield part[:, 0]


def table_columns(path: AnyPath, wanted: Sequence[str], known: Names, scratch: Path) -> Columns:
    """Columns of a Parquet or CSV file, numbers or text; all of them if none are wanted.

    A column that is called as the ids of the map names its rows.
    """
    table = open_columns(path)
    if unknown := [name for name in wanted if name not in table.names]:
        raise InputError(f"{path}: no columns {', '.join(unknown)}; there are {described(table.names)}")
    out: list[tuple[str, RowSource]] = []
    for name in wanted or table.names:
        place = scratch / f"column-{sha256(f'{path} {name}'.encode()).hexdigest()[:16]}.zarr"
        if not place.exists():
            _copy_column(path, table, name, place)
        found = rows_at(place)
        out.append((name, CopiedColumn(found.shape, found.dtype, path=found.path, origin=_origin(path, name))))
    if not known.column or known.column not in table.names:
        if known.column and known.given is None:
            warnings.warn(
                f"{path}: has no column {known.column!r}, by which the rows of the map are called: row i is taken for "
                "row i of the map. Where they lie in another order, say which column has these names: "
                f"--ids {path}:NAME (in Python ids)",
                FeatureNamesWarning,
                stacklevel=2,
            )
        return joined(tuple(out), known.given, known, scratch)
    names = _names_in(path, table, known.column, scratch)
    return joined(tuple(out), names, known, scratch, f"{path}: the column {known.column}")


def _names_in(path: AnyPath, table: Any, name: str, scratch: Path) -> RowSource:
    """A column as it stands, numbers of 64 bits too: the names of the rows."""
    place = scratch / f"names-{sha256(f'{path} {name}'.encode()).hexdigest()[:16]}.zarr"
    if not place.exists():
        copying.copy_vector(table.vector(name), place, "columns")
    found = rows_at(place)
    return CopiedColumn(found.shape, found.dtype, path=found.path, origin=_origin(path, name))


def _origin(path: AnyPath, name: str) -> str:
    """Which column of which files, as they are."""
    return repr((str(path), [stamp(file) for file in parquet_files(path) or delimited_files(path)], name))


def _copy_column(path: AnyPath, table: Any, name: str, place: Path) -> None:
    """As numbers, NaN where one is missing, if it holds numbers; as text, if it does not."""
    try:
        copying.copy_vector(
            _OneColumn(formats.open_reader(path, Choice(columns=(name,), missing=True))), place, "columns"
        )
    except InputError:
        copying.copy_vector(table.vector(name, missing=True), place, "columns")


def _table_and_names(given: str) -> tuple[AnyPath, str]:
    """A path, and which columns are named after a colon; MissingPathError if nothing is there."""
    place, names = at(given), ""
    if not place.exists() and ":" in given:
        head, _, names = given.rpartition(":")
        place = at(head)
    if not place.exists():
        advice = "Give a vector (Zarr, .npy), or a table and names: FILE:A,B"
        raise MissingPathError(f"columns or ids {no_such_path(place)}. {advice}")
    return place.absolute(), names


def column_at(given: str, scratch: Path, known: Names | None = None) -> Columns:
    """Columns by path: a vector (Zarr or .npy), or a table, of which NAMES after a colon choose some."""
    known = known or Names()
    place, names = _table_and_names(given)
    if is_table(place):
        return table_columns(place, [name.strip() for name in names.split(",") if name.strip()], known, scratch)
    if names:
        raise InputError(f"{given}: names choose columns of Parquet and CSV; {place} is neither")
    return joined(((place.stem, rows_at(place)),), known.given, known, scratch)


def columns_of(given: Any, scratch: Path, known: Names | None = None) -> Columns:
    """Columns by name, for the rows of a map that are called so: a mapping or a data frame; a path, or several."""
    known = known or Names()
    if given is None:
        return ()
    if is_path(given):
        return column_at(str(given), scratch, known)
    if hasattr(given, "columns") and hasattr(given, "shape"):
        return _of_frame(given, scratch, known)
    if isinstance(given, Mapping):
        return tuple(pair for name, values in given.items() for pair in _of_values(str(name), values, scratch, known))
    if isinstance(given, Iterable):
        return tuple(found for one in given for found in column_at(str(one), scratch, known))
    raise InputError(f"columns: {type(given).__name__}; give a mapping of names, a data frame, a path or several")


def _of_frame(frame: Any, scratch: Path, known: Names) -> Columns:
    """Columns of a data frame, whose rows a column names that is called as the ids of the map, or else its index."""
    held = tuple((str(name), vector_of(frame[name], scratch, str(name))) for name in frame.columns)
    if known.column and known.column in dict(held):
        return joined(held, dict(held)[known.column], known, scratch, f"columns: {known.column} of the data frame")
    return _by_index(held, frame, known, scratch)


def _by_index(columns: Columns, values: Any, known: Names, scratch: Path) -> Columns:
    """Columns of pandas joined by its index, if it says what their rows are called; others by the ids given.

    The numbers 0, 1, 2, … of an index say so only if a data frame was fitted.
    """
    index = index_names(getattr(values, "index", None))
    if index is None or (isinstance(index, RowNumbers) and known.index is None):
        return joined(columns, known.given, known, scratch)
    return joined(columns, index, known.of_index(), scratch)


def _of_values(name: str, values: Any, scratch: Path, known: Names) -> Columns:
    """A column of a mapping; of pandas with its index."""
    if is_path(values):
        return ((name, vector_of(values, scratch, name, known)),)
    return _by_index(((name, vector_of(values, scratch, name)),), values, known, scratch)


def ids_of(values: Any, scratch: Path) -> RowSource:
    """Names of rows, of any kind, or where they lie: a vector, or a column of a table."""
    if not is_path(values):
        return vector_of(values, scratch, "ids")
    place, name = _table_and_names(str(values))
    if not is_table(place):
        return vector_of(values, scratch, "ids")
    table = open_columns(place)
    names = [name] if name else list(table.names)
    if len(names) != 1 or names[0] not in table.names:
        raise InputError(f"{values}: choose one column: {place}:NAME; there are {described(table.names)}")
    return _names_in(place, table, names[0], scratch)


def vector_of(values: Any, scratch: Path, name: str, known: Names | None = None) -> RowSource:
    """An entry for each row, of any kind: in memory, lazy, stored, or in a table."""
    if isinstance(values, RowSource):
        return values
    if is_path(values):
        found = column_at(str(values), scratch, known)
        if len(found) != 1:
            raise InputError(f"{name}: {values} holds {len(found)} columns; choose one: {values}:NAME")
        return found[0][1]
    if type(values).__module__.partition(".")[0] in ("zarr", "dask", "h5py"):
        values = values.compute() if hasattr(values, "compute") else values[:]
    array = in_memory(values)
    if len(array.shape) != 1:
        raise InputError(f"{name}: shape {array.shape}; give one entry for each row")
    return RowSource(array.shape, array.dtype, array=array)
