"""What methods share whose coordinates descend along the edges of a neighbor graph, as t-SNE and UMAP."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any, ClassVar, Self

import numpy as np

from bigembed.errors import InputError, InputTypeError
from bigembed.estimator import frame, on_graph, seed_of
from bigembed.estimator.certificate import REPEATED, input_of, map_warnings, recall_warnings, spike_warnings
from bigembed.estimator.graph_input import GraphShape, row_sums
from bigembed.maps.descent import rows_of_block
from bigembed.maps.graph_rows import repeats_opened
from bigembed.maps.start import RULES, SMALL, Scale, not_followed, start_of, start_stage
from bigembed.maps.walk.spectral import Spectrum, components_stage, solve_stage
from bigembed.neighbors.graph import NeighborGraph
from bigembed.neighbors.graph_blocks import listed_entries
from bigembed.neighbors.row_weights import values_path
from bigembed.quality import with_error
from bigembed.rows import RowSource
from bigembed.runtime.blocks import Array
from bigembed.runtime.parameters import Requirements
from bigembed.stages import ArraySpec, Context, Cost, Run, Stage, buffer, largest
from bigembed.store.arrays import read_array, write_array
from bigembed.store.matrix import CSRBlock, write_values
from bigembed.store.spaces import StoredSpace
from bigembed.store.vector_space import tree_sum

TRUSTED = 0.97
"""Trustworthiness from which a map is not asked whether it is folded, or has too few coordinates."""
PUBLISHED = "published"
"""The start of a map that goes on from the one before."""
FOLDED = 5.0
"""How much more trustworthiness than continuity is lost in a fold.

