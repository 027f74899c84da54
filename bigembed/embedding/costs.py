"""What a pass over the rows costs: bytes read and written, memory of a task, operations."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np

from bigembed.stages import Cost
from bigembed.store.rows.passes import MAX_GROUPS
from bigembed.store.rows.source import RowSource

WINDOW = 6
"""Canonical blocks that a task holds while it reads, works and writes."""


def output_cost(source: RowSource, width: int, dtype: Any = np.float64, against: int = 0) -> Cost:
    """One pass that reads rows, compares each with some landmarks, and writes ``width`` coordinates of each."""
    n, d = source.shape
    size = source.shape[0] * width * np.dtype(dtype).itemsize
    return Cost(
        passes=1,
        read=source.shape[0] * source.row_bytes,
        write=size,
        disk=size,
        memory=pass_memory(source) + 3 * source.block * width * 8,
        flops=2 * n * (against * (d + width) if against else d * width),
        scalar_ops=n * against,
    )


def summing_cost(source: RowSource, sums: int, passes: float = 1, **more: float) -> Cost:
    """Passes over the rows that each add up ``sums`` bytes by groups of blocks; ``more`` is added to these costs."""
    cost = Cost(
        passes=passes,
        read=int(passes) * source.shape[0] * source.row_bytes,
        scratch=partial_sums(source, sums),
        memory=pass_memory(source) + 4 * sums,
        coordinator=10 * sums,
    )
    return replace(cost, **{name: getattr(cost, name) + value for name, value in more.items()})


def partial_sums(source: RowSource, sums: int) -> int:
    """Bytes that the groups of blocks leave in the exchange, where each has ``sums`` bytes."""
    return sums * min(MAX_GROUPS, -(-source.shape[0] // source.block))


def pass_memory(source: RowSource) -> int:
    """Bytes that a task of a pass holds: the window over stored chunks, the block, its working copies."""
    block = min(source.block, source.shape[0])
    return WINDOW * block * source.row_bytes + 2 * min(source.grain, source.shape[0]) * source.row_bytes
