"""One epoch by blocks through the store: what a task does with one block, and the one that joins the pool.

A block leaves those of its points that may be drawn in the next epoch. Nothing of all rows, and no more of the weights
than one block, is in a process.
"""

from __future__ import annotations

import numpy as np

from bigembed.blocks.rows import Array, offsets
from bigembed.embedding.sampling.options import SamplingOptions, chosen
from bigembed.store.arrays.io import read_array
from bigembed.store.blockwise.exchange import Exchange
from bigembed.store.blockwise.matrix import StoredMatrix


def begin_block(b: int, start: str) -> tuple[tuple[Array], None]:
    """The points of the start."""
    return (read_array(f"{start}/{b}").astype(np.float64),), None


def share_block(
    b: int, points: Array, exchange: Exchange, rows: tuple[int, ...], seed: int, epoch: int
) -> tuple[tuple[()], None]:
    """Leave the points of a block that may be drawn in an epoch."""
    exchange.put(f"shares{epoch}", b, {"points": points[chosen(b, rows, seed, epoch)]})
    return (), None


def pool_block(epoch: int, *, blocks: int, exchange: Exchange) -> None:
    """Leave all points that may be drawn in an epoch."""
    shares = [exchange.piece(f"shares{epoch}", b, "points") for b in range(blocks)]
    exchange.put(f"pool{epoch}", 0, {"points": np.concatenate(shares)})


def move_block(
    b: int, points: Array, halo: Array, weights: StoredMatrix, exchange: Exchange, asked: SamplingOptions,
    largest: float, epoch: int,
) -> tuple[tuple[Array], None]:  # fmt: skip
    """One epoch of a block, of which it leaves what may be drawn in the next."""
    from bigembed.kernels.sampling import step  # imports numba: only here

    block, moved = weights.block(b), np.empty_like(points)
    step(
        0, len(points), 0, offsets(weights.rows)[b], block.indptr, block.indices, block.data,
        np.concatenate([points, halo]), exchange.piece(f"pool{epoch}", 0, "points"), asked.key(epoch),
        asked.at(epoch, largest), moved,
    )  # fmt: skip
    share_block(b, moved, exchange, weights.rows, asked.seed, epoch + 1)
    return (moved,), None


def cross_entropy_block(
    b: int, points: Array, halo: Array, weights: StoredMatrix, exchange: Exchange, asked: SamplingOptions,
    largest: float, epoch: int,
) -> tuple[tuple[()], int]:  # fmt: skip
    """The cross-entropy of the rows of a block, as an integer."""
    from bigembed.kernels.sampling import cross_entropy

    block = weights.block(b)
    return (), cross_entropy(
        0, len(points), 0, offsets(weights.rows)[b], block.indptr, block.indices, block.data,
        np.concatenate([points, halo]), exchange.piece(f"pool{epoch}", 0, "points"), asked.key(epoch),
        asked.at(epoch, largest),
    )  # fmt: skip
