"""The descent of a map by sampled edges and rows.

An epoch joins the pool of rows that may be drawn, and moves every row by its weights, the points of its neighbors, and
the pool.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import KW_ONLY, asdict, dataclass, replace
from functools import lru_cache
from typing import Any, ClassVar, Self

import numpy as np

from bigembed.estimator.graph_input import GraphShape
from bigembed.maps import descent
from bigembed.neighbors.query import Joined
from bigembed.neighbors.row_weights import values_path
from bigembed.runtime import using
from bigembed.runtime.blocks import Array, map_blocks, offsets
from bigembed.stages import Context, Immaterial, Run, Stage
from bigembed.store.arrays import read_array, read_by_id
from bigembed.store.matrix import BlockMatrix, entries_of, products
from bigembed.store.vector_space import VectorSpace, tree_sum

# --------------------------------------------------------------------------------------------------------- options
# What is asked of a map by sampled edges and rows, and what of it holds in an epoch.

FEW_ROWS = 10_000
FEW_EPOCHS, MANY_EPOCHS = 200, 500
"""Epochs of many rows, and of at most :data:`FEW_ROWS`, where none are asked."""
STREAM = 32
"""Of random numbers."""
EPOCH, DIVIDED = 5, 7
"""Places in what a step is given: of the epoch, and of the share of a row's turns that its forces are divided by."""
AT_ONCE = 16.0
"""Turns of a row in an epoch along whose sum of forces it steps, if it does: hubs would be thrown about by theirs."""
GOING_ON = 0.25
"""Least share of the epochs that a map makes which goes on from the one before."""
RATE_GOING_ON = 0.25
"""Of the learning rate of such a map: at the full rate its rows would first be thrown about (cells: twice as far)."""


@dataclass(frozen=True)
class SamplingOptions:
    """The parameters of the descent; small and picklable."""

    n_components: int
    a: float
    b: float
    n_epochs: int
    learning_rate: float
    repulsion_strength: float
    negative_sample_rate: int
    seed: int
    _: KW_ONLY
    sums: float = 0.0
    """0 where rows step along the mean of the forces of their edges; by labels the share of rows that have one: where
    all do, rows step along the sum, since groups have far to go, and where few do nearly along the mean."""

    @property
    def iterations(self) -> int:
        """The number of epochs."""
        return self.n_epochs

    def parameters(self) -> dict[str, Any]:
        """Return the parameters for the key of the stage, with what a step is (before: half of that)."""
        known = asdict(self)
        return known | {"step": "by the share of labels" if known.pop("sums") else "mean of edges"}

    def going_on(self, share: float) -> Self:
        """Return what is asked of a map that goes on from the one before, for a share of the epochs."""
        epochs = max(1, round(share * self.n_epochs))
        return replace(self, n_epochs=epochs, learning_rate=RATE_GOING_ON * self.learning_rate)

    @classmethod
    def of(cls, parameters: Mapping[str, Any]) -> Self:
        """Return what was asked of a descent with these parameters."""
        return cls(**{name: value for name, value in parameters.items() if name in cls.__dataclass_fields__})

    def at(self, epoch: int, largest: float) -> Array:
        """Return what :func:`bigembed.maps.umap.compiled.step` is given in an epoch: the learning rate falls to 0."""
        rate = self.learning_rate * (1.0 - epoch / self.n_epochs)
        strength, draws = self.repulsion_strength, self.negative_sample_rate
        return np.array([self.a, self.b, strength, draws, largest, epoch, rate, AT_ONCE**-self.sums])

    def key(self, epoch: int) -> int:
        """Return what the random numbers of the rows follow from in an epoch: 63 bits."""
        return int(np.random.SeedSequence([self.seed, STREAM, epoch]).generate_state(1, np.uint64)[0] >> np.uint64(1))


def epochs_for(asked: int | None, n: int) -> int:
    """Return the epochs of n rows, as umap-learn has it.

    >>> epochs_for(None, 10_000), epochs_for(None, 10_001), epochs_for(30, 5)
    (500, 200, 30)
    """
    return asked if asked is not None else MANY_EPOCHS if n <= FEW_ROWS else FEW_EPOCHS


POOL = 1 << 16
"""Rows of a pool, about: what fits into a processor's cache, and differs in every epoch."""


NO_MASSES: Array = np.zeros(0)
"""Of rows that all count as one."""
NO_MASSES.setflags(write=False)
FEW_DRAWN = 1 << 12
"""Rows of a pool by mass, at least: light rows are in it, too."""


