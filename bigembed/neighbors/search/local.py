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
from scipy import linalg

from bigembed.distance.pairwise import rounding
from bigembed.runtime.blocks import Array, owner_of

if TYPE_CHECKING:
    from bigembed.neighbors.search.probes import Probing


# ----------------------------------------------------------------------------------------------------- local basis
# Local bases: a few directions in which near rows differ most, so that rejecting a pair costs less than d products.
#
# For orthonormal Q (d, p), with r_x = ‖x − QQᵀx‖ the part of x outside its span,
#
#     ‖x − y‖² ≥ ‖Qᵀx − Qᵀy‖² + (r_x − r_y)²        (Cauchy–Schwarz on the parts outside)
#
# and the right side is a squared distance again, of the p + 1 numbers (Qᵀx, r_x). Rows that lie near a surface of few
# dimensions lose next to nothing by it. The bound only rejects pairs; rounding is allowed for, so the neighbor lists
# are the same as without them.

_SAMPLE = 256
"""Rows that a basis is found from."""
_OUTSIDE = 0.05
"""Share of the mean squared distance to the cell's center that may lie outside its span."""
_STEP = 8
"""p + 1 is a multiple of this, which suits the matrix product."""

LEAST = 4 * _STEP
"""Columns, and sampled rows, below which there is no basis."""


@dataclass(frozen=True)
class LocalBasis:
    """A basis Q with a column of zeros behind it, where the part outside is put."""

    directions: Array
    """(d, p + 1) in the dtype of the rows."""
    rounding: float
    """What :func:`~bigembed.neighbors.exact.rounding` gives for reduced rows."""
    root: float
    """2√κ, where |computed r_x² − r_x²| ≤ κ‖x‖²."""


def basis_block(rows: Array, centers: Array, offsets: Array) -> LocalBasis | None:
    """The basis of a few near cells, or None where it would not pay.

    ``rows`` (n, d) of cells with ``centers`` (c, d) and ``offsets`` (c+1,) in the rows. What the basis leaves out is
    at most a twentieth of the mean squared distance to the center of the cell.
    """
    n, d = rows.shape
    chosen = np.arange(0, n, max(1, -(-n // _SAMPLE)))
    if d < LEAST or len(chosen) < LEAST:
        return None
    sample = rows[chosen].astype(np.float64)
    if not np.isfinite(sample).all():
        return None
    home = owner_of(offsets - offsets[0], chosen)
    inside = float(((sample - centers[home]) ** 2).sum(axis=1).mean())
    sample -= sample.mean(axis=0)
    across = len(sample) < d
    energy, vectors = linalg.eigh(sample @ sample.T if across else sample.T @ sample)
    energy, vectors = np.maximum(energy[::-1], 0) / len(sample), vectors[:, ::-1]
    outside = energy.sum() - np.cumsum(energy)
    p = int(np.argmax(outside <= _OUTSIDE * inside)) + 1
    p = _STEP * -(-(p + 1) // _STEP) - 1
    if outside[-1] > _OUTSIDE * inside or 2 * p >= min(d, len(sample)):
        return None
    spanning = sample.T @ vectors[:, :p] if across else vectors[:, :p]
    directions = np.zeros((d, p + 1), rows.dtype)
    directions[:, :p] = linalg.qr(spanning, mode="economic")[0]
    # x̂ = fl(Qᵀx) is within ε‖x‖ of the exact one, for Q rounded from an orthonormal basis
    epsilon = rounding(d, rows.dtype) * np.sqrt(p)
    return LocalBasis(directions, rounding(d, rows.dtype) + 4 * epsilon, 2 * np.sqrt(6 * epsilon))


# ----------------------------------------------------------------------------------------------------------- local

_CHUNK_ROWS = 1024
_CHUNK_CANDIDATES = 512
_BASIS_CELLS = 8
"""Cells that share a basis."""
_FRAME_PAIRS = 2_000_000
"""Pairs from which finding a basis takes less time than it saves."""


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

    def basis(self, first: int, probing: Probing) -> LocalBasis | None:
        """The basis of the cells from ``first``, which are near each other; None where few rows probe them."""
        if self.rows.shape[1] < LEAST:
            return None
        part = self.offsets[first : first + _BASIS_CELLS + 1]
        asking = sum(len(probing.of(number)) for number in self.numbers[first : first + _BASIS_CELLS].tolist())
        if asking * (part[-1] - part[0]) < _FRAME_PAIRS * (len(part) - 1):
            return None
        return basis_block(self.rows[part[0] : part[-1]], self.centers[first : first + _BASIS_CELLS], part)


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
        work.basis = piece.basis(c, probing) if c % _BASIS_CELLS == 0 else work.basis
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
            if not inside and c % _BASIS_CELLS == 0:  # lists are full now, which lower bounds need
                work.basis = own.basis(c, probing)
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
        self.basis: LocalBasis | None = None
        self.nothing = np.zeros(_CHUNK_ROWS, dtype)
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
        basis = self.basis
        near, near_norms, farthest = self._shift(candidates, center)
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
            shifted, outside = self.shifted[:count], self.nothing
            products = self.products[: count * len(near)].reshape(count, len(near))
            with np.errstate(over="ignore", invalid="ignore"):
                if basis is not None:
                    shifted = shifted @ basis.directions
                    self.kernels.residuals(shifted, self.norms)
                    outside = np.ascontiguousarray(shifted[:, -1])
                np.matmul(shifted, near.T, out=products)
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
                basis.rounding if basis else self.rounding,
                basis.root if basis else 0.0,
                outside,
                farthest,
                self.lows,
                self.best,
                ids,
                squared,
            )
            pairs += count * len(candidates)
        return pairs

    def _shift(self, candidates: Array, center: Array) -> tuple[Array, Array, float]:
        """−2 ỹ for ỹ = candidates − center (reduced, where there is a basis), ‖ỹ‖², and the largest part outside the
        basis; padded with zero rows of infinite norm."""
        n, width, farthest = len(candidates), self.kernels.WIDTH, 0.0
        padded = -(-n // width) * width
        near, norms = self.near[:padded], self.near_norms[:padded]
        with np.errstate(over="ignore", invalid="ignore"):
            np.subtract(candidates, center, out=near[:n])
            np.einsum("ij,ij->i", near[:n], near[:n], out=norms[:n])
            near[n:] = 0
            if self.basis is not None:
                near = near @ self.basis.directions
                farthest = self.kernels.residuals(near[:n], norms)
            near *= -2
        norms[n:] = np.inf
        return near, norms, farthest
