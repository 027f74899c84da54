"""PaCMAP: near, mid-near and further pairs of rows, and a descent in three phases.

The pairs are here: near ones along the edges of a graph, mid-near and further ones among rows that are drawn.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np

from bigembed.estimator.graph_input import GraphShape
from bigembed.neighbors.graph_blocks import graph_arrays, outbox_block, senders_of
from bigembed.neighbors.order import Ordered
from bigembed.neighbors.search.by_metric import ByMetric
from bigembed.runtime.blocks import Array, bounds, by_owner, map_blocks, offsets
from bigembed.stages import ArraySpec, Context, Cost, Stage, largest
from bigembed.store.arrays import read_array, write_array
from bigembed.store.exchange import Exchange
from bigembed.store.matrix import CSRBlock, StoredMatrix, halo_of, write_structure, write_values
from bigembed.store.parcels import row_parts, rows_of_parts, stacked
from bigembed.store.spaces import StoredSpace

STREAM = 43
"""Of random numbers."""
MIDDLE, FURTHER, PLACED = range(3)
"""What they are for."""
POOL = 50_000
"""Rows that pairs are drawn from, about: numbers of 16 bits, points that fit into a processor's cache. Up to here all
rows are."""


def pool_rows(b: int, rows: Sequence[int], seed: int) -> Array | slice:
    """Return the rows of block b that pairs are drawn from; ``rows`` are the rows of each block.

    >>> pool_rows(0, [3, 4], 0), len(pool_rows(1, [30_000, 70_000], 0))
    (slice(None, None, None), 35000)
    """
    n = sum(rows)
    if n <= POOL:
        return slice(None)
    share = max(1, round(POOL * rows[b] / n))
    return np.sort(np.random.default_rng([seed, STREAM, b]).choice(rows[b], share, replace=False, shuffle=False))


def pool_sizes(rows: Sequence[int]) -> list[int]:
    """Return how many rows of each block :func:`pool_rows` gives.

    >>> pool_sizes([3, 4]), pool_sizes([30_000, 70_000])
    ([3, 4], [15000, 35000])
    """
    n = sum(rows)
    return list(rows) if n <= POOL else [max(1, round(POOL * count / n)) for count in rows]


def key_of(seed: int, use: int) -> int:
    """Return what the random numbers for a use follow from: 63 bits."""
    return int(np.random.SeedSequence([seed, STREAM, use]).generate_state(1, np.uint64)[0] >> np.uint64(1))


# ------------------------------------------------------------------------------------------------------------ near
# A graph of its own: the edges that one or both of their ends chose, without all others.


def near_stage(graph: GraphShape, edges: int, count: int) -> Stage:
    """``kernel/weights`` on the graph of the near pairs, and its structure: how many ends chose each edge."""
    n, block = graph.n, min(graph.block, graph.n)
    of_block = -(-edges // n) * block
    cost = Cost.of(
        reads=[ArraySpec("edges", edges, 3, times=1.5)],
        writes=graph_arrays(n, min(edges, 2 * n * count), "weights"),
        leaves=[ArraySpec("scales of the rows and of the halo", n, 8, times=2), ArraySpec("halo", n)],
        task=[ArraySpec("edges", of_block, 5), ArraySpec("scales", 2 * block, 8, times=2)],
        passes=3,
        scalar_ops=4 * edges,
        maps=4,
    )
    inputs = ("order", "graph") if graph.dense else ("graph", "search")
    return Stage("kernel", inputs, {"pairs": count}, partial(run_near, graph=graph, count=count), cost)


def run_near(context: Context, graph: GraphShape, count: int) -> dict[str, Any]:
    given = context.home.matrix("graph", "squared")
    space, out = StoredSpace(given, context.exchange), context.path("")
    starts = read_array(context.of("graph", "starts"))
    lists = "" if graph.dense else context.of("search")
    space.sweep(size_block, writes=["size"], posts=["size"], arguments=(given, starts, lists))
    limited: dict[str, Any] = {"writes": ["limit"], "posts": ["limit"], "arguments": (given, starts, count)}
    space.sweep(limit_block, reads=["size"], halos=["size"], **limited)
    shared = given, starts, context.exchange, out
    found = space.sweep(near_block, reads=["limit"], halos=["limit"], arguments=shared)
    askers = senders_of([sources for sources, _, _ in found])
    map_blocks(outbox_block, list(enumerate(askers)), exchange=context.exchange, out=out)
    write_array(context.path("starts"), starts)
    kept, chosen = (sum(part[at] for part in found) for at in (1, 2))
    return {"rows": list(given.rows), "edges": kept, "n_neighbors": count, "chosen": chosen}


def size_block(b: int, distances: StoredMatrix, starts: Array, lists: str) -> tuple[tuple[Array], None]:
    """Return reach, last neighbor and σ of each row; ``lists``: where they are, empty where they have all rows."""
    from bigembed.maps.pacmap.compiled import sizes  # imports numba: only here

    block = distances.block(b)
    reach = np.full(distances.rows[b], np.inf)
    last = reach.copy()
    if lists:
        reach = read_array(f"{lists}/rho_squared/{b}").astype(np.float64)
        last = read_array(f"{lists}/kappa/{b}").astype(np.float64)
    return (sizes(block.indptr, block.indices, block.data, block.ids(b, starts), reach, last),), None


def limit_block(
    b: int, size: Array, halo: Array, distances: StoredMatrix, starts: Array, count: int
) -> tuple[tuple[Array], None]:
    """Return what the near pairs of each row are told by."""
    from bigembed.maps.pacmap.compiled import limits

    block = distances.block(b)
    scale = np.concatenate([size, halo])
    return (limits(block.indptr, block.indices, block.data, block.ids(b, starts), scale, count),), None


def near_block(
    b: int, limit: Array, halo: Array, distances: StoredMatrix, starts: Array, exchange: Exchange, out: str
) -> tuple[tuple[()], tuple[list[int], int, int]]:
    """Write the near pairs of one block, and ask other blocks for its halo; of whom, how many, and chosen how often."""
    from bigembed.maps.pacmap.compiled import chosen

    block = distances.block(b)
    ids = block.ids(b, starts)
    weights = chosen(block.indptr, block.indices, block.data, ids, np.concatenate([limit, halo]))
    kept = kept_entries(block, weights, ids, starts)
    write_structure(out, b, kept)
    write_values(f"{out}weights", b, kept.data)
    exchange.put("wanted", b, {str(source): rows for source, rows in kept.segments()})
    return (), (kept.halo_sources.tolist(), len(kept.data), int(kept.data.sum(dtype=np.float64)))


def kept_entries(block: CSRBlock, weights: Array, ids: Array, starts: Array) -> CSRBlock:
    """Return the entries of a block that have a weight, with the halo that they need; ``ids`` of its columns."""
    rows, keep = len(block.indptr) - 1, weights > 0
    before = np.concatenate([[0], np.cumsum(keep)])
    columns = block.indices[keep]
    far = np.unique(columns[columns >= rows])
    local = columns.copy()
    local[columns >= rows] = rows + np.searchsorted(far, columns[columns >= rows])
    return CSRBlock(before[block.indptr], local, weights[keep], *halo_of(starts, ids[far]))


# ----------------------------------------------------------------------------------------------------------- drawn
# A pair moves both of its ends. Where the pool has all rows, a row knows who drew it: what a block draws is turned
# round and left for the blocks of the rows that were drawn. Where the pool is a sample, a row draws twice as many.


@dataclass(frozen=True)
class Drawing:
    """How many pairs a row draws, and by what."""

    mid: int
    far: int
    seed: int

    def times(self, rows: Sequence[int]) -> int:
        """Return how many times as many a row draws; ``rows`` of the blocks."""
        return 1 if sum(rows) <= POOL else 2


def drawn_stage(graph: GraphShape, drawing: Drawing) -> Stage:
    """``pairs/mid`` and ``pairs/far`` by blocks of the graph: numbers of rows of the pool, by ``pairs/*_starts``."""
    n, block, size = graph.n, min(graph.n, graph.block), min(graph.n, POOL)
    candidates, count = 6 * drawing.mid * (1 if n <= POOL else 2), 2 * (drawing.mid + drawing.far)
    widths = (("mid/*", 2 * drawing.mid), ("far/*", 2 * drawing.far))
    rows = ArraySpec("rows", block, graph.row_bytes, "u1", 3)
    held = [ArraySpec("rows of the pool", min(size, block), graph.row_bytes, "u1", 3)]
    held += [ArraySpec("candidates and their distances", block, 10 * candidates, "u1")]
    if graph.by is not None:
        held.append(ArraySpec("pairs", block, 40 * candidates, "u1"))
    joined = [ArraySpec("pairs of a block", block, 40 * count, "u1")]
    blocks, drawn = -(-n // block), ArraySpec("rows of the pool", size, graph.row_bytes, "u1")
    lists = [ArraySpec(name, n * width, dtype="u2") for name, width in widths]
    starts = [ArraySpec(f"{name}_starts/*", n + blocks, dtype="i4") for name in ("mid", "far")]
    cost = Cost.of(
        reads=[ArraySpec("rows", n, graph.row_bytes, "u1", 2), replace(drawn, times=blocks + 1)],
        writes=[*lists, *starts],
        leaves=[replace(drawn, times=2), ArraySpec("pairs turned round", n, 4 * count, "u1")],
        task=largest([rows, *held], joined),
        passes=1,
        flops=0 if graph.by else 3 * n * candidates * graph.width,
        terms=n * candidates * (graph.by.every if graph.by else 0.0),
        scalar_ops=n * (candidates + count),
        maps=4,
    )
    parameters = {"mid": drawing.mid, "far": drawing.far, "seed": drawing.seed}
    run = partial(run_drawn, by=graph.by, drawing=drawing)
    return Stage("pairs", ("kernel", "order"), parameters, run, cost)


def run_drawn(context: Context, by: ByMetric | None, drawing: Drawing) -> dict[str, Any]:
    ordered, rows = Ordered.open(context.of("order")), tuple(context.results("kernel")["rows"])
    blocks = [(b,) for b in range(len(rows))]
    fixed: dict[str, Any] = {"ordered": ordered, "exchange": context.exchange, "drawing": drawing}
    if drawing.mid:
        map_blocks(leave_block, blocks, by=by, **fixed)
        pieces = [(number, *span) for number, span in enumerate(pool_pieces(ordered.rows_of))]
        map_blocks(join_pool, pieces, ordered=ordered, exchange=context.exchange)
    near = context.home.matrix("kernel", "weights")
    sent = map_blocks(draw_block, blocks, near=near, by=by, **fixed)
    map_blocks(join_block, list(enumerate(senders_of(sent))), out=context.path(""), **fixed)
    return {"pool": sum(pool_sizes(rows))}


def leave_block(b: int, *, ordered: Ordered, exchange: Exchange, drawing: Drawing, by: ByMetric | None) -> None:
    """Leave the rows of a block that pairs are drawn from."""
    exchange.put("drawn", b, row_parts(compared(b, ordered, by)[pool_rows(b, ordered.rows_of, drawing.seed)]))


def pool_pieces(rows: Sequence[int]) -> list[tuple[int, int]]:
    """Return first and one past the last row of each piece of the pool, no larger than a block; ``rows`` of each block.

    >>> pool_pieces([3, 4]), pool_pieces([30_000, 70_000])
    ([(0, 4), (4, 7)], [(0, 50000)])
    """
    return bounds(sum(pool_sizes(rows)), max(rows))


def join_pool(piece: int, start: int, stop: int, *, ordered: Ordered, exchange: Exchange) -> None:
    """Join the rows ``start:stop`` of the pool: the task of each block would open what all blocks left."""
    left = by_owner(offsets(pool_sizes(ordered.rows_of)), np.arange(start, stop))
    parts = [rows_of_parts(exchange.get_all("drawn", b), ordered.columns)[rows] for b, _, rows in left]
    exchange.put("pool", piece, row_parts(stacked(parts)))


def compared(b: int, ordered: Ordered, by: ByMetric | None) -> Any:
    """Return the rows of a block as distances are taken of them."""
    return ordered.rows(b) if by is None else ordered.compared(b)


def draw_block(
    b: int, *, ordered: Ordered, exchange: Exchange, drawing: Drawing, by: ByMetric | None, near: StoredMatrix
) -> list[int]:
    """Draw the mid-near and the further pairs of the rows of a block, and leave them; return for which blocks."""
    from bigembed.maps.pacmap.compiled import CANDIDATES, draw_candidates, draw_further, second_nearest

    starts, sizes = ordered.starts, pool_sizes(ordered.rows_of)
    count, pool, times = ordered.size(b), sum(sizes), drawing.times(ordered.rows_of)
    own = starts[b] if times == 1 else -1
    block = near.block(b)
    far = np.empty((count, times * drawing.far), np.uint16)
    numbers = block.ids(b, starts)[block.indices]
    draw_further(key_of(drawing.seed, FURTHER), starts[b], own, block.indptr, numbers, pool, far)
    mid = np.empty((count, times * drawing.mid), np.uint16)
    if drawing.mid:
        candidates = np.empty((count, times * drawing.mid, max(1, min(CANDIDATES, pool - 1))), np.uint16)
        draw_candidates(key_of(drawing.seed, MIDDLE), starts[b], own, count, pool, candidates)
        squared = candidate_distances(b, candidates, ordered, exchange, sizes, by)
        mid = second_nearest(candidates, squared)
    pieces = {"mid": mid, "far": far}
    if times == 1:
        for name, drawn in (("mid", mid), ("far", far)):
            for block_of, at, rows in by_owner(starts, drawn.ravel().astype(np.int64)):
                source = (at // max(1, drawn.shape[1]) + starts[b]).astype(np.uint16)
                pieces[f"{name}-{block_of}"] = np.stack([rows.astype(np.uint16), source])
    exchange.put("pairs", b, pieces)
    return sorted({int(name.partition("-")[2]) for name in pieces if "-" in name})


def join_block(b: int, senders: list[int], *, ordered: Ordered, exchange: Exchange, drawing: Drawing, out: str) -> None:
    """Write the pairs of the rows of a block: those that they drew, then those that drew them, by their numbers."""
    for name in ("mid", "far"):
        own = exchange.piece("pairs", b, name)
        count, width = own.shape
        row, partner = np.repeat(np.arange(count), width), own.ravel()
        if senders:
            turned = [exchange.get("pairs", sender, f"{name}-{b}") for sender in senders]
            found = np.concatenate([np.zeros((2, 0), np.uint16), *(one for one in turned if one is not None)], axis=1)
            row, partner = np.concatenate([row, found[0]]), np.concatenate([partner, found[1]])
            order = np.argsort(row, kind="stable")
            row, partner = row[order], partner[order]
        write_array(f"{out}{name}_starts/{b}", offsets(np.bincount(row, minlength=count)).astype(np.int32))
        write_array(f"{out}{name}/{b}", partner)


def candidate_distances(
    b: int, candidates: Array, ordered: Ordered, exchange: Exchange, sizes: list[int], by: ByMetric | None
) -> Array:
    """Return the squared distances from the rows of a block to their candidates, by one piece of the pool each."""
    from bigembed.maps.pacmap.compiled import compare

    rows, before = compared(b, ordered, by), sum(sizes[:b])
    squared = np.empty(candidates.shape, rows.dtype if by is None else by.dtype)
    for piece, (first, _) in enumerate(pool_pieces(ordered.rows_of)):
        drawn = rows_of_parts(exchange.get_all("pool", piece), ordered.columns)
        if by is None:
            compare(np.ascontiguousarray(rows), np.ascontiguousarray(drawn), first, candidates, squared)
        else:
            compare_by(by, rows, drawn, first, before, candidates, squared)
    return squared


PAIRS = 1 << 20
"""Pairs that are compared by a metric at a time."""


def compare_by(by: ByMetric, rows: Any, drawn: Any, first: int, before: int, candidates: Array, squared: Array) -> None:
    """Do as :func:`~bigembed.maps.pacmap.compiled.compare` by a metric, which may tell which row comes first: the first
    ``before`` rows of the pool have lower ids than the ``rows``."""
    count, lower = rows.shape[0], min(max(before - first, 0), drawn.shape[0])
    whole = stacked([drawn[:lower], rows, drawn[lower:]])
    pairs, flat, values = by.of_pairs(whole), candidates.reshape(len(candidates), -1), squared.reshape(len(squared), -1)
    for start, stop in bounds(len(flat), max(1, PAIRS // flat.shape[1])):
        at = flat[start:stop].astype(np.int64) - first
        row, place = np.nonzero((at >= 0) & (at < drawn.shape[0]))
        mine, theirs = row + start + lower, at[row, place]
        theirs += np.where(theirs < lower, 0, count)
        found = pairs(np.minimum(mine, theirs), np.maximum(mine, theirs), np.full(len(row), np.inf, by.dtype))
        values[row + start, place] = found
