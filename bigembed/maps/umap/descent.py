"""The descent of a map by sampled edges and rows.

An epoch joins the pool of rows that may be drawn, and moves every row: in one task that holds the weights, by threads,
or in one map over the blocks, each of which reads its weights, the points of its neighbors, and the pool.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import lru_cache, partial
from typing import Any, Self

import numpy as np

from bigembed.estimator.graph_input import GraphShape
from bigembed.maps.descent import (
    HELD_BYTES,
    REPORT,
    HeldRows,
    MapDescent,
    Placing,
    held_array,
    held_bytes,
    held_weights,
    places_of,
)
from bigembed.neighbors.query import Joined
from bigembed.runtime.blocks import Array, map_blocks, offsets
from bigembed.stages.reuse import Immaterial
from bigembed.stages.runs import Run
from bigembed.stages.stage import Context, Cost, Stage
from bigembed.store.arrays import read_array, read_by_id
from bigembed.store.exchange import Exchange
from bigembed.store.matrix import StoredMatrix

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

    def parameters(self) -> dict[str, Any]:
        """For the key of the descent, with what a step is (before: half of that)."""
        return asdict(self) | {"step": "mean of edges"}

    @classmethod
    def of(cls, parameters: Mapping[str, Any]) -> Self:
        """What was asked of a descent with these parameters."""
        return cls(**{name: value for name, value in parameters.items() if name in cls.__dataclass_fields__})

    def at(self, epoch: int, largest: float) -> Array:
        """What :func:`bigembed.maps.umap.compiled.step` is given in an epoch: the learning rate falls to 0."""
        rate = self.learning_rate * (1.0 - epoch / self.n_epochs)
        strength, draws = self.repulsion_strength, self.negative_sample_rate
        return np.array([self.a, self.b, strength, draws, largest, epoch, rate])

    def key(self, epoch: int) -> int:
        """What the random numbers of the rows follow from in an epoch: 63 bits."""
        return int(np.random.SeedSequence([self.seed, STREAM, epoch]).generate_state(1, np.uint64)[0] >> np.uint64(1))

    def next_report(self, epoch: int) -> int:
        """The epoch after which the cross-entropy is measured next.

        >>> [SamplingOptions(2, 1.6, 0.9, 70, 1.0, 1.0, 5, 0).next_report(epoch) for epoch in (0, 50)]
        [50, 70]
        """
        return min(self.n_epochs, (epoch // REPORT + 1) * REPORT)


def epochs_for(asked: int | None, n: int) -> int:
    """Epochs of n rows, as umap-learn has it.

    >>> epochs_for(None, 10_000), epochs_for(None, 10_001), epochs_for(30, 5)
    (500, 200, 30)
    """
    return asked if asked is not None else MANY_EPOCHS if n <= FEW_ROWS else FEW_EPOCHS


POOL = 1 << 16
"""Rows of a pool, about: what fits into a processor's cache, and differs in every epoch."""


