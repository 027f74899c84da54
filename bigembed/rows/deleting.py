"""Rows of a growing store that count no more: they keep their places, and a mask beside the store says so.

``ARRAY.deleted.npy`` is a vector of bool, one entry a row of the array, or fewer: rows beyond its end are not deleted.
"""

from __future__ import annotations

import io
from typing import Any

import numpy as np

from bigembed.errors import InputError, MissingPathError
from bigembed.rows.formats.copying import aligned_of, vector_source
from bigembed.rows.growing import IDS, stored_units
from bigembed.rows.opening import as_array
from bigembed.rows.source import RowSource
from bigembed.runtime.blocks import Array, bounds
from bigembed.runtime.parameters import declared
from bigembed.store.locks import hold
from bigembed.store.paths import AnyPath, PathLike, at, put

NAMED = 10
"""Rows or ids that an error names."""
READ = 1 << 20
"""Ids that are looked at together."""


def mask_path(path: PathLike) -> AnyPath:
    """Return where the mask of a store lies."""
    root = at(path)
    return root.with_name(f"{root.name}.deleted.npy")


def deleted_rows(path: PathLike, n: int) -> Array:
    """Return which of the first n rows of a store are deleted, bool (n,); :class:`InputError` for another mask."""
    place, found = mask_path(path), np.zeros(n, bool)
    if place.exists():
        try:
            given = np.load(io.BytesIO(place.read_bytes()), allow_pickle=False)
        except (ValueError, EOFError) as error:
            raise InputError(f"{place}: not an array of NumPy ({error}). Write the mask anew, or delete it") from error
        if given.ndim != 1 or given.dtype != bool:
            raise InputError(f"{place}: shape {given.shape} of {given.dtype}; a vector of bool, one a row, is needed")
        found[: len(given)] = given[:n]
    return found


@declared
def delete_rows(path: PathLike, *, rows: Any = None, ids: Any = None) -> int:
    """Mark rows of a growing store as deleted: the next ``bigembed refresh`` leaves them out of the map.

    The rows keep their places and numbers, so that nothing else changes; in the coordinates of the next version they
    are NaN, and its table is without them. Until then the version that is there shows them.

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
        mask = deleted_rows(root, n)
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
    wanted = {one.item() if isinstance(one, np.generic) else one: -1 for one in ids.ravel()}
    for low, high in bounds(min(n, source.shape[0]), READ):
        for number, name in enumerate(np.asarray(source.read(low, high)).tolist(), low):
            if name in wanted:
                wanted[name] = number
    if missing := [name for name, number in wanted.items() if number < 0][:NAMED]:
        raise InputError(f"{root}: no rows have the ids {missing}. Nothing was deleted")
    return np.array(sorted(wanted.values()), np.int64)
