"""Rows of any kind as a source that block tasks can read; Dask and xarray arrays are read where they are stored, if
they are.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from hashlib import sha256
from itertools import accumulate, product
from typing import Any

import numpy as np

from bigembed.errors import InputError, InputTypeError, needed
from bigembed.rows import RowSource, as_declared, opening, refuse_fields, rows_at, work_dtype
from bigembed.rows.exact import refuse_rounded
from bigembed.rows.formats.binary import is_idx, read_idx
from bigembed.rows.formats.copying import write_dask
from bigembed.rows.formats.hdf5 import opened, require_held
from bigembed.rows.packing import nan_dtype, refuse_packed
from bigembed.rows.passes import check_vector
from bigembed.rows.reader import columns_of, is_arrow, is_frame, lazy_numbers, numbers_of, refuse_lists, two_dimensional
from bigembed.rows.sparse import dask_source, group_source, held_source, is_csr_group, keep_npy, stored
from bigembed.runtime import reads
from bigembed.runtime.blocks import Array, is_scipy_sparse
from bigembed.runtime.executors import executor_now
from bigembed.store import AnyPath, at, is_path, published

# ------------------------------------------------------------------------------------------------------ recognized
# Dask and xarray arrays that are stored arrays, or windows of them: found by what their graphs say.
#
# A graph that takes chunks from one stored array, and slices of those, says of every chunk which rows and columns it
# is of. Where all chunks lie side by side in the stored array as they do in the lazy one, the lazy one is a window of
# it.

GETTERS = {"getter", "getter_nofancy", "getter_inline", "getitem"}
"""Functions of graphs that index their first argument by their second."""
WRAPPERS = {"ImplicitToExplicitIndexingAdapter", "CopyOnWriteArray", "MemoryCachedArray", "LazilyIndexedArray"}
"""Of xarray: each shows what it wraps as it is, but for a key."""

Span = tuple[int, int]


@dataclass(frozen=True)
class Window:
    """Rows and columns, each from the first to one past the last, of a stored array."""

    stored: Any
    """The zarr array, or the rows in an object store."""
    spans: tuple[Span, Span]

    @property
    def shape(self) -> tuple[int, int]:
        """Of the window."""
        return self.spans[0][1] - self.spans[0][0], self.spans[1][1] - self.spans[1][0]

    @property
    def path(self) -> AnyPath:
        """Where the stored array lies."""
        found = place_of(self.stored)
        assert found is not None
        return found

    def cut(self, index: Any) -> Window | None:
        """A part of it; None for an index that is not of slices without steps."""
        parts = index if isinstance(index, tuple) else (index,)
        if len(parts) > 2 or not all(isinstance(part, slice) and part.step in (None, 1) for part in parts):
            return None
        every = zip((*parts, slice(None), slice(None)), self.spans, strict=False)
        found = [(first + low, first + max(low, high)) for low, high, first in map(_bounds, every)]
        return replace(self, spans=(found[0], found[1]))


def window_of(X: Any) -> Window | None:
    """The window of a stored array that a Dask or xarray array is; None for others, and where it cannot be known."""
    try:
        found = _of_graph(X) if hasattr(X, "dask") else _of_value(getattr(getattr(X, "variable", X), "_data", X))
    except Exception:  # graphs are Dask's own matter, and change: what cannot be followed is computed
        return None
    if found is None or found.shape != tuple(X.shape) or found.stored.dtype != X.dtype:
        return None
    if place_of(found.stored) is None:
        return None
    return None if opening.is_zarr(found.stored) and opening.missing_shards(found.stored) else found


def place_of(stored: Any) -> AnyPath | None:
    """Where a zarr array lies, if any process can open it there."""
    if isinstance(stored, opening.StoredRows):
        return at(stored.path)
    store = stored.store
    root = getattr(store, "root", None)
    if root is None and type(store).__name__ == "FsspecStore" and "file" in np.atleast_1d(store.fs.protocol):
        root = store.path
    return None if root is None else at(root) / stored.path


def _of_graph(X: Any) -> Window | None:
    """The window that all chunks of a Dask array make together."""
    from dask._task_spec import convert_legacy_graph

    if X.ndim != 2 or not X.size:
        return None
    graph = convert_legacy_graph(dict(X.__dask_graph__()))
    starts = [np.concatenate([[0], np.cumsum(sizes)]).tolist() for sizes in X.chunks]
    known: dict[Any, Any] = {}
    whole: Window | None = None
    for block in product(*map(range, X.numblocks)):
        found = _value(graph, (X.name, *block), known)
        if not isinstance(found, Window):
            return None
        rows, columns = (
            (low - starts[axis][number], low + X.shape[axis] - starts[axis][number])
            for axis, (number, (low, _)) in enumerate(zip(block, found.spans, strict=True))
        )
        wanted = tuple(X.chunks[axis][number] for axis, number in enumerate(block))
        whole = whole or Window(found.stored, (rows, columns))
        if found.shape != wanted or found.stored is not whole.stored or (rows, columns) != whole.spans:
            return None
    return whole


def _value(graph: Mapping[Any, Any], node: Any, known: dict[Any, Any]) -> Any:
    """What a node of a graph is: a window, or (of an index) itself; None where it is anything else."""
    from dask._task_spec import Alias, DataNode, Task, TaskRef

    if isinstance(node, DataNode):
        return _of_value(node.value) or (node.value if isinstance(node.value, tuple) else None)
    if isinstance(node, Task):
        if getattr(node.func, "__name__", "") not in GETTERS:
            return None
        what, index = (_value(graph, part, known) for part in node.args[:2])
        return what.cut(index) if isinstance(what, Window) else None
    key = node.target if isinstance(node, Alias) else node.key if isinstance(node, TaskRef) else node
    key = key.key if isinstance(key, TaskRef) else key
    try:
        if key not in known and key in graph:
            known[key] = _value(graph, graph[key], known)
        return known.get(key, _of_value(node) or node)
    except TypeError:  # (an index holds slices, which are not keys)
        return _of_value(node) or node


def _of_value(stored: Any) -> Window | None:
    """The window that an object in a graph is."""
    if type(stored).__module__.startswith("xarray."):
        if type(stored).__name__ == "ZarrArrayWrapper":
            return _of_value(stored._array)
        if type(stored).__name__ not in WRAPPERS:
            return None
        found = _of_value(stored.array)
        return found.cut(stored.key.tuple) if found is not None and hasattr(stored, "key") else found
    if not (opening.is_zarr(stored) or isinstance(stored, opening.StoredRows)) or len(stored.shape) != 2:
        return None
    n, d = map(int, stored.shape)
    return Window(stored, ((0, n), (0, d)))


def _bounds(part: tuple[slice, Span]) -> tuple[int, int, int]:
    index, (first, last) = part
    low, high, _ = index.indices(last - first)
    return low, high, first


# -------------------------------------------------------------------------------------------------------- streamed
# Rows that are computed when a task reads them: Dask arrays of any kind, and datasets of open HDF5 files.


@dataclass(frozen=True)
class StreamedRows(RowSource):
    """Rows of a Dask array: a task computes the chunks that it needs, and keeps none."""

    lazy: Any = None

    def read(self, start: int, stop: int) -> Array:
        return self.window((start, stop), (0, self.width))

    @reads
    def window(self, rows: tuple[int, int], columns: tuple[int, int]) -> Array:
        first, last = rows[0] + self.offset, rows[1] + self.offset
        part = self.lazy[first:last] if columns == (0, self.width) else self.lazy[first:last, slice(*columns)]
        return as_declared(part.compute(scheduler="synchronous"), self.dtype, rows[0])

    def part(self, start: int, stop: int) -> RowSource:
        """With the graph of these rows only, where it goes to another process."""
        if executor_now().in_this_process:
            return self
        import dask

        (lazy,) = dask.optimize(self.lazy[start + self.offset : stop + self.offset])
        return replace(self, lazy=lazy, offset=-start)

    def count_loads(self, runs: Sequence[tuple[int, int]]) -> int:
        """How many chunks are computed where each of these runs of rows is read by a task of its own."""
        ends = np.cumsum(self.lazy.chunks[0]) - self.offset
        first = np.searchsorted(ends, [start for start, _ in runs], "right")
        last = np.searchsorted(ends, [stop for _, stop in runs], "left")
        return int((last - first + 1).sum()) * len(self.lazy.chunks[1])

    @property
    def grain(self) -> int:
        return int(max(self.lazy.chunks[0], default=1))

    @property
    def chunks(self) -> tuple[int, int]:
        return self.grain, int(max(self.lazy.chunks[1], default=1))

    def boundary(self, row: int) -> int:
        ends = list(accumulate(self.lazy.chunks[0], initial=-self.offset))
        return next((end for end in ends if end >= row), self.shape[0])

    def fingerprint(self) -> str:
        """Of the name that Dask gives the array: a digest of how it is computed."""
        aligned = "".join(f" {name} {other.fingerprint()}" for name, other in sorted(self.aligned.items()))
        return sha256(f"{self.shape} {self.dtype} {self.lazy.name}{aligned}".encode()).hexdigest()

    def stored_copy(self, scratch: AnyPath) -> RowSource:
        """The rows written to a temporary array, for what reads them many times; once, where that stays."""
        path = scratch / f"input-{self.lazy.name}.zarr"
        write_dask(self.lazy, path)
        return RowSource(self.shape, self.dtype, path=str(path), aligned=self.aligned, named=self.named)

    def has_copy(self, scratch: AnyPath) -> bool:
        """Whether the rows are written there already."""
        return published(scratch / f"input-{self.lazy.name}.zarr")


@dataclass(frozen=True)
class HDF5Rows(RowSource):
    """Rows of a dataset of an HDF5 file: by the open file in this process, by its path in others."""

    dataset: str = ""
    stored: tuple[int, int] = (1, 1)
    """Rows and columns of a stored chunk."""
    held: Any = None

    def read(self, start: int, stop: int) -> Array:
        return self.window((start, stop), (0, self.width))

    @reads
    def window(self, rows: tuple[int, int], columns: tuple[int, int]) -> Array:
        if self.held:  # (False where the file was closed since)
            return np.asarray(self.held[slice(*rows), slice(*columns)])
        with opened(str(self.path)) as file:
            return np.asarray(file[self.dataset][slice(*rows), slice(*columns)])

    @property
    def chunks(self) -> tuple[int, int]:
        return self.stored

    @property
    def grain(self) -> int:
        return self.stored[0]

    def fingerprint(self) -> str:
        return sha256(f"{super().fingerprint()} {self.dataset}".encode()).hexdigest()

    def __getstate__(self) -> dict[str, Any]:
        return self.__dict__ | {"held": None}


def hdf5_source(dataset: Any) -> RowSource:
    """The rows of an open h5py dataset."""
    two_dimensional(f"{dataset.file.filename}: {dataset.name}", dataset.shape)
    work_dtype(dataset.dtype)
    dataset.file.flush()
    require_held(dataset.file.filename, dataset.name, dataset)
    refuse_packed(dataset, f"{dataset.file.filename}: {dataset.name}")
    path, (rows, columns) = os.path.abspath(dataset.file.filename), dataset.chunks or (1, 1)
    shape, stored = tuple(map(int, dataset.shape)), (int(rows), int(columns))
    return HDF5Rows(shape, np.dtype(dataset.dtype), path=path, dataset=dataset.name, stored=stored, held=dataset)


def is_persisted(X: Any) -> bool:
    """Whether chunks of a Dask array lie on a cluster already."""
    values = (getattr(node, "value", node) for node in dict(X.__dask_graph__()).values())
    return any(type(value).__module__.startswith("distributed.") for value in values)


# ----------------------------------------------------------------------------------------------------------- input
# Rows of any kind as a source that block tasks can read.


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
    if opening.is_zarr(X):
        place = place_of(X)
        return (_path_source(place, sparse) if place is not None else _lazy_source(opening.open_array(X))), False
    if type(X).__module__.startswith("xarray.") and hasattr(X, "variable") and not X.variable._in_memory:
        return _xarray_source(X, scratch, name, sparse, missing), False
    if type(X).__module__.startswith("anndata.") and hasattr(X, "group"):  # (sparse X that stays in its file)
        X = needed("anndata.experimental", "anndata", "sparse rows of an AnnData").read_elem_lazy(X.group)
    if type(X).__module__.startswith("h5py.") and hasattr(X, "chunks"):
        return hdf5_source(X), False
    if type(X).__module__.startswith("dask.") and hasattr(X, "dask"):
        return _dask_source(X, scratch, name, sparse, missing), False
    if sparse and is_scipy_sparse(X):
        held = held_source(X)
        return (held if executor_now().in_this_process else stored(held, scratch / f"{name}-csr")), True
    return _array_source(_numpy(opening.without_mask(X) if missing else X), scratch, name), True


def _array_source(array: Array, scratch: AnyPath, name: str) -> RowSource:
    """An array of this process; where tasks run in others, written for them."""
    if executor_now().in_this_process or array.dtype == object:
        return RowSource(array.shape, array.dtype, array=array)
    path = scratch / f"{name}.npy"
    keep_npy(path, array)
    return RowSource(array.shape, array.dtype, path=str(path))


def in_memory(X: Any) -> bool:
    """Whether rows lie in this process: neither a path nor a source, nor a zarr or Dask array."""
    return not (is_path(X) or isinstance(X, RowSource) or opening.is_zarr(X) or hasattr(X, "dask"))


def column_source(values: Any, n: int, scratch: AnyPath, name: str) -> RowSource:
    """A vector that belongs to ``n`` rows (weights, labels): an array of any kind, its path, a source."""
    if isinstance(values, RowSource):
        source = values
    elif is_path(values) and is_idx(values):
        return column_source(read_idx(str(values)), n, scratch, name)
    elif is_path(values):
        source = _path_source(at(values), numbers=name not in ("labels", "ids"))
    elif opening.is_zarr(values):
        source, _ = row_source(values, scratch, name)
    else:
        source = _array_source(
            opening.as_array(values.compute() if hasattr(values, "dask") else values, name), scratch, name
        )
    check_vector(name, source, n)
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
    return _dask_source(X.data if X.chunks is not None else opening.chunked(X).data, scratch, name, sparse, missing)


def _window_source(window: Window) -> RowSource:
    """The rows that a window of a stored array shows."""
    whole = rows_at(window.path.absolute(), packed=True)  # (a lazy array is what its graph says)
    work_dtype(whole.dtype)
    (start, _), columns = window.spans
    shown = None if columns == (0, whole.width) else columns
    return replace(whole, shape=window.shape, offset=start, columns=shown)


def _lazy_source(X: Any, missing: bool = False) -> RowSource:
    """The rows of a Dask array of dense blocks."""
    work_dtype(X.dtype)
    if missing and X.dtype.kind != "f" and isinstance(X._meta, np.ma.MaskedArray):
        X = X.astype(nan_dtype(X.dtype))
    return StreamedRows(tuple(map(int, X.shape)), np.dtype(X.dtype), lazy=opening.without_mask(X) if missing else X)


def _dask_source(X: Any, scratch: AnyPath, name: str, sparse: bool, missing: bool) -> RowSource:
    if hasattr(X, "to_dask_array"):
        X = (lazy_numbers(X) if X.ndim == 2 else X).to_dask_array(lengths=True)
    if any(np.isnan(length) for length in X.shape):
        X = X.copy().compute_chunk_sizes()  # (a copy, for it sets them in place)
    path = scratch / f"{name}-{X.name}.zarr"
    if is_scipy_sparse(getattr(X, "_meta", None)):
        if not sparse:
            raise InputTypeError("a Dask array of sparse blocks was passed, and this method takes dense rows only")
        return dask_source(X, path)
    if (window := window_of(X)) is not None:
        return _window_source(window)
    if not executor_now().in_this_process and is_persisted(X):  # (a task cannot ask the cluster for its chunks)
        write_dask(opening.without_mask(X) if missing else X, path)
        return RowSource(tuple(X.shape), np.dtype(X.dtype), path=str(path))
    return _lazy_source(X, missing)


def _numpy(X: Any) -> Array:
    if is_scipy_sparse(X):
        raise InputTypeError(
            "rows as a sparse matrix are not supported by this method: use X.toarray(), or TruncatedSVD before it; a "
            "sparse matrix of weights is square and symmetric (sparse data was passed)"
        )
    array = of_frame(X) if is_frame(X) else opening.as_array(X)
    refuse_fields(array.dtype)
    if array.dtype.kind == "c":
        raise InputError("Complex data not supported: rows must be real numbers")
    refuse_lists(array, "the rows are")
    if array.dtype == object and array.ndim == 2:
        array = numbers_of(enumerate(array.T), numbered=True)
    if array.ndim != 2:
        raise InputError(
            f"Expected 2D array, got {array.ndim}D array instead: shape {array.shape}. Reshape your data "
            "using array.reshape(-1, 1) if it has a single feature, array.reshape(1, -1) if it is one row, "
            "array.reshape(len(array), -1) if it is a row for each entry of the first axis"
        )
    work_dtype(array.dtype)
    return array


def of_frame(X: Any, names: Sequence[str] = ()) -> Array:
    """A data frame as NumPy makes an array of it where all columns are numbers without gaps; else column by column.

    ``names``: the order in which its columns are wanted.
    """
    columns = columns_of(X)
    if names:
        held = dict(columns)
        columns = [(name, held[name]) for name in names]
    kinds = {values.dtype.kind for _, values in columns}
    if not (kinds <= {*"iuf"} or kinds == {"b"}) or not columns:
        return numbers_of(columns)
    if np.result_type(*(values.dtype for _, values in columns)).kind == "f":  # (NumPy rounds integers beside floats)
        for name, values in columns:
            refuse_rounded(values, None, 0, f"column {name}")
    return np.column_stack([values for _, values in columns]) if names or is_arrow(X) else opening.as_array(X)
