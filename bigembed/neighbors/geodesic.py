"""Shortest paths from many rows to all rows of a graph stored by row blocks, of any size.

Sources near each other form groups of :data:`GROUP`; one task follows one group through the blocks. A **round**
visits every block that has heard something new, at most once, nearest first: Dijkstra inside the block from the
boundary rows that improved, then the boundary rows whose distance fell are sent to the blocks next to it. Rounds are
repeated until no block has news. A block heard before its turn is visited in the same round, so the number of
rounds is that of the returns into a block (a few), where plain relaxation takes as many as the graph has hops.

Distances and messages live in the exchange; a task holds one block of the graph, and GROUP vectors on it. Every round
reads one slot of the distances and writes the other, so a killed round is run again from what it began with.
The distances are those of Dijkstra's algorithm on the whole graph, bit by bit (see :mod:`.dijkstra`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np

from bigembed.neighbors.dijkstra import Dijkstra, LocalGraph, lengths_of, local_graph
from bigembed.rows.passes import refuse_size
from bigembed.runtime.blocks import Array, map_blocks, offsets, owner_of
from bigembed.stages.journal import own_steps
from bigembed.store import AnyPath, at
from bigembed.store.arrays import read_array, read_by_id, write_array
from bigembed.store.exchange import Exchange
from bigembed.store.files import read_sealed, sealed, write_json
from bigembed.store.matrix import BlockMatrix

# ----------------------------------------------------------------------------------------------------------- pairs
# Shortest paths between all rows, for graphs that fit in the memory of a worker.

LEAST, MOST = 2.0**-100, 2.0**120
"""Of the longest of some geodesic distances."""


def whole_graph(matrix: BlockMatrix, *, squared: bool) -> LocalGraph:
    """All blocks as one graph on internal ids: 12 bytes an edge, in this process."""
    starts = offsets(matrix.rows)
    indptr, indices, lengths = [np.zeros(1, np.int64)], [], []
    for b in range(len(matrix.rows)):
        block = matrix.block(b)
        indptr.append(block.indptr[1:] + indptr[-1][-1])
        indices.append(block.ids(b, starts)[block.indices].astype(np.int32))
        lengths.append(lengths_of(block.data, squared=squared))
    return LocalGraph(np.concatenate(indptr), np.concatenate(indices), np.concatenate(lengths), int(starts[-1]))


@lru_cache(maxsize=1)
def cached_graph(matrix: BlockMatrix, squared: bool) -> LocalGraph:
    """The whole graph, opened once in a worker (a stored matrix is known by its digest)."""
    return whole_graph(matrix, squared=squared)


def distances_block(graph: LocalGraph, sources: Array, targets: Array) -> Array:
    """Distances (len(sources), len(targets)) float32; inf where there is no path."""
    paths = Dijkstra(graph)
    out = np.empty((len(sources), len(targets)), np.float32)
    changed = np.empty(graph.own, np.bool_)
    for row, source in zip(out, sources.tolist(), strict=True):
        distances = np.full(graph.own, np.inf)
        paths.improve(distances, changed, np.array([source], np.int32), np.zeros(1))
        row[:] = narrowed(distances[targets])
    return out


def narrowed(distances: Array) -> Array:
    """Distances as float32, in which they are kept; InputError where the longest of them overflows float32.

    >>> narrowed(np.array([1.0, np.inf])).tolist()
    [1.0, inf]
    """
    size = float(np.max(distances, where=np.isfinite(distances), initial=0.0))
    if size and not LEAST <= size <= MOST:
        refuse_size(size, MOST, LEAST, "the geodesic distances, which are kept in float32,")
    return distances.astype(np.float32)


# -------------------------------------------------------------------------------------------------------- geodesic

GROUP = 8
"""Sources that a task follows together: their vectors on a block of 65 536 rows are 4 MiB."""

_NEWS = ("source", "at", "value")
"""Of a distance that fell: position of its source in the group, place among the boundary rows, distance."""

Pending = dict[int, tuple[float, list[int]]]
"""Blocks with news: the smallest distance heard, and the blocks that sent it."""


@dataclass
class Progress:
    """Where one group of sources is between two rounds."""

    pending: Pending
    slots: dict[int, int]
    """Of each block visited so far, the slot that holds its distances."""
    rounds: int = 0
    visits: int = 0
    settled: int = 0


def shortest_paths(
    matrix: BlockMatrix,
    sources: Array,
    exchange: Exchange,
    *,
    squared: bool = True,
    note: Callable[[str], None] | None = None,
) -> dict[str, Any]:
    """Distances from ``sources`` (internal ids, (L,)) to all rows, left in the exchange: see :func:`found_distances`.

    ``matrix`` holds lengths, or ``squared`` lengths, ≥ 0; a stored 0 joins two rows at distance 0. Rows that cannot be
    reached are at inf. After a kill the same call goes on from the groups that are done with a round.

    Returns ``rounds`` (of the group that took most), ``visits`` of a block by a group, ``settled`` rows, ``groups``.
    Cost: about two visits of each block by each group, of which each reads the block of the graph once.
    """
    starts = offsets(matrix.rows)
    groups = list(groups_of(sources))
    blocks = [(b,) for b in range(len(matrix.rows))]
    with own_steps(f"{exchange.root}/rounds") as step:
        if not _file(exchange).exists():
            with step("graph"):
                map_blocks(border_block, blocks, matrix=matrix, exchange=exchange, squared=squared)
                map_blocks(open_block, blocks, matrix=matrix, exchange=exchange, squared=squared)
            _save(exchange, _first(sources, starts))
        progress = _load(exchange)
        while active := [g for g, state in enumerate(progress) if state.pending]:
            with step([vars(state) for state in progress]):
                found = map_blocks(
                    round_block,
                    [(g, progress[g]) for g in active],
                    matrix=matrix,
                    groups=groups,
                    starts=starts,
                    exchange=exchange,
                )
            for g, state in zip(active, found, strict=True):
                progress[g] = Progress(**state)
            _save(exchange, progress)
            if note is not None:
                waiting = sum(len(state.pending) for state in progress)
                note(f"round {max(state.rounds for state in progress)}: {waiting} visits of a block are left")
    return {
        "sources": len(sources),
        "groups": len(groups),
        "blocks": len(matrix.rows),
        "rounds": max((state.rounds for state in progress), default=0),
        "visits": sum(state.visits for state in progress),
        "settled": sum(state.settled for state in progress),
    }


def groups_of(sources: Array) -> Iterator[Array]:
    """The positions of the sources in groups: in the order of internal ids, so that a group lies together."""
    order = np.argsort(sources, kind="stable")
    for start in range(0, len(order), GROUP):
        yield np.asarray([(int(k), int(sources[k])) for k in order[start : start + GROUP]])


def _first(sources: Array, starts: Array) -> list[Progress]:
    """Before the first round: the blocks that hold a source have news."""
    return [
        Progress({int(b): (0.0, []) for b in np.unique(owner_of(starts, group[:, 1]))}, {})
        for group in groups_of(sources)
    ]


def _file(exchange: Exchange) -> AnyPath:
    return at(exchange.root) / "rounds.json"


def _save(exchange: Exchange, progress: Sequence[Progress]) -> None:
    write_json(_file(exchange), sealed({"groups": [vars(state) for state in progress]}))


def _load(exchange: Exchange) -> list[Progress]:
    return [
        Progress(
            {int(b): (value, senders) for b, (value, senders) in kept["pending"].items()},
            {int(b): slot for b, slot in kept["slots"].items()},
            kept["rounds"],
            kept["visits"],
            kept["settled"],
        )
        for kept in read_sealed(_file(exchange))["groups"]
    ]


# --- a graph for each block: its own edges, and those of the rows next to it -------------------------------


def border_block(b: int, *, matrix: BlockMatrix, exchange: Exchange, squared: bool) -> None:
    """Leave each block that needs rows of this one the edges between these rows: (place, place, length)."""
    block = matrix.block(b)
    own = len(block.indptr) - 1
    lengths = lengths_of(block.data, squared=squared)
    row = block.row
    pieces: dict[str, Array] = {}
    place = np.full(own + len(block.halo_rows), -1, np.int32)
    for destination, rows in matrix.outbox(b):
        place[rows] = np.arange(len(rows), dtype=np.int32)
        inside = np.flatnonzero((place[row] >= 0) & (place[block.indices] >= 0))
        pieces |= {
            f"from{destination}": place[row[inside]],
            f"to{destination}": place[block.indices[inside]],
            f"length{destination}": lengths[inside],
        }
        place[rows] = -1
    exchange.put("border", b, pieces)


def open_block(b: int, *, matrix: BlockMatrix, exchange: Exchange, squared: bool) -> None:
    """Leave the block's :class:`LocalGraph`, and where the halo entries of each source begin."""
    block = matrix.block(b)
    parts = []
    for source, first in zip(block.halo_sources.tolist(), block.halo_offsets.tolist(), strict=False):
        start, stop, length = exchange.get_many("border", source, [f"{name}{b}" for name in ("from", "to", "length")])
        parts.append((start + first, stop + first, length))
    between = tuple(np.concatenate(part) for part in zip(*parts, strict=True)) if parts else None
    graph = local_graph(block, squared=squared, between=between)  # type: ignore[arg-type]
    exchange.put(
        "graph",
        b,
        {
            "indptr": graph.indptr,
            "indices": graph.indices,
            "lengths": graph.lengths,
            "sources": block.halo_sources,
            "first": block.halo_offsets[:-1] + graph.own,
        },
    )


