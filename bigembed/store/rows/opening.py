"""Arrays of any kind opened lazily: stored ones complete or refused, each block read only as it is computed."""

from __future__ import annotations

from dataclasses import dataclass
from math import prod
from typing import TYPE_CHECKING, Any

import numpy as np

from bigembed.blocks.rows import Array, block_rows
from bigembed.errors import BigembedError, DamagedError, InputError, InputTypeError, MissingPathError
from bigembed.store.arrays.io import read_part, refuse_unsealed, whole, zarr_array
from bigembed.store.arrays.npy import npy_rows
from bigembed.store.published import manifest as manifests
from bigembed.store.published.superseded import refuse_superseded
from bigembed.store.rows.given import maybe_masked
from bigembed.store.storage.claims import CHUNKS, refuse_unpacked, require_files
from bigembed.store.storage.objects import ObjectPath
from bigembed.store.storage.paths import AnyPath, PathLike, at, is_path
from bigembed.store.storage.requests import asking

if TYPE_CHECKING:
    import dask.array as da


def missing_shards(array: Any) -> int:
    """Stored objects (shards, else chunks) that are absent or empty; they would read as zeros."""
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
        array = maybe_masked(source, "the array")
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
    place = at(path)
    if not place.exists():
        raise MissingPathError(
            f"{place}: no such path. Give the path of a Zarr array; relative paths of a job file start at the job file"
        )
    refuse_damaged(place)
    try:
        with asking(place):
            require_files(place)
            array = zarr_array(place)
            refuse_unsealed(place)
            refuse_unpacked(place, "chunks", array.chunks, np.dtype(array.dtype).itemsize)
            missing = missing_shards(array)
    except BigembedError:
        raise
    except Exception as error:
        raise InputError(
            f"{place}: not a Zarr array ({error}). A group needs the array's own path in it, for "
            "example points.zarr/rows; bigembed ingest copies other formats"
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
            return np.asarray(npy_rows(self.path)[index]) if self.path.endswith(".npy") else read_part(self.path, index)


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
