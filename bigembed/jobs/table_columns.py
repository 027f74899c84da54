"""Vectors of a job that are columns of a table of their own, ``TABLE:NAME``, in the order of the rows.

Where the rows have ids, the rows of the table are found by them: in its column that is called as the ids are, or, where
these have no name, in the one that holds them. Else row i of the table is row i.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np

from bigembed.errors import InputError
from bigembed.rows import RowSource
from bigembed.rows.formats import copying
from bigembed.rows.formats.folders import is_table, open_columns
from bigembed.rows.reader import Reader, described, is_text, listed
from bigembed.runtime.blocks import Array
from bigembed.store import AnyPath, at, is_url


@dataclass(frozen=True)
class Ids:
    """What rows are called."""

    vector: Reader
    called: str
    """The name of their column; empty where they have none."""
    stamp: str
    """What changes when they do."""


@dataclass(frozen=True)
class TableColumn:
    """A column of a table as a vector for rows that are called by ``ids``, or lie in the order of the table."""

    path: AnyPath
    name: str
    what: str
    """What the vector is to the rows: ``labels``, ``weights``, …"""
    ids: Ids | None = None
    """The ids of the rows; None where the order is that of the table."""
    grain = 1

    @cached_property
    def values(self) -> Array:
        """All of them, (n,): read once, in this process."""
        found = self._column(self.name)
        if self.ids is None:
            return found
        known = self._column(self.ids.called)
        names = RowSource(known.shape, known.dtype, array=known)
        copying.check_ids(names)
        place, absent = copying.positions(names, self.ids.vector)
        if absent:
            raise InputError(
                f"{self.what} {self}: {len(absent):,} of {len(place):,} rows have no row in {self.path}, whose column "
                f"{self.ids.called!r} was looked at: {listed(map(repr, absent))}"
            )
        return found[place]

    @property
    def shape(self) -> tuple[int, ...]:
        """(n,)."""
        return (self._table.shape[0] if self.ids is None else self.ids.vector.shape[0],)

    @property
    def dtype(self) -> np.dtype[Any]:
        """As the table has it."""
        found: np.dtype[Any] = self._of(self.name).dtype
        return found

    def stream(self, start: int, stop: int) -> Iterator[Array]:
        """Some of them."""
        yield self.values[start:stop]

    def origin(self, stamp: str) -> dict[str, Any]:
        """What a copy of it is of: the table as it is, and by which ids of the rows its rows were found."""
        found: dict[str, Any] = {"copied": str(self.path), "stamp": stamp, "vector": self.what, "column": self.name}
        return found | ({} if self.ids is None else {"by": self.ids.called, "ids": self.ids.stamp})

    def __str__(self) -> str:
        return f"{self.path}:{self.name}"

    @cached_property
    def _table(self) -> Any:
        return open_columns(self.path)

    def _of(self, name: str) -> Any:
        if name not in self._table.names:
            raise InputError(f"{self.what} {self}: no column {name!r}; there are {described(self._table.names)}")
        found = self._table.vector(name)
        return found.as_numbers() if self.what in copying.NUMBERS and hasattr(found, "as_numbers") else found

    def _column(self, name: str) -> Array:
        found = self._of(name)
        return np.concatenate(list(copying.rows_of_reader(found, 0, found.shape[0])))


def table_and_name(text: str, folder: AnyPath) -> tuple[AnyPath, str] | None:
    """The table and the column that ``TABLE:NAME`` names, from a folder on; None for what is no such text."""
    head, _, name = text.rpartition(":")
    if not head or not name:
        return None
    place = at(head) if is_url(head) else folder / head
    return (place, name) if place.exists() and is_table(place) else None


def column_of_table(text: str, folder: AnyPath, what: str, ids: Ids | None) -> TableColumn | None:
    """The vector that ``TABLE:NAME`` names; None for what is no such text.

    ``ids`` of the rows, if they have any. InputError where a table has no column that is called as they are.
    """
    if (found := table_and_name(text, folder)) is None:
        return None
    if ids is not None and not ids.called:
        called = _holding(found[0], ids.vector)
        ids = replace(ids, called=called) if called else None
    column = TableColumn(*found, what, ids)
    if ids is not None and ids.called not in open_columns(found[0]).names:
        raise InputError(
            f"{what} {column}: the rows have ids, {ids.called!r}, and {found[0]} has no column {ids.called!r} by which "
            "to find them. Name its column of ids so, or give the vector alone (Zarr, .npy), in the order of the rows"
        )
    return column


LOOKED_AT = 100
"""Ids without a name that are looked for in the columns of a table."""


def _holding(path: AnyPath, ids: Reader) -> str:
    """The column of a table that holds half of the first ids or more, of text or of numbers that are all different.

    Empty where none does; InputError where several do.
    """
    sought = {str(one) for piece in copying.rows_of_reader(ids, 0, min(LOOKED_AT, ids.shape[0])) for one in piece}
    table, found = open_columns(path), []
    for name in table.names:
        try:
            pieces = list(copying.rows_of_reader(table.vector(name), 0, table.shape[0]))
        except InputError:  # (a column that cannot be read is not the one)
            continue
        values = {str(one) for piece in pieces for one in piece.tolist()}
        names_rows = is_text(pieces[0].dtype) or len(values) == table.shape[0]
        if names_rows and 2 * len(sought & values) >= len(sought):
            found.append(name)
    if len(found) > 1:
        raise InputError(
            f"{path}: the ids of the rows stand in several columns, {listed(found)}. Say which names them: ids = "
            f'"{path}:NAME" in the order of the rows'
        )
    return found[0] if found else ""
