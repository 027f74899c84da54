"""Names of rows, and coordinates written with names of rows and columns as a table: Parquet, CSV or .npy."""

from __future__ import annotations

import csv
import json
import os
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TextIO

import numpy as np

from bigembed.errors import ExistingOutputError, InputError, needed
from bigembed.rows.formats.copying import rows_of_reader
from bigembed.rows.formats.delimited import FORMULA
from bigembed.rows.reader import Reader, as_text, listed
from bigembed.rows.source import RowSource
from bigembed.runtime.blocks import Array, block_rows, bounds
from bigembed.store.arrays import npy_rows, read_rows
from bigembed.store.files import temporary
from bigembed.store.locks import output_lock
from bigembed.store.objects import ObjectPath
from bigembed.store.paths import PathLike, at, copy_file, is_url

# ------------------------------------------------------------------------------------------------------------- ids
# Names of rows: text or whole numbers, one a row, each once.
#
# They are read piece by piece. To find repeated ones a process holds eight bytes a row: a hash of each.

PIECE = 1 << 17
WORDS = 1 << 12
"""Multipliers; longer text is hashed with them again and again."""


def id_pieces(source: RowSource) -> Iterator[tuple[int, Array]]:
    """First row and ids of consecutive pieces, as whole numbers or text; InputError where one is missing."""
    n = source.shape[0]
    if source.dtype.kind not in "iuUST":
        raise InputError(f"ids have dtype {source.dtype}; they are text or whole numbers")
    for start in range(0, n, PIECE):
        found = source.read(start, min(start + PIECE, n))
        if found.dtype.kind == "S":
            found = np.char.decode(found, "utf-8")
        if found.dtype.kind in "UT":
            empty = np.flatnonzero(found == "")
            if len(empty):
                raise InputError(
                    f"ids are missing (empty) in {len(empty)} of the rows {start}:{start + len(found)}, the first is "
                    f"row {start + empty[0]}; every row needs one, or none has"
                )
        yield start, found


def id_hashes(ids: Array) -> Array:
    """A hash of 64 bits for each id.

    >>> a, b, c = id_hashes(np.array(["ab", "ba", "ab"]))
    >>> a == c, a == b
    (np.True_, np.False_)
    """
    if ids.dtype.kind in "iu":
        return ids.astype(np.int64).view(np.uint64)
    fixed = np.array([one.encode() for one in ids.tolist()])
    width = max(1, -(-fixed.dtype.itemsize // 4))
    words = fixed.astype(f"S{4 * width}").view("<u4").reshape(len(fixed), width).astype(np.uint64)
    factors = np.resize(np.random.default_rng(0).integers(1, 1 << 63, WORDS, dtype=np.uint64), width)
    mixed = (words * (2 * factors + np.uint64(1))).sum(axis=1, dtype=np.uint64)
    return np.asarray(mixed ^ (mixed >> np.uint64(29)))


def check_ids(source: RowSource) -> None:
    """InputError that names repeated and missing ids. Two passes over the ids only where hashes agree."""
    hashes = np.concatenate([id_hashes(ids) for _, ids in id_pieces(source)])
    ordered = np.sort(hashes)
    suspects = np.unique(ordered[1:][ordered[1:] == ordered[:-1]])
    if not len(suspects):
        return
    rows: dict[Any, list[int]] = {}
    for start, ids in id_pieces(source):
        same = np.flatnonzero(np.isin(hashes[start : start + len(ids)], suspects))
        for row, one in zip((same + start).tolist(), ids[same].tolist(), strict=True):
            rows.setdefault(one, []).append(row)
    repeated = {one: where for one, where in rows.items() if len(where) > 1}
    if repeated:
        named = listed(f"{one!r} (rows {listed(map(str, where[:3]))})" for one, where in repeated.items())
        raise InputError(f"ids: {len(repeated)} of them name several rows: {named}. An id names one row")


def positions(ids: RowSource, wanted: Reader, where: str) -> Array | None:
    """For each wanted name the row that it names; None if they are the ids in their order.

    InputError where the two are not the same names. Compared as text; a process holds three numbers a row.
    """
    n = ids.shape[0]
    if wanted.shape != (n,):
        raise InputError(f"{where}: {wanted.shape[0]} names of rows, and there are coordinates of {n}")
    mine = np.concatenate([id_hashes(_text(part)) for _, part in id_pieces(ids)])
    order = np.argsort(mine, kind="stable")
    ranked, found = mine[order], np.empty(n, np.int64)
    absent: list[str] = []
    at = 0
    for piece in rows_of_reader(wanted, 0, n):
        for start in range(0, len(piece), PIECE):
            names = _text(piece[start : start + PIECE])
            rank = np.minimum(np.searchsorted(ranked, id_hashes(names)), n - 1)
            rows = order[rank]
            same = _text(rows_of(ids, rows)) == names
            absent += names[~same].tolist()
            found[at : at + len(names)] = rows
            at += len(names)
    if absent:
        raise InputError(f"{where}: {len(absent)} of its {n} names are not ids of the coordinates: {listed(absent)}")
    return None if (found == np.arange(n)).all() else found


def rows_of(source: RowSource, rows: Array) -> Array:
    """Some rows of a source, in any order."""
    if source.path is not None and not source.path.endswith(".npy"):
        return read_rows(source.path, rows + source.offset)
    whole = source.path is None or is_url(source.path)
    held = source.read(0, source.shape[0]) if whole else npy_rows(str(source.path))
    return np.asarray(held[rows])


def _text(ids: Array) -> Array:
    return as_text(ids if ids.dtype.kind in "OSUT" else ids.astype(str))


# ---------------------------------------------------------------------------------------------------------- tables
# Coordinates with names of rows and columns as a table: Parquet, CSV or .npy, streamed, written aside and renamed.

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

    :func:`bigembed.rows.formats.delimited.unguarded` takes it off.

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
