"""NN-descent over blocks: rounds in which neighbors of neighbors are compared, whichever blocks they lie in.

The lists of a block, and what it has for the lists of other blocks, travel through the exchange. A task holds one
block of lists, the rows that are candidates of a part of it, at most :data:`ROWS_BYTES` of them, and one full buffer of
what it found. Rejection is by the lists of the round before, and what is found is merged by (squared distance, id): the
lists are the same whatever the tasks run on.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np

from bigembed.blocks.owners import by_owner
from bigembed.blocks.rows import Array, map_blocks
from bigembed.blocks.squared import rounding
from bigembed.neighbors.by_metric import ByMetric
from bigembed.neighbors.exact import empty_lists
from bigembed.neighbors.graph_blocks import senders_of
from bigembed.neighbors.order import Ordered
from bigembed.neighbors.recall import Truth, recall_at
from bigembed.store.exchange import Exchange

ROWS_BYTES = 256 << 20
"""Rows of any blocks that a task holds."""
FEWEST = 1_024
"""Rows whose candidates a task takes at a time, at least."""
FOUND = 1 << 21
"""Entries of a list that a task finds before it hands them on."""
SEEN = 1 << 22
"""Pairs that a task remembers."""
SEEN_BY_PRODUCTS = 1 << 16
"""The same where a pair takes less time to compare than to look up in memory."""
ROOM = 1.1
"""Squared distance of the last entry of a list with room, times which others are taken."""


@dataclass(frozen=True)
class Lists:
    """The lists of all blocks before a round, in the exchange."""

    ordered: Ordered
    exchange: Exchange
    number: int
    row_bytes: int
    """Of a row as it is compared, on average."""
    by: ByMetric | None = None
    """How rows are compared pair by pair; None where their products tell."""

    @property
    def name(self) -> str:
        """Under which the exchange has them."""
        return f"lists{self.number}"

    @property
    def next(self) -> Lists:
        """Those that the round makes."""
        return replace(self, number=self.number + 1)

    def get(self, b: int, *names: str) -> list[Array]:
        """Of one block: ``ids``, ``squared`` and ``fresh`` (n, K), by (squared distance, id); ``reach`` (n,)."""
        return self.exchange.get_many(self.name, b, names)

    def put(self, b: int, ids: Array, squared: Array, fresh: Array) -> None:
        """Leave the lists of a block, and what is rejected by them: squared distances beyond their reach."""
        real = np.count_nonzero(ids >= 0, axis=1)
        last = np.where(real > 0, squared[np.arange(len(ids)), np.maximum(real - 1, 0)], np.inf)
        reach = np.where(real < ids.shape[1], ROOM * last, last).astype(squared.dtype)
        self.exchange.put(self.name, b, {"ids": ids, "squared": squared, "fresh": fresh, "reach": reach})


def run_round(lists: Lists) -> float:
    """One round; the share of the entries of the lists that it replaced."""
    blocks = range(len(lists.ordered.blocks))
    sent = map_blocks(reverse_block, [(b,) for b in blocks], lists=lists)
    parts = map_blocks(join_block, list(enumerate(senders_of(sent))), lists=lists)
    found = [(b, part) for b, count in enumerate(parts) for part in range(count)]
    changed = map_blocks(merge_block, [(b,) for b in blocks], lists=lists, found=found)
    lists.exchange.drop("reversed", "found", lists.name)
    return float(sum(count for count, _ in changed) / sum(entries for _, entries in changed))


def reverse_block(b: int, *, lists: Lists) -> list[int]:
    """Leave with each block who of this block lists which of its rows; returns those blocks."""
    ids, squared, fresh = lists.get(b, "ids", "squared", "fresh")
    real = np.flatnonzero(ids.ravel() >= 0)
    near = ids.ravel()[real]
    marked = 2 * (lists.ordered.starts[b] + real // ids.shape[1]) + fresh.ravel()[real]
    pieces = {}
    for block, at, rows in by_owner(lists.ordered.starts, near):
        pieces[f"row{block}"] = rows.astype(np.int32)
        pieces[f"source{block}"] = marked[at]
        pieces[f"squared{block}"] = squared.ravel()[real[at]]
    lists.exchange.put("reversed", b, pieces)
    return [int(name[3:]) for name in pieces if name.startswith("row")]


def join_block(b: int, senders: list[int], *, lists: Lists) -> int:
    """Compare the candidates of every row of a block; leave what was found, in numbered parts. Returns how many."""
    from bigembed.neighbors import local_join  # imports numba: only here

    ids, squared, fresh = lists.get(b, "ids", "squared", "fresh")
    sources, source_squared = empty_lists(len(ids), ids.shape[1], squared.dtype)
    for sender in senders:
        wanted = [f"row{b}", f"source{b}", f"squared{b}"]
        row, source, value = lists.exchange.get_many("reversed", sender, wanted)
        local_join.nearest_sources(row, source, value, sources, source_squared)
    chosen = np.full((len(ids), 2 * ids.shape[1]), -1, np.int64)
    counts = np.zeros((len(ids), 2), np.int64)
    local_join.candidates(ids, fresh, sources, chosen, counts)
    busy = np.flatnonzero(counts[:, 0])
    part, waiting, mark = 0, [busy] if len(busy) else [], np.zeros(lists.ordered.starts[-1], bool)
    while waiting:
        members = waiting.pop()
        numbers = _distinct(chosen[members], mark)
        if len(numbers) * lists.row_bytes > ROWS_BYTES and len(members) > FEWEST:
            waiting += [members[len(members) // 2 :], members[: len(members) // 2]]
            continue
        for found in _joined(chosen[members], counts[members], numbers, lists):
            lists.exchange.put("found", _part(b, part), found)
            part += 1
    return part


def _distinct(chosen: Array, mark: Array) -> Array:
    """The ids that occur, ascending; ``mark`` (n,) is False before and after."""
    mark[chosen[chosen >= 0]] = True
    numbers = np.flatnonzero(mark)
    mark[numbers] = False
    return numbers


def _part(b: int, part: int) -> int:
    """Number of a part of what a block found."""
    return (b << 16) + part


def _joined(chosen: Array, counts: Array, numbers: Array, lists: Lists) -> Iterator[dict[str, Array]]:
    """What the candidates of some rows, the ids ``numbers``, have for the lists of each block."""
    place = np.zeros(lists.ordered.starts[-1], np.int32)
    place[numbers] = np.arange(len(numbers), dtype=np.int32)
    places = place[chosen]  # (what is missing is not looked at)
    rows, by = lists.ordered.compared_rows(numbers), lists.by
    last = np.empty(len(numbers), rows.dtype if by is None else by.dtype)
    for block, at, inside in by_owner(lists.ordered.starts, numbers):
        last[at] = lists.exchange.piece(lists.name, block, "reach")[inside]
    compared = _by_products if by is None else partial(_by_pairs, by)
    for row, other, squared in compared(places, counts, rows, last):
        pieces = {}
        for block, which, inside in by_owner(lists.ordered.starts, numbers[row]):
            pieces[f"row{block}"] = inside.astype(np.int32)
            pieces[f"id{block}"] = numbers[other[which]]
            pieces[f"squared{block}"] = squared[which]
        yield pieces


def _by_products(places: Array, counts: Array, rows: Array, last: Array) -> Iterator[tuple[Array, Array, Array]]:
    """Rows, candidates for their lists, and squared distances: of dense rows, whose products reject."""
    from bigembed.neighbors import local_join

    row, other, squared = np.empty(FOUND, np.int32), np.empty(FOUND, np.int32), np.empty(FOUND, rows.dtype)
    seen = np.zeros(SEEN_BY_PRODUCTS, np.uint64)
    shrunk = shrunk_by(rows.shape[1], rows.dtype)
    done = 0
    while done < len(places):
        done, found = local_join.join(done, places, counts, rows, last, shrunk, seen, row, other, squared)
        yield row[:found], other[:found], squared[:found]


def shrunk_by(d: int, dtype: np.dtype[Any]) -> float:
    """Factor f with f (‖x‖² + ‖y‖²) − 2 x·y ≤ ‖x − y‖² in spite of all rounding: (‖x‖ + ‖y‖)² ≤ 2 (‖x‖² + ‖y‖²)."""
    return 1 - 2 * rounding(d, dtype) - 16 * float(np.finfo(dtype).eps)


def _by_pairs(
    by: ByMetric, places: Array, counts: Array, rows: Any, last: Array
) -> Iterator[tuple[Array, Array, Array]]:
    """What :func:`_by_products` gives, of rows that are compared pair by pair."""
    from bigembed.neighbors import pair_join

    distances, seen, done = by.of_pairs(rows), np.zeros(SEEN, np.uint64), 0
    a, b = np.empty(FOUND // 2, np.int32), np.empty(FOUND // 2, np.int32)
    row, other, squared = np.empty(FOUND, np.int32), np.empty(FOUND, np.int32), np.empty(FOUND, last.dtype)
    while done < len(places):
        done, pairs = pair_join.unseen(done, places, counts, seen, a, b)
        one, two = a[:pairs], b[:pairs]
        values = distances(one, two, np.maximum(last[one], last[two]))
        found = pair_join.listed(one, two, values, last, row, other, squared)
        yield row[:found], other[:found], squared[:found]


def merge_block(b: int, *, lists: Lists, found: list[tuple[int, int]]) -> tuple[int, int]:
    """Merge what all blocks found into the lists of one; how many entries are new, and how many there are."""
    from bigembed.neighbors import local_join

    before, squared = lists.get(b, "ids", "squared")
    ids = before.copy()
    for block, part in found:
        row, number, value = lists.exchange.find("found", _part(block, part), [f"row{b}", f"id{b}", f"squared{b}"])
        if row is not None and number is not None and value is not None:
            local_join.take(row, number, value, ids, squared)
    fresh = np.zeros(ids.shape, np.uint8)
    count = local_join.unlisted(ids, before, fresh)
    lists.next.put(b, ids, squared, fresh)
    return int(count), ids.size


def recall_now(truth: Truth, lists: Lists) -> float:
    """Recall of the first of the lists, for rows whose true neighbors are known."""
    k, shares = truth.neighbors.shape[1], np.zeros(len(truth.ids))
    for block, at, rows in by_owner(lists.ordered.starts, truth.ids):
        shares[at] = recall_at(lists.get(block, "ids")[0][rows, :k], truth.neighbors[at])
    return float(shares.mean())
