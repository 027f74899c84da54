"""The neighbor graph: from rows to a symmetric graph by row blocks that any method can use."""

from __future__ import annotations

import os
from typing import Any

import numpy as np

from bigembed.blocks.rows import Array
from bigembed.errors import InputError
from bigembed.neighbors.order import Ordered, order_stage, partition_stage
from bigembed.neighbors.search import search_stage, shortlist_stage
from bigembed.neighbors.survey import Shape, shape_of, survey_stage
from bigembed.neighbors.symmetrize import graph_stage
from bigembed.neighbors.witness import recall_stage, witness_stage
from bigembed.stages import Run, Stage, run_stages
from bigembed.store.arrays import RowSource, read_array
from bigembed.store.input import row_source
from bigembed.store.matrix import StoredMatrix

CELL_ROWS = 192
COMPLETE_ROWS = 4_096


def neighbor_stages(source: RowSource, n_neighbors: int | None, metric: str, recall: float, seed: int) -> list[Stage]:
    """Stages from rows to the symmetric graph with measured recall."""
    shape = shape_of(source, metric)
    k = n_neighbors if n_neighbors is not None else shape.n - 1
    if n_neighbors is None and shape.n > COMPLETE_ROWS:
        raise InputError(
            f"n_neighbors=None takes every pair of rows, which is meant for n ≤ {COMPLETE_ROWS}; got n = "
            f"{shape.n}. Give a number of neighbors"
        )
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
        graph_stage(shape.n, k, shape.block),
        recall_stage(recall),
    ]


class NeighborGraph:
    """A symmetric graph of k nearest neighbors on disk, in a row order in which near rows lie together.

    i and j are joined if either is among the k nearest of the other. ``fit`` of any spectral method
    takes it in place of rows, so one graph serves many embeddings.
    """

    def __init__(self, run: Run, in_memory: bool = False) -> None:
        self.run = run
        self.in_memory = in_memory
        survey = run.results("survey")
        self.n: int = survey["n"]
        self.n_features: int = survey["d"]
        self.metric: str = survey["metric"]
        self.block: int = Shape(self.n, self.n_features, survey["dtype"], self.metric).block
        self.n_neighbors: int = run.results("search")["n_neighbors"]

    def __repr__(self) -> str:
        return (
            f"NeighborGraph(n={self.n}, n_neighbors={self.n_neighbors}, metric={self.metric!r}, "
            f"recall={self.recall:.4f}, path={str(self.run.root)!r})"
        )

    @property
    def recall(self) -> float:
        """Share of true neighbors found, measured on sampled rows against all rows."""
        return float(self.run.results("recall")["recall"])

    @property
    def matrix(self) -> StoredMatrix:
        """Squared distances by row blocks, in internal order; the diagonal is stored as 0."""
        rows = Ordered.open(self.run.path("order")).rows_of
        return StoredMatrix(
            self.run.path("graph"), self.run.path("graph", "squared"), rows, self.run.manifest("graph").digest
        )

    def original_ids(self) -> Array:
        """Row of the input for each internal id, (n,) int64; in this process."""
        ordered = Ordered.open(self.run.path("order"))
        return np.concatenate([ordered.ids(b) for b in range(len(ordered.blocks))])

    def to_scipy(self) -> Any:
        """The whole graph as a SciPy CSR matrix of distances in the order of the input (n·k in this process)."""
        from scipy.sparse import coo_array

        matrix, starts = self.matrix, read_array(self.run.path("graph", "starts"))
        ids = self.original_ids()
        parts = []
        for b in range(len(matrix.rows)):
            block = matrix.block(b)
            own = np.arange(starts[b], starts[b + 1])
            far = np.repeat(starts[block.halo_sources], np.diff(block.halo_offsets)) + block.halo_rows
            column = np.concatenate([own, far])[block.indices]
            row = np.repeat(own, np.diff(block.indptr))
            edge = row != column
            parts.append((np.sqrt(block.data[edge].astype(np.float64)), ids[row[edge]], ids[column[edge]]))
        data, row, column = (np.concatenate(part) for part in zip(*parts, strict=True))
        return coo_array((data, (row, column)), shape=(self.n, self.n)).tocsr()


def build_neighbor_graph(
    X: Any,
    n_neighbors: int = 15,
    *,
    metric: str = "euclidean",
    recall: float = 0.99,
    random_state: int = 0,
    workdir: str | os.PathLike[str] | None = None,
) -> NeighborGraph:
    """Build the symmetric graph of the k nearest neighbors of every row, larger than memory.

    Parameters
    ----------
    X : rows (n, d): a path of a Zarr array or .npy, a zarr, Dask or NumPy array.
    n_neighbors : int ≥ 1, the row itself not counted.
    metric : "euclidean", or "cosine" (Euclidean between rows scaled to length one).
    recall : float in (0, 1]. Target; the number of cells searched is chosen to meet it, and it is measured.
    workdir : path or None. Where the graph is kept (and resumed); None is temporary.

    Returns
    -------
    NeighborGraph

    Notes
    -----
    Cost: two passes over the rows, then about three over an ordered copy. Memory: a few blocks of 32 MiB a worker.

    Examples
    --------
    >>> import numpy as np
    >>> graph = build_neighbor_graph(np.arange(10.0)[:, None], n_neighbors=2)
    >>> graph.recall, graph.to_scipy()[[0], [1]].item()
    (1.0, 1.0)
    """
    run = Run(workdir)
    source, in_memory = row_source(X, run.root / "exchange")
    run_stages(neighbor_stages(source, n_neighbors, metric, recall, random_state), run)
    return NeighborGraph(run, in_memory)
