"""Arrays of any kind opened lazily, complete or refused, and lists of neighbors, as users hand them over."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import prod
from typing import TYPE_CHECKING, Any

import numpy as np

from bigembed.errors import BigembedError, DamagedError, InputError, InputTypeError, MissingPathError
from bigembed.rows.packing import nan_dtype, refuse_packed
from bigembed.runtime.blocks import Array, block_rows
from bigembed.store import AnyPath, PathLike, at, files, is_path, manifests, no_such_path, objects, requests, superseded
from bigembed.store.arrays import npy_rows, read_part, reading, refuse_unsealed, zarr_array

if TYPE_CHECKING:
    import dask.array as da

# ---------------------------------------------------------------------------------------------------------- masked
# Masked arrays: what lies under a mask is not data.

NAMED = 10
"""Offending rows named in an error."""


def unmasked(values: Any, start: int = 0, what: str = "rows") -> Any:
    """The values of an array that may be masked; InputError that names the rows where entries are masked.

    ``start`` numbers the first row.

    >>> unmasked(np.ma.array([[1.0, 2.0]], mask=[[False, False]])).tolist()
    [[1.0, 2.0]]
    """
    if not isinstance(values, np.ma.MaskedArray):
        return values
    mask = np.ma.getmaskarray(values)
    if mask.any():
        bad = np.flatnonzero(mask.reshape(len(mask), -1).any(axis=1)) if mask.ndim else np.zeros(1, int)
        raise InputError(
            f"{what} hold masked entries, which are not numbers: {int(mask.sum())} in {len(bad)} rows; the first are "
            f"rows {(bad[:NAMED] + start).tolist()}. Drop these rows, or fill the entries (filled; the step 'missing')"
        )
    return np.asarray(values.data)


def without_mask(values: Any) -> Any:
    """The values of an array that may be masked, or of a lazy Dask array of such, with NaN for what is masked.

    >>> without_mask(np.ma.array([[1, 2]], mask=[[False, True]])).tolist()
    [[1.0, nan]]
    """
    if hasattr(values, "dask"):
        return values.map_blocks(without_mask, dtype=values.dtype, meta=np.empty((0,) * values.ndim, values.dtype))
    if not isinstance(values, np.ma.MaskedArray):
        return values
    return np.ma.filled(values.astype(nan_dtype(values.dtype)), np.nan)


# ----------------------------------------------------------------------------------------------------------- given
# What users hand over in memory, as an array; what is none is refused by its name before NumPy takes it apart.

PROTOCOLS = ("__array__", "__array_interface__", "__array_struct__")
"""What an object has that NumPy can make an array of at once."""
HINTS = {
    "anndata": 'it holds several arrays: give the one that is meant, such as adata.X or adata.obsm["X_pca"]; of a file '
    "(.h5ad, .zarr) a job, or bigembed ingest, reads it block by block (array = 'obsm/X_pca')",
    "mudata": 'it holds several AnnData: give the array that is meant, such as mdata["rna"].obsm["X_pca"]',
    "xarray": 'it holds several variables: give the one that is meant, ds["NAME"], or those of one value a row as '
    "columns, ds.to_array().T",
    "polars": "it is a query: give what it finds, collect(), or write it (sink_parquet) and give a job the file",
    "duckdb": "it is a query: give what it finds, pl() or df(), or write it (COPY … TO 'rows.parquet') and give a job "
    "the file",
    "pyarrow": "it is a stream: give the table, read_all(), or write it as Parquet and give a job the file",
    "h5py": 'give a dataset in it, file["NAME"]; of the file a job, or bigembed ingest, reads one (array = "NAME")',
    "zarr": 'give an array in it, group["NAME"], or its path',
}
"""What to do about objects of these packages that hold arrays and are none."""
KINDS = (
    "NumPy, SciPy sparse, zarr, h5py, Dask, xarray, anything with __array__), a data frame, a list of rows or the path "
    "of a Zarr array or .npy"
)


def as_array(values: Any, what: str = "rows") -> Array:
    """An array of what is one, or can be at once; InputTypeError, InputError for anything else, and masked entries.

    >>> as_array([[1, 2]]).tolist()
    [[1, 2]]
    >>> as_array({"a": [1]})
    Traceback (most recent call last):
        ...
    bigembed.errors.InputTypeError: rows: got dict, which is no array: give one of its values
    """
    return np.asarray(unmasked(maybe_masked(values, what), what=what))


def maybe_masked(values: Any, what: str = "rows") -> Array:
    """The same, with the mask if there is one."""
    refuse_other(values, what)
    try:
        return np.asanyarray(values)
    except (TypeError, ValueError) as error:
        kind = InputTypeError if isinstance(error, TypeError) else InputError
        raise kind(f"{what}: got {type(values).__name__}, of which NumPy makes no array ({error})") from error


def refuse_other(values: Any, what: str = "rows") -> None:
    """InputTypeError for an object that is no array: NumPy would ask it for its entries one by one, for minutes."""
    several = isinstance(values, Mapping) or hasattr(values, "data_vars")
    if not several and (isinstance(values, np.generic | int | float) or any(hasattr(values, one) for one in PROTOCOLS)):
        return
    if not several and isinstance(values, Sequence | memoryview) and not isinstance(values, str | bytes):
        if len(values) and hasattr(values[0], "__len__") and not isinstance(values[0], str | bytes):
            refuse_other(values[0], what)
        return
    hint = HINTS.get(type(values).__module__.partition(".")[0])
    hint = hint or ("give one of its values" if several else f"give an array ({KINDS}")
    raise InputTypeError(f"{what}: got {type(values).__name__}, which is no array: {hint}")


# --------------------------------------------------------------------------------------------------------- opening
# Arrays of any kind opened lazily: stored ones complete or refused, each block read only as it is computed.


def missing_shards(array: Any) -> int:
    """Stored objects (shards, else chunks) that are absent or empty; they would read as zeros."""
    if array.size == 0:
        return 0
    unit = array.shards or array.chunks
    expected: int = prod(-(-n // c) for n, c in zip(array.shape, unit, strict=True))
    if expected > files.CHUNKS and expected > (there := int(array.nbytes_stored())):
        return expected - there  # (not one byte for each: their names need not be listed)
    per_unit: int = prod(u // c for u, c in zip(unit, array.chunks, strict=True))
    return expected - int(array.nchunks_initialized) // per_unit


def open_array(source: Any) -> da.Array:
    """Open rows as a lazy Dask array (n, d), from a path of a Zarr array or .npy, or from an array of any kind.

    Parameters
    ----------
    source : path or array
        The path of a Zarr array or .npy, or a zarr, Dask, xarray, h5py or NumPy array.

    Returns
    -------
    dask.array.Array
        The rows, in chunks that are the shards (or chunks) of the source; a Dask array is returned as it is.

    Raises
    ------
    MissingPathError
        If there is no such path.
    InputError
        If this is not an array, or a Zarr array with missing chunks (they would read as fill values).
    StaleError
        If the array is of a run that has begun anew with other parameters.

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
        superseded.refuse_superseded(place.absolute())
        source = npy_rows(place) if place.suffix == ".npy" else open_zarr(place)
        if is_zarr(source):
            stored = source.shards or (None if isinstance(place, objects.ObjectPath) else source.chunks)
            source = StoredRows(source.shape, source.dtype, str(place), stored)
        elif source.ndim and source.dtype != object:
            source = StoredRows(source.shape, source.dtype, str(place))
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


