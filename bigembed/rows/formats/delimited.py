"""Columns of CSV and TSV files as rows of float64, read from start to end."""

from __future__ import annotations

import bz2
import csv
import gzip
import re
import warnings
import zlib
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace
from io import TextIOWrapper
from itertools import chain, islice
from typing import Any, ClassVar, TextIO
from zipfile import BadZipFile, ZipFile

import numpy as np

from bigembed.errors import FeatureNamesWarning, InputError, needed
from bigembed.rows import categories as coded
from bigembed.rows import reader
from bigembed.rows.exact import EXACT
from bigembed.rows.formats import faults, words
from bigembed.rows.formats.quotes import Quotes, line_of, records
from bigembed.rows.formats.tables import FORMULA, batch_rows_of
from bigembed.rows.missing import FIRST, missing_values
from bigembed.runtime.blocks import Array
from bigembed.store import AnyPath, at

# ------------------------------------------------------------------------------------------------------- delimited
# Columns of CSV and TSV files (also compressed) as rows of float64, by pyarrow.
#
# Nobody knows where row i of such a file begins, so one task reads it from start to end, a bounded number of bytes at
# a time. These are cut here: pyarrow's streaming reader reads files of Python ahead in a thread, which after an error
# outlives the interpreter, and a process hangs or aborts at its end. A first line of nothing but numbers is a row; the
# columns are then called 0, 1, ….

SUFFIXES = (".csv", ".tsv")
TRUE, FALSE = ("True", "true", "TRUE"), ("False", "false", "FALSE")
WORDS = {*TRUE, *FALSE}
"""Words of a column of them, which are 1 and 0."""
SEPARATORS = (",", ";", "\t", "|")
"""What may separate fields."""
INDEX = "index"
"""Name of a first column without a name, as pandas writes it: it names the rows, and is not a part of them."""


@contextmanager
def _unzipped(raw: Any) -> Iterator[Any]:
    """The only file of a ZIP archive."""
    with ZipFile(raw) as archive:
        inside = [one for one in archive.namelist() if not one.endswith("/")]
        if len(inside) != 1:
            raise InputError(f"{raw.name}: holds {reader.listed(inside) or 'nothing'}; one table is needed. Unpack it")
        with archive.open(inside[0]) as file:
            yield file


PACKED: dict[str, Callable[..., Any]] = {".gz": gzip.open, ".bz2": bz2.open, ".zip": _unzipped}
"""What opens a packed file."""
LINE = 1 << 26
"""Characters of a line at the most."""
WHOLE = re.compile(r"\s*[+-]?\d{16,300}\s*")
COLUMN, ROW = re.compile(r"CSV column #(\d+):"), re.compile(r"Row #(\d+):")
"""How the parser says in which column of the file, and in which record of what it was given, from 1 on, is a fault."""
VALUE = re.compile(r"CSV conversion error to \w+: (invalid value .*)", re.DOTALL)
LOOKED_AT = 1_000
"""Records that are looked at for what stands before decimals."""
PIECE_BYTES = 1 << 20
"""Text that is read at a time, or more where a line of names is long."""


