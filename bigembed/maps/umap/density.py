"""Densities on the map of UMAP (densMAP): how far the neighbors of each row are, among the rows and on the map.

R_i and r_i are the logarithms of mean squared distances to neighbors, R standardized; see
:mod:`bigembed.maps.umap.forces`. An epoch needs r, and its moments, of the points as they were one epoch before, so
that its sweeps are as any other: the last of an epoch measures them while it moves the rows.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields
from functools import partial
from math import sqrt
from typing import Any, ClassVar

import numpy as np

from bigembed.errors import InputError, InputTypeError
from bigembed.estimator.extension import leave_rows, restore
from bigembed.estimator.graph_input import GraphShape
from bigembed.maps.descent import REPORT, descend, descent_stage, run_by_rows
from bigembed.maps.umap import descent
from bigembed.neighbors.order import input_rows
from bigembed.neighbors.query import Joined
from bigembed.neighbors.row_weights import values_path, weights_at
from bigembed.runtime.blocks import Array, block_rows, offsets
from bigembed.stages import ArraySpec, Context, Cost, Immaterial, Run, Stage
from bigembed.store.arrays import create_rows, read_array, read_by_id, write_array
from bigembed.store.matrix import BlockMatrix, StoredMatrix, entries_of
from bigembed.store.spaces import StoredSpace
from bigembed.store.vector_space import VectorSpace, tree_sum

MORE_EPOCHS = 200
"""Epochs of a map with a term of densities beside those of one without, where none are asked, as umap-learn has it."""
PARTS = 4
"""Sweeps of an epoch in which the term acts: each has a part of the turns, and the whole force of every fourth edge.

