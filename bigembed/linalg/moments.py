"""First and second moments of row blocks, merged in a fixed tree, and exact order statistics of columns by counting."""

from __future__ import annotations

from typing import Any

import numpy as np
from scipy import sparse

from bigembed.errors import InputError
from bigembed.runtime.blocks import Array, bounds, is_sparse

# --------------------------------------------------------------------------------------------------------- moments
# First and second moments of rows: each block about its own mean, merged without cancellation.
#
# With W = Σ w_i, m = Σ w_i x_i / W and S = Σ w_i (x_i − m)(x_i − m)ᵀ of two sets,
#
#     m = m_a + (W_b/W) δ,    S = S_a + S_b + (W_a W_b/W) δδᵀ,    δ = m_b − m_a
#
# (Chan, Golub & LeVeque 1979, eq. 2.1), so a mean far from zero costs no digits, and neither does a first block that
# is unlike the others. Products are taken in float64.

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


def require_weight(found: Moments) -> None:
    """InputError where all rows have the weight zero."""
    if not found["weight"] > 0:
        raise InputError("weights must contain at least one that is not zero: all are zero")


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


# ------------------------------------------------------------------------------------------------------- quantiles
# Exact order statistics of columns by counting: the bits of a number, the highest first, tell which one it is.
#
# Finite numbers of IEEE 754 sort as unsigned integers do once the sign bit of nonnegative ones is set and all bits of
# negative ones are turned. A pass counts, for each column and each rank that is looked for, the numbers that begin
# with the bits known so far by the bits that follow; the cumulative counts say which of those are next. A radix
# selection in ⌈w/b⌉ passes for numbers of w bits, b bits a pass (Knuth 1998, vol. 3, §5.2.5). Counts are integers:
# their sums are exact in any order.

COUNTS_BYTES = 16 << 20
"""Counts of one pass, about."""
MOST_BITS, LEAST_BITS = 14, 4
PANEL = 1 << 18
"""Numbers that are counted at a time."""


def levels_of(dtype: Any, columns: int, ranks: int) -> list[int]:
    """Bits that each pass finds, for numbers of this dtype.

    >>> levels_of("float32", 20, 6), len(levels_of("float64", 2000, 6))
    ([14, 14, 4], 10)
    """
    width = 8 * np.dtype(dtype).itemsize
    fitting = int(np.log2(max(2, COUNTS_BYTES // (8 * columns * ranks))))
    bits = max(LEAST_BITS, min(MOST_BITS, fitting))
    return [min(bits, width - low) for low in range(0, width, bits)]


def keys_of(rows: Array) -> Array:
    """Unsigned integers that sort as the numbers do; −0 is 0. NaN has no meaning here."""
    rows = np.ascontiguousarray(rows) + rows.dtype.type(0)
    kind = np.dtype(f"u{rows.dtype.itemsize}")
    raw, sign = rows.view(kind), kind.type(1 << (8 * rows.dtype.itemsize - 1))
    return np.where(raw & sign, ~raw, raw | sign)


def numbers_of(keys: Array, dtype: Any) -> Array:
    """The numbers of :func:`keys_of`.

    >>> numbers_of(keys_of(np.array([-1.5, 0.0, 2.0])), "float64").tolist()
    [-1.5, 0.0, 2.0]
    """
    sign = keys.dtype.type(1 << (8 * keys.dtype.itemsize - 1))
    return np.where(keys & sign, keys ^ sign, ~keys).view(np.dtype(dtype))


def count_block(rows: Array, known: Array, done: int, bits: int) -> Array:
    """Counts (d, r, 2^bits) of the numbers of each column whose first ``done`` bits are ``known`` (d, r), by the next.

    NaN is left out.
    """
    d, ranks = known.shape
    out = np.zeros((d, ranks, 1 << bits), np.int64)
    for start, stop in bounds(d, max(1, PANEL // max(1, len(rows)))):
        columns = rows[:, start:stop].T
        keys, there = keys_of(columns), ~np.isnan(columns)
        one, width = keys.dtype.type, 8 * keys.dtype.itemsize
        following = (keys >> one(width - done - bits)) & one((1 << bits) - 1)
        bins = (np.arange(stop - start)[:, None] << bits) + following.astype(np.int64)
        first = keys >> one(width - done) if done else keys
        for rank in range(ranks):
            prefix = known[start:stop, rank]
            if rank and (prefix == known[start:stop, rank - 1]).all():
                out[start:stop, rank] = out[start:stop, rank - 1]
                continue
            counted = bins[there & (first == prefix[:, None])] if done else bins[there]
            out[start:stop, rank] = np.bincount(counted, minlength=(stop - start) << bits).reshape(-1, 1 << bits)
    return out


def next_bits(counts: Array, known: Array, ranks: Array, bits: int) -> tuple[Array, Array]:
    """The ``known`` bits with those that follow, and the ranks (d, r) among the numbers that begin with them."""
    ends = np.cumsum(counts, axis=-1)
    found = (ends <= ranks[..., None]).sum(axis=-1)
    before = np.take_along_axis(ends - counts, found[..., None], axis=-1)[..., 0]
    return (known << known.dtype.type(bits)) | found.astype(known.dtype), ranks - before


def ranks_of(counts: Array, shares: Array) -> tuple[Array, Array]:
    """Ranks (d, 2q) of the order statistics below and above each share of ``counts`` numbers, and what lies between.

    With h = (m − 1) q, the quantile is x_⌊h⌋ + (h − ⌊h⌋)(x_⌊h⌋₊₁ − x_⌊h⌋) (Hyndman & Fan 1996, definition 7).
    """
    place = np.maximum(counts - 1, 0)[:, None] * shares
    below = np.floor(place)
    above = np.minimum(below + 1, np.maximum(counts - 1, 0)[:, None])
    return np.stack([below, above], axis=-1).reshape(len(counts), -1).astype(np.int64), place - below


def between(values: Array, shares: Array) -> Array:
    """Quantiles (d, q) from the order statistics (d, 2q) and the shares of :func:`ranks_of`."""
    pairs = values.reshape(len(values), -1, 2).astype(np.float64)
    return np.asarray(pairs[..., 0] + shares * (pairs[..., 1] - pairs[..., 0]))
