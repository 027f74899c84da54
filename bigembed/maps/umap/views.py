"""Two views of the rows on one map of UMAP: the fuzzy weights of both, intersected or united, and new rows.

v_ij comes of the weights of both views (:class:`Combination`). Then u_j|i = (v_ij / max_j v_ij)^p_i, with p_i so that
Σ_j u_j|i = log₂ 15, and w_ij = u_j|i + u_i|j − u_j|i·u_i|j: the weights of umap-learn's ``model1 * model2`` and
``model1 + model2``.
"""

from __future__ import annotations

from dataclasses import dataclass, fields
from functools import partial
from typing import Any

import numpy as np

from bigembed.estimator.extension import Extension, Grouping
from bigembed.estimator.graph_input import GraphShape
from bigembed.maps.graph_rows import View, block_of_first, split_rows, views_of
from bigembed.maps.map_stages import write_weights
from bigembed.maps.umap.descent import NO_MASSES, RATE, SHARE, SampledPlacement
from bigembed.neighbors.order import Ordered
from bigembed.neighbors.query import MAX_PAIRS
from bigembed.neighbors.views import VIEWS
from bigembed.runtime.blocks import Array, map_blocks
from bigembed.stages.cost import ArraySpec, Cost
from bigembed.stages.runs import Run
from bigembed.stages.stage import Context, Stage
from bigembed.store.arrays import read_array, read_by_id
from bigembed.store.matrix import CSRBlock, StoredMatrix
from bigembed.store.spaces import StoredSpace
from bigembed.store.vector_space import tree_sum

INTERSECTION, UNION = "intersection", "union"
WAYS = (INTERSECTION, UNION)
"""How two views become one map."""
LEAST, MOST_LEAST = 1e-8, 1e-4
"""Bounds of the weight of an edge that a view does not have, which is half of its least one: below, and above of the
second view in an intersection."""
TARGET = float(np.log2(15.0))
"""What the memberships of a row add up to, as umap-learn has it whatever the number of neighbors."""
BISECTIONS = 32
WITHIN = 1e-5
"""Of the sum of a row, where the bisection ends."""

# ------------------------------------------------------------------------------------------------------------ rule


@dataclass(frozen=True)
class Combination:
    """How the weights of two views become one."""

    how: str
    """One of :data:`WAYS`."""
    weight: float
    """Of the second view in an intersection."""
    target: bool = False
    """Whether the second view is a target of the rows: then p_i is 1."""

    def key(self) -> dict[str, Any]:
        """Return what is asked, for the key of a stage."""
        weight = {"weight": self.weight} if self.how == INTERSECTION else {}
        return {"how": self.how} | weight | ({"target": True} if self.target else {})

    def least(self, first: float, second: float) -> tuple[float, float]:
        """Return the weights of edges that a view does not have, from the least weights of both.

        >>> Combination("union", 0.5).least(0.2, 0.4), Combination("intersection", 0.5).least(0.2, 0.4)
        ((0.1, 0.2), (0.1, 0.0001))
        """
        low, other = max(first / 2.0, LEAST), max(second / 2.0, LEAST)
        return low, min(other, MOST_LEAST) if self.how == INTERSECTION else other

    def of(self, first: Array, second: Array, least: tuple[float, float]) -> Array:
        """Return v of edges with weights ``first`` and ``second``, 0 where a view has no such edge.

        The union is a + b − ab; the intersection is a^((1 − weight)/weight)·b from a weight of ½ on, else
        a·b^(weight/(1 − weight)); an edge that one view does not have counts there as the ``least``. (One that neither
        view has above that is a + b.)

        >>> Combination("intersection", 0.5).of(np.array([0.5]), np.array([0.0]), (0.1, 0.01)).tolist()
        [0.005]
        """
        a, b = (np.where(w > 0, w, low).astype(np.float64) for w, low in zip((first, second), least, strict=True))
        if self.how == UNION:
            return np.asarray(a + b - a * b)
        if self.weight < 0.5:
            made = a * b ** (self.weight / (1.0 - self.weight))
        else:
            made = b * a ** ((1.0 - self.weight) / self.weight)
        return np.where((a > least[0]) | (b > least[1]), made, first.astype(np.float64) + second)