What a plane has no room for costs both: digits, MNIST and cells, with defaults, lose 0.9 to 2.4 times as much of the
former. A sphere whose halves lie on each other loses 24 times as much: there nothing is torn, and what is near on the
map may be far.
"""


class DescendedEstimator(on_graph.GraphEstimator):
    """Base of the methods that take rows, a neighbor graph or weights, and move the points of a map step by step.

    They have the parameters below, and say in :meth:`_rule` how many neighbors they need.
    """

    frame_rule: ClassVar = frame.FrameRule("whole", shift=True, scale=True)
    of_rows: ClassVar = ("init",)

    init: Any
    n_components: int
    in_memory: bool | str

    _published: RowSource | None = None
    """Where the rows of the next fit are on the map before, from which it goes on."""

    def stages(self, source: RowSource) -> list[Stage]:
        """List all stages; those of a map that goes on start where its rows are on the one before."""
        here = None if self._frame is None else self._frame.of(source)
        found = None if here is None else here.start
        self._published = found if found is not None and found.width == self.n_components else None
        return super().stages(source)

    def _start(self) -> str | RowSource:
        """Return what the map starts from: where its rows are on the one before, else as ``init`` says."""
        return start_of(self.init) if self._published is None else self._published

    def _share(self, least: float, n: int) -> float:
        """Return the share of the iterations that a continued map makes: that of the new rows, at least ``least``."""
        known = 0 if self._frame is None else min(n, self._frame.shared)
        return max(least, 1.0 - known / n)

    def fit(self, X: Any, y: Any = None) -> Self:
        """Fit the map to rows, distances or a graph.

        Parameters
        ----------
        X : array of shape (n, d) or (n, n), NeighborGraph, sparse matrix or graph
            Rows or distances (any kind that :func:`bigembed.open_array` takes), a NeighborGraph, symmetric sparse
            weights, or a graph of any size (:func:`bigembed.open_graph`): of weights, or of distances to neighbors.
        y : None
            Not used; scikit-learn's protocol has it.

        Returns
        -------
        Estimator
            The estimator itself.
        """
        self._refuse_radius(X)
        return self._fit_rows(X)

    def _refuse_radius(self, X: Any) -> None:
        if isinstance(X, NeighborGraph) and X.radius is not None:
            raise InputTypeError(
                f"{type(self).__name__} takes the nearest neighbors of every row, and a graph of a radius may join a "
                "row to none. Build the graph with n_neighbors"
            )

    def _block_rows(self, k: int) -> int:
        return rows_of_block(k)

    def _unfolding(self) -> str:
        """Return what may keep parts of the rows from lying on each other."""
        own = self.init if isinstance(self.init, str) else ""
        others = " or ".join(repr(rule) for rule in ("pca", "random") if rule != own)
        return f"take init={others}, more n_components, or an array as init"

    def _memory(self) -> bool | None:
        """Return whether weights and points are to be in memory; None where their size decides."""
        return None if isinstance(self.in_memory, str) else bool(self.in_memory)

    def _require(self, need: Requirements) -> None:
        need(self.init is not None, "init", f"{', '.join(map(repr, RULES))}, an array (n, m), or its path")

    def _set_map(self, run: Run) -> Array:
        """Set coordinates and the graph as attributes; the objectives."""
        self.n_components_ = run.results("coordinates")["n_components"]
        self._set_array("embedding_", "coordinates", "embedding")
        self._set_graph(run)
        return np.asarray(read_array(run.path("descent", "objectives")))

    def _certified(self, run: Run, figures: dict[str, Any], seed_in: str, degenerate: list[str]) -> dict[str, Any]:
        """Return a certificate of these figures, with start, recall, judgement, input and all warnings."""
        start, repeated = run.results("start"), run.results("coordinates")["repeated_rows"]
        started = start["start"] if self._published is None else PUBLISHED
        out = figures | {"start": started} | ({"start_reason": start["reason"]} if start.get("reason") else {})
        out |= {"repeated_rows": repeated, "seed": seed_of(self, run, seed_in)}
        out |= {stage: run.results(stage) for stage in ("recall", "judgement") if run.has(stage)}
        out |= input_of(run)
        judged = out.get("judgement", {})
        out["warnings"] = {
            "recall": recall_warnings(out),
            "degenerate": degenerate + repeated_rows(repeated, run),
            "localized": ([] if started == PUBLISHED else not_followed(self.init, start)) + spike_warnings(judged),
            "map": map_warnings(judged) or folded(judged, self._unfolding()),
        }
        return out


def one_sided(seen: dict[str, Any], poor: str, good: str, enough: float, times: float, what: str) -> list[str]:
    """Say of a judgement that one of trustworthiness and continuity is ``poor``, and the other one good.

    Poor is below ``enough`` and over ``times`` as far from 1 as the other. ``what``: what that shows, and may help.
    """
    found = seen.get("map", {})
    if poor not in found:
        return []
    low, high = found[poor]["value"], found[good]["value"]
    if low >= enough or 1.0 - low <= times * (1.0 - high):
        return []
    return [f"{poor} is {with_error(found[poor])}, and {good} {with_error(found[good])}: {what}"]


def folded(seen: dict[str, Any], remedy: str) -> list[str]:
    """Say of a judgement that parts of the rows lie on top of each other, each well drawn, and what may help."""
    what = (
        "neighbors are together, but lie on top of rows from elsewhere (a fold, or rows of more dimensions than the "
        f"map). Do not read groups or closeness from it; {remedy}"
    )
    return one_sided(seen, "trustworthiness", "continuity", TRUSTED, FOLDED, what)


def repeated_rows(repeated: int, run: Run) -> list[str]:
    """Say, where many rows repeat another one, that the picture shows them as one point."""
    if repeated <= REPEATED * sum(run.results("kernel")["rows"]):
        return []
    rows = "1 row repeats another one and has" if repeated == 1 else f"{repeated:,} rows repeat another one and have"
    return [f"{rows} its coordinates: the picture shows them as one point"]


# ------------------------------------------------------------------------------------------------------------ stages
# The stages of a map that descends on a stored graph, or on a user's weights.

USER_EDGES = 30
"""Edges of a row of a user's graph that a plan counts with."""
TOL, PASSES = 1e-4, 100
"""Of the eigenvectors that a map starts from."""


def planned_edges(graph: GraphShape) -> tuple[int, int]:
    """Return the neighbors of a row, and the entries of the graph, that a plan counts with."""
    n = graph.n
    k = USER_EDGES if graph.weighted else n - 1 if graph.dense or graph.k is None else graph.k
    return k, listed_entries(n, k)


# --------------------------------------------------------------------------------------------------------- weights
# The stage of the weights of the edges, by row blocks: no process sees more than one. A row has a scale by its list of
# neighbors, those of its edges no farther than its k-th neighbor; the weight of an edge follows from both its rows'.