@dataclass(frozen=True)
class DelimitedReader:
    """Columns of a text file with one row a line."""

    path: str
    separator: str
    decimal: str
    """What stands before the decimals: a point, or a comma."""
    head: int
    """Lines that hold the names."""
    columns: tuple[str, ...]
    names: Mapping[str, str] = field(repr=False)
    shape: tuple[int, ...] = (0, 0)
    dtype: np.dtype[Any] = field(default_factory=lambda: np.dtype(np.float64))
    row_ids: None = None
    missing: bool = False
    """Whether empty cells come as NaN; they are refused otherwise."""
    categories: coded.Categories = field(default_factory=dict, repr=False)
    """Columns of categories, which come as their places among these texts."""
    strict: Mapping[str, str] = field(default_factory=dict, repr=False)
    """Those of them in which other texts are refused: see :class:`~bigembed.rows.reader.Choice`."""
    words: tuple[str, ...] = ()
    """Columns of :data:`WORDS`, which come as 1 and 0."""
    loading: ClassVar[int] = reader.ARROW

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

    def vector(self, name: str, missing: bool = False) -> DelimitedReader:
        """One column as text, as it stands there (see :func:`unguarded`)."""
        known: dict[str, Any] = {"categories": {}, "strict": {}, "missing": missing}
        return replace(self, columns=(name,), shape=self.shape[:1], dtype=reader.TEXT, **known)

    def as_numbers(self) -> DelimitedReader:
        """The same columns as numbers."""
        numbers = replace(self, dtype=np.dtype(np.float64))
        return replace(numbers, words=tuple(numbers._of_words()))

    def _of_words(self) -> Iterator[str]:
        """The columns whose first entry is one of the words; read until each has one."""
        left = [name for name in self.columns if name not in self.categories]
        for batch in replace(self, columns=tuple(left)).batches("string") if left else ():
            first = {name: batch.column(name).drop_null()[:1].to_pylist() for name in left}
            yield from (name for name, found in first.items() if not WORDS.isdisjoint(found))
            if not (left := [name for name, found in first.items() if not found]):
                return

    def stream(self, start: int, stop: int) -> Iterator[Array]:
        looked = False
        for _, first, batch in self._numbered():
            low, high = max(start - first, 0), min(stop - first, batch.num_rows)
            if low < high:
                part = batch.slice(low, high - low)
                if not self.missing and any(column.null_count for column in part.columns):
                    raise missing_values(self._numbered(), len(self.shape) == 1)
                coded.refuse_unknown(part, self.categories, self.strict, first + low, f"{self.path}: ")
                rows = batch_rows_of(part, self.columns, self.dtype, self.categories)
                if rows.dtype.kind == "f" and np.isinf(rows).any():
                    self._refuse_infinite()
                if not looked and rows.dtype.kind == "f" and (np.abs(rows) >= EXACT).any():
                    self._refuse_rounded()
                    looked = True
                yield rows if len(self.shape) == 2 else unguarded(rows[:, 0])
            if first + batch.num_rows >= stop:
                return

    def columns_of_text(self) -> list[str]:
        """The columns that do not hold numbers alone: one pass over the file."""
        numbers = ("null", "bool", *reader.FLOATS, *reader.INTEGERS)
        found = {one.name for batch in self.batches("") for one in batch.schema if str(one.type) not in numbers}
        return [name for name in self.columns if name in found]

    def _refuse_infinite(self) -> None:
        """InputError that names the columns and the rows with infinity, which is written so, or is beyond float64."""
        counts, found = Counter[str](), []
        for _, start, batch in self._numbered():
            wrong = np.isinf(batch_rows_of(batch, self.columns, self.dtype, self.categories))
            counts.update(dict(zip(self.columns, wrong.sum(axis=0).tolist(), strict=True)))
            found += (start + np.flatnonzero(wrong.any(axis=1))).tolist()
        columns = reader.listed(f"{name} ({count})" for name, count in counts.items() if count)
        rows = ", ".join(map(str, found[:FIRST])) + (", …" if len(found) > FIRST else "")
        raise InputError(
            f"{self.path}: values are infinite in the columns {columns}: in {len(found)} of {self.shape[0]} rows, "
            f"which are {rows} (counted from 0). Infinity is not a missing value, and no method takes it (a number "
            "beyond 1.8e308 is infinite, too): look where it comes from, and write a number, or an empty field"
        )

    def _refuse_rounded(self) -> None:
        """InputError where the text of a number is a whole one that float64 would round."""
        row = 0
        for batch in self.batches("string"):
            for name, column in zip(self.columns, batch.columns, strict=True):
                for place, text in enumerate([] if name in self.categories else column.to_pylist()):
                    if text and len(text) > 15 and WHOLE.fullmatch(text) and int(float(text)) != int(text):
                        raise InputError(
                            f"{self.path}: row {row + place} has {text[:40]} in {name}, an integer beyond 2^53, which "
                            "float64 would round. Leave the column out (an id names rows: ids)"
                        )
            row += batch.num_rows

    def _numbered(self) -> Iterator[tuple[str, int, Any]]:
        """All batches, each with the file and the number of its first row."""
        first = 0
        for batch in self.batches("string" if self.dtype == reader.TEXT else "float64"):
            yield self.path, first, batch
            first += batch.num_rows

    def batches(self, kind: str) -> Iterator[Any]:
        """The columns as Arrow batches of one type, or of what each holds if none is given; InputError where the text
        cannot be read as such."""
        arrow, text = _pyarrow(), _pyarrow("csv")
        kinds = dict.fromkeys(self.words, "bool_") if kind != "string" else {}
        kinds |= dict.fromkeys(self.categories, "string")
        options = {
            "parse_options": text.ParseOptions(delimiter=self.separator, newlines_in_values=True),
            "convert_options": text.ConvertOptions(
                include_columns=list(self.columns),
                column_types={name: getattr(arrow, kinds.get(name, kind))() for name in self.columns if kind},
                true_values=TRUE,
                false_values=FALSE,
                strings_can_be_null=self.dtype != reader.TEXT and self.categories.keys().isdisjoint(self.columns),
                decimal_point=self.decimal,
            ),
        }
        quotes, head, before = Quotes(self.separator), self.head, 0
        try:
            with _unpacked(at(self.path)) as file:
                for piece in records(file, quotes, self.piece):
                    self._refuse_open(quotes)
                    read = text.ReadOptions(
                        use_threads=False, block_size=len(piece), column_names=list(self.names), skip_rows=head
                    )
                    batches = text.read_csv(arrow.BufferReader(piece), read, **options).to_batches()
                    texts = {} if self.dtype == reader.TEXT else self.categories
                    yield from (words.with_missing(batch, texts) for batch in batches)
                    before += head + sum(batch.num_rows for batch in batches)
                    head = 0
        except (arrow.ArrowInvalid, OSError, EOFError, BadZipFile, zlib.error, csv.Error) as error:
            self._refuse_open(quotes)
            if "UTF8" in str(error):
                raise _other_encoding(at(self.path)) from error
            raise InputError(f"{self.path}: {self._explained(str(error), before)}") from error

    def _explained(self, message: str, before: int) -> str:
        """What the parser says, with the name of the column and the number of the record, and what is needed."""
        names = list(self.names)
        message = COLUMN.sub(lambda found: f"column {names[int(found[1])]}:", message, count=1)
        message = ROW.sub(lambda found: f"Row #{int(found[1]) + before}:", message, count=1)
        form = f"Every line needs {len(names)} fields with {self.separator!r} between them"
        if (found := VALUE.search(message)) is None:
            first = faults.of_first_line(message, self.separator.join(names)) if self.head else ""
            return f"{message}. {form}, as its first has{first}"
        return (
            f"{message[: found.start()]}{found[1]}. {form}, here numbers with {self.decimal!r} before decimals, or "
            "True and False alone; a missing number is an empty field, NaN, N/A or null. If it is no column of "
            "numbers, choose columns without it; one that names the rows is for ids; categories become columns of 0 "
            f"and 1 by the step 'one_hot'{f'. {reader.TIMES}' if faults.is_time(found[1]) else ''}"
        )

    def _refuse_open(self, quotes: Quotes) -> None:
        """InputError where a quote that opens a field is not closed before the next field, or the end."""
        if quotes.wrong is None:
            return
        with _unpacked(at(self.path)) as file:
            line = line_of(file, quotes.wrong)
        raise InputError(
            f"{self.path}: line {line}: the quote that opens a field there is never closed, and the lines after it "
            "would be a part of that field. Close it, or take it out (a field that begins with a quote has it three "
            "times)"
        )