def _opened(
    matrix: BlockMatrix, exchange: Exchange, b: int
) -> tuple[Dijkstra, dict[int, int], list[tuple[int, Array]]]:
    """A block ready for Dijkstra, the node at which the rows of each source block begin, and who needs which rows."""
    indptr, indices, lengths, sources, first = exchange.get_many(
        "graph", b, ("indptr", "indices", "lengths", "sources", "first")
    )
    graph = LocalGraph(indptr, indices, lengths, matrix.rows[b])
    return Dijkstra(graph), dict(zip(sources.tolist(), first.tolist(), strict=True)), matrix.outbox(b)


# --- rounds ------------------------------------------------------------------------------------------------


def round_block(
    g: int, state: Progress, *, matrix: BlockMatrix, groups: list[Array], starts: Array, exchange: Exchange
) -> dict[str, Any]:
    """One round of one group: every block with news once, nearest first; the news it leaves are of the next round.

    Returns the fields of the next :class:`Progress`.
    """
    number = state.rounds + 1
    now, later = dict(state.pending), dict[int, tuple[float, list[tuple[int, int]]]]()
    inbox = {b: (value, [(sender, state.rounds) for sender in senders]) for b, (value, senders) in now.items()}
    slots, visits, settled = dict(state.slots), 0, 0
    visited: set[int] = set()
    while inbox:
        b = min(inbox, key=lambda block: (inbox[block][0], block))
        _, senders = inbox.pop(b)
        sent, count = _visit(b, g, senders, slots.get(b, -1), matrix, groups[g], starts, exchange, number)
        slots[b] = _other(slots.get(b, -1))
        visited.add(b)
        visits, settled = visits + 1, settled + count
        for destination, nearest in sent:
            box = later if destination in visited else inbox
            value, known = box.get(destination, (np.inf, []))
            box[destination] = (min(value, nearest), [*known, (b, number)])
    pending = {b: (value, [sender for sender, _ in senders]) for b, (value, senders) in sorted(later.items())}
    return vars(Progress(pending, slots, number, state.visits + visits, state.settled + settled))


