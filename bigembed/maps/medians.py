"""Medians and histograms of squared distances that lie by blocks, of rows alike or of rows with weights."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from math import isqrt
from typing import Any

import numpy as np

from bigembed.neighbors.row_weights import all_weights
from bigembed.runtime.blocks import Array, bounds, map_blocks
from bigembed.store.arrays import read_array

BINS = 1 << 16
QUARTERS = 4
"""Of 16 bits, in a float64."""
ROUNDING = 1e-12
COUNTED = 1 << 20
"""Squared distances that are counted at a time."""


def exact_median(histogram: Callable[[int | None], Array], total: int) -> float:
    """Exact lower median of nonnegative numbers spread over blocks, from four histograms of 65 536 counts.

    ``histogram(None)`` counts the first 16 bits of the patterns of float64; ``histogram(known)`` the next 16 of those
    that begin with the bits of ``known`` (behind a leading 1). For nonnegative numbers the order of the patterns is
    that of the numbers.
    """
    rank, known = (total - 1) // 2, 1
    for level in range(QUARTERS):
        counts = np.cumsum(histogram(known if level else None))
        digit = int(np.searchsorted(counts, rank, side="right"))
        rank -= int(counts[digit - 1]) if digit else 0
        known = known << 16 | digit
    return float(np.array([known & (1 << 64) - 1], np.uint64).view(np.float64)[0])


def weighted_median(histogram: Callable[[int | None], Array], mass: float) -> float:
    """:func:`exact_median` of numbers that count by weights, of this ``mass`` together: the least number that, with all
    smaller ones, has half of it."""
    below, known, half = 0.0, 1, mass / 2 * (1 - ROUNDING)
    for level in range(QUARTERS):
        counts = below + np.cumsum(histogram(known if level else None))
        digit = min(int(np.searchsorted(counts, half)), len(counts) - 1)
        below = float(counts[digit - 1]) if digit else below
        known = known << 16 | digit
    return float(np.array([known & (1 << 64) - 1], np.uint64).view(np.float64)[0])


def pattern_counts(values: Array, known: int | None, weights: Array | None = None) -> Array:
    """One block's part of :func:`exact_median`: 16 bits of the patterns of nonnegative numbers, and counts; with
    ``weights`` what the numbers weigh.

    Only those that occur, (2, m) int64 (float64 of weights): many blocks come together in one process.
    """
    bits = np.ascontiguousarray(values, np.float64).view(np.uint64)
    level = 0 if known is None else (known.bit_length() - 1) // 16
    if known is not None:
        here = bits >> np.uint64(64 - 16 * level) == np.uint64(known - (1 << 16 * level))
        bits, weights = bits[here], None if weights is None else weights[here]
    digits = bits >> np.uint64(48 - 16 * level) & np.uint64(0xFFFF)
    if weights is None:
        return np.stack(np.unique(digits.astype(np.int64), return_counts=True)).astype(np.int64)
    found, place = np.unique(digits.astype(np.int64), return_inverse=True)
    return np.stack([found, np.bincount(place, weights, len(found))])


def total(parts: Sequence[Array]) -> Array:
    """Sum of the counts of :func:`pattern_counts`, (65536,): int64 (exact in any order), or float64 of weights."""
    counts = np.zeros(BINS, np.result_type(np.int64, *parts))
    for part in parts:
        counts[part[0].astype(np.int64)] += part[1]
    return counts


def median_scale(farthest: str, sizes: Array, weights: str) -> float:
    """Median of the squared distance to the k-th neighbor, over the rows by their weights."""

    def histogram(high: int | None) -> Array:
        fixed: dict[str, Any] = {"farthest": farthest, "high": high} | ({"weights": weights} if weights else {})
        return total(map_blocks(kth_counts_block, [(b,) for b in range(len(sizes))], **fixed))

    count = int(sizes.sum())
    return weighted_median(histogram, count) if weights else exact_median(histogram, count)


def median_of_pairs(graph: str, sizes: Array, weights: str) -> float:
    """Median of the squared distances of all pairs, which the blocks of a complete graph or its lists hold."""
    known = all_weights(weights, sizes)

    def histogram(high: int | None) -> Array:
        fixed: dict[str, Any] = {"squared": f"{graph}/squared", "high": high}
        fixed |= {} if known is None else {"graph": graph, "weights": known, "sizes": sizes}
        return total(map_blocks(pair_counts_block, [(b,) for b in range(len(sizes))], **fixed))

    n = int(sizes.sum())
    if known is None:
        return exact_median(histogram, n * (n - 1))
    return weighted_median(histogram, float(np.square(known.sum()) - np.square(known).sum()))


def pair_counts_block(
    b: int,
    *,
    squared: str,
    high: int | None,
    graph: str = "",
    weights: Array | None = None,
    sizes: Array | None = None,
) -> Array:
    """Counts of :func:`~bigembed.maps.medians.pattern_counts` for the squared distances of a block to all rows:
    lists (rows, n − 1), or a matrix as one vector, whose diagonal is left out. ``weights`` (n,) of all rows: a pair
    counts by the product of those of its two rows."""
    if weights is not None and sizes is not None:
        counts = total([pattern_counts(part, high, mass) for part, mass in pairs_of_block(b, graph, weights, sizes)])
    else:
        values = read_array(f"{squared}/{b}")
        if values.ndim == 1:
            values = np.delete(values, slice(None, None, isqrt(len(values)) + 1))
        values = values.ravel()
        counts = total([pattern_counts(values[start:stop], high) for start, stop in bounds(len(values), COUNTED)])
    kept = np.flatnonzero(counts)
    return np.stack([kept, counts[kept]])


def pairs_of_block(b: int, graph: str, weights: Array, sizes: Array) -> Iterator[tuple[Array, Array]]:
    """Squared distances of the rows of a block to all other rows, and the products of their weights, some rows at a
    time; of a row with itself the product is 0."""
    first, count = int(sizes[:b].sum()), int(sizes[b])
    values = read_array(f"{graph}/squared/{b}").reshape(count, -1)
    ids = read_array(f"{graph}/neighbors/{b}") if values.shape[1] < len(weights) else None
    for start, stop in bounds(count, max(1, COUNTED // values.shape[1])):
        others = weights if ids is None else weights[ids[start:stop]]
        products = weights[first + start : first + stop, None] * others
        if ids is None:
            products[np.arange(stop - start), np.arange(first + start, first + stop)] = 0.0
        yield values[start:stop].ravel(), products.ravel()


def kth_counts_block(b: int, *, farthest: str, high: int | None, weights: str = "") -> Array:
    """Counts of :func:`~bigembed.maps.medians.pattern_counts` for the k-th squared distances of a block."""
    return pattern_counts(read_array(f"{farthest}/{b}"), high, read_array(f"{weights}/{b}") if weights else None)


def weighted_histogram(graph: str, weights: str, sizes: Array, exponent: int) -> Array:
    """The histogram of all pairs of a complete graph in units of 2^``exponent``, each by the product of the weights of
    its rows, each row with itself among them; then the exponent."""
    known, counts = all_weights(weights, sizes), np.zeros(BINS + 1)
    assert known is not None
    blocks = [(b,) for b in range(len(sizes))]
    for part in map_blocks(weighted_bins_block, blocks, graph=graph, weights=known, sizes=sizes, exponent=exponent):
        counts[part[0].astype(np.int64)] += part[1]
    counts[0] += np.square(known).sum()
    counts[BINS] = exponent
    return counts


def weighted_bins_block(b: int, *, graph: str, weights: Array, sizes: Array, exponent: int) -> Array:
    """Bins that occur and what the pairs in them weigh, of one block."""
    counts = np.zeros(BINS)
    for values, products in pairs_of_block(b, graph, weights, sizes):
        bins = np.ldexp(values.astype(np.float64), -2 * exponent).astype(np.float32).view(np.uint32) >> 16
        counts += np.bincount(bins, products, BINS)
    kept = np.flatnonzero(counts)
    return np.stack([kept, counts[kept]])