def is_delimited(path: AnyPath) -> bool:
    """Whether it is a file with the name of one of these."""
    return has_delimited_name(path.name) and path.is_file()


def has_delimited_name(name: str) -> bool:
    """Whether a name ends as these files do, packed or not.

    >>> has_delimited_name("a.csv.gz"), has_delimited_name("a.gz")
    (True, False)
    """
    return name.removesuffix(next(filter(name.endswith, PACKED), "")).endswith(SUFFIXES)


def open_delimited(path: AnyPath, choice: reader.Choice) -> DelimitedReader:
    """The chosen columns (by default all but those ``aligned``); reads the file once to count its rows."""
    choice.only(path, "CSV", "columns")
    _pyarrow()
    separator, decimal, first, head = _first_line(path)
    there = [one.strip() for one in first] if head else [str(number) for number in range(len(first))]
    if not head:
        choice = replace(choice, expected=())
    if head and len(there) > 1 and not there[0] and INDEX not in there:
        there[0] = INDEX
        choice = replace(choice, aligned=(*choice.aligned, INDEX))
    choice = choice.named_in(path, there)
    chosen = choice.columns or choice.expected
    _refuse_names(path, there, [*chosen, *choice.aligned] if chosen else there)
    wanted = choice.of_table(path, dict.fromkeys(there, ""))
    names = {name or f"column {number}": "" for number, name in enumerate(there)}
    opened = DelimitedReader(
        str(path),
        separator,
        decimal,
        head,
        wanted,
        names,
        missing=choice.missing,
        strict=dict(choice.strict),
    )
    known = coded.wanted_categories(choice.categories, wanted, opened.columns_of_text() if choice.text else ())
    opened = replace(opened, categories=known)
    todo, rows = tuple(name for name, texts in known.items() if not texts), 0

    held: Counter[tuple[str, str]] = Counter()

    def counted() -> Iterator[Any]:
        nonlocal rows
        asked: dict[str, Any] = {"columns": tuple(known) or wanted[:1], "categories": dict.fromkeys(known, ())}
        for batch in replace(opened, **asked).batches("string"):
            rows += batch.num_rows
            held.update(words.in_columns(batch, known))
            yield batch

    found = coded.texts_of(path, counted(), todo)
    words.say(path, held, known)
    return replace(opened, shape=(rows, len(wanted)), categories={**known, **found}).as_numbers()


