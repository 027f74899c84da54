"""The commands that delete rows of a growing store, and erase them: which rows are meant, and what to run next."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np

from bigembed.errors import InputError, MissingPathError
from bigembed.rows.deleting import delete_rows, purge_rows
from bigembed.rows.formats.copying import aligned_of, vector_source
from bigembed.rows.growing import IDS, deleted_rows, stored_units
from bigembed.runtime.blocks import Array
from bigembed.store import PathLike, at, no_such_path
from bigembed.viewer.columns import ids_of

TEXT = (".txt", "")
"""Suffixes of files with an id a line."""


def delete(store: PathLike, named: Sequence[str] = (), file: str = "", rows: str = "") -> dict[str, Any]:
    """Mark rows as deleted that are ``named`` by their ids, or in a ``file``, or by their numbers; what was done."""
    if sum(map(bool, (named, file, rows))) != 1:
        raise InputError("which rows are deleted? Give their ids (ID …), a file of them (--ids), or numbers (--rows)")
    if not at(store).exists():
        raise MissingPathError(f"{no_such_path(at(store))}, whose rows could be deleted")
    n = stored_units(store)[0][0]
    before = int(deleted_rows(store, n).sum())
    if rows:
        deleted = delete_rows(store, rows=row_numbers(rows))
    else:
        deleted = delete_rows(store, ids=_as_stored(store, np.array(named) if named else ids_in(file)))
    return {"output": str(store), "marked": deleted - before, "deleted": deleted, "n": n}


def delete_lines(found: dict[str, Any]) -> list[str]:
    """Say what was marked, and what is to be run next."""
    store = found["output"]
    return [
        f"{store}: {found['marked']:,} rows marked as deleted; {found['deleted']:,} of {found['n']:,} are in all",
        "bigembed refresh JOB.toml takes them out of map and table; until then they are shown",
        f"bigembed purge {store} erases them after that",
    ]


def purge(store: PathLike) -> dict[str, Any]:
    """Erase the rows that are deleted; what was done."""
    return {"output": str(store), "erased": purge_rows(store), "n": stored_units(store)[0][0]}


def purge_lines(found: dict[str, Any]) -> list[str]:
    """Say what was erased, and what was not."""
    return [
        f"{found['output']}: {found['erased']:,} of {found['n']:,} rows are erased, with their ids",
        "where a map was not refreshed since they were deleted: bigembed refresh JOB.toml --changed",
        "versions before the current one, exported tables and files that the rows came from may hold them still",
    ]


def row_numbers(text: str) -> Array:
    """Return the numbers of rows that a text lists.

    >>> row_numbers("3,17,20:23").tolist()
    [3, 17, 20, 21, 22]
    """
    found: list[int] = []
    for part in text.split(","):
        low, span, high = part.strip().partition(":")
        try:
            found += range(int(low), int(high)) if span else [int(low)]
        except ValueError as error:
            raise InputError(
                f"--rows {text}: {part!r} is no number of a row, nor a span of such. Write 3,17,20:30, say: rows 3, "
                "17, and 20 to 29, counted from 0"
            ) from error
    return np.array(found, np.int64)


def ids_in(file: str) -> Array:
    """Return the ids that a file holds: one a line of text, an array, or the column of a table (``TABLE:NAME``)."""
    path = Path(file)
    if path.suffix in TEXT and path.is_file():
        return np.array([line for line in path.read_text("utf-8").splitlines() if line])
    with TemporaryDirectory() as scratch:
        found = ids_of(file, Path(scratch))
        return np.asarray(found.read(0, found.shape[0]))


def _as_stored(store: PathLike, ids: Array) -> Array:
    """Return ids as the store has them: numbers, where its ids are, and text that they are written as."""
    place = aligned_of(at(store)).get(IDS)
    if place is None or ids.dtype.kind in "iu" or vector_source(place).dtype.kind not in "iu":
        return ids
    try:
        return ids.astype(np.int64)
    except ValueError as error:
        raise InputError(f"{store}: its ids are whole numbers, and not all of those given are ({error})") from error
