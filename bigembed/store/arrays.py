"""Zarr arrays that never lose data silently, and rows of any input.

Every array is written with a CRC-32C behind each chunk, every chunk is written (also an empty
one), one task writes whole shards, and an array is complete or refused: a missing chunk would
otherwise read as zeros.
"""

from __future__ import annotations

import errno
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import lru_cache
from math import prod
from threading import Lock
from typing import TYPE_CHECKING, Any

import numpy as np

from bigembed.blocks.owners import Starts, by_owner
from bigembed.blocks.rows import Array, block_rows
from bigembed.errors import BigembedError, DamagedError, InputError, InputTypeError, MissingPathError
from bigembed.store import manifest as manifests
from bigembed.store.chunks import RowChunks, checksummed, row_chunks
from bigembed.store.claims import CHUNKS, refuse_unpacked, require_files
from bigembed.store.codecs import refuse_codecs
from bigembed.store.documents import read_json
from bigembed.store.groups import put_metadata
from bigembed.store.npy import npy_rows
from bigembed.store.objects import ObjectPath, asking
from bigembed.store.paths import AnyPath, PathLike, at, is_path, stamp
from bigembed.store.seal import unsealed

if TYPE_CHECKING:
    import dask.array as da

_OPENING = Lock()
METADATA = ("zarr.json", ".zarray")
"""Of an array: of Zarr format 3, of format 2."""
CHUNK_BYTES = 256 << 10
"""Inner chunk of a block array: the unit of a partial read."""


