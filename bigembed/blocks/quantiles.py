"""Exact order statistics of columns by counting: the bits of a number, the highest first, tell which one it is.

Finite numbers of IEEE 754 sort as unsigned integers do once the sign bit of nonnegative ones is set and all bits of
negative ones are turned. A pass counts, for each column and each rank that is looked for, the numbers that begin with
the bits known so far by the bits that follow; the cumulative counts say which of those are next. A radix selection in
⌈w/b⌉ passes for numbers of w bits, b bits a pass (Knuth 1998, vol. 3, §5.2.5). Counts are integers: their sums are
exact in any order.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from bigembed.blocks.rows import Array

COUNTS_BYTES = 16 << 20
"""Counts of one pass, about."""
MOST_BITS, LEAST_BITS = 14, 4


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
    keys = keys_of(rows)
    width = 8 * keys.dtype.itemsize
    one = keys.dtype.type
    out = np.zeros((*known.shape, 1 << bits), np.int64)
    absent = np.isnan(rows)
    for column in range(rows.shape[1]):
        values = keys[:, column][~absent[:, column]] if absent[:, column].any() else keys[:, column]
        for rank, prefix in enumerate(known[column]):
            if rank and prefix == known[column, rank - 1]:
                out[column, rank] = out[column, rank - 1]
                continue
            those = values[values >> one(width - done) == prefix] if done else values
            following = (those >> one(width - done - bits)) & one((1 << bits) - 1)
            out[column, rank] = np.bincount(following.astype(np.int64), minlength=1 << bits)
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
