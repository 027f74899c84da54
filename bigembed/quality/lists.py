"""Sampled rows (queries) against one block of rows: their nearest rows, chosen distances, and ranks. Pure, and exact.

All squared distances that decide anything are those of :func:`bigembed.blocks.squared.paired_squared`, and equal ones
are ordered by the number of the row. So neither blocks nor tiles nor the compiled code change a result. Matrix
products only reject, by a bound on their rounding; small problems do without them, and without compiled code.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from bigembed.blocks.metrics import RowMetric
from bigembed.blocks.rows import Array, bounds, is_sparse
from bigembed.blocks.squared import LANES, every_squared, paired_squared, rounding

COMPILED = 1 << 24
"""Numbers to compare (queries × all rows × columns) from which compiled code is called."""
LOADED = 1 << 27
"""The same, counting 64 columns at least, from which numba is imported if it is not there yet: with less to compare
NumPy is done before that is imported, and long before anything is compiled."""
SPARSE_ROWS = 1 << 12
"""Sparse rows of a tile."""
WIDTH = 16
"""Tiles of the compiled code come padded to a multiple of this; padding has infinite norm."""
_QUERIES = 1024
"""Whose products with such a tile there are at a time."""
_ENTRIES = 1 << 19
"""Numbers in a tile of NumPy's."""


def nearest_block(
    queries: Any,
    query_ids: Array,
    rows: Any,
    start: int,
    k: int,
    compiled: bool,
    metric: RowMetric | None = None,
    limits: Array | None = None,
) -> tuple[Array, Array]:
    """The k nearest of the rows ``start``, ``start`` + 1, … to each query (s, d), itself left out.

    Returns ids (s, k) int64 and squared distances (s, k) float64, by (squared distance, id); −1 and inf where there
    are fewer. ``metric``: of rows that are mapped for it, instead of Euclidean distances of dense ones. ``limits``
    (s,): squared distances that the k nearest of all rows do not exceed; those of this block that do may be left out.

    >>> nearest_block(np.array([[0.0]]), np.array([7]), np.array([[1.0], [0.0], [-1.0]]), 6, 2, False)
    (array([[6, 8]]), array([[1., 1.]]))
    """
    ids, squared = np.full((len(query_ids), k), -1), np.full((len(query_ids), k), np.inf)
    if compiled:
        from bigembed.quality import compiled as kernels  # imports numba: only here

        if limits is not None:
            squared[:] = np.nextafter(limits, np.inf)[:, None]
        queries, rows = np.ascontiguousarray(queries), np.ascontiguousarray(rows)
        slack = 2 * rounding(rows.shape[1], rows.dtype)
        for some, first, products, own, norms in _tiles(queries, rows, squared[:, -1], slack):
            kernels.nearest(
                products, own, norms, slack, queries, query_ids, some, rows, first, start, ids, squared
            )  # fmt: skip
        squared[ids < 0] = np.inf
        return ids, squared
    if metric is not None and is_sparse(rows) and not metric.own:
        from bigembed.blocks.sparse_lists import take_sparse  # imports numba: only here

        for first, last in bounds(rows.shape[0], SPARSE_ROWS):
            numbers, everyone = np.arange(start + first, start + last), np.arange(len(query_ids))
            take_sparse(ids, squared, everyone, queries, query_ids, rows[first:last], numbers, metric.text)
        ids[np.isinf(squared)] = -1
        return ids, squared
    for part, first, exact in _exact(queries, rows, metric):
        numbers = np.arange(start + first, start + first + exact.shape[1])
        exact[query_ids[part][:, None] == numbers] = np.inf
        every = np.concatenate([squared[part], exact], axis=1)
        order = np.argsort(every, axis=1, kind="stable")[:, :k]
        both = np.concatenate([ids[part], np.broadcast_to(numbers, exact.shape)], axis=1)
        squared[part] = np.take_along_axis(every, order, 1)
        ids[part] = np.where(np.isfinite(squared[part]), np.take_along_axis(both, order, 1), -1)
    return ids, squared


