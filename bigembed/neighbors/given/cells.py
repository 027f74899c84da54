"""Cells of a graph: nodes that hang together, grown by sweeps over its edges from nodes drawn at random.

A drawn node is a cell. In a sweep each node without a cell takes the one that its neighbors with a cell are nearest to,

    c(i) = argmax_c Σ_{j : c(j) = c} s_ij,    s_ij = w_ij, or of lengths m_i/(m_i + ℓ_ij²), m_i = mean_j ℓ_ij²,

so that a cell is what few steps reach from its first node. After :data:`ROUNDS` sweeps, eight times as many of the
nodes that are left begin cells of their own, and so on: a small component gets one, and the sweeps are 12 at most.
"""

from __future__ import annotations

from functools import partial

import numpy as np

from bigembed.neighbors.graph_blocks import senders_of
from bigembed.runtime.blocks import Array, by_owner, map_blocks, offsets
from bigembed.runtime.runtime import once
from bigembed.store.exchange import Exchange
from bigembed.store.matrix import BlockMatrix, CSRBlock
from bigembed.store.spaces import StoredSpace

CELL = 100
"""Nodes of a cell, about, where all cells grow to the same size."""
ROUNDS = 4
"""Sweeps from one drawing of nodes to the next."""
STREAM = 41
"""Of random numbers."""
NEAREST = 32
"""Other cells that a cell is joined to, at most: in a graph without near and far it touches thousands."""

Joined = tuple[Array, Array, Array]
"""First cell, second cell, Σ s of the edges between them."""


def grow_cells(space: StoredSpace, matrix: BlockMatrix, lengths: bool) -> tuple[str, int]:
    """The vector of the space that holds the cell of each node, (rows, 1) int64: its first node; and the sweeps taken.

    ``lengths``: whether the values are squared distances, not weights.
    """
    starts, share, since, sweeps = tuple(offsets(matrix.rows).tolist()), 1 / CELL, 0, 0
    left = sum(space.sweep(drawn_block, writes=["cell0"], posts=["cell0"], arguments=(starts, share)))
    while left:
        old, new = f"cell{sweeps}", f"cell{sweeps + 1}"
        since += 1
        if since == ROUNDS:
            share, since = min(1.0, 8 * share), 0
        arguments = (matrix, starts, lengths, 0.0 if since else share)
        found = space.sweep(grown_block, reads=[old], halos=[old], writes=[new], posts=[new], arguments=arguments)
        space.drop(old)
        left, grown, sweeps = sum(part[0] for part in found), sum(part[1] for part in found), sweeps + 1
        if not grown:
            since = ROUNDS - 1
    return f"cell{sweeps}", sweeps


def drawn_block(b: int, starts: tuple[int, ...], share: float) -> tuple[tuple[Array], int]:
    """Nodes of a block that begin a cell, with their own number, the others with −1; how many are left."""
    drawn = _draws(b, starts) < share
    return (np.where(drawn, np.arange(starts[b], starts[b + 1]), -1)[:, None],), int(np.count_nonzero(~drawn))


def grown_block(
    b: int, own: Array, halo: Array, matrix: BlockMatrix, starts: tuple[int, ...], lengths: bool, share: float
) -> tuple[tuple[Array], tuple[int, int]]:
    """The cells of a block one step further on; of a share of the nodes, those without begin one. Left, and grown."""
    from bigembed.neighbors.compiled import nearest_cells  # imports numba: only here

    block, before = matrix.block(b), own[:, 0]
    if (before >= 0).all():
        return (own,), (0, 0)
    seen = np.concatenate([before, halo[:, 0]])
    cell = nearest_cells(block.indptr, block.indices, nearness(block, lengths), seen)
    grown = int(np.count_nonzero(cell != before))
    begins = (cell < 0) & (_draws(b, starts) < share)
    cell[begins] = np.flatnonzero(begins) + starts[b]
    return (cell[:, None],), (int(np.count_nonzero(cell < 0)), grown)


def _draws(b: int, starts: tuple[int, ...]) -> Array:
    return np.random.default_rng([STREAM, b]).random(starts[b + 1] - starts[b])


def nearness(block: CSRBlock, lengths: bool) -> Array:
    """s_ij of the entries of a block: weights as they are; of squared lengths the longer, the less."""
    if not lengths:
        return block.data
    counts = np.diff(block.indptr)
    mean = np.add.reduceat(block.data, block.indptr[:-1]) / counts  # (every row has its diagonal)
    scale = np.repeat(np.where(mean > 0, mean, 1.0), counts)
    return np.asarray(scale / (scale + block.data))


# --- which cells are joined ----------------------------------------------------------------------


def joined_cells(space: StoredSpace, matrix: BlockMatrix, lengths: bool, cells: str) -> Joined:
    """Pairs of cells with edges between them, of each cell the :data:`NEAREST` nearest; at most that many times n."""
    starts = tuple(offsets(matrix.rows).tolist())
    exchange = space.exchange
    sent = space.sweep(pairs_block, reads=[cells], halos=[cells], arguments=(matrix, starts, lengths, exchange))
    map_blocks(nearest_pairs, list(enumerate(senders_of(sent))), n=starts[-1], exchange=exchange)
    key, total = once(partial(_collected, exchange, len(sent)))
    exchange.drop("between", "joined")
    return key // starts[-1], key % starts[-1], total


def _collected(exchange: Exchange, blocks: int) -> tuple[Array, Array]:
    found = [exchange.get_many("joined", b, ["key", "sum"]) for b in range(blocks)]
    return np.concatenate([key for key, _ in found]), np.concatenate([total for _, total in found])


def pairs_block(
    b: int, own: Array, halo: Array, matrix: BlockMatrix, starts: tuple[int, ...], lengths: bool, exchange: Exchange
) -> tuple[tuple[()], list[int]]:
    """Leave Σ s of each pair of cells that edges of a block join, with the block of the first cell's first node."""
    block = matrix.block(b)
    here = np.repeat(own[:, 0], np.diff(block.indptr))
    there = np.concatenate([own[:, 0], halo[:, 0]])[block.indices]
    apart = np.flatnonzero(here != there)
    key, total = _summed(here[apart] * starts[-1] + there[apart], nearness(block, lengths)[apart])
    pieces: dict[str, Array] = {}
    receivers = []
    for receiver, at, _ in by_owner(starts, key // starts[-1]):
        pieces |= {f"key{receiver}": key[at], f"sum{receiver}": total[at]}
        receivers.append(receiver)
    exchange.put("between", b, pieces)
    return (), receivers


def nearest_pairs(b: int, senders: list[int], *, n: int, exchange: Exchange) -> None:
    """Leave the nearest cells of the cells that begin in a block."""
    found = [exchange.get_many("between", sender, [f"key{b}", f"sum{b}"]) for sender in senders]
    found.append([np.zeros(0, np.int64), np.zeros(0)])
    key, total = _summed(*(np.concatenate(part) for part in zip(*found, strict=True)))
    first = key // n
    order = np.lexsort((-total, first))
    rank = np.arange(len(key)) - np.searchsorted(first, first)  # (sorted by the first cell, too)
    kept = np.sort(order[rank < NEAREST])
    exchange.put("joined", b, {"key": key[kept], "sum": total[kept]})


def _summed(key: Array, value: Array) -> tuple[Array, Array]:
    """Each key once, ascending, with the sum of its values in the order in which they came."""
    order = np.argsort(key, kind="stable")
    key, value = key[order], value[order]
    first = np.flatnonzero(np.diff(key, prepend=-1))
    return key[first], np.add.reduceat(value, first) if len(first) else value
