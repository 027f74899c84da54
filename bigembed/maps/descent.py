"""An iteration that lowers an objective, whose state is in the exchange after every step."""

from __future__ import annotations

import os
from abc import ABC, abstractmethod
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import lru_cache, partial
from typing import Any, ClassVar

import numpy as np

from bigembed.estimator.extension import Extension, Grouping
from bigembed.maps.graph_rows import block_of_rows, fitted_shape, ready_rows
from bigembed.neighbors.given.query import AnyIndex, GivenIndex, any_index_of, join_parts, joining_memory
from bigembed.neighbors.order import Ordered
from bigembed.neighbors.query import MAX_PAIRS, Joined
from bigembed.neighbors.survey import Shape
from bigembed.rows.passes import Parts, reduce_rows
from bigembed.rows.source import RowSource
from bigembed.runtime.blocks import MIN_BLOCK_ROWS, Array, bounds, offsets
from bigembed.stages.runs import Run
from bigembed.stages.stage import Context
from bigembed.store.arrays import read_array, write_array
from bigembed.store.exchange import Exchange
from bigembed.store.matrix import StoredMatrix
from bigembed.store.spaces import StoredSpace

# --------------------------------------------------------------------------------------------------------- descent


class Descent(ABC):
    """Goes on where a killed run stopped; ``state`` names the attributes that are its state besides the objectives.

    A step writes what it makes of each row to the exchange under its own name, so that steps are never mixed up.
    """

    state: ClassVar[tuple[str, ...]]
    before: ClassVar[int] = 0
    """Objectives that there are before the first step."""
    objectives: list[float]

    def __init__(self, context: Context, tol: float, max_iter: int) -> None:
        self.context, self.exchange = context, context.exchange
        self.tol, self.max_iter = tol, max_iter
        if not self.exchange.has("state", 0):
            self.begin()
            self.keep()
        for name, value in self.exchange.get_all("state", 0).items():
            setattr(self, name, value if value.ndim else value.item())
        self.objectives = list(map(float, self.objectives))

    @abstractmethod
    def begin(self) -> None:
        """Set the state before the first step."""

    @abstractmethod
    def step(self) -> None:
        """One iteration, at the end of which the state is kept."""

    @abstractmethod
    def publish(self) -> dict[str, Any]:
        """Write what was found; the results of the stage."""

    @property
    def done(self) -> int:
        """Iterations so far."""
        return len(self.objectives) - self.before

    def run(self, objective: str) -> dict[str, Any]:
        """Steps until one takes no more than ``tol`` off the error, or there were ``max_iter``; then the results."""
        while self.done < self.max_iter and not self.converged:
            self.step()
            self.context.note(f"iteration {self.done}: {objective} = {self.objectives[-1]:.6g}")
        return self.publish() | {"iterations": self.done, "last_step": min(self.last_step, 1.0)}

    @property
    def converged(self) -> bool:
        """Whether another step would not help."""
        return self.last_step <= self.tol

    @property
    def last_step(self) -> float:
        """What the last iteration took off the error, as a share of the first error; infinite before."""
        if len(self.objectives) < 2:
            return float("inf")
        first, before, now = (np.sqrt(self.objectives[i]) for i in (0, -2, -1))
        return float((before - now) / first) if first else 0.0

    def keep(self) -> None:
        """Publish the state: from here a killed run goes on."""
        self.exchange.put("state", 0, {name: np.array(getattr(self, name)) for name in ("objectives", *self.state)})


class RowDescent(Descent):
    """A descent of which a step is a pass over the rows."""

    def __init__(self, source: RowSource, context: Context, tol: float, max_iter: int) -> None:
        self.source = source
        super().__init__(context, tol, max_iter)

    def sums(self, function: Callable[..., Parts], label: str, **fixed: Any) -> Parts:
        """One pass over the rows: see :func:`bigembed.rows.passes.reduce_rows`."""
        return reduce_rows(self.source, function, self.exchange, label=label, **fixed)


# ------------------------------------------------------------------------------------------------------- held rows
# The points of all rows and the weights of all edges in one task: what iterations without the store work on.
#
# Rows are divided among threads. A row is moved by itself, so that the division changes nothing.

ROWS = 4_096
"""Rows that a thread moves at a time."""


def held_bytes(n: int, edges: int, m: int) -> int:
    """Bytes of the weights and of the points: columns and values, and as they are read, of one block."""
    return 12 * edges + 8 * n * (6 * m + 2)


@lru_cache(maxsize=1)
def held_weights(weights: StoredMatrix) -> list[tuple[Array, Array, Array]]:
    """indptr, columns as numbers of rows, and weights of each block, its edges in the order in which they lie."""
    starts, found = offsets(weights.rows), []
    kind = np.int32 if starts[-1] < 1 << 31 else np.int64
    for b in range(len(weights.rows)):
        block = weights.block(b)
        found.append((block.indptr, block.ids(b, starts).astype(kind)[block.indices], block.data))
    return found


