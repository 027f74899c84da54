"""Building a neighbor graph: what the arguments of a call ask for, checked, and run."""

from __future__ import annotations

import os
import warnings
from collections.abc import Mapping
from typing import Any

import numpy as np

from bigembed.distance.metrics import checked_metric
from bigembed.errors import InputError, RecallWarning
from bigembed.neighbors.given import GIVEN, edge_graph_stages, is_given
from bigembed.neighbors.given.distances import Rule, distance_stages, length_graph
from bigembed.neighbors.graph import NeighborGraph
from bigembed.neighbors.graph_stages import neighbor_stages, rerank_stages, search_stages
from bigembed.neighbors.outside_lists import ByLists, checked_parameters, outside_by
from bigembed.neighbors.search import checked_algorithm, doubts
from bigembed.rows import edges, may_be_copied, opening
from bigembed.rows.graph_source import GraphSource, as_graph
from bigembed.rows.input import row_source
from bigembed.runtime.executors import executor_now
from bigembed.runtime.parameters import declared
from bigembed.stages import Run, require_worker_memory, run_stages
from bigembed.stages.stage import keeping_copies


@declared
def build_neighbor_graph(
    X: Any,
    n_neighbors: int | None = 15,
    *,
    radius: float | None = None,
    metric: Any = "euclidean",
    recall: float = 0.99,
    algorithm: str = "auto",
    algorithm_params: Mapping[str, Any] | None = None,
    candidates: Any = None,
    n_candidates: int | None = None,
    random_state: int = 0,
    workdir: str | os.PathLike[str] | None = None,
) -> NeighborGraph:
    """Build the symmetric graph of the k nearest neighbors of every row, or of all within a radius, beyond memory.

    Parameters
    ----------
    X : array of shape (n, d), or graph
        The rows: the path of a Zarr array or .npy, or a zarr, Dask or NumPy array. Sparse rows (SciPy, Dask arrays of
        CSR blocks, a CSR group in Zarr) are never made dense. A graph of distances that was found elsewhere
        (:func:`bigembed.open_graph`) is taken as it is: only ``workdir`` then counts. With metric="precomputed" these
        are distances (n, n), in any form that rows have, or as a SciPy sparse matrix of lengths.
    n_neighbors : int ≥ 1
        The number k of neighbors, the row itself not counted; it is not used where a radius is given.
    radius : float > 0 or None
        The distance up to which all rows are joined instead, in units of the data (of rows of length one for "cosine");
        they are found exactly. A sample shows first how many edges there will be; too many are a PlanError that
        proposes a radius.
    metric : str or function
        The distance of two rows x and y of d columns, whose square the kernels of the methods take. Euclidean distances
        of mapped rows are compared fast: "euclidean"; "cosine", of x/‖x‖; "correlation", of x less its mean, scaled to
        length one; "hellinger", of √(x/2Σx), so that it is √(1 − Σ√(p q)) of proportions p and q; "spearmanr", the same
        as "correlation" of the ranks of a row; "haversine", of the points of the unit sphere at a latitude and a
        longitude in radians, the chord 2 sin(θ/2). Others are compared pair by pair: "manhattan" Σ|x − y|; "chebyshev"
        max|x − y|; "canberra" Σ|x − y|/(|x| + |y|); "braycurtis" Σ|x − y|/Σ|x + y|; "hamming", the share of columns in
        which they differ; and of the sets of columns that are not 0, b in both and c in one of them, "jaccard" c/(b +
        c), "dice" c/(2b + c), "rogerstanimoto" 2c/(d + c), "sokalsneath" 2c/(b + 2c), "matching" c/d, "kulsinski" (c −
        b + d)/(c + d), "russellrao" (d − b)/d (of equal sets 0) and "yule" 2uv/(b(d − b − c) + uv), with u columns in x
        and v in y alone. Of proportions: "jensenshannon", the root of the divergence; "symmetric_kl", as pynndescent
        has it; "wasserstein_1d" and, on a circle, "circular_kantorovich", of histograms along the columns. And
        "sqeuclidean"; "true_angular" θ/π; "tsss", a triangle times a sector; of packed bits "bit_hamming", how many
        differ, and "bit_jaccard"; and "gower", of the columns that :class:`bigembed.GowerEncoder` makes of a table of
        numbers and categories. A function of two rows must be one that numba can compile, f(x, y), of sparse rows
        f(indices, values, indices, values), or its name "module:function"; it is tried on a few rows first. With
        "precomputed" X holds the distances, of which the k smallest of each row are edges, or those within the radius.
    recall : float in (0, 1]
        The target share of true neighbors; how far is searched is chosen to meet it, and it is measured.
    algorithm : {"auto", "cells", "nn-descent", "pynndescent"}
        How neighbors are searched. "cells" searches exactly in the cells of near rows; "nn-descent" is for rows of high
        intrinsic dimension; "auto" takes cells unless these would miss ``recall`` and NN-descent fits. "pynndescent"
        has that library find candidates in one task that holds all rows (a plan says what it takes); their distances
        are then those of any other search.
    algorithm_params : dict or None
        Parameters for pynndescent's ``NNDescent``, such as n_trees, n_iters or n_jobs. None has one thread, since its
        lists depend on the number of threads.
    candidates : array of shape (n, m), NeighborGraph, lists of neighbors or None
        Rows of the same points in the order of X, for example a few principal components, or a NeighborGraph built of
        such rows; None searches X itself. Each row's neighbors are then the nearest, by X, of its ``n_candidates``
        nearest rows there (seed 004, §5). Lists of neighbors (a pynndescent index, its ``neighbor_graph``, umap's
        tuple, or such lists by :func:`bigembed.open_graph`) are candidates, too, with the rows of the nearest cells of
        X. Recall is that of X, measured as ever.
    n_candidates : int ≥ n_neighbors, or None
        How many candidates each row has; None is max(50, 4 n_neighbors), or all that a given graph has.
    random_state : int ≥ 0
        The seed of the sampled rows and the partition.
    workdir : path or None
        Where the graph is kept, and from where a build that was stopped goes on; None is a temporary folder.

    Returns
    -------
    NeighborGraph
        The graph, which ``fit`` of any method on a graph takes in place of rows.

    Raises
    ------
    InputError
        If rows hold NaN or infinity (they are named), there are fewer rows than neighbors, parameters are out of range,
        the metric is not defined for rows, a function or given distances are not symmetric or not ≥ 0, or a radius or
        candidates are given with sparse rows or a metric that is compared pair by pair.
    PlanError
        If a radius joins too many rows.

    Warns
    -----
    RecallWarning
        If the recall is below the target.

    Notes
    -----
    Cost: two passes over the rows, then about three over an ordered copy; with ``candidates`` as many over these and
    as many over the rows, each of which is compared with ``n_candidates`` others only. Memory: a few blocks of 32 MiB a
    worker. Rows are ordered by their Euclidean distances whatever the metric, and sparse ones by random projections to
    64 columns; neighbors are exact by the metric among the rows that are compared, and how many these are is chosen by
    the recall. NN-descent adds some rounds, in each of which every block asks for the rows that are candidates of its
    own: 256 MiB of rows a worker; new rows then walk along its lists, nearest rows first (Hajebi et al.). Given
    distances are read once, each chunk by the one task that it belongs to: 64 MiB of them a task, or a chunk of its
    rows, and 80 bytes an edge.

    References
    ----------
    W. Dong, M. Charikar, K. Li, Efficient k-nearest neighbor graph construction for generic similarity measures, WWW
    (2011). K. Hajebi, Y. Abbasi-Yadkori, H. Shahbazi, H. Zhang, Fast approximate nearest-neighbor search with k-nearest
    neighbor graph, IJCAI (2011).

    Examples
    --------
    >>> import numpy as np
    >>> graph = build_neighbor_graph(np.arange(10.0)[:, None], n_neighbors=2)
    >>> graph.recall, graph.to_scipy()[[0], [1]].item()
    (1.0, 1.0)
    """
    _check(radius, metric, recall, algorithm, random_state, candidates, n_candidates)
    checked_parameters(algorithm_params, algorithm)
    X = as_graph(X)
    with keeping_copies(workdir, may_be_copied(X)):
        if isinstance(X, GraphSource):
            return _of_edges(X, workdir)
        if is_given(metric):
            return _of_distances(X, Rule(n_neighbors if radius is None else None, radius), workdir)
        if candidates is not None and (radius is not None or n_neighbors is None):
            raise InputError("candidates serve a graph of k nearest neighbors: give n_neighbors, and no radius")
        run = Run(workdir)
        source, in_memory = row_source(X, run.root / "exchange", sparse=True)
        lists = None if candidates is None else _given_lists(candidates)
        if candidates is None or n_neighbors is None or lists is not None:
            outside = lists or outside_by(algorithm_params, algorithm, random_state)
            asked: dict[str, Any] = {"radius": radius, "algorithm": algorithm, "outside": outside}
            stages = neighbor_stages(source, n_neighbors, metric, recall, random_state, **asked)
        else:
            search = {"algorithm": algorithm, "outside": outside_by(algorithm_params, algorithm, random_state)}
            given, width = _candidates(candidates, n_neighbors, n_candidates, recall, search, random_state, run)
            run.parents = (given,)
            stages = rerank_stages(source, given, n_neighbors, width, metric, recall, random_state)
        require_worker_memory(stages, run, -(-source.shape[0] // source.block))
        run_stages(stages, run)
    for doubt in doubts(run.results("recall")) if radius is None else ():
        warnings.warn(doubt, RecallWarning, stacklevel=3)
    return NeighborGraph(run, in_memory, metric=metric)


def _of_edges(source: GraphSource, workdir: str | os.PathLike[str] | None) -> NeighborGraph:
    """The graph of edges that somebody else found."""
    run = Run(workdir)
    readable = source if executor_now().in_this_process else source.stored_copy(run.root / "exchange")
    run_stages(edge_graph_stages(readable), run)
    return NeighborGraph(run, source.path is None)


def _of_distances(X: Any, rule: Rule, workdir: str | os.PathLike[str] | None) -> NeighborGraph:
    """The graph of an array of distances, or of a sparse matrix of lengths."""
    if hasattr(X, "tocsr"):
        return _of_edges(length_graph(X, rule), workdir)
    run = Run(workdir)
    source, in_memory = row_source(X, run.root / "exchange")
    run_stages(distance_stages(source, rule), run)
    return NeighborGraph(run, in_memory)


def _check(
    radius: float | None,
    metric: Any,
    recall: float,
    algorithm: str,
    random_state: int,
    candidates: Any,
    n_candidates: int | None,
) -> None:
    """InputError unless the parameters are in their ranges."""
    if not is_given(metric):
        checked_metric(metric)
    checked_algorithm(algorithm)
    wrong = []
    if is_given(metric) and candidates is not None:
        wrong.append("candidates are rows, and metric='precomputed' says that X holds distances; leave them out")
    if radius is not None and not (radius > 0 and np.isfinite(radius)):
        wrong.append(f"radius={radius!r}; a finite number > 0 is allowed, or None with n_neighbors")
    if not 0 < recall <= 1:
        wrong.append(f"recall={recall!r}; allowed: a number in (0, 1]")
    if random_state < 0:
        wrong.append(f"random_state={random_state!r}; allowed: an integer ≥ 0")
    if n_candidates is not None and (candidates is None or opening.found_lists(candidates) is not None):
        wrong.append(f"n_candidates={n_candidates!r}; it goes with candidates of rows, which were not given")
    if wrong:
        raise InputError(f"build_neighbor_graph: {'; '.join(wrong)}")


def _given_lists(candidates: Any) -> ByLists | None:
    """Lists of neighbors that another library found, as candidates; None of candidates of another kind."""
    graph = as_graph(candidates)
    if not isinstance(graph, GraphSource):
        return None
    if not isinstance(graph.edges, edges.NeighborLists):
        raise InputError(
            "candidates: this graph is one of edges, and lists of neighbors, rows or a NeighborGraph are needed. Give "
            "lists: open_graph(indices, distances=distances)"
        )
    stored = graph if executor_now().in_this_process else graph.stored_copy(Run(None).root / "exchange")
    return ByLists(stored.edges.indices)


def _candidates(
    candidates: Any, k: int, n_candidates: int | None, recall: float, search: Mapping[str, Any], seed: int, run: Run
) -> tuple[Run, int]:
    """The run that holds the lists of candidates, and how many of them to take."""
    if isinstance(candidates, NeighborGraph) and candidates.metric == GIVEN:
        raise InputError(
            "candidates come from a graph that was built of rows, whose order X then follows; this one is of distances "
            "that were given, without rows. Give the rows that its distances are of, or fit that graph as it is"
        )
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
    run_stages(search_stages(source, wanted, "euclidean", recall, seed, **search), home)
    return home, wanted
