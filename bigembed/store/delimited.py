"""Columns of CSV and TSV files (also compressed) as rows of float64, by pyarrow's streaming reader.

Nobody knows where row i of such a file begins, so one task reads it from start to end, a bounded number of bytes at a
time. A first line of nothing but numbers is a row; the columns are then called 0, 1, ….
"""

from __future__ import annotations

import bz2
import csv
import gzip
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from io import TextIOWrapper
from typing import Any

import numpy as np

from bigembed.blocks.rows import Array
from bigembed.errors import InputError
from bigembed.store.extras import needed
from bigembed.store.missing import missing_values
from bigembed.store.parquet import batch_rows_of
from bigembed.store.paths import AnyPath, at
from bigembed.store.reader import TEXT, Choice, described, handle, listed

SUFFIXES = (".csv", ".tsv")
PACKED: dict[str, tuple[Callable[..., Any], str]] = {".gz": (gzip.open, "gzip"), ".bz2": (bz2.open, "bz2")}
"""What opens a packed file, and what pyarrow calls it."""
PIECE_BYTES = 1 << 20
"""Text that is parsed at a time, or more where a line of names is long; no row may be longer."""


@dataclass(frozen=True)
class DelimitedReader:
    """Columns of a text file with one row a line."""

    path: str
    separator: str
    head: int
    """Lines that hold the names."""
    columns: tuple[str, ...]
    names: Mapping[str, str] = field(repr=False)
    shape: tuple[int, ...] = (0, 0)
    dtype: np.dtype[Any] = field(default_factory=lambda: np.dtype(np.float64))
    row_ids: None = None

    @property
    def features(self) -> tuple[str, ...]:
        """Names of the columns, if the file has any."""
        return self.columns if self.head else ()

    @property
    def piece(self) -> int:
        """Bytes that are parsed at a time."""
        return max(PIECE_BYTES, 32 * len(self.names), 8 * sum(map(len, self.names)))

    @property
    def grain(self) -> int:
        """All rows: they can only be read from the first on."""
        return max(1, self.shape[0])

    def vector(self, name: str) -> DelimitedReader:
        """One column as text, exactly as it stands there."""
        return replace(self, columns=(name,), shape=self.shape[:1], dtype=TEXT)

    def stream(self, start: int, stop: int) -> Iterator[Array]:
        for _, first, batch in self._numbered():
            low, high = max(start - first, 0), min(stop - first, batch.num_rows)
            if low < high:
                part = batch.slice(low, high - low)
                if any(column.null_count for column in part.columns):
                    raise missing_values(self._numbered())
                rows = batch_rows_of(part, self.columns, self.dtype)
                yield rows if len(self.shape) == 2 else rows[:, 0]
            if first + batch.num_rows >= stop:
                return

    def _numbered(self) -> Iterator[tuple[str, int, Any]]:
        """All batches, each with the file and the number of its first row."""
        first = 0
        for batch in self.batches("string" if self.dtype == TEXT else "float64"):
            yield self.path, first, batch
            first += batch.num_rows

    def batches(self, kind: str) -> Iterator[Any]:
        """The columns as Arrow batches of one type; InputError where the text cannot be read as such."""
        arrow, text = _pyarrow(), _pyarrow("csv")
        options = {
            "read_options": text.ReadOptions(
                use_threads=False, block_size=self.piece, column_names=list(self.names), skip_rows=self.head
            ),
            "parse_options": text.ParseOptions(delimiter=self.separator, newlines_in_values=True),
            "convert_options": text.ConvertOptions(
                include_columns=list(self.columns), column_types={name: getattr(arrow, kind)() for name in self.columns}
            ),
        }
        packed = PACKED[at(self.path).suffix][1] if at(self.path).suffix in PACKED else None
        try:
            with arrow.input_stream(handle(self.path), packed) as file, text.open_csv(file, **options) as parsed:
                yield from parsed
        except (arrow.ArrowInvalid, OSError) as error:
            raise InputError(
                f"{self.path}: {error}. Every line needs {len(self.names)} fields, and the columns that are rows "
                "numbers (choose columns; ids, where one names the rows)"
            ) from error


def is_delimited(path: AnyPath) -> bool:
    """Whether the name is one of such a file."""
    plain = path.with_suffix("") if path.suffix in PACKED else path
    return plain.suffix in SUFFIXES and path.is_file()


def open_delimited(path: AnyPath, choice: Choice) -> DelimitedReader:
    """The chosen columns (by default all but those ``beside``); reads the file once to count its rows."""
    choice.only(path, "CSV", "columns")
    _pyarrow()
    separator, first, lines = _first_line(path)
    head = 0 if all(_is_number(one) for one in first) else lines
    there = [one.strip() for one in first] if head else [str(number) for number in range(len(first))]
    if not head:
        choice = replace(choice, expected=())
    chosen = choice.columns or choice.expected
    _refuse_names(path, there, [*chosen, *choice.beside] if chosen else there)
    wanted = choice.of_table(path, dict.fromkeys(there, ""))
    names = {name or f"column {number}": "" for number, name in enumerate(there)}
    reader = DelimitedReader(str(path), separator, head, wanted, names)
    rows = sum(batch.num_rows for batch in replace(reader, columns=wanted[:1]).batches("string"))
    return replace(reader, shape=(rows, len(wanted)))


def _first_line(path: AnyPath) -> tuple[str, list[str], int]:
    """What separates the fields, the fields of the first record, and the lines that it takes."""
    unpack = PACKED[path.suffix][0] if path.suffix in PACKED else None
    try:
        with path.open("rb") as raw, TextIOWrapper(unpack(raw) if unpack else raw, "utf-8-sig", newline="") as file:
            start = file.readline()
            separator = "\t" if ".tsv" in path.name else "," if "," in start or ";" not in start else ";"
            file.seek(0)
            records = csv.reader(file, delimiter=separator)
            first = next(records, [])
    except (OSError, EOFError, UnicodeDecodeError, csv.Error) as error:
        raise InputError(f"{path}: not readable as text in UTF-8 ({error})") from error
    if not any(one.strip() for one in first):
        raise InputError(f"{path}: empty, or its first line is; rows of numbers are needed, one a line")
    return separator, first, records.line_num


def _refuse_names(path: AnyPath, there: Sequence[str], needed: Sequence[str]) -> None:
    twice = sorted({name for name in needed if name and there.count(name) > 1})
    if twice:
        raise InputError(f"{path}: several columns are called {listed(twice)}. Give each column a name of its own")
    if "" in needed:
        raise InputError(
            f"{path}: column {there.index('') + 1} has no name; columns are {described(dict.fromkeys(there, ''))}. "
            "Name it in the first line, or choose others (columns)"
        )


def _is_number(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return True


def _pyarrow(module: str = "") -> Any:
    return needed(f"pyarrow.{module}".rstrip("."), "csv", "reading CSV")
