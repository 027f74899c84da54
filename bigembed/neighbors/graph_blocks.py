"""Blocks of a graph as they are written: entries sorted into rows, halos asked for, and what each block owes others."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np

from bigembed.runtime.blocks import Array, map_blocks
from bigembed.stages import Arrays, ArraySpec, Context
from bigembed.store.arrays import write_array
from bigembed.store.exchange import Exchange
from bigembed.store.matrix import CSRBlock, halo_of, write_outbox, write_structure, write_values

COUNTED = ("edges", "halo_rows", "zero_edges", "isolated")
REPEATS = "repeats"
"""The array of a graph that says which rows equal others: the lengths of its edges may be gone by then."""


def graph_arrays(n: int, entries: int, values: str = "squared", dtype: Any = "f4") -> Arrays:
    """Declare a graph by row blocks of which so many entries are stored, with halos of as many rows as there are.

    Columns are counted with 32 bits, which those of a block take that has more than 65 536 with its halo.
    """
    halos = [ArraySpec(f"{name}/*", n, dtype="i4") for name in ("halo_rows", "halo_sources")]
    halos += [ArraySpec(f"{name}/*", n, dtype="i4") for name in ("outbox_rows", "outbox_destinations")]
    few = [ArraySpec(name, 0, dtype="i8") for name in ("halo_offsets/*", "outbox_sizes/*", "starts")]
    few += [ArraySpec(f"{REPEATS}/*", 0, 2, "i8")] if values == "squared" else []
    rows = [ArraySpec("indptr/*", n, dtype="i8"), ArraySpec("indices/*", entries, dtype="i4")]
    return [*rows, ArraySpec(f"{values}/*", entries, dtype=dtype), *halos, *few]


def listed_entries(n: int, k: int) -> int:
    """Return how many entries a graph of k neighbors has at the most: those of the lists, the same turned round, and
    the diagonal.

    There are nearly as many where no two rows list each other, as of many equal numbers.

    >>> listed_entries(100, 5), listed_entries(3, 2)
    (1100, 9)
    """
    return min(n * n, n * (2 * k + 1))


def csr_block(b: int, rows: Array, columns: Array, values: Array, starts: Sequence[int]) -> CSRBlock:
    """A CSR block from (local row, global column, value) triples; of equal (row, column) the first value is kept."""
    own = (columns >= starts[b]) & (columns < starts[b + 1])
    far = np.unique(columns[~own])
    local = np.where(own, columns - starts[b], 0).astype(np.int32)
    local[~own] = starts[b + 1] - starts[b] + np.searchsorted(far, columns[~own])
    width = np.int64(starts[b + 1] - starts[b] + len(far))
    _, keep = np.unique(rows * width + local, return_index=True)
    rows, local, values = rows[keep], local[keep], values[keep]
    count = starts[b + 1] - starts[b]
    indptr = np.concatenate([[0], np.cumsum(np.bincount(rows, minlength=count))]).astype(np.int64)
    return CSRBlock(indptr, local, values, *halo_of(starts, far))


def repeats_in(b: int, block: CSRBlock, starts: Sequence[int]) -> Array:
    """Return rows of block b that an edge of length 0 joins to a row of lower internal id, and the lowest such id.

    Ties among neighbors go to the lower id, so that of rows that are equal each is joined to the first, however many
    they are: the row that a new row that equals them is taken for, too. Of shape (rows that repeat, 2).
    """
    zeros = np.flatnonzero(block.data == 0)
    if len(zeros) < len(block.indptr):  # (the diagonal alone, which is 0 in every row)
        return np.zeros((0, 2), np.int64)
    first = np.searchsorted(zeros, block.indptr[:-1])
    lowest = np.minimum.reduceat(block.ids(b, starts)[block.indices[zeros]], first)
    repeated = np.flatnonzero(lowest < np.arange(starts[b], starts[b + 1]))
    return np.stack([repeated, lowest[repeated]], axis=1)


def write_block(
    b: int, block: CSRBlock, starts: Sequence[int], exchange: Exchange, out: str, values: str = "squared"
) -> dict[str, Any]:
    """Write one block with its diagonal, and ask other blocks for its halo; counts, of edges without the diagonal.

    Of squared lengths it says, too, which rows repeat others: ``repeats``.
    """
    write_structure(out, b, block)
    write_values(f"{out}{values}", b, block.data)
    if values == "squared":
        write_array(f"{out}{REPEATS}/{b}", repeats_in(b, block, starts))
    exchange.put("wanted", b, {str(source): rows for source, rows in block.segments()})
    degrees = np.diff(block.indptr)
    return {
        "edges": len(block.data) - len(degrees),
        "halo_rows": len(block.halo_rows),
        "zero_edges": int(np.count_nonzero(block.data == 0)) - len(degrees),
        "isolated": int(np.count_nonzero(degrees == 1)),
        "halo_of": block.halo_sources.tolist(),
    }


def finish_graph(context: Context, found: Sequence[dict[str, Any]], starts: Sequence[int]) -> dict[str, int]:
    """Of all blocks that :func:`write_block` wrote: what each owes others, ``starts``, and the sums of the counts."""
    askers = senders_of([part["halo_of"] for part in found])
    map_blocks(outbox_block, list(enumerate(askers)), exchange=context.exchange, out=context.path(""))
    write_array(context.path("starts"), np.array(starts, np.int64))
    return {"blocks": len(found)} | {name: sum(part[name] for part in found) for name in COUNTED}


def senders_of(sent: Sequence[Iterable[int]], receivers: int | None = None) -> list[list[int]]:
    """For each block, ascending, the blocks that left something for it; ``sent`` holds the receivers of each.

    ``receivers``: how many there are, if not as many as senders.

    >>> senders_of([[1, 2], [2], []])
    [[], [0], [0, 1]]
    """
    senders: list[list[int]] = [[] for _ in range(len(sent) if receivers is None else receivers)]
    for sender, addressed in enumerate(sent):
        for receiver in addressed:
            senders[receiver].append(sender)
    return senders


def concatenated(sent: list[list[Array]]) -> list[Array]:
    """Concatenate the arrays that several blocks sent, the first of each, the second of each, and so on.

    The list is emptied, so that the parts of one array are freed before the next one is made.

    >>> concatenated([[np.array([1]), np.array([2.0])], [np.array([3]), np.array([4.0])]])
    [array([1, 3]), array([2., 4.])]
    """
    columns = [list(each) for each in zip(*sent, strict=True)]
    sent.clear()
    return [np.concatenate(columns.pop(0)) for _ in range(len(columns))]


def id_type(n: int) -> Any:
    """Return the type of the ids of n rows: int32 where it holds twice an id and one, too, else int64."""
    return np.int32 if 2 * n < np.iinfo(np.int32).max else np.int64


def outbox_block(b: int, askers: list[int], *, exchange: Exchange, out: str) -> None:
    """Collect which rows of this block the others asked for."""
    write_outbox(out, b, [(other, exchange.piece("wanted", other, str(b))) for other in askers])