@contextmanager
def _unpacked(path: AnyPath) -> Iterator[Any]:
    """The text of a file, as bytes."""
    with path.open("rb") as raw:
        if path.suffix not in PACKED:
            yield raw
            return
        with PACKED[path.suffix](raw) as file:
            yield file


def _first_line(path: AnyPath) -> tuple[str, str, list[str], int]:
    """What separates the fields, and decimals; the fields of the first record, and the lines of it if it is names."""
    try:
        with _unpacked(path) as raw, TextIOWrapper(raw, "utf-8-sig", newline="") as file:
            if len(file.readline(LINE)) == LINE:
                raise InputError(f"{path}: its first line has {LINE:,} characters or more; write one row a line")
            separator = "\t" if ".tsv" in path.name else _separator(file)
            records = _records(file, separator)
            first: list[str] = next(records, [])
            lines = records.line_num
            decimal = "," if separator == ";" and _by_comma(chain([first], islice(records, LOOKED_AT))) else "."
            head = 0 if _is_row(_two(file, separator), decimal) else lines
            if (separator, decimal) == (";", ".") and head:
                _warn_of_thousands(path, islice(_records(file, separator), 1, LOOKED_AT), first)
    except csv.Error as error:
        said = (
            f"{path}: its first lines are no lines of a table ({error}). Is a quote never closed? Or do "
            "spaces separate its fields? Write commas, semicolons or tabs"
        )
        raise InputError(said) from error
    except PermissionError:
        raise
    except UnicodeDecodeError as error:
        raise _other_encoding(path) from error
    except (OSError, EOFError, BadZipFile, zlib.error) as error:
        raise InputError(f"{path}: not readable as text in UTF-8 ({error})") from error
    if not any(one.strip() for one in first):
        raise InputError(f"{path}: empty, or its first line is; rows of numbers are needed, one a line")
    return separator, decimal, first, head


