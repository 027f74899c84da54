"""The scale ε of the Gaussian kernel exp(−r²/ε): by rule, from the data.

Distances come as a histogram of squared distances of sampled rows to *all* rows (never to the
graph alone, whose truncated sums make ε far too small), and as nearest-neighbor distances.
Histogram bins are the upper 16 bits of the float32 bit pattern: logarithmic, 0.4 % half width.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from bigembed.blocks.rows import Array

BINS = 1 << 16
QUARTERS = 4
"""Of 16 bits, in a float64."""
GRID = 2.0 ** np.arange(-40, 41, 0.25)


@dataclass(frozen=True)
class KsumCurve:
    """S(ε) and its logarithmic slope (seed 000, eqs. 58–59) on a grid of ε."""

    epsilon: Array
    log_sum: Array
    slope: Array

    @property
    def best(self) -> float:
        """ε where the slope is largest."""
        return float(self.epsilon[int(np.argmax(self.slope))])

    @property
    def dimension(self) -> float:
        """Intrinsic dimension that the largest slope implies: 2 · max d log S / d log ε."""
        return 2 * float(np.max(self.slope))


def bin_values() -> Array:
    """Squared distance at the middle of each histogram bin; (65536,) float64, NaN where no number lies."""
    bits = (np.arange(BINS, dtype=np.uint32) << 16) | np.uint32(0x8000)
    with np.errstate(invalid="ignore"):  # patterns that are not numbers
        values = bits.view(np.float32).astype(np.float64)
    values[0] = 0.0
    return np.where(np.isfinite(values) & (values >= 0), values, np.nan)


def _in_units(counts: Array) -> tuple[Array, float]:
    """The counts, and the square of the unit that distances were counted in: 2ᵉ, where e stands behind the counts."""
    return counts[:BINS], float(np.ldexp(1.0, 2 * int(counts[BINS]))) if len(counts) > BINS else 1.0


def ksum(counts: Array) -> KsumCurve:
    """The Ksum test (seed 000 §9.7): S(ε) = mean exp(−r²/ε), slope = Σ (r²/ε) K / Σ K (eq. 59).

    Parameters
    ----------
    counts : (65536,) int64, how many squared distances fall into each bin, self pairs included; one more number is
        e, where distances were counted in units of 2ᵉ.
    """
    counts, unit = _in_units(counts)
    values = bin_values()
    used = np.flatnonzero(counts)
    squared, weight = values[used], counts[used].astype(np.float64)
    positive = squared[squared > 0]
    if not len(positive):
        return KsumCurve(np.array([unit]), np.zeros(1), np.zeros(1))
    middle = 2.0 ** np.round(np.log2(np.median(positive)))
    epsilon = middle * GRID
    log_sum, slope = np.empty(len(epsilon)), np.empty(len(epsilon))
    for number, scale in enumerate(epsilon):
        ratio = squared / scale
        kernel = weight * np.exp(-ratio)
        total = kernel.sum()
        log_sum[number] = np.log(total / weight.sum())
        slope[number] = (ratio * kernel).sum() / total
    return KsumCurve(epsilon * unit, log_sum, slope)


def histogram_median(counts: Array, n: int) -> float:
    """Median squared distance over pairs of different rows, to within a bin (0.4 %), from distances to all n rows."""
    counts, unit = _in_units(counts)
    pairs = counts.astype(np.int64).copy()
    pairs[0] -= pairs.sum() // n  # each sampled row is at 0 of itself
    cumulative = np.cumsum(pairs)
    return unit * float(bin_values()[int(np.searchsorted(cumulative, cumulative[-1] / 2))])


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


def pattern_counts(values: Array, known: int | None) -> Array:
    """One block's part of :func:`exact_median`: 16 bits of the patterns of nonnegative numbers, and counts.

    Only those that occur, (2, m) int64: many blocks come together in one process.
    """
    bits = np.ascontiguousarray(values, np.float64).view(np.uint64)
    level = 0 if known is None else (known.bit_length() - 1) // 16
    if known is not None:
        bits = bits[bits >> np.uint64(64 - 16 * level) == np.uint64(known - (1 << 16 * level))]
    digits = bits >> np.uint64(48 - 16 * level) & np.uint64(0xFFFF)
    return np.stack(np.unique(digits.astype(np.int64), return_counts=True)).astype(np.int64)


def total(parts: Sequence[Array]) -> Array:
    """Sum of the counts of :func:`pattern_counts`, (65536,) int64 (exact in any order)."""
    counts = np.zeros(BINS, np.int64)
    for part in parts:
        counts[part[0]] += part[1]
    return counts
