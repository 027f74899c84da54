"""One iteration by blocks through the store: what a task does with one block, and the one that transforms the lattice.

A block leaves its charges on the part of the lattice that it covers; they are integers, so that they add up to the same
whatever the order. Nothing of all rows, and no more of the affinities than one block, is in a process.
"""

from __future__ import annotations

import numpy as np

from bigembed.blocks.rows import Array
from bigembed.embedding.map_coordinates import box_of
from bigembed.kernels.field import Lattice, field_of
from bigembed.store.arrays.io import read_array
from bigembed.store.blockwise.exchange import Exchange
from bigembed.store.blockwise.matrix import StoredMatrix


def begin_block(b: int, start: str) -> tuple[tuple[Array, Array], Array]:
    """The points of the start, at rest, with gains of 1; their box."""
    points = read_array(f"{start}/{b}").astype(np.float64)
    motion = np.concatenate([np.zeros_like(points), np.ones_like(points)], axis=1)
    return (points, motion), box_of(points)


def charge_block(b: int, points: Array, exchange: Exchange, name: str, spacing: float) -> tuple[tuple[()], None]:
    """Leave the charges of a block."""
    from bigembed.kernels.forces import spread  # imports numba: only here

    low, high = box_of(points)
    lattice = Lattice.around(low, high, spacing)
    nodes = lattice.nodes()
    spread(points, (0,) * points.shape[1], spacing, np.array(lattice.low), nodes)
    exchange.put(name, b, {"nodes": nodes, "low": np.array(lattice.low)})
    return (), None


def field_block(charges: str, field: str, *, lattice: Lattice, blocks: int, dof: float, exchange: Exchange) -> float:
    """Leave the field of all charges; Z, the sum of w over all pairs of rows."""
    from bigembed.kernels.forces import UNIT

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
    from bigembed.kernels.forces import step

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
    from bigembed.kernels.forces import energy

    block = affinities.block(b)
    every = np.concatenate([points, halo])
    return (), energy(0, len(points), 0, block.indptr, block.indices, block.data, every, dof)
