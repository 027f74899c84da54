"""The neighbor graph on disk: what it says of itself, its edges and lists of nearest rows, as others read them."""

from __future__ import annotations

import os
from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy.sparse import coo_array

from bigembed.errors import InputError
from bigembed.neighbors.given import GIVEN
from bigembed.neighbors.order import Ordered
from bigembed.neighbors.query import Fitted, index_of, locate
from bigembed.neighbors.search import Recall, Truth, exact_neighbors, internal_ids, share_found
from bigembed.neighbors.survey import Shape, kind_of_fitted, prepare, refuse_inadmissible, shape_in
from bigembed.plotting.canvas import new_axes
from bigembed.plotting.palette import ACCENT
from bigembed.rows.formats.tables import write_columns
from bigembed.rows.input import row_source
from bigembed.runtime.blocks import Array, bounds, is_sparse, map_blocks
from bigembed.runtime.parameters import declared
from bigembed.stages import Run
from bigembed.store.arrays import read_array
from bigembed.store.matrix import StoredMatrix

SHOWN_EDGES = 1 << 20
"""Of which a picture shows the lengths, at most about twice so many."""
EDGE_COLUMNS = ("source", "target", "distance")


class NeighborGraph:
    """Hold a symmetric graph of near rows on disk, in a row order in which near rows lie together.

    i and j are joined if either is among the k nearest of the other (``n_neighbors``), or if they are within
    ``radius`` of each other. ``fit`` of any method on a graph takes it in place of rows, so one graph serves many
    embeddings. :func:`bigembed.build_neighbor_graph` makes it, and opens one that lies at its ``workdir``.

    Parameters
    ----------
    run : Run
        The run that holds the stages of the graph.
    in_memory : bool
        Whether the rows were given in memory, so that methods answer with NumPy arrays.
    stage : str
        The published stage that holds the edges: "graph", or "bridge" with bridges between components.
    metric : function, str or None
        The function of two rows that gives the distances, if they are by one; a function that a file names is not
        called.

    Attributes
    ----------
    n : int
        The number of rows.
    n_features : int
        The number of their columns.
    metric : str or function
        The distance between rows.
    n_neighbors, radius : int or float, or None
        k, or the radius; the other one is None.
    recall : float
        The share of true neighbors found, measured; 1 for a radius, and for given distances.
    edges : int
        The number of edges, each counted from both of its rows.
    matrix : stored matrix of shape (n, n)
        Squared distances by row blocks, in the order of the graph. ``original_ids()`` are the rows of the input.
    shape : pair of int
        The shape of the rows.
    block : int
        How many rows a canonical block holds.
    dense : bool
        Whether it joins every pair of few rows, as one block without lists of neighbors.
    sampled : bool
        Whether given distances to sampled rows are kept, by which maps are judged.
    scaled : bool
        Whether it says how far the k-th neighbor of each row lies; a graph of a matrix of distances does not.

    Notes
    -----
    Opening it reads a few numbers. ``recall_in`` is one pass over the rows given; ``to_scipy`` holds n·k entries in
    this process, and ``to_parquet`` one block.

    Examples
    --------
    >>> import bigembed as be
    >>> graph = be.build_neighbor_graph(np.arange(10.0)[:, None], n_neighbors=2)
    >>> graph.n, graph.edges, float(graph.to_scipy().max())
    (10, 22, 2.0)
    """

    def __init__(self, run: Run, in_memory: bool = False, stage: str = "graph", metric: Any = None) -> None:
        self.run = run
        self.in_memory = in_memory
        self.stage = stage
        survey = run.results("survey")
        self.n: int = survey["n"]
        self.n_features: int = survey["d"]
        self.metric: str = survey["metric"]
        self.shape = shape_in(survey, metric)
        self.block: int = self.shape.block
        if self.metric == GIVEN:
            self.block = int(np.diff(read_array(run.path("order", "starts"))).max())
        rule = run.results("search" if run.has("search") else "graph")
        self.n_neighbors: int | None = rule.get("n_neighbors")
        self.radius: float | None = rule.get("radius")

    def __repr__(self) -> str:
        rule = f"radius={self.radius!r}" if self.n_neighbors is None else f"n_neighbors={self.n_neighbors}"
        return (
            f"NeighborGraph(n={self.n}, {rule}, metric={self.metric!r}, "
            f"recall={self.recall:.4f}, path={str(self.run.root)!r})"
        )

    @property
    def recall(self) -> float:
        """Return the share of true neighbors found for sampled rows; 1 where all pairs were compared."""
        return float(self.run.results("recall")["recall"]) if self.run.has("recall") else 1.0

    @property
    def dense(self) -> bool:
        """Tell whether it holds every pair of rows, as one block and without lists."""
        given = self.metric != GIVEN and self.n_neighbors is not None
        return given and self.run.has("graph") and not self.run.has("search")

    @property
    def scaled(self) -> bool:
        """Tell whether it says how far each row lies from its k-th neighbor: not so of a matrix of given distances."""
        return self.metric != GIVEN or bool(self.run.results("graph").get("scales"))

    @property
    def sampled(self) -> bool:
        """Tell whether given distances to sampled rows are kept."""
        return self.metric == GIVEN and "sampled" in self.run.results("survey")

    @property
    def edges(self) -> int:
        """Count the edges, each from both of its rows."""
        return int(self.run.results("graph")["edges"])

    @property
    def matrix(self) -> StoredMatrix:
        """Return squared distances by row blocks, in internal order; the diagonal is stored as 0."""
        return self.run.matrix(self.stage)

    @declared
    def recall_in(self, X: Any, n_neighbors: int | None = None, *, rows: int = 1_000, seed: int = 0) -> Recall:
        """Measure recall@k in other rows of the same points: the share of their k nearest that the lists hold.

        It is measured on sampled rows against all of ``X``, in one pass.

        Parameters
        ----------
        X : array of shape (n, any)
            The other rows, in the order of the input.
        n_neighbors : int or None
            The number k; None is that of the graph.
        rows : int
            The number of sampled rows.
        seed : int
            The seed of the sample.

        Returns
        -------
        Recall
            With ``recall``, ``standard_error``, ``rows`` and ``n_neighbors``.
        """
        if self.dense:
            return Recall(1.0, 0.0, min(rows, self.n), self.n - 1 if n_neighbors is None else n_neighbors)
        if self.n_neighbors is None or not self.run.has("search"):
            rule = "joins all rows within a radius" if self.n_neighbors is None else "is one of given distances"
            raise InputError(f"recall_in needs lists of k nearest neighbors that were searched; this graph {rule}")
        k = self.n_neighbors if n_neighbors is None else n_neighbors
        if rows < 1 or seed < 0:
            raise InputError(f"rows={rows}, seed={seed}; rows ≥ 1 and seed ≥ 0 are allowed")
        numbers = np.sort(np.random.default_rng([seed, 4]).choice(self.n, min(rows, self.n), replace=False))
        near, _ = exact_neighbors(X, numbers, k)
        ordered = Ordered.open(self.run.path("order"))
        truth = Truth(internal_ids(ordered, numbers), internal_ids(ordered, near))
        return share_found(truth, self.run.path("search"), ordered, self.n_neighbors)

    def original_ids(self) -> Array:
        """Return the row of the input for each internal id, in this process.

        Returns
        -------
        ndarray of shape (n,), int64
            The rows.
        """
        ordered = Ordered.open(self.run.path("order"))
        return np.concatenate([ordered.ids(b) for b in range(len(ordered.blocks))])

    def to_scipy(self) -> Any:
        """Read the whole graph as a SciPy matrix of distances (n·k entries in this process).

        Returns
        -------
        csr_array of shape (n, n)
            The distances, in the order of the input.
        """
        parts = [edges_of(b, self._view()) for b in range(len(self.matrix.rows))]
        row, column, data = (np.concatenate(part) for part in zip(*parts, strict=True))
        return coo_array((data, (row, column)), shape=(self.n, self.n)).tocsr()

    def lists(self, k: int | None = None) -> tuple[Array, Array]:
        """Return the nearest rows of each row: directed lists, nearest first, in the order of the input.

        Parameters
        ----------
        k : int or None
            How many neighbors of each row, itself not counted; None is all that the graph has.

        Returns
        -------
        pair of ndarray of shape (n, k)
            Numbers of rows, and distances; openTSNE's ``PrecomputedNeighbors`` takes the two. By cosine or
            correlation the distances are Euclidean ones of scaled rows, √(2 (1 − r)), in the same order as 1 − r.
        """

        return lists_of(self, k)

    def query(self, rows: Any, k: int | None = None) -> tuple[Array, Array]:
        """Return the nearest rows of the graph for each of other rows.

        Parameters
        ----------
        rows : array of shape (m, d)
            The rows, of any kind.
        k : int or None
            How many neighbors, up to ``n_neighbors`` + 1; None is ``n_neighbors``.

        Returns
        -------
        pair of ndarray of shape (m, k)
            Numbers of rows of the graph, nearest first, and distances as those of :meth:`lists`.
        """

        return query_of(self, rows, k)

    def knn(self) -> tuple[Array, Array, None]:
        """Return the lists as umap-learn's ``precomputed_knn``: each row is the first of its own neighbors.

        Returns
        -------
        tuple
            Indices and distances (float32) of shape (n, k + 1), and None for a search index.
        """
        indices, distances = self.lists()
        own = np.arange(self.n)[:, None]
        found = np.hstack([np.zeros(own.shape), distances]).astype(np.float32)
        return np.hstack([own, indices]), found, None

    def to_parquet(self, path: str | os.PathLike[str], *, overwrite: bool = False) -> None:
        """Write the edges, each from both of its rows, as columns source, target and distance; block by block.

        ``source`` and ``target`` are rows of the input; ``open_graph(path, values="distances")`` reads the file.

        Parameters
        ----------
        path : path
            The path of the file.
        overwrite : bool
            Whether a file that is there is replaced.
        """
        view = self._view()
        blocks = (edges_of(b, view) for b in range(len(self.matrix.rows)))
        write_columns(path, (dict(zip(EDGE_COLUMNS, block, strict=True)) for block in blocks), overwrite)

    def plot(self, axes: Any = None) -> Any:
        """Draw how many edges the rows have, and how long edges are; one pass over the graph.

        Parameters
        ----------
        axes : pair of matplotlib.axes.Axes, or None
            Where to draw; None is a new figure of pyplot.

        Returns
        -------
        pair of matplotlib.axes.Axes
            The axes.
        """
        left, right = found = new_axes(2) if axes is None else axes
        degrees, lengths, step = np.zeros(1, np.int64), [], max(1, self.edges // SHOWN_EDGES)
        for b in range(len(self.matrix.rows)):
            block = self.matrix.block(b)
            counts = np.bincount(np.diff(block.indptr) - 1)  # (without the diagonal)
            degrees = np.pad(degrees, (0, max(0, len(counts) - len(degrees))))
            degrees[: len(counts)] += counts
            lengths.append(np.sqrt(block.data[block.data > 0][::step]))
        there = np.flatnonzero(degrees)
        left.stem(there, degrees[there], basefmt=" ", linefmt=ACCENT, markerfmt=" ")
        left.set(xlabel="edges of a row", ylabel="rows")
        right.hist(np.concatenate(lengths), bins=60, color=ACCENT)
        right.set(xlabel="length of an edge", ylabel="edges" if step == 1 else f"edges, one of {step}")
        return found

    def _view(self) -> EdgeView:
        starts = read_array(self.run.path("graph", "starts"))
        return EdgeView(self.matrix, Ordered.open(self.run.path("order")), tuple(starts.tolist()))


@dataclass(frozen=True)
class EdgeView:
    """Where the edges of a graph lie, and what its rows are in the input."""

    matrix: StoredMatrix
    ordered: Ordered
    starts: tuple[int, ...]


def edges_of(b: int, view: EdgeView) -> tuple[Array, Array, Array]:
    """Rows of the input at both ends of the edges of one block, and their lengths; float64, no row with itself."""
    block, ordered = view.matrix.block(b), view.ordered
    far = [ordered.ids(source)[rows] for source, rows in block.segments()]
    ids = np.concatenate([ordered.ids(b), *far])
    internal = block.ids(b, view.starts)
    row = block.row
    edge = internal[row] != internal[block.indices]
    return ids[row[edge]], ids[block.indices[edge]], np.sqrt(block.data[edge].astype(np.float64))


# ------------------------------------------------------------------------------------------------------------- lists
# Lists of nearest rows, as other libraries take them: of the rows of the graph, and of new ones.

QUERIED = 16_384
"""New rows that are looked up at a time."""


def lists_of(graph: NeighborGraph, k: int | None = None) -> tuple[Array, Array]:
    """Return the k nearest rows of each row, itself not counted: numbers (n, k) int64 and distances (n, k) float64.

    They are directed, nearest first, and in the order of the input; n·k entries in this process.
    """
    wanted = _checked(graph, k, graph.n_neighbors)
    ordered, original = Ordered.open(graph.run.path("order")), graph.original_ids()
    indices, distances = np.empty((graph.n, wanted), np.int64), np.empty((graph.n, wanted))
    for b in range(len(ordered.blocks)):
        ids, squared = (read_array(graph.run.path("search", f"{name}/{b}"))[:, :wanted] for name in LISTS)
        indices[ordered.ids(b)] = original[ids]
        distances[ordered.ids(b)] = np.sqrt(squared.astype(np.float64))
    return indices, distances


LISTS = ("neighbors", "squared")


def query_of(graph: NeighborGraph, rows: Any, k: int | None = None) -> tuple[Array, Array]:
    """Return the k nearest rows of the graph for each of other rows: numbers (m, k) int64 and distances (m, k).

    A row that the graph has is its own nearest one, at distance 0.
    """
    wanted = _checked(graph, k, None if graph.n_neighbors is None else graph.n_neighbors + 1)
    source, _ = row_source(rows, graph.run.root / "exchange", "query", sparse=True)
    if len(source.shape) != 2 or source.shape[1] != graph.n_features:
        raise InputError(f"query: rows of {graph.n_features} columns are needed; got shape {source.shape}")
    found = map_blocks(
        query_block, bounds(source.shape[0], QUERIED), source=source, graph=graph, shape=graph.shape, k=wanted
    )
    original = graph.original_ids()
    none = np.zeros((0, wanted))
    indices = np.concatenate([none.astype(np.int64), *(ids for ids, _ in found)])
    return original[indices], np.concatenate([none, *(distances for _, distances in found)])


def query_block(start: int, stop: int, *, source: Any, graph: NeighborGraph, shape: Shape, k: int) -> Any:
    """The nearest rows, by internal ids, of some of the rows of a source, and their distances."""
    rows = kind_of_fitted(source.read(start, stop), shape)
    if not np.isfinite(rows.data if is_sparse(rows) else rows).all():
        raise InputError(f"query: some of the rows {start} to {stop - 1} hold NaN or infinity")
    refuse_inadmissible(rows, shape, start)
    given, index = prepare(rows, shape), index_of(graph.run, shape)
    fitted = Fitted(index)
    block, cell = locate(given, fitted.cells.ordered, index.centers)
    home = fitted.cells.block_starts[block] + cell
    order = np.argsort(home, kind="stable")
    found = fitted.search(given[order], home[order])
    ids, squared = np.empty((stop - start, k), np.int64), np.empty((stop - start, k))
    ids[order], squared[order] = found.ids[:, :k], found.squared[:, :k]
    return ids, np.sqrt(squared)


def _checked(graph: NeighborGraph, k: int | None, most: int | None) -> int:
    """How many neighbors are asked for; InputError where a graph has no lists, or shorter ones."""
    if graph.n_neighbors is None or not graph.run.has("search"):
        rule = "joins all rows within a radius" if graph.n_neighbors is None else "has no lists of its own"
        raise InputError(f"this graph {rule}; lists are of a graph of k nearest neighbors that was built of rows")
    assert most is not None
    wanted = graph.n_neighbors if k is None else int(k)
    if not 1 <= wanted <= most:
        raise InputError(f"k={k}; lists of this graph hold up to {most} rows. Build it with a larger n_neighbors")
    return wanted
