"""Exact squared distances and exact nearest neighbors in NumPy, the reference of every faster search.

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

from bigembed.blocks.rows import Array
from bigembed.blocks.squared import paired_squared, rounding
from bigembed.neighbors.complete import all_others

_PAIR_BYTES = 8 << 20
_TILE_ENTRIES = 1 << 20


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
    width = max(1024, _TILE_ENTRIES // max(1, len(queries)))
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
    with np.errstate(over="ignore", invalid="ignore"):
        shift = rows.mean(axis=0)
        x, y = queries - shift, rows - shift
        x_squared, y_squared = np.einsum("ij,ij->i", x, x), np.einsum("ij,ij->i", y, y)
        y *= -2
        approximate = x @ y.T
        approximate += y_squared
        approximate += x_squared[:, None]
        reach = np.sqrt(x_squared.astype(np.float64)) + np.sqrt(float(y_squared.max(initial=0)))
        slack = rounding(rows.shape[1], rows.dtype) * reach * reach
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


def exact_block(rows: Array, k: int, row_ids: Array | None = None) -> tuple[Array, Array]:
    """The k nearest other rows of every row: ids (n, k) int64, squared distances (n, k).

    All pairs, O(n² d), in bounded tiles; NumPy only. Fewer than k other rows leave −1 and inf.
    """
    numbers = np.arange(len(rows), dtype=np.int64) if row_ids is None else row_ids
    ids, squared = empty_lists(len(rows), k, rows.dtype)
    for start in range(0, len(rows), 512):
        part = slice(start, start + 512)
        update_lists(ids[part], squared[part], rows[part], numbers[part], rows, numbers)
    return ids, squared
