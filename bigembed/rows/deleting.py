"""Rows of a growing store that count no more: marked, and erased."""

from __future__ import annotations

import io
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from bigembed.errors import InputError, MissingPathError
from bigembed.rows import RowSource
from bigembed.rows.formats.copying import aligned_of, vector_source
from bigembed.rows.growing import (
    IDS,
    deleted_rows,
    growing_folder,
    mask_path,
    refuse_sparse,
    rows_with_ids,
    settled_checksums,
    stored_units,
    unit_rows,
    units_aside,
)  # fmt: skip
from bigembed.rows.opening import as_array
from bigembed.runtime.blocks import Array, map_blocks
from bigembed.runtime.parameters import declared
from bigembed.store import AnyPath, PathLike, at, move_files, put, remove, stored
from bigembed.store.arrays import cached, read_array, write_rows
from bigembed.store.attributes import checksums
from bigembed.store.files import read_json, write_json
from bigembed.store.locks import Lock, hold
from bigembed.store.metadata import with_seal, without_seal

NAMED = 10
"""Rows or ids that an error names."""


@declared
def delete_rows(path: PathLike, *, rows: Any = None, ids: Any = None) -> int:
    """Mark rows of a growing store as deleted: the next ``bigembed refresh`` leaves them out of the map.

    The rows keep their places and numbers, so that nothing else changes; in the coordinates of the next version they
    are NaN, and its table is without them. Until then the version that is there shows them. Their ids may be given
    anew: of the rows with an id, the one that is not deleted has it.

    Parameters
    ----------
    path : path
        The path of the array.
    rows : array of shape (k,), int, or None
        The numbers of the rows.
    ids : array of shape (k,) or None
        Their ids instead, where the rows have ids (``bigembed ingest --ids``).

    Returns
    -------
    int
        The number of rows that are then deleted in all.

    Raises
    ------
    MissingPathError
        If there is no such array.
    InputError
        If both or neither of ``rows`` and ``ids`` are given, or one of them is not there; the first are named.
    LockedError
        If another process appends or deletes.

    Notes
    -----
    A killed call leaves the mask as it was. Cost: the mask is written anew, one byte a row; with ids,
    all ids are read. Memory: one byte a row.

    Examples
    --------
    >>> import tempfile
    >>> from bigembed.store.arrays import write_array
    >>> path = tempfile.mkdtemp() + "/points.zarr"
    >>> write_array(path, np.zeros((5, 2)))
    >>> delete_rows(path, rows=[1, 3])
    2
    """
    if not at(path).exists():
        raise MissingPathError(f"{path}: no array whose rows could be deleted")
    if (rows is None) == (ids is None):
        raise InputError("rows=, the numbers of the rows, or ids=, their ids: one of them is needed, and not both")
    root, n = at(path).absolute(), stored_units(path)[0][0]
    numbers = _numbers(as_array(rows, "rows"), n, path) if ids is None else _of_ids(as_array(ids, "ids"), n, root)
    folder = root.with_name(f"{root.name}.growing")
    folder.mkdir(exist_ok=True)
    with hold(folder) as lock:
        mask = deleted_rows(root, stored_units(path)[0][0])  # (others may have appended rows, and deleted them)
        mask[numbers] = True
        written = io.BytesIO()
        np.save(written, mask)
        lock.check()
        put(mask_path(root), written.getvalue())
    return int(mask.sum())


def _numbers(rows: Array, n: int, path: PathLike) -> Array:
    """Return numbers of rows that are there."""
    if rows.ndim != 1 or (rows.size and rows.dtype.kind not in "iu"):
        raise InputError(f"rows: a vector of whole numbers is needed; got shape {rows.shape} of {rows.dtype}")
    if wrong := rows[(rows < 0) | (rows >= n)][:NAMED].tolist():
        raise InputError(f"{path}: has rows 0:{n}; rows {wrong} are not there. Nothing was deleted")
    return rows.astype(np.int64)


def _of_ids(ids: Array, n: int, root: AnyPath) -> Array:
    """Return the numbers of the rows with these ids."""
    names = aligned_of(root).get(IDS)
    if names is None:
        raise InputError(f"{root}: its rows have no ids. Give their numbers: delete_rows(path, rows=…)")
    source: RowSource = vector_source(names)
    numbers = rows_with_ids(ids, replace(source, shape=(min(n, source.shape[0]),)), deleted_rows(root, n))
    if missing := ids.ravel()[numbers < 0][:NAMED].tolist():
        raise InputError(f"{root}: no rows have the ids {missing}. Nothing was deleted")
    return np.unique(numbers)


