"""A user's graph of any size as a source that the methods on graphs take, and what reads its edges in each format."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from hashlib import sha256
from math import floor
from typing import Annotated, Any

import numpy as np

from bigembed.errors import InputError, MissingPathError
from bigembed.rows import RowSource, edges, rows_at
from bigembed.rows.edges import Piece
from bigembed.rows.formats import hdf5, open_reader, tables
from bigembed.rows.formats.anndata import EXTRA, csr_in, is_anndata
from bigembed.rows.formats.folders import delimited_files
from bigembed.rows.opening import as_array, checked_measure, found_lists, lengths_of
from bigembed.rows.reader import Choice, listed
from bigembed.rows.sparse import NAMES, is_csr_group
from bigembed.runtime.blocks import Array, block_rows, is_scipy_sparse, map_blocks
from bigembed.runtime.parameters import Count, declared, one_of
from bigembed.store import AnyPath, arrays, at, files, is_path, no_such_path

# --------------------------------------------------------------------------------------------------- graph formats
# Where the edges of a graph lie, and what reads them there: tables, sparse matrices, lists of neighbors.

COLUMNS = {"weights": ("source", "target", "weight"), "distances": ("source", "target", "distance")}
ARRAYS = {"weights": "obsp/connectivities", "distances": "obsp/distances"}


def edges_of(
    source: Any, values: str, distances: Any, columns: Sequence[str] | None, array: str | None, squared: bool
) -> edges.Edges:
    """What streams the edges of a source; see :func:`bigembed.open_graph`."""
    if columns is not None and not (_names(columns) and len(columns) in (2, 3)):
        raise InputError(f"columns={columns!r}; two or three names are needed: source, target and the value")
    given = {name: value for name, value in (("columns", columns), ("array", array)) if value is not None}
    if distances is not None:
        _only("lists of neighbors", given)
        return _lists(source, distances, squared)
    if is_path(source):
        with files.reading_foreign(source):
            return _stored(at(source).absolute(), values, columns, array)
    if is_scipy_sparse(source):
        _only("a sparse matrix", given)
        return _matrix(source)
    if hasattr(source, "columns") and hasattr(source, "to_numpy"):
        _only("a data frame", given, "columns")
        return edges.EdgeTable(_in_memory(_of_frame(source, columns or COLUMNS[values])))
    _only("an array", given)
    return edges.EdgeTable(_pairs("the array", _in_memory(as_array(source, "the graph"))))


def _names(columns: Any) -> bool:
    return isinstance(columns, (list, tuple)) and all(isinstance(name, str) for name in columns)


def _only(what: str, given: dict[str, Any], known: str = "") -> None:
    """InputError if something was chosen that there is nothing to choose of."""
    if wrong := [f"{name}={value!r}" for name, value in given.items() if name != known]:
        raise InputError(f"{', '.join(wrong)}: {what} has nothing of that kind to choose; leave it out")


def _stored(path: AnyPath, values: str, columns: Sequence[str] | None, array: str | None) -> edges.Edges:
    if not path.exists():
        raise MissingPathError(f"{no_such_path(path)}. Give an edge list, a sparse matrix, or lists of neighbors")
    wanted = tuple(columns or COLUMNS[values])
    given = {name: value for name, value in (("columns", columns), ("array", array)) if value is not None}
    if path.suffix == ".npz":
        _only("a file of one matrix", given)
        return edges.open_npz(path)
    if tables.parquet_files(path) or delimited_files(path):
        _only("a table", given, "columns")
        return edges.EdgeTable(_pairs(path, open_reader(path, Choice(columns=wanted))))
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
        edges.refuse_shapes(path, {name: vector.shape for name, vector in vectors.items()})
        return edges.EdgeColumns(tuple(vectors.values()))
    _only("a file of one array", given, "array")
    return edges.EdgeTable(_pairs(path, open_reader(path, Choice(array=(array,) if array else ()))))


def _anndata(path: AnyPath, array: str) -> edges.Edges:
    with hdf5.opened(str(path), EXTRA) as root:
        there = [f"obsp/{one}" for one in root.get("obsp", ())]
        if array not in there:
            raise InputError(f"{path}: no graph {array}; there are {listed(there) or 'none (obsp is empty)'}")
    return _group(path, array)


def _group(path: AnyPath, array: str) -> edges.Edges:
    """A CSR matrix in a group of an HDF5 file or of Zarr."""
    with hdf5.opened(str(path), EXTRA) as root:
        found = csr_in(root, str(path), array)
        indptr, indices, data = (hdf5.array_in(root, str(path), f"{array}/{name}".lstrip("/"), EXTRA) for name in NAMES)
    if found.shape[0] != found.shape[1]:
        raise InputError(f"{path}: shape {found.shape}; the matrix of a graph is square, (n, n)")
    return edges.EdgeMatrix(indptr, indices, data, f"{path}: {array}".rstrip(": "))


def _matrix(matrix: Any) -> edges.Edges:
    if matrix.ndim != 2 or matrix.shape[0] != matrix.shape[1]:
        raise InputError(f"a sparse matrix of shape {matrix.shape}; the matrix of a graph is square, (n, n)")
    rows = matrix.tocsr()
    return edges.EdgeMatrix(_in_memory(rows.indptr), _in_memory(rows.indices), _in_memory(rows.data))


def _lists(indices: Any, distances: Any, squared: bool) -> edges.Edges:
    near, apart = _list(indices, "indices"), _list(distances, "distances")
    edges.refuse_shapes("lists of neighbors", {"indices": near.shape, "distances": apart.shape})
    return edges.NeighborLists(near, apart, squared)


def _list(source: Any, name: str) -> Any:
    reader = open_reader(source) if is_path(source) else _in_memory(as_array(source, name))
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


def _in_memory(array: Array) -> RowSource:
    return RowSource(array.shape, array.dtype, array=array)


# ---------------------------------------------------------------------------------------------------- graph source
# A user's graph of any size as a source that the methods on graphs take: opened here, read by their tasks.

VALUES = ("weights", "distances")
SYMMETRIZE = {"weights": ("error", "mean", "max", "min", "union"), "distances": ("min", "max", "error")}
"""How w_ij and w_ji become one, the default first. An edge that is not listed has weight 0, and infinite length."""
DUPLICATES = ("error", "sum", "min", "max")
ENTRY_BYTES = 32
"""Of a listed edge in a canonical block, for the number of its rows."""
SCANNED = 1 << 21
"""Edges whose ids a task looks through for the largest one."""


@dataclass(frozen=True, repr=False)
class GraphSource(RowSource):
    """A graph of n nodes that :func:`open_graph` found: shape (n, n), and what streams its edges to tasks."""

    edges: Any = None
    """:class:`~bigembed.rows.edges.Edges`."""
    values: str = "weights"
    symmetrize: str = "error"
    duplicates: str = "error"
    squared: bool = False
    measured: str = ""
    """The metric whose values, as other libraries have them, are made lengths as they are read."""
    known: str = ""
    """The fingerprint, where the edges were copied since it was taken."""
    joins: Mapping[str, Any] | None = None
    """The rule by which its edges were taken of given distances: ``n_neighbors`` and ``radius``."""

    def __repr__(self) -> str:
        where = f", path={self.path!r}" if self.path else ""
        return f"GraphSource(n={self.n}, entries={self.entries}, values={self.values!r}{where})"

    @property
    def n(self) -> int:
        """Nodes."""
        return self.shape[0]

    @property
    def entries(self) -> int:
        """Edges, each as often as it is listed."""
        return int(self.edges.entries)

    @property
    def sparse(self) -> bool:
        return True

    @property
    def grain(self) -> int:
        return 1

    @property
    def block(self) -> int:
        """Nodes of a canonical block: about a million listed edges, of the numbers of nodes and edges alone."""
        return block_rows(-(-self.entries // self.n), ENTRY_BYTES)

    @property
    def listed(self) -> int | None:
        """Neighbors of a row, where there are lists of them; a row itself may be one."""
        return self.edges.indices.shape[1] if isinstance(self.edges, edges.NeighborLists) else None

    def read(self, start: int, stop: int) -> Any:
        """A graph is not read by rows."""
        raise InputError("a graph of edges was given, and this reads rows. Give the rows that belong to its nodes")

    def rules(self) -> dict[str, Any]:
        """What its blocks depend on, besides the edges."""
        rules = {"symmetrize": self.symmetrize, "duplicates": self.duplicates, "squared": self.squared}
        return rules | ({"measured": self.measured} if self.measured else {})

    def found(self, path: str) -> GraphSource:
        """This graph, its edges read where the stage at the path left them."""
        return replace(self, edges=replace(self.edges, path=path))

    def by(self, **joins: Any) -> GraphSource:
        """This graph, its edges taken of given distances by a rule."""
        return replace(self, joins=joins)

    def stream(self, start: int, stop: int) -> Iterator[Piece]:
        """Edges of some units, in pieces; what cannot be read is :class:`DamagedError`."""
        with files.reading_foreign(self.path or "the graph", f"edges {start}:{stop}"):
            for source, target, value in self.edges.stream(start, stop):
                yield source, target, lengths_of(value, self.measured)

    def fingerprint(self) -> str:
        if self.known:
            return self.known
        return sha256(repr((self.n, self.values, self.rules(), self.edges.fingerprint())).encode()).hexdigest()

    def stored_copy(self, scratch: AnyPath) -> GraphSource:
        """This graph, its arrays of this process written for tasks of others."""
        changes = {}
        for part in fields(self.edges):
            value = getattr(self.edges, part.name)
            several = value if isinstance(value, tuple) else (value,)
            stored = tuple(
                _stored_beside(one, scratch / f"{part.name}-{place}.npy") for place, one in enumerate(several)
            )
            changes[part.name] = stored if isinstance(value, tuple) else stored[0]
        return replace(self, edges=replace(self.edges, **changes), known=self.fingerprint())


def _stored_beside(value: Any, path: AnyPath) -> Any:
    if not isinstance(value, RowSource) or value.array is None:
        return value
    arrays.write_npy(path, value.array)
    return RowSource(value.shape, value.dtype, path=str(path))


@declared
def open_graph(
    source: Any,
    *,
    values: Annotated[str, one_of(*VALUES)] | None = None,
    distances: Any = None,
    columns: Sequence[str] | None = None,
    array: str | None = None,
    nodes: Count | None = None,
    symmetrize: Annotated[str, one_of(*SYMMETRIZE["weights"])] | None = None,
    duplicates: Annotated[str, one_of(*DUPLICATES)] = "error",
    squared: bool = False,
    metric: str | None = None,
) -> GraphSource:
    """Open a graph of your own, of any size: edges in a table, a sparse matrix, or lists of neighbors.

    What it returns is taken by ``fit`` of the methods on graphs: weights by those that take a SciPy matrix of weights,
    distances by :class:`bigembed.DiffusionMap`, :class:`bigembed.Isomap` and :func:`bigembed.build_neighbor_graph`.

    Parameters
    ----------
    source : path, array, tuple or index
        The graph, as a path or in memory, in one of these forms. An edge list has one edge a row: Parquet, CSV or a
        data frame with columns source, target and weight (or ``columns``), a Zarr group with such arrays, an array (m,
        2) or (m, 3). A sparse matrix (n, n) is a SciPy one, ``.npz`` of ``scipy.sparse.save_npz``, a CSR group in Zarr,
        or ``obsp`` of an AnnData (``.h5ad`` or ``.zarr``). With ``distances`` these are lists of neighbors (n, k), as
        umap, pynndescent, scanpy and faiss leave them: the nodes 0 … n − 1 that are near each node. −1 means no
        neighbor; the node itself may be the first one or not. Nodes are numbered 0 … n − 1. A pynndescent index
        (``NNDescent``), its ``neighbor_graph`` and umap's ``(indices, distances, index)`` hold both.
    values : {"weights", "distances"} or None
        What the values are: weights ≥ 0 (the larger, the nearer), or distances. None takes distances with ``distances``
        and for array="obsp/distances", and weights else.
    distances : array of shape (n, k), or None
        The distances that belong to the lists of neighbors.
    columns : sequence of str, or None
        Two or three names: those of the source, the target and, unless all weights are 1, the value.
    array : str or None
        The array of a file with several. For an AnnData it is "obsp/NAME", and None takes its connectivities or
        distances. For an HDF5 file it is the dataset (m, 3).
    nodes : int ≥ 1 or None
        The number n of nodes of an edge list; None takes the largest id + 1, for which the ids are read once.
    symmetrize : str or None
        How the values of i → j and j → i become one. For weights, where an edge that is not listed counts as 0: "error"
        (they must be equal up to rounding; the default), "mean", "max" (right where each edge is listed once), "min",
        or "union" (a + b − ab, of weights in [0, 1], as UMAP does). For distances, where it counts as infinite: "min"
        (joined if either lists the other; the default), "max" (if both do), or "error".
    duplicates : {"error", "sum", "min", "max"}
        What becomes of an edge that is listed more than once in one direction.
    squared : bool
        Whether the distances are squared, as faiss leaves those of its L2 indexes.
    metric : str or None
        The metric that others found the distances by. Some have them in another form than bigembed: "cosine",
        "correlation", "dot" and "spearmanr" are 1 − cos θ there and become the chord √(2 (1 − cos θ)), "haversine" is
        the angle θ and becomes 2 sin(θ/2), of "sqeuclidean" and "jensen_shannon" the root is taken; those of other
        metrics are lengths already. None takes what an index says.

    Returns
    -------
    GraphSource
        A source of shape (n, n) for ``fit``, with attributes ``n``, ``entries``, ``values`` and ``symmetrize``. Nothing
        but sizes, and perhaps ids, was read.

    Raises
    ------
    InputError
        If the format is not known, arrays do not fit each other, parameters are out of range, or there are more nodes
        than edges can join. When the graph is fitted, with the first ones named: if ids are not integers in [0, n),
        values are NaN, infinite or negative, edges are listed twice, weights are not symmetric, or nodes have no edge.
    MissingPathError
        If there is no such path.

    Notes
    -----
    Loops: of weights the chance to stay at a node; of distances they are left out. Weights of 0 join nothing, distances
    of 0 do. Cost: of a fit one pass over the edges, which are then exchanged: 25 bytes of scratch for each end. A graph
    of more than one block is then ordered, so that near nodes lie together and most edges stay in a block: about ten
    light sweeps over the stored edges, and one more exchange; they are on disk twice. Memory: that of one block of
    about a million listed edges, and, of several blocks, some 160·n bytes in the process that orders them. The same
    bytes whatever the order of the edges, and however they are stored; results are in the order of the nodes.

    Examples
    --------
    >>> import bigembed as be
    >>> ring = np.array([[0, 1], [1, 2], [2, 3], [3, 0]])
    >>> be.DiffusionMap(n_components=1).fit(open_graph(ring, symmetrize="max")).eigenvalues_.round(6).tolist()
    [0.0]
    """
    measured, lists = checked_measure(metric), found_lists(source) if distances is None else None
    if lists is not None:
        source, distances = lists.indices, lists.distances
        measured = lists.measured if metric is None else measured
    kind = _values(values, distances, array)
    rule = _rule(kind, symmetrize, duplicates, squared) | {"measured": measured}
    if measured and kind == "weights":
        raise InputError(f"open_graph: metric={metric!r}; it is of distances, and these are weights")
    listed = edges_of(source, kind, distances, columns, array, squared)
    if listed.entries < 1:
        raise InputError(f"{_name_of(source)}: a graph without edges. Give at least one")
    path = str(at(source)) if is_path(source) else None
    with files.reading_foreign(_name_of(source), "its ids"):
        n = _nodes(listed, nodes, _name_of(source))
    return GraphSource((n, n), np.dtype(np.float64), path=path, edges=listed, values=kind, **rule)


# --- what was asked ------------------------------------------------------------------------------


def _values(values: str | None, distances: Any, array: str | None) -> str:
    found = values or ("distances" if distances is not None or array == ARRAYS["distances"] else "weights")
    if found == "weights" and distances is not None:
        raise InputError("values='weights' and distances were given; lists of neighbors hold distances")
    return found


def _rule(values: str, symmetrize: str | None, duplicates: str, squared: bool) -> dict[str, Any]:
    known, wrong = SYMMETRIZE[values], []
    if symmetrize is not None and symmetrize not in known:
        wrong.append(f"symmetrize={symmetrize!r}; allowed for {values}: {', '.join(map(repr, known))}")
    if squared and values == "weights":
        wrong.append("squared=True; it is of distances, and these are weights")
    if wrong:
        raise InputError(f"open_graph: {'; '.join(wrong)}")
    return {"symmetrize": symmetrize or known[0], "duplicates": duplicates, "squared": bool(squared)}


def _nodes(listed: edges.Edges, nodes: int | None, name: str) -> int:
    """n: said by the format or the user, or the largest id + 1."""
    if listed.nodes is not None and nodes not in (None, listed.nodes):
        raise InputError(f"nodes={nodes}, and {name} has {listed.nodes}. Leave nodes out")
    n = listed.nodes or (int(nodes) if nodes is not None else _largest(listed) + 1)
    if n > 2 * listed.entries:
        raise InputError(
            f"{name}: {listed.entries:,} edges join {2 * listed.entries:,} nodes at the most, and there are {n:,} "
            f"({'as many as were said' if nodes or listed.nodes else 'by the largest id'}). Number the nodes that have "
            "edges 0 … n − 1"
        )
    return n


def _largest(listed: edges.Edges) -> int:
    known = tables.largest_in(listed.rows) if isinstance(listed, edges.EdgeTable) else None
    if known is None:
        known = max(map_blocks(largest_id, [(listed, *span) for span in edges.spans_of(listed, SCANNED)]), default=-1.0)
    return max(0, floor(known)) if np.isfinite(known) else 0


def largest_id(listed: edges.Edges, start: int, stop: int) -> float:
    """The largest id of some edges; −1 where there are none that are numbers."""
    found = [-1.0]
    for source, target, _ in listed.stream(start, stop):
        found += [float(np.max(ids, initial=-1, where=np.isfinite(ids))) for ids in (source, target)]
    return max(found)


def _name_of(source: Any) -> str:
    return str(source) if is_path(source) else "the graph"


def as_graph(X: Any) -> Any:
    """The graph of lists that another library found, opened; anything else as it is."""
    return X if found_lists(X) is None else open_graph(X)