def open_zarr(path: PathLike, packed: bool = False) -> Any:
    """A zarr array, opened to read, after a completeness check; ``packed``: as :func:`bigembed.rows.rows_at` has it."""
    place = at(path)
    if not place.exists():
        raise MissingPathError(
            f"{no_such_path(place)}. Give the path of a Zarr array; relative paths of a job file start at the job file"
        )
    refuse_damaged(place)
    try:
        with requests.asking(place):
            files.require_files(place)
            array = zarr_array(place)
            refuse_unsealed(place)
            files.refuse_unpacked(place, "chunks", array.chunks, np.dtype(array.dtype).itemsize)
            missing = missing_shards(array)
            if not packed:
                refuse_packed(array, place)
    except BigembedError:
        raise
    except Exception as error:
        if place.is_file():
            raise InputError(
                f"{place}: not a Zarr array, which is a folder, nor .npy. Copy it (bigembed ingest {place} NEW.zarr), "
                "or give what you read of it in Python, or its path in a job file"
            ) from error
        if found := arrays_in(place):
            listed = ", ".join(f"{place}/{name}" for name in found[:NAMED]) + (", …" if len(found) > NAMED else "")
            raise InputError(
                f"{place}: a group of Zarr, not an array. Give the path of an array in it: {listed}"
            ) from error
        raise InputError(
            f"{place}: not a Zarr array ({error}). A group needs the array's own path in it, for "
            f"example points.zarr/rows; a folder of files is copied first (bigembed ingest {place} NEW.zarr)"
        ) from error
    if missing:
        raise DamagedError(
            f"{place}: {missing:,} chunks are missing and would read as fill values; the array was not "
            "written to its end. Write it again (write_empty_chunks=True), or ingest it again"
        )
    return array


def arrays_in(place: AnyPath) -> list[str]:
    """Names of the arrays that a group of Zarr has; none of what is no group, nor in an object store."""
    if isinstance(place, objects.ObjectPath) or not place.is_dir():
        return []
    return sorted(one.name for one in place.iterdir() if (one / "zarr.json").is_file() or (one / ".zarray").is_file())


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
        with reading(self.path, "a part"):
            return np.asarray(npy_rows(self.path)[index]) if self.path.endswith(".npy") else read_part(self.path, index)


