"""Lists of the nearest rows, exact inside the cells that each probes; by distances of pairs; with roles exchanged."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from bigembed.distance import paired_squared, rounding
from bigembed.distance.metrics import RowMetric
from bigembed.neighbors import approximate_squared, merge_pairs
from bigembed.neighbors.survey import Shape
from bigembed.runtime.blocks import Array, is_sparse

if TYPE_CHECKING:
    from bigembed.neighbors.search.pair_join import PairDistances
    from bigembed.neighbors.search.probes import Probing
# ------------------------------------------------------------------------------------------------------- exact lists
# Nearest neighbors of the rows of one block.
#
# The candidates arrive cell by cell, in pieces of any size and order. For one cell, the rows that probe it and the rows
# in it are shifted by its center (so that little is lost to cancellation), one matrix product gives approximate
# distances, and what may belong into a list is computed exactly (:mod:`bigembed.neighbors.search.compiled`). So the
# lists are the exact nearest candidates, ordered by (squared distance, id), whatever the pieces.

_CHUNK_ROWS = 1024
_CHUNK_CANDIDATES = 512


@dataclass(frozen=True)
class Cells:
    """Consecutive or selected cells of some block, with their rows: a piece of the candidates."""

    numbers: Array
    """Cell numbers, int64 (c,)."""
    offsets: Array
    """First row of each cell in ``rows``, int64 (c+1,)."""
    rows: Array
    """(r, d)."""
    ids: Array
    """Row ids, int64 (r,)."""
    centers: Array
    """(c, d)."""


def search_cells(ids: Array, squared: Array, rows: Array, row_ids: Array, probing: Probing, piece: Cells) -> int:
    """Take the rows of ``piece`` into the lists of the ``rows`` (n, d) that probe them, in place.

    ``ids`` int64 (n, k) and ``squared`` (n, k) begin as :func:`~bigembed.neighbors.empty_lists`;
    ``row_ids`` int64 (n,), −1 for rows that are nobody's candidates. Returns the number of pairs
    whose approximate distance was computed. Give the block's own cells first, each row's nearest cell
    before all (:func:`search_own`): full lists reject early.
    """
    work = _Work(ids, squared, rows, row_ids)
    pairs = 0
    for c, number in enumerate(piece.numbers.tolist()):
        asking = probing.of(number)
        if len(asking):
            cell = slice(int(piece.offsets[c]), int(piece.offsets[c + 1]))
            pairs += work.compare(asking, piece.centers[c], piece.rows[cell], piece.ids[cell])
    return pairs


def search_own(ids: Array, squared: Array, rows: Array, row_ids: Array, probing: Probing, own: Cells) -> int:
    """Each row of a block against its own cell, then against the other cells of the block that it probes.

    ``own`` holds all cells of the block, ``own.rows`` being ``rows``. The same result as
    :func:`search_cells`, only quicker, since lists are full of near rows from the start.
    """
    work = _Work(ids, squared, rows, row_ids)
    pairs = 0
    spans = list(zip(own.numbers.tolist(), own.offsets[:-1].tolist(), own.offsets[1:].tolist()))
    for inside in (True, False):
        for c, (number, start, stop) in enumerate(spans):
            asking = probing.of(number)
            low, high = np.searchsorted(asking, [start, stop])
            chosen = asking[low:high] if inside else np.concatenate([asking[:low], asking[high:]])
            if len(chosen):
                pairs += work.compare(chosen, own.centers[c], own.rows[start:stop], own.ids[start:stop])
    return pairs


def search_every(ids: Array, squared: Array, queries: Array, query_ids: Array, piece: Cells) -> None:
    """Take the rows of ``piece`` into the lists of all ``queries``. What is out of a list's reach costs little."""
    work = _Work(ids, squared, queries, query_ids)
    everyone = np.arange(len(queries), dtype=np.int32)
    for c, (start, stop) in enumerate(zip(piece.offsets[:-1].tolist(), piece.offsets[1:].tolist())):
        work.compare(everyone, piece.centers[c], piece.rows[start:stop], piece.ids[start:stop])


def search_rows(ids: Array, squared: Array, queries: Array, query_ids: Array, rows: Array, row_ids: Array) -> None:
    """:func:`bigembed.neighbors.update_lists`, compiled: the same lists, several times faster."""
    work = _Work(ids, squared, queries, query_ids)
    everyone = np.arange(len(queries), dtype=np.int32)
    for start in range(0, len(rows), _CHUNK_CANDIDATES):
        part = slice(start, start + _CHUNK_CANDIDATES)
        work.compare(everyone, rows[part].mean(axis=0), rows[part], row_ids[part])