def exponents(indptr: Array, values: Array, target: float = TARGET) -> Array:
    """Return p of each row so that Σ_j v_ij^p is the ``target``, for v of at most 1, by bisection as umap-learn has it.

    Where a row has too few edges for it, or all are 1, p is what the bisection ends at.

    >>> values = np.array([1.0, 0.5, 0.5, 0.5])
    >>> float((values ** exponents(np.array([0, 4]), values, 2.0)[0]).sum().round(4))
    2.0
    """
    rows, row = len(indptr) - 1, np.repeat(np.arange(len(indptr) - 1), np.diff(indptr))
    low, high, middle = np.zeros(rows), np.full(rows, np.inf), np.ones(rows)
    there = values > 0
    logs = np.log(np.where(there, values, 1.0))
    for _ in range(BISECTIONS):
        total = np.bincount(row, np.where(there, np.exp(logs * middle[row]), 0.0), rows)
        less, going = total < target, abs(total - target) >= WITHIN
        if not going.any():
            break
        high, low = np.where(going & less, middle, high), np.where(going & ~less, middle, low)
        doubled = np.where(np.isinf(high), 2.0 * middle, 0.5 * (low + np.where(np.isinf(high), 0.0, high)))
        middle = np.where(going, doubled, middle)
    return middle


# ---------------------------------------------------------------------------------------------------------- blocks


@dataclass(frozen=True)
class BothWeights:
    """The weights of both views on the edges that either has, and how they are combined."""

    first: StoredMatrix
    second: StoredMatrix
    how: Combination
    least: tuple[float, float]

    def block(self, b: int) -> tuple[CSRBlock, Array]:
        """Return the edges of a block, and v of each, 0 on the diagonal."""
        block = self.first.block(b)
        values = self.how.of(block.data, self.second.block(b).data, self.least)
        values[block.diagonal] = 0.0
        return block, values


def least_block(b: int, *, matrix: StoredMatrix) -> float:
    """Return the least weight above 0 of a block; infinity where there is none."""
    data = matrix.block(b).data
    return float(data[data > 0].min(initial=np.inf))


def row_scale_block(b: int, both: BothWeights) -> tuple[tuple[Array], None]:
    """Return of each row the largest v, and p."""
    block, values = both.block(b)
    largest = np.zeros(len(block.indptr) - 1)
    np.maximum.at(largest, block.row, values)
    scale = np.where(largest > 0, largest, 1.0)
    power = np.ones(len(scale)) if both.how.target else exponents(block.indptr, values / scale[block.row])
    return (np.column_stack([scale, power]),), None


def combined_block(
    b: int, scales: Array, halo: Array, both: BothWeights, out: str
) -> tuple[tuple[()], tuple[int, float, float]]:
    """Write w of one block and the sums of its rows; the number of edges, Σ w and the largest w."""
    (block, values), every = both.block(b), np.concatenate([scales, halo])
    mine, theirs = ((values / every[at, 0]) ** every[at, 1] for at in (block.row, block.indices))
    made = np.where(values > 0, mine + theirs - mine * theirs, 0.0).astype(np.float32)
    return (), (write_weights(b, block, made, out), float(made.sum(dtype=np.float64)), float(made.max(initial=0.0)))


# ---------------------------------------------------------------------------------------------------------- stages


