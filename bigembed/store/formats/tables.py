"""Coordinates with names of rows and columns as a table: Parquet, CSV or .npy, streamed, written aside and renamed."""

from __future__ import annotations

import csv
import json
import os
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TextIO

import numpy as np

from bigembed.blocks.rows import Array, block_rows, bounds
from bigembed.errors import ExistingOutputError, InputError
from bigembed.store.formats.delimited import FORMULA
from bigembed.store.rows.source import RowSource
from bigembed.store.storage.extras import needed
from bigembed.store.storage.objects import ObjectPath
from bigembed.store.storage.output_lock import output_lock
from bigembed.store.storage.paths import PathLike, at, copy_file
from bigembed.store.storage.scratch import temporary

ID = "id"


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
    with output_lock(place), temporary("table") as scratch:
        partial = scratch if isinstance(place, ObjectPath) else place.parent
        partial /= f".partial-{place.name}"
        partial.parent.mkdir(parents=True, exist_ok=True)
        try:
            write(partial)
            if isinstance(place, ObjectPath):
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
    """A cell of a CSV: text that a spreadsheet would take for a formula has an apostrophe before it; numbers stay.

    :func:`bigembed.store.formats.delimited.unguarded` takes it off.

    >>> guarded("=1+1"), guarded("'@x"), guarded("a=b"), guarded(-1.5)
    ("'=1+1", "''@x", 'a=b', -1.5)
    """
    return f"'{cell}" if isinstance(cell, str) and cell.lstrip("'").startswith(FORMULA) else cell


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
