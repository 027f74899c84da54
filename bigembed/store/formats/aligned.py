"""Vectors aligned with the rows: their ids, labels, weights, scales. One entry a row, of numbers or of text.

They come from the source of the rows (a column, ``obs_names``, a dataset) or from a separate file. A copy
lies next to the rows, ``ROWS-ids.zarr``, and an attribute of the rows names it: whoever reads the rows later finds it.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from bigembed.errors import InputError, MissingPathError
from bigembed.store.arrays.attributes import attributes_of
from bigembed.store.formats.idx import is_idx, read_idx
from bigembed.store.rows.reader import Reader, described, named, native
from bigembed.store.rows.source import RowSource, rows_at
from bigembed.store.storage.claims import sound
from bigembed.store.storage.paths import AnyPath, PathLike, at

LINK = "bigembed_beside"


def aligned_path(rows: AnyPath, name: str) -> AnyPath:
    """Where a vector of this name lies for rows at the path."""
    return at(f"{rows.with_suffix('')}-{name}.zarr")


def link(rows: AnyPath, names: Mapping[str, Any]) -> dict[str, Any]:
    """The attribute of rows that names the vectors aligned with them."""
    return {LINK: {name: aligned_path(rows, name).name for name in names}} if names else {}


def aligned_of(rows: AnyPath) -> dict[str, AnyPath]:
    """Vectors that were copied with the rows at a path; {} without such."""
    found: Any = (attributes_of(rows) or {}).get(LINK, {}) if (rows / "zarr.json").is_file() else {}
    return {name: rows.with_name(file) for name, file in found.items()}


def vector_source(path: AnyPath) -> RowSource:
    """The vector at a path: a Zarr array or .npy."""
    if not path.exists():
        raise MissingPathError(f"{path}: no such path")
    if isinstance(path, Path) and is_idx(path):
        array = read_idx(path)
        return RowSource(array.shape, native(array.dtype), array=array.astype(native(array.dtype)))
    return rows_at(path.absolute())


def named_vector(reader: Reader, source: PathLike, given: str, what: str) -> Reader:
    """The vector that ``given`` names in the source of the rows, or the one at that path; as long as the rows."""
    source_of_names = named(reader)
    names = {} if source_of_names is None else source_of_names.names
    if source_of_names is not None and given in names:
        with sound(source, given):
            found: Reader = source_of_names.vector(given)
    elif at(given).exists():
        found = vector_source(at(given))
    else:
        inside = f", and no vector in {source}, where there are {described(names)}" if names else ""
        raise MissingPathError(f"{what} {given!r}: no such path{inside}")
    require_length(found, reader.shape[0], given, what)
    return found


def require_length(found: Any, n: int, given: Any, what: str) -> None:
    """InputError unless it is a vector with an entry for each row."""
    if tuple(found.shape) != (n,):
        raise InputError(f"{what} {str(given)!r}: shape {found.shape}; one entry for each of the {n} rows is needed")