def refuse_damaged(path: AnyPath) -> None:
    """:class:`DamagedError` for an array of a stage whose files, or whose inputs, are not those that were published."""
    root, stages, inside = str(path.absolute()).rpartition("/stages/")
    stage = inside.partition("/")[0]
    found = manifests.find(at(root), stage) if stages and stage else None
    if found and (problems := manifests.damage(at(root), found) or manifests.changed_inputs(at(root), found)):
        raise DamagedError(f"{root}: stage {stage!r} is damaged ({problems[0]}); make it anew: run the job again")


def is_zarr(source: Any) -> bool:
    """Whether the object is a zarr array (without importing zarr for others)."""
    return type(source).__module__.split(".")[0] == "zarr" and hasattr(source, "shape")


# ------------------------------------------------------------------------------------------------ lists of neighbors
# Lists of neighbors as other libraries hand them over, and the lengths that their values stand for.


@dataclass(frozen=True)
class FoundLists:
    """Neighbors of each row and what they were found by: an index of pynndescent, its graph, or umap's tuple."""

    indices: Any
    distances: Any
    metric: str = ""
    """What the index calls its metric, where there is one and it has a name."""

    @property
    def measured(self) -> str:
        """The metric whose values are to be made lengths, or nothing."""
        return self.metric if self.metric in MEASURED else ""


def found_lists(source: Any) -> FoundLists | None:
    """Return the lists that an object holds; None where it is not of a kind that holds lists.

    It may be a pynndescent index or anything with a ``neighbor_graph``, that pair ``(indices, distances)`` itself, or
    umap's ``precomputed_knn``, which has the index as its third part, or None.
    """
    if not isinstance(source, tuple) and isinstance(found := getattr(source, "neighbor_graph", None), tuple):
        metric = getattr(source, "metric", "")
        return FoundLists(found[0], found[1], metric if isinstance(metric, str) else "")
    if not isinstance(source, tuple) or len(source) not in (2, 3) or not _are_lists(*source[:2]):
        return None
    metric = getattr(source[2], "metric", "") if len(source) == 3 else ""
    return FoundLists(source[0], source[1], metric if isinstance(metric, str) else "")


def _are_lists(indices: Any, distances: Any) -> bool:
    """Tell whether two arrays of one shape (n, k) hold numbers of rows and distances."""
    shapes = [getattr(one, "shape", ()) for one in (indices, distances)]
    kinds = [np.dtype(getattr(one, "dtype", object)).kind for one in (indices, distances)]
    return len(shapes[0]) == 2 and shapes[0] == shapes[1] and kinds[0] in "iu" and kinds[1] == "f"


ROUNDING = 1e-5
"""Values of 1 − cos above −this are 0."""
CHORDS = ("cosine", "correlation", "dot", "direct_cosine", "spearmanr")
"""Metrics that others measure as 1 − cos θ, and bigembed by the chord of the same angle."""
ROOTS = ("sqeuclidean", "jensen_shannon", "jensen-shannon")
"""Metrics that others measure as the square of what bigembed measures."""
MEASURED = (*CHORDS, *ROOTS, "haversine")
"""Metrics whose values others have in another form than bigembed."""


def lengths_of(values: Array, metric: str) -> Array:
    """Lengths of edges from the values that other libraries have of a metric: those of bigembed's metric of that name.

    Of 1 − cos θ the chord √(2 (1 − cos θ)), of the angle of two points of the sphere the chord 2 sin(θ/2), of squares
    their root. Values below 0 but for rounding become NaN, which the graph refuses.

    >>> lengths_of(np.array([0.0, 0.5, 2.0]), "cosine").tolist()
    [0.0, 1.0, 2.0]
    """
    if metric not in MEASURED:
        return values
    wide = np.asarray(values, np.float64)
    with np.errstate(invalid="ignore"):
        if metric == "haversine":
            return np.where(wide < 0, np.nan, 2 * np.sin(wide / 2))
        wide = np.where((wide < 0) & (wide > -ROUNDING), 0.0, wide)
        return np.asarray(np.sqrt(2 * wide if metric in CHORDS else wide))


def values_of(lengths: Array, metric: Any) -> Array:
    """Values as other libraries have them, of lengths by bigembed's metric of that name: 1 − cos θ of a chord, or θ.

    >>> values_of(np.array([0.0, 1.0, 2.0]), "cosine").tolist()
    [0.0, 0.5, 2.0]
    """
    if isinstance(metric, str) and metric == "haversine":
        return np.asarray(2 * np.arcsin(np.minimum(lengths / 2, 1.0)))
    return lengths**2 / 2 if isinstance(metric, str) and metric in CHORDS else lengths


def checked_measure(metric: Any) -> str:
    """The name of a metric whose values are to be made lengths, or empty; InputError for another one."""
    if metric is None or metric in MEASURED:
        return metric or ""
    raise InputError(
        f"open_graph: metric={metric!r}; allowed: {', '.join(map(repr, MEASURED))}, whose values others have in "
        "another form. Distances of other metrics are lengths already: leave metric out"
    )