class HeldRows:
    """All points, and room for them as they are moved; ``parts``: block, first and last row in it."""

    def __init__(self, weights: StoredMatrix, exchange: Exchange, m: int, iteration: int) -> None:
        self.weights, self.exchange, self.m = weights, exchange, m
        self.edges, self.starts = held_weights(weights), offsets(weights.rows)
        blocks = range(len(weights.rows))
        self.points = np.concatenate([exchange.piece(f"points{iteration}", b, "own") for b in blocks])
        self.moved = np.empty_like(self.points)
        self.parts = [(b, *part) for b in blocks for part in bounds(weights.rows[b], ROWS)]
        self.threads = min(len(os.sched_getaffinity(0)), len(self.parts))

    def own(self, b: int) -> Array:
        """Where the moved points of a block go."""
        return self.moved[self.starts[b] : self.starts[b + 1]]

    def swap(self) -> None:
        """The moved points are the points."""
        self.points, self.moved = self.moved, self.points

    def leave(self, iteration: int) -> None:
        """Leave the points by blocks, with what other blocks read, so that a run by blocks can go on from here."""
        for b, part in enumerate(np.split(self.points, self.starts[1:-1])):
            pieces = {str(other): part[rows] for other, rows in self.weights.outbox(b)}
            self.exchange.put(f"points{iteration}", b, {"own": part} | pieces)

    def each(self, function: Callable[..., Any], parts: Any) -> list[Any]:
        """The function of each part, by threads."""
        if self.threads == 1:
            return [function(part) for part in parts]
        with ThreadPoolExecutor(self.threads) as pool:
            return list(pool.map(function, parts))


# ----------------------------------------------------------------------------------------------------- map descent
# The descent of a map along the edges of a graph, resumable: all of it in one task, or by blocks through the store.
#
# State are the points of all rows, and what else belongs to each row, by blocks of the graph, in the exchange under
# the number of their iteration. Both ways make the same bytes, and a run by one of them goes on where the other
# stopped.

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


# --------------------------------------------------------------------------------------------------------- placing
# New rows on a map that stays as it is: each by itself, whatever the others, from its edges to the fitted rows.


@dataclass(frozen=True)
class Placing(ABC):
    """What a task needs to place rows: paths into the run or the saved model, and small numbers."""

    index: AnyIndex
    shape: Shape
    starts: tuple[int, ...]
    points: str
    version: str
    """Of what lies at the paths."""
    width: int
    """Coordinates of a row."""

    @property
    def n_neighbors(self) -> int:
        """Neighbors of a row in the graph, which is not one of a radius."""
        return self.index.n_neighbors  # type: ignore[union-attr]

    @abstractmethod
    def placed(self, joined: Joined) -> Array:
        """Coordinates (rows, m) of new rows from their edges."""


def places_of(run: Run, metric: Any = None) -> tuple[AnyIndex, Shape, tuple[int, ...], str, str]:
    """What every :class:`Placing` of a fitted run begins with."""
    shape = fitted_shape(run, metric)
    return (
        any_index_of(run, shape),
        shape,
        Ordered.open(run.path("order")).starts,
        run.path("coordinates", "points"),
        run.digest("coordinates"),
    )


@lru_cache(maxsize=1)
def held_array(path: str, version: str) -> Array:
    """A whole array of a model, once for all blocks of rows that a process places."""
    return read_array(path)


def extension_of(model: Placing) -> Extension:
    """How new rows are brought to the blocks of fitted rows that they belong to (sparse ones are not), and placed."""
    blocks = len(Ordered.open(model.index.order).blocks)
    most = MAX_PAIRS // (2 * model.n_neighbors)
    together = Grouping(block_of_rows, blocks, model.shape.row_bytes, most, partial(placing_memory, model))
    apart = model.shape.sparse or isinstance(model.index, GivenIndex)
    grouping, d = None if apart else together, model.shape.d
    return Extension(place_rows, model, model.width, d, grouping=grouping, cheap=False, sparse=True)


def placing_memory(model: Placing, rows: int) -> int:
    """Bytes that :func:`place_rows` holds at most for that number of rows, without the rows themselves."""
    edges = rows * 2 * model.n_neighbors
    return joining_memory(model.index, model.shape, rows) + edges * (16 + 8 * model.width) + (64 << 20)


def place_rows(rows: Any, model: Placing) -> Array:
    """Coordinates of finite new rows (n, m)."""
    rows = ready_rows(rows, model.shape)
    coordinates = np.empty((rows.shape[0], model.width))
    for members, joined in join_parts(rows, model.index):
        coordinates[members] = model.placed(joined)
    return coordinates
