"""An order of a given graph in which near nodes lie together: its cells, grown, put on a line, and cut into blocks."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import pairwise
from typing import Any

import numpy as np
from scipy import sparse

from bigembed.neighbors.graph_blocks import senders_of
from bigembed.runtime import once
from bigembed.runtime.blocks import Array, bounds, by_owner, map_blocks, offsets
from bigembed.stages import Arrays, ArraySpec, Context, Cost, Stage
from bigembed.store.arrays import write_array
from bigembed.store.exchange import Exchange
from bigembed.store.matrix import BlockMatrix, CSRBlock, StoredMatrix
from bigembed.store.spaces import StoredSpace

# ------------------------------------------------------------------------------------------------------------- cells
# Cells of a graph: nodes that hang together, grown by sweeps over its edges from nodes drawn at random.
#
# A drawn node is a cell. In a sweep each node without a cell takes the one that its neighbors with a cell are nearest
# to,
#
# c(i) = argmax_c Σ_{j : c(j) = c} s_ij, s_ij = w_ij, or of lengths m_i/(m_i + ℓ_ij²), m_i = mean_j ℓ_ij²,
#
# so that a cell is what few steps reach from its first node. After :data:`ROUNDS` sweeps, eight times as many of the
# nodes that are left begin cells of their own, and so on: a small component gets one, and the sweeps are 12 at most.

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


# ------------------------------------------------------------------------------------------------------- cell line
# Cells of a graph on a line, cut into blocks: pairs along heavy edges, pairs of pairs, and so on.
#
# Parts are joined as long as they fit into one block; what has grown then is a group. Groups are joined in the same
# way without a limit. The leaves of this tree, from left to right, are the line, and blocks are groups that follow
# each other on it: a block is a few parts of the graph, each of which hangs together.

STALLED = 0.99
"""A round that leaves more than this share of the parts is the last one (the leaves of a star pair with nothing)."""


@dataclass(frozen=True)
class Limits:
    """What a block holds at most."""

    nodes: int
    entries: int


@dataclass(frozen=True)
class Parts:
    """Parts of a graph: how near they are to each other, a symmetric CSR array without a diagonal, and their sizes."""

    graph: Any
    nodes: Array
    entries: Array

    def joined(self, pair: Array, count: int) -> Parts:
        """The parts that pairs of these are."""
        gather = sparse.csr_array((np.ones(len(pair)), (np.arange(len(pair)), pair)), shape=(len(pair), count))
        graph = (gather.T @ self.graph @ gather).tocsr()
        graph.setdiag(0)
        graph.eliminate_zeros()
        sizes = (np.bincount(pair, values, count).astype(np.int64) for values in (self.nodes, self.entries))
        return Parts(graph, *sizes)


def along_a_line(cells: Parts, most: Limits) -> tuple[Array, Array]:
    """Numbers of the cells from left to right, and where on the line blocks begin, with the number of cells.

    A block is within the limits unless it is a single cell.

    >>> path = sparse.csr_array(np.eye(6, k=2) + np.eye(6, k=-2))  # 0-2-4 and 1-3-5
    >>> ones = np.ones(6, np.int64)
    >>> line, starts = along_a_line(Parts(path, ones, ones), Limits(2, 2))
    >>> [part.tolist() for part in np.split(line, starts[1:-1])]
    [[0, 2], [4], [1, 3], [5]]
    """
    levels, groups = _grown(cells, most)
    above, roots = _grown(groups, Limits(int(cells.nodes.sum()), int(cells.entries.sum())))
    place = _leaves(np.arange(len(roots.nodes)), above)
    line = np.argsort(place)
    cuts = _cut(groups.nodes[line], groups.entries[line], most)
    group = np.arange(len(cells.nodes))
    for pair in levels:
        group = pair[group]
    held = np.bincount(group, minlength=len(line))[line]
    return np.argsort(_leaves(place, levels)), offsets(held)[cuts]


def _grown(parts: Parts, most: Limits) -> tuple[list[Array], Parts]:
    """The part that each part becomes, round by round, and the last parts."""
    from bigembed.neighbors.compiled import matched  # imports numba: only here

    levels: list[Array] = []
    while True:
        graph = parts.graph
        graph.sort_indices()
        sizes = parts.nodes, parts.entries
        pair, count = matched(graph.indptr, graph.indices, graph.data, *sizes, most.nodes, most.entries)
        if count > STALLED * len(pair):
            return levels, parts
        levels.append(pair)
        parts = parts.joined(pair, count)


def _leaves(place: Array, levels: list[Array]) -> Array:
    """Places of the parts that were there before some rounds, from those after them."""
    for pair in reversed(levels):
        order = np.argsort(place[pair], kind="stable")
        place = np.empty(len(pair), np.int64)
        place[order] = np.arange(len(pair))
    return place


def _cut(nodes: Array, entries: Array, most: Limits) -> Array:
    """Where runs within the limits begin, each as long as it can be, and the number of all.

    >>> _cut(np.array([2, 2, 9, 1, 1]), np.zeros(5, np.int64), Limits(4, 4)).tolist()
    [0, 2, 3, 5]
    """
    sums, cuts = (np.cumsum(nodes), np.cumsum(entries)), [0]
    while cuts[-1] < len(nodes):
        low = cuts[-1]
        ends = [
            int(np.searchsorted(total, (total[low - 1] if low else 0) + limit, side="right"))
            for total, limit in zip(sums, (most.nodes, most.entries), strict=True)
        ]
        cuts.append(max(low + 1, min(ends)))
    return np.array(cuts)


# ----------------------------------------------------------------------------------------------------------- order
# A given graph in an order in which near nodes lie together, and so into blocks; and brought into that order.
#
# Nodes come in any order, and most edges of a graph with many blocks then lead from one to another. Cells of near
# nodes are grown by sweeps over the edges, the cells joined into blocks in this process, and the edges exchanged once
# more (:mod:`bigembed.neighbors.given`). What a block holds depends on the graph alone. A graph of one block keeps the
# order of the input.

EDGES = "edges"
"""The stage of the symmetric graph in the order of the input, which these read."""
DENSER = 2
"""Entries of a block, at most, over those of as many mean nodes: where hubs are, it holds fewer nodes."""
SWEEPS = 10
"""Over the edges, planned."""
FEW = ("blocks", "starts")
"""Numbers of the blocks, and of their first rows."""


def order_arrays(n: int, places: bool = False) -> Arrays:
    """Declare the order of the nodes of a graph; with the ``places`` of those of the input."""
    names = ("ids/*", "places/*") if places else ("ids/*",)
    return [*(ArraySpec(name, n, dtype="i8") for name in names), *(ArraySpec(one, 0, dtype="i8") for one in FEW)]


def line_stage(
    n: int, entries: int, block: int, values: str, rule: Mapping[str, Any], inputs: Sequence[str] = ()
) -> Stage:
    """``ids/b``, the nodes of the input that block b holds, of at most ``block`` nodes, and ``places/b``, where those
    of the input are. ``values`` of the stage ``edges`` are weights ("given") or squared lengths ("squared")."""

    held = -(-entries // n) * block
    edges = ArraySpec("edges of the nodes", entries, 5, "f4", SWEEPS)
    cost = Cost.of(
        reads=[edges],
        writes=order_arrays(n, places=True),
        leaves=[ArraySpec("edges", entries, 3)],
        posts=[ArraySpec("where nodes are", entries, times=SWEEPS)],
        task=[ArraySpec("edges", held, 10)],
        coordinator=[ArraySpec("where nodes are", n, 20)],
        scalar_ops=3 * SWEEPS * entries,
        maps=SWEEPS + 4,
    )
    return Stage(
        "order",
        (*inputs, EDGES),
        {**rule, "block": block, "cell": CELL, "rounds": ROUNDS},
        partial(run_line, n=n, block=block, values=values, rule=rule),
        cost,
    )


def run_line(context: Context, n: int, block: int, values: str, rule: Mapping[str, Any]) -> dict[str, Any]:
    matrix = context.home.matrix(EDGES, values)
    space = StoredSpace(matrix, context.exchange)
    cells, sweeps = grow_cells(space, matrix, values == "squared")
    joined = joined_cells(space, matrix, values == "squared", cells)
    cell = np.concatenate([space.read(cells, b)[:, 0] for b in range(len(matrix.rows))])
    degree = np.concatenate(map_blocks(degree_block, [(b,) for b in range(len(matrix.rows))], matrix=matrix))
    ids, starts = ordered_nodes(cell, degree, joined, block)
    _write(context, ids, starts, offsets(matrix.rows))
    context.note(f"{n:,} nodes in {len(starts) - 1:,} blocks, found by {sweeps} sweeps over the edges")
    counts = {"cells": len(np.unique(cell)), "sweeps": sweeps, "placed": len(matrix.rows)}
    return {"blocks": len(starts) - 1, **counts, **rule}


def degree_block(b: int, *, matrix: StoredMatrix) -> Array:
    """Entries of each row."""
    return np.diff(matrix.block(b).indptr)


def ordered_nodes(cell: Array, degree: Array, joined: Joined, block: int) -> tuple[Array, Array]:
    """All nodes, near ones together, those of a cell ascending; and where blocks of at most ``block`` begin, and n."""
    n = len(cell)
    names, number, nodes = np.unique(cell, return_inverse=True, return_counts=True)
    entries = np.bincount(number, degree).astype(np.int64)
    first, second = (np.searchsorted(names, part) for part in joined[:2])
    graph = sparse.csr_array((joined[2], (first, second)), shape=(len(names), len(names)))
    most = Limits(block, DENSER * -(-int(degree.sum()) // n) * block)
    line, cuts = along_a_line(Parts(graph.maximum(graph.T).tocsr(), nodes, entries), most)
    place = np.empty(len(names), np.int64)
    place[line] = np.arange(len(names))
    ends = offsets(nodes[line])[cuts]
    starts = [low + part[0] for low, high in pairwise(ends.tolist()) for part in _even(high - low, block)]
    return np.argsort(place[number], kind="stable"), np.array([*starts, n], np.int64)


def _even(rows: int, most: int) -> list[tuple[int, int]]:
    """As few spans of at most ``most`` rows as there can be, of about the same length."""
    return bounds(rows, -(-rows // -(-rows // most)))


def _write(context: Context, ids: Array, starts: Array, input_starts: Array) -> None:
    write_array(context.path("blocks"), np.arange(len(starts) - 1))
    write_array(context.path("starts"), starts)
    places = np.empty(len(ids), np.int64)
    places[ids] = np.arange(len(ids))
    for name, values, cuts in (("ids", ids, starts), ("places", places, input_starts)):
        for b, part in enumerate(np.split(values, cuts[1:-1])):
            write_array(context.path(f"{name}/{b}"), part)
