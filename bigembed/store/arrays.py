"""Zarr arrays that never lose data silently, and files of NumPy read by rows."""

from __future__ import annotations

import os
import warnings
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import lru_cache
from io import BytesIO
from math import prod
from threading import Lock
from typing import Any

import numpy as np

from bigembed.errors import BigembedError, DamagedError, InputError, MissingPathError
from bigembed.runtime import once, reads, writes
from bigembed.runtime.blocks import Array, Starts, by_owner
from bigembed.store import PathLike, at, is_url, no_such_path, replacing, stamp
from bigembed.store.chunks import RowChunks, checksummed, row_chunks
from bigembed.store.files import is_exhausted, read_json, require_regular
from bigembed.store.metadata import put_metadata, refuse_codecs, sealed_checksums, simple, write_whole, written_whole
from bigembed.store.objects import ObjectPath
from bigembed.store.requests import asking

# -------------------------------------------------------------------------------------------------------------- io
# Zarr arrays that never lose data silently.
#
# Every array is written with a CRC-32C behind each chunk, every chunk is written (also an empty one), one task writes
# whole shards, and an array is complete or refused: a missing chunk would otherwise read as zeros.

_OPENING = Lock()
METADATA = ("zarr.json", ".zarray")
"""Of an array: of Zarr format 3, of format 2."""
KEPT_OPEN = 512
"""Arrays that a process holds open at the most: their metadata, that is."""
CHUNK_BYTES = 256 << 10
"""Inner chunk of a block array: the unit of a partial read."""


