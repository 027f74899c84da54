"""Tables: columns of Parquet files as rows, by pyarrow, which an extra installs; and coordinates written as tables."""

from __future__ import annotations

import csv
import json
import os
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, ClassVar, TextIO

import numpy as np

from bigembed.errors import ExistingOutputError, InputError, needed
from bigembed.rows import RowSource, arrow, as_worked, reader
from bigembed.rows import categories as coded
from bigembed.rows.exact import EXACT
from bigembed.rows.formats.schemas import (
    LISTS,
    expanded,
    is_text,
    library,
    list_widths,
    merged,
    of_lists,
    require_same_names,
    rows_dtype,
    vector_dtype,
)
from bigembed.rows.missing import any_missing, missing_values
from bigembed.rows.packing import nan_dtype
from bigembed.runtime.blocks import Array, block_rows, bounds
from bigembed.store import AnyPath, PathLike, at, copy_file, locks, objects, stored
from bigembed.store.files import temporary

# ----------------------------------------------------------------------------------------------------------- parquet


def parquet_files(path: AnyPath) -> list[AnyPath]:
    """The Parquet files that a path names: itself, or those in a folder."""
    if path.suffix in (".parquet", ".pq") and path.is_file():
        return [path]
    if not path.is_dir() or any((path / mark).is_file() for mark in objects.MARKS):
        return []
    return [path / file.name for file in stored(path) if file.name.endswith(".parquet")]