In one step rows would make less of the way (10 000 digits: local radii follow by .818, in four by .835).
"""
RELATIVE = 1e-8
"""Of the mean squared distance to neighbors: added to that of each row, so that repeated rows have a logarithm."""
KEPT = 0.7
"""Correlation of R and r from which a map is said to show densities: of digits .97 with the term, .47 without."""


@dataclass(frozen=True)
class DensityOptions(descent.SamplingOptions):
    """The parameters of a descent with a term of densities, ``dens_lambda`` 0 where they are only measured."""

    dens_lambda: float
    dens_frac: float
    dens_var_shift: float

    @property
    def first(self) -> int:
        """The first epoch in which the term acts, as umap-learn has it; the very first has nothing measured before."""
        acting = (e for e in range(1, self.n_epochs) if (e + 1) / self.n_epochs > 1.0 - self.dens_frac)
        return next(acting, self.n_epochs) if self.dens_lambda > 0 else self.n_epochs

    @property
    def iterations(self) -> int:
        """The number of sweeps: one of each epoch, and :data:`PARTS` where the term acts."""
        return self.first + PARTS * (self.n_epochs - self.first)

    def place(self, sweep: int) -> tuple[int, int, int]:
        """Return the epoch of a sweep, which of its parts it is, and how many there are."""
        first = self.first
        if sweep < first:
            return sweep, 0, 1
        epochs, part = divmod(sweep - first, PARTS)
        return first + epochs, part, PARTS

    def parameters(self) -> dict[str, Any]:
        """Return the parameters for the key of the stage."""
        return super().parameters() | {"parts": PARTS}

    def at(self, epoch: int, largest: float) -> Array:
        """Return what is given to a sweep: an edge has its turns among the parts of all epochs, a row its mean step."""
        epoch, part, parts = self.place(epoch)
        found = super().at(epoch, parts * largest)
        found[descent.EPOCH] = parts * epoch + part
        if parts > 1:
            found[descent.DIVIDED] = 1.0
        return found

    def measures(self, sweep: int) -> bool:
        """Say whether a sweep measures the radii of the points that it moves, for the next epoch."""
        return self.first <= sweep + 1 < self.iterations and self.place(sweep + 1)[1] == 0

    def numbers(self, largest: float, mass: float, n: int, moments: Array, original: Array) -> Array:
        """Return what compiled kernels take, by the places that :mod:`bigembed.maps.umap.forces` names.

        ``moments``: mean and variance of r, and its covariance with R; ``original``: mean and deviation of what R is
        made of, and its offset.
        """
        variance = moments[1] + self.dens_var_shift
        strength = self.dens_lambda * mass / (n * sqrt(variance)) if variance > 0 else 0.0
        found = [largest / self.n_epochs, strength, moments[0], variance, moments[2], self.dens_frac, *original]
        return np.array(found, np.float64)


def density_options(
    asked: descent.SamplingOptions, graph: GraphShape, dens_lambda: float, dens_frac: float, dens_var_shift: float
) -> DensityOptions:
    """Return what is asked of densities.

    InputTypeError for a user's weights, InputError for two graphs of the rows.
    """
    if graph.views:
        raise InputError(
            "UMAP: densmap and output_dens are of one distance between rows, and two views (view_columns), or rows and "
            "a numeric target, have one each. Leave them out, or map each view by itself"
        )
    if graph.weighted:
        raise InputTypeError(
            "UMAP: densmap and output_dens need distances between neighbors, and this is a graph of weights. Give "
            "the rows, their distances, or the lengths of the edges (open_graph with values='distances')"
        )
    return DensityOptions(
        **vars(asked),
        dens_lambda=float(dens_lambda),
        dens_frac=float(dens_frac),
        dens_var_shift=float(dens_var_shift),
    )


# ---------------------------------------------------------------------------------------------------- of the rows


def density_stage(graph: GraphShape, edges: int) -> Stage:
    """``local_radii/radii``: the logarithm of the mean w d² over the edges of each row, by blocks of the graph."""
    n, block = graph.n, min(graph.block, graph.n)
    cost = Cost.of(
        reads=[ArraySpec("edges and weights", edges, 3)],
        writes=[ArraySpec("radii/*", n)],
        leaves=[ArraySpec("mean squared distances", n)],
        task=[ArraySpec("edges", -(-edges // n) * block, 6)],
        passes=1,
        scalar_ops=2 * edges,
        maps=2,
    )
    run = partial(run_density, graph=graph)
    return Stage("local_radii", ("kernel", graph.stage, *graph.vectors), {"relative": RELATIVE}, run, cost)


def run_density(context: Context, graph: GraphShape) -> dict[str, Any]:
    squared = context.home.matrix(graph.stage, "squared")
    weights = context.home.matrix(graph.stage, "weights", "kernel")
    space, n, masses = StoredSpace(squared, context.exchange), graph.n, values_path(context)
    halos: dict[str, Any] = {"reads": ["masses"], "halos": ["masses"]} if masses else {}
    if masses:
        space.sweep(masses_block, writes=["masses"], posts=["masses"], arguments=(masses,))
    parts = space.sweep(mean_square_block, **halos, writes=["means"], arguments=(squared, weights))
    offset = RELATIVE * float(tree_sum(parts)) / n or np.finfo(np.float64).tiny
    found = space.sweep(log_block, reads=["means"], arguments=(offset, context.path("radii")))
    mean, square = (float(tree_sum([part[i] for part in found])) / n for i in range(2))
    deviation = sqrt(max(0.0, square - mean**2))
    return {"mean": mean, "deviation": deviation if deviation > RELATIVE else 1.0, "offset": offset}


def masses_block(b: int, masses: str) -> tuple[tuple[Array], None]:
    """Return the masses of the rows of a block."""
    return (read_array(f"{masses}/{b}")[:, None],), None


def mean_square_block(b: int, *given: Any) -> tuple[tuple[Array], float]:
    """Return Σ w d²/Σ w of each row of a block, and their sum; by masses where these and those of the halo are given.

    The mass of each row is the second column then.
    """
    *masses, squared, weights = given
    distances = squared.block(b)
    rows, row = len(distances.indptr) - 1, distances.row
    own = masses[0][:, 0] if masses else np.ones(rows)
    w = weights.block(b).data.astype(np.float64)
    if masses:
        w *= np.concatenate(masses)[distances.indices, 0]
    total = np.bincount(row, w, rows)
    means = np.bincount(row, w * distances.data, rows) / np.where(total > 0, total, 1.0)
    return (np.column_stack([means, own]),), float((own * means).sum())


def log_block(b: int, means: Array, offset: float, out: str) -> tuple[tuple[()], tuple[float, float]]:
    """Write log(``offset`` + mean) of the rows of a block; return their sum by masses, and that of their squares."""
    found, own = np.log(offset + means[:, 0]), means[:, 1]
    write_array(f"{out}/{b}", found)
    return (), (float((own * found).sum()), float((own * found**2).sum()))


def standardized(path: str, b: int, original: Array) -> Array:
    """Return R of the rows of a block; ``original``: mean and deviation of what lies at the path."""
    return np.asarray((read_array(f"{path}/{b}") - original[0]) / original[1])


# --------------------------------------------------------------------------------------------------------- descent


def begin_with_radii(b: int, start: str, radii: str, original: Array, masses: str) -> tuple[tuple[Array, Array], None]:
    """Return the points of the start, and (r, Σφ, R, mass) of its rows, of which the last two are known."""
    (points,), _ = descent.begin_block(b, start)
    known = np.zeros((len(points), 4))
    known[:, 1], known[:, 2] = 1.0, standardized(radii, b, original)
    known[:, 3] = weights_at(masses, b, len(points))
    return (points, known), None


def move_by_density(
    b: int, points: Array, radii: Array, halo: Array, halo_radii: Array, weights: BlockMatrix, space: VectorSpace,
    pool: str, asked: DensityOptions, largest: float, sweep: int, before: Sequence[float], density: Array,
) -> tuple[tuple[Array, Array, Array], Array | None]:  # fmt: skip
    """Return a block after one sweep, its radii before it, and what may be drawn of it in the next; sums of radii.

    The sums are of r, r² and r R, and None where nothing is measured. Without masses ``before`` is empty.
    """
    from bigembed.maps.umap.compiled import density_step, step  # imports numba: only here

    moved, known = np.empty_like(points), np.concatenate([radii, halo_radii])
    read = descent.read_by_kernels(b, [points, radii, halo, halo_radii], weights, space, pool, before)
    common = (*read, asked.key(sweep), asked.at(sweep, largest))
    sums, measures, acts = None, asked.measures(sweep), sweep >= asked.first
    if acts or measures:
        seen = np.empty((len(points) if measures else 0, 2))
        pulls, (_, part, parts) = pulls_of(known, density), asked.place(sweep)
        numbers = density if acts else without_strength(density)
        run_by_rows(density_step, len(points), *common, pulls, numbers, part, parts, moved, seen)
        if measures:
            radii = np.concatenate([seen, radii[:, 2:]], axis=1)
            sums = sums_of(radii)
    else:
        run_by_rows(step, len(points), *common, moved)
    drawn = descent.rows_in_pool(b, weights.rows, asked.seed, sweep + 1, radii[:, 3], before)
    return (moved, radii, moved[drawn]), sums


def without_strength(density: Array) -> Array:
    """Return the numbers of a term that does not act."""
    from bigembed.maps.umap.forces import STRENGTH

    out = density.copy()
    out[STRENGTH] = 0.0
    return out


def pulls_of(radii: Array, density: Array) -> Array:
    """Return (u/Σφ, e^{−r}) of rows from (r, Σφ, R, mass)."""
    from bigembed.maps.umap.forces import COVARIANCE, MEAN, VARIANCE

    r, total, original, _ = radii.T
    wanted = original - density[COVARIANCE] * (r - density[MEAN]) / max(density[VARIANCE], np.finfo(float).tiny)
    return np.stack([wanted / total, np.exp(-r)], axis=1)


def sums_of(radii: Array) -> Array:
    """Return Σ r, Σ r² and Σ r R of some rows, from (r, Σφ, R, mass), by their masses."""
    r, _, original, mass = radii.T
    return np.array([(mass * r).sum(), (mass * r**2).sum(), (mass * r * original).sum()])


def moments_of(sums: Array, n: int) -> Array:
    """Return mean and variance of r, and its covariance with R (of mean 0), which divides by n − 1 as umap-learn's."""
    mean = sums[0] / n
    return np.array([mean, max(0.0, sums[1] / n - mean**2), sums[2] / max(1, n - 1)])


