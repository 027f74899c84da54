"""A given graph in an order in which near nodes lie together, and so into blocks; and brought into that order.

Nodes come in any order, and most edges of a graph with many blocks then lead from one to another. Cells of near nodes
are grown by sweeps over the edges (:mod:`~bigembed.neighbors.given.grown_cells`), the cells joined into blocks in this
process (:mod:`~bigembed.neighbors.given.cell_line`), and the edges exchanged once more. What a block holds depends on
the graph alone. A graph of one block keeps the order of the input.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from itertools import pairwise
from typing import Any

import numpy as np
from scipy import sparse

from bigembed.blocks.owners import by_owner
from bigembed.blocks.rows import Array, bounds, map_blocks, offsets
from bigembed.neighbors.given.cell_line import Limits, Parts, along_a_line
from bigembed.neighbors.given.grown_cells import CELL, ROUNDS, Joined, grow_cells, joined_cells
from bigembed.neighbors.graph_blocks import csr_block, finish_graph, senders_of, write_block
from bigembed.stages import Context, Cost, Stage
from bigembed.store.arrays.io import read_array, write_array
from bigembed.store.blockwise.exchange import Exchange
from bigembed.store.blockwise.matrix import StoredMatrix
from bigembed.store.blockwise.stored_space import StoredSpace

EDGES = "edges"
"""The stage of the symmetric graph in the order of the input, which these read."""
DENSER = 2
"""Entries of a block, at most, over those of as many mean nodes: where hubs are, it holds fewer nodes."""
SWEEPS = 10
"""Over the edges, planned."""
MOVED = "moved"

Finish = Callable[[Context, dict[str, Any]], dict[str, Any]]


def ordered_stages(
    edges: Stage,
    name: str,
    values: str,
    shape: tuple[int, int, int],
    rule: Mapping[str, Any],
    finish: Finish | None = None,
) -> list[Stage]:
    """The stage ``edges``, the order of its nodes, and the stage of this ``name``: the same graph in that order.

    ``values`` of it are weights ("given") or squared lengths ("squared"); ``shape`` are its nodes, its entries, and how
    many nodes a block holds at most. ``rule`` is among the results of the order, as it is where there is one block.
    ``finish`` writes what else there is by blocks, and adds to the results.
    """
    n, entries, block = shape

    def run(context: Context) -> dict[str, Any]:
        found = reordered(context, values)
        joined = context.results(EDGES) | {key: found[key] for key in ("blocks", "halo_rows", "inside")}
        return finish(context, joined) if finish else joined

    order = order_stage(n, entries, block, values, rule, edges.inputs)
    return [edges, order, Stage(name, (*edges.inputs, EDGES, "order"), {}, run, reorder_cost(n, entries, block))]


def order_stage(
    n: int, entries: int, block: int, values: str, rule: Mapping[str, Any], inputs: Sequence[str] = ()
) -> Stage:
    """``ids/b``, the nodes of the input that block b holds, of at most ``block`` nodes, and ``places/b``, where those
    of the input are. ``values`` of the stage ``edges`` are weights ("given") or squared lengths ("squared")."""

    def run(context: Context) -> dict[str, Any]:
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

    held = -(-entries // n) * block
    cost = Cost(
        read=(SWEEPS + 1) * 20 * entries,
        write=(SWEEPS + 1) * 8 * entries,
        disk=16 * n,
        scratch=24 * entries,
        memory=80 * held,
        coordinator=160 * n,
        scalar_ops=3 * SWEEPS * entries,
        maps=SWEEPS + 4,
    )
    return Stage("order", (*inputs, EDGES), {**rule, "block": block, "cell": CELL, "rounds": ROUNDS}, run, cost)


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


def reorder_cost(n: int, entries: int, block: int) -> Cost:
    """Of a stage that brings a graph into its order."""
    held = DENSER * -(-entries // n) * block
    return Cost(
        read=44 * entries,
        write=52 * entries,
        disk=32 * entries + 8 * n,
        scratch=28 * entries,
        memory=160 * held,
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