def chosen(b: int, rows: Sequence[int], seed: int, epoch: int) -> Array | slice:
    """The rows of block b in the pool of an epoch; ``rows`` are the rows of each block.

    >>> chosen(0, [3, 4], 0, 0), len(chosen(1, [30_000, 101_072], 0, 0))
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
    """a and b, so that 1/(1 + a r^{2b}) is nearest to 1 for r < min_dist and exp(−(r − min_dist)/spread) beyond.

    Least squares over 300 distances up to 3·spread, as umap-learn has it (McInnes et al. 2018, Definition 11).

    >>> [round(value, 4) for value in curve(0.1, 1.0)]
    [1.5769, 0.8951]
    """
    from scipy.optimize import curve_fit

    distances = np.linspace(0.0, REACH * spread, POINTS)
    wanted = np.where(distances < min_dist, 1.0, np.exp(-(distances - min_dist) / spread))
    (a, b), _ = curve_fit(lambda r, a, b: 1.0 / (1.0 + a * r ** (2.0 * b)), distances, wanted)
    return float(a), float(b)


# ------------------------------------------------------------------------------------------------------- by blocks
# One epoch by blocks through the store: what a task does with one block, and the one that joins the pool.
#
# A block leaves those of its points that may be drawn in the next epoch. Nothing of all rows, and no more of the
# weights than one block, is in a process.


def begin_block(b: int, start: str) -> tuple[tuple[Array], None]:
    """The points of the start."""
    return (read_array(f"{start}/{b}").astype(np.float64),), None


def share_block(
    b: int, points: Array, exchange: Exchange, rows: tuple[int, ...], seed: int, epoch: int
) -> tuple[tuple[()], None]:
    """Leave the points of a block that may be drawn in an epoch."""
    exchange.put(f"shares{epoch}", b, {"points": points[chosen(b, rows, seed, epoch)]})
    return (), None


def pool_block(epoch: int, *, blocks: int, exchange: Exchange) -> None:
    """Leave all points that may be drawn in an epoch."""
    shares = [exchange.piece(f"shares{epoch}", b, "points") for b in range(blocks)]
    exchange.put(f"pool{epoch}", 0, {"points": np.concatenate(shares)})


def move_block(
    b: int, points: Array, halo: Array, weights: StoredMatrix, exchange: Exchange, asked: SamplingOptions,
    largest: float, epoch: int,
) -> tuple[tuple[Array], None]:  # fmt: skip
    """One epoch of a block, of which it leaves what may be drawn in the next."""
    from bigembed.maps.umap.compiled import step  # imports numba: only here

    block, moved = weights.block(b), np.empty_like(points)
    step(
        0, len(points), 0, offsets(weights.rows)[b], block.indptr, block.indices, block.data,
        np.concatenate([points, halo]), exchange.piece(f"pool{epoch}", 0, "points"), asked.key(epoch),
        asked.at(epoch, largest), moved,
    )  # fmt: skip
    share_block(b, moved, exchange, weights.rows, asked.seed, epoch + 1)
    return (moved,), None


def cross_entropy_block(
    b: int, points: Array, halo: Array, weights: StoredMatrix, exchange: Exchange, asked: SamplingOptions,
    largest: float, epoch: int,
) -> tuple[tuple[()], int]:  # fmt: skip
    """The cross-entropy of the rows of a block, as an integer."""
    from bigembed.maps.umap.compiled import cross_entropy

    block = weights.block(b)
    return (), cross_entropy(
        0, len(points), 0, offsets(weights.rows)[b], block.indptr, block.indices, block.data,
        np.concatenate([points, halo]), exchange.piece(f"pool{epoch}", 0, "points"), asked.key(epoch),
        asked.at(epoch, largest),
    )  # fmt: skip


# ------------------------------------------------------------------------------------------------------- in memory
# Many epochs in one task that holds the weights: the same bytes as by blocks, without the store between them.


def held_epochs(
    *, weights: StoredMatrix, exchange: Exchange, asked: SamplingOptions, largest: float, span: tuple[int, int]
) -> int:
    """The epochs of a span; the cross-entropy as an integer."""
    first, last = span
    held = _Held(weights, exchange, asked, largest, first)
    for epoch in range(first, last):
        held.move(epoch)
    found = held.cross_entropy(last)
    held.leave(last)
    if last == asked.n_epochs:
        held_weights.cache_clear()
    return found


class _Held(HeldRows):
    """Points, and those of them that may be drawn."""

    def __init__(
        self, weights: StoredMatrix, exchange: Exchange, asked: SamplingOptions, largest: float, epoch: int
    ) -> None:
        super().__init__(weights, exchange, asked.n_components, epoch)
        self.asked, self.largest = asked, largest

    def pool(self, epoch: int) -> Array:
        """All points that may be drawn in an epoch."""
        rows, by_block = self.weights.rows, np.split(self.points, self.starts[1:-1])
        return np.concatenate([points[chosen(b, rows, self.asked.seed, epoch)] for b, points in enumerate(by_block)])

    def move(self, epoch: int) -> None:
        """One epoch of all rows."""
        from bigembed.maps.umap.compiled import step  # imports numba: only here

        pool, key, options = self.pool(epoch), self.asked.key(epoch), self.asked.at(epoch, self.largest)

        def moved(part: tuple[int, int, int]) -> None:
            b, first, last = part
            step(
                first, last, self.starts[b], self.starts[b], *self.edges[b], self.points, pool, key, options,
                self.own(b),
            )  # fmt: skip

        self.each(moved, self.parts)
        self.swap()

    def cross_entropy(self, epoch: int) -> int:
        """Of the map as it is, as an integer."""
        from bigembed.maps.umap.compiled import cross_entropy

        pool, key, options = self.pool(epoch), self.asked.key(epoch), self.asked.at(epoch, self.largest)

        def of_part(part: tuple[int, int, int]) -> int:
            b, first, last = part
            return cross_entropy(
                first, last, self.starts[b], self.starts[b], *self.edges[b], self.points, pool, key, options
            )

        return sum(self.each(of_part, self.parts))


# --------------------------------------------------------------------------------------------------------- descent


def descent_stage(graph: GraphShape, edges: int, asked: SamplingOptions, in_memory: bool | None) -> Stage:
    """``descent/points`` (rows, m) by blocks, and the cross-entropy every :data:`REPORT` epochs."""
    n, m, block = graph.n, asked.n_components, min(graph.n, graph.block)
    whole = held_bytes(n, edges, m)
    held = whole <= HELD_BYTES if in_memory is None else in_memory
    place = Immaterial(held)  # (the bytes are the same)

    passes = asked.n_epochs if not held else -(-asked.n_epochs // REPORT)
    state, pool = 8 * n * m, 8 * m * min(n, POOL + n // block)
    by_block = 24 * (-(-edges // n)) * block + 200 * block * m
    cost = Cost(
        passes=passes,
        read=passes * (8 * edges + state),
        write=passes * state,
        disk=8 * n * m,
        scratch=4 * state + 4 * pool,
        memory=2 * pool + (whole if held else by_block),
        scalar_ops=asked.n_epochs * edges * (1 + asked.negative_sample_rate),
        maps=2 * passes,
        blocks=1 if held else 0,
    )
    return Stage(
        "descent",
        ("kernel", "start", graph.stage),
        asked.parameters(),
        partial(run_descent, asked=asked, n=n, place=place),
        cost,
        resumes=True,
    )


def run_descent(context: Context, asked: SamplingOptions, n: int, place: Any) -> dict[str, Any]:
    return SampledDescent(context, n, asked, place.value).run("cross-entropy")


class SampledDescent(MapDescent):
    """The cross-entropy of an edge, on average, every :data:`REPORT` epochs."""

    passing = ("shares", "pool")
    begin_block = begin_block

    def __init__(self, context: Context, n: int, asked: SamplingOptions, held: bool) -> None:
        self.asked = asked
        kernel = context.results("kernel")
        self.largest, self.mass = float(kernel["largest"]), float(kernel["mass"])
        super().__init__(context, n, asked.n_components, asked.n_epochs, held)

    def next_report(self) -> int:
        """Every :data:`REPORT` epochs, and at the end."""
        return self.asked.next_report(self.done)

    def held_until(self, stop: int) -> float:
        """All epochs in one task; the cross-entropy."""
        [found] = map_blocks(
            held_epochs,
            [()],
            label="epochs",
            weights=self.weights,
            exchange=self.exchange,
            asked=self.asked,
            largest=self.largest,
            span=(self.done, stop),
        )
        self.iteration = stop
        return self._mean(found)

    def stored_until(self, stop: int) -> float:
        """A map over the blocks each epoch; the cross-entropy."""
        sharing = (self.exchange, self.weights.rows, self.asked.seed, self.done)
        self.space.sweep(share_block, reads=[f"points{self.done}"], arguments=sharing)
        while self.done < stop:
            now = self.done
            self._join_pool()
            self.sweep_moving(move_block, self._arguments())
            self.iteration = now + 1
            if self.done < stop:
                self.keep_without(now)
        self._join_pool()
        found = sum(self.sweep_measuring(cross_entropy_block, self._arguments()))
        self.space.drop(f"shares{stop}", f"pool{stop}")
        return self._mean(found)

    def _arguments(self) -> tuple[Any, ...]:
        return self.weights, self.exchange, self.asked, self.largest, self.done

    def _join_pool(self) -> None:
        map_blocks(pool_block, [(self.done,)], blocks=len(self.space.rows), exchange=self.exchange)

    def _mean(self, found: int) -> float:
        from bigembed.maps.umap.compiled import UNIT  # imports numba: only here

        return found / UNIT / self.mass


# -------------------------------------------------------------------------------------------------------- new rows
# New rows on a map by sampled edges and rows: each moves among the fitted rows, which stay.

SHARE = 3
"""Epochs of the fit for one epoch of a new row."""
RATE = 0.25
"""Of the learning rate, where its epochs begin."""


@dataclass(frozen=True)
class SampledPlacing(Placing):
    """The pool of the map, and what was asked of it."""

    pool: str
    asked: SamplingOptions
    k: int
    connectivity: float

    def placed(self, joined: Joined) -> Array:
        """Coordinates (rows, m) of new rows from their edges."""
        from bigembed.maps.umap.compiled import place  # imports numba: only here

        first = self.asked.n_epochs + 1  # (its epochs draw by themselves)
        keys = [self.asked.key(first + epoch) for epoch in range(max(1, self.asked.n_epochs // SHARE))]
        return place(
            joined.indptr,
            joined.squared.astype(np.float64, copy=False),
            read_by_id(self.points, self.starts, joined.ids),
            self.n_neighbors,
            self.k,
            self.connectivity,
            held_array(self.pool, self.version),
            np.array(keys),
            self.asked.at(0, 1.0),
            RATE * self.asked.learning_rate,
        )


def model_of(run: Run, asked: SamplingOptions, connectivity: float, metric: Any = None) -> SampledPlacing:
    """The model of a fitted run; ``metric``: what the caller gave, by which a function is known."""
    places, kernel = places_of(run, metric), run.results("kernel")
    width = run.results("coordinates")["n_components"]
    pool = run.path("coordinates", "pool")
    return SampledPlacing(*places, width, pool, asked, kernel["n_neighbors"], connectivity)
