"""Rows of files appended to a store that grows: every night's table, by one command."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

from bigembed.rows import RowSource, rows_at
from bigembed.rows.as_stored import IDS, checked_store, require_store
from bigembed.rows.formats import ingest, open_reader
from bigembed.rows.formats.copying import vector_source
from bigembed.rows.growing import append_source
from bigembed.rows.reader import Choice
from bigembed.store import PathLike, at, remove, require_apart
from bigembed.store.attributes import columns_of
from bigembed.store.locks import output_lock


@dataclass(frozen=True)
class CastRows(RowSource):
    """Rows that lie at a path, in another dtype."""

    def read(self, start: int, stop: int) -> Any:
        """Rows ``start:stop``."""
        return super().read(start, stop).astype(self.dtype)


def append_file(path: PathLike, source: PathLike, choice: Choice | None = None, ids: str = "") -> tuple[int, int]:
    """Append the rows of a file of any known format to a Zarr array, as :func:`~bigembed.append_rows` does.

    Columns of a table are taken by the names of those that are there; ``ids`` names the column, or the path, of the ids
    of the rows. The rows are copied beside the array first, then they become visible in one step. Returns how many they
    are, and how many there are then.
    """
    require_store(path)
    asked = replace(choice or Choice(), aligned=(ids,) if ids else (), expected=columns_of(path))
    given = open_reader(source, asked)
    dtype = checked_store(path, tuple(given.shape[1:]), given.dtype, bool(ids))
    require_apart(source, path)
    aside = at(f"{at(path).absolute()}.growing").absolute() / "file"
    with output_lock(aside):
        remove(aside)  # of a call that was killed
        try:
            ingest(source, aside / "rows.zarr", asked, {IDS: ids} if ids else {})
            copied = rows_at(aside / "rows.zarr")
            rows = CastRows(copied.shape, dtype, path=copied.path)
            names = vector_source(aside / "rows-ids.zarr") if ids else None
            return rows.shape[0], append_source(path, rows, ids=names)
        finally:
            remove(aside)
