"""``be.cluster``: clusters of coordinates or of a graph, with labels for new rows and how stable they are."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import numpy as np
import psutil

from bigembed.errors import InputError, InputTypeError, PlanError
from bigembed.estimator import run_of
from bigembed.estimator.graph_input import edge_weight_stages, is_weights, weight_stages
from bigembed.estimator.reporting import warn_of
from bigembed.maps.clustering import METHODS, STABLE, Clustering, checked_clustering, voted_labels
from bigembed.maps.clustering.stages import CLUSTERS, COORDINATES, STABILITY, Anchors, Graph, cluster_stages, graph_in
from bigembed.maps.walk.spectral_clustering import SpectralClustering
from bigembed.neighbors.given import edge_graph_stages
from bigembed.neighbors.graph import NeighborGraph
from bigembed.neighbors.row_weights import WEIGHTS
from bigembed.rows import RowBlock, RowSource, opening, passes
from bigembed.rows.graph_source import GraphSource, as_graph
from bigembed.rows.input import in_memory, row_source
from bigembed.runtime.blocks import Array
from bigembed.runtime.executors import executor_now
from bigembed.runtime.parameters import declared
from bigembed.stages import ArraySpec, Context, Cost, Run, Stage, require_worker_memory, rows_of, run_stages, window_of
from bigembed.store.arrays import read_array

SPECTRAL = "spectral"
ON_GRAPHS = ("leiden", SPECTRAL)
ROOM = 0.8
"""Share of the memory that is free that clusters may take."""


class Clusters:
    """Hold the clusters of rows, how stable they are, and what places new rows.

    Parameters
    ----------
    labels : array of shape (n,), int32
        The cluster of each row.
    certificate : dict
        What the certificate says.
    place : function
        What gives new rows their clusters.

    Attributes
    ----------
    labels : array of shape (n,), int32
        The cluster of each row, 0 the largest, −1 for rows in none: NumPy where the rows were, else a lazy Dask array.
    sizes : list of int
        The rows of each cluster.
    n_clusters, noise : int
        The numbers of clusters, and of rows in none.
    jaccard : list of float, or None
        For each cluster, how much of it is found again in subsets of the rows; 1 is all (Hennig 2007).
    rand : float or None
        The mean adjusted Rand index between the clusters and those of subsets.
    certificate : dict
        All of this, and under "warnings" what was warned of.

    Examples
    --------
    >>> import bigembed as be
    >>> found = be.cluster(np.repeat(np.arange(4.0), 20)[:, None], "kmeans", n_clusters=4)
    >>> found.n_clusters, found.sizes, found.predict(np.array([[2.9]])) == found.labels[-1]
    (4, [20, 20, 20, 20], array([ True]))
    """

    def __init__(self, labels: Any, certificate: dict[str, Any], place: Any) -> None:
        found = certificate[CLUSTERS]
        self.labels, self.certificate, self._place = labels, certificate, place
        self.sizes: list[int] = found["sizes"]
        self.n_clusters, self.noise = len(self.sizes), int(found.get("noise", 0))
        self.jaccard: list[float] | None = found.get("jaccard")
        self.rand: float | None = found.get("rand")

    def __repr__(self) -> str:
        stable = "" if self.rand is None else f", rand={self.rand:.3f}"
        return f"Clusters(n_clusters={self.n_clusters}, noise={self.noise}{stable})"

    def predict(self, rows: Any) -> Any:
        """Return the cluster of each of new rows, whatever the batch.

        Parameters
        ----------
        rows : array of shape (k, m)
            New coordinates; of clusters of a graph, new rows as the graph was built of.

        Returns
        -------
        array of shape (k,), int32
            The cluster of the nearest of the rows that were clustered, or, by k-means, of the nearest center. Of a
            graph that of most neighbors (Leiden), or by the Nyström formula (spectral). NumPy for NumPy, else a lazy
            Dask array.
        """
        return self._place(rows)


@declared
def cluster(
    X: Any,
    method: str = "hdbscan",
    *,
    n_clusters: int | None = None,
    min_cluster_size: int | None = None,
    min_samples: int | None = None,
    resolution: float | None = None,
    sample: int | None = None,
    n_subsets: int | None = None,
    random_state: int = 0,
    workdir: str | os.PathLike[str] | None = None,
) -> Clusters:
    """Find clusters of coordinates, or of a neighbor graph, and measure how stable they are.

    Parameters
    ----------
    X : array of shape (n, m), or graph
        Coordinates of any kind that :func:`bigembed.open_array` takes, for example the ``embedding_`` of a map; or, for
        "leiden" and "spectral", a :class:`bigembed.NeighborGraph` (the ``graph_`` of a map), a graph that
        :func:`bigembed.open_graph` opens, or symmetric sparse weights.
    method : {"hdbscan", "kmeans", "leiden", "spectral"}
        How clusters are found. "hdbscan" finds groups of any shape that are denser than what is between them, which is
        noise, −1 (scikit-learn's, excess of mass). "kmeans" cuts the coordinates into ``n_clusters`` parts. "leiden"
        finds parts of a graph with more weight within them than chance would put there (igraph's, of the extra
        ``leiden``: GPL). "spectral" is :class:`bigembed.SpectralClustering` of the graph.
    n_clusters : int ≥ 1 or None
        The number of clusters of "kmeans" and "spectral"; None is 8.
    min_cluster_size : int ≥ 2 or None
        The rows of the smallest cluster of "hdbscan"; None is one in a hundred of all, 5 at the least.
    min_samples : int ≥ 1 or None
        The neighbors by which "hdbscan" measures the density; None is 10, or ``min_cluster_size`` if that is less.
    resolution : float > 0 or None
        The γ of the modularity of "leiden": more makes more and smaller clusters. None is 1.
    sample : int ≥ 2 or None
        The rows that "hdbscan" clusters at the most; the others get the cluster of the nearest of them, and
        ``min_cluster_size`` shrinks with their share. None is 20 000.
    n_subsets : int ≥ 0 or None
        The subsets in which the clusters are looked for again; 0 leaves that out. None is 10.
    random_state : int ≥ 0
        The seed of the sample, the starts and the subsets.
    workdir : path or None
        Where the stages are kept, and from where a call that was stopped goes on; None is a temporary folder.

    Returns
    -------
    Clusters
        The labels, sizes and stability, and ``predict`` for new rows.

    Raises
    ------
    InputError
        If parameters are out of range or of another method, coordinates hold NaN or infinity (they are named), or there
        are fewer rows than clusters.
    InputTypeError
        If a graph is needed and coordinates are given, or the other way round.
    MissingExtraError
        If igraph is needed and not installed.
    PlanError
        If the graph, or the sample, does not fit into memory.

    Warns
    -----
    ClustersWarning
        If clusters are not found again in subsets of the rows, there are fewer than two, or most rows are noise.

    Notes
    -----
    The stability of a cluster is the mean, over subsets of half of the rows that are clustered, of the largest Jaccard
    coefficient |A ∩ B|/|A ∪ B| of its rows in the subset with a cluster that is found there, with another seed (Hennig
    2007, by subsets): from .75 on a cluster counts as stable, below .6 it should not be trusted. It tells noise from
    groups where density or edges decide: a uniform cube has no stable clusters by "hdbscan" and "leiden". "kmeans" cuts
    a region without any gap in about the same places each time, so for it the rows at the border of each cluster are
    also counted and compared with those on the way there: a warning says so if they are about as many (a ratio above
    .8) for clusters that hold most rows.

    Cost: of "hdbscan" s² distances of s sampled rows in one task, 700 bytes a row of them, then one pass; of "kmeans"
    some 5–20 passes over the coordinates; of "leiden" the whole graph in one task, some 360 bytes an edge (10⁶ rows of
    15 neighbors take 3 GiB), which is refused where it does not fit: "spectral" then works block by block. The subsets
    cost ``n_subsets``/4 ("hdbscan") or ``n_subsets``/2 ("leiden") times as much again.

    References
    ----------
    R. Campello, D. Moulavi, J. Sander, Density-based clustering based on hierarchical density estimates, PAKDD (2013).
    V. Traag, L. Waltman, N. J. van Eck, From Louvain to Leiden: guaranteeing well-connected communities, Scientific
    Reports 9 (2019). C. Hennig, Cluster-wise assessment of cluster stability, Computational Statistics & Data Analysis
    52 (2007). L. Hubert, P. Arabie, Comparing partitions, Journal of Classification 2 (1985).

    Examples
    --------
    >>> import bigembed as be
    >>> rows, centers = np.random.default_rng(0).normal(size=(300, 2)), np.array([[0, 0], [9, 0], [0, 9]])
    >>> found = be.cluster(rows + centers[np.arange(300) % 3])
    >>> found.n_clusters, found.sizes, min(found.jaccard) > 0.9
    (3, [100, 100, 100], True)
    """
    given: dict[str, Any] = {
        "n_clusters": n_clusters,
        "min_cluster_size": min_cluster_size,
        "min_samples": min_samples,
        "resolution": resolution,
        "sample": sample,
        "n_subsets": n_subsets,
    }
    given = {name: value for name, value in given.items() if value is not None} | {"random_state": random_state}
    X = as_graph(X)
    graph = isinstance(X, (NeighborGraph, GraphSource)) or is_weights(X)
    if method not in (*METHODS, SPECTRAL):
        raise InputError(f"cluster: method={method!r}; allowed: {', '.join((*METHODS, SPECTRAL))}")
    if graph != (method in ON_GRAPHS):
        wanted = "a graph (build_neighbor_graph, graph_ of a map)" if method in ON_GRAPHS else "coordinates (n, m)"
        raise InputTypeError(f"cluster: method={method!r} needs {wanted}")
    if method == SPECTRAL:
        return _spectral(X, given, workdir)
    asked = checked_clustering({"method": method, **given})
    return _of_graph(X, asked, workdir) if graph else _of_coordinates(X, asked, workdir)


def _of_coordinates(X: Any, asked: Clustering, workdir: Any) -> Clusters:
    """Copy coordinates into the run, in one pass, and cluster them."""
    run = Run(workdir)
    source, held = row_source(X, run.root / "exchange", "coordinates")
    n, width = passes.checked_shape(source)
    stages = [_copy_stage(source), *cluster_stages(n, width, None, asked)]
    _compute(stages, run, -(-n // source.block))
    return _found(run, asked, held, partial(_place, run=run, width=width))


def _of_graph(X: Any, asked: Clustering, workdir: Any) -> Clusters:
    """Cluster the graph of a run, of an open graph, or of a sparse matrix."""
    place: Callable[[Any], Any]
    before: Sequence[Stage]
    if isinstance(X, NeighborGraph):
        run, held = Run(workdir, parents=[X.run]), X.in_memory or X.run.temporary
        graph, before, n = Graph("graph", "squared", True, X.edges + X.n), [], X.n
        place = partial(_vote, graph=X, run=run)
    else:
        run, n, place = Run(workdir), X.shape[0], _no_rows
        held = not isinstance(X, GraphSource) or X.path is None
        if isinstance(X, GraphSource):
            readable = X if executor_now().in_this_process else X.stored_copy(run.root / "exchange")
            before = (edge_weight_stages if X.values == "weights" else edge_graph_stages)(readable)
        else:
            before = weight_stages(X)
        found = graph_in(before)
        assert found is not None
        graph = found
    _compute([*before, *cluster_stages(n, 0, graph, asked)], run, 1)
    return _found(run, asked, held, place)


def _spectral(X: Any, given: dict[str, Any], workdir: Any) -> Clusters:
    """Cluster a graph by spectral clustering, whose own certificate says how far to trust it."""
    if wrong := sorted(set(given) - {"n_clusters", "random_state"}):
        raise InputError(f"cluster: {', '.join(wrong)}: method='spectral' takes n_clusters and random_state")
    fitted = SpectralClustering(**given, workdir=workdir).fit(X)
    found = fitted.certificate_[CLUSTERS]
    return Clusters(fitted.labels_, {**fitted.certificate_, CLUSTERS: {**found, "method": SPECTRAL}}, fitted.predict)


def _compute(stages: Sequence[Stage], run: Run, blocks: int) -> None:
    """Run the stages, after it is known that they fit into memory."""
    require_worker_memory(stages, run, blocks)
    if executor_now().in_this_process:
        heaviest = max(stages, key=lambda stage: stage.cost.memory)
        need, free = heaviest.cost.memory + heaviest.cost.coordinator, int(psutil.virtual_memory().available)
        if need > ROOM * free:
            raise PlanError(
                f"cluster: stage {heaviest.name!r} would hold {need >> 20:,} MiB, and {free >> 20:,} MiB are free: "
                "nothing was computed. Take a smaller sample (hdbscan), or method='spectral' or 'kmeans', which work "
                "block by block"
            )
    run_stages(stages, run)


def _found(run: Run, asked: Clustering, held: bool, place: Any) -> Clusters:
    certificate = clusters_found(run, asked)
    warn_of(certificate)
    return Clusters(run.array(CLUSTERS, "labels", held), certificate, place)


# ----------------------------------------------------------------------------------------------------- coordinates


def _copy_stage(source: RowSource) -> Stage:
    """``embedding`` (n, m) float64: the coordinates as they were given, found to be finite."""
    n, width = source.shape
    cost = Cost.of(
        reads=[rows_of(source)],
        writes=[ArraySpec("embedding", n, width)],
        task=[*window_of(source), ArraySpec("block", min(n, source.block), width, times=2)],
        passes=1,
    )
    return Stage(COORDINATES, (), {"source": source.fingerprint()}, partial(run_copy, source=source), cost)


def run_copy(context: Context, source: RowSource) -> dict[str, Any]:
    passes.write_mapped(source, as_float, context.path("embedding"), source.shape[1], np.float64, first=True)
    return {"n": source.shape[0]}


def as_float(block: RowBlock) -> Array:
    return np.asarray(block.rows, np.float64)


# -------------------------------------------------------------------------------------------------------- new rows


def _place(rows: Any, run: Run, width: int) -> Any:
    """Return the clusters of new coordinates, by the nearest anchor."""
    held = in_memory(rows)
    given: Any = opening.as_array(rows, "coordinates") if held else opening.open_array(rows)
    if given.ndim != 2 or given.shape[1] != width:
        raise InputError(f"coordinates have shape {given.shape}; (k, {width}) is needed, as they were clustered")
    anchors = Anchors.of(run)
    if held:
        return labels_of(given, anchors)
    whole = given.rechunk({1: width})
    found = whole.map_blocks(labels_of, anchors, dtype=np.int32, drop_axis=1, meta=np.empty(0, np.int32))
    return run.kept_by(found) if run.temporary else found


def labels_of(points: Array, anchors: Anchors) -> Array:
    """Return the cluster of the nearest anchor of each point; InputError where one is not finite."""
    points = np.asarray(points, np.float64)
    if len(wrong := np.flatnonzero(~np.isfinite(points).all(axis=1))):
        raise InputError(f"coordinates hold NaN or infinity: {len(wrong)} rows, the first are {wrong[:10].tolist()}")
    return anchors(points)


def _vote(rows: Any, graph: NeighborGraph, run: Run) -> Array:
    """Return the cluster of most of the neighbors of each new row."""
    near, _ = graph.query(rows)
    return voted_labels(read_array(run.path(CLUSTERS, "labels"))[near])


def _no_rows(rows: Any) -> Array:
    raise InputTypeError("clusters of a graph without rows: new rows have no place among its nodes")


# --------------------------------------------------------------------------------------------------------- judgement
# How far clusters after a map can be trusted: figures of the certificate, and what is warned of.

FULL = 0.8
"""Rows at the border of a cluster over those on the way there, from which nothing parts it from its neighbor."""
SHOWN = 5
MOSTLY = 0.5
"""Share of the rows in no cluster, or in unstable ones, from which the clusters as a whole are doubtful."""


def clusters_found(run: Run, asked: Clustering, weighed: bool = False) -> dict[str, Any]:
    """Return what a certificate says of the clusters of a run: ``clusters`` and, if there are any, ``warnings``.

    ``weighed``: whether the rows have weights.
    """
    made = run.results(CLUSTERS)
    sizes, noise = [int(size) for size in made["sizes"]], int(made.get("noise", 0))
    found: dict[str, Any] = {"method": asked.method, "count": len(sizes), "sizes": sizes, "noise": noise}
    found |= {name: made[name] for name in ("sampled", "converged") if name in made}
    warnings = _doubts(asked, sizes, noise, made) + (_alike(run, asked) if weighed else [])
    if run.has(STABILITY):
        judged = run.results(STABILITY)
        found |= {name: judged[name] for name in ("jaccard", "rand", "subsets", "borders") if name in judged}
        warnings += _cut(sizes, judged.get("borders", []))
        warnings += _unstable(sizes, np.array(judged["jaccard"]), judged["rand"], judged["subsets"])
    return {CLUSTERS: found, "warnings": {CLUSTERS: warnings} if warnings else {}}


def judge_clusters(estimator: Any, asked: Clustering, weighed: bool) -> None:
    """Add what was found of clusters to the certificate of a fitted estimator, and give the warnings."""
    found = clusters_found(run_of(estimator), asked, weighed)
    warnings = {**estimator.certificate_.get("warnings", {}), **found["warnings"]}
    estimator.certificate_ = {**estimator.certificate_, CLUSTERS: found[CLUSTERS], "warnings": warnings}
    warn_of(found)


def _doubts(asked: Clustering, sizes: list[int], noise: int, made: dict[str, Any]) -> list[str]:
    """Return what the clusters themselves say."""
    total, said = sum(sizes) + noise, []
    change = {
        "hdbscan": "Lower min_cluster_size or min_samples, or cluster a map that draws rows together, such as UMAP",
        "leiden": "Raise the resolution",
        "kmeans": "Ask for more clusters",
    }[asked.method]
    if len(sizes) < 2:
        said.append(f"{asked.method} found {len(sizes) or 'no'} cluster{'' if len(sizes) == 1 else 's'}. {change}")
    elif noise > MOSTLY * total:
        said.append(f"{noise:,} of {total:,} rows are in no cluster, as noise. {change}")
    if empty := sizes.count(0):
        said.append(f"{empty} of {len(sizes)} clusters have no rows. Ask for fewer clusters")
    if not made.get("converged", True):
        said.append(
            f"k-means stopped after {made['iterations']} iterations: the clusters run into each other. Ask for another "
            "number of clusters"
        )
    return said


def _alike(run: Run, asked: Clustering) -> list[str]:
    """Return what is to be said where rows have weights that the clusters do not follow."""
    if asked.method == "kmeans":
        way = "Take a method on a graph, which keeps weights by rows"
        return [] if run.has(WEIGHTS) else [f"kmeans counts all rows alike here, whatever they weigh. {way}"]
    counted = {"hdbscan": "densities and sizes of clusters", "leiden": "edges and sizes of clusters"}[asked.method]
    way = "kmeans of a map on a graph, and spectral_clustering, count rows by weight"
    return [f"{asked.method} counts all rows alike, whatever they weigh: {counted} are those of the rows. {way}"]


def _cut(sizes: list[int], borders: list[float | None]) -> list[str]:
    """Return what is to be said of clusters of k-means that no gap parts from their neighbors."""
    full = [number for number, one in enumerate(borders) if one is not None and one > FULL]
    if sum(sizes[number] for number in full) <= MOSTLY * max(1, sum(sizes)):
        return []
    return [
        f"k-means cuts through regions without gaps: at the borders of {len(full)} of {len(sizes)} clusters rows are "
        "as dense as on the way there. It does so in the same places each time, so stable clusters need not be groups. "
        "Ask for fewer, or look for groups by density (hdbscan)"
    ]


def _unstable(sizes: list[int], jaccard: Any, rand: float, subsets: int) -> list[str]:
    """Return what is to be said of clusters that are not found again in subsets of the rows."""
    weak = np.flatnonzero(jaccard < STABLE)
    if not len(weak) or len(sizes) < 2:
        return []
    listed = ", ".join(f"{number} ({sizes[number]:,} rows, {jaccard[number]:.2f})" for number in weak[:SHOWN])
    more = f" and {len(weak) - SHOWN} more" if len(weak) > SHOWN else ""
    again = f"{subsets} subsets of half of the rows"
    share = sum(sizes[number] for number in weak) / max(1, sum(sizes))
    if share > MOSTLY:
        return [
            f"clusters are not stable: {len(weak)} of {len(sizes)}, with {100 * share:.0f} % of the rows, are not "
            f"found again in {again} (mean Jaccard coefficient below {STABLE}; Rand index {rand:.2f}). There may be no "
            "clusters at all, or others of another size: do not read these as groups. Ask for fewer or larger ones"
        ]
    return [
        f"{len(weak)} of {len(sizes)} clusters are not stable: {listed}{more} are not found again in {again} (mean "
        f"Jaccard coefficient below {STABLE}). Do not read them as groups of their own, or ask for fewer or larger ones"
    ]