class EdgeWeights(ABC):
    """The weights of the edges of a graph, from the scales of their rows; a user's weights, over their unit."""

    numbers: ClassVar[int]
    """Of a row's scale, with which it is read by other blocks."""
    operations: ClassVar[int]
    """For an edge."""
    counts: ClassVar[bool] = False
    """Whether they depend on what the rows count: the first two methods below then take the masses of the rows of the
    block and of its halo, too, and the fourth w_i w_j of the edges."""

    def of(self, context: Context) -> EdgeWeights:
        """Return these as they are for the rows of a run."""
        return self

    @abstractmethod
    def scales(self, block: CSRBlock, ids: Array, reach: Array, last: Array, k: int) -> Array:
        """Return the scales (rows, numbers) of rows whose k-th neighbor is at ρ² = ``reach`` and has the id ``last``.

        ``ids`` are the numbers of the rows of the block and of its halo.
        """

    @abstractmethod
    def weigh(self, block: CSRBlock, ids: Array, scales: Array) -> tuple[Array, float, float]:
        """Return the weights of the entries of a block and two figures of them; ``scales`` of its rows and its halo."""

    @abstractmethod
    def unit(self, total: float, largest: float) -> float:
        """Return what a user's weights are divided by, from their sum and the largest."""

    @abstractmethod
    def figures(self, weights: Array) -> tuple[float, float]:
        """Return the figures of a user's weights after they are made into affinities."""

    @abstractmethod
    def results(self, figures: list[tuple[float, float]], k: int | None) -> dict[str, Any]:
        """Return the results of the stage from the figures of the blocks, and the neighbors of a row."""