class _Work:
    """Scratch arrays for one block, and the compiled kernels."""

    def __init__(self, ids: Array, squared: Array, rows: Array, row_ids: Array) -> None:
        from bigembed.neighbors.search import compiled as topk  # imports numba: only here

        self.kernels = topk
        self.lists = ids, squared
        self.rows = np.ascontiguousarray(rows)
        self.row_ids = row_ids
        d, dtype = rows.shape[1], rows.dtype
        self.rounding = rounding(d, dtype)
        self.shifted = np.empty((_CHUNK_ROWS, d), dtype)
        self.norms = np.empty(_CHUNK_ROWS, dtype)
        self.kept = np.empty(_CHUNK_ROWS, np.int32)
        self.products = np.empty(_CHUNK_ROWS * _CHUNK_CANDIDATES, dtype)
        self.near = np.empty((_CHUNK_CANDIDATES, d), dtype)
        self.near_norms = np.empty(_CHUNK_CANDIDATES, dtype)
        self.lows = np.empty(topk.WIDTH * -(-2 * (ids.shape[1] + 1) // topk.WIDTH), dtype)
        self.best = np.empty(ids.shape[1] + 1, dtype)

    def compare(self, asking: Array, center: Array, candidates: Array, candidate_ids: Array) -> int:
        """All of ``asking`` (rows of the block) against all candidates of one cell; the pairs computed."""
        pairs = 0
        for start in range(0, len(candidates), _CHUNK_CANDIDATES):
            part = slice(start, start + _CHUNK_CANDIDATES)
            pairs += self._compare(asking, center, candidates[part], candidate_ids[part])
        return pairs

    def _compare(self, asking: Array, center: Array, candidates: Array, candidate_ids: Array) -> int:
        ids, squared = self.lists
        near, near_norms = self._shift(candidates, center)
        radius = float(np.sqrt(np.float64(near_norms[: len(candidates)].max())))
        pairs = 0
        for start in range(0, len(asking), _CHUNK_ROWS):
            count = self.kernels.gather(
                self.rows,
                asking[start : start + _CHUNK_ROWS],
                center,
                radius,
                self.rounding,
                squared,
                self.shifted,
                self.norms,
                self.kept,
            )
            if count == 0:
                continue
            products = self.products[: count * len(near)].reshape(count, len(near))
            with np.errstate(over="ignore", invalid="ignore"):
                np.matmul(self.shifted[:count], near.T, out=products)
            self.kernels.update(
                products,
                near_norms,
                candidates,
                candidate_ids,
                self.rows,
                self.row_ids,
                self.kept,
                self.norms,
                radius,
                self.rounding,
                self.lows,
                self.best,
                ids,
                squared,
            )
            pairs += count * len(candidates)
        return pairs

    def _shift(self, candidates: Array, center: Array) -> tuple[Array, Array]:
        """−2 ỹ for ỹ = candidates − center, and ‖ỹ‖²; padded with zero rows of infinite norm."""
        n, width = len(candidates), self.kernels.WIDTH
        padded = -(-n // width) * width
        near, norms = self.near[:padded], self.near_norms[:padded]
        with np.errstate(over="ignore", invalid="ignore"):
            np.subtract(candidates, center, out=near[:n])
            np.einsum("ij,ij->i", near[:n], near[:n], out=norms[:n])
            near[n:] = 0
            near *= -2
        norms[n:] = np.inf
        return near, norms


# --------------------------------------------------------------------------------------------------------- reverse
# The search with the roles exchanged: which fitted rows would have a new row among their own k nearest.
#
# A fitted row j looks, among the new rows of the cells that it probes, for those no farther than its k-th neighbor.
# As above, a matrix product only rejects, and what may count is computed exactly.

Pairs = tuple[Array, Array, Array]
"""Row, candidate and squared distance of each pair."""
_TILE = 512


def reverse_cells(rows: Array, limits: Array, probing: Probing, new: Cells) -> Pairs:
    """Pairs of one of the ``rows`` (n, d) and a row of a cell of ``new`` that it probes, ‖x − y‖² ≤ its limit.

    ``limits`` (n,) in the dtype of the rows. Rows and candidates are counted in ``rows`` and ``new.rows``.
    """
    from bigembed.neighbors.search.compiled import reverse  # imports numba: only here

    place = np.searchsorted(probing.cells, new.numbers)
    asked = np.append(probing.cells, -1)[place] == new.numbers
    starts = np.where(asked, probing.offsets[place], 0)
    stops = np.where(asked, np.append(probing.offsets, 0)[place + 1], 0)
    limits = np.ascontiguousarray(limits)[:, None]
    return reverse(
        starts,
        stops,
        probing.rows,
        new.offsets,
        new.rows,
        new.centers,
        rows,
        limits,
        rounding(rows.shape[1], rows.dtype),
    )


def reverse_every(rows: Array, limits: Array, new: Array) -> Pairs:
    """Pairs of which each row probes everything, without compiled code."""
    found: list[Pairs] = []
    for start in range(0, len(new), _TILE):
        tile = new[start : start + _TILE]
        approximate, slack = approximate_squared(tile, rows)
        candidate, row = np.nonzero(~(approximate > limits + 2 * slack[:, None]))
        with np.errstate(over="ignore"):
            squared = paired_squared(rows[row], tile[candidate]).astype(rows.dtype)
        near = squared <= limits[row]
        found.append((row[near], candidate[near] + start, squared[near]))
    return joined_pairs(found, rows.dtype)


def joined_pairs(found: list[Pairs], dtype: np.dtype[np.generic]) -> Pairs:
    """Pairs of several parts as one."""
    nothing = (np.zeros(0, np.int64), np.zeros(0, np.int64), np.zeros(0, dtype))
    row, candidate, squared = (np.concatenate(part) for part in zip(nothing, *found, strict=True))
    return row, candidate, squared


# ------------------------------------------------------------------------------------------------------- by metric
# Neighbors by distances that are computed pair by pair: of metrics that are not Euclidean, and of sparse rows.
#
# The candidates are those of the Euclidean search, the rows of the cells that a row probes; here every pair of a row
# and a candidate gets its distance. Lists are ordered by (squared distance, id), whatever the pieces.

TILE_ENTRIES = 1 << 20
SPARSE_ROWS = 1 << 12
"""Sparse rows that others are compared with at a time: what is known of them stays in the cache."""


@dataclass(frozen=True)
class ByMetric:
    """Comparisons of rows, dense or CSR, as they were prepared for a metric. Small and picklable."""

    metric: RowMetric
    dtype: str
    """Of squared distances that are kept."""
    every: float = 0.0
    """Terms of a distance, for a plan (:meth:`~bigembed.distance.metrics.RowMetric.terms`)."""
    listed: float = 0.0
    """Of one that may be rejected from a list by less."""

    def squared(self, rows: Any, others: Any, ids: Array | None = None, other_ids: Array | None = None) -> Array:
        """Squared distances (m, N); with ids that of two rows is one number, whichever of them comes first."""
        swapped = None
        if self.metric.own and ids is not None and other_ids is not None:
            swapped = ids[:, None] > other_ids
        with np.errstate(over="ignore"):
            return self.metric.squared(rows, others, swapped).astype(self.dtype, copy=False)

    def of_pairs(self, rows: Any) -> PairDistances:
        """Squared distances of pairs of ``rows``, of ascending ids."""
        from bigembed.neighbors.search.pair_join import PairDistances  # imports numba: only here

        return PairDistances(rows, self.metric, self.dtype)

    def update_lists(
        self, ids: Array, squared: Array, queries: Any, query_ids: Array, rows: Any, row_ids: Array
    ) -> None:
        """Take ``rows`` as candidates into the lists of ``queries``, in place; ``row_ids`` ascend."""
        everyone = np.arange(queries.shape[0])
        tile = max(1, TILE_ENTRIES // max(1, min(TILE_ENTRIES, queries.shape[0])))
        for part in _parts(rows.shape[0], SPARSE_ROWS if is_sparse(rows) else tile):
            self._take(ids, squared, everyone, queries, query_ids, rows[part], row_ids[part])

    def search_cells(
        self, ids: Array, squared: Array, rows: Any, row_ids: Array, probing: Probing, piece: Cells
    ) -> int:
        """Take the rows of ``piece`` into the lists of the ``rows`` that probe them; the pairs compared."""
        pairs = 0
        for c, number in enumerate(piece.numbers.tolist()):
            asking, cell = probing.of(number), slice(int(piece.offsets[c]), int(piece.offsets[c + 1]))
            if len(asking) and cell.stop > cell.start:
                self._take(ids, squared, asking, rows, row_ids, piece.rows[cell], piece.ids[cell])
                pairs += len(asking) * (cell.stop - cell.start)
        return pairs

    def _take(
        self, ids: Array, squared: Array, asking: Array, rows: Any, row_ids: Array, others: Any, other_ids: Array
    ) -> None:
        """Take the candidates ``others`` into the lists of ``rows[asking]``."""
        if is_sparse(rows) and self.metric.summed:
            from bigembed.distance.sparse_compiled import take_sparse  # imports numba: only here

            take_sparse(ids, squared, asking, rows, row_ids, others, other_ids, self.metric.text)
            return
        for part in _parts(len(asking), max(1, TILE_ENTRIES // max(1, others.shape[0]))):
            mine = asking[part]
            found = self.squared(rows[mine], others, row_ids[mine], other_ids)
            found[row_ids[mine][:, None] == other_ids] = np.inf
            take_tile(ids, squared, mine, found, other_ids)

    def reverse_every(self, rows: Any, limits: Array, new: Any) -> Pairs:
        """Pairs of a row and a new one whose squared distance is at most the limit of the row."""
        found: list[Pairs] = []
        for part in _parts(new.shape[0], max(1, TILE_ENTRIES // max(1, rows.shape[0]))):
            squared = self.squared(new[part], rows)
            candidate, row = np.nonzero(squared <= limits)
            found.append((row, candidate + part.start, squared[candidate, row]))
        return joined_pairs(found, np.dtype(self.dtype))

    def reverse_cells(self, rows: Any, limits: Array, probing: Probing, new: Cells) -> Pairs:
        """Pairs of one of the ``rows`` and a row of a cell of ``new`` that it probes, at most its limit apart."""
        found: list[Pairs] = []
        for c, number in enumerate(new.numbers.tolist()):
            asking, first = probing.of(number), int(new.offsets[c])
            if len(asking):
                row, candidate, squared = self.reverse_every(
                    rows[asking], limits[asking], new.rows[first : int(new.offsets[c + 1])]
                )
                found.append((asking[row], candidate + first, squared))
        return joined_pairs(found, np.dtype(self.dtype))

    def nearest_pair(self, rows: Any, ids: Array, others: Any, other_ids: Array) -> tuple[float, int, int]:
        """The shortest edge: squared length, and the ids of its ends; of equal ones that of the lowest ids."""
        best = (np.inf, 0, 0)
        for part in _parts(len(ids), max(1, TILE_ENTRIES // max(1, others.shape[0]))):
            found = self.squared(rows[part], others, ids[part], other_ids)
            row, column = np.nonzero(found == found.min())
            first = np.lexsort((other_ids[column], ids[part][row]))[0]
            ends = int(ids[part][row[first]]), int(other_ids[column[first]])
            best = min(best, (float(found.min()), *ends))
        return best

    def counts(self, queries: Any, query_ids: Array, rows: Any, row_ids: Array, unit: int, bins: int) -> Array:
        """Squared distances, in units of 4ᵘ (u = ``unit``), counted by the upper half of their float32 bit pattern."""
        total = np.zeros(bins, np.int64)
        if is_sparse(rows) and self.metric.summed:
            from bigembed.distance.sparse_compiled import bins_sparse  # imports numba: only here

            for part in _parts(len(row_ids), SPARSE_ROWS):
                bins_sparse(queries, query_ids, rows[part], row_ids[part], self.metric.text, self.dtype, unit, total)
            return total
        for part in _parts(len(row_ids), max(1, TILE_ENTRIES // max(1, len(query_ids)))):
            found = self.squared(queries, rows[part], query_ids, row_ids[part])
            with np.errstate(over="ignore"):
                squared = np.ldexp(found.astype(np.float64), -2 * unit).astype(np.float32)
            squared[query_ids[:, None] == row_ids[part]] = 0.0
            total += np.bincount(squared.ravel().view(np.uint32) >> 16, minlength=bins)
        return total


def by_metric(shape: Shape) -> ByMetric | None:
    """How rows of a shape are compared pair by pair; None where the Euclidean search compares them."""
    if shape.euclidean:
        return None
    metric, size = shape.compare, (shape.d, shape.filled)
    return ByMetric(metric, shape.dtype, metric.terms(*size), metric.terms(*size, listed=True))


def take_tile(ids: Array, squared: Array, queries: Array, tile: Array, row_ids: Array) -> None:
    """Take candidates with squared distances ``tile`` (m, N) into the lists ``queries`` (m,); ``row_ids`` ascend.

    Rows at infinity are left out. At most k of a row of the tile are taken, so that ties cost no more than the rest.
    """
    k = ids.shape[1]
    last, last_id = squared[queries, -1], ids[queries, -1]
    near = tile < last[:, None]
    near |= (tile == last[:, None]) & (row_ids < last_id[:, None])
    near &= tile < np.inf
    crowded = np.flatnonzero(np.count_nonzero(near, axis=1) > k)
    if len(crowded):
        first = np.argsort(np.where(near[crowded], tile[crowded], np.inf), axis=1, kind="stable")[:, :k]
        near[crowded] = False
        near[crowded[:, None], first] = True
    query, row = np.nonzero(near)
    merge_pairs(ids, squared, queries[query], row_ids[row], tile[query, row])


def _parts(count: int, size: int) -> Iterator[slice]:
    return (slice(start, min(start + size, count)) for start in range(0, count, size))
