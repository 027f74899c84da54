"""The stages of clusters after a map: ``clusters`` (labels of all rows, anchors for new ones) and ``stability``."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np
from scipy.sparse import csr_array

from bigembed.errors import InputError
from bigembed.estimator import run_of
from bigembed.estimator.extension import stored_coordinates
from bigembed.estimator.frame import Alignment, frame_in
from bigembed.maps import clustering
from bigembed.maps.clusters import ClusterOptions, clusters_stage
from bigembed.maps.landmark_rows import uniform
from bigembed.neighbors.order import Ordered
from bigembed.neighbors.row_weights import WEIGHTS
from bigembed.rows import RowBlock, RowSource, rows_at
from bigembed.rows.passes import map_row_blocks
from bigembed.runtime.blocks import Array, block_rows, map_blocks
from bigembed.stages import ArraySpec, Context, Cost, Run, Stage, buffer
from bigembed.store import at
from bigembed.store.arrays import create_rows, read_array, read_rows, write_array, write_rows
from bigembed.store.matrix import StoredMatrix

CLUSTERS, STABILITY, COORDINATES = "clusters", "stability", "coordinates"
POINT_BYTES, EDGE_BYTES = 700, 360
"""What HDBSCAN holds of a point beside its coordinates, and igraph of an edge with what it is made from; measured."""


@dataclass(frozen=True)
class Graph:
    """Which stages hold the graph that is clustered, and how large it is."""

    stage: str
    values: str
    ordered: bool
    entries: int

    @property
    def inputs(self) -> tuple[str, ...]:
        """Return the stages that are read."""
        return (self.stage, "order") if self.ordered else (self.stage,)

    def matrix(self, context: Context) -> StoredMatrix:
        """Return the stored graph."""
        return context.home.matrix(self.stage, self.values)


# ------------------------------------------------------------------------------------------------------ the stages


def graph_in(stages: Sequence[Stage]) -> Graph | None:
    """Return where the stages of a fit leave a graph, of distances or of weights; None where they make none."""
    there = {stage.name: stage for stage in stages}
    for name, values in (("graph", "squared"), ("weights", "given")):
        if name in there:
            entries = max((one.rows for one in there[name].cost.arrays if one.name == f"{values}/*"), default=0)
            return Graph(name, values, "order" in there, int(entries))
    return None


def stages_following(stages: Sequence[Stage], asked: clustering.Clustering) -> list[Stage]:
    """List the stages of clusters that follow those of a fit, on demand: InputError where these have not what is asked
    for."""
    there = {stage.name: stage for stage in stages}
    if CLUSTERS in there:
        raise InputError("the method makes clusters itself, and a run has one cluster a row: leave [clusters] out")
    written = next((one for one in there[COORDINATES].cost.arrays if one.name == "embedding"), None)
    if written is None or written.width is None:
        raise InputError("the method writes no coordinates that could be clustered: leave [clusters] out")
    vectors = (WEIGHTS,) if WEIGHTS in there and asked.method == "kmeans" else ()
    found = cluster_stages(int(written.rows), int(written.width), graph_in(stages), asked, vectors)
    return [replace(stage, on_demand=True) for stage in found]


def cluster_stages(
    n: int, width: int, graph: Graph | None, asked: clustering.Clustering, vectors: tuple[str, ...] = ()
) -> list[Stage]:
    """List the stages of clusters of n rows. ``width``: of the stored coordinates; 0 where there is a graph alone;
    ``vectors``: the stage with the weights of the rows, which k-means counts by."""
    if asked.method == "kmeans" and asked.n_clusters > n:
        raise InputError(f"n_clusters={asked.n_clusters} of {n} rows. Ask for fewer clusters")
    if asked.method == "leiden" and graph is None:
        raise InputError(
            "leiden finds clusters of a neighbor graph, and this method makes none. Take hdbscan or kmeans, or a "
            "method on a graph"
        )
    first = _clusters_stage(n, width, graph, asked, vectors)
    return [first, _stability_stage(n, width, graph, asked, vectors)] if asked.n_subsets else [first]


def _clusters_stage(
    n: int, width: int, graph: Graph | None, asked: clustering.Clustering, vectors: tuple[str, ...]
) -> Stage:
    if asked.method == "kmeans":
        return clusters_stage(n, width, ClusterOptions(asked.n_clusters, False, asked.n_init), asked.seed, vectors)
    inputs, parameters = (COORDINATES,), asked.of_method()
    anchors, block = min(n, asked.sample), min(n, block_rows(width, 8))
    writes = [ArraySpec("labels", n, dtype="i4")]
    if width:
        writes += [ArraySpec("anchors", anchors, width), ArraySpec("anchor_labels", anchors, dtype="i4")]
    if asked.method == "hdbscan":
        cost = Cost.of(
            reads=[ArraySpec("embedding", n, width, times=2)],
            writes=writes,
            task=[*_held_points(anchors, width), ArraySpec("blocks of coordinates", block, width, times=3)],
            coordinator=[ArraySpec("anchors", anchors, width, times=3)],
            passes=1,
            scalar_ops=float(anchors) ** 2 * width + 40.0 * n,
            maps=2,
        )
        return Stage(CLUSTERS, inputs, parameters, partial(run_hdbscan, n=n, asked=asked), cost)
    assert graph is not None
    clustering.igraph()  # (before work starts)
    cost = Cost.of(
        reads=[ArraySpec("edges", graph.entries, 3)],
        writes=writes,
        task=_held_graph(n, graph),
        coordinator=[ArraySpec("anchors", anchors, width, times=3), ArraySpec("labels", n, dtype="i8", times=2)],
        passes=1,
        scalar_ops=200.0 * graph.entries,
        maps=1,
        blocks=1,
    )
    inputs = (*graph.inputs, *(inputs if width else ()))
    run = partial(run_leiden, n=n, width=width, graph=graph, asked=asked)
    return Stage(CLUSTERS, inputs, parameters, run, cost)


LIBRARY_BYTES = 100 << 20
"""What scikit-learn takes where it is loaded."""


def _held_points(count: int, width: int) -> list[ArraySpec]:
    held = [ArraySpec("points", count, width, times=6), ArraySpec("tree of points", count, POINT_BYTES, "u1")]
    return [*held, buffer("scikit-learn", LIBRARY_BYTES)]


def _held_graph(n: int, graph: Graph) -> list[ArraySpec]:
    edges = ArraySpec("edges, each once", graph.entries / 2, EDGE_BYTES, "u1")
    return [edges, ArraySpec("nodes", n, 30)]


def _stability_stage(
    n: int, width: int, graph: Graph | None, asked: clustering.Clustering, vectors: tuple[str, ...]
) -> Stage:
    size, times = subset_size(n, asked), asked.n_subsets
    writes = [ArraySpec("jaccard", 0), ArraySpec("rand", times)]
    parameters = {**asked.of_method(), "n_subsets": times}
    if asked.method == "leiden":
        assert graph is not None
        cost = Cost.of(
            reads=[ArraySpec("edges", graph.entries, 3)],
            writes=writes,
            task=_held_graph(n, graph),
            scalar_ops=100.0 * times * graph.entries,
            maps=1,
            blocks=1,
        )
        run = partial(run_graph_stability, n=n, graph=graph, asked=asked)
        return Stage(STABILITY, (*graph.inputs, CLUSTERS), parameters, run, cost)
    cost = Cost.of(
        reads=[ArraySpec("embedding", n, width, times=times), ArraySpec("labels", n, dtype="i4", times=times)],
        writes=writes,
        task=_held_points(size, width),
        scalar_ops=float(times) * size**2 * width,
        maps=1,
        blocks=times,
    )
    if asked.method == "kmeans":
        cost = cost + Cost.of(writes=[ArraySpec("borders", 0)])
    run = partial(run_stability, n=n, asked=asked)
    return Stage(STABILITY, (COORDINATES, CLUSTERS, *vectors), parameters, run, cost)


# --------------------------------------------------------------------------------------------------------- HDBSCAN


def run_hdbscan(context: Context, n: int, asked: clustering.Clustering) -> dict[str, Any]:
    """Cluster all rows, or a sample whose rows are the anchors of the others: one task, then one pass."""
    embedding, placed = context.of(COORDINATES, "embedding"), _placed(context)
    source, _ = stored_coordinates(embedding)
    sampled = uniform(n, asked.sample, [asked.seed, 12])
    out = context.path("")
    map_blocks(sampled_block, [(sampled,)], embedding=embedding, placed=placed, n=n, asked=asked, out=out)
    create_rows(context.path("labels"), (n,), np.int32, source.block, overwrite=True)
    found = map_row_blocks(source, placed_block, out=out, placed=placed, sampled=sampled if len(sampled) == n else None)
    return _counted(found) | {"sampled": len(sampled)}


def sampled_block(
    sampled: Array, *, embedding: str, placed: str, n: int, asked: clustering.Clustering, out: str
) -> None:
    """Cluster the sampled rows that have a place; write them as anchors with their labels."""
    if placed:
        sampled = sampled[read_rows(placed, sampled) >= 0]
    points = np.asarray(read_rows(embedding, sampled), np.float64)
    least = clustering.smallest_cluster(asked.min_cluster_size, n, len(points))
    write_array(f"{out}anchors", points)
    write_array(f"{out}anchor_labels", clustering.hdbscan_labels(points, least, asked.min_samples))


def placed_block(block: RowBlock, *, out: str, placed: str, sampled: Array | None) -> Array:
    """Write the labels of a block, those of the nearest anchors; how many rows are in each cluster, noise last."""
    labels = read_array(f"{out}anchor_labels")
    if sampled is not None and not placed:
        found = labels[block.start : block.stop]
    else:
        found = clustering.nearest_labels(np.asarray(block.rows, np.float64), read_array(f"{out}anchors"), labels)
    if placed:
        found[read_array(placed, block.start, block.stop) < 0] = clustering.NOISE
    write_rows(f"{out}labels", block.start, found)
    count = int(labels.max(initial=clustering.NOISE)) + 1
    return np.bincount(np.where(found < 0, count, found), minlength=count + 1)


def _placed(context: Context) -> str:
    """Where the component of each row lies, if rows outside of those with coordinates there are; else nothing."""
    return context.of(COORDINATES, "labels") if context.results(COORDINATES).get("unplaced_rows", 0) else ""


def _counted(found: Sequence[Array]) -> dict[str, Any]:
    counts = np.sum(found, axis=0)
    return {"sizes": counts[:-1].tolist(), "noise": int(counts[-1])}


# ---------------------------------------------------------------------------------------------------------- Leiden


def run_leiden(context: Context, n: int, width: int, graph: Graph, asked: clustering.Clustering) -> dict[str, Any]:
    """Cluster the whole graph in one task."""
    out = context.path("")
    order, matrix = context.of("order") if graph.ordered else "", graph.matrix(context)
    rows = block_rows(width or 1, 8)
    (sizes,) = map_blocks(leiden_block, [()], matrix=matrix, order=order, graph=graph, rows=rows, asked=asked, out=out)
    if width:
        sampled = uniform(n, asked.sample, [asked.seed, 12])
        write_array(f"{out}anchors", np.asarray(read_rows(context.of(COORDINATES, "embedding"), sampled), np.float64))
        write_array(f"{out}anchor_labels", read_rows(f"{out}labels", sampled))
    return {"sizes": sizes, "noise": 0}


def leiden_block(
    *, matrix: StoredMatrix, order: str, graph: Graph, rows: int, asked: clustering.Clustering, out: str
) -> Any:
    """Write the clusters of all rows in the order of the input; their sizes."""
    weights, ids = whole_graph(matrix, order, graph.values == "given")
    labels = np.empty(len(ids), np.int32)
    labels[ids] = clustering.leiden_labels(weights, asked.resolution, asked.seed)
    labels = clustering.largest_first(labels)
    write_array(f"{out}labels", labels, chunk_rows=rows)
    return np.bincount(labels).tolist()


def whole_graph(matrix: StoredMatrix, order: str, weighted: bool) -> tuple[csr_array, Array]:
    """Return the weights of all edges in the order of the graph, and what its rows are in the input; in memory."""
    starts = np.concatenate([[0], np.cumsum(matrix.rows)])
    ordered = Ordered.open(order) if order else None
    ends, columns, values, ids = [np.zeros(1, np.int64)], [], [], []
    for b in range(len(matrix.rows)):
        block = matrix.block(b)
        numbers = block.ids(b, starts.tolist())
        ends.append(ends[-1][-1] + block.indptr[1:].astype(np.int64))
        columns.append(numbers[block.indices].astype(np.int32))
        values.append(np.asarray(block.data))
        ids.append(ordered.ids(b) if ordered else np.arange(starts[b], starts[b + 1]))
    n = int(starts[-1])
    found = csr_array((np.concatenate(values), np.concatenate(columns), np.concatenate(ends)), shape=(n, n))
    found.sort_indices()
    return found if weighted else clustering.local_weights(found), np.concatenate(ids)


# ------------------------------------------------------------------------------------------------------- stability


def subset_size(n: int, asked: clustering.Clustering) -> int:
    """Return how many rows a subset has: half of those that are clustered.

    >>> hdbscan, leiden = clustering.Clustering(), clustering.Clustering("leiden")
    >>> subset_size(1_000, hdbscan), subset_size(10**6, hdbscan), subset_size(10**6, leiden)
    (500, 10000, 500000)
    """
    return max(1, (n if asked.method == "leiden" else min(n, asked.sample)) // 2)


def run_stability(context: Context, n: int, asked: clustering.Clustering) -> dict[str, Any]:
    """Look for the clusters again in subsets of the rows, each a task."""
    tasks = [(number,) for number in range(asked.n_subsets)]
    where = {"embedding": context.of(COORDINATES, "embedding"), "labels": context.of(CLUSTERS, "labels")}
    weights = context.of(WEIGHTS, "given") if context.home.has(WEIGHTS) else ""
    found = map_blocks(subset_block, tasks, n=n, placed=_placed(context), weights=weights, asked=asked, **where)
    judged = _judged(context, found)
    if asked.method != "kmeans":
        return judged
    centers = context.of(CLUSTERS, "centers")
    (full,) = map_blocks(borders_block, [()], n=n, embedding=where["embedding"], centers=centers, asked=asked)
    write_array(context.path("borders"), full)
    return judged | {"borders": [None if np.isnan(one) else float(one) for one in full]}


def run_graph_stability(context: Context, n: int, graph: Graph, asked: clustering.Clustering) -> dict[str, Any]:
    """Look for the clusters again in the graph of subsets of the rows, one after the other in one task."""
    order, matrix = context.of("order") if graph.ordered else "", graph.matrix(context)
    (found,) = map_blocks(
        graph_subsets_block, [()], matrix=matrix, order=order, graph=graph, labels=context.of(CLUSTERS, "labels"),
        asked=asked,
    )  # fmt: skip
    return _judged(context, found)


def subset_block(
    number: int, *, n: int, embedding: str, labels: str, placed: str, weights: str, asked: clustering.Clustering
) -> Any:
    """Of a subset of the rows: for each cluster how much of it is found again, and the Rand index."""
    rows = uniform(n, subset_size(n, asked), [asked.seed, 13, number])
    if placed:
        rows = rows[read_rows(placed, rows) >= 0]
    points, before = np.asarray(read_rows(embedding, rows), np.float64), read_rows(labels, rows)
    if asked.method == "kmeans":
        mass, seed = read_rows(weights, rows) if weights else None, asked.seed + number + 1
        again = clustering.k_means_labels(points, min(asked.n_clusters, len(points)), asked.n_init, seed, mass)
    else:
        again = clustering.hdbscan_labels(
            points, clustering.smallest_cluster(asked.min_cluster_size, n, len(points)), asked.min_samples
        )
    return clustering.best_jaccard(before, again), clustering.rand_index(before, again)


def borders_block(*, n: int, embedding: str, centers: str, asked: clustering.Clustering) -> Array:
    """How full the borders of the clusters of k-means are, by a sample."""
    rows = uniform(n, asked.sample, [asked.seed, 14])
    points = np.asarray(read_rows(embedding, rows), np.float64)
    return clustering.valleys(points[np.isfinite(points).all(axis=1)], read_array(centers))


def graph_subsets_block(
    *, matrix: StoredMatrix, order: str, graph: Graph, labels: str, asked: clustering.Clustering
) -> Any:
    """Of the graph of each subset: for each cluster how much of it is found again, and the Rand index."""
    weights, ids = whole_graph(matrix, order, graph.values == "given")
    before, found = read_array(labels)[ids], []
    for number in range(asked.n_subsets):
        rows = uniform(len(ids), subset_size(len(ids), asked), [asked.seed, 13, number])
        part = csr_array(weights[rows][:, rows])
        again = clustering.leiden_labels(part, asked.resolution, asked.seed + number + 1)
        found.append((clustering.best_jaccard(before[rows], again), clustering.rand_index(before[rows], again)))
    return found


def _judged(context: Context, found: Sequence[tuple[Array, float]]) -> dict[str, Any]:
    """Write the mean Jaccard coefficient of each cluster, and the Rand index of each subset."""
    count = len(context.results(CLUSTERS)["sizes"])
    every = np.full((len(found), count), np.nan)
    for line, (jaccard, _) in zip(every, found, strict=True):
        line[: len(jaccard)] = jaccard
    known = np.isfinite(every)
    jaccard = np.where(known, every, 0.0).sum(axis=0) / np.maximum(known.sum(axis=0), 1)
    rand = np.array([value for _, value in found])
    write_array(context.path("jaccard"), jaccard)
    write_array(context.path("rand"), rand)
    return {"jaccard": jaccard.tolist(), "rand": float(rand.mean()), "subsets": len(found)}


# ---------------------------------------------------------------------------------------------------------- new rows


@dataclass(frozen=True)
class Anchors:
    """Where a task finds the points with clusters that new rows are compared with. Small and picklable."""

    points: str
    labels: str
    """None are there where each point is the center of its own cluster."""
    frame: Alignment | None = None
    """What lays the map over an earlier one; the points are of the map before that."""

    @classmethod
    def of(cls, run: Run) -> Anchors:
        """Return those of a run, or of a saved model."""
        names = {name.partition("/")[0] for name in run.manifest(CLUSTERS).files}
        if "centers" in names:
            return cls(run.path(CLUSTERS, "centers"), "", frame_in(run))
        if "anchors" not in names:
            raise InputError(f"{run.root}: its clusters are of a graph alone, without coordinates for new rows")
        return cls(run.path(CLUSTERS, "anchors"), run.path(CLUSTERS, "anchor_labels"), frame_in(run))

    def __call__(self, points: Array) -> Array:
        """Return the cluster of each point (m, width): int32; −1 for a row without coordinates (NaN)."""
        anchors = read_array(self.points)
        labels = read_array(self.labels) if self.labels else np.arange(len(anchors), dtype=np.int32)
        there = np.isfinite(points).all(axis=1)
        points = points if self.frame is None else self.frame.undo(points)
        found = np.full(len(points), clustering.NOISE, np.int32)
        if len(anchors):
            found[there] = clustering.nearest_labels(np.asarray(points[there], np.float64), anchors, labels)
        return found


@dataclass(frozen=True)
class PlacedClusters(RowSource):
    """The clusters of rows by their coordinates; of the first ones as they were found."""

    coordinates: RowSource | None = None
    anchors: Anchors | None = None
    found: RowSource | None = None

    @property
    def grain(self) -> int:
        """Rows of coordinates that are decompressed together."""
        assert self.coordinates is not None
        return self.coordinates.grain

    def read(self, start: int, stop: int) -> Array:
        """Return the clusters of rows ``start:stop``."""
        assert self.coordinates is not None
        assert self.anchors is not None
        stop = min(stop, self.shape[0])
        known = 0 if self.found is None else self.found.shape[0]
        parts = []
        if self.found is not None and start < known:
            parts.append(self.found.read(start, min(stop, known)))
        if max(start, known) < stop:
            parts.append(self.anchors(self.coordinates.read(max(start, known), stop)))
        return np.concatenate(parts) if parts else np.empty(0, np.int32)


def has_clusters(fitted: Any) -> bool:
    """Return whether clusters were looked for after the map of a fitted estimator, or of a saved model."""
    return CLUSTERS not in type(fitted).saved_stages and run_of(fitted).has(CLUSTERS)


def new_clusters(run: Run, coordinates: RowSource) -> PlacedClusters:
    """Return the clusters of new rows with these coordinates, read when asked for."""
    return PlacedClusters((coordinates.shape[0],), np.dtype(np.int32), coordinates=coordinates, anchors=Anchors.of(run))


def clusters_of(run: Run, model: Run, coordinates: RowSource, fitted: int) -> RowSource:
    """Return the clusters of all rows of a growing map: as found of those fitted, by nearness of those placed since.

    Where a step has left rows out of the fit, those of all rows are by nearness.
    """
    found = rows_at(at(run.path(CLUSTERS, "labels")))
    return replace(new_clusters(model, coordinates), found=found if found.shape[0] == fitted else None)