def _other(slot: int) -> int:
    return 1 - slot if slot >= 0 else 0


def _visit(
    b: int,
    g: int,
    senders: list[tuple[int, int]],
    slot: int,
    matrix: BlockMatrix,
    group: Array,
    starts: Array,
    exchange: Exchange,
    number: int,
) -> tuple[list[tuple[int, float]], int]:
    """Take the news of one block in; the blocks that hear of it, each with the smallest distance, and rows settled."""
    paths, first, outbox = _opened(matrix, exchange, b)
    if slot < 0:
        distances = np.full((len(group), paths.graph.own), np.inf)
        mine = np.flatnonzero((group[:, 1] >= starts[b]) & (group[:, 1] < starts[b + 1]))
        news = [(mine, group[mine, 1] - starts[b], np.zeros(len(mine)))]
    else:
        [distances] = exchange.get_many(f"distances{g}.{slot}", b, ["own"])
        news = []
    for sender, when in senders:
        source, at, value = exchange.get_many(f"sent{g}.{when % 2}", sender, [f"{name}{b}" for name in _NEWS])
        news.append((source, at + first[sender], value))
    changed = np.zeros(distances.shape, np.bool_)
    settled = 0
    for k in range(len(group)):
        nodes = np.concatenate([node[source == k] for source, node, _ in news]).astype(np.int32)
        values = np.concatenate([value[source == k] for source, _, value in news])
        if len(nodes):
            settled += paths.improve(distances[k], changed[k], nodes, values)
    exchange.put(f"distances{g}.{_other(slot)}", b, {"own": distances})
    sent: list[tuple[int, float]] = []
    pieces: dict[str, Array] = {}
    for destination, boundary in outbox:
        source, at = np.nonzero(changed[:, boundary])
        if len(source):
            fallen = distances[source, boundary[at]]
            parts = (source.astype(np.int32), at.astype(np.int32), fallen)
            pieces |= {f"{name}{destination}": part for name, part in zip(_NEWS, parts, strict=True)}
            sent.append((destination, float(fallen.min())))
    exchange.put(f"sent{g}.{number % 2}", b, pieces)
    return sent, settled


