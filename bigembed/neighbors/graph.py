"""The neighbor graph: from rows to a symmetric graph by row blocks that any method can use."""

from __future__ import annotations

import os
import warnings
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from bigembed.blocks.declared import declared
from bigembed.blocks.rows import Array, remote
from bigembed.errors import InputError, RecallWarning
from bigembed.neighbors.every_pair import every_pair_stage, is_dense, recalled_stage
from bigembed.neighbors.given_graph import edge_graph_stages
from bigembed.neighbors.ground_truth import recall_stage, witness_stage
from bigembed.neighbors.order import Ordered, order_stage, partition_stage
from bigembed.neighbors.radius import density_stage, radius_edges, radius_graph_stage
from bigembed.neighbors.recall import Recall, Truth, exact_neighbors, internal_ids, missed, share_found
from bigembed.neighbors.rerank import follow_stage, rerank_stage, reranked_recall_stage, true_witness_stage
from bigembed.neighbors.search import search_stage, shortlist_stage
from bigembed.neighbors.survey import METRICS, Shape, checked_metric, shape_of, survey_stage
from bigembed.neighbors.symmetrize import graph_stage
from bigembed.runs import Run
from bigembed.stages import Stage, run_stages
from bigembed.store.arrays import read_array
from bigembed.store.graph_source import GraphSource
from bigembed.store.input import row_source
from bigembed.store.matrix import StoredMatrix
from bigembed.store.source import RowSource
from bigembed.store.tables import write_columns

CELL_ROWS = 192
EDGE_COLUMNS = ("source", "target", "distance")


QUERY_ARRAYS = {
    "survey": (),
    "partition": ("centers",),
    "shortlist": ("shortlist",),
    "recall": ("",),
    "order": (
        "rows",
        "ids",
        "blocks",
        "starts",
        "cell_offsets",
        "cell_centers_of",
        "cell_centers",
        "cell_starts",
        "cell_block_starts",
    ),
    "search": ("rho_squared", "kappa", "probed", "asked", "asked_indptr"),
    "density": ("cell_radii",),
    "graph": ("rho_squared",),
}
"""Stages and arrays of a graph that a query of new rows reads: what a saved model keeps."""


def neighbor_stages(
    source: RowSource,
    n_neighbors: int | None,
    metric: str,
    recall: float,
    seed: int,
    *,
    radius: float | None = None,
    most: int | None = None,
) -> list[Stage]:
    """Stages from rows to the symmetric graph of k nearest neighbors, recall measured, of all within a radius, or of
    every pair. ``most``: rows of a block, at most."""
    shape = replace(shape_of(source, metric), most=most)
    if radius is not None:
        if shape.n < 2:
            raise InputError(f"a graph needs at least 2 rows; got n_samples = {shape.n}")
        return [
            survey_stage(source, shape, seed),
            partition_stage(shape, seed),
            order_stage(source, shape, CELL_ROWS, seed),
            density_stage(shape, float(radius), seed),
            radius_graph_stage(shape, float(radius)),
        ]
    if is_dense(n_neighbors, shape):
        return [
            survey_stage(source, shape, seed),
            partition_stage(shape, seed),
            order_stage(source, shape, CELL_ROWS, seed),
            every_pair_stage(shape, seed),
            recalled_stage(shape.n, recall),
        ]
    k = n_neighbors if n_neighbors is not None else shape.n - 1
    return [
        *search_stages(source, n_neighbors, metric, recall, seed, most),
        graph_stage(shape.n, k, shape.block),
        recall_stage(recall),
    ]


def search_stages(
    source: RowSource, n_neighbors: int | None, metric: str, recall: float, seed: int, most: int | None = None
) -> list[Stage]:
    """Stages from rows to the lists of their nearest neighbors."""
    shape = replace(shape_of(source, metric), most=most)
    k = n_neighbors if n_neighbors is not None else shape.n - 1
    if shape.n < k + 1 or k < 1:
        raise InputError(
            f"n_neighbors={n_neighbors} needs at least {max(k, 1) + 1} rows (the row itself is not "
            f"counted); got n_samples = {shape.n}. Lower n_neighbors or give more rows"
        )
    return [
        survey_stage(source, shape, seed),
        partition_stage(shape, seed),
        order_stage(source, shape, CELL_ROWS, seed),
        shortlist_stage(shape.n, shape.row_bytes, CELL_ROWS),
        witness_stage(shape, k, recall, seed),
        search_stage(shape.n, shape.row_bytes, k, shape.block),
    ]


