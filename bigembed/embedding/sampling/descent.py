"""The descent of a map by sampled edges and rows.

An epoch joins the pool of rows that may be drawn, and moves every row: in one task that holds the weights, by threads,
or in one map over the blocks, each of which reads its weights, the points of its neighbors, and the pool.
"""

from __future__ import annotations

from typing import Any

from bigembed.blocks.rows import map_blocks
from bigembed.embedding.graph.shape import GraphShape
from bigembed.embedding.held_rows import held_bytes
from bigembed.embedding.map_descent import HELD_BYTES, REPORT, MapDescent
from bigembed.embedding.sampling.by_blocks import begin_block, cross_entropy_block, move_block, pool_block, share_block
from bigembed.embedding.sampling.in_memory import held_epochs
from bigembed.embedding.sampling.options import POOL, SamplingOptions
from bigembed.reads import Immaterial
from bigembed.stages import Context, Cost, Stage


def descent_stage(graph: GraphShape, edges: int, asked: SamplingOptions, in_memory: bool | None) -> Stage:
    """``descent/points`` (rows, m) by blocks, and the cross-entropy every :data:`REPORT` epochs."""
    n, m, block = graph.n, asked.n_components, min(graph.n, graph.block)
    whole = held_bytes(n, edges, m)
    held = whole <= HELD_BYTES if in_memory is None else in_memory
    place = Immaterial(held)  # (the bytes are the same)

    def run(context: Context) -> dict[str, Any]:
        return SampledDescent(context, n, asked, place.value).run("cross-entropy")

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
    return Stage("descent", ("kernel", "start", graph.stage), asked.parameters(), run, cost, resumes=True)


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
        from bigembed.kernels.sampling import UNIT  # imports numba: only here

        return found / UNIT / self.mass
