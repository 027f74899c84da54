"""Rows of any kind as a source that block tasks can read."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np

from bigembed.blocks.rows import Array, remote
from bigembed.errors import InputError, InputTypeError
from bigembed.store.arrays.npy import write_npy
from bigembed.store.formats.copying import write_dask
from bigembed.store.formats.idx import is_idx, read_idx
from bigembed.store.inputs.recognized import Window, place_of, window_of
from bigembed.store.inputs.streamed import StreamedRows, hdf5_source, is_persisted
from bigembed.store.rows.columns import columns_of, is_frame, lazy_numbers, numbers_of
from bigembed.store.rows.given import as_array
from bigembed.store.rows.masked import nan_dtype, without_mask
from bigembed.store.rows.opening import chunked, is_zarr, open_array
from bigembed.store.rows.source import RowSource, rows_at, work_dtype
from bigembed.store.rows.sparse import dask_source, group_source, held_source, is_csr_group, stored
from bigembed.store.storage.paths import AnyPath, at, is_path


def row_source(
    X: Any, scratch: AnyPath, name: str = "input", sparse: bool = False, missing: bool = False
) -> tuple[RowSource, bool]:
    """Rows of any kind as something a block task can read; and whether it came as an array of this process.

    Paths, zarr arrays, datasets of HDF5 and Dask or xarray arrays that are windows of stored ones are read where they
    lie; other Dask arrays are computed by the tasks that read them (:class:`StreamedRows`). NumPy arrays are first
    written into ``scratch`` when tasks run in other processes. ``sparse``: whether sparse rows can be used.
    ``missing``: whether masked entries come as NaN; they are refused otherwise.
    """
    if isinstance(X, RowSource):
        return X, False
    if is_path(X):
        return _path_source(at(X), sparse), False
    if is_zarr(X):
        place = place_of(X)
        return (_path_source(place, sparse) if place is not None else _lazy_source(open_array(X))), False
    if type(X).__module__.startswith("xarray.") and hasattr(X, "variable") and not X.variable._in_memory:
        return _xarray_source(X, scratch, name, sparse, missing), False
    if type(X).__module__.startswith("h5py.") and hasattr(X, "chunks"):
        return hdf5_source(X), False
    if type(X).__module__.startswith("dask.") and hasattr(X, "dask"):
        return _dask_source(X, scratch, name, sparse, missing), False
    if sparse and _is_sparse(X):
        held = held_source(X)
        return (stored(held, scratch / f"{name}-csr") if remote() else held), True
    array = _numpy(without_mask(X) if missing else X)
    if not remote():
        return RowSource(array.shape, array.dtype, array=array), True
    path = scratch / f"{name}.npy"
    write_npy(path, array)
    return RowSource(array.shape, array.dtype, path=str(path)), True


def in_memory(X: Any) -> bool:
    """Whether rows lie in this process: neither a path nor a source, nor a zarr or Dask array."""
    return not (is_path(X) or isinstance(X, RowSource) or is_zarr(X) or hasattr(X, "dask"))


def column_source(values: Any, n: int, scratch: AnyPath, name: str) -> RowSource:
    """A vector that belongs to ``n`` rows (weights, labels): an array of any kind, its path, a source."""
    if isinstance(values, RowSource):
        source = values
    elif is_path(values) and is_idx(values):
        return column_source(read_idx(str(values)), n, scratch, name)
    elif is_path(values):
        source = _path_source(at(values), numbers=name not in ("labels", "ids"))
    elif is_zarr(values):
        source, _ = row_source(values, scratch, name)
    else:
        if hasattr(values, "dask"):
            values = values.compute()
        array = as_array(values, name)
        if not remote() or array.dtype == object:
            source = RowSource(array.shape, array.dtype, array=array)
        else:
            path = scratch / f"{name}.npy"
            write_npy(path, array)
            source = RowSource(array.shape, array.dtype, path=str(path))
    if source.shape != (n,):
        raise InputError(f"{name} have shape {source.shape}; one number a row is needed, so shape ({n},)")
    return source


def _path_source(path: AnyPath, sparse: bool = False, numbers: bool = True) -> RowSource:
    path = path.absolute()
    if is_csr_group(path):
        if not sparse:
            raise InputTypeError(f"{path}: a group of sparse rows, which this method does not take. Give a dense array")
        return group_source(path)
    source = rows_at(path)
    if numbers:
        work_dtype(source.dtype)
    return source


def _xarray_source(X: Any, scratch: AnyPath, name: str, sparse: bool, missing: bool) -> RowSource:
    """Rows of an xarray array that is not in memory."""
    if X.chunks is None and (window := window_of(X)) is not None:
        return _window_source(window)
    return _dask_source(X.data if X.chunks is not None else chunked(X).data, scratch, name, sparse, missing)


def _window_source(window: Window) -> RowSource:
    """The rows that a window of a stored array shows."""
    whole = _path_source(window.path)
    (start, _), columns = window.spans
    shown = None if columns == (0, whole.width) else columns
    return replace(whole, shape=window.shape, offset=start, columns=shown)


def _lazy_source(X: Any, missing: bool = False) -> RowSource:
    """The rows of a Dask array of dense blocks."""
    work_dtype(X.dtype)
    if missing and X.dtype.kind != "f" and isinstance(X._meta, np.ma.MaskedArray):
        X = X.astype(nan_dtype(X.dtype))
    return StreamedRows(tuple(map(int, X.shape)), np.dtype(X.dtype), lazy=without_mask(X) if missing else X)


def _dask_source(X: Any, scratch: AnyPath, name: str, sparse: bool, missing: bool) -> RowSource:
    if hasattr(X, "to_dask_array"):
        X = (lazy_numbers(X) if X.ndim == 2 else X).to_dask_array(lengths=True)
    if any(np.isnan(length) for length in X.shape):
        X = X.copy().compute_chunk_sizes()  # (a copy, for it sets them in place)
    path = scratch / f"{name}-{X.name}.zarr"
    if _is_sparse(getattr(X, "_meta", None)):
        if not sparse:
            raise InputTypeError("a Dask array of sparse blocks was passed, and this method takes dense rows only")
        return dask_source(X, path)
    if (window := window_of(X)) is not None:
        return _window_source(window)
    if remote() and is_persisted(X):  # (what lies on a cluster cannot be asked for inside of a task)
        write_dask(without_mask(X) if missing else X, path)
        return RowSource(tuple(X.shape), np.dtype(X.dtype), path=str(path))
    return _lazy_source(X, missing)


def _numpy(X: Any) -> Array:
    if _is_sparse(X):
        raise InputTypeError(
            "rows as a sparse matrix are not supported by this method: use X.toarray() for rows, or "
            "give a square symmetric sparse matrix of weights (sparse data was passed)"
        )
    array = _of_frame(X) if is_frame(X) else as_array(X)
    if array.dtype.kind == "c":
        raise InputError("Complex data not supported: rows must be real numbers")
    if array.dtype == object and array.ndim == 2:
        array = numbers_of(enumerate(array.T), numbered=True)
    if array.ndim != 2:
        raise InputError(
            f"Expected 2D array, got {array.ndim}D array instead: shape {array.shape}. Reshape your data "
            "using array.reshape(-1, 1) if it has a single feature, array.reshape(1, -1) if it is one row"
        )
    work_dtype(array.dtype)
    return array


def _of_frame(X: Any) -> Array:
    """A data frame as NumPy makes an array of it where all columns are numbers without gaps; else column by column."""
    columns = columns_of(X)
    kinds = {values.dtype.kind for _, values in columns}
    return as_array(X) if kinds <= {*"iuf"} or kinds == {"b"} else numbers_of(columns)


def _is_sparse(X: Any) -> bool:
    return type(X).__module__.startswith("scipy.sparse")
