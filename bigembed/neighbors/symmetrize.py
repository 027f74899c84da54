"""From lists of nearest neighbors to a symmetric graph: i ~ j if either is among the k nearest of the other.

The reversed edges that cross a block border travel through the exchange, one file a block; no process
sees more of the graph than one block and what other blocks sent it. Every task says whom it left
something for, so that each block looks at its senders only and the work stays linear in the rows.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from bigembed.blocks.csr import CSRBlock, halo_of
from bigembed.blocks.owners import by_owner
from bigembed.blocks.rows import Array, map_blocks
from bigembed.neighbors.complete import joined_to_all
from bigembed.neighbors.graph_blocks import csr_block, finish_graph, senders_of, write_block
from bigembed.neighbors.search.ground_truth import EXACT_ROWS
from bigembed.stages import Context, Cost, Stage
from bigembed.store.arrays.io import read_array
from bigembed.store.blockwise.exchange import Exchange


def graph_stage(n: int, n_neighbors: int, block: int) -> Stage:
    """The symmetric graph by row blocks: structure, squared distances, outboxes."""

    def run(context: Context) -> dict[str, Any]:
        starts = read_array(context.of("order", "starts")).tolist()
        blocks = range(len(starts) - 1)
        shared: dict[str, Any] = {"lists": context.of("search"), "starts": starts, "exchange": context.exchange}
        sent = map_blocks(reverse_block, [(b,) for b in blocks], **shared)
        found = map_blocks(join_block, list(enumerate(senders_of(sent))), **shared, out=context.path(""))
        counted = finish_graph(context, found, starts)
        return {name: counted[name] for name in ("blocks", "edges", "halo_rows", "zero_edges")}

    edges, listed = 2 * n * n_neighbors, block * n_neighbors
    cost = Cost(
        read=24 * edges,
        write=24 * edges,
        disk=8 * edges + 8 * n,
        scratch=20 * edges // 2,
        memory=min(288 * listed, (160 << 20) + 130 * listed),  # (measured of many: 84 an entry of the lists)
        scalar_ops=edges,
        maps=3,
    )
    return Stage("graph", ("order", "search"), {"n_neighbors": n_neighbors}, run, cost)


def reverse_block(b: int, *, lists: str, starts: list[int], exchange: Exchange) -> list[int]:
    """Leave each edge (i → j) that goes to another block reversed with the block of j. Returns those blocks."""
    ids, squared = read_array(f"{lists}/neighbors/{b}"), read_array(f"{lists}/squared/{b}")
    outside = np.flatnonzero((ids < starts[b]) | (ids >= starts[b + 1]))
    near = ids.ravel()[outside]
    edges = np.empty(len(near), _edge(squared.dtype))
    edges["source"] = starts[b] + outside // ids.shape[1]
    edges["squared"] = squared.ravel()[outside]
    pieces = {}
    for block, at, rows in by_owner(starts, near):
        edges["row"][at] = rows
        pieces[str(block)] = edges[at]  # sources stay ascending
    exchange.put("reversed", b, pieces)
    return [int(block) for block in pieces]


def join_block(
    b: int, senders: list[int], *, lists: str, starts: list[int], exchange: Exchange, out: str
) -> dict[str, Any]:
    """Union of own and received edges, with the diagonal, as a CSR block; ask other blocks for the halo rows."""
    ids, squared = read_array(f"{lists}/neighbors/{b}"), read_array(f"{lists}/squared/{b}")
    edge = _edge(squared.dtype)
    parts = [exchange.piece("reversed", sender, str(b)).view(edge) for sender in senders]
    received = np.concatenate([np.zeros(0, edge), *parts])
    if starts[b + 1] - starts[b] == starts[-1] == ids.shape[1] + 1 and ids.min() >= 0:
        block = joined_to_all(ids, squared)
    else:
        union = union_block if starts[-1] <= EXACT_ROWS else union_compiled
        block = union(b, ids, squared, received, starts)
    return write_block(b, block, exchange, out)


def union_block(b: int, ids: Array, squared: Array, received: Array, starts: list[int]) -> CSRBlock:
    """Lists ``ids``, ``squared`` (m, k), the same reversed, ``received`` reversed edges, and the diagonal."""
    own = np.arange(starts[b], starts[b + 1], dtype=np.int64)
    row, column, value = np.repeat(own, ids.shape[1]), ids.ravel(), squared.ravel()
    inside = (column >= starts[b]) & (column < starts[b + 1])
    rows = np.concatenate([row, column[inside], own]) - starts[b]
    return csr_block(
        b,
        np.concatenate([rows.astype(np.int32), received["row"]]),
        np.concatenate([column, row[inside], own, received["source"]]),
        np.concatenate([value, value[inside], np.zeros(len(own), value.dtype), received["squared"]]),
        starts,
    )


def union_compiled(b: int, ids: Array, squared: Array, received: Array, starts: list[int]) -> CSRBlock:
    """:func:`union_block`, compiled: the same block, several times faster. The sources received ascend."""
    from bigembed.neighbors.edges import union  # imports numba: only here

    count = starts[b + 1] - starts[b]
    columns = (ids - starts[b]).ravel()
    outside = np.flatnonzero((columns < 0) | (columns >= count))
    away, sources = columns[outside] + starts[b], received["source"]
    far = np.unique(np.concatenate([away, sources]))
    columns[outside] = count + np.searchsorted(far, away)
    indptr, indices, data = union(
        columns.astype(np.int32).reshape(ids.shape),
        squared,
        outside[np.argsort(away, kind="stable")],
        count + len(far),
        received["row"].copy(),
        (count + np.searchsorted(far, sources)).astype(np.int32),
        received["squared"].copy(),
    )
    return CSRBlock(indptr, indices, data, *halo_of(starts, far))


def _edge(dtype: np.dtype[Any]) -> np.dtype[Any]:
    """A reversed edge on its way: row inside the block of j, id of i, value."""
    return np.dtype([("row", np.int32), ("source", np.int64), ("squared", dtype)])
