"""The rows that may be drawn in an epoch: all of few rows, or of each block a random part as large as its share."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from bigembed.blocks.rows import Array
from bigembed.embedding.sampling.options import STREAM

POOL = 1 << 16
"""Rows of a pool, about: what fits into a processor's cache, and differs in every epoch."""


def chosen(b: int, rows: Sequence[int], seed: int, epoch: int) -> Array | slice:
    """The rows of block b in the pool of an epoch; ``rows`` are the rows of each block.

    >>> chosen(0, [3, 4], 0, 0), len(chosen(1, [30_000, 101_072], 0, 0))
    (slice(None, None, None), 50536)
    """
    n = sum(rows)
    if n <= POOL:
        return slice(None)
    share = max(1, round(POOL * rows[b] / n))
    generator = np.random.default_rng([seed, STREAM, epoch, b])
    return generator.choice(rows[b], share, replace=False, shuffle=False)
