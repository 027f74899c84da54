"""Shortlists: for each cell the nearest cells by center, which its rows may probe."""

from __future__ import annotations

from typing import Any

import numpy as np

from bigembed.blocks.rows import Array, bounds, map_blocks
from bigembed.neighbors.ordering.order import Ordered
from bigembed.neighbors.search.probes import nearest_cells
from bigembed.stages import Context, Cost, Stage
from bigembed.store.arrays.io import read_array, read_rows, write_array
from bigembed.store.blockwise.exchange import Exchange

SHORTLIST = 256
NEAR_BLOCKS = 48
"""Blocks whose cells may come onto a shortlist: bounds its cost, which would grow with the square of n."""

TILE_BLOCKS = 64
"""Blocks whose nearest blocks one task finds."""


def shortlist_stage(n: int, row_bytes: int, cell_size: int) -> Stage:
    """For each cell the nearest cells by center, :data:`SHORTLIST` of them: what its rows may probe."""

    def run(context: Context) -> dict[str, Any]:
        ordered = Ordered.open(context.of("order"))
        leave_near_blocks(ordered, context.exchange)
        write_shortlists(ordered, context.exchange, SHORTLIST, context.path(""))
        return {"length": SHORTLIST}

    cells = -(-n // cell_size)
    cost = Cost(
        read=cells * row_bytes,
        write=8 * SHORTLIST * cells,
        disk=4 * SHORTLIST * cells,
        scratch=cells * row_bytes,
        memory=2 * cells * row_bytes + 64 * SHORTLIST * 512,
    )
    return Stage("shortlist", ("order",), {"length": SHORTLIST, "blocks": NEAR_BLOCKS}, run, cost)


def leave_near_blocks(ordered: Ordered, exchange: Exchange) -> None:
    """Leave the nearest blocks of every block: what :func:`listed_cells` chooses from."""
    tiles = bounds(len(ordered.blocks), TILE_BLOCKS)
    exchange.put("middles", 0, {"every": np.concatenate(map_blocks(middles_of, tiles, ordered=ordered))})
    map_blocks(near_blocks, tiles, exchange=exchange)


def middles_of(first: int, stop: int, *, ordered: Ordered) -> Array:
    """The mean of the cell centers of each of some blocks, (stop − first, d) float64."""
    starts = read_array(f"{ordered.path}/cell_block_starts", first, stop + 1)
    centers = read_array(f"{ordered.path}/cell_centers", int(starts[0]), int(starts[-1])).astype(np.float64)
    return np.add.reduceat(centers, starts[:-1] - starts[0]) / np.diff(starts)[:, None]


def near_blocks(first: int, stop: int, *, exchange: Exchange) -> None:
    """Leave the :data:`NEAR_BLOCKS` blocks nearest to each of some blocks, ascending."""
    middles = exchange.piece("middles", 0, "every")
    for b in range(first, stop):
        gaps = ((middles - middles[b]) ** 2).sum(axis=1)
        near = np.arange(len(gaps))
        if len(gaps) > NEAR_BLOCKS:
            near = np.flatnonzero(gaps <= np.partition(gaps, NEAR_BLOCKS - 1)[NEAR_BLOCKS - 1])
        near = near[np.lexsort((near, gaps[near]))[:NEAR_BLOCKS]]
        exchange.put("near", b, {"blocks": np.sort(near)})


def write_shortlists(ordered: Ordered, exchange: Exchange, length: int, out: str) -> None:
    """Shortlists of a length for the cells of all blocks, after :func:`leave_near_blocks`."""
    blocks = [(b,) for b in range(len(ordered.blocks))]
    map_blocks(shortlist_block, blocks, ordered=ordered, exchange=exchange, length=length, out=out)


def shortlist_block(b: int, *, ordered: Ordered, exchange: Exchange, length: int, out: str) -> None:
    """Shortlists of the cells of one block, (C_b, S) int32."""
    first, stop = read_array(f"{ordered.path}/cell_block_starts", b, b + 2).tolist()
    numbers = listed_cells(b, np.arange(first, stop), ordered, exchange, length)
    write_array(f"{out}shortlist/{b}", numbers.astype(np.int32))


def listed_cells(b: int, cells: Array, ordered: Ordered, exchange: Exchange, length: int) -> Array:
    """Shortlists of some cells (C,) of one block, nearest first: (C, S), S the length, of the cells of the blocks
    nearest to it."""
    first = read_array(f"{ordered.path}/cell_block_starts")
    near = exchange.piece("near", b, "blocks").tolist()
    others = np.concatenate([np.arange(first[block], first[block + 1]) for block in near])
    # (Of many blocks in one place, not all are near: maybe not the block itself.)
    centers = read_rows(f"{ordered.path}/cell_centers", cells)
    near_centers = read_rows(f"{ordered.path}/cell_centers", others)
    return nearest_cells(centers, near_centers, others, min(length, int(first[-1])))
