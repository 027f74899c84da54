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

from bigembed.distance import rounding
from bigembed.neighbors.graph_blocks import concatenated, id_type, senders_of
from bigembed.neighbors.order import Ordered
from bigembed.neighbors.search import Truth, recall_at
from bigembed.neighbors.search.by_metric import ByMetric
from bigembed.runtime import once
from bigembed.runtime.blocks import Array, by_owner, map_blocks
from bigembed.store.exchange import Exchange

ROWS_BYTES = 128 << 20
"""Bytes of rows, of any blocks, that a task holds."""
FEWEST = 256
"""Rows whose candidates a task takes at a time, at least."""
CANDIDATES = 1_000
"""Candidates of a row at most, where lists are short: the first of its list, and the nearest of the rows that list it.
In many dimensions some rows are on very many lists, and most neighbors are found among the rows that list them: with
only as many of these as of the list itself, 10⁵ rows of 64 dimensions took twice the time to a recall of .95."""
FOUND = 1 << 21
"""Entries of a list that a task finds before it hands them on, at least."""
SEEN = 1 << 22
"""Pairs that a task remembers."""
SEEN_BY_PRODUCTS = 1 << 16
"""The same where a pair takes less time to compare than to look up in memory."""
ROOM = 1.1
"""A list with room and few entries takes others up to at least this many times the squared distance of its last one."""
TELLING = 8
"""Entries from which on a list tells how far away those are that it lacks."""


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
    def ids(self) -> Any:
        """Type of the ids of rows."""
        return id_type(self.ordered.starts[-1])

    @property
    def next(self) -> Lists:
        """Those that the round makes."""
        return replace(self, number=self.number + 1)

    def get(self, b: int, *names: str) -> list[Array]:
        """Of one block: ``ids``, ``squared`` and ``fresh`` (n, K), by (squared distance, id); ``reach`` (n,)."""
        return self.exchange.get_many(self.name, b, names)

    def put(self, b: int, ids: Array, squared: Array, fresh: Array) -> None:
        """Leave the lists of a block, and what is rejected by them: squared distances beyond their reach."""
        reach = reach_of(np.count_nonzero(ids >= 0, axis=1), squared)
        self.exchange.put(self.name, b, {"ids": ids, "squared": squared, "fresh": fresh, "reach": reach})


