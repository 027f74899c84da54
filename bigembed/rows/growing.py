"""Arrays that grow by rows: how they are appended to, and how it is noticed what became of them.

A reader of a growing array sees a whole number of appends, whenever it looks and whenever the writer is killed: the
rows are written beyond the end first, then the shape (with the attributes) is replaced in one step. Rows that count
no more keep their places, and a mask beside the store says so.
"""

from __future__ import annotations

import io
from collections.abc import Mapping
from dataclasses import dataclass, replace
from hashlib import sha256
from typing import Any

import numpy as np

from bigembed.errors import InputError, MissingPathError
from bigembed.rows import RowSource
from bigembed.rows.formats.copying import aligned_of, check_ids, vector_source
from bigembed.rows.opening import as_array, open_zarr
from bigembed.rows.reader import listed
from bigembed.runtime.blocks import Array, block_rows, bounds, map_blocks
from bigembed.runtime.parameters import declared
from bigembed.store import AnyPath, PathLike, at, move_files, put, remove, stored
from bigembed.store.arrays import cached, npy_rows, read_array, write_rows
from bigembed.store.attributes import checksums
from bigembed.store.files import read_json, write_json
from bigembed.store.locks import Lock, hold
from bigembed.store.metadata import sealed_checksums, with_seal, without_seal

# --------------------------------------------------------------------------------------------------------- appending

IDS = "ids"
"""The name of the vector of ids that lies beside rows."""


@dataclass(frozen=True)
class StoreRows(RowSource):
    """Rows ``offset:offset + n`` of a store, whatever is appended to it meanwhile."""

    content: str = ""
    """Digest of these rows: their fingerprint, so that rows appended later change nothing."""

    def read(self, start: int, stop: int) -> Any:
        """Rows ``start:stop``, counted from ``offset``, and none beyond them."""
        return super().read(start, min(stop, self.shape[0]))

    def fingerprint(self) -> str:
        """Of the content: names, sizes and times of the files say nothing here, as the store grows."""
        aligned = "".join(f" {name} {other.fingerprint()}" for name, other in sorted(self.aligned.items()))
        return sha256(f"{self.shape} {self.dtype} {self.content}{aligned}".encode()).hexdigest()


@dataclass(frozen=True)
class Unit:
    """Rows that are stored together: a shard, else a chunk."""

    start: int
    stop: int
    name: str
    """Of the file, inside the store."""
    stamp: str
    """Sizes and times of its files."""


