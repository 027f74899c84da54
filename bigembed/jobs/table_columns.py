"""Vectors of a job that are columns of a table of their own, ``TABLE:NAME``, in the order of the rows.

Where the rows have ids, the rows of the table are found by them: in its column that is called as the ids are, or, where
these have no name, in the one that holds them. Else row i of the table is row i.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from bigembed.errors import InputError
from bigembed.rows import RowSource
from bigembed.rows.formats import copying
from bigembed.rows.formats.folders import is_table, open_columns
from bigembed.rows.reader import Reader, described, listed
from bigembed.runtime.blocks import Array
from bigembed.store import AnyPath, at, is_url


@dataclass(frozen=True)
class TableColumn:
    """A column of a table as a vector for rows that are called by ``ids``, or lie in the order of the table."""

    path: AnyPath
    name: str
    what: str
    """What the vector is to the rows: ``labels``, ``weights``, …"""
    ids: Reader | None = None
    """The ids of the rows; None where the order is that of the table."""
    called: str = ""
    """The column of the table that has such ids."""
    grain = 1

    @cached_property
    def values(self) -> Array:
        """All of them, (n,): read once, in this process."""
        found = self._column(self.name)
        if self.ids is None:
            return found
        known = self._column(self.called)
        names = RowSource(known.shape, known.dtype, array=known)
        copying.check_ids(names)
        place, absent = copying.positions(names, self.ids)
        if absent:
            raise InputError(
                f"{self.what} {self}: {len(absent):,} of {len(place):,} rows have no row in {self.path}, whose column "
                f"{self.called!r} was looked at: {listed(map(repr, absent))}"
            )
        return found[place]

    @property
    def shape(self) -> tuple[int, ...]:
        """(n,)."""
        return (self._table.shape[0] if self.ids is None else self.ids.shape[0],)

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
        return found | ({} if self.ids is None else {"by": self.called, "ids": self._ids_digest})

    def __str__(self) -> str:
        return f"{self.path}:{self.name}"

    @cached_property
    def _ids_digest(self) -> str:
        return "" if self.ids is None else copying.fingerprint_of(self.ids)

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


def column_of_table(text: str, folder: AnyPath, what: str, ids: Reader | None, called: str) -> TableColumn | None:
    """The vector that ``TABLE:NAME`` names; None for what is no such text.

    ``ids`` of the rows, ``called`` so in their source, or nothing. InputError where a table has no such column.
    """
    if (found := table_and_name(text, folder)) is None:
        return None
    if ids is not None and not called and not (called := _holding(found[0], ids)):
        ids = None
    if ids is None:
        return TableColumn(*found, what)
    column = TableColumn(*found, what, ids, called)
    if called not in open_columns(found[0]).names:
        raise InputError(
            f"{what} {column}: the rows have ids, {called!r}, and {found[0]} has no column {called!r} by which to find "
            "them. Name its column of ids so, or give the vector alone (Zarr, .npy), in the order of the rows"
        )
    return column


LOOKED_AT = 100
"""Ids without a name that are looked for in the columns of a table."""


def _holding(path: AnyPath, ids: Reader) -> str:
    """The column of a table that holds the first ids; empty where none does. InputError where several do."""
    sought = {str(one) for piece in copying.rows_of_reader(ids, 0, min(LOOKED_AT, ids.shape[0])) for one in piece}
    table, found = open_columns(path), []
    for name in table.names:
        try:
            pieces = list(copying.rows_of_reader(table.vector(name), 0, table.shape[0]))
        except InputError:  # (a column that cannot be read is not the one)
            continue
        if sought <= {str(one) for piece in pieces for one in piece.tolist()}:
            found.append(name)
    if len(found) > 1:
        raise InputError(
            f"{path}: the ids of the rows stand in several columns, {listed(found)}. Say which names them: ids = "
            f'"{path}:NAME" in the order of the rows'
        )
    return found[0] if found else ""
