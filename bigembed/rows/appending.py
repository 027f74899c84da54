"""Rows appended to a store that grows: arrays, data frames, files; checked, columns by their names."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from bigembed.errors import InputError, MissingPathError
from bigembed.rows import RowSource, rows_at
from bigembed.rows.formats import ingest, open_reader
from bigembed.rows.formats.copying import aligned_of, vector_source
from bigembed.rows.growing import IDS, append_source
from bigembed.rows.input import of_frame
from bigembed.rows.opening import as_array, open_zarr
from bigembed.rows.reader import Choice, columns_of, is_frame, listed
from bigembed.runtime.blocks import Array, is_scipy_sparse
from bigembed.store import PathLike, at, remove, require_apart
from bigembed.store.attributes import columns_of as columns_at
from bigembed.store.locks import output_lock


def append_rows(path: PathLike, rows: Any, *, first: int | None = None, ids: Any = None) -> int:
    """Append rows (m, d) to a Zarr array of version 3, so that no reader ever sees half of them.

    Parameters
    ----------
    path : path
        The path of the array.
    rows : array of shape (m, d)
        The rows, as a NumPy array or what makes one; they are cast to the dtype of the array where nothing is lost.
        The columns of a data frame are taken by their names, where those of the array have names.
    first : int or None
        The number that the first of these rows gets, where the caller knows it. Rows that are there already, from a
        call that was killed after they had become visible, are then not appended again.
    ids : array of shape (m,), str or None
        The ids of the rows, where those that are there have ids (``bigembed ingest --ids``): text or whole numbers, of
        which none is there yet. Of a data frame also the name of the column that holds them.

    Returns
    -------
    int
        The number of rows that are then there.

    Raises
    ------
    MissingPathError
        If there is no such array; the message names the way to make it.
    InputError
        If shapes or dtypes do not fit, the array is of another version, or has labels or weights beside it; if ids are
        missing, repeated, or given where the rows have none; if there are other rows at ``first``, or fewer before it.
    LockedError
        If another process appends.

    Notes
    -----
    A killed call leaves the array as it was. ``ARRAY.growing`` says who appends. Cost: the last shard is read and
    written anew, nothing else (of rows with ids, all ids are read: none may be there twice); memory: the rows and one
    shard, and eight bytes for each id.

    Examples
    --------
    >>> import tempfile, bigembed as be
    >>> from bigembed.store.arrays import write_array
    >>> path = tempfile.mkdtemp() + "/points.zarr"
    >>> write_array(path, np.zeros((3, 2)))
    >>> append_rows(path, np.ones((2, 2)))
    5
    >>> append_rows(path, np.ones((2, 2)), first=3)  # again
    5
    >>> be.open_array(path)[:, 0].compute().tolist()
    [0.0, 0.0, 0.0, 1.0, 1.0]
    """
    if is_scipy_sparse(rows):
        raise InputError("append_rows: sparse rows cannot be appended. Append rows.toarray() to dense ones")
    if isinstance(ids, str) and is_frame(rows):
        if ids not in (held := dict(columns_of(rows))):
            raise InputError(f"ids: no column {ids!r}; there are {listed(map(str, held))}")
        values, ids = values_of(path, rows, ids), held[ids]
    else:
        values = values_of(path, rows)
    dtype = checked_store(path, values.shape[1:], values.dtype, ids is not None)
    values = values.astype(dtype)
    named = None if ids is None else ids_of(ids, len(values))
    return append_source(path, RowSource(values.shape, values.dtype, array=values), first=first, ids=named)


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
    asked = replace(choice or Choice(), aligned=(ids,) if ids else (), expected=columns_at(path))
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


def require_store(path: PathLike) -> None:
    """MissingPathError where there is no array to append to."""
    if not at(path).exists():
        raise MissingPathError(f"{path}: no array to append to. Make it of the first rows: bigembed ingest ROWS {path}")


def checked_store(path: PathLike, tail: tuple[int, ...], dtype: np.dtype[Any], ids: bool) -> np.dtype[Any]:
    """Return the dtype of a store to which rows may be appended; InputError where they, or their ids, do not fit."""
    aligned = aligned_of(at(path))
    if others := [name for name in aligned if name != IDS]:
        raise InputError(
            f"{path}: {', '.join(others)} are aligned with its rows and would be too few; a store that grows "
            "has only rows and ids. Ingest it without them"
        )
    if not ids and IDS in aligned:
        raise InputError(f"{path}: its rows have ids, so appended rows need them, too: append_rows(…, ids=…), or --ids")
    if ids and IDS not in aligned:
        raise InputError(f"{path}: its rows have no ids. Append rows without them, or ingest it anew with --ids")
    require_store(path)
    array = open_zarr(path)
    if tail != tuple(array.shape[1:]):
        raise InputError(f"{path}: holds rows of shape {array.shape[1:]}; rows of shape {tail} were given")
    if not np.can_cast(dtype, array.dtype, "safe"):
        raise InputError(f"{path}: holds {array.dtype}; rows of {dtype} would lose digits. Cast them first")
    kind: np.dtype[Any] = np.dtype(array.dtype)
    return kind


def values_of(path: PathLike, rows: Any, ids: Any = None) -> Array:
    """Return rows as an array; the columns of a data frame in the order of those that are there, by their names, and
    without the one that holds ``ids``."""
    if not is_frame(rows):
        return as_array(rows)
    given, there = [name for name, _ in columns_of(rows) if name != ids], columns_at(path)
    if not there or not all(isinstance(name, str) for name in given):
        return of_frame(rows, given if ids is not None else ())
    missing, extra = [name for name in there if name not in given], [name for name in given if name not in there]
    if missing or extra or len(given) != len(there):
        said = "; ".join(
            f"{what}: {listed(names)}" for what, names in (("missing", missing), ("extra", extra)) if names
        )
        raise InputError(
            f"{path}: its columns have names, and those of the rows are others ({said or 'some of them twice'}). Give "
            f"the columns {listed(there)}, in any order"
        )
    return of_frame(rows, there)


def ids_of(ids: Any, n: int) -> RowSource:
    """Return ids as a source, one for each of n rows."""
    found = np.asarray(ids)
    if found.dtype == object:  # (of a column of a data frame)
        found = np.asarray(found.tolist())
    if found.shape != (n,):
        raise InputError(f"ids have shape {found.shape}; one for each of the {n} rows is needed")
    return RowSource((n,), found.dtype, array=found)
