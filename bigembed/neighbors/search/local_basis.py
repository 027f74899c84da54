"""Local bases: a few directions in which near rows differ most, so that rejecting a pair costs less than d products.

For orthonormal Q (d, p), with r_x = ‖x − QQᵀx‖ the part of x outside its span,

    ‖x − y‖² ≥ ‖Qᵀx − Qᵀy‖² + (r_x − r_y)²        (Cauchy–Schwarz on the parts outside)

and the right side is a squared distance again, of the p + 1 numbers (Qᵀx, r_x). Rows that lie near a
surface of few dimensions lose next to nothing by it. The bound only rejects pairs; rounding is allowed for, so
the neighbor lists are the same as without them.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from scipy import linalg

from bigembed.blocks.owners import owner_of
from bigembed.blocks.rows import Array
from bigembed.blocks.squared import rounding

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
