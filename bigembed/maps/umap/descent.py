"""The descent of a map by sampled edges and rows.

An epoch joins the pool of rows that may be drawn, and moves every row by its weights, the points of its neighbors, and
the pool.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import lru_cache
from typing import Any, ClassVar, Self

import numpy as np

from bigembed.estimator.graph_input import GraphShape
from bigembed.maps.descent import (
    MapDescent,
    Placement,
    descend,
    descent_stage,
    fields_of_placement,
    kept_array,
    run_by_rows,
)
from bigembed.neighbors.query import Joined
from bigembed.runtime.blocks import Array, map_blocks, offsets
from bigembed.stages.reuse import Immaterial
from bigembed.stages.runs import Run
from bigembed.stages.stage import Context, Stage
from bigembed.store.arrays import read_array
from bigembed.store.matrix import BlockMatrix, entries_of
from bigembed.store.vector_space import VectorSpace

# --------------------------------------------------------------------------------------------------------- options
# What is asked of a map by sampled edges and rows, and what of it holds in an epoch.

FEW_ROWS = 10_000
FEW_EPOCHS, MANY_EPOCHS = 200, 500
"""Epochs of many rows, and of at most :data:`FEW_ROWS`, where none are asked."""
STREAM = 32
"""Of random numbers."""


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

    @property
    def iterations(self) -> int:
        """The number of epochs."""
        return self.n_epochs

    def parameters(self) -> dict[str, Any]:
        """Return the parameters for the key of the stage, with what a step is (before: half of that)."""
        return asdict(self) | {"step": "mean of edges"}

    @classmethod
    def of(cls, parameters: Mapping[str, Any]) -> Self:
        """Return what was asked of a descent with these parameters."""
        return cls(**{name: value for name, value in parameters.items() if name in cls.__dataclass_fields__})

    def at(self, epoch: int, largest: float) -> Array:
        """Return what :func:`bigembed.maps.umap.compiled.step` is given in an epoch: the learning rate falls to 0."""
        rate = self.learning_rate * (1.0 - epoch / self.n_epochs)
        strength, draws = self.repulsion_strength, self.negative_sample_rate
        return np.array([self.a, self.b, strength, draws, largest, epoch, rate])

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


def rows_in_pool(b: int, rows: Sequence[int], seed: int, epoch: int) -> Array | slice:
    """Return the rows of block b in the pool of an epoch; ``rows`` are the rows of each block.

    >>> rows_in_pool(0, [3, 4], 0, 0), len(rows_in_pool(1, [30_000, 101_072], 0, 0))
    (slice(None, None, None), 50536)
    """
    n = sum(rows)
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


def begin_block(b: int, start: str) -> tuple[tuple[Array], None]:
    """Return the points of the start."""
    return (read_array(f"{start}/{b}").astype(np.float64),), None


def share_block(b: int, points: Array, rows: tuple[int, ...], seed: int, epoch: int) -> tuple[tuple[Array], None]:
    """Return the points of a block that may be drawn in an epoch."""
    return (points[rows_in_pool(b, rows, seed, epoch)],), None


def join_shares(shares: str, pool: str, *, space: VectorSpace) -> None:
    """Write all points that may be drawn in an epoch."""
    space.write(pool, 0, np.concatenate([space.read(shares, b) for b in range(len(space.rows))]))


def move_block(
    b: int, points: Array, halo: Array, weights: BlockMatrix, space: VectorSpace, pool: str, asked: SamplingOptions,
    largest: float, epoch: int,
) -> tuple[tuple[Array, Array], None]:  # fmt: skip
    """Return a block after one epoch, and what may be drawn of it in the next."""
    from bigembed.maps.umap.compiled import step  # imports numba: only here

    moved = np.empty_like(points)
    read = read_by_kernels(b, points, halo, weights, space, pool)
    run_by_rows(step, len(points), *read, asked.key(epoch), asked.at(epoch, largest), moved)
    return (moved, moved[rows_in_pool(b, weights.rows, asked.seed, epoch + 1)]), None


def cross_entropy_block(
    b: int, points: Array, halo: Array, weights: BlockMatrix, space: VectorSpace, pool: str, asked: SamplingOptions,
    largest: float, epoch: int,
) -> tuple[tuple[()], int]:  # fmt: skip
    """Return the cross-entropy of the rows of a block, as an integer."""
    from bigembed.maps.umap.compiled import cross_entropy

    read = read_by_kernels(b, points, halo, weights, space, pool)
    return (), sum(run_by_rows(cross_entropy, len(points), *read, asked.key(epoch), asked.at(epoch, largest)))


def read_by_kernels(
    b: int, points: Array, halo: Array, weights: BlockMatrix, space: VectorSpace, pool: str
) -> tuple[Any, ...]:
    """Return numbers of the first row, the entries of the block, the points of their columns, and the pool."""
    drawn = space.read(pool, 0)
    drawn.setflags(write=False)  # (as in memory: one type for the compiler)
    first = offsets(weights.rows)[b]
    return 0, first, *entries_of(weights, b), np.concatenate([points, halo]), drawn


# --------------------------------------------------------------------------------------------------------- descent


def pool_bytes(graph: GraphShape, asked: SamplingOptions) -> int:
    """Return the bytes of a pool, at the most."""
    return 8 * asked.n_components * min(graph.n, POOL + graph.n // min(graph.n, graph.block))


def sampled_descent_stage(graph: GraphShape, edges: int, asked: SamplingOptions, in_memory: bool | None) -> Stage:
    """Describe the stage of the descent of UMAP: attraction along sampled edges, repulsion of sampled rows."""
    pool = pool_bytes(graph, asked)
    return descent_stage(
        run_descent,
        graph,
        edges,
        asked,
        in_memory,
        kept=2 * pool,
        joining=0,
        shared=4 * pool,
        scalar_ops=asked.n_epochs * edges * (1 + asked.negative_sample_rate),
    )


def run_descent(context: Context, asked: SamplingOptions, memory: Immaterial) -> dict[str, Any]:
    return descend(context, SampledDescent, asked, memory.value)


class SampledDescent(MapDescent):
    """The cross-entropy of an edge, on average, by sampled edges and rows."""

    share, joined, objective = "shares", "pool", "cross-entropy"
    begin_block: ClassVar[Callable[..., Any]] = staticmethod(begin_block)
    share_block: ClassVar[Callable[..., Any]] = staticmethod(share_block)
    move_block: ClassVar[Callable[..., Any]] = staticmethod(move_block)
    measure_block: ClassVar[Callable[..., Any]] = staticmethod(cross_entropy_block)
    asked: SamplingOptions

    def sharing(self) -> tuple[Any, ...]:
        """Return the arguments of ``share_block``, which tell what rows may be drawn."""
        return self.space.rows, self.asked.seed, self.iteration

    def join(self) -> None:
        """Make the pool of all rows that may be drawn."""
        map_blocks(join_shares, [self.names((self.share, self.joined))], space=self.space)

    def moving(self) -> tuple[Any, ...]:
        """Return the arguments of ``move_block``: what an epoch reads besides the points."""
        [pool], largest = self.names((self.joined,)), float(self.context.results("kernel")["largest"])
        return self.weights, self.space, pool, self.asked, largest, self.iteration

    measuring = moving

    def objective_of(self, total: int) -> float:
        """Return the cross-entropy as its mean over the weights."""
        from bigembed.maps.umap.compiled import UNIT  # imports numba: only here

        return total / UNIT / float(self.context.results("kernel")["mass"])


# -------------------------------------------------------------------------------------------------------- new rows
# New rows on a map by sampled edges and rows: each moves among the fitted rows, which stay.

SHARE = 3
"""Epochs of the fit for one epoch of a new row."""
RATE = 0.25
"""Of the learning rate, where its epochs begin."""


@dataclass(frozen=True)
class SampledPlacement(Placement):
    """The pool of the map, and what was asked of it."""

    pool: str
    asked: SamplingOptions
    k: int
    connectivity: float

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
            kept_array(self.pool, self.version),
            np.array(keys),
            self.asked.at(0, 1.0),
            RATE * self.asked.learning_rate,
            *self.term(joined),
        )

    def term(self, joined: Joined) -> tuple[Array, Array]:
        """Return what a term of densities needs of the fitted rows that new ones are joined to: nothing without one."""
        return np.zeros((0, 2)), np.zeros(0)


def placement_of(run: Run, asked: SamplingOptions, connectivity: float, metric: Any = None) -> SampledPlacement:
    """Return how new rows are placed on the map of a fitted run; ``metric``: as the caller gave it."""
    pool, k = run.path("coordinates", "pool"), run.results("kernel")["n_neighbors"]
    return SampledPlacement(*fields_of_placement(run, metric), pool, asked, k, connectivity)