def rerank_stages(
    source: RowSource, given: Run, n_neighbors: int, n_candidates: int, metric: str, recall: float, seed: int
) -> list[Stage]:
    """Stages from candidate lists of other rows of the same points to the graph of these rows."""
    shape = shape_of(source, metric)
    n = given.results("survey")["n"]
    if n != shape.n:
        raise InputError(f"candidates were found among {n} rows, X has {shape.n}; both must be of the same points")
    if not 1 <= n_neighbors <= n_candidates:
        raise InputError(
            f"n_neighbors={n_neighbors} of n_candidates={n_candidates} candidates; it must be from 1 to n_candidates"
        )
    return [
        survey_stage(source, shape, seed),
        follow_stage(source, shape, given, seed),
        true_witness_stage(shape, n_neighbors, seed),
        rerank_stage(shape, n_neighbors, n_candidates, given),
        graph_stage(shape.n, n_neighbors, shape.block),
        reranked_recall_stage(recall, n_candidates, given),
    ]


def edge_bound(shape: Shape, n_neighbors: int | None, radius: float | None) -> int:
    """Edges of a graph that a plan counts with."""
    if radius is not None:
        return radius_edges(shape)
    return 2 * shape.n * min(shape.n, n_neighbors or shape.n)


class NeighborGraph:
    """A symmetric graph of near rows on disk, in a row order in which near rows lie together.

    i and j are joined if either is among the k nearest of the other (``n_neighbors``), or if they are within
    ``radius`` of each other. ``fit`` of any method on a graph takes it in place of rows, so one graph serves many
    embeddings. :func:`bigembed.build_neighbor_graph` makes it, and opens one that lies at its ``workdir``.

    Parameters
    ----------
    run : the run that holds the stages of the graph.
    in_memory : bool. Whether the rows were given in memory, so that methods answer with NumPy arrays.
    stage : the published stage that holds the edges: "graph", or "bridge" with bridges between components.

    Attributes
    ----------
    n, n_features, metric : of the rows.
    n_neighbors, radius : k, or the radius; the other one is None.
    recall : float, the share of true neighbors found, measured; 1 for a radius, and for given distances.
    edges : int, each counted from both of its rows.
    matrix : squared distances by row blocks, in the order of the graph. ``original_ids()`` are the rows of the input.
    shape, block : of the rows, and how many a canonical block holds.
    dense : whether it joins every pair of few rows, as one block without lists of neighbors.
    scaled : whether it says how far the k-th neighbor of each row lies; a graph of a matrix of distances does not.

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

    def __init__(self, run: Run, in_memory: bool = False, stage: str = "graph") -> None:
        self.run = run
        self.in_memory = in_memory
        self.stage = stage
        survey = run.results("survey")
        self.n: int = survey["n"]
        self.n_features: int = survey["d"]
        self.metric: str = survey["metric"]
        self.shape = Shape(self.n, self.n_features, survey["dtype"], self.metric)
        self.block: int = self.shape.block if self.metric in METRICS else _first_block(run)
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
        """Share of true neighbors found, measured on sampled rows against all rows; 1 where all pairs were compared."""
        return float(self.run.results("recall")["recall"]) if self.run.has("recall") else 1.0

    @property
    def dense(self) -> bool:
        """Whether it holds every pair of rows, as one block and without lists."""
        given = self.metric in METRICS and self.n_neighbors is not None
        return given and self.run.has("graph") and not self.run.has("search")

    @property
    def scaled(self) -> bool:
        """Whether it says how far each row lies from its k-th neighbor: not so of a matrix of given distances."""
        return self.metric in METRICS or bool(self.run.results("graph").get("scales"))

    @property
    def edges(self) -> int:
        """Edges, each counted from both of its rows."""
        return int(self.run.results("graph")["edges"])

    @property
    def matrix(self) -> StoredMatrix:
        """Squared distances by row blocks, in internal order; the diagonal is stored as 0."""
        return self.run.matrix(self.stage)

    @declared
    def recall_in(self, X: Any, n_neighbors: int | None = None, *, rows: int = 1_000, seed: int = 0) -> Recall:
        """recall@k in other rows of the same points: the share of the k nearest in ``X`` that the lists hold.

        ``X`` (n, any) in the order of the input; k by default that of the graph. Measured on ``rows`` sampled rows
        against all of ``X``, in one pass: ``recall``, ``standard_error``, ``rows``, ``n_neighbors``.
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
        """Row of the input for each internal id, (n,) int64; in this process."""
        ordered = Ordered.open(self.run.path("order"))
        return np.concatenate([ordered.ids(b) for b in range(len(ordered.blocks))])

    def to_scipy(self) -> Any:
        """The whole graph as a SciPy CSR matrix of distances in the order of the input (n·k in this process)."""
        from scipy.sparse import coo_array

        parts = [edges_of(b, self._view()) for b in range(len(self.matrix.rows))]
        row, column, data = (np.concatenate(part) for part in zip(*parts, strict=True))
        return coo_array((data, (row, column)), shape=(self.n, self.n)).tocsr()

    def to_parquet(self, path: str | os.PathLike[str], *, overwrite: bool = False) -> None:
        """Write the edges, each from both of its rows, as columns source, target and distance; block by block.

        ``source`` and ``target`` are rows of the input; ``open_graph(path, values="distances")`` reads the file.
        """
        view = self._view()
        blocks = (edges_of(b, view) for b in range(len(self.matrix.rows)))
        write_columns(path, (dict(zip(EDGE_COLUMNS, block, strict=True)) for block in blocks), overwrite)

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
    row = np.repeat(np.arange(view.matrix.rows[b]), np.diff(block.indptr))
    edge = internal[row] != internal[block.indices]
    return ids[row[edge]], ids[block.indices[edge]], np.sqrt(block.data[edge].astype(np.float64))