def rows_in_pool(
    b: int, rows: Sequence[int], seed: int, epoch: int, masses: Array = NO_MASSES, before: Sequence[float] = ()
) -> Array | slice:
    """Return the rows of block b in the pool of an epoch; ``rows`` are the rows of each block.

    With ``masses`` of the rows of the block, and the mass ``before`` each block (and that of all), the pool holds rows
    by their mass, heavy ones several times: at equal steps along the mass of all rows, from a random place on.

    >>> rows_in_pool(0, [3, 4], 0, 0), len(rows_in_pool(1, [30_000, 101_072], 0, 0))
    (slice(None, None, None), 50536)
    >>> np.bincount(rows_in_pool(0, [3], 0, 0, np.array([1.0, 2.0, 1.0]), [0.0, 4.0])).tolist()
    [1024, 2048, 1024]
    """
    n = sum(rows)
    if len(before):
        size = before[-1] / min(POOL, max(n, FEW_DRAWN))
        start = np.random.default_rng([seed, STREAM, epoch]).random()
        ends = before[b] + np.cumsum(masses)
        first, last = (int(np.ceil(mass / size - start)) for mass in (before[b], before[b + 1]))
        places = (np.arange(first, last) + start) * size
        return np.minimum(np.searchsorted(ends, places, side="right"), len(masses) - 1)
    if n <= POOL:
        return slice(None)
    share = max(1, round(POOL * rows[b] / n))
    generator = np.random.default_rng([seed, STREAM, epoch, b])
    return generator.choice(rows[b], share, replace=False, shuffle=False)


POINTS = 300
REACH = 3.0
"""In units of ``spread``: where the curve is fitted."""


@lru_cache(maxsize=64)
def curve(min_dist: float, spread: float) -> tuple[float, float]:
    """Return a and b, so that 1/(1 + a r^{2b}) is nearest to 1 for r < min_dist and exp(−(r − min_dist)/spread) beyond.

    Least squares over 300 distances up to 3·spread, as umap-learn has it (McInnes et al. 2018, Definition 11).

    >>> [round(value, 4) for value in curve(0.1, 1.0)]
    [1.5769, 0.8951]
    """
    from scipy.optimize import curve_fit

    distances = np.linspace(0.0, REACH * spread, POINTS)
    wanted = np.where(distances < min_dist, 1.0, np.exp(-(distances - min_dist) / spread))
    (a, b), _ = curve_fit(lambda r, a, b: 1.0 / (1.0 + a * r ** (2.0 * b)), distances, wanted)
    return float(a), float(b)


# ---------------------------------------------------------------------------------------------------------- blocks
# What a task of an epoch does with one block, and the one that joins the pool.
#
# A block leaves those of its points that may be drawn in the next epoch. In files nothing of all rows, and no more of
# the weights than one block, is in a process.


def begin_block(b: int, start: str, masses: str = "") -> tuple[tuple[Array, ...], None]:
    """Return the points of the start and, where they lie, the masses of their rows."""
    points = read_array(f"{start}/{b}").astype(np.float64)
    return (points, read_array(f"{masses}/{b}")[:, None]) if masses else (points,), None


def share_block(
    b: int, points: Array, rows: tuple[int, ...], seed: int, epoch: int, masses: str = "", before: Sequence[float] = ()
) -> tuple[tuple[Array], None]:
    """Return the points of a block that may be drawn in an epoch; where the ``masses`` of rows lie, by those."""
    mass = read_array(f"{masses}/{b}") if masses else NO_MASSES
    return (points[rows_in_pool(b, rows, seed, epoch, mass, before)],), None


def join_shares(shares: str, pool: str, *, space: VectorSpace) -> None:
    """Write all points that may be drawn, from the shares of the blocks."""
    space.write(pool, 0, np.concatenate([space.read(shares, b) for b in range(len(space.rows))]))


