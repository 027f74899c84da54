"""The descent of a map by attraction and repulsion: the motion of a row are its velocities and gains.

An iteration spreads the points over a lattice, transforms it, and moves every row: in one task that holds the
affinities, by threads, or in one map over the blocks, each of which reads its affinities, the points of its neighbors,
and the field.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass
from functools import partial
from typing import Any, ClassVar

import numpy as np

from bigembed.estimator.graph_input import GraphShape
from bigembed.maps.coordinates import box_of
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
from bigembed.maps.tsne.field import STEP, Lattice, field_of, lattice_bytes, spacing_for
from bigembed.neighbors.query import Joined
from bigembed.runtime.blocks import Array, map_blocks
from bigembed.stages.reuse import Immaterial
from bigembed.stages.runs import Run
from bigembed.stages.stage import Context, Cost, Stage
from bigembed.store.arrays import read_array, read_by_id
from bigembed.store.exchange import Exchange
from bigembed.store.matrix import StoredMatrix

# --------------------------------------------------------------------------------------------------------- options
# What is asked of a map by attraction and repulsion, and what of it holds in an iteration.


@dataclass(frozen=True)
class DescentOptions:
    """The parameters of the descent; small and picklable."""

    n_components: int
    dof: float
    early_exaggeration: float
    early_exaggeration_iter: int
    exaggeration: float
    n_iter: int
    learning_rate: float | None
    """None: n over the exaggeration of the iteration (Belkina et al. 2019)."""
    early_momentum: float
    momentum: float
    early_compression: float
    gains: bool
    max_step: float

    @property
    def iterations(self) -> int:
        """Of both phases."""
        return self.early_exaggeration_iter + self.n_iter

    def at(self, iteration: int, n: int) -> Array:
        """What :func:`bigembed.maps.tsne.compiled.step` is given in an iteration."""
        early = iteration < self.early_exaggeration_iter
        exaggeration = self.early_exaggeration if early else self.exaggeration
        return np.array(
            [
                exaggeration,
                n / exaggeration if self.learning_rate is None else self.learning_rate,
                self.early_momentum if early else self.momentum,
                self.early_compression if early else 0.0,
                self.max_step,
                float(self.gains),
            ]
        )

    def next_report(self, iteration: int) -> int:
        """The iteration after which the divergence is measured next.

        >>> [DescentOptions(2, 1, 12, 70, 1, 40, None, .5, .8, 0, True, 5).next_report(t) for t in (0, 50, 70, 100)]
        [50, 70, 100, 110]
        """
        phase = self.early_exaggeration_iter if iteration < self.early_exaggeration_iter else self.iterations
        return min(phase, (iteration // REPORT + 1) * REPORT)


# ------------------------------------------------------------------------------------------------------- by blocks
# One iteration by blocks through the store: what a task does with one block, and the one that transforms the lattice.
#
# A block leaves its charges on the part of the lattice that it covers; they are integers, so that they add up to the
# same whatever the order. Nothing of all rows, and no more of the affinities than one block, is in a process.


def begin_block(b: int, start: str) -> tuple[tuple[Array, Array], Array]:
    """The points of the start, at rest, with gains of 1; their box."""
    points = read_array(f"{start}/{b}").astype(np.float64)
    motion = np.concatenate([np.zeros_like(points), np.ones_like(points)], axis=1)
    return (points, motion), box_of(points)


def charge_block(b: int, points: Array, exchange: Exchange, name: str, spacing: float) -> tuple[tuple[()], None]:
    """Leave the charges of a block."""
    from bigembed.maps.tsne.compiled import spread  # imports numba: only here

    low, high = box_of(points)
    lattice = Lattice.around(low, high, spacing)
    nodes = lattice.nodes()
    spread(points, (0,) * points.shape[1], spacing, np.array(lattice.low), nodes)
    exchange.put(name, b, {"nodes": nodes, "low": np.array(lattice.low)})
    return (), None


def field_block(charges: str, field: str, *, lattice: Lattice, blocks: int, dof: float, exchange: Exchange) -> float:
    """Leave the field of all charges; Z, the sum of w over all pairs of rows."""
    from bigembed.maps.tsne.compiled import UNIT

    nodes = lattice.nodes()
    for b in range(blocks):
        found, low = exchange.get_many(charges, b, ["nodes", "low"])
        part = Lattice(lattice.spacing, tuple(low.tolist()), found.shape)
        nodes[part.inside(lattice)] += found
    values, total = field_of(nodes / UNIT, lattice, dof)
    exchange.put(field, 0, {"field": values})
    return total


def move_block(
    b: int, points: Array, motion: Array, halo: Array, affinities: StoredMatrix, exchange: Exchange, lattice: Lattice,
    total: float, options: Array, dof: float, field: str, charges: str, spacing: float,
) -> tuple[tuple[Array, Array], Array]:  # fmt: skip
    """One step of a block, the charges of which it leaves for the next; the box of its points."""
    from bigembed.maps.tsne.compiled import step

    block, m = affinities.block(b), points.shape[1]
    velocity, gains = motion[:, :m].copy(), motion[:, m:].copy()
    moved = np.empty_like(points)
    step(
        0, len(points), 0, block.indptr, block.indices, block.data, np.concatenate([points, halo]), (0,) * m,
        1.0 / dof, lattice.spacing, np.array(lattice.low), exchange.piece(field, 0, "field"), total,
        options, velocity, gains, moved,
    )  # fmt: skip
    charge_block(b, moved, exchange, charges, spacing)
    return (moved, np.concatenate([velocity, gains], axis=1)), box_of(moved)


def energy_block(b: int, points: Array, halo: Array, affinities: StoredMatrix, dof: float) -> tuple[tuple[()], int]:
    """−Σ p log w of the edges of a block, as an integer."""
    from bigembed.maps.tsne.compiled import energy

    block = affinities.block(b)
    every = np.concatenate([points, halo])
    return (), energy(0, len(points), 0, block.indptr, block.indices, block.data, every, dof)


# ------------------------------------------------------------------------------------------------------- in memory
# Many iterations in one task that holds the affinities: the same bytes as by blocks, without the store between them.
#
# What is added up over rows are integers.


def held_steps(
    *, affinities: StoredMatrix, exchange: Exchange, asked: DescentOptions, span: tuple[int, int], box: Array,
    spacing: float,
) -> tuple[Array, float, float, float]:  # fmt: skip
    """The iterations of a span; the box of all points, the next spacing, −Σ p log w, and Z."""
    from bigembed.maps.tsne.compiled import ENERGY  # imports numba: only here

    first, last = span
    held = _Held(affinities, exchange, asked, first)
    for iteration in range(first, last):
        field, lattice, total = held.field(box, spacing)
        spacing = spacing_for(box[0], box[1], asked.dof)
        held.move(iteration, field, lattice, total)
        box = box_of(held.points)
    _, _, total = held.field(box, spacing)
    energy = held.energy() / ENERGY
    held.leave(last)
    if last == asked.iterations:
        held_weights.cache_clear()
    return box, spacing, energy, total


class _Held(HeldRows):
    """Points, and their velocities and gains."""

    def __init__(self, affinities: StoredMatrix, exchange: Exchange, asked: DescentOptions, iteration: int) -> None:
        super().__init__(affinities, exchange, asked.n_components, iteration)
        self.asked = asked
        motion = [exchange.piece(f"motion{iteration}", b, "own") for b in range(len(affinities.rows))]
        self.velocity = [np.ascontiguousarray(part[:, : self.m]) for part in motion]
        self.gains = [np.ascontiguousarray(part[:, self.m :]) for part in motion]

    def leave(self, iteration: int) -> None:
        """Leave the points, velocities and gains by blocks."""
        super().leave(iteration)
        for b, parts in enumerate(zip(self.velocity, self.gains, strict=True)):
            self.exchange.put(f"motion{iteration}", b, {"own": np.concatenate(parts, axis=1)})

    def field(self, box: Array, spacing: float) -> tuple[Array, Lattice, float]:
        """The field of all points, its lattice, and Z."""
        from bigembed.maps.tsne.compiled import UNIT, spread

        lattice = Lattice.around(box[0], box[1], spacing, STEP)
        axes, low, starts = (0,) * self.m, np.array(lattice.low), self.starts

        def charge(thread: int) -> Array:
            nodes = lattice.nodes()
            for b, start, stop in self.parts[thread :: self.threads]:
                spread(self.points[starts[b] + start : starts[b] + stop], axes, spacing, low, nodes)
            return nodes

        nodes = sum(self.each(charge, range(self.threads)))
        field, total = field_of(nodes / UNIT, lattice, self.asked.dof, self.threads)
        return field, lattice, total

    def move(self, iteration: int, field: Array, lattice: Lattice, total: float) -> None:
        """One step of all rows."""
        from bigembed.maps.tsne.compiled import step

        options = self.asked.at(iteration, len(self.points))
        low, axes = np.array(lattice.low), (0,) * self.m

        def moved(part: tuple[int, int, int]) -> None:
            b, first, last = part
            step(
                first, last, self.starts[b], *self.edges[b], self.points, axes, 1.0 / self.asked.dof, lattice.spacing,
                low, field, total, options, self.velocity[b], self.gains[b], self.own(b),
            )  # fmt: skip

        self.each(moved, self.parts)
        self.swap()

    def energy(self) -> int:
        """−Σ p log w, as an integer."""
        from bigembed.maps.tsne.compiled import energy

        def of_part(part: tuple[int, int, int]) -> int:
            b, first, last = part
            return energy(first, last, self.starts[b], *self.edges[b], self.points, self.asked.dof)

        return sum(self.each(of_part, self.parts))


# --------------------------------------------------------------------------------------------------------- descent


def descent_stage(graph: GraphShape, edges: int, asked: DescentOptions, in_memory: bool | None) -> Stage:
    """``descent/points`` (rows, m) by blocks, and the divergence every :data:`REPORT` iterations."""
    n, m, block = graph.n, asked.n_components, min(graph.n, graph.block)
    whole = held_bytes(n, edges, m)
    held = whole <= HELD_BYTES if in_memory is None else in_memory
    place = Immaterial(held)  # (the bytes are the same)

    kept, transform = lattice_bytes(n, m)
    by_block = 24 * (-(-edges // n)) * block + 200 * block * m + transform // 4
    passes = asked.iterations if not held else -(-asked.iterations // REPORT)
    state = 8 * n * m * 3
    cost = Cost(
        passes=passes,
        read=passes * (8 * edges + state),
        write=passes * state,
        disk=8 * n * m,
        scratch=4 * state + 2 * transform,
        memory=kept + (transform + whole if held else max(transform, by_block)),
        scalar_ops=asked.iterations * (edges + 60 * n),
        maps=2 * passes,
        blocks=1 if held else 0,
    )
    return Stage(
        "descent",
        ("kernel", "start", graph.stage),
        asdict(asked),
        partial(run_descent, asked=asked, n=n, place=place),
        cost,
        resumes=True,
    )


def run_descent(context: Context, asked: DescentOptions, n: int, place: Any) -> dict[str, Any]:
    return ForceDescent(context, n, asked, place.value).run("KL")


class ForceDescent(MapDescent):
    """The divergence; the box of all points and the spacing of the lattice are state, too."""

    state: ClassVar[tuple[str, ...]] = ("iteration", "low", "high", "spacing")
    vectors = ("points", "motion")
    passing = ("charges", "field")
    begin_block = begin_block

    def __init__(self, context: Context, n: int, asked: DescentOptions, held: bool) -> None:
        self.asked = asked
        super().__init__(context, n, asked.n_components, asked.iterations, held)

    def begun(self, found: list[Array]) -> None:
        """Take the boxes that the points of the blocks lie in, which the first map of the descent found."""
        self._take(found)
        self.spacing = spacing_for(self.low, self.high, self.asked.dof)

    def next_report(self) -> int:
        """Every :data:`REPORT` iterations, and at the end of each phase."""
        return self.asked.next_report(self.done)

    def held_until(self, stop: int) -> float:
        """All iterations in one task; the divergence."""
        [(box, spacing, energy, total)] = map_blocks(
            held_steps,
            [()],
            label="steps",
            affinities=self.weights,
            exchange=self.exchange,
            asked=self.asked,
            span=(self.done, stop),
            box=np.stack([self.low, self.high]),
            spacing=float(self.spacing),
        )
        self._take([box])
        self.iteration, self.spacing = stop, spacing
        return self._divergence(energy, total)

    def stored_until(self, stop: int) -> float:
        """A map over the blocks each iteration; the divergence."""
        charging = self.exchange, f"charges{self.done}", float(self.spacing)
        self.space.sweep(charge_block, reads=[f"points{self.done}"], arguments=charging)
        while self.done < stop:
            lattice, total, now = *self._field(), self.done
            spacing = spacing_for(self.low, self.high, self.asked.dof)
            arguments = (
                self.weights, self.exchange, lattice, total, self.asked.at(now, self.n), self.asked.dof,
                f"field{now}", f"charges{now + 1}", spacing,
            )  # fmt: skip
            self._take(self.sweep_moving(move_block, arguments))
            self.iteration, self.spacing = now + 1, spacing
            if self.done < stop:
                self.keep_without(now)
        _, total = self._field()
        energies = self.sweep_measuring(energy_block, (self.weights, self.asked.dof))
        from bigembed.maps.tsne.compiled import ENERGY  # imports numba: only here

        self.space.drop(f"field{stop}", f"charges{stop}")
        return self._divergence(sum(energies) / ENERGY, total)

    def _divergence(self, energy: float, total: float) -> float:
        """KL from −Σ p log w, and Z."""
        kernel = self.context.results("kernel")
        return max(0.0, float(kernel["plogp"] + energy + kernel["mass"] * np.log(total)))

    def _field(self) -> tuple[Lattice, float]:
        """The lattice of the points as they are, and Z; its field is in the exchange."""
        lattice = Lattice.around(self.low, self.high, float(self.spacing), STEP)
        names = (f"charges{self.done}", f"field{self.done}")
        blocks = len(self.space.rows)
        [total] = map_blocks(
            field_block, [names], lattice=lattice, blocks=blocks, dof=self.asked.dof, exchange=self.exchange
        )
        return lattice, total

    def _take(self, boxes: list[Array]) -> None:
        """The box of all points, from those of the blocks."""
        self.low, self.high = np.min([box[0] for box in boxes], axis=0), np.max([box[1] for box in boxes], axis=0)


# -------------------------------------------------------------------------------------------------------- new rows
# New rows on a map by attraction and repulsion: where the forces of all fitted rows on each of them vanish.


@dataclass(frozen=True)
class PlacingModel(Placing):
    """The field of the map, and what it is read with."""

    field: str
    spacing: float
    low: tuple[int, ...]
    box: tuple[tuple[float, ...], tuple[float, ...]]
    total: float
    """Z of the map."""
    perplexity: float
    dof: float

    def placed(self, joined: Joined) -> Array:
        """Coordinates (rows, m) of new rows from their edges."""
        from bigembed.maps.tsne.compiled import place  # imports numba: only here

        return place(
            joined.indptr,
            joined.squared.astype(np.float64, copy=False),
            read_by_id(self.points, self.starts, joined.ids),
            self.n_neighbors,
            self.perplexity,
            1.0 / self.dof,
            self.spacing,
            np.array(self.low),
            held_array(self.field, self.version),
            self.shape.n / self.total,
            np.array(self.box),
            (0,) * self.width,
        )


def model_of(run: Run, dof: float, metric: Any = None) -> PlacingModel:
    """The model of a fitted run; ``metric``: what the caller gave, by which a function is known."""
    places, found = places_of(run, metric), run.results("coordinates")
    return PlacingModel(
        *places,
        found["n_components"],
        run.path("coordinates", "field"),
        found["spacing"],
        tuple(found["low"]),
        (tuple(found["box"][0]), tuple(found["box"][1])),
        found["total"],
        run.parameters("kernel")["perplexity"],
        dof,
    )