def _first_block(run: Run) -> int:
    return int(read_array(run.path("order", "starts"), 0, 2)[1])


@declared
def build_neighbor_graph(
    X: Any,
    n_neighbors: int | None = 15,
    *,
    radius: float | None = None,
    metric: str = "euclidean",
    recall: float = 0.99,
    candidates: Any = None,
    n_candidates: int | None = None,
    random_state: int = 0,
    workdir: str | os.PathLike[str] | None = None,
) -> NeighborGraph:
    """Build the symmetric graph of the k nearest neighbors of every row, or of all within a radius, beyond memory.

    Parameters
    ----------
    X : rows (n, d): a path of a Zarr array or .npy, a zarr, Dask or NumPy array. Or a graph of distances that was found
        elsewhere (:func:`bigembed.open_graph`), which is taken as it is: only ``workdir`` then counts.
    n_neighbors : int ≥ 1, the row itself not counted; not used where a radius is given.
    radius : number > 0 or None. Instead, join all rows at most this far apart, in units of the data (of rows of length
        one for "cosine"); found exactly. A sample shows first how many edges there will be; too many are a PlanError
        that proposes a radius.
    metric : "euclidean", or "cosine" (Euclidean between rows scaled to length one).
    recall : float in (0, 1]. Target; the number of cells searched is chosen to meet it, and it is measured.
    candidates : rows (n, m) of the same points in the order of X, for example a few principal components, or a
        NeighborGraph of such rows; None searches X itself. Each row's neighbors are then the nearest, by X, of its
        ``n_candidates`` nearest rows there (seed 004, §5). Recall is that of X, measured as ever.
    n_candidates : int ≥ n_neighbors or None: max(50, 4 n_neighbors), or all that a given graph has.
    random_state : int ≥ 0: of the sampled rows and the partition.
    workdir : path or None. Where the graph is kept (and resumed); None is temporary.

    Returns
    -------
    NeighborGraph

    Raises
    ------
    InputError : NaN or infinity (rows named), fewer rows than neighbors, parameters out of range.
    PlanError : a radius that joins too many rows.
    A recall below the target is a :class:`RecallWarning`.

    Notes
    -----
    Cost: two passes over the rows, then about three over an ordered copy; with candidates that for the candidates,
    and the same for the rows, of which each is compared with ``n_candidates`` only. Memory: a few blocks of 32 MiB a
    worker.

    Examples
    --------
    >>> import numpy as np
    >>> graph = build_neighbor_graph(np.arange(10.0)[:, None], n_neighbors=2)
    >>> graph.recall, graph.to_scipy()[[0], [1]].item()
    (1.0, 1.0)
    """
    _check(radius, metric, recall, random_state, candidates, n_candidates)
    if isinstance(X, GraphSource):
        return _of_edges(X, workdir)
    if candidates is not None and (radius is not None or n_neighbors is None):
        raise InputError("candidates serve a graph of k nearest neighbors: give n_neighbors, and no radius")
    run = Run(workdir)
    source, in_memory = row_source(X, run.root / "exchange")
    if candidates is None or n_neighbors is None:
        stages = neighbor_stages(source, n_neighbors, metric, recall, random_state, radius=radius)
    else:
        given, width = _candidates(candidates, n_neighbors, n_candidates, recall, random_state, run)
        run.parents = (given,)
        stages = rerank_stages(source, given, n_neighbors, width, metric, recall, random_state)
    run_stages(stages, run)
    if radius is None and (measured := run.results("recall"))["recall"] < measured["target"]:
        warnings.warn(missed(measured), RecallWarning, stacklevel=3)
    return NeighborGraph(run, in_memory)


