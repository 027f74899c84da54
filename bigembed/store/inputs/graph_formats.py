"""Where the edges of a graph lie, and what reads them there: tables, sparse matrices, lists of neighbors."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from bigembed.blocks.rows import Array
from bigembed.errors import InputError, MissingPathError
from bigembed.store.formats.anndata_reader import EXTRA, csr_in, is_anndata
from bigembed.store.formats.delimited import is_delimited
from bigembed.store.formats.hdf5 import array_in, opened
from bigembed.store.formats.parquet import parquet_files
from bigembed.store.formats.registry import open_reader
from bigembed.store.inputs.edges import EdgeColumns, EdgeMatrix, Edges, EdgeTable, NeighborLists, refuse_shapes
from bigembed.store.inputs.npz import open_npz
from bigembed.store.rows.given import as_array
from bigembed.store.rows.reader import Choice, listed
from bigembed.store.rows.source import RowSource, rows_at
from bigembed.store.rows.sparse import NAMES, is_csr_group
from bigembed.store.storage.claims import sound
from bigembed.store.storage.paths import AnyPath, at, is_path

COLUMNS = {"weights": ("source", "target", "weight"), "distances": ("source", "target", "distance")}
ARRAYS = {"weights": "obsp/connectivities", "distances": "obsp/distances"}


def edges_of(
    source: Any, values: str, distances: Any, columns: Sequence[str] | None, array: str | None, squared: bool
) -> Edges:
    """What streams the edges of a source; see :func:`bigembed.open_graph`."""
    if columns is not None and not (_names(columns) and len(columns) in (2, 3)):
        raise InputError(f"columns={columns!r}; two or three names are needed: source, target and the value")
    given = {name: value for name, value in (("columns", columns), ("array", array)) if value is not None}
    if distances is not None:
        _only("lists of neighbors", given)
        return _lists(source, distances, squared)
    if is_path(source):
        with sound(source):
            return _stored(at(source).absolute(), values, columns, array)
    if type(source).__module__.startswith("scipy.sparse"):
        _only("a sparse matrix", given)
        return _matrix(source)
    if hasattr(source, "columns") and hasattr(source, "to_numpy"):
        _only("a data frame", given, "columns")
        return EdgeTable(_held(_of_frame(source, columns or COLUMNS[values])))
    _only("an array", given)
    return EdgeTable(_pairs("the array", _held(as_array(source, "the graph"))))


def _names(columns: Any) -> bool:
    return isinstance(columns, (list, tuple)) and all(isinstance(name, str) for name in columns)


def _only(what: str, given: dict[str, Any], known: str = "") -> None:
    """InputError if something was chosen that there is nothing to choose of."""
    if wrong := [f"{name}={value!r}" for name, value in given.items() if name != known]:
        raise InputError(f"{', '.join(wrong)}: {what} has nothing of that kind to choose; leave it out")


def _stored(path: AnyPath, values: str, columns: Sequence[str] | None, array: str | None) -> Edges:
    if not path.exists():
        raise MissingPathError(f"{path}: no such path. Give an edge list, a sparse matrix, or lists of neighbors")
    wanted = tuple(columns or COLUMNS[values])
    given = {name: value for name, value in (("columns", columns), ("array", array)) if value is not None}
    if path.suffix == ".npz":
        _only("a file of one matrix", given)
        return open_npz(path)
    if parquet_files(path) or is_delimited(path):
        _only("a table", given, "columns")
        return EdgeTable(_pairs(path, open_reader(path, Choice(columns=wanted))))
    if is_anndata(path):
        _only("an AnnData", given, "array")
        return _anndata(path, array or ARRAYS[values])
    if path.is_dir() and is_csr_group(path):
        _only("a CSR group", given)
        return _group(path, "")
    if path.is_dir() and all((path / name).is_dir() for name in wanted[:2]):
        _only("a group of columns", given, "columns")
        held = wanted if columns or (path / wanted[2]).is_dir() else wanted[:2]
        vectors = {name: rows_at(path / name) for name in held}
        refuse_shapes(path, {name: vector.shape for name, vector in vectors.items()})
        return EdgeColumns(tuple(vectors.values()))
    _only("a file of one array", given, "array")
    return EdgeTable(_pairs(path, open_reader(path, Choice(array=(array,) if array else ()))))


def _anndata(path: AnyPath, array: str) -> Edges:
    with opened(str(path), EXTRA) as root:
        there = [f"obsp/{one}" for one in root.get("obsp", ())]
        if array not in there:
            raise InputError(f"{path}: no graph {array}; there are {listed(there) or 'none (obsp is empty)'}")
    return _group(path, array)


def _group(path: AnyPath, array: str) -> Edges:
    """A CSR matrix in a group of an HDF5 file or of Zarr."""
    with opened(str(path), EXTRA) as root:
        found = csr_in(root, str(path), array)
        indptr, indices, data = (array_in(root, str(path), f"{array}/{name}".lstrip("/"), EXTRA) for name in NAMES)
    if found.shape[0] != found.shape[1]:
        raise InputError(f"{path}: shape {found.shape}; the matrix of a graph is square, (n, n)")
    return EdgeMatrix(indptr, indices, data, f"{path}: {array}".rstrip(": "))


def _matrix(matrix: Any) -> Edges:
    if matrix.ndim != 2 or matrix.shape[0] != matrix.shape[1]:
        raise InputError(f"a sparse matrix of shape {matrix.shape}; the matrix of a graph is square, (n, n)")
    rows = matrix.tocsr()
    return EdgeMatrix(_held(rows.indptr), _held(rows.indices), _held(rows.data))


def _lists(indices: Any, distances: Any, squared: bool) -> Edges:
    near, apart = _list(indices, "indices"), _list(distances, "distances")
    refuse_shapes("lists of neighbors", {"indices": near.shape, "distances": apart.shape})
    return NeighborLists(near, apart, squared)


def _list(source: Any, name: str) -> Any:
    reader = open_reader(source) if is_path(source) else _held(as_array(source, name))
    if len(reader.shape) != 2 or 0 in reader.shape or reader.dtype.kind not in "buif":
        raise InputError(f"{name}: {reader.shape} {reader.dtype}; numbers (n, k) are needed, k of each node")
    return reader


def _of_frame(frame: Any, columns: Sequence[str]) -> Array:
    missing = [name for name in columns if name not in frame.columns]
    if missing:
        there = listed(map(str, frame.columns))
        raise InputError(f"the data frame has no columns {listed(missing)}; there are {there}")
    found: Array = frame[list(columns)].to_numpy()
    return found.astype(np.float64) if found.dtype == object else found


def _pairs(name: Any, rows: Any) -> Any:
    if len(rows.shape) != 2 or rows.shape[1] not in (2, 3) or rows.dtype.kind not in "buif":
        raise InputError(
            f"{name}: {rows.shape} {rows.dtype}; an edge list has two or three columns of numbers: source, target and "
            "the value. Lists of neighbors need distances, too"
        )
    return rows


def _held(array: Array) -> RowSource:
    return RowSource(array.shape, array.dtype, array=array)