def weights_stage(
    graph: GraphShape, edges: int, weights: EdgeWeights, parameters: Mapping[str, Any], name: str = "kernel"
) -> Stage:
    """``kernel/weights`` on the graph, and their row sums ``degree``; a user's weights W ≥ 0 are those of the map.

    ``name``: of the stage, where another one makes of its weights those of the map.
    """
    inputs: tuple[str, ...] = ("order", "graph") if graph.dense or graph.given else ("graph", "search")
    if graph.weighted:
        parameters, inputs = {"given": True}, ("weights",)
    inputs = (*inputs, *(graph.vectors if weights.counts else ()))
    n, block, counted = graph.n, min(graph.block, graph.n), weights.counts and bool(graph.vectors)
    cost = Cost.of(
        reads=[ArraySpec("edges", edges, 3)],
        writes=[ArraySpec("weights/*", edges, dtype="f4"), ArraySpec("degree/*", n)],
        leaves=[ArraySpec("scales of the rows and of the halo", n, weights.numbers + counted, times=2)],
        task=[ArraySpec("edges", -(-edges // n) * block, 9 if counted else 5)],
        passes=2,
        scalar_ops=weights.operations * edges,
    )
    return Stage(name, inputs, parameters, partial(run_weights, graph=graph, weights=weights), cost)


def run_weights(context: Context, graph: GraphShape, weights: EdgeWeights) -> dict[str, Any]:
    given = context.home.matrix(graph.stage, "given" if graph.weighted else "squared")
    space, out, k = StoredSpace(given, context.exchange), context.path(""), None
    mass, weights = ["mass"] if values_path(context) else [], weights.of(context)
    if mass:
        space.sweep(mass_block, writes=mass, posts=mass, arguments=(values_path(context),))
    near: dict[str, Any] = {"reads": mass, "halos": mass}
    if graph.weighted:
        found = space.sweep(total_block, arguments=(given,), **near)
        total, largest = float(tree_sum([part[0] for part in found])), max(part[1] for part in found)
        if not total > 0:
            raise InputError("the weights add up to 0: nothing attracts anything")
        parts = space.sweep(given_block, arguments=(given, weights, weights.unit(total, largest), out), **near)
    else:
        lists, k = "", graph.n - 1
        if not graph.dense:
            stage = "graph" if graph.given else "search"
            lists, k = context.of(stage), int(context.results(stage)["n_neighbors"])
        shared = given, weights, read_array(context.of("graph", "starts"))
        space.sweep(scale_block, writes=["scale"], posts=["scale"], arguments=(*shared, lists, k), **near)
        both = ["scale", *mass]
        parts = space.sweep(weigh_block, reads=both, halos=both, arguments=(*shared, out))
    common = {"edges": sum(part[0] for part in parts), "rows": list(given.rows)}
    return common | weights.results([part[1:] for part in parts], k)


def mass_block(b: int, mass: str) -> tuple[tuple[Array], None]:
    """Return what the rows of a block count, (rows, 1), for themselves and for those that they are joined to."""
    return (read_array(f"{mass}/{b}")[:, None],), None


def masses_of(found: Sequence[Array]) -> list[Array]:
    """Return what the rows of a block and of its halo count, which a sweep found, if it did."""
    return [np.concatenate(found)[:, 0]] if found else []


def scale_block(b: int, *given: Any) -> tuple[tuple[Array], None]:
    """Return the scales of a block, after the masses of its rows and of its halo, if they have any.

    The last of what is given is where its lists of neighbors end, empty where they have all rows, and their length.
    """
    *found, distances, weights, starts, lists, k = given
    block = distances.block(b)
    reach = np.full(distances.rows[b], np.inf)
    last = reach.copy()  # (of a user's lists: of rows that are equally far all are in them)
    if lists:
        reach = read_array(f"{lists}/rho_squared/{b}").astype(np.float64)
        if not lists.endswith("graph"):
            last = read_array(f"{lists}/kappa/{b}").astype(np.float64)
    return (weights.scales(block, block.ids(b, starts), reach, last, k, *masses_of(found)),), None


def weigh_block(b: int, *given: Any) -> tuple[tuple[()], tuple[int, float, float]]:
    """Write the weights of one block and their row sums; the number of edges, and the figures.

    Given are the scales, and masses if there are any, of the rows, and of the halo; then what all blocks share.
    """
    *found, distances, weights, starts, out = given
    block, half = distances.block(b), len(found) // 2
    scales, masses = np.concatenate(found[::half]), masses_of(found[1::half] if half > 1 else ())
    values, first, second = weights.weigh(block, block.ids(b, starts), scales, *masses)
    return (), (write_weights(b, block, values, out), first, second)


def total_block(b: int, *given: Any) -> tuple[tuple[()], tuple[float, float]]:
    """Return the sum and the largest of a user's weights of one block, without those of rows to themselves."""
    *found, matrix = given
    block = matrix.block(b)
    values = without_own(block) * pairs_of(block, *masses_of(found)) if found else without_own(block)
    return (), (float(values.sum()), float(values.max(initial=0.0)))


def given_block(b: int, *given: Any) -> tuple[tuple[()], tuple[int, float, float]]:
    """Write a user's weights of one block and their row sums; the number of edges, and the figures."""
    *found, matrix, weights, unit, out = given
    block = matrix.block(b)
    pairs = [pairs_of(block, *masses_of(found))] if found else []
    values = without_own(block) * pairs[0] if pairs else without_own(block)
    values = (values / unit).astype(np.float32)
    return (), (write_weights(b, block, values, out), *weights.figures(values, *pairs))


def pairs_of(block: CSRBlock, masses: Array) -> Array:
    """Return w_i w_j of the entries of a block."""
    return masses[block.row] * masses[block.indices]


def without_own(block: CSRBlock) -> Array:
    """Return the weights of a block, 0 of rows to themselves."""
    return np.where(block.indices == block.row, 0.0, block.data)


def write_weights(b: int, block: CSRBlock, values: Array, out: str) -> int:
    """Write the weights of one block and their row sums; the number of edges."""
    write_values(f"{out}weights", b, values)
    write_array(f"{out}degree/{b}", row_sums(block.indptr, values))
    return len(values)


# ------------------------------------------------------------------------------------------- start and coordinates


def start_stages(
    graph: GraphShape, m: int, start: str | RowSource, seed: int, policy: str = "joint", scale: Scale = SMALL
) -> list[Stage]:
    """Return the start of a map, after the eigenvectors that it takes, of components by a ``policy``."""
    n, k = graph.n, planned_edges(graph)[0]
    if isinstance(start, RowSource) and start.shape != (n, m):
        raise InputError(f"init has shape {start.shape}; coordinates to start from must be (n, m) = {(n, m)}")
    if start in ("auto", "pca"):
        start = "spectral" if graph.rowless else "pca"
    stage = start_stage(graph, m, start, seed, scale)
    if start != "spectral":
        return [stage]
    spectrum, block = Spectrum(m, policy, TOL, PASSES, seed), min(graph.block, n)
    return [components_stage(graph.stage, n, k, block), solve_stage(spectrum, graph.stage, n, k, block), stage]


def coordinates_stage(
    graph: GraphShape, m: int, parameters: Mapping[str, Any], run: Callable[..., Any], shared: ArraySpec, memory: int
) -> Stage:
    """``embedding`` (n, m) in the order of the input, ``points`` by blocks, and an array that new rows are placed by.

    Rows that are equal have the coordinates of the first of them. ``shared``: that array; ``memory``: bytes of the
    task that makes it.
    """
    n, block = graph.n, min(graph.n, graph.block)
    points = ArraySpec("points/*", n, m)
    cost = Cost.of(
        reads=[replace(points, times=3)],
        writes=[points, ArraySpec("embedding", n, m), shared],
        leaves=[points, ArraySpec("numbers of rows", n, 2)],
        task=largest(
            [ArraySpec("points and numbers of rows", block, m + 2, times=6)], [buffer("what new rows need", memory)]
        ),
        maps=5,
    )
    inputs = ("kernel", "descent", *(("order",) if graph.ordered else ()), *(() if graph.weighted else (graph.stage,)))
    call = partial(run, graph=graph, m=m, **parameters)
    return Stage("coordinates", inputs, parameters, call, cost, opens={graph.stage: repeats_opened})
