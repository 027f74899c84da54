"""From points to the neighbor graph: partitions, cells, probes, exact search inside them.

Exact squared distances and exact nearest neighbors in NumPy are here, the reference of every faster search.

A matrix product gives all distances of two tiles quickly but with rounding that depends on shapes.
So it only *rejects* here: a pair is dropped when its approximate distance exceeds the current k-th
by more than a rigorous rounding bound, and every other pair is computed again by direct differences
in float64, summed in a fixed order. Lists are ordered by (squared distance, id), hence they depend
neither on tiles nor on the order in which candidates arrive.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from bigembed.distance import every_squared, paired_squared, rounding
from bigembed.runtime.blocks import Array
from bigembed.store.matrix import CSRBlock

# -------------------------------------------------------------------------------------------------------- complete
# Few rows, block functions: distances of all pairs, lists of all other rows, the graph that joins all.
#
# Below some thousand rows nothing has to be rejected, sorted out or merged. Distances, lists and graphs are bit by
# bit those of the lists below and of :mod:`bigembed.neighbors.graph_stages`.


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


# ----------------------------------------------------------------------------------------------------------- exact

_PAIR_BYTES = 8 << 20
TILE_ENTRIES = 1 << 20


def empty_lists(n_rows: int, k: int, dtype: np.dtype[Any]) -> tuple[Array, Array]:
    """Neighbor lists without neighbors: ids (n, k) int64 of −1, squared distances (n, k) of inf."""
    ids = np.full((n_rows, k), -1, dtype=np.int64)
    return ids, np.full((n_rows, k), np.inf, dtype=dtype)


def update_lists(ids: Array, squared: Array, queries: Array, query_ids: Array, rows: Array, row_ids: Array) -> None:
    """Take ``rows`` (N, d) as candidates into the lists of ``queries`` (m, d), in place.

    ``ids`` (m, k) int64 and ``squared`` (m, k) are ordered by (squared distance, id); a query is no
    neighbor of its own id (−1: of none), and an id that a list holds already is not taken twice.
    """
    k = ids.shape[1]
    if len(rows) <= k + 1 and _is_empty(ids, squared) and (np.diff(row_ids) > 0).all():
        near, distances = all_others(queries, query_ids, rows, row_ids, k)
        ids[:, : near.shape[1]], squared[:, : near.shape[1]] = near, distances
        return
    width = max(1024, TILE_ENTRIES // max(1, len(queries)))
    for start, stop in _tiles(len(rows), width, width if _is_empty(ids, squared) else 4 * k + 64):
        tile = slice(start, stop)
        _update_tile(ids, squared, queries, query_ids, rows[tile], row_ids[tile])


def _is_empty(ids: Array, squared: Array) -> bool:
    """Whether the lists hold nothing, and no bound on what they may hold."""
    return bool((ids < 0).all() and np.isinf(squared).all())


def _tiles(n_rows: int, width: int, first: int) -> Iterator[tuple[int, int]]:
    """Tiles that begin small, so that most of the rows meet a list that is full already."""
    start, size = 0, min(first, width)
    while start < n_rows:
        yield start, min(start + size, n_rows)
        start, size = start + size, min(4 * size, width)


def approximate_squared(queries: Array, rows: Array) -> tuple[Array, Array]:
    """Approximate squared distances (m, N) by one matrix product, and a bound (m,) on their error."""
    return approximate_to(queries, about_mean(rows))


def about_mean(rows: Array) -> tuple[Array, Array, Array]:
    """The mean of rows, −2 times the rows about it, and their squared lengths: what all products with them need."""
    with np.errstate(over="ignore", invalid="ignore"):
        shift = rows.mean(axis=0)
        y = rows - shift
        y_squared = np.einsum("ij,ij->i", y, y)
        y *= -2
    return shift, y, y_squared


def approximate_to(queries: Array, others: tuple[Array, Array, Array]) -> tuple[Array, Array]:
    """:func:`approximate_squared` to rows of which :func:`about_mean` is given."""
    shift, y, y_squared = others
    with np.errstate(over="ignore", invalid="ignore"):
        x = queries - shift
        x_squared = np.einsum("ij,ij->i", x, x)
        approximate = x @ y.T
        approximate += y_squared
        approximate += x_squared[:, None]
        reach = np.sqrt(x_squared.astype(np.float64)) + np.sqrt(float(y_squared.max(initial=0)))
        slack = rounding(y.shape[1], y.dtype) * reach * reach
    return approximate, slack


def _update_tile(ids: Array, squared: Array, queries: Array, query_ids: Array, rows: Array, row_ids: Array) -> None:
    k = ids.shape[1]
    approximate, slack = approximate_squared(queries, rows)
    bound = squared[:, -1] + slack
    if len(rows) > k + 1 and not np.isfinite(bound).all():
        reachable = np.partition(approximate, k, axis=1)[:, k].astype(np.float64)
        bound = np.fmin(bound, reachable + 2 * slack)
    query, row = np.nonzero(~(approximate > bound[:, None]))
    full_of_zeros = (squared[query, -1] == 0) & (ids[query, -1] < row_ids[row])
    keep = (query_ids[query] != row_ids[row]) & ~full_of_zeros
    query, row = query[keep], row[keep]
    exact = np.empty(len(query), dtype=squared.dtype)
    for part in parts_of_pairs(len(query), rows.shape[1]):
        with np.errstate(over="ignore"):
            exact[part] = paired_squared(queries[query[part]], rows[row[part]])
    merge_pairs(ids, squared, query, row_ids[row], exact)


def parts_of_pairs(n_pairs: int, n_features: int) -> Iterator[slice]:
    """Slices of a list of pairs whose differences fit in a few MiB."""
    size = max(1, _PAIR_BYTES // (8 * n_features))
    return (slice(start, start + size) for start in range(0, n_pairs, size))


def merge_pairs(ids: Array, squared: Array, query: Array, new_ids: Array, new_squared: Array) -> None:
    """Keep the k nearest of the lists and the new pairs (query, id, squared), each id once."""
    touched = np.unique(query)
    if len(touched) == 0:
        return
    k = ids.shape[1]
    owner = np.concatenate([np.repeat(touched, k), query])
    every_id = np.concatenate([ids[touched].ravel(), new_ids])
    every = np.concatenate([squared[touched].ravel(), new_squared])
    real = every_id >= 0
    owner, every_id, every = owner[real], every_id[real], every[real]
    order = np.lexsort((every_id, every, owner))
    owner, every_id, every = owner[order], every_id[order], every[order]
    again = (owner[1:] == owner[:-1]) & (every_id[1:] == every_id[:-1])
    fresh = np.concatenate([[True], ~again])
    owner, every_id, every = owner[fresh], every_id[fresh], every[fresh]
    place = np.arange(len(owner)) - np.searchsorted(owner, owner)
    nearest = place < k
    ids[owner[nearest], place[nearest]] = every_id[nearest]
    squared[owner[nearest], place[nearest]] = every[nearest]


def exact_block(rows: Array, k: int) -> tuple[Array, Array]:
    """The k nearest other rows of every row: ids (n, k) int64, squared distances (n, k).

    All pairs, O(n² d), in bounded tiles; NumPy only. Fewer than k other rows leave −1 and inf.
    """
    numbers = np.arange(len(rows), dtype=np.int64)
    ids, squared = empty_lists(len(rows), k, rows.dtype)
    for start in range(0, len(rows), 512):
        part = slice(start, start + 512)
        update_lists(ids[part], squared[part], rows[part], numbers[part], rows, numbers)
    return ids, squared


def nearest_centers(rows: Array, centers: Array) -> Array:
    """Nearest center of each row, ties to the lowest number: int64 (n,), the same whatever rows stand beside it."""
    labels = np.empty(len(rows), dtype=np.int64)
    height = max(64, TILE_ENTRIES // len(centers))
    for start in range(0, len(rows), height):
        part = slice(start, start + height)
        approximate, slack = approximate_squared(rows[part], centers)
        best = approximate.argmin(axis=1)
        least = approximate[np.arange(len(best)), best].astype(np.float64)
        _resolve(best, approximate, least + 2 * slack, rows[part], centers)
        labels[part] = best
    return labels


def _resolve(best: Array, approximate: Array, limit: Array, rows: Array, centers: Array) -> None:
    """Correct ``best`` in place where more than one center is within ``limit``."""
    close = ~(approximate > limit[:, None])
    unclear = np.flatnonzero(np.count_nonzero(close, axis=1) > 1)
    for start in range(0, len(unclear), 256):
        which = unclear[start : start + 256]
        row, center = np.nonzero(close[which])
        squared = paired_squared(rows[which[row]], centers[center])
        order = np.lexsort((center, squared, row))
        first = np.searchsorted(row[order], np.arange(len(which)))
        best[which] = center[order][first]
