"""Many iterations in one task that holds the affinities: the same bytes as by blocks, without the store between them.

What is added up over rows are integers.
"""

from __future__ import annotations

import numpy as np

from bigembed.blocks.rows import Array
from bigembed.embedding.forces.options import DescentOptions
from bigembed.embedding.held_rows import HeldRows, held_weights
from bigembed.embedding.map_coordinates import box_of
from bigembed.kernels.field import STEP, Lattice, field_of, spacing_for
from bigembed.store.blockwise.exchange import Exchange
from bigembed.store.blockwise.matrix import StoredMatrix


def held_steps(
    *, affinities: StoredMatrix, exchange: Exchange, asked: DescentOptions, span: tuple[int, int], box: Array,
    spacing: float,
) -> tuple[Array, float, float, float]:  # fmt: skip
    """The iterations of a span; the box of all points, the next spacing, −Σ p log w, and Z."""
    from bigembed.kernels.forces import ENERGY  # imports numba: only here

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
        from bigembed.kernels.forces import UNIT, spread

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
        from bigembed.kernels.forces import step

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
        from bigembed.kernels.forces import energy

        def of_part(part: tuple[int, int, int]) -> int:
            b, first, last = part
            return energy(first, last, self.starts[b], *self.edges[b], self.points, self.asked.dof)

        return sum(self.each(of_part, self.parts))