def _warn_of_thousands(path: AnyPath, records: Iterable[Sequence[str]], names: Sequence[str]) -> None:
    if said := faults.by_thousands(records, names):
        warnings.warn(f"{path}: {said}", FeatureNamesWarning, stacklevel=2)


def _other_encoding(path: AnyPath) -> InputError:
    """Return what is said of a file that is not text in UTF-8."""
    with _unpacked(path) as raw:
        return InputError(f"{path}: not readable as text in UTF-8: {faults.of_encoding(raw)}")


def _is_row(records: Sequence[Sequence[str]], decimal: str) -> bool:
    """Whether the first record is of numbers, or of such words too: if it is of words alone, the next has some."""
    numbers = [_is_number(one, decimal) for one in records[0]]
    values = all(number or one in WORDS for number, one in zip(numbers, records[0], strict=True))
    return values and (any(numbers) or not WORDS.isdisjoint(chain(*records[1:])))


def _records(file: TextIO, separator: str) -> Any:
    """The records of a text, from its start, as a parser that counts lines."""
    file.seek(0)
    return csv.reader(iter(lambda: file.readline(LINE), ""), delimiter=separator)


def _separator(file: TextIO) -> str:
    """What separates the fields of the first records: of the other marks the one that makes the most, of every record
    as many if it can be, where commas separate none, stand before decimals, or are in names, so that they are more in
    one record than in the next."""
    split = {mark: _two(file, mark) for mark in SEPARATORS}
    fields = {mark: [len(record) for record in records] for mark, records in split.items()}
    even = {mark: numbers[0] == numbers[-1] for mark, numbers in fields.items()}
    mark = max(SEPARATORS[1:], key=lambda one: (fields[one][0] > 1, even[one], fields[one][0]))
    decimals = all(_is_number(one, ",") for one in split[mark][0])
    return mark if fields[mark][0] > 1 and (fields[","][0] < 2 or decimals or even[mark] > even[","]) else ","


def _two(file: TextIO, separator: str) -> list[list[str]]:
    """The first two records by a separator, without blank lines, as far as their fields are no longer than fields can
    be; one of no fields where there are none."""
    found: list[list[str]] = []
    with suppress(csv.Error):
        for record in islice(filter(None, _records(file, separator)), 2):
            found.append(record)
    return found or [[]]


def _by_comma(records: Iterable[Sequence[str]]) -> bool:
    """Whether a comma stands before decimals: in the first number that has a comma or a point."""
    written = chain.from_iterable(records)
    return "," in next((one for one in written if ("," in one or "." in one) and _is_number(one, ",")), "")


def _refuse_names(path: AnyPath, there: Sequence[str], needed: Sequence[str]) -> None:
    counts = Counter(there)
    twice = sorted({name for name in needed if name and counts[name] > 1})
    if twice:
        raise InputError(f"{path}: several columns are called {reader.listed(twice)}. Give each column its own name")
    if "" in needed:
        raise InputError(
            f"{path}: column {there.index('') + 1} has no name; columns are "
            f"{reader.described(dict.fromkeys(there, ''))}. Name it in the first line, or choose others (columns)"
        )


def _is_number(text: str, decimal: str = ".") -> bool:
    try:
        float(text.replace(",", ".") if decimal == "," else text)
    except ValueError:
        return False
    return True


def _pyarrow(module: str = "") -> Any:
    return needed(f"pyarrow.{module}".rstrip("."), "csv", "reading CSV")


def unguarded(texts: Array) -> Array:
    """Text as it was before :func:`bigembed.rows.formats.tables.guarded` put an apostrophe before what looks like a
    formula.

    >>> unguarded(np.array(["'=1", "''@x", "'a", "b"], reader.TEXT)).tolist()
    ['=1', "'@x", "'a", 'b']
    """
    if texts.dtype != reader.TEXT:
        return texts
    out = texts.copy()
    for row in np.flatnonzero(np.strings.startswith(texts, "'")).tolist():
        if texts[row].lstrip("'").startswith(FORMULA):
            out[row] = texts[row][1:]
    return out