def move_block(b: int, *given: Any) -> tuple[tuple[Array, ...], None]:
    """Return a block after one epoch, its masses, and what may be drawn of it in the next.

    ``given``: points (and masses) of the rows and of the halo; weights, space, pool, options, largest weight, epoch,
    and the mass before each block.
    """
    from bigembed.maps.umap.compiled import step  # imports numba: only here

    *found, weights, space, pool, asked, largest, epoch, before = given
    points, *masses = found[: len(found) // 2]
    moved = np.empty_like(points)
    read = read_by_kernels(b, found, weights, space, pool, before)
    descent.run_by_rows(step, len(points), *read, asked.key(epoch), asked.at(epoch, largest), moved)
    own = masses[0][:, 0] if masses else NO_MASSES
    return (moved, *masses, moved[rows_in_pool(b, weights.rows, asked.seed, epoch + 1, own, before)]), None


def cross_entropy_block(b: int, *given: Any) -> tuple[tuple[()], int]:
    """Return the cross-entropy of the rows of a block, as an integer; ``given`` as to :func:`move_block`."""
    from bigembed.maps.umap.compiled import cross_entropy

    *found, weights, space, pool, asked, largest, epoch, before = given
    read = read_by_kernels(b, found, weights, space, pool, before)
    return (), sum(descent.run_by_rows(cross_entropy, len(found[0]), *read, asked.key(epoch), asked.at(epoch, largest)))


def read_by_kernels(
    b: int, found: Sequence[Array], weights: BlockMatrix, space: VectorSpace, pool: str, before: Sequence[float]
) -> tuple[Any, ...]:
    """Return numbers of the first row, entries of the block, points of their columns, the pool, masses of columns.

    ``found``: the points of the rows and of the halo, each before a vector whose last column are masses, if there are
    masses at all (``before``).
    """
    drawn = space.read(pool, 0)
    drawn.setflags(write=False)  # (as in memory: one type for the compiler)
    first, half = offsets(weights.rows)[b], len(found) // 2
    masses = np.concatenate([found[half - 1], found[-1]])[:, -1].copy() if before else NO_MASSES
    return 0, first, *entries_of(weights, b), np.concatenate([found[0], found[half]]), drawn, masses


# --------------------------------------------------------------------------------------------------------- descent


def pool_bytes(graph: GraphShape, asked: SamplingOptions) -> int:
    """Return the bytes of a pool, at the most."""
    return 8 * asked.n_components * rows_of_pool(graph)


def rows_of_pool(graph: GraphShape) -> int:
    """Return the rows of a pool, at the most; by masses there are more of few rows."""
    most = POOL + graph.n // min(graph.n, graph.block)
    return min(max(graph.n, FEW_DRAWN + 1) if graph.vectors else graph.n, most)


def sampled_descent_stage(graph: GraphShape, edges: int, asked: SamplingOptions, in_memory: bool | None) -> Stage:
    """Describe the stage of the descent of UMAP: attraction along sampled edges, repulsion of sampled rows."""
    pool = pool_bytes(graph, asked)
    return descent.descent_stage(
        run_descent,
        graph,
        edges,
        asked,
        in_memory,
        kept=2 * pool,
        joining=0,
        shared=4 * pool,
        scalar_ops=asked.n_epochs * edges * (1 + asked.negative_sample_rate),
        width=len(graph.vectors),
        inputs=graph.vectors,
    )


def run_descent(context: Context, asked: SamplingOptions, memory: Immaterial) -> dict[str, Any]:
    kind = WeightedDescent if values_path(context) else SampledDescent
    return descent.descend(context, kind, asked, memory.value)


class SampledDescent(descent.MapDescent):
    """The cross-entropy of an edge, on average, by sampled edges and rows."""

    share, joined, objective = "shares", "pool", "cross-entropy"
    begin_block: ClassVar[Callable[..., Any]] = staticmethod(begin_block)
    share_block: ClassVar[Callable[..., Any]] = staticmethod(share_block)
    move_block: ClassVar[Callable[..., Any]] = staticmethod(move_block)
    measure_block: ClassVar[Callable[..., Any]] = staticmethod(cross_entropy_block)
    asked: SamplingOptions

    def __init__(self, context: Context, weights: BlockMatrix, *others: Any) -> None:
        self.masses_at = values_path(context)
        self.before = mass_before(self.masses_at, weights.rows)
        super().__init__(context, weights, *others)

    def beginning(self) -> tuple[Any, ...]:
        """Return the arguments of ``begin_block``."""
        return *super().beginning(), self.masses_at

    def sharing(self) -> tuple[Any, ...]:
        """Return the arguments of ``share_block``, which tell what rows may be drawn."""
        return self.space.rows, self.asked.seed, self.iteration, self.masses_at, self.before

    def join(self) -> None:
        """Make the pool of all rows that may be drawn."""
        map_blocks(join_shares, [self.names((self.share, self.joined))], space=self.space)

    def moving(self) -> tuple[Any, ...]:
        """Return the arguments of ``move_block``: what an epoch reads besides the points."""
        [pool], found = self.names((self.joined,)), self.context.results("kernel")
        asked = self.asked
        if asked.sums:
            asked = replace(asked, sums=min(1.0, found["labels"]["labelled_rows"] / sum(found["rows"])))
        return self.weights, self.space, pool, asked, float(found["largest"]), self.iteration, self.before

    measuring = moving

    def objective_of(self, total: int) -> float:
        """Return the cross-entropy as its mean over the weights."""
        return total / descent.UNIT / self.weight_of_all()

    def weight_of_all(self) -> float:
        """Return Σ w."""
        return float(self.context.results("kernel")["mass"])


# ---------------------------------------------------------------------------------------------------------- masses
# Rows that count several times: their masses are a vector beside the points.


def mass_before(masses: str, rows: Sequence[int]) -> tuple[float, ...]:
    """Return the mass of the rows before each block, and of all, by where they lie; nothing where all are 1."""
    if not masses:
        return ()
    with using(journal=None):  # (each start reads them again)
        parts = map_blocks(mass_of_block, [(b,) for b in range(len(rows))], masses=masses)
    return (0.0, *np.cumsum(parts).tolist())


def mass_of_block(b: int, *, masses: str) -> float:
    """Return the mass of the rows of a block."""
    return float(read_array(f"{masses}/{b}").sum())


def weight_block(b: int, masses: Array, halo: Array, weights: BlockMatrix) -> tuple[tuple[()], float]:
    """Return Σ m_i m_j w_ij of the rows of a block; the mass is the last column."""
    block = weights.block(b)
    return (), float((block.data * products(block, masses[:, -1], halo[:, -1])).sum())


class WeightedDescent(SampledDescent):
    """The cross-entropy where an edge counts as often as the masses of both its rows say."""

    state: ClassVar[tuple[str, ...]] = (*SampledDescent.state, "mass")
    vectors, measured, read_by_others = ("points", "masses"), ("points", "masses"), 2
    mass: float

    def begin(self) -> None:
        """Set the points of the start, at rest, and what all edges weigh."""
        super().begin()
        names = self.names(self.vectors[1:])
        if not self.masses_at:
            self.mass = super().weight_of_all()
            return
        parts = self.stored.sweep(weight_block, reads=names, halos=names, arguments=(self.weights,))
        self.mass = float(tree_sum(parts))

    def weight_of_all(self) -> float:
        """Return Σ m_i m_j w_ij."""
        return self.mass


# -------------------------------------------------------------------------------------------------------- new rows
# New rows on a map by sampled edges and rows: each moves among the fitted rows, which stay.

SHARE = 3
"""Epochs of the fit for one epoch of a new row."""
RATE = 0.25
"""Of the learning rate, where its epochs begin."""


@dataclass(frozen=True)
class SampledPlacement(descent.Placement):
    """The pool of the map, and what was asked of it."""

    pool: str
    asked: SamplingOptions
    k: int
    connectivity: float
    masses: str
    """Where those of the fitted rows lie, by blocks; empty where all are 1."""

    def place(self, joined: Joined, squared: Array, points: Array) -> Array:
        """Return the places where new rows come to rest."""
        from bigembed.maps.umap.compiled import place  # imports numba: only here

        first = self.asked.n_epochs + 1  # (its epochs draw by themselves)
        keys = [self.asked.key(first + epoch) for epoch in range(max(1, self.asked.n_epochs // SHARE))]
        return place(
            joined.indptr,
            squared,
            points,
            self.n_neighbors,
            self.k,
            self.connectivity,
            descent.kept_array(self.pool, self.version),
            np.array(keys),
            self.asked.at(0, 1.0),
            RATE * self.asked.learning_rate,
            read_by_id(self.masses, self.starts, joined.ids) if self.masses else NO_MASSES,
            *self.term(joined),
        )

    def term(self, joined: Joined) -> tuple[Array, Array]:
        """Return what a term of densities needs of the fitted rows that new ones are joined to: nothing without one."""
        return np.zeros((0, 2)), np.zeros(0)


def placement_of(run: Run, asked: SamplingOptions, connectivity: float, metric: Any = None) -> SampledPlacement:
    """Return how new rows are placed on the map of a fitted run; ``metric``: as the caller gave it."""
    pool, k = run.path("coordinates", "pool"), run.results("kernel")["n_neighbors"]
    return SampledPlacement(*descent.fields_of_placement(run, metric), pool, asked, k, connectivity, values_path(run))
