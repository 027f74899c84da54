"""Rows and ids that are to be appended, as the store has them: checked, and columns by their names."""

from __future__ import annotations

from typing import Any

import numpy as np

from bigembed.errors import InputError, MissingPathError
from bigembed.rows import RowSource
from bigembed.rows.formats.copying import aligned_of
from bigembed.rows.input import of_frame
from bigembed.rows.opening import as_array, open_zarr
from bigembed.rows.reader import columns_of, is_frame, listed
from bigembed.runtime.blocks import Array
from bigembed.store import PathLike, at
from bigembed.store.attributes import columns_of as columns_at

IDS = "ids"
"""The name of the vector of ids that lies beside rows."""


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