def stored_units(path: PathLike) -> tuple[tuple[int, ...], np.dtype[Any], list[Unit]]:
    """Shape and dtype of the rows at a path (a whole Zarr array or .npy), and the units they are stored in."""
    root = at(path)
    if root.suffix == ".npy":
        mapped = npy_rows(root)
        rows = block_rows(int(np.prod(mapped.shape[1:])), mapped.dtype.itemsize)
        stamp = _stamps(root)["."]
        return mapped.shape, mapped.dtype, [Unit(*span, root.name, stamp) for span in bounds(len(mapped), rows)]
    array, stamps = open_zarr(root), _stamps(root)
    grid = array.shards or array.chunks
    columns = [range(-(-n // c)) for n, c in zip(array.shape[1:], grid[1:], strict=True)]
    tails = list(np.ndindex(*map(len, columns)))
    found = []
    for number, span in enumerate(bounds(array.shape[0], grid[0])):
        names = [array.metadata.encode_chunk_key((number, *tail)) for tail in tails]
        found.append(Unit(*span, names[0], ";".join(stamps[name] for name in names)))
    return tuple(array.shape), np.dtype(array.dtype), found


def rows_digest(path: str, start: int, stop: int) -> str:
    """SHA-256 of rows ``start:stop`` as they are read, however they are compressed."""
    digest = sha256()
    source = RowSource(*_like(path), path=path)
    for low, high in bounds(stop - start, block_rows(source.width, source.dtype.itemsize)):
        digest.update(np.ascontiguousarray(source.read(start + low, start + high)).tobytes())
    return digest.hexdigest()


@declared
def append_source(
    path: PathLike, source: RowSource, attributes: Mapping[str, Any] | None = None, first: int | None = None,
    ids: RowSource | None = None,
) -> int:  # fmt: skip
    """Append all rows of a source that the tasks can read, and set attributes in the same step. Returns the new n.

    ``ids`` are appended before the rows, so ids without a row were left by a killed call; they are replaced.
    """
    with hold(growing_folder(path)) as lock:
        return append_held(path, lock, source, attributes, first, ids)


def remove_unfinished(path: PathLike) -> None:
    """Remove what a killed append left beside an array that nobody appends to now."""
    root = at(path)
    remove(_aside(root.with_name(f"{root.name}.growing")))


def _aside(folder: AnyPath) -> AnyPath:
    """Return where units are written before they are moved into the array."""
    return folder / "rows"


def growing_folder(path: PathLike) -> AnyPath:
    """The folder beside a store that who changes it holds, made if need be."""
    root = at(path).absolute()
    if not (root / "zarr.json").is_file():
        raise InputError(f"{root}: not a Zarr array of version 3; only such can be appended to. Ingest it first")
    folder = root.with_name(f"{root.name}.growing")
    folder.mkdir(exist_ok=True)
    return folder


def append_held(
    path: PathLike, lock: Lock, source: RowSource, attributes: Mapping[str, Any] | None = None,
    first: int | None = None, ids: RowSource | None = None,
) -> int:  # fmt: skip
    """Append as :func:`append_source` does, for a caller that holds the folder already."""
    root, aside = at(path).absolute(), _aside(growing_folder(path))
    metadata = read_json(root / "zarr.json")
    n, total = metadata["shape"][0], metadata["shape"][0] + source.shape[0]
    if first is not None and first != n:
        remove(aside)
        _require_there(path, source, first, n)
        return int(n)
    if ids is not None:
        _append_ids(root, int(n), ids)
    metadata["shape"][0] = total
    metadata["attributes"] = {**metadata.get("attributes", {}), **(attributes or {})}
    remove(aside)
    write_json(aside / "zarr.json", without_seal(metadata))
    tasks = [
        (max(start, n - n % _unit(root)), stop)
        for start, stop in bounds(total, _step(root, source))
        if stop > n and source.shape[0]
    ]
    map_blocks(write_unit, tasks, label="append", path=str(root), n=n, source=source, aside=str(aside))
    lock.check()
    metadata = _sealed(root, aside, metadata, n)
    move_files(aside, root, [file.name for file in stored(aside) if file.name != "zarr.json"])
    write_json(root / "zarr.json", metadata)
    remove(aside)
    return int(total)


def _append_ids(root: AnyPath, n: int, ids: RowSource) -> None:
    """Append ids to those of n rows; :class:`InputError` where one of them is there already."""
    path = aligned_of(root)[IDS]
    there = _ids_there(path, n)
    if not ids.shape[0]:
        return
    new = ids.read(0, ids.shape[0])
    if not (new.dtype.kind in "UT" if there.dtype.kind == "T" else np.can_cast(new.dtype, there.dtype, "safe")):
        raise InputError(f"{path}: holds ids of {there.dtype}; those of {new.dtype} do not fit. Ingest the rows anew")
    new = new.astype(there.dtype)
    check_ids(RowSource(new.shape, new.dtype, array=new))
    if (known := rows_with_ids(new, there) >= 0).any():
        which = "all" if known.all() else f"{int(known.sum())} of the"
        named = listed(map(repr, new[known].tolist()))
        raise InputError(
            f"{root}: {which} {len(new)} rows are in the store already, by their ids ({named}); appended again, these "
            "would name several rows. Nothing was appended. --skip-known (in Python skip_known=True) appends only rows "
            "whose ids are not there yet"
        )
    if vector_source(path).shape[0] > n:  # (of a call that was killed)
        metadata = without_seal(read_json(path / "zarr.json"))
        metadata["shape"][0] = n
        write_json(path / "zarr.json", metadata)
    append_source(path, replace(ids, dtype=there.dtype, array=new))


def _ids_there(path: AnyPath, n: int) -> RowSource:
    """Return the ids of the first n rows."""
    there = vector_source(path)
    if there.shape[0] < n:
        raise InputError(f"{path}: has {there.shape[0]} ids for {n} rows. Ingest the rows anew with their ids")
    return replace(there, shape=(n,))


def rows_without(root: AnyPath, ids: RowSource) -> Array:
    """Return the places of those ids that no row of a store has yet."""
    there = _ids_there(aligned_of(root)[IDS], int(read_json(root / "zarr.json")["shape"][0]))
    return np.flatnonzero(rows_with_ids(ids.read(0, ids.shape[0]), there) < 0)


def rows_with_ids(wanted: Array, ids: RowSource) -> Array:
    """Return the number of the row that has each of the wanted ids, −1 for none: one pass over all ids, of which a
    piece is held at a time, and the wanted ones as Python objects (about 150 bytes each).
    """
    names = wanted.ravel().tolist()
    found = dict.fromkeys(names, -1)
    for low, high in bounds(ids.shape[0], READ):
        for number, name in enumerate(np.asarray(ids.read(low, high)).tolist(), low):
            if name in found:
                found[name] = number
    return np.array([found[name] for name in names], np.int64)


def _sealed(root: AnyPath, aside: AnyPath, metadata: dict[str, Any], n: int) -> dict[str, Any]:
    """The metadata of the grown array, if it is sealed with the checksums of what lies aside, too.

    Those are first added to the metadata in place: until all files are moved, the last unit of the ``n`` rows may be
    the old one or the new one.
    """
    there = read_json(root / "zarr.json")
    old, array = sealed_checksums(there, root), cached(aside)
    if old is None:
        return metadata
    if array.shape[0] == n:  # (attributes alone)
        return with_seal(metadata, chunks=old)
    rows, first = array.chunks[0], (n - n % _unit(root)) // array.chunks[0]
    kept, count = old[0, :first], -(-n // rows)
    fresh = np.concatenate([kept, checksums(aside, first, -(-array.shape[0] // rows), "append")])
    if first < count:
        now = np.concatenate([kept, checksums(root, first, count, "append")])
        write_json(root / "zarr.json", with_seal(there, chunks=now, next=fresh))
    return with_seal(metadata, chunks=fresh)


def _require_there(path: PathLike, source: RowSource, first: int, n: int) -> None:
    """InputError unless the rows are there from ``first`` on."""
    last = first + source.shape[0]
    if not 0 <= first <= last <= n:
        raise InputError(f"{path}: holds {n} rows; rows {first}:{last} cannot follow them. Nothing was appended")
    for low, high in bounds(source.shape[0], block_rows(source.width, source.dtype.itemsize)):
        if source.read(low, high).tobytes() != read_array(path, first + low, first + high).tobytes():
            raise InputError(f"{path}: holds other rows at {first}:{last}. Nothing was appended")


def write_unit(start: int, stop: int, *, path: str, n: int, source: RowSource, aside: str) -> None:
    """Rows ``start:stop`` of the array as it will be, into the one aside: whole units, with the rows that are there."""
    fresh: Array = source.read(max(start, n) - n, stop - n)
    rows = fresh if start >= n else np.concatenate([read_array(path, start, n), fresh])
    write_rows(aside, start, rows)


def _unit(path: AnyPath) -> int:
    array = open_zarr(path)
    return int((array.shards or array.chunks)[0])


def _step(path: AnyPath, source: RowSource) -> int:
    """Rows that a task writes: whole units, about a canonical block."""
    unit = _unit(path)
    return unit * max(1, block_rows(source.width, source.dtype.itemsize) // unit)


def _like(path: str) -> tuple[tuple[int, ...], np.dtype[Any]]:
    if path.endswith(".npy"):
        mapped = npy_rows(path)
        return mapped.shape, mapped.dtype
    found = read_array(path, 0, 0)
    return found.shape, found.dtype


def _stamps(root: AnyPath) -> dict[str, str]:
    """Sizes and times of the files of a store."""
    return {file.name: f"{file.size}:{file.stamp}" for file in stored(root)}


# ---------------------------------------------------------------------------------------------------------- deleting
# ``ARRAY.deleted.npy`` is a vector of bool, one entry a row of the array, or fewer: rows beyond its end are kept.

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
    numbers = rows_with_ids(ids, replace(source, shape=(min(n, source.shape[0]),)))
    if missing := ids.ravel()[numbers < 0][:NAMED].tolist():
        raise InputError(f"{root}: no rows have the ids {missing}. Nothing was deleted")
    return np.unique(numbers)
