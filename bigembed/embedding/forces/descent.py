"""The descent of a map by attraction and repulsion, resumable: all of it in one task, or by blocks through the store.

State are the points, and their velocities and gains, by blocks of the graph. An iteration spreads the points over a
lattice, transforms it, and moves every row: in one task that holds the affinities, by threads, or in one map over the
blocks, each of which reads its affinities, the points of its neighbors, and the field. Both make the same bytes.
"""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

import numpy as np

from bigembed.blocks.rows import Array, map_blocks
from bigembed.embedding.descent import Descent
from bigembed.embedding.forces.by_blocks import begin_block, charge_block, energy_block, field_block, move_block
from bigembed.embedding.forces.in_memory import held_bytes, held_steps
from bigembed.embedding.forces.options import REPORT, DescentOptions
from bigembed.embedding.graph.shape import GraphShape
from bigembed.kernels.field import STEP, Lattice, lattice_bytes, spacing_for
from bigembed.stages import Context, Cost, Stage
from bigembed.store.arrays import write_array
from bigembed.store.matrix import StoredMatrix
from bigembed.store.stored_space import StoredSpace

HELD_BYTES = 512 << 20
"""Affinities and points that one task holds, at most, where nothing else is asked."""


def descent_stage(graph: GraphShape, edges: int, asked: DescentOptions, in_memory: bool | None) -> Stage:
    """``descent/points`` (rows, m) by blocks, and the divergence every :data:`REPORT` iterations."""
    n, m, block = graph.n, asked.n_components, min(graph.n, graph.block)
    whole = held_bytes(n, edges, m)
    held = whole <= HELD_BYTES if in_memory is None else in_memory

    def run(context: Context) -> dict[str, Any]:
        return MapDescent(context, n, asked, held).run("KL")

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
    weights = "weights" if graph.weighted else "graph"
    return Stage("descent", ("kernel", "start", weights), asdict(asked), run, cost, resumes=True)


class MapDescent(Descent):
    """Points, velocities and gains in the exchange under the number of their iteration."""

    state = ("iteration", "low", "high", "spacing")

    def __init__(self, context: Context, n: int, asked: DescentOptions, held: bool) -> None:
        self.n, self.asked, self.held = n, asked, held
        inputs = context.home.manifest("kernel").inputs
        graph = "weights" if "weights" in inputs else "graph"
        self.affinities: StoredMatrix = context.home.matrix(graph, "weights", "kernel")
        self.space = StoredSpace(self.affinities, context.exchange)
        super().__init__(context, 0.0, asked.iterations)

    def begin(self) -> None:
        """The points of the start, at rest."""
        boxes = self.space.sweep(
            begin_block,
            writes=["points0", "motion0"],
            posts=["points0"],
            arguments=(self.context.of("start", "points"),),
        )
        self.iteration, self.objectives = 0, []
        self._take(boxes)
        self.spacing = spacing_for(self.low, self.high, self.asked.dof)

    @property
    def done(self) -> int:
        """Iterations so far."""
        return int(self.iteration)

    @property
    def converged(self) -> bool:
        """The number of iterations is given."""
        return False

    def step(self) -> None:
        """The iterations to the next report, after which the divergence is known."""
        before, stop = self.done, self.asked.next_report(self.done)
        energy, total = self._held_until(stop) if self.held else self._stored_until(stop)
        kernel = self.context.results("kernel")
        divergence = kernel["plogp"] + energy + kernel["mass"] * np.log(total)
        self.objectives.append(max(0.0, float(divergence)))
        self._keep_without(before if self.held else stop - 1)

    def _held_until(self, stop: int) -> tuple[float, float]:
        """All iterations in one task; −Σ p log w, and Z."""
        [(box, spacing, energy, total)] = map_blocks(
            held_steps,
            [()],
            label="steps",
            affinities=self.affinities,
            exchange=self.exchange,
            asked=self.asked,
            span=(self.done, stop),
            box=np.stack([self.low, self.high]),
            spacing=float(self.spacing),
        )
        self._take([box])
        self.iteration, self.spacing = stop, spacing
        return energy, total

    def _stored_until(self, stop: int) -> tuple[float, float]:
        """A map over the blocks each iteration; −Σ p log w, and Z."""
        self.space.sweep(charge_block, reads=[f"points{self.done}"], arguments=self._charging(self.done))
        while self.done < stop:
            lattice, total, now = *self._field(), self.done
            spacing = spacing_for(self.low, self.high, self.asked.dof)
            boxes = self.space.sweep(
                move_block,
                reads=[f"points{now}", f"motion{now}"],
                halos=[f"points{now}"],
                writes=[f"points{now + 1}", f"motion{now + 1}"],
                posts=[f"points{now + 1}"],
                arguments=(
                    self.affinities, self.exchange, lattice, total, self.asked.at(now, self.n), self.asked.dof,
                    f"field{now}", f"charges{now + 1}", spacing,
                ),
            )  # fmt: skip
            self._take(boxes)
            self.iteration, self.spacing = now + 1, spacing
            if self.done < stop:
                self._keep_without(now)
        _, total = self._field()
        energies = self.space.sweep(
            energy_block,
            reads=[f"points{stop}"],
            halos=[f"points{stop}"],
            arguments=(self.affinities, self.asked.dof),
        )
        from bigembed.kernels.forces import ENERGY  # imports numba: only here

        self.space.drop(f"field{stop}", f"charges{stop}")
        return sum(energies) / ENERGY, total

    def _charging(self, iteration: int) -> tuple[Any, ...]:
        return self.exchange, f"charges{iteration}", float(self.spacing)

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

    def _keep_without(self, iteration: int) -> None:
        """From here a killed run goes on, and needs nothing of an earlier iteration."""
        self.keep()
        self.space.drop(*(f"{name}{iteration}" for name in ("points", "motion", "charges", "field")))

    def publish(self) -> dict[str, Any]:
        """The points by blocks, and the divergences."""
        for b in range(len(self.space.rows)):
            write_array(self.context.path(f"points/{b}"), self.space.read(f"points{self.done}", b))
        write_array(self.context.path("objectives"), np.array(self.objectives))
        return {"n_components": self.asked.n_components}
