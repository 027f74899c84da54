"""First and second moments of rows: each block about its own mean, merged without cancellation.

With W = Σ w_i, m = Σ w_i x_i / W and S = Σ w_i (x_i − m)(x_i − m)ᵀ of two sets,

    m = m_a + (W_b/W) δ,    S = S_a + S_b + (W_a W_b/W) δδᵀ,    δ = m_b − m_a

(Chan, Golub & LeVeque 1979, eq. 2.1), so a mean far from zero costs no digits, and neither does a first
block that is unlike the others. Products are taken in float64.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from scipy import sparse

from bigembed.blocks.rows import Array, bounds, is_sparse

TILE_BYTES = 2 << 20
"""Rows that are centered at a time: what stays in the cache. (XᵀX by NumPy: SciPy's BLAS holds other threads up.)"""
SAMPLED = 64
"""Rows behind the first guess of a block's mean."""

Moments = dict[str, Array]
"""``count`` rows of positive weight, ``weight`` W, ``mean`` m (d,), ``scatter`` S (d, d), or its diagonal (d,)."""


def moments_block(rows: Any, weights: Array | None = None, *, diagonal: bool = False) -> Moments:
    """Moments of one block of dense or CSR rows; ``diagonal`` asks for the diagonal of S only.

    Cost: 8 d² bytes and a tile of centered rows; sparse rows are not centered one by one but by S − W m mᵀ.

    >>> found = moments_block(np.array([[0.0, 1.0], [2.0, 1.0]]))
    >>> found["mean"].tolist(), found["scatter"].tolist()
    ([1.0, 1.0], [[2.0, 0.0], [0.0, 0.0]])
    """
    n, d = rows.shape
    total = float(n) if weights is None else float(weights.sum())
    count = n if weights is None else int(np.count_nonzero(weights))
    if total <= 0:
        mean, scatter = np.zeros(d), np.zeros(d if diagonal else (d, d))
    elif is_sparse(rows):
        mean, scatter = _sparse_moments(rows, weights, total, diagonal)
    else:
        mean, scatter = _dense_moments(rows, weights, total, diagonal)
    return {"count": np.array(count), "weight": np.array(total), "mean": mean, "scatter": scatter}


def merge_moments(left: Moments, right: Moments) -> Moments:
    """Moments of two sets together. The scatter of ``left`` is used up."""
    total = left["weight"] + right["weight"]
    count = left["count"] + right["count"]
    if not right["weight"]:
        return left
    if not left["weight"]:
        return right
    share = right["weight"] / total
    apart = right["mean"] - left["mean"]
    factor = left["weight"] * share
    scatter = left["scatter"]
    scatter += right["scatter"]
    scatter += factor * (apart**2 if scatter.ndim == 1 else np.outer(apart, apart))
    return {"count": count, "weight": total, "mean": left["mean"] + share * apart, "scatter": scatter}


def _dense_moments(rows: Array, weights: Array | None, total: float, diagonal: bool) -> tuple[Array, Array]:
    """Moments about a center c near the mean, in one sweep; then S = S_c − W (m − c)(m − c)ᵀ."""
    d = rows.shape[1]
    center = _center(rows, weights)
    shift, scatter = np.zeros(d), np.zeros(d if diagonal else (d, d))
    spans = tiles(rows)
    tile, ones = np.empty((spans[0][1], d)), np.ones(spans[0][1])
    for start, stop in spans:
        part, weight = tile[: stop - start], ones[: stop - start]
        part[...] = rows[start:stop]
        part -= center
        if weights is not None:
            weight = np.sqrt(weights[start:stop])
            part *= weight[:, None]
        shift += weight @ part
        scatter += np.einsum("ij,ij->j", part, part) if diagonal else part.T @ part
    shift /= total
    scatter -= total * (shift**2 if diagonal else np.outer(shift, shift))
    return center + shift, scatter


def _center(rows: Array, weights: Array | None) -> Array:
    """The mean of a few rows spread over the block: with s of n rows it is off by at most √(n/s) deviations."""
    known = np.arange(len(rows)) if weights is None else np.flatnonzero(weights > 0)
    return np.asarray(rows[known[:: -(-len(known) // SAMPLED)]].mean(axis=0, dtype=np.float64))


def _sparse_moments(rows: Any, weights: Array | None, total: float, diagonal: bool) -> tuple[Array, Array]:
    """Moments about zero, in which only stored entries take part; then S − W m mᵀ."""
    rows = sparse.csr_array(rows, dtype=np.float64)  # (products of float32 entries would be rounded)
    weighted = rows if weights is None else rows.multiply(weights[:, None]).tocsr()
    mean = np.asarray(weighted.sum(axis=0)).ravel() / total
    if diagonal:
        return mean, np.asarray(rows.multiply(weighted).sum(axis=0)).ravel() - total * mean**2
    scatter = np.asarray((weighted.T @ rows).toarray())
    scatter -= total * np.outer(mean, mean)
    return mean, scatter


def tiles(rows: Array) -> list[tuple[int, int]]:
    """Start and stop of the parts of a block that fit the cache in float64."""
    size = max(256, TILE_BYTES // (8 * max(1, rows.shape[1])))
    return bounds(len(rows), size)