def _of_edges(source: GraphSource, workdir: str | os.PathLike[str] | None) -> NeighborGraph:
    """The graph of edges that somebody else found."""
    run = Run(workdir)
    run_stages(edge_graph_stages(source.settled(run.root / "exchange") if remote() else source), run)
    return NeighborGraph(run, source.path is None)


def _check(
    radius: float | None, metric: str, recall: float, random_state: int, candidates: Any, n_candidates: int | None
) -> None:
    """InputError unless the parameters are in their ranges."""
    checked_metric(metric)
    wrong = []
    if radius is not None and not (radius > 0 and np.isfinite(radius)):
        wrong.append(f"radius={radius!r}; a finite number > 0 is allowed, or None with n_neighbors")
    if not 0 < recall <= 1:
        wrong.append(f"recall={recall!r}; allowed: a number in (0, 1]")
    if random_state < 0:
        wrong.append(f"random_state={random_state!r}; allowed: an integer ≥ 0")
    if n_candidates is not None and candidates is None:
        wrong.append(f"n_candidates={n_candidates!r}; it goes with candidates, which were not given")
    if wrong:
        raise InputError(f"build_neighbor_graph: {'; '.join(wrong)}")


def _candidates(
    candidates: Any, k: int, n_candidates: int | None, recall: float, seed: int, run: Run
) -> tuple[Run, int]:
    """The run that holds the lists of candidates, and how many of them to take."""
    if isinstance(candidates, NeighborGraph):
        if candidates.n_neighbors is None or candidates.dense:
            rule = "of every pair" if candidates.dense else "of a radius"
            raise InputError(f"candidates come from a graph of k nearest neighbors; this one is {rule}")
        wanted = candidates.n_neighbors if n_candidates is None else n_candidates
        if wanted > candidates.n_neighbors:
            raise InputError(f"n_candidates={wanted}; the graph of candidates has {candidates.n_neighbors} a row")
        return candidates.run, wanted
    home = Run(run.root / "candidates")
    source, _ = row_source(candidates, home.root / "exchange")
    wanted = min(source.shape[0] - 1, max(50, 4 * k)) if n_candidates is None else n_candidates
    run_stages(search_stages(source, wanted, "euclidean", recall, seed), home)
    return home, wanted