def write_array(path: PathLike, array: Array, *, chunk_rows: int | None = None) -> None:
    """Write one whole array: one shard of checksummed chunks. An existing one is replaced."""
    from zarr.codecs import Crc32cCodec

    array = np.asarray(array)
    rows = max(1, array.shape[0]) if array.ndim else 1
    row_bytes = max(1, array.nbytes // rows)
    inner = min(rows, chunk_rows or max(1, CHUNK_BYTES // row_bytes))
    if array.size == 0:
        inner = rows
    tail = tuple(max(1, length) for length in array.shape[1:])
    shard = -(-rows // inner) * inner
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
    from zarr.codecs import BloscCodec, Crc32cCodec

    row_bytes = max(1, int(np.prod(shape[1:])) * np.dtype(dtype).itemsize)
    inner = max(1, min(shard_rows, (4 * CHUNK_BYTES) // row_bytes))
    shard = -(-shard_rows // inner) * inner
    if shard != shard_rows:
        inner = shard = shard_rows
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


def write_rows(path: PathLike, start: int, rows: Array) -> None:
    """Write rows from ``start``: whole shards of an array that :func:`create_rows` made."""
    with asking(path):
        _to_write(path)[start : start + len(rows)] = rows


def read_array(path: PathLike, start: int = 0, stop: int | None = None) -> Array:
    """Rows ``start:stop`` of a stored array, checksums verified; :class:`DamagedError` if they fail."""
    with whole(path, f"rows {start}:{stop}"):
        array, chunks, proof = _open_cached(*_stamped(path))
        if chunks is not None:
            return chunks.read(*slice(start, stop).indices(array.shape[0])[:2])
        if proof is not None:
            proof.prove(*slice(start, stop).indices(array.shape[0])[:2])
        return np.asarray(array[start:stop] if array.ndim else array[...])


def read_rows(path: PathLike, rows: Array) -> Array:
    """The given rows of a stored array, in any order, repeated ones too; only the chunks that hold them are read."""
    wanted, place = np.unique(rows, return_inverse=True)
    with whole(path, f"{len(wanted)} rows"):
        array, chunks, proof = _open_cached(*_stamped(path))
        if not len(wanted):
            return np.empty((0, *array.shape[1:]), array.dtype)
        if proof is not None:
            proof.prove(int(wanted[0]), int(wanted[-1]) + 1)
        return np.asarray(array.oindex[wanted] if chunks is None else chunks.take(wanted))[place]


def read_by_id(path: PathLike, starts: Starts, ids: Array) -> Array:
    """Rows by id of what is stored block by block under ``path/b``, blocks that begin at ``starts``."""
    parts = [(place, read_rows(f"{path}/{b}", rows)) for b, place, rows in by_owner(starts, ids)]
    if not parts:
        return read_rows(f"{path}/0", ids)
    out = np.empty((len(ids), *parts[0][1].shape[1:]), parts[0][1].dtype)
    for place, values in parts:
        out[place] = values
    return out


def read_window(path: PathLike, rows: tuple[int, int], columns: tuple[int, int]) -> Array:
    """Rows and columns, each from the first to one before the last, of a stored array; as :func:`read_array`."""
    with whole(path, f"rows {rows}, columns {columns}"):
        array, chunks, _ = _open_cached(*_stamped(path))
        if chunks is not None:
            return chunks.read(*slice(*rows).indices(array.shape[0])[:2])[:, slice(*columns)].copy()
        return np.asarray(array[slice(*rows), slice(*columns)])


EXHAUSTED = (errno.ENOMEM, errno.EAGAIN, errno.EMFILE, errno.ENFILE)
"""Numbers of errors that say nothing of a file: memory, processes or open files are used up."""


@contextmanager
def whole(path: PathLike, what: str) -> Iterator[None]:
    """What cannot be read inside is damaged; other errors of bigembed, and a lack of means, stay what they are."""
    try:
        with asking(path):
            yield
    except BigembedError:
        raise
    except MemoryError:
        raise
    except Exception as error:  # (zarr reads damaged metadata into errors of any kind)
        if isinstance(error, OSError) and error.errno in EXHAUSTED:
            raise
        if isinstance(error, RuntimeError) and "can't start new thread" in str(error):
            raise MemoryError(f"{path}: {what}: {error}; memory or processes are used up") from error
        raise DamagedError(f"{path}: {what} cannot be read: {error}") from error


def create_grid(path: PathLike, shape: tuple[int, int], dtype: Any, chunks: tuple[int, int]) -> None:
    """Create an array to be filled chunk by chunk with :func:`write_window`; not compressed, but checksummed."""
    from zarr.codecs import Crc32cCodec

    make_array(
        path,
        shape=shape,
        dtype=dtype,
        chunks=chunks,
        compressors=[Crc32cCodec()],
        fill_value=0,
        overwrite=True,
    )


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

    Raises InputError where the metadata name a codec that is not known: see :mod:`bigembed.store.codecs`.
    """
    place = at(path)
    refuse_codecs(place)
    return place.zarr() if isinstance(place, ObjectPath) else str(place)


@lru_cache(maxsize=512)
def _open_cached(path: str, written: str) -> tuple[Any, RowChunks | None, RowChunks | None]:
    """The array, how its rows are read here, and what proves those of a sealed array that zarr has to read."""
    import zarr

    sealed = _sealed(path, written)
    array = zarr.open_array(zarr_place(path), mode="r")
    chunks = row_chunks(array, path, sealed)
    return array, chunks, checksummed(array, path, sealed) if chunks is None and sealed is not None else None


@lru_cache(maxsize=512)
def _sealed(path: str, written: str) -> Array | None:
    """Checksums of the chunks of an array that is sealed; :class:`DamagedError` where its metadata are others."""
    file = at(path) / METADATA[0]
    return unsealed(read_json(file), path) if file.is_file() else None


def refuse_unsealed(path: PathLike) -> None:
    """:class:`DamagedError` where the metadata of a sealed array or group are not those that were sealed."""
    _sealed(*_stamped(path))


def _stamped(path: PathLike) -> tuple[str, str]:
    """The path of an array, and when its metadata were written."""
    for name in METADATA:
        with suppress(FileNotFoundError, NotADirectoryError):
            return str(path), stamp(at(path) / name)
    raise MissingPathError(f"{path}: there is no Zarr array here")


def cached(path: PathLike) -> Any:
    """The zarr array at a path, opened once until it is written anew."""
    return _open_cached(*_stamped(path))[0]


def missing_shards(array: Any) -> int:
    """Stored objects (shards, or chunks where there are none) that are absent or empty; they would read as zeros."""
    if array.size == 0:
        return 0
    unit = array.shards or array.chunks
    expected: int = prod(-(-n // c) for n, c in zip(array.shape, unit, strict=True))
    if expected > CHUNKS and expected > (there := int(array.nbytes_stored())):
        return expected - there  # (not one byte for each: their names need not be listed)
    per_unit: int = prod(u // c for u, c in zip(unit, array.chunks, strict=True))
    return expected - int(array.nchunks_initialized) // per_unit


def open_array(source: Any) -> da.Array:
    """Rows as a lazy Dask array (n, d): from a path of a Zarr array or .npy, or an array of any kind.

    Parameters
    ----------
    source : path of a Zarr array or .npy, or a zarr, Dask, xarray, h5py or NumPy array.

    Returns
    -------
    A Dask array whose chunks are the shards (or chunks) of the source; a Dask array is returned as it is.

    Raises
    ------
    MissingPathError : no such path.
    InputError : not an array, or a Zarr array with missing chunks (they would read as fill values).
    StaleError : an array of a run that has begun anew with other parameters.

    Notes
    -----
    Nothing is read before it is computed; memory: that of the chunks that are then read.

    Examples
    --------
    >>> import numpy as np
    >>> open_array(np.zeros((4, 2))).shape
    (4, 2)
    """
    import dask.array as da

    if isinstance(source, da.Array):
        return source
    if type(source).__module__.startswith("xarray.") and hasattr(source, "variable") and not source.variable._in_memory:
        return open_array(source.data if source.chunks is not None else chunked(source).data)
    if type(source).__module__.startswith("h5py.") and hasattr(source, "chunks"):
        return da.from_array(source, chunks=_block_of(source))  # type: ignore[no-any-return]
    if is_path(source):
        from bigembed.store.superseded import refuse_superseded

        place = at(source)
        refuse_superseded(place.absolute())
        source = npy_rows(place) if place.suffix == ".npy" else open_zarr(place)
        if isinstance(place, ObjectPath):
            source = StoredRows(source.shape, source.dtype, str(place), getattr(source, "shards", None))
        elif is_zarr(source):
            source = StoredRows(source.shape, source.dtype, str(place), source.shards or source.chunks)
    lazy: da.Array
    if is_zarr(source):
        lazy = da.from_zarr(source, chunks=source.shards or source.chunks)
    elif isinstance(source, StoredRows):
        lazy = da.from_array(source, chunks=source.chunks, name=False, asarray=False, fancy=False)
    else:
        array = np.asanyarray(source)
        if not array.ndim or array.dtype == object:
            raise InputTypeError(f"{type(source).__name__}: not an array of numbers; give a path or an array")
        lazy = da.from_array(array)
    return lazy


def _block_of(source: Any) -> tuple[int, ...]:
    """Chunks of whole rows, each about a canonical block."""
    rows = block_rows(int(np.prod(source.shape[1:])), source.dtype.itemsize)
    return (max(1, min(rows, source.shape[0])), *map(int, source.shape[1:]))


def chunked(source: Any) -> Any:
    """An xarray array that is not in memory, in Dask chunks."""
    return source.chunk(dict(zip(source.dims, _block_of(source), strict=True)))


def open_zarr(path: PathLike) -> Any:
    """A zarr array, opened to read, after a completeness check."""
    import zarr

    place = at(path)
    if not place.exists():
        raise MissingPathError(
            f"{place}: no such path. Give the path of a Zarr array; relative paths of a job file start at the job file"
        )
    refuse_damaged(place)
    try:
        with asking(place):
            require_files(place)
            array = zarr.open_array(zarr_place(place), mode="r")
            refuse_unsealed(place)
            refuse_unpacked(place, "chunks", array.chunks, np.dtype(array.dtype).itemsize)
            missing = missing_shards(array)
    except BigembedError:
        raise
    except Exception as error:
        raise InputError(
            f"{place}: not a Zarr array ({error}). A group needs the array's own path in it, for "
            "example points.zarr/rows"
        ) from error
    if missing:
        raise DamagedError(
            f"{place}: {missing:,} chunks are missing and would read as fill values; the array was not "
            "written to its end. Write it again (write_empty_chunks=True), or ingest it again"
        )
    return array


@dataclass(frozen=True)
class StoredRows:
    """A stored array as Dask takes it: its path goes to the workers, nothing else; damage is :class:`DamagedError`."""

    shape: tuple[int, ...]
    dtype: np.dtype[Any]
    path: str
    stored: tuple[int, ...] | None = None
    """Shape of what is stored together."""

    @property
    def ndim(self) -> int:
        return len(self.shape)

    @property
    def chunks(self) -> tuple[int, ...]:
        rows = block_rows(int(np.prod(self.shape[1:])), self.dtype.itemsize)
        return self.stored or (max(1, min(rows, self.shape[0])), *self.shape[1:])

    def __getitem__(self, index: Any) -> Array:
        with whole(self.path, "a part"):
            if self.path.endswith(".npy"):
                return np.asarray(npy_rows(self.path)[index])
            rows, *columns = index if isinstance(index, tuple) else (index,)
            if isinstance(rows, slice) and rows.step in (None, 1):
                return read_array(self.path, *rows.indices(self.shape[0])[:2])[(slice(None), *columns)]
            array, chunks, proof = _open_cached(*_stamped(self.path))
            if (sealed := chunks or proof) is not None:
                sealed.prove(0, self.shape[0])
            return np.asarray(array[index])


def refuse_damaged(path: AnyPath) -> None:
    """:class:`DamagedError` for an array of a stage whose files, or whose inputs, are not those that were published."""
    root, stages, inside = str(path.absolute()).rpartition("/stages/")
    stage = inside.partition("/")[0]
    found = manifests.find(at(root), stage) if stages and stage else None
    if found and (problems := manifests.damage(at(root), found) or manifests.elsewhere(at(root), found)):
        raise DamagedError(f"{root}: stage {stage!r} is damaged ({problems[0]}); make it anew: run the job again")


def is_zarr(source: Any) -> bool:
    """Whether the object is a zarr array (without importing zarr for others)."""
    return type(source).__module__.split(".")[0] == "zarr" and hasattr(source, "shape")
