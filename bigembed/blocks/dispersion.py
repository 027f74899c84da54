"""How far the columns of counts spread beyond what columns of their size do: which genes of single cells differ."""

from __future__ import annotations

import numpy as np

from bigembed.blocks.rows import Array

BINS = 20


def normalized_dispersion(mean: Array, variance: Array) -> Array:
    """(log D_j − a_b)/s_b of the dispersion D_j = v_j/m_j of each column (d,): NaN where the variance is 0.

    a_b and s_b are the mean and the standard deviation of log D over the columns of the bin b of column j; the range
    of log(1 + m) has 20 bins of one width (Satija et al. 2015, as Scanpy has it, flavor "seurat"). In a bin of one
    column it is 1.

    >>> found = normalized_dispersion(np.array([1.0, 1.0, 1.0, 9.0, 9.0]), np.array([1.0, 1.0, 8.0, 9.0, 0.0]))
    >>> found.round(3).tolist()
    [-0.577, -0.577, 1.155, 1.0, nan]
    """
    with np.errstate(divide="ignore", invalid="ignore"):
        dispersion = np.log(np.where(variance > 0, variance / mean, np.nan))
    size, there = np.log1p(mean), np.isfinite(dispersion)
    inner = np.linspace(size.min(), size.max(), BINS + 1)[1:-1]
    bins, values = np.searchsorted(inner, size), np.where(there, dispersion, 0)
    counts, sums = (np.bincount(bins, weights, BINS) for weights in (there, values))
    center = sums / np.maximum(counts, 1)
    squares = np.bincount(bins, np.where(there, (dispersion - center[bins]) ** 2, 0), BINS)
    spread = np.sqrt(squares / np.maximum(counts - 1, 1))
    alone = counts == 1
    with np.errstate(divide="ignore", invalid="ignore"):
        return np.where(alone[bins] & there, 1.0, (dispersion - center[bins]) / spread[bins])
