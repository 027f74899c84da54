"""Passes over one set of rows with the sampled rows at hand: their nearest rows, and what the rows are."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, ClassVar

import numpy as np

from bigembed.distance import CENTERED, LANES, every_squared, paired_squared, rounding
from bigembed.distance.metrics import RowMetric
from bigembed.errors import InputError
from bigembed.linalg.moments import merge_moments, moments_block
from bigembed.rows import RowBlock, RowSource
from bigembed.rows.passes import Parts, add_parts, reduce_rows
from bigembed.rows.row_maps import inadmissible, mapped_rows
from bigembed.runtime.blocks import Array, bounds, is_sparse, map_blocks
from bigembed.store.exchange import Exchange
from bigembed.store.parcels import row_parts, rows_of_parts

# ----------------------------------------------------------------------------------------------------------- lists
# Sampled rows (queries) against one block of rows: their nearest rows, chosen distances, and ranks. Pure, and exact.
#
# All squared distances that decide anything are those of :func:`bigembed.distance.paired_squared`, and equal
# ones are ordered by the number of the row. So neither blocks nor tiles nor the compiled code change a result. Matrix
# products only reject, by a bound on their rounding; small problems do without them, and without compiled code.

COMPILED = 1 << 24
"""Numbers to compare (queries × all rows × columns) from which compiled code is called."""
LOADED = 1 << 27
"""The same, counting 64 columns at least, from which numba is imported if it is not there yet: with less to compare
NumPy is done before that is imported, and long before anything is compiled."""
SPARSE_ROWS = 1 << 12
"""Sparse rows of a tile."""
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
    if metric is not None and is_sparse(rows) and metric.summed:
        from bigembed.distance.sparse_compiled import take_sparse  # imports numba: only here

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
    elif metric is not None and is_sparse(rows) and metric.summed:
        from bigembed.distance.sparse_compiled import count_sparse

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
        near, norms = _shifted(rows, np.arange(first, last), center)
        for low, high in bounds(len(reached), _QUERIES):
            x, own = _shifted(queries, reached[low:high], center)
            with np.errstate(over="ignore", invalid="ignore"):
                products = (-2 * x) @ near.T
            yield reached[low:high], first, products, own, norms


def _shifted(rows: Array, places: Array, center: Array) -> tuple[Array, Array]:
    """Some rows about a center and their squared lengths."""
    from bigembed.quality import compiled as kernels

    out, norms = np.empty((len(places), rows.shape[1]), rows.dtype), np.empty(len(places), rows.dtype)
    kernels.shifted(rows, places, center, out, norms)
    return out, norms


# ---------------------------------------------------------------------------------------------------------- spaces
# Passes over one set of rows with the sampled rows at hand: its summary, nearest rows, distances, ranks.

EUCLIDEAN = RowMetric("euclidean")


@dataclass(frozen=True)
class Space:
    """One of the two sets of rows: rows or coordinates, their metric, and where their passes leave what they find."""

    name: str
    source: RowSource
    exchange: Exchange
    sample: Array
    """Numbers of the sampled rows, ascending, int64 (s,)."""
    metric: RowMetric = EUCLIDEAN
    mapped: bool = False
    """Whether the rows are mapped for the metric already."""

    @property
    def pairwise(self) -> RowMetric | None:
        """The metric, where distances are not Euclidean ones of dense rows."""
        return None if self.metric.mapped and not self.source.sparse else self.metric

    @property
    def compiled(self) -> bool:
        """Whether compiled code pays, its import included; the figures are the same either way."""
        pairs, width = len(self.sample) * int(self.source.shape[0]), self.source.width
        loaded = "numba" in sys.modules or pairs * max(64, width) >= LOADED
        return loaded and pairs * max(8, width) >= COMPILED and self.pairwise is None

    def survey(self) -> Parts:
        """One pass: NaN, infinity and rows that the metric does not admit refused; moments of the columns; the
        sampled rows, (s, d)."""
        name = f"{self.name}-survey"
        self.exchange.drop(name)
        given: dict[str, Any] = {"sample": self.sample, "metric": "" if self.mapped else self.metric.text}
        try:
            found = reduce_rows(
                self.source, survey_block, self.exchange, combine=add_surveys, first=True, label=name, **given
            )
        except InputError as error:
            raise InputError(f"{self.name}: {error}") from error
        if wrong := int(found["wrong"]):
            _, what, advice = inadmissible(np.zeros((1, 2)), self.metric.text)
            raise InputError(
                f"{self.name}: metric={self.metric.text!r} is not defined for {what}: {wrong} of "
                f"{self.source.shape[0]}, the first is row {int(found['first_wrong'])}. {advice}"
            )
        return found

    def ask(self, survey: Parts) -> None:
        """Leave the sampled rows, as a survey has found them, where tasks find them."""
        self.leave(self.prepared(rows_of_parts(survey, self.source.width)))

    def leave(self, prepared: Any) -> None:
        """Leave the sampled rows, as they are compared, where tasks find them."""
        self.exchange.put(f"{self.name}-sampled", 0, row_parts(prepared))

    def sampled(self) -> Any:
        """The sampled rows."""
        return rows_of_parts(self.exchange.get_all(f"{self.name}-sampled", 0), self.columns)

    @property
    def columns(self) -> int:
        """Of sparse rows as they are compared."""
        return self.source.width + (self.metric.name in CENTERED and not self.mapped)

    def prepared(self, rows: Any) -> Any:
        """Rows as they are compared."""
        return rows if self.mapped else mapped_rows(rows, self.metric.text, rows.dtype)

    def look(self, k: int, others: Array) -> Parts:
        """One pass: of each sampled row the k nearest rows, ``ids`` and ``squared`` distances (s, k), and its squared
        distances ``far`` to ``others`` (s, p).

        InputError where distances exceed what float64 holds.
        """
        asked = {"others": others}
        if k and self.compiled:  # (in a task: the coordinating process does not load the compiler for it)
            (asked["limits"],) = map_blocks(limits_block, [()], space=self, k=k)
        found = self._pass(look_block, add_looks, "look", asked, k=k)
        if k and (found["ids"] < 0).any():
            raise InputError(f"{self.name}: squared distances exceed what float64 holds. Scale the columns down")
        return found

    def ranks(self, others: Array, limits: Array) -> Array:
        """One pass: rank (from 1) of each of ``others`` (s, p) among all rows, by distance from the sampled row."""
        found = self._pass(rank_block, add_parts, "rank", {"others": others, "limits": limits})
        return np.asarray(found["counts"] + 1)

    def _pass(self, function: Any, combine: Any, name: str, asked: Parts, **fixed: Any) -> Parts:
        name = f"{self.name}-{name}"
        self.exchange.drop(name)
        self.exchange.put(f"{name}-asked", 0, asked)
        given = {"space": self, "asked": f"{name}-asked", **fixed}
        found = reduce_rows(self.source, function, self.exchange, combine=combine, label=name, **given)
        self.exchange.drop(f"{name}-asked")
        return found


@dataclass(frozen=True)
class Looked(RowMetric):
    """Distances that are given: those of a row to the sampled rows, of which a query is the number."""

    name: str = "precomputed"

    def squared(self, rows: Any, others: Any, swapped: Array | None = None) -> Array:
        """Squared distances (m, N) of the queries ``rows`` (m, 1) to ``others``, their distances (N, s)."""
        return np.asarray(np.square(others[:, rows[:, 0]].T, dtype=np.float64))


@dataclass(frozen=True)
class DistancesToSample(RowSource):
    """Given distances (n, s) of all rows to s sampled ones, which were checked when they were picked."""

    sample: Array = field(default_factory=lambda: np.zeros(0, np.int64))
    """Numbers of the sampled rows, ascending (s,)."""
    metric: ClassVar[RowMetric] = Looked()


@dataclass(frozen=True)
class GivenSpace(Space):
    """Rows of which distances are given, and nothing else."""

    def survey(self) -> Parts:
        """Nothing: there are no columns."""
        return {}

    def ask(self, survey: Parts) -> None:
        """Leave nothing: sampled rows are known by their numbers."""

    def sampled(self) -> Any:
        """Their numbers among the sampled ones."""
        return np.arange(len(self.sample))[:, None]


def survey_block(block: RowBlock, *, sample: Array, metric: str) -> Parts:
    """Moments and limits of the columns, rows that a metric does not admit, and the sampled rows of a block."""
    low, high = np.searchsorted(sample, [block.start, block.stop])
    wrong = np.flatnonzero(inadmissible(block.rows, metric)[0])
    with np.errstate(over="ignore", invalid="ignore"):
        moments = moments_block(block.rows, diagonal=True)
    least, most = block.rows.min(axis=0), block.rows.max(axis=0)
    return (
        moments
        | {
            "low": least.toarray() if is_sparse(block.rows) else least,
            "high": most.toarray() if is_sparse(block.rows) else most,
            "wrong": np.array(len(wrong)),
            "first_wrong": np.array(wrong[0] + block.start if len(wrong) else np.iinfo(np.int64).max),
        }
        | row_parts(block.rows[sample[low:high] - block.start])
    )


def add_surveys(left: Parts, right: Parts) -> Parts:
    """Of two runs of blocks, the left one before the right one."""
    with np.errstate(over="ignore", invalid="ignore"):
        moments = merge_moments(*({name: part[name] for name in _MOMENTS} for part in (left, right)))
    rows = [name for name in left if name.startswith("rows")]
    return moments | {
        "low": np.minimum(left["low"], right["low"]),
        "high": np.maximum(left["high"], right["high"]),
        "wrong": left["wrong"] + right["wrong"],
        "first_wrong": np.minimum(left["first_wrong"], right["first_wrong"]),
        **{name: np.concatenate([left[name], right[name]]) for name in rows},
    }


_MOMENTS = ("count", "weight", "mean", "scatter")


def limits_block(*, space: Space, k: int) -> Array:
    """Squared distances (s,) that the k nearest of all rows do not exceed: to the k-th of the sampled ones."""
    queries, numbers = space.sampled(), np.arange(len(space.sample))
    return nearest_block(queries, numbers, queries, 0, k, space.compiled, space.pairwise)[1][:, -1]


def look_block(block: RowBlock, *, space: Space, asked: str, k: int) -> Parts:
    """Nearest rows and chosen distances of the sampled rows within a block."""
    queries, rows = space.sampled(), space.prepared(block.rows)
    others, limits = space.exchange.find(asked, 0, ["others", "limits"])
    assert others is not None
    ids, squared = np.zeros((len(others), 0), int), np.zeros((len(others), 0))
    if k:
        given = queries, space.sample, rows, block.start, k, space.compiled, space.pairwise
        ids, squared = nearest_block(*given, limits=limits)
    far = distances_block(queries, others, rows, block.start, space.pairwise)
    return {"far": far, "ids": ids, "squared": squared}


def add_looks(left: Parts, right: Parts) -> Parts:
    """Of two runs of blocks, the left one before the right one."""
    ids, squared = nearer(left["ids"], left["squared"], right["ids"], right["squared"])
    return {"far": left["far"] + right["far"], "ids": ids, "squared": squared}


def rank_block(block: RowBlock, *, space: Space, asked: str) -> Parts:
    """How many rows of a block come before the others."""
    rows = space.prepared(block.rows)
    others, limits = space.exchange.get_many(asked, 0, ["others", "limits"])
    given = others, limits, rows, block.start, space.compiled, space.pairwise
    return {"counts": counts_block(space.sampled(), space.sample, *given)}
