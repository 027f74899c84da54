"""Effective degrees: how many neighbors' worth of weight joins each row to the others."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from bigembed.blocks.rows import Array, map_blocks, offsets
from bigembed.store.arrays.io import read_array

LOW = 0.1
"""Rows whose weights to all others add up to less are cut off.

The walk (α = 0) leaves such a row in fewer than one of eleven steps. Measured (k = 15): all sets with a coordinate
carried by single rows have such rows (fixed scale: digits 14, breast cancer 12, Gaussian rows in three dimensions 48
of 5000; self-tuned digits 1, of degree .04, which is its first coordinate); no other set has any (smallest degrees:
fixed scale .16 iris, .27 and .9 mixtures, .6 wine, 2.3 and more on manifolds; self-tuned 1.8 and more).
"""
NAMED = 10


@dataclass(frozen=True)
class EffectiveDegrees:
    """Σ_{j≠i} K_ij over all rows."""

    smallest: float
    row: int
    """Internal id of the (first) row that has it."""
    below: int
    """Rows below ``limit``."""
    limit: float
    first: tuple[int, ...]
    """Internal ids of the first of them, at most ten."""


def effective_degrees(q: str, blocks: int, limit: float = LOW) -> EffectiveDegrees:
    """Effective degrees q − 1 = Σ_{j≠i} K_ij from the row sums ``q/b`` of a kernel with K_ii = 1: one pass.

    K_ij ≤ 1, so a degree counts neighbors that are near in the scale of the kernel. Near 0 the walk practically never
    leaves the row, and an eigenvector with λ ≈ 1 is spent on it. Differences below 1e-16 of q are lost: 0 is < 1e-15.
    Cost: one pass over q, one block in memory.
    """
    parts = map_blocks(degrees_block, [(b,) for b in range(blocks)], q=q, limit=limit)
    starts = offsets(part[0] for part in parts)
    smallest, owner = min((part[1], b) for b, part in enumerate(parts))
    first = np.concatenate([part[4] + starts[b] for b, part in enumerate(parts)])[:NAMED]
    row = int(starts[owner]) + parts[owner][2]
    return EffectiveDegrees(smallest, row, sum(part[3] for part in parts), limit, tuple(first.tolist()))


def degrees_block(b: int, *, q: str, limit: float) -> tuple[int, float, int, int, Array]:
    """Rows, smallest degree and its row, number of rows below the limit and the first of them, of one block."""
    degree = read_array(f"{q}/{b}").astype(np.float64).ravel() - 1.0
    if not len(degree):
        return 0, float("inf"), 0, 0, np.zeros(0, np.int64)
    low, where = np.flatnonzero(degree < limit), int(np.argmin(degree))
    return len(degree), max(0.0, float(degree[where])), where, len(low), low[:NAMED]
