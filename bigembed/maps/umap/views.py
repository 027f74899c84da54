"""Two views of the rows on one map of UMAP: the fuzzy weights of both, intersected or united; targets as a second one.

v_ij comes of the weights of both views (:class:`Combination`). Then u_j|i = (v_ij / max_j v_ij)^p_i, with p_i so that
Σ_j u_j|i = log₂ 15, and w_ij = u_j|i + u_i|j − u_j|i·u_i|j: the weights of umap-learn's ``model1 * model2`` and
``model1 + model2``.
"""

from __future__ import annotations

from dataclasses import dataclass, fields, replace
from functools import partial
from hashlib import sha256
from math import sqrt
from typing import Any, Self

import numpy as np

from bigembed.errors import InputError
from bigembed.estimator.extension import Extension, Grouping
from bigembed.estimator.graph_input import GraphShape
from bigembed.estimator.preprocessing import with_cost_of_mapping
from bigembed.maps.descended import write_weights
from bigembed.maps.graph_rows import View, block_of_first, split_rows, views_of
from bigembed.maps.umap.descent import NO_MASSES, RATE, SHARE, SampledPlacement
from bigembed.neighbors import graph_stages, order, query, radius, survey
from bigembed.neighbors.views import ERRORS, VIEWS
from bigembed.rows import RowBlock, RowSource, derived, passes
from bigembed.runtime.blocks import Array, bounds, map_blocks
from bigembed.stages import ArraySpec, Context, Cost, Run, Stage, within
from bigembed.store.arrays import read_array, read_by_id
from bigembed.store.matrix import CSRBlock, StoredMatrix
from bigembed.store.spaces import StoredSpace
from bigembed.store.vector_space import tree_sum

# ----------------------------------------------------------------------------------------------------------- targets
# Numeric targets of UMAP: rows whose targets are near are neighbors in a second view, of one column.
#
# The fuzzy graph of the targets, of as many neighbors as the rows have, is intersected with that of the rows, and each
# row's strongest edge counts as one again: what umap-learn makes of a ``target_metric`` that is no discrete one, except
# that it intersects with a_{j|i} of the targets, and here it is their union, as of two views. New rows have no target,
# and are placed by the graph of the rows alone.

TARGET = "target-"
"""Before the names of the stages of the graph of the targets."""
NUMERIC = ("euclidean", "l2")
"""How numeric targets are compared: by their difference."""
TARGETS = ("categorical", *NUMERIC)
"""How labels, or numbers of the rows, are compared."""
RELATED = 1.15
"""Edges that the rows and their targets share, in units of those that chance gives, up to which targets say nothing."""


@dataclass(frozen=True)
class TargetColumn(derived.MappedSource):
    """The targets of the rows as one column, known by what they are, wherever they lie."""

    content: str = ""

    @classmethod
    def of(cls, target: RowSource) -> Self:
        """Return the targets (n, 1) of a vector (n,), which is read once, in pieces."""
        n, digest = target.shape[0], sha256()
        for start, stop in bounds(n, max(1, target.block)):
            digest.update(np.asarray(target.read(start, stop), np.float64).tobytes())
        known: dict[str, Any] = {"base": target, "function": target_block, "content": digest.hexdigest()}
        return cls((n, 1), np.dtype(np.float64), stamp="numeric target", **known)

    def fingerprint(self) -> str:
        """Digest of the numbers."""
        return sha256(f"{self.shape} {self.stamp} {self.content}".encode()).hexdigest()


def target_view(
    target: RowSource, graph: GraphShape, k: int, recall: float, seed: int, most: int
) -> tuple[list[Stage], GraphShape]:
    """Return the stages of the graph of the targets, and the graph of rows with both as its views.

    ``k``: neighbors of a target; ``most``: rows of a block.
    """
    if graph.rowless:
        raise InputError(
            "UMAP: a numeric target is joined with the graph of rows, and this is a graph or distances. Give the rows, "
            "a NeighborGraph of rows, or classes (target_metric='categorical')"
        )
    if target.dtype.kind not in "buif":
        raise InputError(
            f"UMAP: a numeric target (y) is a finite number of every row, and this has dtype {target.dtype}. Classes "
            "are for target_metric='categorical'"
        )
    column = TargetColumn.of(target)
    shape = survey.shape_of(column, "euclidean")
    stages = graph_stages.neighbor_stages(column, k, "euclidean", recall, seed, most=most)
    known: dict[str, Any] = {"row_bytes": shape.ordered_bytes, "dtype": shape.dtype}
    second = GraphShape(graph.n, min(most, shape.block), 1, k, dense=radius.is_dense(k, shape), **known)
    both = replace(graph, k=k + (graph.n - 1 if graph.k is None else graph.k), dense=False, views=(graph, second))
    return [within(with_cost_of_mapping(stage, column), TARGET) for stage in stages], both


def target_block(block: RowBlock) -> Array:
    """Return the targets of a block as a column; InputError that names rows without one."""
    found = np.asarray(block.rows, np.float64).reshape(-1, 1)
    wrong = np.flatnonzero(~np.isfinite(found))
    if len(wrong):
        raise InputError(
            f"UMAP: a numeric target (y) is a finite number of every row, and {len(wrong)} of rows {block.start} to "
            f"{block.start + len(found) - 1} have none, the first of rows "
            f"{(wrong[: passes.NAMED] + block.start).tolist()}. Leave these rows out, and place them as new ones"
        )
    return found


def unrelated_target(found: dict[str, Any]) -> list[str]:
    """Say of the figures of both graphs that rows with near targets are no nearer than others; nothing where they are.

    >>> common = {"edges": [20_000, 20_000], "shared": 3000, "shared_by_chance": 400.0}
    >>> unrelated_target(common), unrelated_target(common | {"shared": 420})[0][:38]
    ([], '420 of 20,000 neighbors have targets t')
    """
    shared, chance = found["shared"], found["shared_by_chance"]
    if shared > RELATED * chance + ERRORS * sqrt(chance):
        return []
    return [
        f"{shared:,} of {found['edges'][0]:,} neighbors have targets that are near, and by chance {chance:,.0f} would: "
        "the target says next to nothing of the rows, and what is near on the map is so by the target alone. See "
        "whether y is in the order of the rows; or leave target_metric out"
    ]


# ------------------------------------------------------------------------------------------------------------- views

INTERSECTION, UNION = "intersection", "union"
WAYS = (INTERSECTION, UNION)
"""How two views become one map."""
LEAST, MOST_LEAST = 1e-8, 1e-4
"""Bounds of the weight of an edge that a view does not have, which is half of its least one: below, and above of the
second view in an intersection."""
WEIGHT_SUM = float(np.log2(15.0))
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


def exponents(indptr: Array, values: Array, target: float = WEIGHT_SUM) -> Array:
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
    blocks, d = len(order.Ordered.open(model.index.order).blocks), sum(view.shape.d for view in model.views)
    most = query.MAX_PAIRS // (4 * model.n_neighbors)
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