def distances_block(queries: Any, others: Array, rows: Any, start: int, metric: RowMetric | None = None) -> Array:
    """Squared distances (s, p) of each query to the rows numbered ``others`` (s, p); 0 where not in this block."""
    out = np.zeros(others.shape)
    query, place = np.nonzero((others >= start) & (others < start + rows.shape[0]))
    if metric is not None:
        for q in np.unique(query):
            p = place[query == q]
            out[q, p] = metric.squared(queries[[q]], rows[others[q, p] - start])[0]
        return out
    size = max(1, _ENTRIES // max(LANES, rows.shape[1]))
    for low, high in bounds(len(query), size):
        q, p = query[low:high], place[low:high]
        with np.errstate(over="ignore"):
            out[q, p] = paired_squared(queries[q], rows[others[q, p] - start])
    return out


def counts_block(
    queries: Any,
    query_ids: Array,
    others: Array,
    limits: Array,
    rows: Any,
    start: int,
    compiled: bool,
    metric: RowMetric | None = None,
) -> Array:
    """How many of the rows ``start``, … come before each of ``others`` (s, p) in the order of distance from a query.

    ``limits`` (s, p) are the squared distances of the others. Before means a smaller (squared distance, id); the
    query itself does not count. Summed over all blocks it is the rank of the other, from 0. Returns int64 (s, p).

    >>> rows = np.array([[0.0], [5.0], [1.0], [-1.0]])
    >>> counts_block(rows[:1], np.array([0]), np.array([[1, 3]]), np.array([[25.0, 1.0]]), rows, 0, False)
    array([[2, 1]])
    """
    order = np.lexsort((others, limits), axis=1)
    ends, numbers = np.take_along_axis(limits, order, 1), np.take_along_axis(others, order, 1)
    counts = np.zeros(others.shape, np.int64)
    if compiled:
        from bigembed.quality import compiled as kernels

        queries, rows = np.ascontiguousarray(queries), np.ascontiguousarray(rows)
        slack = 2 * rounding(rows.shape[1], rows.dtype)
        for some, first, products, own, norms in _tiles(queries, rows, ends[:, -1], slack):
            kernels.count(
                products, own, norms, slack, queries, query_ids, some, rows, first, start, ends, numbers, counts
            )  # fmt: skip
    elif metric is not None and is_sparse(rows) and not metric.own:
        from bigembed.blocks.sparse_lists import count_sparse

        for first, last in bounds(rows.shape[0], SPARSE_ROWS):
            part = rows[first:last]
            count_sparse(ends, numbers, queries, query_ids, part, start + first, metric.text, counts)
    else:
        for part, first, exact in _exact(queries, rows, metric):
            here = np.arange(start + first, start + first + exact.shape[1])
            exact[query_ids[part][:, None] == here] = np.inf
            for c in range(others.shape[1]):
                end, number = ends[part, c, None], numbers[part, c, None]
                counts[part, c] += ((exact < end) | ((exact == end) & (here < number))).sum(axis=1)
    out = np.empty_like(counts)
    np.put_along_axis(out, order, counts, 1)
    return out


def nearer(ids: Array, squared: Array, more_ids: Array, more: Array) -> tuple[Array, Array]:
    """The k nearest of two lists with ids (s, k) and squared distances, the second list's ids being the larger ones."""
    both = np.concatenate([squared, more], axis=1)
    order = np.argsort(both, axis=1, kind="stable")[:, : ids.shape[1]]
    every = np.concatenate([ids, more_ids], axis=1)
    return np.take_along_axis(every, order, 1), np.take_along_axis(both, order, 1)


def _exact(queries: Any, rows: Any, metric: RowMetric | None) -> Iterator[tuple[slice, int, Array]]:
    """Some queries, the first row of a tile, and their exact squared distances."""
    squared = every_squared if metric is None else metric.squared
    width = max(1, min(rows.shape[0], _ENTRIES))
    for first, last in bounds(rows.shape[0], width):
        for low, high in bounds(queries.shape[0], max(1, _ENTRIES // width)):
            with np.errstate(over="ignore"):
                yield slice(low, high), first, squared(queries[low:high], rows[first:last])


def _tiles(
    queries: Array, rows: Array, limits: Array, slack: float
) -> Iterator[tuple[Array, int, Array, Array, Array]]:
    """Numbers of queries x, the first row of a tile of y, and about the mean of the tile −2 x·y, ‖x‖², ‖y‖².

    A query is left out where the ball about the mean that holds the tile is beyond its limit, a squared distance, which
    may fall from tile to tile.
    """
    from bigembed.quality import compiled as kernels

    center = np.empty(rows.shape[1], rows.dtype)
    for first, last in bounds(len(rows), kernels.TILE):
        radius = kernels.ball(rows, first, last, center)
        reached = kernels.within(queries, limits, center, radius, slack)
        if not len(reached):
            continue
        near, norms = _shifted(rows, np.arange(first, last), center, WIDTH)
        for low, high in bounds(len(reached), _QUERIES):
            x, own = _shifted(queries, reached[low:high], center, 1)
            with np.errstate(over="ignore", invalid="ignore"):
                products = (-2 * x) @ near.T
            yield reached[low:high], first, products, own, norms


def _shifted(rows: Array, places: Array, center: Array, multiple: int) -> tuple[Array, Array]:
    """Some rows about a center and their squared lengths, padded to a multiple with zeros of infinite length."""
    from bigembed.quality import compiled as kernels

    room = -(-len(places) // multiple) * multiple
    out, norms = np.empty((room, rows.shape[1]), rows.dtype), np.empty(room, rows.dtype)
    kernels.shifted(rows, places, center, out, norms)
    return out, norms