@writes
def write_array(path: PathLike, array: Array, *, chunk_rows: int | None = None) -> None:
    """Write one whole array: one shard of checksummed chunks. An existing one is replaced."""
    array = np.asarray(array)
    rows = max(1, array.shape[0]) if array.ndim else 1
    row_bytes = max(1, array.nbytes // rows)
    inner = min(rows, chunk_rows or max(1, CHUNK_BYTES // row_bytes))
    inner = -(-rows // -(-rows // inner))  # (all about as long: the last one is filled up to the length of the others)
    if array.size == 0:
        inner = rows
    tail = tuple(max(1, length) for length in array.shape[1:])
    shard = -(-rows // inner) * inner
    place = at(path)
    if simple(array.dtype, array.ndim) and not isinstance(place, ObjectPath):
        _keep(place, write_whole(place, array, inner, shard))
        return
    from zarr.codecs import Crc32cCodec

    target = make_array(
        path,
        shape=array.shape,
        dtype=array.dtype,
        chunks=(inner, *tail) if array.ndim else (),
        shards=(shard, *tail) if array.ndim and shard > inner else None,
        compressors=[Crc32cCodec()],
        fill_value=0,
        overwrite=True,
    )
    if array.size:
        with asking(path):
            target[...] = array


def create_rows(
    path: PathLike,
    shape: tuple[int, ...],
    dtype: Any,
    shard_rows: int,
    *,
    overwrite: bool = False,
    compress: bool = True,
) -> None:
    """Create an array to be filled by tasks that each write whole shards of ``shard_rows`` rows.

    ``compress=False`` for what is read many times and does not compress.
    """
    row_bytes = max(1, int(np.prod(shape[1:])) * np.dtype(dtype).itemsize)
    inner = max(1, min(shard_rows, (4 * CHUNK_BYTES) // row_bytes))
    shard = -(-shard_rows // inner) * inner
    if shard != shard_rows:
        inner = shard = shard_rows
    from zarr.codecs import BloscCodec, Crc32cCodec

    def create() -> None:
        make_array(
            path,
            shape=shape,
            dtype=dtype,
            chunks=(inner, *shape[1:]),
            shards=(shard, *shape[1:]) if shard > inner else None,
            compressors=[*([BloscCodec(cname="zstd", clevel=1)] if compress else []), Crc32cCodec()],
            fill_value=0,
            overwrite=overwrite,
        )

    once(create)


@writes
def write_rows(path: PathLike, start: int, rows: Array) -> None:
    """Write rows from ``start``: whole shards of an array that :func:`create_rows` made."""
    with asking(path):
        _to_write(path)[start : start + len(rows)] = rows


@reads
def read_array(path: PathLike, start: int = 0, stop: int | None = None) -> Array:
    """Rows ``start:stop`` of a stored array, checksums verified; :class:`DamagedError` if they fail."""
    with reading(path, f"rows {start}:{stop}"):
        array, chunks, proof = _opened(path)
        if chunks is not None:
            return chunks.read(*slice(start, stop).indices(array.shape[0])[:2])
        if proof is not None:
            proof.prove(*slice(start, stop).indices(array.shape[0])[:2])
        return np.asarray(array[start:stop] if array.ndim else array[...])


@reads
def read_rows(path: PathLike, rows: Array) -> Array:
    """The given rows of a stored array, in any order, repeated ones too; only the chunks that hold them are read."""
    wanted, place = np.unique(rows, return_inverse=True)
    with reading(path, f"{len(wanted)} rows"):
        array, chunks, proof = _opened(path)
        if not len(wanted):
            return np.empty((0, *array.shape[1:]), array.dtype)
        if proof is not None:
            proof.prove(int(wanted[0]), int(wanted[-1]) + 1)
        return np.asarray(array.oindex[wanted] if chunks is None else chunks.take(wanted))[place]


@reads
def read_by_id(path: PathLike, starts: Starts, ids: Array) -> Array:
    """Rows by id of what is stored block by block under ``path/b``, blocks that begin at ``starts``."""
    parts = [(place, read_rows(f"{path}/{b}", rows)) for b, place, rows in by_owner(starts, ids)]
    if not parts:
        return read_rows(f"{path}/0", ids)
    out = np.empty((len(ids), *parts[0][1].shape[1:]), parts[0][1].dtype)
    for place, values in parts:
        out[place] = values
    return out


@reads
def read_part(path: PathLike, index: Any) -> Array:
    """Any part of a stored array, as NumPy would index it; as :func:`read_array`."""
    rows, *columns = index if isinstance(index, tuple) else (index,)
    if isinstance(rows, slice) and rows.step in (None, 1):
        return np.asarray(read_array(path, rows.start or 0, rows.stop)[(slice(None), *columns)])
    array, chunks, proof = _open_cached(*_stamped(path))
    if (sealed := chunks or proof) is not None:
        sealed.prove(0, array.shape[0])
    return np.asarray(array[index])


@reads
def read_window(path: PathLike, rows: tuple[int, int], columns: tuple[int, int]) -> Array:
    """Rows and columns, each from the first to one before the last, of a stored array; as :func:`read_array`."""
    with reading(path, f"rows {rows}, columns {columns}"):
        array, chunks, _ = _opened(path)
        if chunks is not None:
            return chunks.read(*slice(*rows).indices(array.shape[0])[:2])[:, slice(*columns)].copy()
        return np.asarray(array[slice(*rows), slice(*columns)])


@contextmanager
def reading(path: PathLike, what: str) -> Iterator[None]:
    """What cannot be read inside is damaged; other errors of bigembed, and exhausted resources, stay what they are."""
    try:
        with asking(path):
            yield
    except BigembedError:
        raise
    except MemoryError:
        raise
    except Exception as error:  # (zarr reads damaged metadata into errors of any kind)
        if is_exhausted(error):
            if not isinstance(error, RuntimeError):
                raise
            raise MemoryError(f"{path}: {what}: {error}; memory or processes are used up") from error
        raise DamagedError(f"{path}: {what} cannot be read: {error}") from error


def create_grid(path: PathLike, shape: tuple[int, int], dtype: Any, chunks: tuple[int, int]) -> None:
    """Create an array to be filled chunk by chunk with :func:`write_window`; not compressed, but checksummed."""
    from zarr.codecs import Crc32cCodec

    layout: dict[str, Any] = {"shape": shape, "dtype": dtype, "chunks": chunks, "compressors": [Crc32cCodec()]}

    def create() -> None:
        make_array(path, fill_value=0, overwrite=True, **layout)

    once(create)


@writes
def write_window(path: PathLike, row: int, column: int, values: Array) -> None:
    """Write whole chunks of an array that :func:`create_grid` made, from that row and column on."""
    with asking(path):
        _to_write(path)[row : row + values.shape[0], column : column + values.shape[1]] = values


def make_array(path: PathLike, *, overwrite: bool, **layout: Any) -> Any:
    """A new zarr array that writes every chunk, empty ones too.

    In an object store its metadata are put there as they are: zarr would make every folder above it a group.
    """
    import zarr

    place = at(path)
    if not isinstance(place, ObjectPath):
        return zarr.create_array(str(place), overwrite=overwrite, config={"write_empty_chunks": True}, **layout)
    if overwrite:
        place.remove_tree()
    put_metadata(place, lambda store: zarr.create_array(store, **layout))
    return _to_write(place)


def _to_write(path: PathLike) -> Any:
    import zarr

    # Not kept in the metadata, so given at every open; and the configuration is one for all threads.
    with _OPENING, zarr.config.set({"array.write_empty_chunks": True}):
        return zarr.open_array(zarr_place(path), mode="r+", zarr_format=3)


def zarr_place(path: PathLike) -> Any:
    """What zarr opens; of an object store made here, in the process that reads or writes, and never pickled.

    Raises InputError where the metadata name a codec that is not known: see :mod:`bigembed.store.metadata`.
    """
    place = at(path)
    refuse_codecs(place)
    return place.zarr() if isinstance(place, ObjectPath) else str(place)


def zarr_array(path: PathLike) -> Any:
    """A Zarr array, opened to read as zarr does: nothing says that it is complete."""
    import zarr

    return zarr.open_array(zarr_place(path), mode="r")


def zarr_group(path: PathLike, mode: Any = "r") -> Any:
    """A Zarr group; to be written, without the summary of all metadata, which zarr does not keep up to date."""
    import zarr

    return zarr.open_group(zarr_place(path), mode=mode, use_consolidated=None if mode == "r" else False)


def consolidate(path: PathLike) -> None:
    """Write the summary of all metadata of a group anew, where it has one: readers believe it."""
    import zarr

    if zarr_group(path).metadata.consolidated_metadata is not None:
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", message="Consolidated metadata")  # (its writer chose to have it)
            zarr.consolidate_metadata(str(path))


_made: dict[tuple[str, str], RowChunks] = {}
"""The latest arrays that are as this process writes them, by path and stamp: to read their rows zarr need not be
asked."""


def _keep(path: PathLike, chunks: RowChunks) -> None:
    with _OPENING:
        while len(_made) >= KEPT_OPEN:
            _made.pop(next(iter(_made)))
        _made[_stamped(path)] = chunks


def _opened(path: PathLike) -> tuple[Any, RowChunks | None, RowChunks | None]:
    """As :func:`_open_cached`; of what is as written here, its rows stand for the array, too, which nobody asks for."""
    written = _stamped(path)
    made = _made.get(written) or _as_written(*written)
    return (made, made, None) if made is not None else _open_cached(*written)


@lru_cache(maxsize=KEPT_OPEN)
def _as_written(path: str, written: str) -> RowChunks | None:
    return None if is_url(path) else written_whole(path)


@lru_cache(maxsize=KEPT_OPEN)
def _open_cached(path: str, written: str) -> tuple[Any, RowChunks | None, RowChunks | None]:
    """The array, how its rows are read here, and what proves those of a sealed array that zarr has to read."""
    import zarr

    sealed = _sealed(path, written)
    array = zarr.open_array(zarr_place(path), mode="r")
    chunks = row_chunks(array, path, sealed)
    return array, chunks, checksummed(array, path, sealed) if chunks is None and sealed is not None else None


@lru_cache(maxsize=KEPT_OPEN)
def _sealed(path: str, written: str) -> Array | None:
    """Checksums of the chunks of an array that is sealed; :class:`DamagedError` where its metadata are others."""
    file = at(path) / METADATA[0]
    return sealed_checksums(read_json(file), path) if file.is_file() else None


def refuse_unsealed(path: PathLike) -> None:
    """:class:`DamagedError` where the metadata of a sealed array or group are not those that were sealed."""
    _sealed(*_stamped(path))


def _stamped(path: PathLike) -> tuple[str, str]:
    """The path of an array, and when its metadata were written."""
    text = str(path)
    for name in METADATA:
        with suppress(FileNotFoundError, NotADirectoryError):
            return text, stamp(f"{text}/{name}")
    raise MissingPathError(f"{path}: there is no Zarr array here")


def cached(path: PathLike) -> Any:
    """The zarr array at a path, opened once until it is written anew."""
    return _open_cached(*_stamped(path))[0]


# ------------------------------------------------------------------------------------------------------------- npy
# Files of NumPy (.npy), read by rows: mapped into memory, or by ranges where they lie in an object store.

_PARSING = Lock()
"""NumPy parses a header as an expression of Python, which threads of CPython before 3.12.1 may not do at once."""


@dataclass(frozen=True)
class RemoteNpy:
    """Rows of a .npy object in C order; only the bytes asked for are fetched."""

    path: ObjectPath
    shape: tuple[int, ...]
    dtype: np.dtype[Any]
    head: int
    """Bytes before the first row."""

    @property
    def ndim(self) -> int:
        return len(self.shape)

    def __len__(self) -> int:
        return self.shape[0]

    def __getitem__(self, index: Any) -> Array:
        rows, *rest = index if isinstance(index, tuple) else (index,)
        start, stop, step = rows.indices(self.shape[0])
        row = int(np.prod(self.shape[1:])) * self.dtype.itemsize
        out = np.empty((max(0, stop - start), *self.shape[1:]), self.dtype)
        if out.size:
            with self.path.open("rb") as file:
                file.seek(self.head + start * row)
                if file.readinto(out.reshape(-1).view(np.uint8).data) != out.nbytes:
                    raise DamagedError(f"{self.path}: ends before row {stop}")
        return out[(slice(None, None, step), *rest)]


def npy_rows(path: PathLike) -> Any:
    """The array of a .npy file, read where it is indexed: by slices of rows (and columns)."""
    place = at(path)
    require_regular(place)
    try:
        if isinstance(place, ObjectPath):
            return _remote(place, stamp(place))
        with _PARSING:
            found = np.load(place, mmap_mode="r", allow_pickle=False)
        if not isinstance(found, np.ndarray):
            raise ValueError("an archive of several arrays, not one")
        return found
    except FileNotFoundError as error:
        raise MissingPathError(no_such_path(place, "file")) from error
    except (BigembedError, PermissionError):
        raise
    except Exception as error:  # (its header is an expression of Python, which may be wrong in any way)
        raise InputError(f"{place}: not readable as .npy ({_unread(error)}). It must hold numbers") from error


def _unread(error: Exception) -> str:
    """Return why NumPy does not read a file, without its advice to unpickle what is no .npy file."""
    return "it does not begin as such a file does" if "can load it unsafely" in str(error) else str(error)


@writes
def write_npy(path: PathLike, array: Array) -> None:
    """Write a .npy file, whole at once."""
    place = at(path)
    if isinstance(place, ObjectPath):
        buffer = BytesIO()
        np.save(buffer, array, allow_pickle=False)
        place.write_bytes(buffer.getbuffer())
        return
    place.parent.mkdir(parents=True, exist_ok=True)
    with replacing(place, f".{os.getpid()}-{place.name}") as partial:
        np.save(partial, array, allow_pickle=False)


@lru_cache(maxsize=64)
def _remote(path: ObjectPath, stamp: str) -> RemoteNpy:
    with path.open("rb") as file:
        version = np.lib.format.read_magic(file)
        read = np.lib.format.read_array_header_1_0 if version == (1, 0) else np.lib.format.read_array_header_2_0
        shape, fortran, dtype = read(file)
        if dtype.hasobject:
            raise ValueError("it holds objects")
        if fortran and len(shape) > 1:
            raise InputError(f"{path}: stored by columns (Fortran order). Save it by rows, or ingest a local copy")
        size, head = path.stat().st_size, file.tell()
        if size < head + prod(shape) * dtype.itemsize:
            raise ValueError("it is shorter than its header says")
        return RemoteNpy(path, tuple(shape), dtype, head)
