"""Coordinates of new rows of a diffusion map: the α-correct Nyström formula."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
from scipy.sparse import csr_array

from bigembed.blocks.owners import by_owner
from bigembed.blocks.rows import Array
from bigembed.embedding.extension import Grouping
from bigembed.embedding.graph.new_rows import block_of_rows, fitted_shape, ready_rows
from bigembed.embedding.walk.coordinates import Scaling, WalkCoordinates
from bigembed.kernels.gaussian import local_squared
from bigembed.kernels.scale import Bandwidth, own_scales
from bigembed.landmarks.nystrom import divided
from bigembed.neighbors.components.nearest_embedded import nearest_embedded
from bigembed.neighbors.given.query import GivenIndex, nearest_given
from bigembed.neighbors.joined import Joined
from bigembed.neighbors.ordering.order import Ordered
from bigembed.neighbors.ordering.survey import Shape
from bigembed.neighbors.query import MAX_PAIRS
from bigembed.neighbors.radius import EDGES_PLANNED
from bigembed.neighbors.radius_query import AnyIndex, RadiusIndex, any_index_of, join_parts, joining_memory
from bigembed.neighbors.search.by_metric import by_metric
from bigembed.runs import Run
from bigembed.store.arrays.io import read_array


@dataclass(frozen=True)
class WalkModel:
    """What a task needs to extend: paths into the run or the saved model, and small numbers."""

    index: AnyIndex
    shape: Shape
    fitted: WalkCoordinates
    averaged: str
    """What the walk averages to the eigenvectors themselves; empty where that is λ times them."""
    density: str
    search: str
    """Where the scales of the rows are; empty for a graph of a radius, which has one scale."""
    epsilon: float
    alpha: float
    bandwidth: Bandwidth
    floor: float
    """Least scale of a row."""
    unit: float | None
    """ρ_min² of a walk held back for a target (0 where all rows have one scale); None without one."""
    parts: int
    """How many of the first components have their own coordinates; other rows have those of their nearest row."""


def model_of(run: Run, metric: Any = None) -> WalkModel:
    """The extension model of a fitted run; ``metric``: what the caller gave, by which a function is known."""
    shape, coordinates = fitted_shape(run, metric), run.results("coordinates")
    asked, kernel, scale = run.parameters("kernel"), run.results("kernel"), run.results("bandwidth")
    rule = asked.get("rule", "self-tuned" if asked.get("self_tuned") else "fixed")  # (models before 0.2)
    return WalkModel(
        any_index_of(run, shape),
        shape,
        WalkCoordinates(
            run.path("solve", "right"),
            run.path("components", "labels"),
            tuple(Ordered.open(run.path("order")).starts),
            read_array(run.path("solve", "eigenvalues")),
            Scaling(coordinates["t"], coordinates["n_components"], columns=tuple(coordinates.get("columns", ()))),
        ),
        run.path("solve", "averaged") if run.results("solve").get("averaged") else "",
        run.path("kernel", "q"),
        "" if run.has("density") else run.path("search" if run.has("search") else "graph"),
        scale["epsilon"],
        kernel.get("alpha", asked["alpha"]),
        Bandwidth(scale["epsilon"], rule, asked["truncated"], bridged=asked.get("bridged", False)),
        scale.get("floor", 0.0),
        kernel["unit"] if "target" in asked else None,
        coordinates.get("parts") or parts_before(run),
    )


def parts_before(run: Run) -> int:
    """How many components of a model made before 0.2 have their own coordinates."""
    largest_only = run.parameters("coordinates")["policy"] == "largest"
    return 1 if largest_only else int(run.results("components")["components"])


def extend_rows(rows: Any, model: WalkModel) -> Array:
    """Coordinates of finite new rows, made ready for the search first."""
    return nystrom_rows(ready_rows(rows, model.shape), model)


def grouping(model: WalkModel) -> Grouping | None:
    """How new rows are brought to the blocks of fitted rows that they belong to; sparse rows are not."""
    if model.shape.sparse or isinstance(model.index, GivenIndex):
        return None
    blocks, shape = len(Ordered.open(model.index.order).blocks), model.shape
    edges = EDGES_PLANNED if isinstance(model.index, RadiusIndex) else 2 * model.index.n_neighbors
    most = MAX_PAIRS // edges  # so that batches need not be divided, mostly
    return Grouping(block_of_rows, blocks, shape.row_bytes, most, partial(extension_memory, model))


UNTOLD = 1e-3
"""Least share of an eigenvector that the average over the neighbors of a row must hold to be divided by."""


def extension_memory(model: WalkModel, rows: int) -> int:
    """Bytes that :func:`nystrom_rows` holds at most for that number of rows, without the rows themselves."""
    return joining_memory(model.index, model.shape, rows) + rows * 24 * int(model.fitted.eigenvalues.shape[-1])


def nystrom_rows(rows: Any, model: WalkModel) -> Array:
    """Nyström: ψ_l(x) = λ_l^{-1} Σ_j p(x, j) ψ_l(j), then λ^t (the q_x^{-α} of the new row cancels)."""
    coordinates = np.empty((rows.shape[0], model.fitted.width))
    for members, joined in join_parts(rows, model.index):
        coordinates[members] = _extend_joined(rows, members, joined, model)
    return coordinates


def _extend_joined(rows: Any, members: Array, joined: Joined, model: WalkModel) -> Array:
    """Coordinates of the rows ``members``, from their edges."""
    starts, eigenvalues = np.array(model.fitted.starts), model.fitted.eigenvalues
    near = _Neighborhood(joined.ids, starts)
    label = near.read(model.fitted.labels)
    kernel = _kernel(joined, near, model) * near.read(model.density).astype(np.float64) ** -model.alpha
    of_edge = np.repeat(np.arange(len(members)), np.diff(joined.indptr))
    home = _component(joined, kernel, label)
    home = np.where(home < model.parts, home, -1)
    kernel = np.where(label == home[of_edge], kernel, 0.0)
    if model.unit is not None:
        kernel[_twins(joined, of_edge)] = 0.0
    total, mean = near.sums(kernel, of_edge, len(members), model.averaged or model.fitted.right, eigenvalues.shape[-1])
    inside = total > 0
    own = eigenvalues[np.maximum(home, 0)] if eigenvalues.ndim == 2 else eigenvalues[None]
    if model.unit:
        own = _held(own, own_scales(joined.rho, model.floor) ** 2 / model.unit)
    mean = np.where(inside[:, None], mean / np.where(inside, total, 1)[:, None], 0.0)
    extended = mean if model.averaged else divided(mean, own)
    coordinates = model.fitted.scaled(extended, np.maximum(home, 0))
    outside = np.flatnonzero(~inside)
    if len(outside):
        coordinates[outside] = model.fitted.of_rows(_nearest(rows[members[outside]], joined, outside, model))
    return coordinates


def _nearest(rows: Any, joined: Joined, outside: Array, model: WalkModel) -> Array:
    """The fitted row with coordinates of its own that is nearest to each row that no edge leads to."""
    ordered, labels = Ordered.open(model.index.order), model.fitted.labels
    if isinstance(model.index, GivenIndex):
        whole = np.concatenate([read_array(f"{labels}/{b}") for b in range(len(ordered.blocks))])
        return nearest_given(rows, model.index, whole, model.parts)
    places = joined.block[outside], joined.cell[outside]
    return nearest_embedded(ordered, labels, rows, *places, model.parts, by_metric(model.shape))


def self_weight(rows: Any, model: WalkModel) -> Array:
    """1 / (1 + Σ_j k(x, x_j)) of prepared rows (m, d), over the fitted rows j that the graph joins to x, equal ones
    left out: how much of the walk would stay at x (k(x, x) = 1). In (0, 1]; 1 where no fitted row is within reach.

    Where scales follow the density the one of the fitted row counts: that of x would grow with its distance.
    """
    mass = np.zeros(len(rows))
    starts = np.array(model.fitted.starts)
    for members, joined in join_parts(rows, model.index):
        kernel = _kernel(joined, _Neighborhood(joined.ids, starts), model, theirs=True)
        of_edge = np.repeat(np.arange(len(members)), np.diff(joined.indptr))
        mass[members] = np.bincount(of_edge, np.where(joined.squared > 0, kernel, 0.0), minlength=len(members))
    return np.asarray(1.0 / (1.0 + mass))


def _component(joined: Joined, kernel: Array, label: Array) -> Array:
    """Component of each new row: that of the row joined to it with the largest weight (ties by id)."""
    home = np.full(len(joined.indptr) - 1, -1, np.int64)
    first = np.flatnonzero(np.diff(joined.indptr))
    if len(first):
        largest = np.maximum.reduceat(kernel, joined.indptr[first])
        best = np.flatnonzero(kernel == np.repeat(largest, np.diff(joined.indptr)[first]))
        home[first] = label[best[np.searchsorted(best, joined.indptr[first])]]
    return home


def _kernel(joined: Joined, near: _Neighborhood, model: WalkModel, theirs: bool = False) -> Array:
    squared = joined.squared.astype(np.float64)
    if model.bandwidth.local:
        fitted = own_scales(np.sqrt(near.read(f"{model.search}/rho_squared").astype(np.float64)), model.floor)
        own = fitted if theirs else np.repeat(own_scales(joined.rho, model.floor), np.diff(joined.indptr))
        squared = local_squared(squared, own, fitted, model.bandwidth.rule)
    return model.bandwidth.weights(squared, model.epsilon)


def _twins(joined: Joined, of_edge: Array) -> Array:
    """The edge of each new row to the fitted row that it is: of its edges of length 0 the first."""
    zeros = np.flatnonzero(joined.squared == 0)
    return zeros[np.unique(of_edge[zeros], return_index=True)[1]]


def _held(eigenvalues: Array, steps: Array) -> Array:
    """What Σ_{j≠i} p(x, j) ψ(j) is over ψ(x), (rows, m), for steps that last ``steps``: 1 − (1 − λ) ρ²/ρ_min².

    Where it is near 0 the neighbors do not determine ψ(x): their average is taken as it is.
    """
    factor = 1.0 - (1.0 - eigenvalues) * steps[:, None]
    return np.asarray(np.where(np.abs(factor) < UNTOLD, 1.0, factor))


class _Neighborhood:
    """Values of per-row arrays at the internal ids of edges, read block by block."""

    def __init__(self, ids: Array, starts: Array) -> None:
        self.ids = ids
        self.parts: list[tuple[int, Any, Array]] = [(0, slice(None), ids)]
        if len(starts) > 2:
            self.parts = list(by_owner(starts, ids))

    def read(self, path: str) -> Array:
        """The array (n,) under ``path/b`` at every id."""
        out = np.zeros(0)
        for b, edges, rows in self.parts:
            values = read_array(f"{path}/{b}")
            out = out if len(out) else np.zeros(len(self.ids), values.dtype)
            out[edges] = values[rows]
        return out

    def sums(self, weights: Array, of_edge: Array, n: int, path: str, width: int) -> tuple[Array, Array]:
        """Σ w and Σ w v over the edges of each new row, v (width,) from the array under ``path/b``.

        Block after block, edges by id: in the same order for a row whatever other rows there are.
        """
        total, mean = np.bincount(of_edge, weights, minlength=n), np.zeros((n, width))
        for b, edges, rows in self.parts:
            shape = (n, int(rows.max()) + 1)
            indptr = np.concatenate([[0], np.cumsum(np.bincount(of_edge[edges], minlength=n))])
            values = read_array(f"{path}/{b}")[: shape[1]]
            mean += csr_array((weights[edges], rows, indptr), shape=shape) @ values
        return total, mean
