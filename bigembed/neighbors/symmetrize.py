"""From lists of nearest neighbors to a symmetric graph: i ~ j if either is among the k nearest of the other.

The reversed edges travel through the exchange, one file a block; no process sees more of the
graph than one block and what other blocks sent it.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from bigembed.blocks.csr import CSRBlock
from bigembed.blocks.rows import Array, map_blocks
from bigembed.stages import Context, Cost, Stage
from bigembed.store.arrays import read_array, write_array
from bigembed.store.exchange import Exchange
from bigembed.store.matrix import write_outbox, write_structure, write_values


def graph_stage(n: int, n_neighbors: int, block: int) -> Stage:
    """The symmetric graph by row blocks: structure, squared distances, outboxes."""

    def run(context: Context) -> dict[str, Any]:
        starts = read_array(context.of("order", "starts")).tolist()
        tasks = [(b,) for b in range(len(starts) - 1)]
        lists = context.of("search")
        map_blocks(reverse_block, tasks, lists=lists, starts=starts, exchange=context.exchange)
        found = map_blocks(
            join_block, tasks, lists=lists, starts=starts, exchange=context.exchange, out=context.path("")
        )
        map_blocks(outbox_block, tasks, blocks=len(tasks), exchange=context.exchange, out=context.path(""))
        write_array(context.path("starts"), np.array(starts, np.int64))
        return {
            "blocks": len(tasks),
            "edges": sum(part["edges"] for part in found),
            "halo_rows": sum(part["halo"] for part in found),
            "zero_edges": sum(part["zeros"] for part in found),
        }

    edges = 2 * n * n_neighbors
    cost = Cost(
        read=24 * edges,
        write=24 * edges,
        disk=8 * edges + 8 * n,
        scratch=20 * edges // 2,
        memory=6 * 24 * 2 * block * n_neighbors,
    )
    return Stage("graph", ("order", "search"), {"n_neighbors": n_neighbors}, run, cost)


def reverse_block(b: int, *, lists: str, starts: list[int], exchange: Exchange) -> None:
    """Leave each edge (i → j) reversed with the block of j."""
    ids, squared = read_array(f"{lists}/neighbors/{b}"), read_array(f"{lists}/squared/{b}")
    near = ids.ravel()
    far = np.repeat(np.arange(starts[b], starts[b + 1], dtype=np.int64), ids.shape[1])
    owner = np.searchsorted(starts, near, side="right") - 1
    by_owner = np.argsort(owner, kind="stable")
    present, first = np.unique(owner[by_owner], return_index=True)
    pieces: dict[str, Array] = {}
    for block, members in zip(present, np.split(by_owner, first[1:]), strict=True):
        pieces[f"row{block}"] = (near[members] - starts[block]).astype(np.int32)
        pieces[f"id{block}"] = far[members]
        pieces[f"sq{block}"] = squared.ravel()[members]
    exchange.put("reversed", b, pieces)


def join_block(b: int, *, lists: str, starts: list[int], exchange: Exchange, out: str) -> dict[str, int]:
    """Union of own and received edges, with the diagonal, as a CSR block; ask other blocks for the halo rows."""
    ids, squared = read_array(f"{lists}/neighbors/{b}"), read_array(f"{lists}/squared/{b}")
    rows = [np.repeat(np.arange(len(ids), dtype=np.int32), ids.shape[1]), np.arange(len(ids), dtype=np.int32)]
    columns = [ids.ravel(), np.arange(starts[b], starts[b + 1], dtype=np.int64)]
    values = [squared.ravel(), np.zeros(len(ids), squared.dtype)]
    for source in range(len(starts) - 1):
        received = exchange.get("reversed", source, f"row{b}")
        if received is not None:
            rows.append(received)
            columns.append(_piece(exchange, source, f"id{b}"))
            values.append(_piece(exchange, source, f"sq{b}"))
    block = csr_block(b, np.concatenate(rows), np.concatenate(columns), np.concatenate(values), starts)
    write_structure(out, b, block)
    write_values(f"{out}squared", b, block.data)
    exchange.put("wanted", b, {str(source): part for source, part in block.segments()})
    off_diagonal = len(block.data) - len(ids)
    return {
        "edges": off_diagonal // 1,
        "halo": len(block.halo_rows),
        "zeros": int(np.sum(block.data == 0)) - len(ids),
    }


def csr_block(b: int, rows: Array, columns: Array, values: Array, starts: list[int]) -> CSRBlock:
    """A CSR block from (local row, global column, value) triples; of equal (row, column) the first value is kept."""
    own = (columns >= starts[b]) & (columns < starts[b + 1])
    far = np.unique(columns[~own])
    local = np.where(own, columns - starts[b], 0).astype(np.int32)
    local[~own] = starts[b + 1] - starts[b] + np.searchsorted(far, columns[~own])
    width = np.int64(starts[b + 1] - starts[b] + len(far))
    _, keep = np.unique(rows * width + local, return_index=True)
    rows, local, values = rows[keep], local[keep], values[keep]
    count = starts[b + 1] - starts[b]
    owner = np.searchsorted(starts, far, side="right") - 1
    sources, first = np.unique(owner, return_index=True)
    return CSRBlock(
        indptr=np.concatenate([[0], np.cumsum(np.bincount(rows, minlength=count))]).astype(np.int64),
        indices=local,
        data=values,
        halo_sources=sources.astype(np.int32),
        halo_offsets=np.append(first, len(far)).astype(np.int64),
        halo_rows=(far - np.asarray(starts)[owner]).astype(np.int32),
    )


def outbox_block(b: int, *, blocks: int, exchange: Exchange, out: str) -> None:
    """Collect which rows of this block the others asked for."""
    wanted = ((other, exchange.get("wanted", other, str(b))) for other in range(blocks))
    write_outbox(out, b, [(other, rows) for other, rows in wanted if rows is not None])


def _piece(exchange: Exchange, source: int, key: str) -> Array:
    piece = exchange.get("reversed", source, key)
    assert piece is not None
    return piece
