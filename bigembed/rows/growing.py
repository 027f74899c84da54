"""Arrays that grow by rows: how they are appended to, and how it is noticed what became of them.

A reader of a growing array sees a whole number of appends, whenever it looks and whenever the writer is killed: the
rows are written beyond the end first, then the shape (with the attributes) is replaced in one step. Rows that count
no more keep their places, and a mask beside the store says so (:mod:`bigembed.rows.deleting`).
"""

from __future__ import annotations

import io
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from hashlib import sha256
from typing import Any, NamedTuple

import numpy as np

from bigembed.errors import InputError
from bigembed.rows import RowSource
from bigembed.rows.formats.copying import aligned_of, check_ids, vector_source
from bigembed.rows.opening import open_zarr
from bigembed.rows.reader import listed
from bigembed.rows.sparse import NAMES
from bigembed.runtime.blocks import Array, block_rows, bounds, map_blocks
from bigembed.runtime.parameters import declared
from bigembed.store import AnyPath, PathLike, at, move_files, remove, stored
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
    refuse_sparse(root)
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


def refuse_sparse(path: PathLike) -> None:
    """InputError where the rows at a path are sparse: shards of dense rows can be written anew, entries cannot."""
    if all((at(path) / name).exists() for name in NAMES):
        raise InputError(
            f"{path}: holds sparse rows (a CSR group); a store that grows holds dense ones. Make it of the file that "
            "these rows are from, with --dense: bigembed ingest FILE NEW.zarr --dense. Sparse rows of files that come "
            "later are then appended to it as they are"
        )


def rows_digest(path: str, start: int, stop: int, gone: Sequence[int] = ()) -> str:
    """SHA-256 of rows ``start:stop`` as they are read, however they are compressed; of those that are ``gone``
    (numbered from ``start``) as zeros, which they are once they are erased."""
    digest, left_out = sha256(), np.asarray(gone, np.int64)
    source = RowSource(*_like(path), path=path)
    for low, high in bounds(stop - start, block_rows(source.width, source.dtype.itemsize)):
        rows = source.read(start + low, start + high)
        if len(inside := left_out[(left_out >= low) & (left_out < high)]):
            rows = np.array(rows)
            rows[inside - low] = 0
        digest.update(np.ascontiguousarray(rows).tobytes())
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
    remove(units_aside(root.with_name(f"{root.name}.growing")))


def units_aside(folder: AnyPath) -> AnyPath:
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
    root, aside = at(path).absolute(), units_aside(growing_folder(path))
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
        (max(start, n - n % unit_rows(root)), stop)
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
    if (known := known_ids(root, n, new).there).any():
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


class KnownIds(NamedTuple):
    """Which of some ids a store has."""

    there: Array
    """bool: a row that counts has it."""
    returned: Array
    """bool: only rows that are deleted had it, so that a new row may get it."""


def known_ids(root: AnyPath, n: int, new: Array) -> KnownIds:
    """Return which of these ids the first n rows of a store have. One pass over its ids."""
    deleted = deleted_rows(root, n)
    rows = rows_with_ids(new, _ids_there(aligned_of(root)[IDS], n), deleted)
    returned = np.append(deleted, False)[rows]  # (of −1 it is the last entry)
    return KnownIds((rows >= 0) & ~returned, returned)


def rows_with_ids(wanted: Array, ids: RowSource, deleted: Array) -> Array:
    """Return the number of the row that has each of the wanted ids, −1 for none: one pass over all ids, of which a
    piece is held at a time, and the wanted ones as Python objects (about 150 bytes each).

    Where an id came again after its row was ``deleted`` (bool, one a row), it names the row that is not.
    """
    names = wanted.ravel().tolist()
    found = dict.fromkeys(names, -1)
    for low, high in bounds(ids.shape[0], READ):
        for number, name in enumerate(np.asarray(ids.read(low, high)).tolist(), low):
            if name in found and (found[name] < 0 or not deleted[number]):
                found[name] = number
    return np.array([found[name] for name in names], np.int64)


def _sealed(root: AnyPath, aside: AnyPath, metadata: dict[str, Any], n: int) -> dict[str, Any]:
    """The metadata of the grown array, if it is sealed with the checksums of what lies aside, too.

    Those are first added to the metadata in place: until all files are moved, the last unit of the ``n`` rows may be
    the old one or the new one.
    """
    there = read_json(root / "zarr.json")
    old, array = settled_checksums(there, root), cached(aside)
    if old is None:
        return metadata
    if array.shape[0] == n:  # (attributes alone)
        return with_seal(metadata, chunks=old)
    rows, first = array.chunks[0], (n - n % unit_rows(root)) // array.chunks[0]
    kept, count = old[:first], -(-n // rows)
    fresh = np.concatenate([kept, checksums(aside, first, -(-array.shape[0] // rows), "append")])
    if first < count:
        now = np.concatenate([kept, checksums(root, first, count, "append")])
        write_json(root / "zarr.json", with_seal(there, chunks=now, next=fresh))
    return with_seal(metadata, chunks=fresh)


def settled_checksums(said: Mapping[str, Any], root: AnyPath) -> Array | None:
    """What stands behind the chunks of an array now, where a killed call left some of them old and some new, too; None
    of an array that is not sealed."""
    known = sealed_checksums(said, root)
    if known is None:
        return None
    now: Array = known[0].copy()
    doubted = np.flatnonzero(known[0] != known[-1])
    if len(doubted):
        first = int(doubted[0])
        now[doubted] = checksums(root, first, int(doubted[-1]) + 1, "settle")[doubted - first]
    return now


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


def unit_rows(path: AnyPath) -> int:
    """Return the rows that are stored together."""
    array = open_zarr(path)
    return int((array.shards or array.chunks)[0])


def _step(path: AnyPath, source: RowSource) -> int:
    """Rows that a task writes: whole units, about a canonical block."""
    unit = unit_rows(path)
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
