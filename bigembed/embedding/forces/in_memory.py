"""Many iterations in one task that holds the affinities: the same bytes as by blocks, without the store between them.

Rows are divided among threads. A row is moved by itself, and what is added up over rows are integers.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import lru_cache
from typing import Any

import numpy as np

from bigembed.blocks.rows import Array, bounds, offsets
from bigembed.embedding.forces.by_blocks import box_of
from bigembed.embedding.forces.options import DescentOptions
from bigembed.kernels.field import STEP, Lattice, field_of, spacing_for
from bigembed.store.exchange import Exchange
from bigembed.store.matrix import StoredMatrix

ROWS = 4_096
"""Rows that a thread moves at a time."""


def held_bytes(n: int, edges: int, m: int) -> int:
    """Bytes of the affinities and of the points: columns and values, and as they are read, of one block."""
    return 12 * edges + 8 * n * (6 * m + 2)


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
        held_affinities.cache_clear()
    return box, spacing, energy, total


@lru_cache(maxsize=1)
def held_affinities(affinities: StoredMatrix) -> list[tuple[Array, Array, Array]]:
    """indptr, columns as numbers of rows, and p of each block, its edges in the order in which they are stored."""
    starts, found = offsets(affinities.rows), []
    kind = np.int32 if starts[-1] < 1 << 31 else np.int64
    for b in range(len(affinities.rows)):
        block = affinities.block(b)
        found.append((block.indptr, block.ids(b, starts).astype(kind)[block.indices], block.data))
    return found


class _Held:
    """Points, velocities and gains of all rows, and the threads that move them."""

    def __init__(self, affinities: StoredMatrix, exchange: Exchange, asked: DescentOptions, iteration: int) -> None:
        self.affinities, self.exchange, self.asked = affinities, exchange, asked
        self.edges, self.m = held_affinities(affinities), asked.n_components
        blocks = range(len(affinities.rows))
        self.points = np.concatenate([exchange.piece(f"points{iteration}", b, "own") for b in blocks])
        motion = np.concatenate([exchange.piece(f"motion{iteration}", b, "own") for b in blocks])
        self.velocity = [np.ascontiguousarray(part[:, : self.m]) for part in np.split(motion, self.starts[1:-1])]
        self.gains = [np.ascontiguousarray(part[:, self.m :]) for part in np.split(motion, self.starts[1:-1])]
        self.moved = np.empty_like(self.points)
        self.parts = [(b, *part) for b in blocks for part in bounds(affinities.rows[b], ROWS)]
        self.threads = min(len(os.sched_getaffinity(0)), len(self.parts))

    @property
    def starts(self) -> Array:
        """The first row of each block, and n."""
        return offsets(self.affinities.rows)

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

        nodes = sum(self._each(charge, range(self.threads)))
        field, total = field_of(nodes / UNIT, lattice, self.asked.dof, self.threads)
        return field, lattice, total

    def move(self, iteration: int, field: Array, lattice: Lattice, total: float) -> None:
        """One step of all rows."""
        from bigembed.kernels.forces import step

        n, starts = len(self.points), self.starts
        options, low, axes = self.asked.at(iteration, n), np.array(lattice.low), (0,) * self.m

        def moved(part: tuple[int, int, int]) -> None:
            b, first, last = part
            step(
                first, last, starts[b], *self.edges[b], self.points, axes, 1.0 / self.asked.dof, lattice.spacing, low,
                field, total, options, self.velocity[b], self.gains[b], self.moved[starts[b] : starts[b + 1]],
            )  # fmt: skip

        self._each(moved, self.parts)
        self.points, self.moved = self.moved, self.points

    def energy(self) -> int:
        """−Σ p log w, as an integer."""
        from bigembed.kernels.forces import energy

        starts = self.starts

        def of_part(part: tuple[int, int, int]) -> int:
            b, first, last = part
            return energy(first, last, starts[b], *self.edges[b], self.points, self.asked.dof)

        return sum(self._each(of_part, self.parts))

    def leave(self, iteration: int) -> None:
        """Leave all of it by blocks, with what other blocks read, so that a run by blocks can go on from here."""
        for b, part in enumerate(np.split(self.points, self.starts[1:-1])):
            pieces = {str(other): part[rows] for other, rows in self.affinities.outbox(b)}
            self.exchange.put(f"points{iteration}", b, {"own": part} | pieces)
            motion = np.concatenate([self.velocity[b], self.gains[b]], axis=1)
            self.exchange.put(f"motion{iteration}", b, {"own": motion})

    def _each(self, function: Callable[..., Any], parts: Any) -> list[Any]:
        if self.threads == 1:
            return [function(part) for part in parts]
        with ThreadPoolExecutor(self.threads) as pool:
            return list(pool.map(function, parts))
