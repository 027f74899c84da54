"""Coordinates of new rows of a diffusion map: the α-correct Nyström formula."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from typing import Any, Protocol, Self

import numpy as np
from scipy.sparse import csr_array

from bigembed.errors import InputError, InputTypeError
from bigembed.estimator import base, check_fitted, extension
from bigembed.estimator import run_of as fitted_run
from bigembed.maps.bandwidth import Bandwidth, kernel_in, own_scales
from bigembed.maps.graph_rows import block_of_rows, fitted_shape, ready_rows
from bigembed.maps.kernels import local_squared
from bigembed.maps.landmark_maps import divided
from bigembed.maps.scales import EQUAL, SCALES, in_mass, twins_of
from bigembed.maps.walk.along import TOGETHER, Averaged, Averages, averages_along, averages_memory
from bigembed.maps.walk.coordinates import Scaling, WalkCoordinates
from bigembed.neighbors import components, radius, survey
from bigembed.neighbors.given import query
from bigembed.neighbors.order import Ordered
from bigembed.neighbors.query import MAX_PAIRS, Index, Joined
from bigembed.neighbors.row_weights import DENSITY, WEIGHTS, InputOrder, values_path
from bigembed.neighbors.search.by_metric import by_metric
from bigembed.rows import RowSource, rows_at
from bigembed.rows.input import column_source, row_source
from bigembed.rows.sparse import is_csr_group
from bigembed.runtime.blocks import Array, by_owner
from bigembed.stages.runs import Run
from bigembed.stages.stage import Context
from bigembed.store import AnyPath, at, is_path
from bigembed.store.arrays import read_array, read_by_id

# ----------------------------------------------------------------------------------------------------- fitted walk
# What functions of a fitted walk need of it: its stages, the order of the input, columns that belong to its rows.


def run_of(fitted: Any, what: str, one: bool = True) -> Run:
    """The run of a map whose walk is there; InputTypeError for another one (UMAP only starts from a spectrum), and for
    a saved model. ``one``: it is that on one graph."""
    if not isinstance(fitted, base.Estimator):
        raise InputTypeError(f"{what} takes a fitted map of a walk, such as DiffusionMap; got {type(fitted).__name__}")
    check_fitted(fitted)
    run = fitted_run(fitted)
    run.check()
    there = all(run.has(stage) for stage in ("kernel", "components", "solve", "coordinates"))
    walks = there and "t" in run.results("coordinates") and (not one or "degree_sums" in run.results("solve"))
    if run.kind == "model" or not walks:
        why = "a saved model does not hold its walk" if run.kind == "model" else f"{type(fitted).__name__} has none"
        raise InputTypeError(f"{what} needs the walk of a fitted map, and {why}. Fit a DiffusionMap")
    return run


def order_of(context: Context) -> InputOrder:
    """Which rows of the input the blocks of a fitted walk hold."""
    return InputOrder.of(context, context.results("kernel")["rows"])


@dataclass(frozen=True)
class WalkVectors:
    """Where a task finds the eigenvectors of the rows, by blocks of the graph."""

    right: str
    degree: str
    labels: str
    replaced: str
    """Which rows have the coordinates of another one; empty where none has."""
    order: InputOrder
    symmetric: bool
    weights: str = ""
    """Where the weights of the rows are; empty where they have none."""

    @classmethod
    def of(cls, context: Context, symmetric: bool) -> Self:
        """Those of a fitted walk."""
        found = context.results("coordinates")
        replaced = context.of("coordinates") if found["filled_rows"] or found["repeated_rows"] else ""
        paths = context.of("solve", "right"), context.of("kernel", "degree"), context.of("components", "labels")
        return cls(*paths, replaced, order_of(context), symmetric, values_path(context))

    def block(self, b: int) -> Array:
        """Eigenvectors of the rows of a block; of a row that repeats another one those of that one."""
        out, weight = read_array(f"{self.right}/{b}"), self._degrees(b)
        if self.replaced:
            rows, ids = (read_array(f"{self.replaced}/{name}/{b}") for name in ("outside", "nearest"))
            out[rows] = read_by_id(self.right, self.order.starts, ids)
            weight[rows] = read_by_id(self.degree, self.order.starts, ids)
            if self.weights:
                weight[rows] /= read_by_id(self.weights, self.order.starts, ids)
        return out * np.sqrt(weight)[:, None] if self.symmetric else out

    def _degrees(self, b: int) -> Array:
        """Degrees of the rows of a block; of weighted rows those of each of the copies that they stand for."""
        degree = read_array(f"{self.degree}/{b}")
        return degree / read_array(f"{self.weights}/{b}") if self.weights else degree


def inputs_of(run: Run) -> tuple[str, ...]:
    """The stages that a function of the walk depends on."""
    order = ("order",) if run.has("order") else ()
    graph = next(name for name in ("bridge", "graph", "weights") if run.has(name))
    weights = (WEIGHTS,) if run.results("kernel").get(WEIGHTS) else ()
    return ("kernel", graph, "components", "solve", "coordinates", *order, *weights)


@dataclass(frozen=True)
class ColumnVector(RowSource):
    """One column, from an array of one dimension."""

    def read(self, start: int, stop: int) -> Array:
        """Rows ``start:stop``, (rows, 1)."""
        return np.asarray(super().read(start, stop)).reshape(-1, 1)


def columns_source(columns: Any, n: int, scratch: AnyPath) -> tuple[RowSource, bool, bool]:
    """Columns (n, c) or (n,) that belong to the rows of the input; whether in memory, and whether a vector."""
    if is_path(columns):
        path = at(columns).absolute()
        flat = not is_csr_group(path) and len(rows_at(path).shape) == 1
    else:
        flat = getattr(columns, "ndim", None) == 1 or (not hasattr(columns, "shape") and np.ndim(columns) == 1)
    if flat:
        vector = column_source(columns, n, scratch, "columns")
        source: RowSource = ColumnVector((n, 1), vector.dtype, vector.path, vector.array, offset=vector.offset)
        in_memory = not is_path(columns) and not hasattr(columns, "dask")
    else:
        source, in_memory = row_source(columns, scratch, "columns", sparse=True)
    if source.shape[0] != n:
        raise InputError(f"the columns have {source.shape[0]:,} rows, the map has {n:,}; give one for each")
    if source.dtype.kind not in "buif":
        raise InputError(f"the columns hold {source.dtype}; numbers are needed. Encode text first")
    return source, in_memory, flat


# ------------------------------------------------------------------------------------------------------- extension


@dataclass(frozen=True)
class WalkModel:
    """What a task needs to extend: paths into the run or the saved model, and small numbers."""

    index: query.AnyIndex
    shape: survey.Shape
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
    weights: str
    """Where the weights of the fitted rows are; empty where they have none."""
    wanted: str
    """Where the density is that the fitted rows were to have; empty where none was given."""
    by_mass: tuple[float, int, float] | None
    """The mass that a scale holds, the neighbors that it reaches at the least, and the dimension of the rows, where
    scales are by the mass of neighbors; else None."""
    parts: int
    """How many of the first components have their own coordinates; other rows have those of their nearest row."""
    balanced: bool = False
    """Whether the kernel is bistochastic, without its diagonal."""


def model_of(run: Run, metric: Any = None) -> WalkModel:
    """The extension model of a fitted run; ``metric``: what the caller gave, by which a function is known."""
    shape, coordinates = fitted_shape(run, metric), run.results("coordinates")
    asked, kernel, scale = run.parameters("kernel"), run.results("kernel"), run.results("bandwidth")
    by_mass = bool(kernel.get(WEIGHTS)) and run.has(SCALES)
    scales = SCALES if by_mass else "search" if run.has("search") else "graph"
    return WalkModel(
        query.any_index_of(run, shape),
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
        "" if run.has("density") else run.path(scales),
        scale["epsilon"],
        kernel.get("alpha", asked["alpha"]),
        Bandwidth(
            scale["epsilon"],
            kernel_in(asked),
            asked["truncated"],
            bridged=asked.get("bridged", False),
            within=by_mass and not asked.get("bridged", False),
        ),
        scale.get("floor", 0.0),
        kernel["unit"] if "target" in asked else None,
        run.path(WEIGHTS, "values") if kernel.get(WEIGHTS) else "",
        run.path(DENSITY, "values") if kernel.get(DENSITY) else "",
        mass_of(run) if by_mass else None,
        coordinates.get("parts") or parts_before(run),
        "normalization" in asked,
    )


def mass_of(run: Run) -> tuple[float, int, float]:
    """By what mass the scales of a run are."""
    found = run.results(SCALES)
    return found["wanted"], found["least"], run.results("bandwidth")["intrinsic_dimension"]


def parts_before(run: Run) -> int:
    """How many components of a model made before 0.2 have their own coordinates."""
    largest_only = run.parameters("coordinates")["policy"] == "largest"
    return 1 if largest_only else int(run.results("components")["components"])


def extend_rows(rows: Any, model: WalkModel) -> Array:
    """Coordinates of finite new rows, made ready for the search first."""
    return nystrom_rows(ready_rows(rows, model.shape), model)


def grouping(model: WalkModel) -> extension.Grouping | None:
    """How new rows are brought to the blocks of fitted rows that they belong to; sparse rows are not."""
    if model.shape.sparse or isinstance(model.index, query.GivenIndex):
        return None
    blocks, shape = len(Ordered.open(model.index.order).blocks), model.shape
    most, large = MAX_PAIRS // edges_planned(model), 0  # so that batches need not be divided, mostly
    if is_along(model):
        most = large = TOGETHER
    return extension.Grouping(block_of_rows, blocks, shape.row_bytes, most, partial(extension_memory, model), large)


def edges_planned(model: WalkModel) -> int:
    """Edges of a row that a plan counts with."""
    return radius.EDGES_PLANNED if isinstance(model.index, query.RadiusIndex) else 2 * model.index.n_neighbors


def is_along(model: WalkModel) -> bool:
    """Whether new rows get their edges along the graph, without a search."""
    return isinstance(model.index, Index) and model.index.along is not None


UNTOLD = 1e-3
"""Least share of an eigenvector that the average over the neighbors of a row must hold to be divided by."""


def extension_memory(model: WalkModel, rows: int) -> int:
    """Bytes that :func:`nystrom_rows` holds at most for that number of rows, without the rows themselves."""
    width = int(model.fitted.eigenvalues.shape[-1])
    if is_along(model):
        return averages_memory(rows, width, model.shape.row_bytes, edges_planned(model), model.fitted.starts)
    return query.joining_memory(model.index, model.shape, rows) + rows * 24 * width


def nystrom_rows(rows: Any, model: WalkModel) -> Array:
    """Nyström: ψ_l(x) = λ_l^{-1} Σ_j p(x, j) ψ_l(j), then λ^t (the q_x^{-α} of the new row cancels)."""
    coordinates = np.empty((rows.shape[0], model.fitted.width))
    for members, found in _averages(rows, model):
        coordinates[members] = _of_averages(rows, members, found, model)
    return coordinates


def _averages(rows: Any, model: WalkModel) -> Iterator[tuple[Array, Averages]]:
    """What the walk averages for new rows, in parts: numbers of some rows, and theirs."""
    if isinstance(model.index, Index) and is_along(model):
        return averages_along(rows, model.index, averaged(model), model.bandwidth, model.epsilon, model.by_mass)
    return ((members, _average(joined, model)) for members, joined in query.join_parts(rows, model.index))


def averaged(model: WalkModel) -> Averaged:
    """What is averaged over the edges of new rows, and by what these are weighed."""
    vectors, drop = model.averaged or model.fitted.right, model.unit is not None or model.balanced
    paths = vectors, model.fitted.labels, model.density, float(model.alpha), model.weights, model.wanted, model.search
    return Averaged(*paths, float(model.floor), model.parts, drop)


def _average(joined: Joined, model: WalkModel) -> Averages:
    """Sums over the edges of new rows."""
    starts, count = np.array(model.fitted.starts), len(joined.indptr) - 1
    near = Neighborhood(joined.ids, starts)
    label = near.read(model.fitted.labels)
    mass = near.read(model.weights) if model.weights else None
    if mass is not None and model.by_mass is not None:
        joined = in_mass(joined, mass, *model.by_mass)
    kernel = kernel_of_edges(joined, near, model) * near.read(model.density).astype(np.float64) ** -model.alpha
    kernel = kernel if mass is None else kernel * mass
    kernel = kernel * np.sqrt(near.read(model.wanted)) if model.wanted else kernel
    of_edge = np.repeat(np.arange(count), np.diff(joined.indptr))
    home = _component(joined, kernel, label)
    home = np.where(home < model.parts, home, -1)
    kernel = np.where(label == home[of_edge], kernel, 0.0)
    if model.unit is not None or model.balanced:
        kernel[twins_of(joined, of_edge)] = 0.0
    width = model.fitted.eigenvalues.shape[-1]
    total, mean = near.sums(kernel, of_edge, count, model.averaged or model.fitted.right, width)
    return Averages(home, total, mean, joined.rho, joined.block, joined.cell)


def _of_averages(rows: Any, members: Array, found: Averages, model: WalkModel) -> Array:
    """Coordinates of the rows ``members``."""
    eigenvalues, total = model.fitted.eigenvalues, found.total
    home, inside = np.maximum(found.home, 0), total > 0
    own = eigenvalues[home] if eigenvalues.ndim == 2 else eigenvalues[None]
    if model.unit:
        own = _shrinking(own, own_scales(found.rho, model.floor) ** 2 / model.unit)
    mean = np.where(inside[:, None], found.mean / np.where(inside, total, 1)[:, None], 0.0)
    extended = mean if model.averaged else divided(mean, own)
    coordinates = model.fitted.scaled(extended, home)
    outside = np.flatnonzero(~inside)
    if len(outside):
        near = _nearest(rows[members[outside]], found.block[outside], found.cell[outside], model)
        coordinates[outside] = model.fitted.of_rows(near)
    return coordinates


def _nearest(rows: Any, block: Array, cell: Array, model: WalkModel) -> Array:
    """The fitted row with coordinates of its own that is nearest to each row that no edge leads to."""
    ordered, labels = Ordered.open(model.index.order), model.fitted.labels
    if isinstance(model.index, query.GivenIndex):
        whole = np.concatenate([read_array(f"{labels}/{b}") for b in range(len(ordered.blocks))])
        return query.nearest_given(rows, model.index, whole, model.parts)
    return components.nearest_embedded(ordered, labels, rows, block, cell, model.parts, by_metric(model.shape))


def self_weight(rows: Any, model: WalkModel) -> Array:
    """1 / (1 + Σ_j k(x, x_j)) of prepared rows (m, d), over the fitted rows j that the graph joins to x, equal ones
    left out: how much of the walk would stay at x (k(x, x) = 1). In (0, 1]; 1 where no fitted row is within reach.

    Where scales follow the density the one of the fitted row counts: that of x would grow with its distance.
    """
    mass = np.zeros(len(rows))
    starts = np.array(model.fitted.starts)
    for members, joined in query.join_parts(rows, model.index):
        near = Neighborhood(joined.ids, starts)
        kernel = kernel_of_edges(joined, near, model, theirs=True)
        kernel = kernel * near.read(model.weights) if model.weights else kernel
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


class EdgeKernel(Protocol):
    """The kernel of a fitted graph: how it weighs an edge, and where the scales of the fitted rows lie."""

    @property
    def bandwidth(self) -> Bandwidth:
        """The kernel."""

    @property
    def epsilon(self) -> float:
        """Its scale."""

    @property
    def search(self) -> str:
        """Where ``rho_squared`` of the fitted rows lies."""

    @property
    def floor(self) -> float:
        """The least scale of a row."""


def kernel_of_edges(joined: Joined, near: Neighborhood, model: EdgeKernel, theirs: bool = False) -> Array:
    """The kernel of the edges of new rows, by their own scales, or by those of the fitted rows (``theirs``)."""
    length = squared = joined.squared.astype(np.float64)
    choice = model.bandwidth
    if not (choice.local or choice.within):
        return choice.weights(squared, model.epsilon)
    fitted = own_scales(np.sqrt(near.read(f"{model.search}/rho_squared").astype(np.float64)), model.floor)
    own = fitted if theirs else np.repeat(own_scales(joined.rho, model.floor), np.diff(joined.indptr))
    if choice.local:
        squared = local_squared(squared, own, fitted, choice.kernel)
    weights = choice.weights(squared, model.epsilon)
    if choice.within:
        weights[length > np.maximum(own, fitted) ** 2 * (1 + EQUAL)] = 0.0
    return weights


def _shrinking(eigenvalues: Array, steps: Array) -> Array:
    """What Σ_{j≠i} p(x, j) ψ(j) is over ψ(x), (rows, m), for steps that last ``steps``: 1 − (1 − λ) ρ²/ρ_min².

    Where it is near 0 the neighbors do not determine ψ(x): their average is taken as it is.
    """
    factor = 1.0 - (1.0 - eigenvalues) * steps[:, None]
    return np.asarray(np.where(np.abs(factor) < UNTOLD, 1.0, factor))


class Neighborhood:
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
