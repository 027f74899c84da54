"""The descent of PaCMAP: in three phases, by Adam, every row moved at once along its own pairs."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from typing import Any, ClassVar, Self

import numpy as np

from bigembed.estimator.graph_input import GraphShape
from bigembed.maps import descent, write_map
from bigembed.maps.descended import coordinates_stage
from bigembed.maps.pacmap import PLACED, POOL, key_of, pool_rows
from bigembed.maps.umap.descent import join_shares
from bigembed.neighbors.query import Joined
from bigembed.runtime import using
from bigembed.runtime.blocks import Array, map_blocks
from bigembed.stages import ArraySpec, Context, Immaterial, Run, Stage
from bigembed.store.arrays import read_array, write_array
from bigembed.store.matrix import BlockMatrix, entries_of
from bigembed.store.vector_space import VectorSpace

# --------------------------------------------------------------------------------------------------------- options

MID_START, MID_THEN = 1000.0, 3.0
"""Weight of mid-near pairs where the first phase begins, and where it ends."""
RESTING = 10
"""Iterations before the last one in which the loss is measured, too: what it loses in them tells whether it rests."""


@dataclass(frozen=True)
class PairOptions:
    """The parameters of the descent; small and picklable."""

    n_components: int
    phases: tuple[int, int, int]
    learning_rate: float
    seed: int

    @property
    def iterations(self) -> int:
        """Of all phases."""
        return sum(self.phases)

    def parameters(self) -> dict[str, Any]:
        """Return the parameters for the key of the stage."""
        return asdict(self) | {"phases": list(self.phases)}

    @classmethod
    def of(cls, parameters: Mapping[str, Any]) -> Self:
        """Return what was asked of a descent with these parameters."""
        known = {name: value for name, value in parameters.items() if name in cls.__dataclass_fields__}
        return cls(**known | {"phases": tuple(known["phases"])})

    def going_on(self, share: float) -> Self:
        """Return what is asked of a map that goes on from the one before, arranged already: a share of the last phase.

        >>> PairOptions(2, (100, 100, 250), 1.0, 0).going_on(0.5).phases
        (0, 0, 125)
        """
        last = math.ceil(share * self.phases[2])
        return replace(self, phases=(0, 0, last)) if last else self

    def at(self, iteration: int) -> Array:
        """Return the weights of near, mid-near and further pairs, and the rate of Adam (Wang et al. 2021, §4.3).

        >>> PairOptions(2, (100, 100, 250), 1.0, 0).at(0)[:3].tolist()
        [2.0, 1000.0, 1.0]
        >>> PairOptions(2, (100, 100, 250), 1.0, 0).at(200)[:3].tolist()
        [1.0, 0.0, 1.0]
        """
        first, second, _ = self.phases
        if iteration < first:
            share = iteration / first
            weights = 2.0, (1.0 - share) * MID_START + share * MID_THEN, 1.0
        else:
            weights = (3.0, MID_THEN, 1.0) if iteration < first + second else (1.0, 0.0, 1.0)
        return np.array([*weights, self.rate(iteration)])

    def rate(self, turn: int) -> float:
        """Return the rate of Adam in its step ``turn``, with the corrections of both moments."""
        from bigembed.maps.pacmap.compiled import BETA1, BETA2  # imports numba: only here

        corrected = np.sqrt(1.0 - BETA2 ** (turn + 1)) / (1.0 - BETA1 ** (turn + 1))
        return float(self.learning_rate * corrected)

    def reports(self) -> list[int]:
        """Return after how many iterations the loss is measured.

        >>> PairOptions(2, (100, 100, 250), 1.0, 0).reports()
        [50, 100, 150, 200, 250, 300, 350, 400, 440, 450]
        """
        first, second, _ = self.phases
        last = self.iterations
        found = {*range(descent.REPORT, last + 1, descent.REPORT), first, first + second, last - RESTING, last}
        return sorted(one for one in found if 0 < one <= last)


# ---------------------------------------------------------------------------------------------------------- blocks

DRAWN = ("mid_starts", "mid", "far_starts", "far")
"""The arrays of the pairs that were drawn, and the vectors that hold them: the same in all iterations."""


def begin_block(b: int, start: str) -> tuple[tuple[Array, Array, Array], None]:
    """Return the points of the start, and both moments of Adam, which are 0."""
    points = read_array(f"{start}/{b}").astype(np.float64)
    return (points, np.zeros_like(points), np.zeros_like(points)), None


def pairs_block(b: int, pairs: str) -> tuple[tuple[Array, ...], None]:
    """Return the pairs of a block that were drawn."""
    return tuple(read_array(f"{pairs}/{name}/{b}") for name in DRAWN), None


def share_block(b: int, points: Array, rows: tuple[int, ...], seed: int) -> tuple[tuple[Array], None]:
    """Return the points of a block that pairs are drawn from."""
    return (points[pool_rows(b, rows, seed)],), None


def move_block(
    b: int, points: Array, first: Array, second: Array, halo: Array, weights: BlockMatrix, space: VectorSpace,
    pool: str, asked: PairOptions, iteration: int,
) -> tuple[tuple[Array, Array, Array, Array], None]:  # fmt: skip
    """Return a block after one step, the moments of Adam, and what others draw of it."""
    from bigembed.maps.pacmap.compiled import step  # imports numba: only here

    out = np.empty_like(points), np.empty_like(points), np.empty_like(points)
    read = _read_by_kernels(b, points, halo, weights, space, pool)
    descent.run_by_rows(step, len(points), *read, first, second, asked.at(iteration), *out)
    return (*out, out[0][pool_rows(b, weights.rows, asked.seed)]), None


def loss_block(
    b: int, points: Array, halo: Array, weights: BlockMatrix, space: VectorSpace, pool: str, asked: PairOptions,
    iteration: int,
) -> tuple[tuple[()], int]:  # fmt: skip
    """Return the loss of the rows of a block by the weights of the iteration, as an integer."""
    from bigembed.maps.pacmap.compiled import loss

    read = _read_by_kernels(b, points, halo, weights, space, pool)
    return (), sum(descent.run_by_rows(loss, len(points), *read, asked.at(iteration)))


def _read_by_kernels(
    b: int, points: Array, halo: Array, weights: BlockMatrix, space: VectorSpace, pool: str
) -> tuple[Any, ...]:
    """Return the entries of the block, the points of their columns, the pool, and the rows drawn from it."""
    read = [space.read(pool, 0), *(space.read(name, b) for name in DRAWN)]
    for array in read:
        array.setflags(write=False)  # (as in memory: one type for the compiler)
    return *entries_of(weights, b), np.concatenate([points, halo]), *read


# --------------------------------------------------------------------------------------------------------- descent


def pair_descent_stage(graph: GraphShape, edges: int, draws: int, asked: PairOptions, in_memory: bool | None) -> Stage:
    """Describe the stage of the descent; ``edges``: near pairs, and ``draws`` of a row, at both ends."""
    n, m = graph.n, asked.n_components
    pool = 8 * m * min(n, POOL)
    return descent.descent_stage(
        run_descent,
        graph,
        edges,
        asked,
        in_memory,
        kept=2 * pool,
        joining=0,
        shared=4 * pool,
        scalar_ops=asked.iterations * (edges + 2 * n * draws) / 2,  # (12 ns a pair of three columns)
        inputs=("pairs",),
        fixed=ArraySpec("pairs", n, 4 * draws + 8, "u1"),
    )


def run_descent(context: Context, asked: PairOptions, memory: Immaterial) -> dict[str, Any]:
    return descent.descend(context, PairDescent, asked, memory.value, "kernel")


class PairDescent(descent.MapDescent):
    """The loss of PaCMAP over pairs that stay the same."""

    vectors: ClassVar = ("points", "first", "second")
    share, joined, objective = "shares", "pool", "loss"
    begin_block, share_block = staticmethod(begin_block), staticmethod(share_block)
    move_block, measure_block = staticmethod(move_block), staticmethod(loss_block)
    asked: PairOptions

    def __init__(self, context: Context, *others: Any) -> None:
        super().__init__(context, *others)
        pairs = context.of("pairs")
        with using(journal=None):  # (each start reads them again)
            self.space.sweep(pairs_block, writes=DRAWN, arguments=(pairs,))

    def sharing(self) -> tuple[Any, ...]:
        """Return the arguments of ``share_block``, which tell what rows are drawn from."""
        return self.space.rows, self.asked.seed

    def join(self) -> None:
        """Join the points that pairs are drawn from."""
        map_blocks(join_shares, [self.names((self.share, self.joined))], space=self.space)

    def moving(self) -> tuple[Any, ...]:
        """Return the arguments of ``move_block``: what a step reads besides the points."""
        [pool] = self.names((self.joined,))
        return self.weights, self.space, pool, self.asked, self.iteration

    def measuring(self) -> tuple[Any, ...]:
        """Return the arguments of ``measure_block``: by the weights of the step that was made."""
        [pool] = self.names((self.joined,))
        return self.weights, self.space, pool, self.asked, self.iteration - 1

    @property
    def reported(self) -> bool:
        """Whether the loss is measured after this iteration."""
        return self.iteration in self.asked.reports()

    def objective_of(self, total: int) -> float:
        """Return the loss."""
        return total / descent.UNIT


# ----------------------------------------------------------------------------------------------------- coordinates


def pool_stage(graph: GraphShape, m: int, seed: int) -> Stage:
    """Return the stage of the coordinates and of the ``pool`` that new rows are pushed from."""
    block = min(graph.n, graph.block)
    pool = ArraySpec("pool", min(graph.n, POOL + graph.n // block), m)
    return coordinates_stage(graph, m, {"seed": seed}, run_coordinates, pool, 8 * block * m + 2 * pool.nbytes)


def run_coordinates(context: Context, graph: GraphShape, m: int, seed: int) -> dict[str, Any]:
    mapped = write_map(context, graph, m)
    rows = tuple(context.results("kernel")["rows"])
    map_blocks(write_pool, [()], points=context.path("points"), out=context.path("pool"), rows=rows, seed=seed)
    return {"n_components": m, "repeated_rows": mapped.repeated}


def write_pool(*, points: str, out: str, rows: tuple[int, ...], seed: int) -> None:
    """Write the rows of the map that pairs are drawn from."""
    shares = [read_array(f"{points}/{b}")[pool_rows(b, rows, seed)] for b in range(len(rows))]
    write_array(out, np.concatenate(shares))


# -------------------------------------------------------------------------------------------------------- new rows


@dataclass(frozen=True)
class PairPlacement(descent.Placement):
    """The pool of the map, and what was asked of it."""

    pool: str
    asked: PairOptions
    near: int
    draws: int

    def place(self, joined: Joined, squared: Array, points: Array) -> Array:
        """Return the places where new rows come to rest."""
        from bigembed.maps.pacmap.compiled import place  # imports numba: only here

        turns = max(1, self.asked.phases[2])
        options = [np.array([1.0, 0.0, 1.0, self.asked.rate(turn)]) for turn in range(turns)]
        pool, key = descent.kept_array(self.pool, self.version), key_of(self.asked.seed, PLACED)
        return place(joined.indptr, squared, points, self.near, pool, self.draws, key, np.array(options))


def placement_of(run: Run, draws: int, metric: Any = None) -> PairPlacement:
    """Return how new rows are placed on the map of a fitted run; ``metric``: as the caller gave it."""
    pool, near = run.path("coordinates", "pool"), run.results("kernel")["n_neighbors"]
    asked = PairOptions.of(run.parameters("descent"))
    return PairPlacement(*descent.fields_of_placement(run, metric), pool, asked, near, draws)
