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
from scipy.linalg.blas import dsyrk

from bigembed.blocks.rows import Array, is_sparse

TILE_BYTES = 2 << 20
"""Rows that are centered at a time: what stays in the cache."""

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
        shape = (d,) if diagonal else (d, d)
        return {"count": np.array(0), "weight": np.array(0.0), "mean": np.zeros(d), "scatter": np.zeros(shape)}
    mean = _mean(rows, weights, total)
    second = _sparse_scatter if is_sparse(rows) else _scatter
    scatter = second(rows, weights, mean, total, diagonal)
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


def _mean(rows: Any, weights: Array | None, total: float) -> Array:
    if is_sparse(rows):
        ones = np.ones(rows.shape[0]) if weights is None else weights
        return np.asarray(rows.T.astype(np.float64) @ ones) / total
    if weights is None:
        return np.asarray(rows.mean(axis=0, dtype=np.float64))
    mean = np.zeros(rows.shape[1])
    for start, stop in tiles(rows):
        mean += weights[start:stop] @ rows[start:stop].astype(np.float64)
    return mean / total


def _scatter(rows: Array, weights: Array | None, mean: Array, total: float, diagonal: bool) -> Array:
    d = rows.shape[1]
    scatter = np.zeros(d) if diagonal else np.zeros((d, d), order="F")
    for start, stop in tiles(rows):
        tile = np.subtract(rows[start:stop], mean, dtype=np.float64)
        if weights is not None:
            tile *= np.sqrt(weights[start:stop])[:, None]
        if diagonal:
            scatter += np.einsum("ij,ij->j", tile, tile)
        else:
            scatter = dsyrk(1.0, tile.T, beta=1.0, c=scatter, overwrite_c=1)
    return scatter if diagonal else mirrored(scatter)


def _sparse_scatter(rows: Any, weights: Array | None, mean: Array, total: float, diagonal: bool) -> Array:
    rows = sparse.csr_array(rows, dtype=np.float64)
    weighted = rows if weights is None else rows.multiply(weights[:, None]).tocsr()
    if diagonal:
        return np.asarray(rows.multiply(weighted).sum(axis=0)).ravel() - total * mean**2
    scatter = np.asarray((weighted.T @ rows).toarray())
    scatter -= total * np.outer(mean, mean)
    return scatter


def mirrored(upper: Array) -> Array:
    """The symmetric matrix of an upper triangle, in C order."""
    return np.ascontiguousarray(np.triu(upper) + np.triu(upper, 1).T)


def tiles(rows: Array) -> list[tuple[int, int]]:
    """Start and stop of the parts of a block that fit the cache in float64."""
    size = max(64, TILE_BYTES // (8 * max(1, rows.shape[1])))
    return [(start, min(start + size, len(rows))) for start in range(0, len(rows), size)]