# ----------------------------------------------------------------------------------------------------------- erasing
# Units that hold deleted rows are written anew beside the array, without them, and take the places of the old ones.
# Until all of them have, the seal of the array knows each as it was and as it will be.


@declared
def purge_rows(path: PathLike) -> int:
    """Erase the deleted rows of a growing store: their numbers become zeros, their ids 0 or empty text.

    They keep their places, so that all other rows keep their numbers. ``bigembed refresh`` is to run before, so that
    no map is shown any more that these rows are part of; a map that was fitted before they were deleted does not know
    the store again, until ``bigembed refresh JOB.toml --changed``.

    Parameters
    ----------
    path : path
        The path of the array.

    Returns
    -------
    int
        The number of rows that are then erased in all.

    Raises
    ------
    MissingPathError
        If there is no such array.
    InputError
        If it is not a Zarr array of version 3, or its rows are sparse.
    LockedError
        If another process appends or deletes.

    Notes
    -----
    A killed call is repeated; readers see the store whole meanwhile. Cost: shards (of the rows, and of their ids) that
    hold deleted rows are read, and written anew where something is left to erase. Memory: a shard a task. What
    bigembed has made of these rows elsewhere stays: older versions, exported tables, models.

    Examples
    --------
    >>> import tempfile
    >>> from bigembed.store.arrays import read_array, write_array
    >>> path = tempfile.mkdtemp() + "/points.zarr"
    >>> write_array(path, np.ones((3, 2)))
    >>> delete_rows(path, rows=[1])
    1
    >>> purge_rows(path)
    1
    >>> read_array(path).tolist()
    [[1.0, 1.0], [0.0, 0.0], [1.0, 1.0]]
    """
    if not at(path).exists():
        raise MissingPathError(f"{path}: no array whose rows could be erased")
    refuse_sparse(path)
    root = at(path).absolute()
    with hold(growing_folder(root)) as lock:
        gone = np.flatnonzero(deleted_rows(root, stored_units(root)[0][0]))
        for place in aligned_of(root).values():
            with hold(growing_folder(place)) as own:
                _erase(place, gone, own)
        _erase(root, gone, lock)
    return len(gone)


def erased(dtype: np.dtype[Any]) -> Any:
    """Return what stands in the place of what was erased."""
    return "" if dtype.kind in "UT" else np.zeros((), dtype)[()]


def _erase(root: AnyPath, gone: Array, lock: Lock) -> None:
    """Erase some rows of an array that is held."""
    if not len(gone):
        return
    said, aside, unit = read_json(root / "zarr.json"), units_aside(growing_folder(root)), unit_rows(root)
    remove(aside)  # of a call that was killed
    write_json(aside / "zarr.json", without_seal(said))
    starts = unit * np.unique(gone // unit)
    tasks = [(low, min(low + unit, said["shape"][0]), gone[gone // unit == low // unit]) for low in starts.tolist()]
    written = map_blocks(erase_unit, tasks, label="purge", path=str(root), aside=str(aside))
    spans = [(low, high) for (low, high, _), done in zip(tasks, written, strict=True) if done]
    lock.check()
    now = settled_checksums(said, root)
    if now is None:
        move_files(aside, root, _units_in(aside))
    else:
        fresh = _fresh(root, aside, now, spans)
        write_json(root / "zarr.json", with_seal(said, chunks=now, next=fresh))
        move_files(aside, root, _units_in(aside))
        write_json(root / "zarr.json", with_seal(said, chunks=fresh))
    remove(aside)


def _units_in(aside: AnyPath) -> list[str]:
    return [file.name for file in stored(aside) if file.name != "zarr.json"]


def _fresh(root: AnyPath, aside: AnyPath, now: Array, spans: Sequence[tuple[int, int]]) -> Array:
    """Return the checksums of an array once the units aside that hold these rows are in their places."""
    rows, fresh = cached(root).chunks[0], now.copy()
    for low, high in spans:
        first, stop = low // rows, -(-high // rows)
        fresh[first:stop] = checksums(aside, first, stop, "purge")
    return fresh


def erase_unit(start: int, stop: int, gone: Array, *, path: str, aside: str) -> bool:
    """Write rows ``start:stop`` without those that are ``gone``, unless they are erased already; return whether."""
    rows = np.array(read_array(path, start, stop))
    if (rows[gone - start] == erased(rows.dtype)).all():
        return False
    rows[gone - start] = erased(rows.dtype)
    write_rows(aside, start, rows)
    return True
