"""Iterations that lower an objective, and go on where a killed run stopped."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, replace
from functools import lru_cache, partial
from typing import Any, ClassVar, Protocol

import numpy as np

from bigembed.estimator.extension import Extension, Grouping
from bigembed.estimator.graph_input import GraphShape
from bigembed.maps.graph_rows import block_of_rows, fitted_shape, ready_rows
from bigembed.neighbors.given.query import AnyIndex, GivenIndex, any_index_of, join_parts, joining_memory
from bigembed.neighbors.order import Ordered
from bigembed.neighbors.query import MAX_PAIRS, Joined
from bigembed.neighbors.survey import Shape
from bigembed.neighbors.views import VIEWS
from bigembed.rows import RowSource
from bigembed.rows.passes import Parts, reduce_rows
from bigembed.runtime import trim_heap
from bigembed.runtime.blocks import MIN_GRAPH_ROWS, Array, bounds
from bigembed.runtime.executors import run_on_idle_threads
from bigembed.stages import ArraySpec, Context, Cost, Immaterial, Run, Stage, buffer, largest
from bigembed.stages.cost import nbytes
from bigembed.stages.journal import own_steps
from bigembed.store.arrays import read_array, read_by_id, write_array
from bigembed.store.matrix import STRUCTURE, BlockMatrix
from bigembed.store.spaces import IN_FILES, Checkpoints, StoredSpace, claim_memory
from bigembed.store.vector_space import MemorySpace

# --------------------------------------------------------------------------------------------------------- descent

During = Callable[[Any], AbstractContextManager[None]]
"""What :func:`bigembed.stages.journal.own_steps` yields."""


class Descent(ABC):
    """An iteration that goes on where a killed run stopped; ``state`` names attributes to keep beside the objectives.

    A step writes what it makes of each row to the exchange under its own name, so that steps are never mixed up.
    """

    state: ClassVar[tuple[str, ...]]
    objectives_at_start: ClassVar[int] = 0
    """How many objectives there are before the first step."""
    objectives: list[float]

    def __init__(self, context: Context, tol: float, max_iter: int) -> None:
        self.context, self.exchange = context, context.exchange
        self.tol, self.max_iter = tol, max_iter
        if not self.exchange.has("state", 0):
            with own_steps(self.steps) as step, step("start"):
                self.begin()
            self.keep()
        for name, value in self.exchange.get_all("state", 0).items():
            setattr(self, name, value if value.ndim else value.item())
        self.objectives = list(map(float, self.objectives))

    @abstractmethod
    def begin(self) -> None:
        """Set the state before the first step."""

    @abstractmethod
    def step(self, during: During) -> None:
        """Make one iteration, at the end of which the state is kept; ``during`` gives a step its journal."""

    @abstractmethod
    def publish(self) -> dict[str, Any]:
        """Write what was found, and return the results of the stage."""

    @property
    def steps(self) -> str:
        """The folder of the journal of a step."""
        return f"{self.exchange.root}/steps"

    @property
    def done(self) -> int:
        """Iterations so far."""
        return len(self.objectives) - self.objectives_at_start

    def run(self, objective: str) -> dict[str, Any]:
        """Make steps until one takes at most ``tol`` off the error, or there were ``max_iter``; return the results."""
        with own_steps(self.steps) as step:
            while self.done < self.max_iter and not self.converged:
                self.step(step)
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

    def step(self, during: During) -> None:
        """Make one iteration, at the end of which the state is kept."""
        with during(self.objectives):
            self.move()

    @abstractmethod
    def move(self) -> None:
        """Make one iteration, at the end of which the state is kept."""

    def __init__(self, source: RowSource, context: Context, tol: float, max_iter: int) -> None:
        self.source = source
        super().__init__(context, tol, max_iter)

    def sums(self, function: Callable[..., Parts], label: str, **fixed: Any) -> Parts:
        """Make one pass over the rows: see :func:`bigembed.rows.passes.reduce_rows`."""
        return reduce_rows(self.source, function, self.exchange, label=label, **fixed)


# ----------------------------------------------------------------------------------------------------- map descent
# The descent of a map along the edges of a graph, resumable: sweeps over its rows in a space, in memory or in files.
#
# What is known of each row, and what a block leaves for all others, are vectors under the number of their iteration.
# Both spaces make the same bytes, and a run in one of them goes on where the other stopped.

MEMORY_BYTES = 512 << 20
"""Weights and vectors in memory, at most, where nothing else is asked."""
UNIT, FINE_UNIT = 2.0**24, 2.0**54
"""Parts of a unit. What each row adds to an objective is rounded to them as an integer, so that the sum does not depend
on how rows are divided; the finer ones are for what adds up to about 1."""
REPORT = 50
"""Iterations after which the objective is measured."""
BLOCK_ENTRIES = 3 << 20
"""Entries of the lists of neighbors in a block of the graph, at most."""
ROWS = 4_096
"""Rows that a thread moves at a time."""


def rows_of_block(neighbors: int) -> int:
    """Rows of a block of the graph, at most, so that its lists have some three million entries.

    >>> rows_of_block(90), rows_of_block(15)
    (34952, 209715)
    """
    return max(MIN_GRAPH_ROWS, BLOCK_ENTRIES // neighbors)


class DescentParameters(Protocol):
    """What is asked of the descent of a map."""

    @property
    def n_components(self) -> int:
        """Coordinates of a row."""
        ...

    @property
    def iterations(self) -> int:
        """How many there are."""
        ...

    def parameters(self) -> dict[str, Any]:
        """For the key of the stage."""
        ...


def descent_stage(
    run: Callable[..., Any], graph: GraphShape, edges: int, asked: DescentParameters, in_memory: bool | None,
    *, kept: int, joining: int, shared: int, scalar_ops: float, width: int = 0, inputs: tuple[str, ...] = (),
    fixed: ArraySpec | None = None,
) -> Stage:  # fmt: skip
    """``descent/points`` (rows, m) by blocks, and ``objectives`` every :data:`REPORT` iterations.

    ``kept``, ``joining``: bytes that each task needs for what all rows share, and the task that joins it on top;
    ``shared``: bytes of it on the disk; ``width``: numbers of a row besides, which others read as they do the points;
    ``inputs``: stages that are read besides the graph, its weights and the start; ``fixed``: what is read of them in
    each iteration.
    """
    n, m, block, passes = graph.n, asked.n_components, min(graph.n, graph.block), asked.iterations
    need = 12 * edges + 8 * n * (6 * m + 2 + 2 * width)  # (columns, weights, also as they are read; the vectors twice)
    steady = [] if fixed is None else [fixed]
    need += nbytes(steady)
    inside = need <= MEMORY_BYTES if in_memory is None else in_memory
    vectors = ArraySpec("points, velocities and gains", n, m + width / 3, times=3)
    of_block = [ArraySpec("edges", -(-edges // n) * block, 3), ArraySpec("points", block, m + width / 3, times=25)]
    cost = Cost.of(
        reads=[
            ArraySpec("weights/*", edges, times=passes),
            replace(vectors, times=3 * passes),
            *(replace(one, times=passes) for one in steady),
        ],
        writes=[ArraySpec("points/*", n, m), ArraySpec("objectives", 0)],
        posts=[replace(vectors, times=3 * passes)],
        vectors=[replace(vectors, times=12), buffer("what all rows share", shared), *steady],
        checkpoint=[replace(vectors, times=6)],
        held=[buffer("weights and vectors", need if inside else 0)],
        task=[buffer("what all rows share", kept), *largest([buffer("what is joined", joining)], of_block)],
        passes=passes,
        scalar_ops=scalar_ops,
        maps=2 * passes,
        blocks=-(-n // block),
    )
    call = partial(run, asked=asked, memory=Immaterial(need if inside else 0))  # (in memory the bytes are the same)
    inputs, opens = ("kernel", "start", graph.stage, *inputs), {graph.stage: STRUCTURE}
    return Stage("descent", inputs, asked.parameters(), call, cost, resumes=True, opens=opens)


def descend(
    context: Context, kind: Callable[..., MapDescent], asked: DescentParameters, need: int, structure: str = ""
) -> dict[str, Any]:
    """Descend in memory, if ``need`` bytes are asked for and free, else in files; return the results of the stage.

    ``structure``: the stage that has the edges, where these are not all that the graph has.
    """
    graph = structure or next(name for name in ("weights", VIEWS, "graph") if context.home.has(name))
    weights = context.home.matrix(graph, "weights", "kernel")
    with claim_memory(need) if need else nullcontext(IN_FILES) as room:
        context.note(f"weights and points {room.where}")
        matrix, space = room.open(weights, context.exchange)
        descent = kind(context, matrix, space, StoredSpace(weights, context.exchange), asked)
        found = descent.run(descent.objective)
    trim_heap()
    return found


class MapDescent(Descent):
    """A descent of which an iteration moves every row in a sweep, and then joins what the blocks leave for all."""

    state: ClassVar[tuple[str, ...]] = ("iteration",)
    vectors: ClassVar[tuple[str, ...]] = ("points",)
    """What is known of each row, the points first."""
    read_by_others: ClassVar[int] = 1
    """How many of these, from the first on, a block reads of the rows that its own are joined to."""
    measured: ClassVar[tuple[str, ...]] = ("points",)
    """Vectors that ``measure_block`` takes, and of the halo as well."""
    share: ClassVar[str]
    """The vector of what each block leaves for all others."""
    joined: ClassVar[str]
    """The vector whose block 0 is what all of them read of it."""
    objective: ClassVar[str]
    """Its name, in notes."""
    begin_block: ClassVar[Callable[..., Any]]
    """``(b, *beginning)`` gives the vectors of a block."""
    share_block: ClassVar[Callable[..., Any]]
    """``(b, points, …)`` gives the share of a block."""
    move_block: ClassVar[Callable[..., Any]]
    """``(b, *vectors, *halos, …)`` gives the vectors and the share of the next iteration."""
    measure_block: ClassVar[Callable[..., Any]]
    """``(b, *measured, *halos, …)`` gives the part of a block in the objective, an integer."""
    iteration: int
    asked: Any

    def __init__(
        self, context: Context, weights: BlockMatrix, space: MemorySpace | StoredSpace, stored: StoredSpace,
        asked: DescentParameters,
    ) -> None:  # fmt: skip
        self.weights, self.space, self.stored, self.asked = weights, space, stored, asked
        self.checkpoints = Checkpoints(space, stored)
        super().__init__(context, 0.0, asked.iterations)
        self.checkpoints.restore(self.names(self.vectors))
        points, share = self.names(("points", self.share))
        with own_steps(f"{self.steps}/share") as step, step(self.iteration):
            self.take(self.space.sweep(self.share_block, reads=[points], writes=[share], arguments=self.sharing()))
            self.join()

    def begin(self) -> None:
        """Set the points of the start, at rest."""
        self.iteration, self.objectives = 0, []
        names, arguments = self.names(self.vectors), self.beginning()
        posts = names[: self.read_by_others]
        self.take(self.stored.sweep(self.begin_block, writes=names, posts=posts, arguments=arguments))

    def beginning(self) -> tuple[Any, ...]:
        """Return the arguments of ``begin_block``."""
        return (self.context.of("start", "points"),)

    def take(self, results: list[Any]) -> None:
        """Take what the blocks say of their points."""

    @abstractmethod
    def sharing(self) -> tuple[Any, ...]:
        """Return the arguments of ``share_block``."""

    @abstractmethod
    def join(self) -> None:
        """Join the shares of all blocks."""

    @abstractmethod
    def moving(self) -> tuple[Any, ...]:
        """Return the arguments of ``move_block``."""

    @abstractmethod
    def measuring(self) -> tuple[Any, ...]:
        """Return the arguments of ``measure_block``."""

    @abstractmethod
    def objective_of(self, total: int) -> float:
        """Return the objective from the sum over all blocks."""

    @property
    def done(self) -> int:
        """Iterations so far."""
        return self.iteration

    @property
    def converged(self) -> bool:
        """Whether another step would not help: the number of iterations is given."""
        return False

    @property
    def reported(self) -> bool:
        """Whether the objective is measured after this iteration."""
        return self.iteration % REPORT == 0 or self.iteration == self.max_iter

    def step(self, during: During) -> None:
        """Make the iterations to the next report, after which the objective is known."""
        while True:
            with during(self.iteration):
                self.move()
                if self.reported:
                    self.measure()
            self.checkpoint()
            if self.reported:
                return

    def measure(self) -> None:
        """Append the objective of this iteration."""
        names = self.names(self.measured)
        parts = self.space.sweep(self.measure_block, reads=names, halos=names, arguments=self.measuring())
        self.objectives.append(self.objective_of(sum(parts)))

    def move(self) -> None:
        """Make one iteration."""
        before, arguments = self.names(self.vectors), self.moving()
        self.iteration += 1
        after, most = self.names((*self.vectors, self.share)), self.read_by_others
        halos, posts = before[:most], after[:most]
        self.take(
            self.space.sweep(self.move_block, reads=before, halos=halos, writes=after, posts=posts, arguments=arguments)
        )
        self.join()

    def checkpoint(self) -> None:
        """Leave what a killed run goes on from, if it is time for that, and forget the iteration before."""
        if self.checkpoints.due and not self.context.home.temporary:
            names = self.names(self.vectors)
            self.checkpoints.save(names)
            self.keep()
            self.checkpoints.published(names)
        self.space.drop(*self.names((*self.vectors, self.share, self.joined), self.iteration - 1))

    def publish(self) -> dict[str, Any]:
        """Write the points by blocks, and the objectives."""
        [points] = self.names(("points",))
        for b in range(len(self.space.rows)):
            write_array(self.context.path(f"points/{b}"), self.space.read(points, b))
        write_array(self.context.path("objectives"), np.array(self.objectives))
        return {"n_components": self.asked.n_components}

    def names(self, vectors: Sequence[str], iteration: int | None = None) -> list[str]:
        """Return the names under which vectors of an iteration lie, of this one if none is given."""
        return [f"{name}{self.iteration if iteration is None else iteration}" for name in vectors]


def run_by_rows(function: Callable[..., Any], rows: int, *arguments: Any) -> list[Any]:
    """Return ``function(first, last, *arguments)`` of each few rows of a block, from the threads that are idle."""
    return run_on_idle_threads([partial(function, *part, *arguments) for part in bounds(rows, ROWS)])


# -------------------------------------------------------------------------------------------------------- new rows
# New rows on a map that stays as it is: each by itself, whatever the others, from its edges to the fitted rows.


@dataclass(frozen=True)
class Placement(ABC):
    """What a task needs to place new rows: paths into the run or the saved model, and small numbers."""

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
    def place(self, joined: Joined, squared: Array, points: Array) -> Array:
        """Return coordinates (rows, m) of new rows from their edges: their squared lengths, and the fitted points."""


def fields_of_placement(run: Run, metric: Any) -> tuple[AnyIndex, Shape, tuple[int, ...], str, str, int]:
    """Return the fields of every :class:`Placement` on a fitted run; ``metric``: as the caller gave it."""
    shape = fitted_shape(run, metric)
    return (
        any_index_of(run, shape),
        shape,
        Ordered.open(run.path("order")).starts,
        run.path("coordinates", "points"),
        run.digest("coordinates"),
        int(run.results("coordinates")["n_components"]),
    )


@lru_cache(maxsize=1)
def kept_array(path: str, version: str) -> Array:
    """Return an array of a model, which is read once for all blocks of rows that a process places."""
    return read_array(path)


def extension_of(model: Placement) -> Extension:
    """Return how new rows are brought to the blocks of fitted rows near them (sparse ones are not), and placed."""
    blocks = len(Ordered.open(model.index.order).blocks)
    most = MAX_PAIRS // (2 * model.n_neighbors)
    together = Grouping(block_of_rows, blocks, model.shape.row_bytes, most, partial(placing_memory, model))
    apart = model.shape.sparse or isinstance(model.index, GivenIndex)
    grouping, d = None if apart else together, model.shape.d
    return Extension(place_rows, model, model.width, d, grouping=grouping, cheap=False, sparse=True)


def placing_memory(model: Placement, rows: int) -> int:
    """Return the bytes that :func:`place_rows` holds at most for that number of rows, without the rows themselves."""
    edges = rows * 2 * model.n_neighbors
    return joining_memory(model.index, model.shape, rows) + edges * (16 + 8 * model.width) + (64 << 20)


def place_rows(rows: Any, model: Placement) -> Array:
    """Return coordinates of finite new rows (n, m)."""
    rows = ready_rows(rows, model.shape)
    coordinates = np.empty((rows.shape[0], model.width))
    for members, joined in join_parts(rows, model.index):
        points = read_by_id(model.points, model.starts, joined.ids)
        coordinates[members] = model.place(joined, joined.squared.astype(np.float64, copy=False), points)
    return coordinates
