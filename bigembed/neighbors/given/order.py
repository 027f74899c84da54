"""A given graph in an order in which near nodes lie together: its cells on a line, cut into blocks."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import pairwise
from typing import Any

import numpy as np
from scipy import sparse

from bigembed.neighbors.given.cells import CELL, ROUNDS, Joined, grow_cells, joined_cells
from bigembed.neighbors.graph_blocks import csr_block, finish_graph, graph_arrays, senders_of, write_block
from bigembed.runtime.blocks import Array, bounds, by_owner, map_blocks, offsets
from bigembed.stages.cost import Arrays, ArraySpec, Cost
from bigembed.stages.stage import Context, Stage
from bigembed.store.arrays import read_array, write_array
from bigembed.store.exchange import Exchange
from bigembed.store.matrix import StoredMatrix
from bigembed.store.spaces import StoredSpace

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
# nodes are grown by sweeps over the edges (:mod:`~bigembed.neighbors.given.cells`), the cells joined into
# blocks in this process (:mod:`~bigembed.neighbors.given.order`), and the edges exchanged once more. What a block
# holds depends on the graph alone. A graph of one block keeps the order of the input.

EDGES = "edges"
"""The stage of the symmetric graph in the order of the input, which these read."""
DENSER = 2
"""Entries of a block, at most, over those of as many mean nodes: where hubs are, it holds fewer nodes."""
SWEEPS = 10
"""Over the edges, planned."""
MOVED = "moved"
FEW = ("blocks", "starts")
"""Numbers of the blocks, and of their first rows."""

Finish = Callable[[Context, dict[str, Any]], dict[str, Any]]


def ordered_stages(
    edges: Stage,
    name: str,
    values: str,
    shape: tuple[int, int, int],
    rule: Mapping[str, Any],
    finish: Finish | None = None,
    finished: Arrays = (),
) -> list[Stage]:
    """The stage ``edges``, the order of its nodes, and the stage of this ``name``: the same graph in that order.

    ``values`` of it are weights ("given") or squared lengths ("squared"); ``shape`` are its nodes, its entries, and how
    many nodes a block holds at most. ``rule`` is among the results of the order, as it is where there is one block.
    ``finish`` writes what else there is by blocks (``finished``), and adds to the results.
    """
    n, entries, block = shape

    order = order_stage(n, entries, block, values, rule, edges.inputs)
    return [
        edges,
        order,
        Stage(
            name,
            (*edges.inputs, EDGES, "order"),
            {},
            partial(run_ordered, values=values, finish=finish),
            reorder_cost(n, entries, block, [*graph_arrays(n, entries + n, values, "f8"), *finished]),
        ),
    ]


def run_ordered(context: Context, values: str, finish: Finish | None) -> dict[str, Any]:
    found = reordered(context, values)
    joined = context.results(EDGES) | {key: found[key] for key in ("blocks", "halo_rows", "inside")}
    return finish(context, joined) if finish else joined


def order_arrays(n: int, places: bool = False) -> Arrays:
    """Declare the order of the nodes of a graph; with the ``places`` of those of the input."""
    names = ("ids/*", "places/*") if places else ("ids/*",)
    return [*(ArraySpec(name, n, dtype="i8") for name in names), *(ArraySpec(one, 0, dtype="i8") for one in FEW)]


def order_stage(
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
        partial(run_order, n=n, block=block, values=values, rule=rule),
        cost,
    )


def run_order(context: Context, n: int, block: int, values: str, rule: Mapping[str, Any]) -> dict[str, Any]:
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


# --- the edges in that order ---------------------------------------------------------------------


def reordered(context: Context, values: str) -> dict[str, Any]:
    """All blocks of the graph of the stage ``edges`` in the order of the stage ``order``.

    What they count, and the share of the edges that are ``inside`` a block.
    """
    matrix, exchange = context.home.matrix(EDGES, values), context.exchange
    starts = read_array(context.of("order", "starts")).tolist()
    space = StoredSpace(matrix, exchange)
    space.sweep(placed_block, writes=["place"], posts=["place"], arguments=(context.of("order", "places"),))
    sent = space.sweep(moved_block, reads=["place"], halos=["place"], arguments=(matrix, starts, exchange))
    senders = senders_of(sent, len(starts) - 1)
    shared: dict[str, Any] = {"exchange": exchange, "out": context.path(""), "name": values}
    found = map_blocks(arrived_block, list(enumerate(senders)), starts=starts, **shared)
    inside, joined = (sum(part[name] for part in found) for name in ("inside", "joined"))
    return finish_graph(context, found, starts) | {"inside": inside / max(1, joined)}


def reorder_cost(n: int, entries: int, block: int, writes: Arrays) -> Cost:
    """Of a stage that brings a graph into its order."""
    return Cost.of(
        reads=[ArraySpec("edges", entries, 2)],
        writes=writes,
        leaves=[ArraySpec("edges on their way", entries, 7, "f4")],
        task=[ArraySpec("edges", DENSER * -(-entries // n) * block, 20)],
        scalar_ops=4 * entries,
        maps=4,
    )


def placed_block(b: int, places: str) -> tuple[tuple[Array], None]:
    """Where the nodes of a block of the input go."""
    return (read_array(f"{places}/{b}")[:, None],), None


def moved_block(
    b: int, own: Array, halo: Array, matrix: StoredMatrix, starts: Sequence[int], exchange: Exchange
) -> tuple[tuple[()], list[int]]:
    """Leave the entries of a block of the input with the blocks that their rows are in. Returns those blocks."""
    block = matrix.block(b)
    row = np.repeat(own[:, 0], np.diff(block.indptr))
    column = np.concatenate([own[:, 0], halo[:, 0]])[block.indices]
    pieces: dict[str, Array] = {}
    receivers = []
    for receiver, at, inside in by_owner(starts, row):
        parts = {"row": inside.astype(np.int32), "column": column[at], "value": block.data[at]}
        pieces |= {f"{name}{receiver}": part for name, part in parts.items()}
        receivers.append(receiver)
    exchange.put(MOVED, b, pieces)
    return (), receivers


def arrived_block(
    b: int, senders: list[int], *, starts: Sequence[int], exchange: Exchange, out: str, name: str
) -> dict[str, Any]:
    """Write one block of the graph, of the entries that came for it."""
    found = [exchange.get_many(MOVED, sender, [f"row{b}", f"column{b}", f"value{b}"]) for sender in senders]
    row, column, value = (np.concatenate(part) for part in zip(*found, strict=True))
    del found
    block = csr_block(b, row, column, value, starts)
    rows = starts[b + 1] - starts[b]
    apart = block.indices != block.row
    counts = {"inside": apart & (block.indices < rows), "joined": apart}
    return write_block(b, block, exchange, out, name) | {key: int(np.count_nonzero(c)) for key, c in counts.items()}