# --- what is kept --------------------------------------------------------------------------------


def keep_distances(rows: Sequence[int], sources: Array, exchange: Exchange, out: str) -> Array:
    """Write ``distances/b`` (rows of the block, L) float32, and return those between the sources (L, L) float64."""
    parts = map_blocks(
        keep_block,
        list(enumerate(found_slots(len(rows), exchange))),
        sources=np.asarray(sources),
        starts=offsets(rows),
        exchange=exchange,
        out=out,
    )
    between = np.empty((len(sources), len(sources)))
    for columns, distances in parts:
        between[:, columns] = distances
    return (between + between.T) / 2


def keep_block(
    b: int, slots: list[int | None], *, sources: Array, starts: Array, exchange: Exchange, out: str
) -> tuple[Array, Array]:
    """The distances of one block from every source; the sources it holds, and their distances from every source."""
    own = np.flatnonzero((sources >= starts[b]) & (sources < starts[b + 1]))
    kept = np.empty((int(starts[b + 1] - starts[b]), len(sources)), np.float32)
    between = np.empty((len(sources), len(own)))
    groups = list(groups_of(sources))
    for group, distances in zip(groups, found_distances(b, slots, groups, len(kept), exchange), strict=True):
        kept[:, group[:, 0]] = narrowed(distances).T
        between[group[:, 0]] = distances[:, sources[own] - starts[b]]
    write_array(f"{out}distances/{b}", kept)
    return own, between


def found_slots(blocks: int, exchange: Exchange) -> list[list[int | None]]:
    """After :func:`shortest_paths`: the slots that hold the distances of each block, group by group; None of a group
    that did not reach it. One file says it of all blocks, so it is read here, once, not by the task of each block."""
    progress = _load(exchange)
    return [[state.slots.get(b) for state in progress] for b in range(blocks)]


def found_distances(
    b: int, slots: Sequence[int | None], groups: list[Array], rows: int, exchange: Exchange
) -> Iterator[Array]:
    """Distances (sources of the group, rows) of block b, float64, group by group, from its ``slots``."""
    for g, slot in enumerate(slots):
        found = None if slot is None else exchange.get(f"distances{g}.{slot}", b, "own")
        yield np.full((len(groups[g]), rows), np.inf) if found is None else found


@dataclass(frozen=True)
class KeptDistances:
    """A handle of the distances (n, L) that :func:`keep_distances` wrote, opened in a task."""

    path: str
    starts: tuple[int, ...]
    """First internal id of each block, and n."""

    def block(self, b: int) -> Array:
        """Distances of the rows of a block (rows, L)."""
        return read_array(f"{self.path}/distances/{b}")

    def rows(self, ids: Array) -> Array:
        """Distances (len(ids), L) of rows given by internal id."""
        return read_by_id(f"{self.path}/distances", self.starts, ids)
