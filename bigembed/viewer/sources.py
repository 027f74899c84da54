"""What users hand over, as a scene: coordinates, ids and columns of any kind, and the graph of a run."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from hashlib import sha256
from pathlib import Path
from typing import Any

import numpy as np

from bigembed.errors import InputError, MissingPathError
from bigembed.neighbors.order import Ordered
from bigembed.rows.formats.copying import copy_vector
from bigembed.rows.formats.delimited import is_delimited, open_delimited
from bigembed.rows.formats.parquet import open_parquet, parquet_files
from bigembed.rows.formats.registry import open_reader
from bigembed.rows.input import row_source
from bigembed.rows.reader import Choice, Reader, described
from bigembed.rows.source import RowSource, rows_at
from bigembed.runtime.blocks import Array
from bigembed.runtime.parameters import is_integer
from bigembed.stages.runs import Run
from bigembed.store.arrays import read_array
from bigembed.store.paths import AnyPath, at, is_path, stamp
from bigembed.viewer.scene import Scene, in_memory

# ------------------------------------------------------------------------------------------------------------ graph


@dataclass(frozen=True)
class RunGraph:
    """The graph of a run: lists of nearest rows where they were searched, else its shortest edges."""

    run: Run
    stage: str = "graph"

    @cached_property
    def _ordered(self) -> Ordered:
        return Ordered.open(self.run.path("order"))

    @property
    def starts(self) -> Sequence[int]:
        """First number of each block, and how many rows there are."""
        return self._ordered.starts

    @property
    def digest(self) -> str:
        """Of what the edges were made from."""
        return self.run.manifest(self.stage).digest

    def rows(self, block: int) -> Array:
        """The row that each number of a block is."""
        return self._ordered.ids(block)

    def lists(self, block: int, k: int) -> tuple[Array, Array]:
        """Numbers of the nearest rows, nearest first, −1 where there are fewer; and their distances."""
        if self.run.has("search"):
            ids, squared = (read_array(self.run.path("search", f"{name}/{block}")) for name in ("neighbors", "squared"))
            return ids[:, :k].astype(np.int64), np.sqrt(squared[:, :k].astype(np.float32))
        found, starts = self.run.matrix(self.stage).block(block), self.starts
        own, column = np.arange(starts[block], starts[block + 1]), found.ids(block, starts)[found.indices]
        edge = np.flatnonzero(own[found.row] != column)
        edge = edge[np.lexsort((found.data[edge], found.row[edge]))]
        row = found.row[edge]
        rank = np.arange(len(row)) - np.searchsorted(row, row)
        edge, row, rank = (one[rank < k] for one in (edge, row, rank))
        ids, far = np.full((len(own), k), -1, np.int64), np.zeros((len(own), k), np.float32)
        ids[row, rank], far[row, rank] = column[edge], np.sqrt(found.data[edge])
        return ids, far


def graph_of(run: Run, rows: int) -> RunGraph | None:
    """The graph of the rows of a run, if it has one."""
    if not (run.has("order") and (run.has("graph") or run.has("search"))):
        return None
    found = RunGraph(run, "graph" if run.has("graph") else "search")
    return found if found.starts[-1] == rows else None


# ---------------------------------------------------------------------------------------------------------- columns


class _All(tuple[str, ...]):
    """Names of columns that are none of the rows: whatever it is asked for."""

    __slots__ = ()

    def __contains__(self, name: object) -> bool:
        return True


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


@dataclass(frozen=True)
class CopiedColumn(RowSource):
    """A column of a table, copied to where any part of it is read at once."""

    origin: str = ""
    """Which column, of which file, as it was."""

    def fingerprint(self) -> str:
        return sha256(self.origin.encode()).hexdigest()


def table_columns(path: AnyPath, wanted: Sequence[str], scratch: Path) -> list[tuple[str, RowSource]]:
    """Columns of a Parquet or CSV file, numbers or text; all of them if none are wanted."""
    files = parquet_files(path)
    everything = Choice(aligned=_All())
    table: Any = open_parquet(files, everything) if files else open_delimited(path, everything)
    if unknown := [name for name in wanted if name not in table.names]:
        raise InputError(f"{path}: no columns {', '.join(unknown)}; there are {described(table.names)}")
    stamps = [stamp(file) for file in (files or [path])]
    out: list[tuple[str, RowSource]] = []
    for name in wanted or table.names:
        place = scratch / f"column-{sha256(f'{path} {name}'.encode()).hexdigest()[:16]}.zarr"
        if not place.exists():
            _copy_column(path, table, name, place)
        found = rows_at(place)
        origin = repr((str(path), stamps, name))
        out.append((name, CopiedColumn(found.shape, found.dtype, path=found.path, origin=origin)))
    return out


def _copy_column(path: AnyPath, table: Any, name: str, place: Path) -> None:
    """As numbers, NaN where one is missing, if it holds numbers; as text, if it does not."""
    try:
        copy_vector(_OneColumn(open_reader(path, Choice(columns=(name,), missing=True))), place, "columns")
    except InputError:
        copy_vector(replace(table.vector(name), missing=True), place, "columns")


def column_at(given: str, scratch: Path) -> list[tuple[str, RowSource]]:
    """Columns by path: a vector (Zarr or .npy), or a table, of which NAMES after a colon choose some."""
    place, names = at(given), ""
    if not place.exists() and ":" in given:
        head, _, names = given.rpartition(":")
        place = at(head)
    if not place.exists():
        advice = "Give a vector (Zarr, .npy), or a table and names: FILE:A,B"
        raise MissingPathError(f"columns or ids {given}: no such path. {advice}")
    place = place.absolute()
    if parquet_files(place) or is_delimited(place):
        return table_columns(place, [name.strip() for name in names.split(",") if name.strip()], scratch)
    if names:
        raise InputError(f"{given}: names choose columns of Parquet and CSV; {place} is neither")
    return [(place.stem, rows_at(place))]


def columns_of(given: Any, scratch: Path) -> tuple[tuple[str, RowSource], ...]:
    """Columns by name: a mapping or a data frame, a path, or several paths; arrays of any kind, or paths, in it."""
    if given is None:
        return ()
    if is_path(given):
        return tuple(column_at(str(given), scratch))
    if hasattr(given, "columns") and hasattr(given, "shape"):
        given = {str(name): given[name] for name in given.columns}
    if isinstance(given, Mapping):
        return tuple((str(name), vector_of(values, scratch, str(name))) for name, values in given.items())
    if isinstance(given, Iterable):
        return tuple(found for one in given for found in column_at(str(one), scratch))
    raise InputError(f"columns: {type(given).__name__}; give a mapping of names, a data frame, a path or several")


def vector_of(values: Any, scratch: Path, name: str) -> RowSource:
    """An entry for each row, of any kind: in memory, lazy, stored, or in a table."""
    if isinstance(values, RowSource):
        return values
    if is_path(values):
        found = column_at(str(values), scratch)
        if len(found) != 1:
            raise InputError(f"{name}: {values} holds {len(found)} columns; choose one: {values}:NAME")
        return found[0][1]
    if type(values).__module__.partition(".")[0] in ("zarr", "dask", "h5py"):
        values = values.compute() if hasattr(values, "compute") else values[:]
    array = in_memory(values)
    if len(array.shape) != 1:
        raise InputError(f"{name}: shape {array.shape}; give one entry for each row")
    return RowSource(array.shape, array.dtype, array=array)


# ------------------------------------------------------------------------------------------------------------ scene

PAIRS = 3
"""Coordinates whose pairs are all shown, of few rows."""
FEW_ROWS = 200_000


def scene_of(coordinates: Any, scratch: Path, **known: Any) -> Scene:
    """The scene of coordinates of any kind, with what else is ``known``, by the fields of :class:`Scene`."""
    source, _ = row_source(coordinates, at(scratch), "coordinates")
    if len(source.shape) != 2:
        raise InputError(f"coordinates have shape {source.shape}; they are an array (n, m)")
    names = known.pop("names", None) or tuple(f"coordinate {number + 1}" for number in range(source.width))
    pairs = known.pop("pairs", None)
    chosen = first_pairs(*source.shape) if pairs is None else checked_pairs(pairs, source.width)
    return Scene(coordinates=source, names=tuple(names), pairs=chosen, **known)


def checked_pairs(pairs: Any, width: int) -> tuple[tuple[int, int], ...]:
    """Return pairs of coordinates as tuples; :class:`InputError` where they are something else, or none."""
    given = pairs if isinstance(pairs, Iterable) else ()
    found = tuple(tuple(pair) if isinstance(pair, Iterable) else () for pair in given)
    fine = [len(pair) == 2 and all(is_integer(axis) and 0 <= axis < max(width, 2) for axis in pair) for pair in found]
    if not (found and all(fine)):
        raise InputError(f"pairs={pairs!r}; allowed: pairs of the coordinates 0 to {width - 1}, like [(0, 1)]")
    return found


def first_pairs(rows: int, width: int, first: Sequence[int] = (0, 1)) -> tuple[tuple[int, int], ...]:
    """The pairs that are shown where none was asked for.

    >>> first_pairs(1000, 5), first_pairs(10**7, 5), first_pairs(1000, 5, (0, 3))
    (((0, 1), (0, 2), (1, 2)), ((0, 1),), ((0, 3), (0, 1), (0, 2), (1, 2)))
    """
    shown = [(int(first[0]), int(first[1]))]
    if rows <= FEW_ROWS:
        count = min(width, PAIRS)
        shown += [(x, y) for x in range(count) for y in range(x + 1, count) if (x, y) not in shown]
    return tuple(shown)