def density_descent_stage(graph: GraphShape, edges: int, asked: DensityOptions, in_memory: bool | None) -> Stage:
    """Describe the stage of the descent of UMAP with a term of densities in its last epochs."""
    pool = descent.pool_bytes(graph, asked)
    operations = asked.n_epochs * edges * (1 + asked.negative_sample_rate + 2 * asked.dens_frac)
    return descent_stage(
        run_density_descent, graph, edges, asked, in_memory, kept=2 * pool, joining=0, shared=4 * pool,
        scalar_ops=operations, width=4, inputs=("local_radii", *graph.vectors),
    )  # fmt: skip


def run_density_descent(context: Context, asked: DensityOptions, memory: Immaterial) -> dict[str, Any]:
    return descend(context, DensityDescent, asked, memory.value)


class DensityDescent(descent.WeightedDescent):
    """The cross-entropy of an edge, and in the last epochs the correlation of the radii."""

    state: ClassVar[tuple[str, ...]] = (*descent.WeightedDescent.state, "moments")
    vectors, measured = ("points", "radii"), ("points", "radii")
    begin_block, move_block = staticmethod(begin_with_radii), staticmethod(move_by_density)
    asked: DensityOptions
    moments: Array

    def begin(self) -> None:
        """Set the points of the start, at rest; nothing is measured yet."""
        self.moments = np.zeros(3)
        super().begin()

    def beginning(self) -> tuple[Any, ...]:
        """Return the arguments of ``begin_block``."""
        start = self.context.of("start", "points")
        return start, self.context.of("local_radii", "radii"), original_of(self.context), self.masses_at

    def take(self, results: list[Any]) -> None:
        """Take the moments of the radii that an epoch has measured."""
        if all(one is not None for one in results):
            self.moments = moments_of(tree_sum(results), sum(self.space.rows))

    @property
    def reported(self) -> bool:
        """Whether the objective is measured after this sweep: every few epochs, when they are whole."""
        epoch, part, _ = self.asked.place(self.iteration)
        return self.iteration == self.max_iter or (part == 0 and epoch % REPORT == 0)

    def moving(self) -> tuple[Any, ...]:
        """Return the arguments of ``move_block``: the numbers of the term, too."""
        figures = float(self.context.results("kernel")["largest"]), self.mass, sum(self.space.rows)
        return *super().moving(), self.asked.numbers(*figures, self.moments, original_of(self.context))


