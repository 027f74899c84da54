"""NN-descent out of core: lists of the nearest cells first, then rounds over all blocks until the target is met.

Rows of high intrinsic dimension have their neighbors in more cells than can be searched, but a neighbor of a neighbor
is likely a neighbor (Dong, Charikar, Li 2011). Lists longer than asked for are what lets the descent go on; they are
lengthened while the measured recall is below its target and the lists have settled.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np

from bigembed.blocks.rows import map_blocks
from bigembed.neighbors.by_metric import by_metric
from bigembed.neighbors.descent_rounds import FOUND, ROWS_BYTES, SEEN, Lists, recall_now, run_round
from bigembed.neighbors.order import Ordered
from bigembed.neighbors.recall import Truth
from bigembed.neighbors.search import asked_block, search_block, search_by_metric, spread_block, write_lists
from bigembed.neighbors.survey import Shape
from bigembed.stages import Context, Cost
from bigembed.store.arrays import read_array

SEED_PROBES = 16
"""Cells that each row is compared with first."""
MORE = 25
"""Entries of a list beyond those asked for, at first."""
LENGTHENED = 2
"""Times that the lists may be made half as long again."""
ROUNDS = 12
SETTLED = 0.03
"""Share of the entries of the lists that a round replaces, below which longer lists are needed."""


def first_length(n: int, k: int) -> int:
    """Entries of the lists at first."""
    return min(n - 1, k + MORE)


def longest(n: int, k: int) -> int:
    """Entries of the lists at most."""
    return min(n - 1, int((k + MORE) * 1.5**LENGTHENED))


def descend(context: Context, ordered: Ordered, shape: Shape, k: int, target: float) -> dict[str, Any]:
    """Find the k nearest rows of every row of all blocks; what a search stage returns."""
    exchange, out, n, by = context.exchange, context.path(""), ordered.starts[-1], by_metric(shape)
    blocks = [(b,) for b in range(len(ordered.blocks))]
    width = first_length(n, k)
    shared: dict[str, Any] = {"ordered": ordered, "exchange": exchange, "out": out}
    probed: dict[str, Any] = {"k": width, "shortlist": context.of("shortlist"), "n_probes": SEED_PROBES, **shared}
    if by is None:
        map_blocks(spread_block, blocks, ordered=ordered, exchange=exchange)
        pairs = map_blocks(search_block, blocks, **probed)
    else:
        pairs = map_blocks(search_by_metric, blocks, by=by, **probed)
    map_blocks(asked_block, blocks, blocks=len(blocks), **shared)
    exchange.drop("cells", "asking")
    lists = Lists(ordered, exchange, 0, shape.row_bytes, by)
    map_blocks(begin_block, blocks, lists=lists, out=out)
    truth = Truth(read_array(context.of("witness", "ids")), read_array(context.of("witness", "neighbors")))
    recall = recall_now(truth, lists)
    context.note(f"NN-descent: recall {recall:.4f} of {SEED_PROBES} cells")
    rounds = 0
    while recall < target and rounds < ROUNDS:
        changed = run_round(lists)
        lists, rounds = lists.next, rounds + 1
        recall = recall_now(truth, lists)
        context.note(
            f"NN-descent: recall {recall:.4f} after round {rounds}, lists of {width}, {100 * changed:.1f} % replaced"
        )
        if changed < SETTLED and recall < target:
            if width == longest(n, k):
                break
            width = min(longest(n, k), width * 3 // 2)
            map_blocks(lengthen_block, blocks, lists=lists, width=width)
    map_blocks(finish_block, blocks, lists=lists, k=k, out=out)
    return {
        "n_neighbors": k,
        "n_probes": context.results("witness")["n_probes"],
        "algorithm": "nn-descent",
        "rounds": rounds,
        "list_length": width,
        "compared_per_row": sum(pairs) / n,
    }


def begin_block(b: int, *, lists: Lists, out: str) -> None:
    """The first lists of a block, as they were found in the cells."""
    ids, squared = read_array(f"{out}neighbors/{b}"), read_array(f"{out}squared/{b}")
    lists.put(b, ids, squared, (ids >= 0).astype(np.uint8))


def lengthen_block(b: int, *, lists: Lists, width: int) -> None:
    """Make room on the lists of a block; all that is on them counts as new."""
    ids, squared = lists.get(b, "ids", "squared")
    more = ((0, 0), (0, width - ids.shape[1]))
    ids = np.pad(ids, more, constant_values=-1)
    lists.put(b, ids, np.pad(squared, more, constant_values=np.inf), (ids >= 0).astype(np.uint8))


def finish_block(b: int, *, lists: Lists, k: int, out: str) -> None:
    """Keep the k first of the lists of a block."""
    ids, squared = lists.get(b, "ids", "squared")
    write_lists(out, b, *(np.ascontiguousarray(part[:, :k]) for part in (ids, squared)))


def held(n: int, row_bytes: int, k: int, block: int) -> int:
    """Bytes that a task holds: rows, lists, candidates as ids and as places, and what it found."""
    width, rows = longest(n, k), min(n * row_bytes, ROWS_BYTES)
    return int(1.25 * rows + (30 + 24) * width * block + 5 * n + 48 * FOUND + 8 * SEEN)


def descent_cost(cells: Cost, shape: Shape, k: int, asked: bool) -> Cost:
    """What a plan counts with: the work of the cells unless NN-descent was ``asked`` for, the memory of either."""
    n, row_bytes, block = shape.n, shape.row_bytes, shape.block
    width, blocks = first_length(n, k), -(-2 * n // block)
    memory = max(cells.memory, held(n, row_bytes, k, block))
    travels = 2 * n * width * 30
    if not asked:
        return replace(cells, memory=memory, scratch=max(cells.scratch, travels))
    rounds = 4
    return replace(
        cells,
        memory=memory,
        scratch=max(cells.scratch, travels),
        read=cells.read + rounds * (blocks * min(n * row_bytes, ROWS_BYTES) + travels),
        write=cells.write + rounds * travels,
        flops=cells.flops + rounds * n * 4 * width**2 * row_bytes / 4,
        scalar_ops=cells.scalar_ops + rounds * n * 2 * width**2,
        maps=cells.maps + 4 * rounds,
    )
