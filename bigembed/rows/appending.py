"""Rows appended to a store that grows: arrays, data frames, files; checked, columns by their names."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np

from bigembed.errors import InputError, InputTypeError, MissingPathError
from bigembed.rows import RowSource, rows_at
from bigembed.rows.formats import ingest, open_reader
from bigembed.rows.formats.copying import aligned_of, named_vector, vector_source
from bigembed.rows.growing import IDS, KnownIds, append_held, growing_folder, known_ids, mask_path, refuse_sparse
from bigembed.rows.input import of_frame
from bigembed.rows.missing import refuse_missing
from bigembed.rows.opening import as_array, open_zarr
from bigembed.rows.reader import Choice, Reader, columns_of, features_of, is_frame, listed, named
from bigembed.runtime.blocks import Array, is_scipy_sparse
from bigembed.runtime.parameters import declared
from bigembed.store import AnyPath, PathLike, at, is_path, remove, require_apart
from bigembed.store.arrays import read_rows
from bigembed.store.attributes import columns_of as columns_at
from bigembed.store.locks import Lock, hold, hold_after_others


@declared
def append_rows(
    path: PathLike, rows: Any, *, first: int | None = None, ids: Any = None, missing: bool = False,
    skip_known: bool = False,
) -> int:  # fmt: skip
    """Append rows (m, d) to a Zarr array of version 3, so that no reader ever sees half of them.

    Parameters
    ----------
    path : path
        The path of the array.
    rows : array of shape (m, d)
        The rows, as a NumPy array or what makes one; they are cast to the dtype of the array where nothing is lost.
        The columns of a data frame are taken by their names, where those of the array have names; those of an array in
        the order in which they stand. Files are appended by the command ``bigembed append``.
    first : int or None
        The number that the first of these rows gets, where the caller knows it. Rows that are there already, from a
        call that was killed after they had become visible, are then not appended again.
    ids : array of shape (m,), str or None
        The ids of the rows, where those that are there have ids (``bigembed ingest --ids``): text or whole numbers, of
        which none is there yet, unless its row is deleted: then the new row gets it. Of a data frame also the name of
        the column that holds them.
    missing : bool
        Whether values that are missing in a data frame (NaN, None, NA) come as NaN, for jobs with the step
        ``missing``; they are refused otherwise. NaN in an array is taken as it is.
    skip_known : bool
        Whether rows whose ids are there already are left out, so that a call may be repeated; they are refused
        otherwise.

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
        missing, repeated, there already, or given where the rows have none; if values are missing in a data frame; if
        there are other rows at ``first``, or fewer before it.
    LockedError
        If another process appends.

    Notes
    -----
    A killed call leaves the array as it was. ``ARRAY.growing`` says who appends. Cost: the last shard is read and
    written anew, nothing else (of rows with ids, all ids are read once: none may be there twice); memory: the rows and
    one shard, and about 150 bytes for the id of each new row.

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
    if is_path(rows):
        raise InputTypeError(
            f"append_rows: rows are an array or a data frame, not a path: bigembed append {path} {rows}"
        )
    if isinstance(ids, str) and is_frame(rows):
        if ids not in (held := dict(columns_of(rows))):
            raise InputError(f"ids: no column {ids!r}; there are {listed(map(str, held))}")
        values, ids = values_of(path, rows, ids, missing), held[ids]
    else:
        values = values_of(path, rows, None, missing)
    if skip_known and (ids is None or first is not None):
        raise InputError("skip_known: leaves out rows by their ids, so ids are needed, and first is not")
    dtype = checked_store(path, values.shape[1:], values.dtype, ids is not None)
    values = values.astype(dtype)
    names = None if ids is None else ids_of(ids, len(values))
    with hold(growing_folder(path)) as lock:
        if names is not None and skip_known:
            new = np.flatnonzero(~_known(path, names).there)
            values, names = values[new], part_of(names, new)
        return append_held(path, lock, RowSource(values.shape, values.dtype, array=values), first=first, ids=names)