def original_of(home: Context | Run) -> Array:
    """Return mean and deviation of the logarithms that R is made of, and what was added to mean squared distances."""
    found = home.results("local_radii")
    return np.array([found["mean"], found["deviation"], found["offset"]])


# ----------------------------------------------------------------------------------------------------- of the map


def radii_stage(graph: GraphShape, edges: int, asked: DensityOptions) -> Stage:
    """``map_radii/original`` and ``embedded`` (n,) in the order of the input, and the ``pulls`` of rows by blocks."""
    n, block = graph.n, min(graph.n, graph.block)
    both = [ArraySpec("original", n), ArraySpec("embedded", n)]
    cost = Cost.of(
        reads=[ArraySpec("edges", edges, 2), ArraySpec("points/*", n, asked.n_components, times=2)],
        writes=[*both, ArraySpec("pulls/*", n, 2)],
        leaves=[ArraySpec("points, radii and numbers of rows", n, asked.n_components + 6)],
        task=[ArraySpec("edges", -(-edges // n) * block, 3), ArraySpec("points and radii", block, 30)],
        passes=1,
        scalar_ops=20 * edges,
        maps=4,
    )
    order = ("order",) if graph.ordered else ()
    inputs = ("kernel", "local_radii", "coordinates", graph.stage, *order, *graph.vectors)
    run = partial(run_radii, graph=graph, asked=asked)
    names = ("n_components", "n_epochs", "a", "b", "dens_lambda", "dens_frac", "dens_var_shift")
    return Stage("map_radii", inputs, {name: getattr(asked, name) for name in names}, run, cost)


def run_radii(context: Context, graph: GraphShape, asked: DensityOptions) -> dict[str, Any]:
    weights, n, out_rows = context.home.matrix(graph.stage, "weights", "kernel"), graph.n, block_rows(1, 8)
    space, original = StoredSpace(weights, context.exchange), original_of(context)
    order, kernel = context.of("order") if graph.ordered else "", context.results("kernel")
    names, radii, masses = ["points", "radii"], context.of("local_radii", "radii"), values_path(context)
    begins = context.of("coordinates", "points"), radii, original, masses
    space.sweep(begin_with_radii, writes=names, posts=names, arguments=begins)
    least, weighs = float(kernel["largest"]) / asked.n_epochs, bool(masses)
    seen = space.sweep(
        radii_block, reads=names, halos=names, writes=["found"],
        arguments=(weights, asked.a, asked.b, least, radii, weighs, order, n, out_rows, context.exchange),
    )  # fmt: skip
    mass = float(kernel["mass"])
    if masses:
        mass = float(
            tree_sum(space.sweep(descent.weight_block, reads=["radii"], halos=["radii"], arguments=(weights,)))
        )
    moments = moments_of(tree_sum(seen), n)
    numbers = asked.numbers(float(kernel["largest"]), mass, n, moments, original)
    space.sweep(pull_block, reads=["found"], arguments=(numbers, context.path("pulls")))
    for name in ("original", "embedded"):
        create_rows(context.path(name), (n,), np.float64, out_rows)
    restore(context.exchange, len(weights.rows), ("original", "embedded"), n, out_rows, context.path(""))
    deviation = sqrt(moments[1])
    correlation = float(moments[2] * (n - 1) / n / deviation) if deviation > 0 else 0.0
    return {"correlation": correlation, "numbers": numbers.tolist()}


def radii_block(
    b: int, points: Array, known: Array, halo: Array, halo_known: Array, weights: StoredMatrix, a: float, b_: float,
    least: float, radii: str, weighs: bool, order: str, n: int, out_rows: int, exchange: Any,
) -> tuple[tuple[Array], Array]:  # fmt: skip
    """Return (r, Σφ, R, mass) of a block, of which R and mass are ``known``, and sums of them.

    Both logarithms are left for the output.
    """
    from bigembed.maps.umap.compiled import map_radii  # imports numba: only here

    seen, masses = known.copy(), descent.NO_MASSES
    if weighs:
        masses = np.concatenate([known, halo_known])[:, 3].copy()
    arguments = *entries_of(weights, b), np.concatenate([points, halo]), a, b_, least, masses
    run_by_rows(map_radii, len(points), *arguments, seen)
    before = read_array(f"{radii}/{b}")
    ids = input_rows(order, b, offsets(weights.rows))
    leave_rows(exchange, b, ids, {"original": before, "embedded": seen[:, 0].copy()}, n, out_rows)
    return (seen,), sums_of(seen)


def pull_block(b: int, radii: Array, numbers: Array, out: str) -> tuple[tuple[()], None]:
    """Write what the rows of a block want of the places of new rows."""
    write_array(f"{out}/{b}", pulls_of(radii, numbers))
    return (), None


def not_shown(correlation: float, asked: bool) -> list[str]:
    """Say of a map that was to show densities that it does not.

    >>> not_shown(0.9, True), not_shown(0.2, False)
    ([], [])
    """
    if not asked or correlation >= KEPT:
        return []
    return [
        f"the logarithms of local radii among the rows and on the map correlate by {correlation:.2f}: do not "
        "read densities from the map. Raise dens_lambda or n_epochs, or dens_frac"
    ]


# -------------------------------------------------------------------------------------------------------- new rows


@dataclass(frozen=True)
class DensityPlacement(descent.SampledPlacement):
    """The pulls of fitted rows, too, and the numbers of the term."""

    pulls: str
    numbers: tuple[float, ...]

    def term(self, joined: Joined) -> tuple[Array, Array]:
        """Return the pulls of the fitted rows that new ones are joined to, and the numbers of the term."""
        return read_by_id(self.pulls, self.starts, joined.ids), np.array(self.numbers)


def density_placement_of(run: Run, plain: descent.SampledPlacement) -> DensityPlacement:
    """Return how new rows are placed on a map with a term of densities."""
    known = {one.name: getattr(plain, one.name) for one in fields(plain)}
    numbers = tuple(run.results("map_radii")["numbers"])
    return DensityPlacement(**known, pulls=run.path("map_radii", "pulls"), numbers=numbers)