def reach_of(real: Array, squared: Array) -> Array:
    """Squared distances beyond which lists (n, L) with ``real`` (n,) entries take nothing.

    For a full list, that of its last entry. For a list with room, that of the last entry times its ratio to the entry
    of half its rank: about twice as many rows are then within reach. A few entries tell little (:data:`ROOM`).

    >>> reach_of(np.array([4, 3, 1]), np.array([[1.0, 2, 3, 4], [1, 2, 3, np.inf], [1, np.inf, np.inf, np.inf]]))
    array([4. , 4.5, 1.1])
    """
    n, width = squared.shape
    last, half = (squared[np.arange(n), np.maximum(rank, 0)] for rank in (real - 1, (real - 1) // 2))
    with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
        growth = np.where(half > 0, last / half, ROOM)
        beyond = last * np.where(real < TELLING, np.maximum(growth, ROOM), growth)
    reach = np.where(real < width, np.where(last > 0, beyond, last), last)
    return np.where(real > 0, reach, np.inf).astype(squared.dtype)


def most_candidates(width: int) -> int:
    """Of a row: the ``width`` first of its list, and as many others, or more up to :data:`CANDIDATES` in all."""
    return max(CANDIDATES, 2 * width)


def found_at_once(candidates: int) -> int:
    """Entries of a list that a task finds before it hands them on, where rows have up to so many candidates: every two
    of these may be on the list of either."""
    return max(FOUND, 2 * candidates**2)


@dataclass(frozen=True)
class Found:
    """Which parts of what was found have something for which blocks: a bit for each pair, since of rows without
    structure every part may have something for every block."""

    numbers: Array
    """Under which the exchange has the parts."""
    receivers: Array
    """(parts, blocks / 8) uint8: of each part what :func:`bits_of` gives."""

    def parts(self, b: int) -> list[int]:
        """The numbers of the parts that have something for a block."""
        found: list[int] = self.numbers[(self.receivers[:, b // 8] & (128 >> b % 8)) > 0].tolist()
        return found


def bits_of(receivers: Array, blocks: int) -> Array:
    """A bit for each block, set for the receivers.

    >>> bits_of(np.array([1, 8]), 10).tolist()
    [64, 128]
    """
    there = np.zeros(blocks, bool)
    there[receivers] = True
    return np.packbits(there)


def run_round(lists: Lists, width: int) -> float:
    """One round, in which the ``width`` first of the list of each row, and the rows that have it among theirs, are
    compared with each other; the share of the entries of the lists that it replaced."""
    blocks = range(len(lists.ordered.blocks))
    sent = map_blocks(reverse_block, [(b,) for b in blocks], lists=lists, width=width)
    parts = map_blocks(join_block, list(enumerate(senders_of(sent))), lists=lists, width=width)
    numbers = np.array([_part(b, part) for b, of_block in enumerate(parts) for part in range(len(of_block))])
    found = Found(numbers, np.concatenate(parts))
    changed = map_blocks(merge_block, [(b,) for b in blocks], found=found, lists=lists, width=width)
    lists.exchange.drop("reversed", "found", lists.name)
    return float(sum(count for count, _ in changed) / sum(entries for _, entries in changed))


def reverse_block(b: int, *, lists: Lists, width: int) -> Array:
    """Tell each block which of its rows are among the ``width`` first of which rows of this one; returns those told."""
    from bigembed.neighbors import descent_compiled  # imports numba: only here

    ids, squared, fresh = lists.get(b, "ids", "squared", "fresh")
    starts = lists.ordered.starts
    pieces: dict[str, Array] = {}
    for block, at in _by_block(lists, ids, width):
        found = descent_compiled.reversed_entries(at, width, ids, squared, fresh, starts[b], starts[block])
        pieces |= zip((f"row{block}", f"source{block}", f"squared{block}"), found, strict=True)
    lists.exchange.put("reversed", b, pieces)
    return _receivers_of(pieces)


def _receivers_of(pieces: dict[str, Array]) -> Array:
    """The blocks that these pieces are for."""
    return np.array([int(name[3:]) for name in pieces if name.startswith("row")], np.int32)


def _by_block(lists: Lists, ids: Array, width: int) -> Iterator[tuple[int, Array]]:
    """Blocks, and the places row · width + column of the ids (n, L), of the ``width`` first, that each holds."""
    from bigembed.neighbors import descent_compiled  # imports numba: only here

    offsets, order = descent_compiled.grouped_by_block(np.asarray(lists.ordered.starts, np.int64), ids, width)
    for block in np.flatnonzero(np.diff(offsets)).tolist():
        yield block, order[offsets[block] : offsets[block + 1]]


def join_block(b: int, senders: list[int], *, lists: Lists, width: int) -> Array:
    """Compare the candidates of every row of a block; leave what was found, in numbered parts. Returns for which blocks
    there is something in each: (parts, blocks / 8), see :func:`bits_of`."""
    starts, new, chosen = _candidates(b, senders, lists, width)
    receivers: list[Array] = []
    waiting, mark = [(0, len(new))], np.zeros(lists.ordered.starts[-1], bool)
    while waiting:
        start, stop = waiting.pop()
        here = chosen[starts[start] : starts[stop]]
        numbers = _distinct(here, mark)
        if len(numbers) * lists.row_bytes > ROWS_BYTES and stop - start > FEWEST:
            middle = (start + stop) // 2
            waiting += [(middle, stop), (start, middle)]
            continue
        for found in _joined(starts[start : stop + 1] - starts[start], new[start:stop], here, numbers, lists):
            lists.exchange.put("found", _part(b, len(receivers)), found)
            receivers.append(bits_of(_receivers_of(found), len(lists.ordered.blocks)))
    return np.array(receivers, np.uint8).reshape(len(receivers), -(-len(lists.ordered.blocks) // 8))


def _candidates(b: int, senders: list[int], lists: Lists, width: int) -> tuple[Array, Array, Array]:
    """Candidates of every row of a block: where those of each row start, how many of them are fresh, and their ids."""
    from bigembed.neighbors import descent_compiled  # imports numba: only here

    ids, fresh = lists.get(b, "ids", "fresh")
    offsets, sources = _sources(b, senders, lists, len(ids), most_candidates(width) - width)
    chosen = np.empty(len(ids) * width + len(sources), ids.dtype)
    starts, new = descent_compiled.candidates(ids, fresh, width, offsets, sources, chosen)
    return starts, new, chosen[: starts[-1]]


def _sources(b: int, senders: list[int], lists: Lists, rows: int, most: int) -> tuple[Array, Array]:
    """The rows that have a row of a block among the first of their lists, row by row: the nearest, at most so many."""
    from bigembed.neighbors import descent_compiled

    names = [f"row{b}", f"source{b}", f"squared{b}"]
    sent = [lists.exchange.get_many("reversed", sender, names) for sender in senders]
    if not sent:
        return np.zeros(rows + 1, np.int64), np.empty(0, lists.ids)
    row, source, squared = concatenated(sent)
    return descent_compiled.sources_of(row, source, squared, rows, most)


def _distinct(chosen: Array, mark: Array) -> Array:
    """The ids that occur, ascending; ``mark`` (n,) is False before and after."""
    mark[chosen] = True
    numbers = np.flatnonzero(mark)
    mark[numbers] = False
    return numbers


def _part(b: int, part: int) -> int:
    """Number of a part of what a block found."""
    return (b << 16) + part


def _joined(starts: Array, new: Array, chosen: Array, numbers: Array, lists: Lists) -> Iterator[dict[str, Array]]:
    """What the candidates of some rows, the ids ``numbers``, have for the lists of each block."""
    place = np.zeros(lists.ordered.starts[-1], np.int32)
    place[numbers] = np.arange(len(numbers), dtype=np.int32)
    places = place[chosen]
    rows, by = lists.ordered.compared_rows(numbers), lists.by
    last = np.empty(len(numbers), rows.dtype if by is None else by.dtype)
    for block, at, inside in by_owner(lists.ordered.starts, numbers):
        last[at] = lists.exchange.piece(lists.name, block, "reach")[inside]
    compared = _by_products if by is None else partial(_by_pairs, by)
    numbers = numbers.astype(lists.ids)
    for row, other, squared in compared(starts, new, places, rows, last):
        pieces, found = {}, numbers[row]
        for block, which in _by_block(lists, found[:, None], 1):
            pieces[f"row{block}"] = (found[which] - lists.ordered.starts[block]).astype(np.int32, copy=False)
            pieces[f"id{block}"] = numbers[other[which]]
            pieces[f"squared{block}"] = squared[which]
        yield pieces


def _by_products(
    starts: Array, new: Array, places: Array, rows: Array, last: Array
) -> Iterator[tuple[Array, Array, Array]]:
    """Rows, candidates for their lists, and squared distances: of dense rows, whose products reject."""
    from bigembed.neighbors import descent_compiled

    room = found_at_once(descent_compiled.widest(starts))
    row, other, squared = np.empty(room, np.int32), np.empty(room, np.int32), np.empty(room, rows.dtype)
    seen = np.zeros(SEEN_BY_PRODUCTS, np.uint64)
    shrunk = shrunk_by(rows.shape[1], rows.dtype)
    done = 0
    while done < len(new):
        done, found = descent_compiled.join(done, starts, new, places, rows, last, shrunk, seen, row, other, squared)
        yield row[:found], other[:found], squared[:found]


def shrunk_by(d: int, dtype: np.dtype[Any]) -> float:
    """Factor f with f (‖x‖² + ‖y‖²) − 2 x·y ≤ ‖x − y‖² in spite of all rounding: (‖x‖ + ‖y‖)² ≤ 2 (‖x‖² + ‖y‖²)."""
    return 1 - 2 * rounding(d, dtype) - 16 * float(np.finfo(dtype).eps)


def _by_pairs(
    by: ByMetric, starts: Array, new: Array, places: Array, rows: Any, last: Array
) -> Iterator[tuple[Array, Array, Array]]:
    """What :func:`_by_products` gives, of rows that are compared pair by pair."""
    from bigembed.neighbors import descent_compiled
    from bigembed.neighbors.search import pair_join

    room = found_at_once(descent_compiled.widest(starts))
    distances, seen, done = by.of_pairs(rows), np.zeros(SEEN, np.uint64), 0
    a, b = np.empty(room // 2, np.int32), np.empty(room // 2, np.int32)
    row, other, squared = np.empty(room, np.int32), np.empty(room, np.int32), np.empty(room, last.dtype)
    while done < len(new):
        done, pairs = pair_join.unseen(done, starts, new, places, seen, a, b)
        one, two = a[:pairs], b[:pairs]
        values = distances(one, two, np.maximum(last[one], last[two]))
        found = pair_join.listed(one, two, values, last, row, other, squared)
        yield row[:found], other[:found], squared[:found]


def merge_block(b: int, *, found: Found, lists: Lists, width: int) -> tuple[int, int]:
    """Merge what was found for a block into its lists; how many entries are new, and how many there are."""
    from bigembed.neighbors import descent_compiled

    ids, squared, fresh = lists.get(b, "ids", "squared", "fresh")
    fresh[:, :width] = 0
    for row, number, value in _found_for(b, lists, found.parts(b)):
        descent_compiled.take(row, number, value, ids, squared, fresh)
    count = np.count_nonzero(fresh == descent_compiled.NEW)
    lists.next.put(b, ids, squared, np.minimum(fresh, 1))
    return int(count), ids.size


def _found_for(b: int, lists: Lists, found: list[int]) -> Iterator[list[Array]]:
    """What was found for a block: rows, candidates and squared distances, up to some :data:`FOUND` entries at once."""
    parts: list[list[Array]] = []
    for part in found:
        parts.append(lists.exchange.get_many("found", part, [f"row{b}", f"id{b}", f"squared{b}"]))
        if sum(len(row) for row, _, _ in parts) >= FOUND // 2:
            yield [np.concatenate(each) for each in zip(*parts, strict=True)]
            parts = []
    if parts:
        yield [np.concatenate(each) for each in zip(*parts, strict=True)]


def recall_now(truth: Truth, lists: Lists) -> float:
    """Recall of the first of the lists, for rows whose true neighbors are known; measured before a round drops them."""
    return float(once(partial(_recall, truth, lists)))


def _recall(truth: Truth, lists: Lists) -> float:
    k, shares = truth.neighbors.shape[1], np.zeros(len(truth.ids))
    for block, at, rows in by_owner(lists.ordered.starts, truth.ids):
        shares[at] = recall_at(lists.get(block, "ids")[0][rows, :k], truth.neighbors[at])
    return float(shares.mean())
