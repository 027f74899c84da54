"""NN-descent out of core: lists of the nearest cells first, then rounds over all blocks until the target is met.

Rows of high intrinsic dimension have their neighbors in more cells than can be searched, but a neighbor of a neighbor
is likely a neighbor (Dong, Charikar, Li 2011). A round compares, for each row, the first of its list and the nearest
rows that have it among theirs; the next round takes up to twice as many of a list. When many are compared, the lists
are good already, and reject nearly all. How many are needed is seen from the measured recall, which grows with them.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from bigembed.errors import PlanError
from bigembed.neighbors import descent_rounds
from bigembed.neighbors.descent_walk import link_block, walk_memory
from bigembed.neighbors.graph_blocks import id_type, senders_of
from bigembed.neighbors.order import Ordered
from bigembed.neighbors.query import Fitted, Index
from bigembed.neighbors.search import CELLS, NN_DESCENT, TRUTH, Truth, every_block, recall_at
from bigembed.neighbors.search.by_metric import by_metric
from bigembed.neighbors.search.ground_truth import SAMPLE_ROWS
from bigembed.neighbors.survey import Shape
from bigembed.runtime.blocks import Array, map_blocks, owner_of
from bigembed.stages import Context, Cost
from bigembed.store import at, free_bytes, nearest_folder
from bigembed.store.arrays import read_array

SEED_PROBES = 24
"""Cells that each row is compared with first."""
WALK_PROBES = 48
"""Cells that a new row is compared with first."""
SEEDS_BY_PAIRS = 16
"""The same of rows that are compared pair by pair."""
MORE = 25
"""Entries of a list beyond those asked for, where these cells find a good part of the neighbors."""
MORE_BY_PAIRS = 10
"""The same of rows that are compared pair by pair: their cells miss near rows that short lists then find. With any
metric so many beyond k are kept of the first cells, and compared in the first round."""
GOOD = 0.5
"""Where the first cells find less than this part of the target, lists have half as many entries again from the start:
lengthening them later means to begin anew."""
MARGIN = 1.25
"""Times the candidates that would bring the rest of the recall if they brought as much as those before."""
ROUNDS = 12
WALKS = (2, 4, 8, 16)
"""Entries of the lists of new rows that walk, in units of k + 1."""
GAIN = 0.002
"""Recall of new rows that is worth lists of twice the length."""
SETTLED = 0.01
"""Share of the entries of the lists that a round replaces, below which longer lists are needed."""


def first_length(shape: Shape, k: int, share: float) -> int:
    """Entries of the lists at first; ``share``: recall that is expected of the first cells, as part of the target."""
    if share < GOOD and shape.euclidean:
        return min(shape.n - 1, (k + MORE) * 3 // 2)
    return min(shape.n - 1, k + (MORE if shape.euclidean else MORE_BY_PAIRS))


def longest_list(n: int, k: int) -> int:
    """Entries of the lists at most: those of short ones made half as many again, twice."""
    return min(n - 1, int((k + MORE) * 2.25))


def descend(context: Context, ordered: Ordered, shape: Shape, k: int, target: float) -> dict[str, Any]:
    """Find the k nearest rows of every row of all blocks; what a search stage returns."""
    exchange, out, n, by = context.exchange, context.path(""), ordered.starts[-1], by_metric(shape)
    decided = context.results(TRUTH)
    longest, kept_short = decided.get("longest", longest_list(n, k)), False
    require_room(shape, k, decided["why"], exchange.root)
    blocks = [(b,) for b in range(len(ordered.blocks))]
    seeds = SEEDS_BY_PAIRS if by else SEED_PROBES
    expected = read_array(context.of(TRUTH, "recall_by_probes"))[:seeds][-1]
    length = first_length(shape, k, expected / target)
    width = min(length, k + MORE_BY_PAIRS)
    pairs = nearest_cells(context, ordered, shape, width, seeds)
    lists = descent_rounds.Lists(ordered, exchange, 0, shape.row_bytes, by)
    map_blocks(begin_block, blocks, lists=lists, length=length, out=out)
    truth = Truth(read_array(context.of(TRUTH, "ids")), read_array(context.of(TRUTH, "neighbors")))
    recall = descent_rounds.recall_now(truth, lists)
    context.note(f"NN-descent: recall {recall:.4f} of {seeds} cells")
    rounds, measured = 0, [(0, recall)]
    while recall < target and rounds < ROUNDS:
        changed = descent_rounds.run_round(lists, width)
        lists, rounds = lists.next, rounds + 1
        recall = descent_rounds.recall_now(truth, lists)
        measured.append((width, recall))
        context.note(
            f"NN-descent: recall {recall:.4f} after round {rounds}, {width} of lists of {length}, "
            f"{100 * changed:.1f} % replaced"
        )
        if recall >= target or (changed < SETTLED and width == longest):
            break
        slow = width == length < longest_list(n, k) and target - recall > recall - measured[-2][1]
        kept_short = kept_short or (slow and length == longest)
        if slow and length < longest:
            length = min(longest, length * 3 // 2)
            map_blocks(lengthen_block, blocks, lists=lists, length=length)
        else:
            width = next_width(measured, target, length)
    map_blocks(finish_block, blocks, lists=lists, k=k, out=out)
    return {
        "n_neighbors": k,
        **link_lists(context, ordered, shape, k, truth, target, lists.next),
        "algorithm": "nn-descent",
        "rounds": rounds,
        "list_length": length,
        **({"kept_short": True} if kept_short else {}),
        "compared_per_row": pairs / n,
    }


def nearest_cells(context: Context, ordered: Ordered, shape: Shape, k: int, probes: int) -> int:
    """Write the first lists of all blocks, of k rows in a number of cells, and who probes which; the pairs compared."""
    by, blocks = by_metric(shape), [(b,) for b in range(len(ordered.blocks))]
    shared: dict[str, Any] = {"ordered": ordered, "exchange": context.exchange, "out": context.path("")}
    probed: dict[str, Any] = {"k": k, "shortlist": context.of("shortlist"), "n_probes": probes, **shared}
    if by is None:
        map_blocks(every_block.leave_cells_block, blocks, ordered=ordered, exchange=context.exchange)
        found = map_blocks(every_block.search_block, blocks, **probed)
    else:
        found = map_blocks(every_block.search_by_metric, blocks, by=by, **probed)
    pairs = every_block.write_asked(found, **shared)
    context.exchange.drop("cells", "asking")
    return pairs


def link_lists(
    context: Context,
    ordered: Ordered,
    shape: Shape,
    k: int,
    truth: Truth,
    target: float,
    lists: descent_rounds.Lists | None = None,
) -> dict[str, Any]:
    """Link the rows of the finished lists, which are in the exchange or else those that are written, and find how long
    the lists of new rows are that walk along them."""
    out, by, blocks = context.path(""), by_metric(shape), [(b,) for b in range(len(ordered.blocks))]
    if lists is None:
        lists = descent_rounds.Lists(ordered, context.exchange, 0, shape.row_bytes, by)
        map_blocks(begin_block, blocks, lists=lists, length=k, out=out)
    sent = map_blocks(descent_rounds.reverse_block, blocks, lists=lists, width=k)
    map_blocks(link_block, list(enumerate(senders_of(sent))), lists=lists, out=out)
    probes = SEEDS_BY_PAIRS if by else WALK_PROBES
    index = Index(ordered.path, out.rstrip("/"), context.of("shortlist"), "", k, probes, by)
    ((walk, of_new),) = map_blocks(walk_length, [()], index=index, ordered=ordered, truth=truth, target=target)
    context.note(f"new rows walk along the lists with lists of {walk}: recall {of_new:.4f}")
    return {"n_probes": probes, "walk": walk, "recall_of_new_rows": of_new}


def next_width(measured: Sequence[tuple[int, float]], target: float, most: int) -> int:
    """Candidates of the next round, from the candidates and the recall of those before: twice as many, fewer where
    the target is near.

    >>> next_width([(0, 0.3), (25, 0.5)], 0.95, 90), next_width([(25, 0.5), (50, 0.7)], 0.75, 90)
    (50, 58)
    """
    (before, low), (width, high) = measured[-2:]
    more = width
    if before < width and high > low:
        more = min(more, max(width // 8, math.ceil(MARGIN * (target - high) * (width - before) / (high - low))))
    return min(most, width + max(1, more))


def begin_block(b: int, *, lists: descent_rounds.Lists, length: int, out: str) -> None:
    """The first lists of a block, as they were found in the cells, with room up to a length."""
    put_longer(b, read_array(f"{out}neighbors/{b}"), read_array(f"{out}squared/{b}"), lists, length)


def lengthen_block(b: int, *, lists: descent_rounds.Lists, length: int) -> None:
    """Make room on the lists of a block; all that is on them counts as new."""
    ids, squared = lists.get(b, "ids", "squared")
    put_longer(b, ids, squared, lists, length)


def put_longer(b: int, ids: Array, squared: Array, lists: descent_rounds.Lists, length: int) -> None:
    """Leave the lists of a block with room up to a length, all on them as new."""
    more = ((0, 0), (0, length - ids.shape[1]))
    ids = np.pad(ids.astype(lists.ids, copy=False), more, constant_values=-1)
    lists.put(b, ids, np.pad(squared, more, constant_values=np.inf), (ids >= 0).astype(np.uint8))


def finish_block(b: int, *, lists: descent_rounds.Lists, k: int, out: str) -> None:
    """Keep the k first of the lists of a block."""
    ids, squared = (np.ascontiguousarray(part[:, :k]) for part in lists.get(b, "ids", "squared"))
    every_block.write_lists(out, b, ids.astype(np.int64), squared)
    lists.next.put(b, ids, squared, np.zeros(ids.shape, np.uint8))


def walk_length(*, index: Index, ordered: Ordered, truth: Truth, target: float) -> tuple[int, float]:
    """How long the lists of walking rows must be: longer ones are tried on the rows whose neighbors are known, as if
    these were new, until the recall meets the target or grows no more. The length, and that recall."""
    k, best = truth.neighbors.shape[1], (0, 0.0)
    home = owner_of(read_array(f"{ordered.path}/cell_starts"), truth.ids)
    rows = ordered.located_rows(truth.ids)
    for times in WALKS:
        length = min(ordered.starts[-1] - 1, times * (k + 1))
        ids, _ = Fitted(replace(index, walk=length)).near(rows, home, truth.ids)
        recall = float(recall_at(ids[:, :k], truth.neighbors).mean())
        if recall < best[1] + GAIN:
            break
        best = length, recall
        if recall >= target:
            break
    return best


def bytes_held(shape: Shape, k: int) -> int:
    """Bytes that a task holds: lists and who has its rows; or candidates, as ids and as places, with the rows, sparse
    ones twice, and what it found; or lists, with what was found for them; or those of the walk that is measured."""
    width = longest_list(shape.n, k)
    rows = min(shape.n * shape.row_bytes, descent_rounds.ROWS_BYTES)
    value, number = value_bytes(shape), np.dtype(id_type(shape.n)).itemsize
    entries, found = width * shape.largest_block, descent_rounds.found_at_once(descent_rounds.most_candidates(width))
    sent = (2 * number + 9 + 2 * value) * entries  # (lists; places, and what goes to whom)
    received = (3 * number + 9 + value) * entries  # (lists; rows, sources and distances, order, and chosen ones)
    compared = (2 * number + 8) * entries + 5 * shape.n + (2.25 if shape.sparse else 1.25) * rows
    compared += (3 * number + 12 + (4 if shape.euclidean else 6) * value) * found
    compared += 8 * (descent_rounds.SEEN_BY_PRODUCTS if shape.euclidean else descent_rounds.SEEN)
    merged = (number + 2 + value) * entries + (8 + 2 * number + 2 * value) * 3 * found // 2
    walked = walk_memory(shape.n, shape.row_bytes, k, WALKS[-1] * (k + 1), SAMPLE_ROWS)
    walked += shape.largest_block * shape.row_bytes
    return int(max(sent, received, compared, merged, walked))


def value_bytes(shape: Shape) -> int:
    """Bytes of a squared distance."""
    by = by_metric(shape)
    return int(np.dtype(by.dtype if by else shape.dtype).itemsize)


def bytes_exchanged(n: int, width: int, value: int) -> int:
    """Bytes of what goes from block to block in a round, with lists of a width: these, as they were and as they are,
    who has whom, and what was found, up to five entries for each of theirs (4.1 to 4.6 of 10⁶ rows of 128 independent
    columns); ``value``: bytes of a squared distance."""
    number = int(np.dtype(id_type(n)).itemsize)
    return n * width * (2 * (number + value + 1) + 6 * (4 + number + value))


def bytes_on_disk(n: int, k: int, length: int, value: int) -> int:
    """Bytes of the disk that NN-descent takes in addition to the lists that it finds, while its own are so long."""
    return bytes_exchanged(n, length, value) + 12 * n * k


def fitting_length(shape: Shape, k: int, place: str) -> tuple[int, str]:
    """How long lists may get on the disk where exchanges lie, and in words what longer ones would take.

    The longest that are ever made; else those that a search begins with where cells find few neighbors; else 0. How
    much is free is not said, so that the same decision has the same words everywhere."""
    free, lacks = free_at(place), ""
    for length in (longest_list(shape.n, k), first_length(shape, k, 0.0)):
        need = bytes_on_disk(shape.n, k, length, value_bytes(shape))
        if need <= free:
            return length, lacks
        lacks = f"{need >> 20} MiB of disk on the way, more than is free"
    return 0, lacks


def free_at(place: str) -> int:
    """Bytes that are free where exchanges lie."""
    return free_bytes(nearest_folder(at(place)))


def require_room(shape: Shape, k: int, why: str, place: str) -> None:
    """PlanError unless the first lists of NN-descent, as long as they may be, have room where exchanges lie."""
    need, free = bytes_on_disk(shape.n, k, first_length(shape, k, 0.0), value_bytes(shape)), free_at(place)
    if need > free:
        raise PlanError(
            f"neighbors by {NN_DESCENT} ({why}) take {need >> 20} MiB of disk on the way, and {free >> 20} MiB are "
            f"free at {place}. Free some, keep what tasks exchange on a larger disk, lower recall, or give "
            f"algorithm={CELLS!r}"
        )


def descent_cost(cells: Cost, shape: Shape, k: int, asked: bool) -> Cost:
    """What a plan counts with: the work and the disk of the cells unless NN-descent was ``asked`` for, the memory of
    either. Of the disk, what its first lists take: longer ones are made only where there is room. Where it was not
    asked for, whether there is room is seen when sampled rows have shown that it is needed."""
    n, row_bytes, block = shape.n, shape.row_bytes, shape.block
    width, blocks = min(n - 1, k + MORE), -(-2 * n // block)
    cells = replace(cells, memory=max(cells.memory, bytes_held(shape, k)))
    if not asked:
        return cells
    rounds, value, first = 4, value_bytes(shape), first_length(shape, k, 0.0)
    travels = bytes_exchanged(n, width, value)
    return replace(
        cells,
        disk=cells.disk + 12 * n * k,
        scratch=max(cells.scratch, bytes_exchanged(n, first, value)),
        read=cells.read + rounds * (blocks * min(n * row_bytes, descent_rounds.ROWS_BYTES) + travels),
        write=cells.write + rounds * travels,
        flops=cells.flops + rounds * n * 4 * width**2 * row_bytes / 4,
        scalar_ops=cells.scalar_ops + rounds * n * 2 * width**2,
        maps=cells.maps + 4 * rounds,
    )
