"""PHATE: potential distances of a diffusion between landmarks, scaled to a map of all rows.

The stages that follow a neighbor graph are here: kernel, landmarks, their operator, their places, and those of all
rows.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, ClassVar

import numpy as np
from scipy.sparse import csr_array

from bigembed.estimator.extension import leave_rows, restore
from bigembed.estimator.graph_input import GraphShape
from bigembed.maps import descent, graph_judgement, graph_rows
from bigembed.maps.descended import EdgeWeights, mass_block, masses_of, pairs_of, planned_edges, weights_stage
from bigembed.maps.phate.landmarks import averages, landmark_count, landmarks_stage
from bigembed.maps.phate.potential import PhateOptions, potential_stage
from bigembed.maps.scales import ROUNDING, least_neighbors
from bigembed.maps.walk.spectral import components_stage, weights_of
from bigembed.neighbors.order import input_rows
from bigembed.neighbors.query import Joined
from bigembed.neighbors.row_weights import values_path
from bigembed.runtime.blocks import Array, block_rows, by_owner, map_blocks, offsets
from bigembed.stages import ArraySpec, Context, Cost, Run, Stage
from bigembed.store.arrays import create_rows, read_array, read_by_id, write_array
from bigembed.store.exchange import Exchange
from bigembed.store.matrix import CSRBlock, StoredMatrix
from bigembed.store.spaces import StoredSpace
from bigembed.store.vector_space import tree_sum


def phate_stages(graph: GraphShape, asked: PhateOptions) -> list[Stage]:
    """Return the stages: weights, components, landmarks, their operator and places, coordinates, and how far to trust
    them."""
    k, edges = planned_edges(graph)
    block, m = min(graph.block, graph.n), asked.n_components
    kernel = {"n_neighbors": asked.n_neighbors, "decay": asked.decay}
    parts = "" if graph.rowless else "components"
    return [
        weights_stage(graph, edges, AlphaDecay(asked.n_neighbors, asked.decay), kernel),
        components_stage(graph.stage, graph.n, k, block),
        landmarks_stage(graph, edges, asked.n_landmarks, asked.seed),
        operator_stage(graph, edges, asked.n_landmarks),
        potential_stage(graph, asked),
        coordinates_stage(graph, edges, asked),
        *graph_judgement.map_judgement_stages(graph, m, asked.seed, parts=parts),
    ]


# ---------------------------------------------------------------------------------------------------------- kernel
# The alpha-decay kernel on the edges of a graph of nearest neighbors. Of rows with weights the edges weigh
# w_i w_j K_ij: the walk w_j K_ij/Σ_l w_l K_il and the sums over the rows of a landmark are then those of copies.

THRESHOLD = 1e-4
"""Smaller weights are 0."""


def decayed(squared: Array, scale: Array, decay: float) -> Array:
    """Return exp(−(r/ε)^decay) of squared distances and squared scales; 0 below :data:`THRESHOLD`, and 1 at distance 0.

    >>> decayed(np.array([0.0, 1.0, 4.0]), np.array([0.0, 1.0, 1.0]), 2.0).round(4).tolist()
    [1.0, 0.3679, 0.0183]
    """
    squared = squared.astype(np.float64)
    with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
        weights = np.exp(-((squared / scale) ** (decay / 2)))
    return np.where(squared == 0, 1.0, np.where(weights < THRESHOLD, 0.0, weights))


def kth_squared(indptr: Array, squared: Array, k: int | Array) -> Array:
    """Return the k-th smallest squared distance of each row of a CSR block.

    k is an integer or one for each row, counted from 0. Of a row with fewer entries it is the largest, and where it
    would be 0 the smallest that is not (0 if all are).
    """
    count = np.diff(indptr)
    row = np.repeat(np.arange(len(count)), count)
    order = np.lexsort((squared, row))
    found = np.append(squared[order].astype(np.float64), 0.0)
    zeros = np.bincount(row, weights=squared == 0, minlength=len(count)).astype(np.int64)
    last = np.maximum(count - 1, 0)
    place = np.minimum(np.maximum(k, zeros), last)
    return np.where(count > 0, found[indptr[:-1] + place], 0.0)


def scales_of(indptr: Array, squared: Array, k: int, itself: Array | int, masses: Array | None) -> Array:
    """Return ε² of each row of a CSR block: the squared distance to its k-th neighbor.

    ``itself``: 1 for rows that are among their own entries, else 0. By the ``masses`` of the entries, if given, it is
    the distance within which they weigh k + 1 with the row itself, which counts 1 where it is none of them; but the k/3
    nearest ones are within at the least.

    >>> near = np.array([0, 3]), np.array([0.0, 1.0, 4.0])
    >>> [scales_of(*near, 1, 1, masses).tolist() for masses in (None, np.ones(3), np.array([1.0, 0.5, 0.5]))]
    [[1.0], [1.0], [4.0]]
    """
    if masses is None:
        return kth_squared(indptr, squared, k - 1 + itself)
    row = np.repeat(np.arange(len(indptr) - 1), np.diff(indptr))
    reached = np.cumsum(masses[np.lexsort((squared, row))], dtype=np.float64)
    reached -= np.append(0.0, reached)[indptr[:-1]][row]
    lighter = reached < np.broadcast_to(k + np.asarray(itself), len(indptr) - 1)[row] * (1 - ROUNDING)
    nearer = np.bincount(row, lighter, len(indptr) - 1).astype(np.int64)
    return kth_squared(indptr, squared, np.maximum(nearer, least_neighbors(k) - 1 + itself))


@dataclass(frozen=True)
class AlphaDecay(EdgeWeights):
    """K_ij = (exp(−(r/ε_i)^decay) + exp(−(r/ε_j)^decay))/2, ε the distance to the k-th neighbor of a row."""

    k: int
    decay: float
    counts: ClassVar = True
    numbers: ClassVar = 2
    operations: ClassVar = 60

    def scales(
        self, block: CSRBlock, ids: Array, reach: Array, last: Array, k: int, masses: Array | None = None
    ) -> Array:
        """Return ε² of each row, and ρ², where its list of neighbors ends."""
        near = None if masses is None else masses[block.indices]
        return np.column_stack([scales_of(block.indptr, block.data, self.k, 1, near), reach])

    def weigh(
        self, block: CSRBlock, ids: Array, scales: Array, masses: Array | None = None
    ) -> tuple[Array, float, float]:
        """Return K_ij, times w_i w_j of rows with weights, their sum, and the sum of what the kernel of each row still
        is where its list ends."""
        rows = len(block.indptr) - 1
        scale, reach = scales[:, 0], scales[:rows, 1]
        own = decayed(block.data, np.repeat(scale[:rows], np.diff(block.indptr)), self.decay)
        mean = (own + decayed(block.data, scale[block.indices], self.decay)) / 2
        weights = (mean if masses is None else mean * pairs_of(block, masses)).astype(np.float32)
        ended = decayed(np.where(np.isfinite(reach), reach, 0.0), scale[:rows], self.decay)
        cut = np.where(np.isfinite(reach) & (reach > 0), ended, 0.0)
        return weights, float(weights.sum(dtype=np.float64)), float(cut.sum())

    def unit(self, total: float, largest: float) -> float:
        """Return 1: weights of a user are not taken."""
        return 1.0

    def figures(self, weights: Array, pairs: Array | None = None) -> tuple[float, float]:
        """Return Σ w, and 0."""
        return float(weights.sum(dtype=np.float64)), 0.0

    def results(self, figures: list[tuple[float, float]], k: int | None) -> dict[str, Any]:
        """Return Σ K and what was cut, over all blocks, and the neighbors that were listed."""
        mass, cut = (float(tree_sum([part[i] for part in figures])) for i in range(2))
        return {"n_neighbors": k, "mass": mass, "cut": cut}


# -------------------------------------------------------------------------------------------------------- operator
# The walk from landmark to row to landmark: with C the rows of each landmark and D_c the sum of their degrees,
#
#     P(c, c') = Σ_j (Cᵀ K)_cj/D_c · (K C)_jc'/d_j,
#
# a sum over blocks of rows. Where every row is a landmark it is the walk itself, D⁻¹ K.


def operator_stage(graph: GraphShape, edges: int, wanted: int) -> Stage:
    """``operator`` (L, L): the transitions between landmarks."""
    n, block, count = graph.n, min(graph.block, graph.n), landmark_count(graph, wanted)
    few = n <= wanted
    cost = Cost.of(
        reads=[ArraySpec("edges", edges, 3)],
        writes=[ArraySpec("operator", count, count)],
        leaves=[
            ArraySpec("landmarks of the rows and of the halo", n, 2, "i8"),
            ArraySpec("products of blocks", min(count * count * -(-n // block), 4 * edges), 2, times=0 if few else 1),
        ],
        task=[ArraySpec("edges", -(-edges // n) * block, 8), ArraySpec("sum and products", count, count, times=4)],
        passes=1,
        scalar_ops=10 * edges,
        maps=3,
    )
    return Stage("operator", ("kernel", graph.stage, "landmarks"), {}, run_operator, cost)


def run_operator(context: Context) -> dict[str, Any]:
    weights, found = weights_of(context), context.results("landmarks")
    space, count = StoredSpace(weights, context.exchange), found["landmarks"]
    lies, degree = context.of("landmarks", "cluster"), context.of("kernel", "degree")
    space.sweep(landmark_block, writes=["landmark"], posts=["landmark"], arguments=(lies,))
    shared = (weights, degree, count, found["every_row"], context.exchange)
    space.sweep(product_block, reads=["landmark"], halos=["landmark"], arguments=shared)
    task: dict[str, Any] = {"exchange": context.exchange, "count": count, "out": context.path("operator")}
    [stays] = map_blocks(sum_blocks, [(len(weights.rows),)], **task)
    return {"landmarks": count, "stays": stays}


def landmark_block(b: int, lies: str) -> tuple[tuple[Array], None]:
    """Return the landmarks of the rows of one block, (rows, 1)."""
    return (read_array(f"{lies}/{b}")[:, None].astype(np.int64),), None


def product_block(
    b: int, own: Array, halo: Array, weights: StoredMatrix, degree: str, count: int, whole: bool, exchange: Exchange
) -> tuple[tuple[()], None]:
    """Leave (K C)ᵀ D⁻¹ (K C) over the rows of one block; Cᵀ K C, of the ``whole`` matrix."""
    block, d = weights.block(b), read_array(f"{degree}/{b}")
    landmark = np.concatenate([own, halo])[:, 0]
    parts = block.data.astype(np.float64), landmark[block.indices], block.indptr.copy()  # (which is summed up in place)
    reached = csr_array(parts, shape=(len(d), count))
    reached.sum_duplicates()
    if whole:
        left = csr_array((np.ones(len(d)), (own[:, 0], np.arange(len(d)))), shape=(count, len(d)))
    else:
        left = (reached.multiply(1.0 / d[:, None])).T.tocsr()
    found = csr_array(left @ reached)
    found.sort_indices()
    exchange.put("product", b, {"indptr": found.indptr, "indices": found.indices, "data": found.data})
    return (), None


def sum_blocks(blocks: int, *, exchange: Exchange, count: int, out: str) -> float:
    """Add up what the blocks left, and write the rows scaled to sum 1; return the mean of the diagonal."""
    total = np.zeros((count, count))
    for b in range(blocks):
        indptr, indices, data = exchange.get_many("product", b, ["indptr", "indices", "data"])
        row = np.repeat(np.arange(count), np.diff(indptr))
        total[row, indices] += data
    total /= total.sum(axis=1, keepdims=True)
    write_array(out, total)
    return float(np.trace(total)) / count


# ----------------------------------------------------------------------------------------------------- coordinates
# Each row is where the walk takes it in one step: the mean of the points of the landmarks of its neighbors.


def coordinates_stage(graph: GraphShape, edges: int, asked: PhateOptions) -> Stage:
    """``embedding`` (n, m) and ``labels`` (n,) in the order of the input; by blocks ``points`` (rows, m + 1): the
    points of the landmark of each row, and its squared scale."""
    n, m, block = graph.n, asked.n_components, min(graph.block, graph.n)
    found = [ArraySpec("embedding", n, m), ArraySpec("labels", n, dtype="i4")]
    cost = Cost.of(
        reads=[ArraySpec("edges", edges, 3, times=2)],
        writes=[*found, ArraySpec("points/*", n, m + 1)],
        leaves=[
            *found,
            ArraySpec("points of the rows and of the halo", n, m, times=3),
            ArraySpec("numbers", n, 2 if graph.vectors else 1),
        ],
        task=[
            ArraySpec("edges", -(-edges // n) * block, 10 if graph.vectors else 6),
            ArraySpec("coordinates", block, m + 3, times=8),
        ],
        passes=2,
        maps=5,
    )
    inputs = ("kernel", "components", "landmarks", "potential", graph.stage, *(("order",) if graph.ordered else ()))
    run = partial(run_coordinates, graph=graph, m=m, k=asked.n_neighbors)
    return Stage("coordinates", (*inputs, *graph.vectors), {}, run, cost)


def run_coordinates(context: Context, graph: GraphShape, m: int, k: int) -> dict[str, Any]:
    weights, every = weights_of(context), context.results("landmarks")["every_row"]
    space, rows, exchange = StoredSpace(weights, context.exchange), tuple(weights.rows), context.exchange
    lengths, repeats = context.home.matrix(graph.stage), graph_rows.repeats_of(context)
    anchors = context.of("landmarks", "cluster"), context.of("potential", "points"), lengths, k, context.path("points")
    mass = ["mass"] if values_path(context) else []
    if mass:
        space.sweep(mass_block, writes=mass, posts=mass, arguments=(values_path(context),))
    space.sweep(anchor_block, reads=mass, halos=mass, writes=["anchor"], posts=["anchor"], arguments=anchors)
    averaged = weights, context.of("kernel", "degree"), every
    space.sweep(place_block, reads=["anchor"], halos=["anchor"], writes=["place"], arguments=averaged)
    out_rows, labels = block_rows(m, 8), context.of("components", "labels")
    order = context.of("order") if graph.ordered else ""
    known: dict[str, Any] = {"space": space, "rows": rows, "labels": labels, "order": order, "repeats": repeats}
    repeated = map_blocks(leave_block, [(b,) for b in range(len(rows))], out_rows=out_rows, exchange=exchange, **known)
    create_rows(context.path("embedding"), (graph.n, m), np.float64, out_rows)
    create_rows(context.path("labels"), (graph.n,), np.int32, out_rows)
    restore(exchange, len(rows), ("embedding", "labels"), graph.n, out_rows, context.path(""))
    return {"n_components": m, "repeated_rows": sum(repeated)}


def anchor_block(b: int, *given: Any) -> tuple[tuple[Array], None]:
    """Return the points of the landmarks of the rows of a block, (rows, m); write them with squared scales.

    Given are the masses of the rows and of the halo, if there are any; then what all blocks share.
    """
    *found, lies, points, distances, k, out = given
    block = distances.block(b)
    near = masses[0][block.indices] if (masses := masses_of(found)) else None
    anchor = read_array(points)[read_array(f"{lies}/{b}")]
    write_array(f"{out}/{b}", np.column_stack([anchor, scales_of(block.indptr, block.data, k, 1, near)]))
    return (anchor,), None


def place_block(
    b: int, own: Array, halo: Array, weights: StoredMatrix, degree: str, every: bool
) -> tuple[tuple[Array], None]:
    """Return coordinates (rows, m) of one block: their own points where every row is a landmark, else averages."""
    if every:
        return (np.array(own),), None
    return (averages(weights, b, np.concatenate([own, halo]), read_array(f"{degree}/{b}")),), None


def leave_block(
    b: int,
    *,
    space: StoredSpace,
    rows: Sequence[int],
    labels: str,
    order: str,
    repeats: graph_rows.Repeats | None,
    out_rows: int,
    exchange: Exchange,
) -> int:
    """Leave the coordinates of a block for the output, of rows that repeat another one those of that one.

    Return how many do.
    """
    starts = offsets(rows).tolist()
    found = np.array(space.read("place", b))
    again, firsts = repeats.block(b) if repeats else (np.zeros(0, np.int64), np.zeros(0, np.int64))
    for source, mine, inside in by_owner(starts, firsts):
        found[again[mine]] = space.read("place", source)[inside]
    ids = input_rows(order, b, starts)
    known = {"embedding": found, "labels": read_array(f"{labels}/{b}")}
    leave_rows(exchange, b, ids, known, starts[-1], out_rows)
    return len(again)


# -------------------------------------------------------------------------------------------------------- new rows


@dataclass(frozen=True)
class LandmarkPlacement(descent.Placement):
    """The kernel of a fitted map, and whether every row is a landmark."""

    k: int
    decay: float
    every: bool
    mass: str = ""
    """Where the rows have their masses."""

    def place(self, joined: Joined, squared: Array, points: Array) -> Array:
        """Return the mean of the landmarks' points over the edges of each new row, by the kernel."""
        count = len(joined.indptr) - 1
        edges = np.diff(joined.indptr)
        row = np.repeat(np.arange(count), edges)
        zero = np.flatnonzero(squared == 0)
        known, first = np.unique(row[zero], return_index=True)
        itself = np.zeros(count, np.int64)
        itself[known] = 1
        masses = read_by_id(self.mass, self.starts, joined.ids) if self.mass else None
        scale = scales_of(joined.indptr, squared, self.k, itself, masses)
        weights = (decayed(squared, scale[row], self.decay) + decayed(squared, points[:, -1], self.decay)) / 2
        if masses is not None:
            weights *= masses
        matrix = csr_array((weights, np.arange(len(row)), joined.indptr), shape=(count, len(row)))
        total = np.asarray(matrix.sum(axis=1)).ravel()
        found = np.asarray(matrix @ points[:, :-1]) / np.where(total > 0, total, 1.0)[:, None]
        if self.every:
            found[known] = points[zero[first], :-1]
        return found


def placement_of(run: Run, asked: dict[str, Any], metric: Any = None) -> LandmarkPlacement:
    """Return how new rows are placed on the map of a fitted run; ``metric``: as the caller gave it."""
    every = bool(run.results("landmarks")["every_row"])
    fields = descent.fields_of_placement(run, metric)
    return LandmarkPlacement(*fields, asked["n_neighbors"], asked["decay"], every, values_path(run))
