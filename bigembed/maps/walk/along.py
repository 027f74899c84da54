"""New rows of a walk placed along its graph: averages over the edges of the row that is near to each, compiled.

What the fitted rows of a block are is read once for the new rows that a process places there, and one loop does for a
row what :func:`~bigembed.maps.walk.extension.nystrom_rows` does by arrays of edges. Sums are taken in the same order.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import pairwise

import numpy as np

from bigembed.maps.bandwidth import FLOOR, Bandwidth, own_scales
from bigembed.maps.kernels import BINARY, TRUNCATED
from bigembed.neighbors.given.query import near_parts, read_near
from bigembed.neighbors.order import Ordered
from bigembed.neighbors.query import Along, Index
from bigembed.runtime.blocks import Array
from bigembed.store.arrays import read_array, read_by_id

TOGETHER = 1 << 18
"""New rows that a task takes together, at the most: so many that few tasks leave their rows for a block of the output.
No edges of theirs are held."""


@dataclass(frozen=True)
class Averages:
    """Of some new rows, what the walk averages over their edges inside one component."""

    home: Array
    """The component of each row, −1 where it has no coordinates."""
    total: Array
    """Σ w, (rows,)."""
    mean: Array
    """Σ w v of what is averaged, (rows, width)."""
    rho: Array
    """The scales of the rows."""
    block: Array
    """Block and cell (inside the block) that each row belongs to."""
    cell: Array


@dataclass(frozen=True)
class Averaged:
    """Where what is averaged of the fitted rows lies, and what the edges to them are weighed by. Paths and numbers."""

    vectors: str
    labels: str
    density: str
    alpha: float
    weights: str
    """Empty where the rows have none, as the next two may be."""
    wanted: str
    scales: str
    floor: float
    parts: int
    """Components that have coordinates."""
    drop: bool
    """Whether a fitted row that equals the new one is left out."""


def averages_along(
    rows: Array, index: Index, of: Averaged, kernel: Bandwidth, epsilon: float,
    by_mass: tuple[float, int, float] | None,
) -> Iterator[tuple[Array, Averages]]:  # fmt: skip
    """Averages of prepared new rows (n, d), in parts: numbers of some rows, and theirs."""
    from bigembed.maps.walk.compiled import ADAPTIVE, FIXED, SELF_TUNED, averages  # imports numba: only here
    from bigembed.maps.walk.compiled import BINARY as ONE

    kind = {"adaptive": ADAPTIVE, "self-tuned": SELF_TUNED, BINARY: ONE}.get(kernel.kernel, FIXED)
    cut = TRUNCATED * epsilon if kernel.truncated else math.inf
    wanted, least, dimension = by_mass or (0.0, 1, 0.0)
    ordered, along = Ordered.open(index.order), index.along
    assert along is not None
    for b, members, cell in near_parts(rows, ordered, index):
        near, values = read_near(b, ordered, along), read_values(b, ordered, along, of)
        part, count = rows[members], len(members)
        total, mean, reach = np.empty(count), np.empty((count, values.vectors.shape[1])), np.zeros(count)
        home = np.empty(count, np.int64)
        averages(
            part, near.nearest(part, cell), near.indptr, near.indices, near.table, values.scale, values.mass,
            values.factor, values.label, values.vectors, kind, float(epsilon), cut, kernel.within, index.n_neighbors,
            float(wanted), int(least), float(dimension), of.floor, of.floor / FLOOR, of.parts, of.drop, total, mean,
            home, reach,
        )  # fmt: skip
        yield members, Averages(home, total, mean, reach, np.full(count, b), cell)


@dataclass(frozen=True)
class _Values:
    """Of the rows of a block and of its halo: scales, weights, factors of the kernel, components, what is averaged."""

    scale: Array
    mass: Array
    factor: Array
    label: Array
    vectors: Array


@lru_cache(maxsize=2)
def read_values(b: int, ordered: Ordered, along: Along, of: Averaged) -> _Values:
    """Read those of block b; the last ones that a process has read are kept."""
    ids, starts = read_near(b, ordered, along).ids, np.array(ordered.starts)
    halo = ids[ordered.size(b) :]

    def read(path: str) -> Array:
        own = read_array(f"{path}/{b}")
        return np.concatenate([own, read_by_id(path, starts, halo)]) if len(halo) else own

    mass = read(of.weights) if of.weights else np.ones(len(ids))
    factor = read(of.density).astype(np.float64) ** -of.alpha * mass
    if of.wanted:
        factor = factor * np.sqrt(read(of.wanted))
    scale = np.sqrt(read(f"{of.scales}/rho_squared").astype(np.float64)) if of.scales else np.zeros(len(ids))
    vectors = np.ascontiguousarray(read(of.vectors), np.float64)
    return _Values(own_scales(scale, of.floor), mass.astype(np.float64), factor, read(of.labels), vectors)


def averages_memory(rows: int, width: int, row_bytes: int, degree: int, starts: Sequence[int]) -> int:
    """Bytes that :func:`averages_along` holds for a number of new rows, beside them: two blocks of fitted rows, each
    with edges and a halo (as large as it, at the most), while a third is read; and what is averaged for the new ones.
    """
    block = max(stop - start for start, stop in pairwise(starts)) * (2 * (row_bytes + 8 * (width + 6)) + 12 * degree)
    return 3 * block + rows * (row_bytes + 8 * (width + 10))
