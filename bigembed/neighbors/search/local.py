"""Nearest neighbors of the rows of one block, exact inside the cells that each row probes.

The candidates arrive cell by cell, in pieces of any size and order. For one cell, the rows that
probe it and the rows in it are shifted by its center (so that little is lost to cancellation), one matrix
product gives approximate distances, and what may belong into a list is computed exactly
(:mod:`bigembed.neighbors.search.compiled`). So the lists are the exact nearest candidates, ordered by
(squared distance, id), whatever the pieces.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from bigembed.distance.pairwise import rounding
from bigembed.runtime.blocks import Array

if TYPE_CHECKING:
    from bigembed.neighbors.search.probes import Probing


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

    ``ids`` int64 (n, k) and ``squared`` (n, k) begin as :func:`~bigembed.neighbors.exact.empty_lists`;
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
    """:func:`bigembed.neighbors.exact.update_lists`, compiled: the same lists, several times faster."""
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