@dataclass(frozen=True)
class CastRows(RowSource):
    """Rows that lie at a path, in another dtype: some of them, if ``chosen`` says which."""

    chosen: Array | None = None

    def read(self, start: int, stop: int) -> Any:
        """Rows ``start:stop``."""
        if self.chosen is None:
            return super().read(start, stop).astype(self.dtype)
        return read_rows(str(self.path), self.chosen[start:stop]).astype(self.dtype)


class Appended(NamedTuple):
    """What became of the rows of a file."""

    added: int
    known: int
    """Rows left out, since their ids were there already."""
    n: int
    """Rows that are then there."""
    returned: int = 0
    """Of those added, rows under the ids of rows that are deleted."""

    def as_dict(self) -> dict[str, int]:
        """As JSON."""
        return {"appended": self.added, "known": self.known, "returned": self.returned, "n": self.n}

    def said(self, known: bool) -> str:
        """In words, with the rows that were left out if these are ``known``.

        >>> Appended(3, 2, 10, 1).said(True)
        '3 rows appended (1 under an id whose row is deleted), 2 known, 10 in all'
        """
        returned = f" ({self.returned:,} under an id whose row is deleted)" if self.returned else ""
        return f"{self.added:,} rows appended{returned}{f', {self.known:,} known' if known else ''}, {self.n:,} in all"


def append_file(
    path: PathLike, source: PathLike, choice: Choice | None = None, ids: str = "", *, by_position: bool = False,
    skip_known: bool = False,
) -> Appended:  # fmt: skip
    """Append the rows of a file of any known format to a Zarr array, as :func:`~bigembed.append_rows` does.

    Columns are taken by the names of those that are there, or, ``by_position``, in the order in which they stand in the
    file; ``ids`` names the column, or the path, of the ids of the rows: by default those that the rows bring along,
    where the array has ids. The rows are copied beside the array first,
    sparse ones dense, block by block, then they become visible in one step. Who appends meanwhile is waited for.
    """
    require_store(path)
    names = () if by_position else columns_at(path)
    asked = replace(choice or Choice(), aligned=(ids,) if ids else (), expected=names, growing=True, dense=True)
    given = open_reader(source, asked, least=0)
    if not ids and IDS in aligned_of(at(path)):
        ids = own_ids(source, given)
    if skip_known and not ids:
        raise InputError("--skip-known leaves out rows by their ids, so --ids is needed")
    require_names(path, source, features_of(given), names)
    empty = not given.shape[0]
    dtype = checked_store(path, tuple(given.shape[1:]), open_zarr(path).dtype if empty else given.dtype, bool(ids))
    require_apart(source, path)
    if ids:
        named_vector(given, source, ids, IDS)
    if empty:
        return Appended(0, 0, int(open_zarr(path).shape[0]))
    with hold_after_others(growing_folder(path)) as lock:
        aside = growing_folder(path) / "file"
        remove(aside)  # of a call that was killed
        try:
            ingest(source, aside / "rows.zarr", asked, {IDS: ids} if ids else {})
            names_of_rows = vector_source(aside / "rows-ids.zarr") if ids else None
            return _append_copy(path, lock, aside / "rows.zarr", dtype, names_of_rows, skip_known)
        finally:
            remove(aside)


def own_ids(source: PathLike, given: Reader) -> str:
    """Return what the ids are called that rows bring along: those that lie beside a store, names of rows in a file."""
    if (beside := aligned_of(at(source)).get(IDS)) is not None:
        return str(beside)
    names = named(given)
    return "" if names is None or names.row_ids is None else names.row_ids


