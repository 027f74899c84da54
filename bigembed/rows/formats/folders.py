"""Folders of files of one format, one file after another in the order of their names: .npy, and tables of text."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar

import numpy as np

from bigembed.errors import InputError
from bigembed.rows import categories as coded
from bigembed.rows import reader, rows_at
from bigembed.rows.formats.delimited import DelimitedReader, has_delimited_name, is_delimited, open_delimited
from bigembed.rows.formats.schemas import require_same_names
from bigembed.rows.formats.tables import open_parquet, parquet_files
from bigembed.runtime.blocks import Array
from bigembed.store import AnyPath, objects, stored


def npy_files(path: AnyPath) -> list[AnyPath]:
    """The .npy files in a folder, in the order of their names; none of anything else."""
    return _files_in(path, lambda name: name.endswith(".npy"))


def delimited_files(path: AnyPath) -> list[AnyPath]:
    """The CSV and TSV files that a path names: itself, or those in a folder; none of anything else."""
    return [path] if is_delimited(path) else _files_in(path, has_delimited_name)


def _files_in(path: AnyPath, wanted: Callable[[str], bool]) -> list[AnyPath]:
    """The files in a folder with such names, unless it is an array or a group."""
    if not path.is_dir() or any((path / mark).is_file() for mark in objects.MARKS):
        return []
    return [path / file.name for file in stored(path) if wanted(file.name)]


@dataclass(frozen=True)
class FilesReader:
    """Rows of several files: the pieces of a trajectory, say."""

    parts: tuple[reader.Reader, ...]
    """The reader of each file."""
    dtype: np.dtype[Any]

    @property
    def shape(self) -> tuple[int, ...]:
        """That of all rows."""
        return sum(part.shape[0] for part in self.parts), *self.parts[0].shape[1:]

    @property
    def grain(self) -> int:
        """The largest that a file asks for."""
        return max(part.grain for part in self.parts)

    def stream(self, start: int, stop: int) -> Iterator[Array]:
        """Rows start to stop, of one file after another."""
        first = 0
        for part in self.parts:
            end = first + part.shape[0]
            low, high = max(start, first), min(stop, end)
            if low < high:
                for rows in part.stream(low - first, high - first):
                    yield rows.astype(self.dtype, copy=False)
            first = end


def open_npy_files(folder: AnyPath, files: Sequence[AnyPath], rows: Sequence[str] = ()) -> FilesReader:
    """The rows of all files; InputError where they are of different shapes. ``rows``: see :func:`leading_axes`."""
    parts: list[reader.Reader] = [rows_at(file) for file in files]
    leading = reader.leading_axes(files[0], parts[0].shape, rows, fewest=0)
    if leading != 1:
        parts = [reader.Flat(part, leading) for part in parts]
    tail = parts[0].shape[1:]
    for file, part in zip(files, parts, strict=True):
        if part.shape[1:] != tail:
            raise InputError(
                f"{folder}: files of different rows: {files[0].name} has shape {parts[0].shape}, {file.name} "
                f"{part.shape}. All but the first number must be the same"
            )
    return FilesReader(tuple(parts), np.result_type(*(part.dtype for part in parts)))


@dataclass(frozen=True)
class TablesReader(FilesReader):
    """Columns of several text files, by their names in each."""

    parts: tuple[DelimitedReader, ...]
    row_ids: ClassVar[None] = None
    loading: ClassVar[int] = reader.ARROW

    @property
    def features(self) -> tuple[str, ...]:
        """Names of the columns, if the files have any."""
        return self.parts[0].features

    @property
    def names(self) -> Mapping[str, str]:
        """The columns that may be taken for ids, labels or weights."""
        return self.parts[0].names

    @property
    def categories(self) -> coded.Categories:
        """Columns of categories, with the texts of all files."""
        return self.parts[0].categories

    def vector(self, name: str, missing: bool = False) -> TablesReader:
        """One column as text, as it stands there."""
        return TablesReader(tuple(part.vector(name, missing) for part in self.parts), reader.TEXT)

    def as_numbers(self) -> TablesReader:
        """The same column as numbers."""
        return TablesReader(tuple(part.as_numbers() for part in self.parts), np.dtype(np.float64))


class _All(tuple[str, ...]):
    """Names of columns that are none of the rows: whatever it is asked for."""

    __slots__ = ()

    def __contains__(self, name: object) -> bool:
        return True


def is_table(place: AnyPath) -> bool:
    """Whether a path is of Parquet or CSV, a file or a folder of them."""
    return bool(parquet_files(place) or delimited_files(place))


def open_columns(path: AnyPath) -> Any:
    """The reader of a Parquet or CSV table of which single columns are wanted, by their names."""
    files, everything = parquet_files(path), reader.Choice(aligned=_All())
    return open_parquet(files, everything) if files else open_tables(delimited_files(path), everything)


def open_tables(files: Sequence[AnyPath], choice: reader.Choice) -> DelimitedReader | TablesReader:
    """The chosen columns of text files: of several those that the first one has, in its order."""
    first = open_delimited(files[0], choice)
    if len(files) == 1:
        return first
    same = replace(choice, columns=first.columns)
    parts = [first, *(open_delimited(file, same) for file in files[1:])]
    if not (choice.columns or choice.expected):
        require_same_names(list(zip(files, parts, strict=True)))
    known = dict(choice.categories)
    asked = tuple({name: known.get(name, ()) for part in parts for name in part.categories}.items())
    for number, part in enumerate(parts):
        if len(part.categories) < len(asked):  # (what it holds of such a column looks like numbers)
            parts[number] = open_delimited(files[number], replace(same, categories=asked))
    texts = {name: tuple(sorted({text for part in parts for text in part.categories[name]})) for name, _ in asked}
    return TablesReader(tuple(replace(part, categories=texts) for part in parts), first.dtype)
