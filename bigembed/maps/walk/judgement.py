"""The stage that measures how well a diffusion map, and each of its coordinates, shows the rows, and comes again."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from functools import partial
from typing import Any

import numpy as np
from scipy import linalg, sparse
from scipy.sparse.csgraph import connected_components

from bigembed.estimator.graph_input import GraphShape
from bigembed.linalg.eigenpairs import leading_pairs
from bigembed.maps import bandwidth, graph_judgement, graph_rows, kernels
from bigembed.maps.walk.coordinates import Scaling, WalkCoordinates
from bigembed.neighbors.order import Ordered
from bigembed.neighbors.row_weights import all_weights, values_path
from bigembed.neighbors.search.by_metric import ByMetric
from bigembed.quality import cost_of
from bigembed.quality.coordinates import carried_by_few, effective_degrees, near_one, participation, separation
from bigembed.quality.dimension import ROWS, harmonics, harmonics_arrays, sampled
from bigembed.quality.figures import columns_figure
from bigembed.rows import RowSource
from bigembed.runtime.blocks import Array, by_owner
from bigembed.stages import ArraySpec, Context, Cost, Stage
from bigembed.store.arrays import read_array

# ------------------------------------------------------------------------------------------------------- stability
# Whether coordinates come again from half of the neighbors: the map of the k/2 nearest, for few rows.
#
# What the data say does not hang on k. A coordinate that the k/2 nearest neighbors do not give is one of chance
# edges, or of a bottleneck that k/2 neighbors see in another place.

MOST_ROWS = 2_000
"""More rows than these are not mapped a second time."""
LEAST_NEIGHBORS = 8
"""Fewer neighbors than these are not halved: the graph would fall apart by itself."""


def half_map(
    ids: Array,
    squared: Array,
    choice: bandwidth.Bandwidth,
    epsilon: float,
    floor: float,
    alpha: float,
    m: int,
    weights: Array | None = None,
) -> Any:
    """m right eigenvectors (n, m) on the graph of half of the neighbors, the trivial one first; None where that
    graph falls apart: its first vectors are those of the parts.

    ``ids`` and ``squared`` (n, k) are the lists of neighbors; kernel and α as of the map itself. ``weights`` (n,) of
    the rows, where they have any.
    """
    n, k = ids.shape
    half = k // 2
    row, column = np.repeat(np.arange(n), half), ids[:, :half].ravel()
    rho = bandwidth.own_scales(np.sqrt(squared[:, half - 1].astype(np.float64)), floor)
    r2 = squared[:, :half].ravel().astype(np.float64)
    scaled = kernels.local_squared(r2, rho[row], rho[column], choice.kernel) if choice.local else r2
    one_way = sparse.csr_array((choice.weights(scaled, epsilon), (row, column)), shape=(n, n))
    kernel = one_way.maximum(one_way.T) + sparse.eye_array(n)
    if connected_components(kernel, directed=False)[0] > 1:
        return None
    factor = np.asarray(kernel.sum(axis=1)) ** -alpha if weights is None else weights * (kernel @ weights) ** -alpha
    scaled_kernel = _normalized(kernel, factor)
    root = 1 / np.sqrt(np.asarray(scaled_kernel.sum(axis=1)))
    walk, trivial = _normalized(scaled_kernel, root), (1 / root)[:, None]
    trivial /= np.linalg.norm(trivial)
    if found := leading_pairs(walk, m - 1, trivial):
        vectors = np.hstack([trivial, found[1]])
    else:  # (of few rows, or of a spectrum without gaps)
        vectors = linalg.eigh(walk.toarray(), subset_by_index=(n - m, n - 1))[1][:, ::-1]
    return vectors * root[:, None]


def shares_kept(right: Array, degree: Array, others: Array) -> Array:
    """Share of the variance of each column of ``right`` (n, m) in the span of ``others``, in the measure d; (m,).

    >>> x = np.array([[1.0], [-1.0]])
    >>> shares_kept(x, np.ones(2), 3 * x).tolist()
    [1.0]
    """
    root = np.sqrt(degree)[:, None]
    basis, _ = np.linalg.qr(others * root)
    own = right * root
    mass = np.einsum("ij,ij->j", own, own)
    inside = np.square(basis.T @ own).sum(axis=0)
    return np.asarray(np.round(np.divide(inside, mass, out=np.ones_like(mass), where=mass > 0), 12))


def _normalized(matrix: Any, scale: Array) -> Any:
    return sparse.csr_array(matrix.multiply(scale[:, None]).multiply(scale[None, :]))


# ------------------------------------------------------------------------------------------------------- judgement
# The stage that measures how well a diffusion map, and each of its coordinates, shows the rows.
#
# A solve may be exact and its map useless: a coordinate that one row carries, a function of an earlier one, a basis
# that could as well be another. Figures are taken from the stages, in the order of the graph; limits and what they
# were chosen by stand with the functions of :mod:`bigembed.quality`.


@dataclass(frozen=True)
class OrderedCoordinates(RowSource):
    """The coordinates in the order of the graph, from the eigenvectors."""

    found: WalkCoordinates | None = None
    replaced: str = ""
    """Positions of the rows that have the coordinates of another one, which may be empty."""

    def read(self, start: int, stop: int) -> Array:
        """Coordinates of rows ``start:stop``."""
        assert self.found is not None
        return np.concatenate(
            [self._part(self.found, *span) for span in graph_rows.spans_of(self.found.starts, start, stop)]
        )

    def _part(self, found: WalkCoordinates, b: int, low: int, high: int) -> Array:
        out = found.block(b, low, high)
        if self.replaced:
            rows, ids = (read_array(f"{self.replaced}/{name}/{b}") for name in ("outside", "nearest"))
            here = (rows >= low) & (rows < high)
            out[rows[here] - low] = found.of_rows(ids[here])
        return out

    @property
    def grain(self) -> int:
        return 1


def judgement_stage(
    graph: GraphShape, width: int, tol: float, seed: int, *, rows: bool, lists: bool = True, ordering: bool = False
) -> Stage:
    """Figures of each coordinate and of the map; ``rows`` says whether there are rows to compare it with (a user's
    graph has none), ``lists`` whether there are lists of their nearest neighbors (a graph of a radius has none);
    ``ordering``: the graph has an order of its own in any case.

    Cost: three passes over the eigenvectors; with rows, those of :func:`~bigembed.quality.preserved` for
    :data:`SAMPLES` rows. Memory of a task: eight arrays (rows, width) of a block; of the coordinating process that of
    :func:`~bigembed.quality.dimension.harmonics`.
    """
    n, d, block = graph.n, graph.width, graph.block
    ordering = ordering or rows or n > block  # (the order of one given block is that of the input)

    of_rows = ("survey", "order", *(("search",) if lists else ())) if rows else ("order",) if ordering else ()
    of_rows = ("survey", *of_rows) if graph.sampled else of_rows
    vectors = graph.vectors if rows or graph.sampled else ()
    inputs = ("kernel", "components", "solve", "coordinates", *(("bandwidth",) if rows else ()), *of_rows, *vectors)
    samples, few = min(n, graph_judgement.SAMPLES) if rows else 0, min(n, ROWS)
    double = np.dtype(np.float64)
    compared = (
        cost_of(
            RowSource((n, d), double),
            RowSource((n, width), double),
            n_neighbors=graph_judgement.NEIGHBORS,
            samples=graph_judgement.SAMPLES,
            terms=graph.by.listed if graph.by else 0.0,
            kept=True,
        )
        if rows
        else graph_judgement.given_cost(n, width)
        if graph.sampled
        else Cost()
    )
    own = Cost.of(
        reads=[ArraySpec("right/*", n, width, times=3)],
        task=[ArraySpec("right/*", min(block, n), width, times=8)],
        coordinator=harmonics_arrays(few, width),
        scalar_ops=n * width,
        maps=3,
    )
    cost = own.then(compared)
    parameters = {"seed": seed, "samples": samples, "tol": tol}
    return Stage(
        "judgement",
        inputs,
        parameters,
        partial(run_judgement, graph=graph, tol=tol, seed=seed, rows=rows, lists=lists, d=d, n=n, ordering=ordering),
        cost,
        parameters_of=("kernel",),
        opens={
            "survey": ("sample", "sampled"),
            "kernel": ("degree", "q", "mass"),
            "components": ("labels",),
            "search": ("neighbors", "squared") if n <= MOST_ROWS else (),
        },
    )


def run_judgement(
    context: Context, graph: GraphShape, tol: float, seed: int, rows: bool, lists: bool, d: int, n: int, ordering: Any
) -> dict[str, Any]:
    kernel, solve, found = (context.results(name) for name in ("kernel", "solve", "coordinates"))
    blocks, kept = len(kernel["rows"]), found["n_components"]
    right, degree = context.of("solve", "right"), context.of("kernel", "degree")
    ordered = Ordered.open(context.of("order")) if ordering else None
    carried = participation(right, degree, blocks)
    harmonic = harmonics(sampled(right, tuple(kernel["rows"]), seed)[:, :kept], graph_judgement.AGAIN)
    out: dict[str, Any] = {
        "participation": carried.share[:kept].tolist(),
        "rows_above_a_tenth": carried.rows[:kept].tolist(),
        "leading_rows": _numbers(carried.leading[:kept], ordered),
        "leading_share": carried.leading_share[:kept].tolist(),
        "carried_by_few": carried_by_few(carried.share, carried.rows, n)[:kept].tolist(),
        "harmonic_residual": harmonic.residual.tolist(),
        "harmonic_local": harmonic.local.tolist(),
        "harmonic": harmonic.harmonic.tolist(),
        **_separated(solve, kept, tol, n),
    }
    if rows and ordered is not None:
        asked = context.home.parameters("kernel")
        sums = context.of("kernel", "mass" if {"target", "normalization"} & {*asked} else "q")
        degrees = effective_degrees(sums, blocks, weights=values_path(context))
        first = _numbers(np.array(degrees.first, np.int64), ordered)
        out["degrees"] = asdict(degrees) | {"row": _numbers(np.array([degrees.row]), ordered)[0], "first": first}
        if not ordered.columns:
            sample = read_array(context.of("survey", "sample")).astype(np.float64)
            out |= {"column": columns_figure({"low": sample.min(0), "high": sample.max(0), "scatter": sample.var(0)})}
        out |= _stability(context, blocks, kept, graph.asked) if lists else {}
        if joined := graph_judgement.joined_at(context, "components", d, graph.by):
            out["joined"] = joined
        if n - found["filled_rows"] > 2 * graph_judgement.NEIGHBORS:
            out["map"] = _preserved(context, ordered, Scaling(found["t"], kept), d, seed, graph.by)
    elif graph.sampled and n > 2 * graph_judgement.NEIGHBORS:
        out["map"] = graph_judgement.preserved_given(context, n, kept, seed)
    return out


def _preserved(
    context: Context, ordered: Ordered, scaling: Scaling, d: int, seed: int, by: ByMetric | None
) -> dict[str, Any]:
    n = ordered.starts[-1]
    found = context.results("coordinates")
    replaced = context.of("coordinates") if found["filled_rows"] or found["repeated_rows"] else ""
    paths, eigenvalues = (
        (context.of("solve", "right"), context.of("components", "labels")),
        context.of("solve", "eigenvalues"),
    )
    walk = WalkCoordinates(*paths, ordered.starts, read_array(eigenvalues), scaling)
    coordinates = OrderedCoordinates((n, scaling.count), np.dtype(np.float64), found=walk, replaced=replaced)
    return graph_judgement.preserved_in_order(context, ordered, d, coordinates, seed, by)


def _stability(context: Context, blocks: int, kept: int, asked_k: int | None) -> dict[str, Any]:
    """Shares of the coordinates that the map of half of the neighbors has, where there are few rows in one part.

    ``asked_k``: the neighbors that were asked for, where the lists of weighted rows hold more.
    """
    home, single = context.home, context.results("coordinates")["parts"] == 1
    asked, scale, chosen = home.parameters("kernel"), context.results("bandwidth"), context.results("search")
    n, k = sum(context.results("kernel")["rows"]), chosen["n_neighbors"]
    plain = single and not {"target", "normalization"} & {*asked} and not asked.get("bridged")
    if not plain or n > MOST_ROWS or k < LEAST_NEIGHBORS or 2 * k > n or n <= 2 * kept + 2:
        return {}
    ids, squared, right, degree = (
        np.concatenate([read_array(f"{context.of(stage, name)}/{b}") for b in range(blocks)])
        for stage, name in (("search", "neighbors"), ("search", "squared"), ("solve", "right"), ("kernel", "degree"))
    )
    choice = bandwidth.Bandwidth(scale["epsilon"], scale["kernel"], asked["truncated"])
    mass = all_weights(values_path(context), context.results("kernel")["rows"])
    if asked_k:
        ids, squared = (lists[:, : max(LEAST_NEIGHBORS, asked_k)] for lists in (ids, squared))
    found = half_map(ids, squared, choice, scale["epsilon"], scale["floor"], asked["alpha"], 2 * kept + 1, mass)
    return {} if found is None else {"kept_by_half": shares_kept(right[:, :kept], degree, found).tolist()}


def _separated(solve: dict[str, Any], kept: int, tol: float, n: int) -> dict[str, Any]:
    """Bounds on the angles of each coordinate to the eigenvectors, and the groups that can turn among themselves."""
    columns = solve["columns"]
    sin, near, groups, cut = np.zeros(kept), np.zeros(kept, bool), [], False
    for name, found in solve["solved"].items():
        values, residuals = np.array(found["eigenvalues"]), np.array(found["residuals"])
        if not len(values):
            continue
        apart = separation(values, residuals, values[-1] - found["gap"])
        close = near_one(values, residuals, tol, n)
        place = [at for at, (c, index) in enumerate(columns) if c == int(name) and index >= 0] if columns else []
        place = place or (list(range(len(values))) if not columns else [])
        shown = {index: at for index, at in enumerate(place) if at < kept}
        for index, at in shown.items():
            sin[at], near[at] = max(sin[at], apart.sin[index]), near[at] or close[index]
        named = [[shown[first], shown[last]] for first, last in apart.groups if first in shown and last in shown]
        groups += [group for group in named if group not in groups]
        cut = cut or (apart.cut and len(values) - 1 in shown)
    return {"sin_theta": sin.tolist(), "near_one": near.tolist(), "groups": groups, "cut": cut}


def _numbers(ids: Array, ordered: Ordered | None) -> Any:
    """Rows of the input for internal ids; −1 stays."""
    ids = np.asarray(ids)
    if ordered is None or not ids.size:
        return ids.tolist()
    found = np.flatnonzero(ids >= 0)
    out = np.full(ids.size, -1, np.int64)
    for b, at, rows in by_owner(ordered.starts, ids.ravel()[found]):
        out[found[at]] = ordered.ids(b)[rows]
    return out.reshape(ids.shape).tolist()
