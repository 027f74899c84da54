"""The descent of a map by attraction and repulsion: the motion of a row are its velocities and gains.

An iteration spreads the points over a lattice, transforms it, and moves every row: in one task that holds the
affinities, by threads, or in one map over the blocks, each of which reads its affinities, the points of its neighbors,
and the field.
"""

from __future__ import annotations

from dataclasses import asdict
from typing import Any, ClassVar

import numpy as np

from bigembed.blocks.rows import Array, map_blocks
from bigembed.embedding.forces.by_blocks import begin_block, charge_block, energy_block, field_block, move_block
from bigembed.embedding.forces.in_memory import held_steps
from bigembed.embedding.forces.options import DescentOptions
from bigembed.embedding.graph.shape import GraphShape
from bigembed.embedding.held_rows import held_bytes
from bigembed.embedding.map_descent import HELD_BYTES, REPORT, MapDescent
from bigembed.kernels.field import STEP, Lattice, lattice_bytes, spacing_for
from bigembed.reads import Immaterial
from bigembed.stages import Context, Cost, Stage


def descent_stage(graph: GraphShape, edges: int, asked: DescentOptions, in_memory: bool | None) -> Stage:
    """``descent/points`` (rows, m) by blocks, and the divergence every :data:`REPORT` iterations."""
    n, m, block = graph.n, asked.n_components, min(graph.n, graph.block)
    whole = held_bytes(n, edges, m)
    held = whole <= HELD_BYTES if in_memory is None else in_memory
    place = Immaterial(held)  # (the bytes are the same)

    def run(context: Context) -> dict[str, Any]:
        return ForceDescent(context, n, asked, place.value).run("KL")

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
    return Stage("descent", ("kernel", "start", graph.stage), asdict(asked), run, cost, resumes=True)


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
        """Boxes of the blocks."""
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
        from bigembed.kernels.forces import ENERGY  # imports numba: only here

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
