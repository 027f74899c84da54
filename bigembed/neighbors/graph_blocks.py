"""Blocks of a graph as they are written: entries sorted into rows, halos asked for, and what each block owes others."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np

from bigembed.runtime.blocks import Array, map_blocks
from bigembed.stages.cost import Arrays, ArraySpec
from bigembed.stages.stage import Context
from bigembed.store.arrays import write_array
from bigembed.store.exchange import Exchange
from bigembed.store.matrix import CSRBlock, halo_of, write_outbox, write_structure, write_values

COUNTED = ("edges", "halo_rows", "zero_edges", "isolated")


def graph_arrays(n: int, entries: int, values: str = "squared", dtype: Any = "f4") -> Arrays:
    """Declare a graph by row blocks of which so many entries are stored, with halos of as many rows as there are."""
    halos = [ArraySpec(f"{name}/*", n, dtype="i4") for name in ("halo_rows", "halo_sources")]
    halos += [ArraySpec(f"{name}/*", n, dtype="i4") for name in ("outbox_rows", "outbox_destinations")]
    few = [ArraySpec(name, 0, dtype="i8") for name in ("halo_offsets/*", "outbox_sizes/*", "starts")]
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


def write_block(b: int, block: CSRBlock, exchange: Exchange, out: str, values: str = "squared") -> dict[str, Any]:
    """Write one block with its diagonal, and ask other blocks for its halo; counts, of edges without the diagonal."""
    write_structure(out, b, block)
    write_values(f"{out}{values}", b, block.data)
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


def joined_by_turns(sent: list[list[Array]]) -> list[Array]:
    """What several blocks sent, array by array in one; of each the parts are given up before the next is made."""
    turns = [list(each) for each in zip(*sent, strict=True)]
    sent.clear()
    return [np.concatenate(turns.pop(0)) for _ in range(len(turns))]


def id_type(n: int) -> Any:
    """Type that holds the ids of n rows, and twice an id and one."""
    return np.int32 if 2 * n < np.iinfo(np.int32).max else np.int64


def outbox_block(b: int, askers: list[int], *, exchange: Exchange, out: str) -> None:
    """Collect which rows of this block the others asked for."""
    write_outbox(out, b, [(other, exchange.piece("wanted", other, str(b))) for other in askers])
