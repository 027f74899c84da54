"""Limits of columns of any length in one pass; a few far values that would hide the rest are left outside."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from bigembed.blocks.rows import Array
from bigembed.plotting.canvas import padded
from bigembed.plotting.stream import Rows, numbered

SAMPLE = 100_000
FAR = 3.0
"""A range that exceeds that of the inner 99.8 % this many times is cut to the inner part."""


@dataclass(frozen=True)
class Limits:
    """Of the columns asked for, over the rows that are finite in all of them."""

    count: int
    """Rows in all."""
    missing: int
    """Rows with NaN or infinity."""
    low: Array
    high: Array

    def padded(self) -> tuple[Array, Array]:
        """A little wider, and never of no width."""
        pairs = [padded(float(low), float(high)) for low, high in zip(self.low, self.high, strict=True)]
        return np.array([pair[0] for pair in pairs]), np.array([pair[1] for pair in pairs])


def limits_of(rows: Rows, columns: Sequence[int]) -> Limits:
    """One pass; memory of a block and a sample of at most 10⁵ rows. Without a finite row the limits are 0 and 1."""
    sample: list[Array] = []
    count = missing = kept = 0
    step = 1
    low, high = np.full(len(columns), np.inf), np.full(len(columns), -np.inf)
    for _, block in numbered(rows):
        part = block[:, list(columns)].astype(np.float64)
        count += len(part)
        part = part[np.isfinite(part).all(axis=1)]
        missing += len(block) - len(part)
        if not len(part):
            continue
        low, high = np.minimum(low, part.min(axis=0)), np.maximum(high, part.max(axis=0))
        sample.append(part[(-kept) % step :: step].copy())  # a view would keep the block
        kept += len(part)
        while sum(map(len, sample)) > SAMPLE:
            step *= 2
            sample = [np.concatenate(sample)[::2].copy()]
    if not kept:
        return Limits(count, missing, np.zeros(len(columns)), np.ones(len(columns)))
    inner = np.quantile(np.concatenate(sample), [0.001, 0.999], axis=0)
    wide = ((high - low) > FAR * (inner[1] - inner[0])) & (inner[1] > inner[0])
    return Limits(count, missing, np.where(wide, inner[0], low), np.where(wide, inner[1], high))