@dataclass(frozen=True)
class ParquetReader:
    """Columns of Parquet files, row group by row group. Rows in the order of the files' names.

    A column of lists, as embeddings often lie in a table, is as many columns of the rows as its lists have numbers.
    """

    paths: tuple[str, ...]
    columns: tuple[str, ...]
    groups: tuple[tuple[int, int, int], ...] = field(repr=False)
    """Of each row group: number of its file, its number there, its first row in all."""
    shape: tuple[int, ...]
    dtype: np.dtype[Any]
    grain: int = 1
    names: Mapping[str, str] = field(default_factory=dict, repr=False)
    row_ids: None = None
    missing: bool = False
    """Whether nulls come as NaN; they are refused otherwise."""
    categories: coded.Categories = field(default_factory=dict, repr=False)
    """Columns of categories, which come as their places among these texts."""
    strict: Mapping[str, str] = field(default_factory=dict, repr=False)
    """Those of them in which other texts are refused: see :class:`~bigembed.rows.reader.Choice`."""
    lists: Mapping[str, int] = field(default_factory=dict)
    """Columns of lists, with how many numbers each has."""
    wrong: Mapping[str, str] = field(default_factory=dict, repr=False)
    """What is wrong with columns that cannot be read from all files."""
    loading: ClassVar[int] = reader.ARROW

    @property
    def features(self) -> tuple[str, ...]:
        """Names of the columns; of those of lists with the place in the list behind it."""
        return expanded(self.columns, self.lists)

    def vector(self, name: str, missing: bool = False) -> ParquetReader:
        """One column, of numbers or of text."""
        if name in self.wrong:
            raise InputError(self.wrong[name])
        kind = vector_dtype(self.names[name])
        known: dict[str, Any] = {"categories": {}, "strict": {}, "lists": {}, "missing": missing}
        return replace(self, columns=(name,), shape=self.shape[:1], dtype=kind, **known)

    def as_numbers(self) -> ParquetReader:
        """The same column; of decimals as numbers, which are text otherwise."""
        decimals = self.names[self.columns[0]].startswith(reader.DECIMAL)
        return replace(self, dtype=np.dtype(np.float64)) if decimals else self

    def stream(self, start: int, stop: int) -> Iterator[Array]:
        for file, first, batch in self._batches(start, stop):
            if not self.missing and any(map(any_missing, batch.columns)):
                raise missing_values(self._batches(0, self.shape[0]), len(self.shape) == 1)
            coded.refuse_unknown(batch, self.categories, self.strict, first, f"{file}: ")
            for name, width in self.lists.items():
                _require_lengths(batch.column(name), width, f"{file}: column {name}", first)
            rows = batch_rows_of(batch, self.columns, self.dtype, self.categories, self.lists)
            yield rows if len(self.shape) == 2 else rows[:, 0]

    def _batches(self, start: int, stop: int) -> Iterator[tuple[str, int, Any]]:
        """The columns as Arrow batches of rows start to stop, each with its file and the number of its first row."""
        pq = library("parquet")
        ends = [first for _, _, first in self.groups[1:]] + [self.shape[0]]
        batch_rows = max(1, block_rows(len(self.features), self.dtype.itemsize) // 4)
        for (file, group, first), end in zip(self.groups, ends, strict=True):
            if end <= start or first >= stop:
                continue
            with pq.ParquetFile(reader.handle(self.paths[file]), pre_buffer=False) as parquet:
                for batch in parquet.iter_batches(batch_rows, row_groups=[group], columns=list(self.columns)):
                    low, high = max(start - first, 0), min(stop - first, batch.num_rows)
                    if low < high:
                        yield self.paths[file], first + low, batch.slice(low, high - low)
                    first += batch.num_rows


def batch_rows_of(
    batch: Any,
    columns: Sequence[str],
    dtype: np.dtype[Any],
    categories: coded.Categories | None = None,
    lists: Mapping[str, int] | None = None,
) -> Array:
    """Columns of a batch of Arrow as rows; what is missing is NaN, of categories their places among the texts, of
    lists their numbers side by side."""
    lists = lists or {}
    out = np.empty((batch.num_rows, sum(lists.get(name, 1) for name in columns)), dtype)
    stop = 0
    for name in columns:
        column, start = batch.column(name), stop
        stop += lists.get(name, 1)
        out[:, start:stop] = (
            _list_rows(column, lists[name], dtype, name)
            if name in lists
            else _column_rows(column, name, dtype, categories or {})[:, None]
        )
    return out


def _column_rows(column: Any, name: str, dtype: np.dtype[Any], categories: coded.Categories) -> Array:
    """A column of Arrow in the dtype of the rows."""
    if name in categories:
        return coded.codes_of(column, categories[name])
    if dtype == reader.TEXT:
        return reader.as_text(arrow.values_of(_as_text(name, column)))
    values = arrow.values_of(column)
    if column.null_count and values.dtype == object:  # (of booleans)
        values = np.array([np.nan if one is None else one for one in values], np.float64)
    if str(column.type).startswith(reader.DECIMAL) and (np.abs(values) >= EXACT).any():
        reader.as_numbers(name, np.array(column.to_pylist(), object))  # (refuses whole ones that float64 would round)
    return np.asarray(as_worked(values, dtype, what=f"column {name}"))


def _list_rows(column: Any, width: int, dtype: np.dtype[Any], name: str) -> Array:
    """The lists of a column of Arrow as rows; NaN where one is missing."""
    values = _column_rows(column.flatten(), name, dtype, {}).reshape(-1, width)
    if not column.null_count:
        return values
    out = np.full((len(column), width), np.nan, dtype)
    out[np.asarray(column.is_valid().to_numpy(zero_copy_only=False))] = values
    return out


def _require_lengths(column: Any, width: int, where: str, first: int) -> None:
    """InputError that names the first list which is longer or shorter than that of the first row."""
    if hasattr(column.type, "list_size"):
        return
    lengths = column.value_lengths().fill_null(width).to_numpy()
    if len(wrong := np.flatnonzero(lengths != width)):
        row = int(wrong[0])
        raise InputError(
            f"{where}: {lengths[row]} numbers in row {first + row} of the table (counted from 0), {width} in the first"
            f"{LISTS}"
        )


def open_parquet(paths: Sequence[AnyPath], choice: reader.Choice) -> ParquetReader:
    """The chosen columns of Parquet files, by their names in each; by default all but the ``aligned`` ones."""
    choice.only(paths[0], "Parquet", "columns")
    pq = library("parquet")
    schemas: list[tuple[AnyPath, Any]] = []
    groups, total, largest = [], 0, 1
    for number, path in enumerate(paths):
        try:
            with pq.ParquetFile(reader.handle(str(path))) as file:
                schema, meta = file.schema_arrow.remove_metadata(), file.metadata
        except (ValueError, OSError) as error:
            raise InputError(f"{path}: not readable as Parquet ({error})") from error
        if not schemas or not schema.equals(schemas[-1][1]):
            schemas.append((path, schema))
        for group in range(meta.num_row_groups):
            groups.append((number, group, total))
            total += meta.row_group(group).num_rows
            largest = max(largest, meta.row_group(group).num_rows)
    kinds, wrong = merged(schemas)
    there = {name: str(kind) for name, kind in kinds.items()}
    in_all = {name: kind for name, kind in kinds.items() if name not in wrong}
    choice = choice.named_in(paths[0], kinds)
    wanted = of_lists(choice, paths[0], in_all).of_table(paths[0], there)
    if wanted and not (choice.columns or choice.expected):
        require_same_names(schemas)
    if said := [wrong[name] for name in wanted if name in wrong]:
        raise InputError(reader.listed(said))
    text = [name for name, kind in kinds.items() if is_text(kind)] if choice.text else ()
    categories = coded.wanted_categories(choice.categories, wanted, text)
    dtype = rows_dtype(schemas, kinds, wanted, categories)
    lists = list_widths(paths[0], kinds, wanted)
    dtype = nan_dtype(dtype) if choice.missing else dtype
    shape = (total, len(expanded(wanted, lists)))
    files, grain = tuple(map(str, paths)), 4 * largest
    known: dict[str, Any] = {"missing": choice.missing, "lists": lists, "strict": dict(choice.strict), "wrong": wrong}
    found = ParquetReader(files, wanted, tuple(groups), shape, dtype, grain, there, **known)
    if todo := [name for name, texts in categories.items() if not texts]:
        batches = (batch for _, _, batch in replace(found, columns=tuple(todo), lists={})._batches(0, total))
        categories = {**categories, **coded.texts_of(paths[0], batches, todo)}
    return replace(found, categories=categories)


def largest_in(source: Any) -> float | None:
    """The largest number of the first two columns of Parquet files, if the statistics in their footers say it."""
    if not isinstance(source, ParquetReader):
        return None
    pq, largest = library("parquet"), -1.0
    for path in source.paths:
        with pq.ParquetFile(reader.handle(path)) as file:
            place = {file.metadata.schema.column(number).path: number for number in range(len(file.metadata.schema))}
            for group in range(file.metadata.num_row_groups):
                for name in source.columns[:2]:
                    if name in source.lists:
                        return None
                    known = file.metadata.row_group(group).column(place[name]).statistics
                    if known is None or not known.has_min_max:
                        return None
                    largest = max(largest, float(known.max))
    return largest


def _as_text(name: str, column: Any) -> Any:
    """A column of Arrow as text; InputError for one that has none, such as lists or bytes in no encoding."""
    arrow = library("")
    try:
        return column.cast(arrow.string())
    except (arrow.ArrowInvalid, arrow.ArrowNotImplementedError) as error:
        raise InputError(f"column {name} ({column.type}) is not text, and cannot be made text ({error})") from error


# ---------------------------------------------------------------------------------------------------------- tables
# Coordinates with names of rows and columns as a table: Parquet, CSV or .npy, streamed, written aside and renamed.

ID = "id"
FORMULA = ("=", "+", "-", "@", "\t", "\r")
"""What a cell begins with that a spreadsheet takes for a formula."""
NUMBER = re.compile(r"[+-]?[0-9]+(\.[0-9]+)?([eE][+-]?[0-9]+)?")
"""A cell that is no formula, whatever it begins with."""


@dataclass(frozen=True)
class Table:
    """Coordinates (n, m), names of their columns, and columns aligned with them (ids first, if there are any)."""

    coordinates: RowSource
    names: tuple[str, ...]
    aligned: Mapping[str, RowSource] = field(default_factory=dict)
    about: Mapping[str, Any] = field(default_factory=dict)
    """What made them: kept in the metadata of formats that have such."""

    @property
    def rows(self) -> int:
        """n."""
        return self.coordinates.shape[0]

    def blocks(self) -> Iterator[dict[str, Array]]:
        """Columns by name, a canonical block of rows at a time."""
        for start, stop in bounds(self.rows, block_rows(self.coordinates.width, 8)):
            block = {name: source.read(start, stop) for name, source in self.aligned.items()}
            values = self.coordinates.read(start, stop)
            yield block | {name: values[:, number] for number, name in enumerate(self.names)}


def check_table(out: PathLike) -> None:
    """InputError, or MissingExtraError, if such a table cannot be written here."""
    if at(out).suffix not in WRITERS:
        raise InputError(f"{out}: a table is written as {', '.join(WRITERS)}; its suffix says which")
    if at(out).suffix == ".parquet":
        needed("pyarrow.parquet", "parquet", f"{out}: Parquet")


def write_table(table: Table, out: PathLike, overwrite: bool = False) -> None:
    """Write the format that the suffix names. Raises :class:`ExistingOutputError`, :class:`InputError`."""
    check_table(out)
    _write_aside(out, overwrite, lambda partial: WRITERS[at(out).suffix](table, partial))


def write_columns(out: PathLike, blocks: Iterable[dict[str, Array]], overwrite: bool = False) -> None:
    """Write columns by name as Parquet, a row group for each block of them. Raises as :func:`write_table`."""
    if at(out).suffix != ".parquet":
        raise InputError(f"{out}: the columns are written as Parquet; give a name that ends in .parquet")
    check_table(out)
    _write_aside(out, overwrite, lambda partial: _row_groups(blocks, partial, {}))


def _write_aside(out: PathLike, overwrite: bool, write: Callable[[Path], None]) -> None:
    place = at(out)
    if place.exists() and not overwrite:
        raise ExistingOutputError(f"{out}: exists already. Nothing was changed; choose another path, or --overwrite")
    with locks.output_lock(place), temporary("table") as scratch:
        partial = scratch if isinstance(place, objects.ObjectPath) else place.parent
        partial /= f".partial-{place.name}"
        partial.parent.mkdir(parents=True, exist_ok=True)
        try:
            write(partial)
            if isinstance(place, objects.ObjectPath):
                copy_file(partial, place)
            else:
                os.replace(partial, place)
        finally:
            partial.unlink(missing_ok=True)


def _parquet(table: Table, path: Path) -> None:
    _row_groups(table.blocks(), path, {"bigembed": json.dumps(dict(table.about), default=str)})


def _row_groups(blocks: Iterable[dict[str, Array]], path: Path, about: dict[str, str]) -> None:
    arrow, parquet = (needed(module, "parquet", "writing Parquet") for module in ("pyarrow", "pyarrow.parquet"))
    writer = None
    try:
        for block in blocks:
            columns = {name: arrow.array(plain(values)) for name, values in block.items()}
            batch = arrow.table(columns)
            writer = writer or parquet.ParquetWriter(path, batch.schema.with_metadata(about))
            writer.write_table(batch.replace_schema_metadata(about))
    finally:
        if writer is not None:
            writer.close()


def _csv(table: Table, path: Path) -> None:
    with open(path, "w", encoding="utf-8", newline="") as file:
        writer = csv.writer(_Lines(file), lineterminator="\r\n")
        writer.writerow(map(guarded, [*table.aligned, *table.names]))
        for block in table.blocks():
            columns = [plain(values) for values in block.values()]
            cells = [list(map(guarded, one)) if one.dtype == object else one.tolist() for one in columns]
            writer.writerows(zip(*cells, strict=True))


@dataclass(frozen=True)
class _Lines:
    """What a CSV writer writes to: it quotes a cell that holds a character of its line ends, so it is told both, and
    lines end in a line feed here."""

    file: TextIO

    def write(self, line: str) -> None:
        self.file.write(line.removesuffix("\r\n") + "\n")


def guarded(cell: Any) -> Any:
    """A cell of a CSV: text that a spreadsheet would take for a formula has an apostrophe before it; numbers stay, as
    text too.

    :func:`bigembed.rows.formats.delimited.unguarded` takes it off.

    >>> guarded("=1+1"), guarded("'@x"), guarded("a=b"), guarded(-1.5), guarded("-1")
    ("'=1+1", "''@x", 'a=b', -1.5, '-1')
    """
    formula = isinstance(cell, str) and cell.lstrip("'").startswith(FORMULA) and not NUMBER.fullmatch(cell)
    return f"'{cell}" if formula else cell


def _npy(table: Table, path: Path) -> None:
    shape, dtype = table.coordinates.shape, table.coordinates.dtype
    with open(path, "wb") as file:
        header = {"descr": np.lib.format.dtype_to_descr(dtype), "fortran_order": False, "shape": shape}
        np.lib.format.write_array_header_1_0(file, header)
        for start, stop in bounds(table.rows, block_rows(table.coordinates.width, 8)):
            file.write(np.ascontiguousarray(table.coordinates.read(start, stop)).tobytes())


def plain(values: Array) -> Array:
    """As other libraries know it: text of any length as objects, bytes as text."""
    if values.dtype.kind == "S":
        values = np.char.decode(values, "utf-8")
    return values.astype(object) if values.dtype.kind in "TU" else values


WRITERS: dict[str, Callable[[Table, Path], None]] = {".parquet": _parquet, ".csv": _csv, ".npy": _npy}
