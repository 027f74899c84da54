"""The descent of a map along the edges of a graph, resumable: all of it in one task, or by blocks through the store.

State are the points of all rows, and what else belongs to each row, by blocks of the graph, in the exchange under the
number of their iteration. Both ways make the same bytes, and a run by one of them goes on where the other stopped.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable
from typing import Any, ClassVar

import numpy as np

from bigembed.blocks.rows import MIN_BLOCK_ROWS
from bigembed.embedding.descent import Descent
from bigembed.stages import Context
from bigembed.store.arrays.io import write_array
from bigembed.store.blockwise.matrix import StoredMatrix
from bigembed.store.blockwise.stored_space import StoredSpace

HELD_BYTES = 512 << 20
"""Weights and points that one task holds, at most, where nothing else is asked."""
REPORT = 50
"""Iterations after which the objective is measured, and a map in memory is kept."""
BLOCK_ENTRIES = 3 << 20
"""Entries of the lists of neighbors in a block of the graph, at most."""


def rows_of_block(neighbors: int) -> int:
    """Rows of a block of the graph, at most, so that its lists have some three million entries.

    >>> rows_of_block(90), rows_of_block(15)
    (34952, 209715)
    """
    return max(MIN_BLOCK_ROWS, BLOCK_ENTRIES // neighbors)


class MapDescent(Descent):
    """An objective every :data:`REPORT` iterations; ``passing`` names what an iteration leaves besides its state."""

    state: ClassVar[tuple[str, ...]] = ("iteration",)
    vectors: ClassVar[tuple[str, ...]] = ("points",)
    """What is kept of each row, the points first."""
    passing: ClassVar[tuple[str, ...]] = ()
    begin_block: ClassVar[Callable[..., Any]]

    def __init__(self, context: Context, n: int, m: int, iterations: int, held: bool) -> None:
        self.n, self.m, self.held = n, m, held
        graph = "weights" if context.home.has("weights") else "graph"
        self.weights: StoredMatrix = context.home.matrix(graph, "weights", "kernel")
        self.space = StoredSpace(self.weights, context.exchange)
        super().__init__(context, 0.0, iterations)

    def begin(self) -> None:
        """The points of the start, at rest."""
        found = self.space.sweep(
            type(self).begin_block,
            writes=[f"{name}0" for name in self.vectors],
            posts=["points0"],
            arguments=(self.context.of("start", "points"),),
        )
        self.iteration, self.objectives = 0, []
        self.begun(found)

    def begun(self, found: list[Any]) -> None:
        """Take what the blocks say of their start."""

    @property
    def done(self) -> int:
        """Iterations so far."""
        return int(self.iteration)

    @property
    def converged(self) -> bool:
        """The number of iterations is given."""
        return False

    @abstractmethod
    def next_report(self) -> int:
        """The iteration after which the objective is measured next."""

    @abstractmethod
    def held_until(self, stop: int) -> float:
        """All iterations to ``stop`` in one task; the objective."""

    @abstractmethod
    def stored_until(self, stop: int) -> float:
        """A map over the blocks each iteration to ``stop``; the objective."""

    def step(self) -> None:
        """The iterations to the next report, after which the objective is known."""
        before, stop = self.done, self.next_report()
        self.objectives.append(self.held_until(stop) if self.held else self.stored_until(stop))
        self.keep_without(before if self.held else stop - 1)

    def sweep_moving(self, function: Callable[..., Any], arguments: tuple[Any, ...]) -> list[Any]:
        """One iteration of all rows: ``function(b, *vectors, halo, …)`` gives the vectors anew."""
        now = self.done
        return self.space.sweep(
            function,
            reads=[f"{name}{now}" for name in self.vectors],
            halos=[f"points{now}"],
            writes=[f"{name}{now + 1}" for name in self.vectors],
            posts=[f"points{now + 1}"],
            arguments=arguments,
        )

    def sweep_measuring(self, function: Callable[..., Any], arguments: tuple[Any, ...]) -> list[Any]:
        """What ``function(b, points, halo, …)`` says of the map as it is."""
        now = f"points{self.done}"
        return self.space.sweep(function, reads=[now], halos=[now], arguments=arguments)

    def keep_without(self, iteration: int) -> None:
        """From here a killed run goes on, and needs nothing of an earlier iteration."""
        self.keep()
        self.space.drop(*(f"{name}{iteration}" for name in (*self.vectors, *self.passing)))

    def publish(self) -> dict[str, Any]:
        """The points by blocks, and the objectives."""
        for b in range(len(self.space.rows)):
            write_array(self.context.path(f"points/{b}"), self.space.read(f"points{self.done}", b))
        write_array(self.context.path("objectives"), np.array(self.objectives))
        return {"n_components": self.m}