def combined_stage(graph: GraphShape, edges: int, how: Combination, first: str, name: str = "kernel") -> Stage:
    """``kernel/weights`` on the edges that either view has, and their row sums ``degree``.

    ``first``: the stage with the weights of the first view, which says how many neighbors there are.
    """
    n, block = graph.n, min(graph.block, graph.n)
    cost = Cost.of(
        reads=[ArraySpec("edges and weights of both views", edges, 4, times=2)],
        writes=[ArraySpec("weights/*", edges, dtype="f4"), ArraySpec("degree/*", n)],
        leaves=[ArraySpec("scales of the rows and of the halo", n, 2, times=2)],
        task=[ArraySpec("edges", -(-edges // n) * block, 14)],
        passes=3,
        scalar_ops=20 * BISECTIONS * edges,
        maps=4,
    )
    run = partial(run_combined, how=how, first=first)
    return Stage(name, (VIEWS, first), how.key(), run, cost)


def run_combined(context: Context, how: Combination, first: str) -> dict[str, Any]:
    first_view, second_view = (context.home.matrix(VIEWS, name) for name in ("first", "second"))
    blocks = [(b,) for b in range(len(first_view.rows))]
    one, other = (min(map_blocks(least_block, blocks, matrix=matrix)) for matrix in (first_view, second_view))
    both = BothWeights(first_view, second_view, how, how.least(one, other))
    space, names = StoredSpace(first_view, context.exchange), ["scales"]
    space.sweep(row_scale_block, writes=names, posts=names, arguments=(both,))
    parts = space.sweep(combined_block, reads=names, halos=names, arguments=(both, context.path("")))
    return {
        "edges": sum(part[0] for part in parts),
        "rows": list(first_view.rows),
        "n_neighbors": context.results(first)["n_neighbors"],
        "mass": float(tree_sum([part[1] for part in parts])),
        "largest": max(part[2] for part in parts),
        "least": list(both.least),
    }


# -------------------------------------------------------------------------------------------------------- new rows


@dataclass(frozen=True)
class ViewsPlacement(SampledPlacement):
    """The index of both views, and how their memberships become one."""

    views: tuple[View, View]
    how: Combination
    least: tuple[float, float]

    def place_rows(self, rows: Array) -> Array:
        """Return the places where new rows come to rest."""
        from bigembed.maps.umap.compiled import place_by_weights  # imports numba: only here

        indptr, ids, weights, twins = self.joined(rows)
        first = self.asked.n_epochs + 1  # (as of one view)
        keys = [self.asked.key(first + epoch) for epoch in range(max(1, self.asked.n_epochs // SHARE))]
        out = place_by_weights(
            indptr,
            weights,
            read_by_id(self.points, self.starts, ids),
            read_array(self.pool),
            np.array(keys),
            self.asked.at(0, 1.0),
            RATE * self.asked.learning_rate,
            read_by_id(self.masses, self.starts, ids) if self.masses else NO_MASSES,
        )
        known = np.flatnonzero(twins >= 0)
        if len(known):
            out[known] = read_by_id(self.points, self.starts, twins[known])
        return out

    def joined(self, rows: Array) -> tuple[Array, Array, Array, Array]:
        """Return pointers, fitted rows and weights u of the edges of new rows, and the fitted row that each equals.

        −1 of a new row that equals none.
        """
        from bigembed.maps.umap.compiled import own_memberships

        n, count = int(self.starts[-1]), len(rows)
        keys, values, near = [], [], []
        for view, part in zip(self.views, split_rows(rows, self), strict=True):
            found = view.edges(part)
            squared = found.squared.astype(np.float64)
            weight = own_memberships(found.indptr, squared, view.n_neighbors, self.k, self.connectivity)
            key = np.repeat(np.arange(count), np.diff(found.indptr)) * n + view.in_first(found.ids)
            keys.append(key[weight > 0])
            values.append(weight[weight > 0])
            near.append(key[squared == 0])
        both, place = np.unique(np.concatenate(keys), return_inverse=True)
        weights = np.zeros((2, len(both)))
        for number, at in enumerate(np.split(place, [len(keys[0])])):
            weights[number, at] = values[number]
        row, ids = both // n, both % n
        indptr = np.concatenate([[0], np.cumsum(np.bincount(row, minlength=count))]).astype(np.int64)
        made = self.how.of(weights[0], weights[1], self.least)
        largest = np.maximum.reduceat(made, indptr[:-1])
        made /= np.where(largest > 0, largest, 1.0)[row]
        twins, equal = np.full(count, -1, np.int64), np.intersect1d(*near)[::-1]
        twins[equal // n] = equal % n  # (the lowest is written last)
        return indptr, ids, made ** exponents(indptr, made)[row], twins


def views_extension_of(model: ViewsPlacement) -> Extension:
    """Return how new rows, of both views side by side, are brought to the blocks of the first, and placed."""
    blocks, d = len(Ordered.open(model.index.order).blocks), sum(view.shape.d for view in model.views)
    most = MAX_PAIRS // (4 * model.n_neighbors)
    row_bytes = sum(view.shape.row_bytes for view in model.views)
    grouping = Grouping(block_of_first, blocks, row_bytes, most, partial(placing_memory, model))
    return Extension(place_rows, model, model.width, d, grouping=grouping, cheap=False)


def placing_memory(model: ViewsPlacement, rows: int) -> int:
    """Return the bytes that :func:`place_rows` holds for so many rows, without the rows themselves."""
    edges = rows * 4 * model.n_neighbors
    held = sum(view.memory(rows) for view in model.views)
    return held + edges * (120 + 8 * model.width) + (64 << 20)


def place_rows(rows: Array, model: ViewsPlacement) -> Array:
    """Return coordinates of finite new rows (n, m)."""
    return model.place_rows(rows) if len(rows) else np.zeros((0, model.width))


def views_placement_of(run: Run, plain: SampledPlacement, how: Combination, metric: Any = None) -> ViewsPlacement:
    """Return how new rows are placed on a map of two views; ``plain``: how they would be on that of the first."""
    least = run.results("kernel")["least"]
    known = {one.name: getattr(plain, one.name) for one in fields(plain)}
    return ViewsPlacement(**known, views=views_of(run, metric), how=how, least=(least[0], least[1]))