def _append_copy(
    path: PathLike, lock: Lock, copy: AnyPath, dtype: np.dtype[Any], ids: RowSource | None, skip_known: bool
) -> Appended:
    """Append rows that were copied beside the array, with their ids if they have any."""
    copied = rows_at(copy)
    rows, returned = CastRows(copied.shape, dtype, path=copied.path), 0
    if ids is not None and (skip_known or mask_path(path).exists()):
        known = _known(path, ids)
        returned = int(known.returned.sum())
        if skip_known:
            new = np.flatnonzero(~known.there)
            rows = replace(rows, shape=(len(new), *rows.shape[1:]), chosen=new)
            ids = part_of(ids, new)
    n = append_held(path, lock, rows, ids=ids)
    return Appended(rows.shape[0], copied.shape[0] - rows.shape[0], n, returned)


def _known(path: PathLike, ids: RowSource) -> KnownIds:
    """Return which of these ids the store has."""
    return known_ids(at(path).absolute(), int(open_zarr(path).shape[0]), ids.read(0, ids.shape[0]))


def part_of(ids: RowSource, chosen: Array) -> RowSource:
    """Some of the ids."""
    found = ids.read(0, ids.shape[0])[chosen]
    return RowSource(found.shape, found.dtype, array=found)


def require_names(path: PathLike, source: PathLike, given: Sequence[str], there: Sequence[str]) -> None:
    """InputError where columns of a file have no names, or others, than those of a store, or stand in another order."""
    if not there or tuple(given) == tuple(there):
        return
    advice = "--by-position takes the columns as they stand in the file, if you know that they are these"
    if not given:
        raise InputError(
            f"{source}: its columns have no names, and those of {path} have: {listed(there)}. Give the file a line of "
            f"names; {advice}"
        )
    if said := named_apart(given, there):
        raise InputError(f"{source}: its columns are not those of {path} ({said}). Give these; {advice}")
    raise InputError(
        f"{source}: its columns stand in another order than those of {path}: {listed(there)}. Leave out --columns, or "
        f"write the file in that order; {advice}"
    )


def named_apart(given: Sequence[str], there: Sequence[str]) -> str:
    """Return which names are missing, and which are not needed; nothing where the names are the same."""
    missing, extra = [name for name in there if name not in given], [name for name in given if name not in there]
    return "; ".join(f"{what}: {listed(names)}" for what, names in (("missing", missing), ("extra", extra)) if names)


def require_store(path: PathLike) -> None:
    """MissingPathError where there is no array to append to, InputError where its rows are sparse."""
    if not at(path).exists():
        raise MissingPathError(f"{path}: no array to append to. Make it of the first rows: bigembed ingest ROWS {path}")
    refuse_sparse(path)


def checked_store(path: PathLike, tail: tuple[int, ...], dtype: np.dtype[Any], ids: bool) -> np.dtype[Any]:
    """Return the dtype of a store to which rows may be appended; InputError where they, or their ids, do not fit."""
    refuse_sparse(path)
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


def values_of(path: PathLike, rows: Any, ids: Any = None, missing: bool = False) -> Array:
    """Return rows as an array; the columns of a data frame in the order of those that are there, by their names, and
    without the one that holds ``ids``. What is ``missing`` in it is refused, or comes as NaN."""
    if not is_frame(rows):
        return as_array(rows)
    given, there = [name for name, _ in columns_of(rows) if name != ids], columns_at(path)
    by_name = bool(there) and all(isinstance(name, str) for name in given)
    said = named_apart(given, there) if by_name else ""
    if by_name and (said or len(given) != len(there)):
        raise InputError(
            f"{path}: its columns have names, and those of the rows are others ({said or 'some of them twice'}). Give "
            f"the columns {listed(there)}, in any order"
        )
    wanted = there if by_name else given
    values = of_frame(rows, there if by_name else given if ids is not None else ())
    if not missing:
        refuse_missing(values, wanted)
    return values


def ids_of(ids: Any, n: int) -> RowSource:
    """Return ids as a source, one for each of n rows."""
    found = np.asarray(ids)
    if found.dtype == object:  # (of a column of a data frame)
        found = np.asarray(found.tolist())
    if found.shape != (n,):
        raise InputError(f"ids have shape {found.shape}; one for each of the {n} rows is needed")
    return RowSource((n,), found.dtype, array=found)
