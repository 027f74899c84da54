"""Connected components of a sparse matrix stored by row blocks: one walk over its edges.

Each block finds the components of its edges; edges between blocks then link these, and only
the links (pairs of component names) come together in one process.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from scipy.sparse import coo_array
from scipy.sparse.csgraph import connected_components

from bigembed.blocks.csr import COMPILED, BlockMatrix, CSRBlock
from bigembed.blocks.rows import Array, offsets
from bigembed.store.arrays.io import read_array, write_array
from bigembed.store.blockwise.exchange import Exchange
from bigembed.store.blockwise.stored_space import StoredSpace

MAX_LISTED = 1_000
RESOLVED = 1e-10
"""An edge joins two rows if W_ij/√(d_i d_j) is above it: a weaker one moves an eigenvalue by less than is resolved."""


def find_components(matrix: BlockMatrix, exchange: Exchange, out: str, *, degree: str = "") -> dict[str, Any]:
    """Write ``labels/b`` (int32, 0 is the largest component, ties by smallest row) and return count and sizes.

    ``degree`` says where the row sums of weights lie: an edge then joins if its weight is above :data:`RESOLVED` of
    them. Without it the matrix holds distances, and every edge joins.
    """
    space = StoredSpace(matrix, exchange)
    starts = offsets(matrix.rows)
    space.sweep(least_block, writes=["least"], posts=["least"], arguments=(matrix, degree))
    found = space.sweep(
        local_components_block,
        reads=["least"],
        writes=["label"],
        posts=["label"],
        arguments=(matrix, starts),
    )
    names_of = ["label", "least"]
    links = space.sweep(links_block, reads=names_of, halos=names_of, arguments=(matrix,))
    names = np.concatenate([part[0] for part in found])
    sizes = np.concatenate([part[1] for part in found])
    pairs = np.unique(np.concatenate(links), axis=0)
    ends = np.searchsorted(names, pairs)
    graph = coo_array((np.ones(len(ends), np.int8), (ends[:, 0], ends[:, 1])), shape=(len(names), len(names)))
    count, member = connected_components(graph, directed=False)
    totals = np.bincount(member, weights=sizes, minlength=count).astype(np.int64)
    first = np.full(count, np.iinfo(np.int64).max)
    np.minimum.at(first, member, names)
    rank = np.empty(count, np.int64)
    rank[np.lexsort((first, -totals))] = np.arange(count)
    write_array(f"{out}component_names", names)
    write_array(f"{out}component_ranks", rank[member].astype(np.int32))
    space.sweep(label_block, reads=["label"], arguments=(out,))
    sizes_by_rank = np.sort(totals)[::-1]
    return {"components": int(count), "sizes": sizes_by_rank[:MAX_LISTED].tolist(), "rows": int(starts[-1])}


def least_block(b: int, matrix: BlockMatrix, degree: str) -> tuple[tuple[Array], None]:
    """√(RESOLVED d) of each row, (rows, 1): the product of two is the least weight that joins; −1 for distances."""
    if not degree:
        return (np.full((matrix.rows[b], 1), -1.0),), None
    return (np.sqrt(RESOLVED * read_array(f"{degree}/{b}"))[:, None],), None


def local_components_block(
    b: int, least: Array, matrix: BlockMatrix, starts: Array
) -> tuple[tuple[Array], tuple[Array, Array]]:
    """Name each row by the smallest global id of its component within the block; names and their sizes."""
    block = matrix.block(b)
    if len(block.data) < COMPILED:
        first = first_joined(block, least)
    else:
        from bigembed.neighbors.components import compiled as compiled_components

        first = np.empty(len(least), np.int64)
        compiled_components.first_joined(*_edges(block), _column(least), first)
    sizes = np.bincount(first)
    names = np.flatnonzero(sizes)
    return ((first + starts[b])[:, None],), (names + starts[b], sizes[names])


def first_joined(block: CSRBlock, least: Array) -> Array:
    """The first row of the component of each row, by the edges within a small block."""
    rows, row = len(least), block.row
    inside = block.indices < row  # (of a symmetric matrix; those to later rows are the same)
    row, column = row[inside], block.indices[inside]
    joins = joining(block.data[inside], least[row, 0], least[column, 0])
    graph = coo_array((joins[joins], (row[joins], column[joins])), shape=(rows, rows))
    count, member = connected_components(graph, directed=False)
    first = np.full(count, rows)
    np.minimum.at(first, member, np.arange(rows))
    return first[member]


def joining(data: Array, own: Array, other: Array) -> Array:
    """Whether each edge joins its rows, with what is given of both."""
    return np.ones(len(data), bool) if len(own) and own[0] < 0 else np.asarray(data > own * other)


def links_block(
    b: int, label: Array, least: Array, halo: Array, halo_least: Array, matrix: BlockMatrix
) -> tuple[tuple[()], Array]:
    """Distinct pairs of names joined by an edge that leaves the block."""
    if not len(halo):
        return (), np.zeros((0, 2), np.int64)
    block = matrix.block(b)
    if len(block.data) < COMPILED:
        far = block.indices >= len(least)
        row, other = block.row[far], block.indices[far] - len(least)
        joins = joining(block.data[far], least[row, 0], halo_least[other, 0])
        return (), np.unique(np.column_stack([label[row[joins], 0], halo[other[joins], 0]]), axis=0)
    from bigembed.neighbors.components import compiled as compiled_components

    edges = _edges(block)
    ends = np.empty((2, np.count_nonzero(edges[1] >= len(least))), np.int64)
    given = (_column(each) for each in (least, halo_least, label, halo))
    count = compiled_components.links(*edges, *given, *ends)
    return (), np.unique(ends[:, :count].T, axis=0)


def _edges(block: CSRBlock) -> tuple[Array, Array, Array]:
    return block.indptr.astype(np.int64, copy=False), block.indices, block.data


def _column(values: Array) -> Array:
    return np.ascontiguousarray(values[:, 0])


def label_block(b: int, label: Array, out: str) -> tuple[tuple[()], None]:
    """Translate names into component numbers."""
    names, ranks = read_array(f"{out}component_names"), read_array(f"{out}component_ranks")
    write_array(f"{out}labels/{b}", ranks[np.searchsorted(names, label[:, 0])])
    return (), None
