"""Few rows, block functions: distances of all pairs, lists of all other rows, the graph that joins all.

Below some thousand rows nothing has to be rejected, sorted out or merged. Distances, lists and graphs are bit by bit
those of :mod:`bigembed.neighbors.exact` and :mod:`bigembed.neighbors.symmetrize`.
"""

from __future__ import annotations

import numpy as np

from bigembed.blocks.csr import CSRBlock
from bigembed.blocks.rows import Array
from bigembed.blocks.squared import every_squared


def all_others(queries: Array, query_ids: Array, rows: Array, row_ids: Array, k: int) -> tuple[Array, Array]:
    """Of each query the up to k nearest ``rows`` but itself, by (squared distance, id); ``row_ids`` ascend.

    Returns ids int64 and squared distances (m, min(k, N)) in the dtype of the rows; −1 and inf where there are fewer.
    """
    with np.errstate(over="ignore"):
        squared = every_squared(queries, rows).astype(rows.dtype)
    own = query_ids[:, None] == row_ids
    squared[own] = -1.0  # so that it comes first, and is left out
    order = np.argsort(squared, axis=1, kind="stable")
    place = np.arange(min(k, len(rows))) + own.any(axis=1)[:, None]
    none = place >= len(rows)
    order = np.take_along_axis(order, np.minimum(place, len(rows) - 1), axis=1)
    ids, near = row_ids[order], np.take_along_axis(squared, order, axis=1)
    ids[none], near[none] = -1, np.inf
    return ids, near


def joined_to_all(ids: Array, squared: Array) -> CSRBlock:
    """The graph that joins each row of the only block to all, from complete lists (n, n − 1), with its diagonal."""
    data = np.zeros((len(ids), len(ids)), squared.dtype)
    np.put_along_axis(data, ids, squared, axis=1)
    return dense_block(data)


def dense_block(matrix: Array) -> CSRBlock:
    """All entries of a square matrix as the only block of a sparse one."""
    n, none = len(matrix), np.zeros(0, np.int32)
    indices = np.tile(np.arange(n, dtype=np.int32), n)
    return CSRBlock(n * np.arange(n + 1, dtype=np.int64), indices, matrix.ravel(), none, np.zeros(1, np.int64), none)
