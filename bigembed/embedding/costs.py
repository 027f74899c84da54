"""What a pass over the rows costs: bytes read and written, memory of a task, operations."""

from __future__ import annotations

from typing import Any

import numpy as np

from bigembed.stages import Cost
from bigembed.store.source import RowSource

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
        looks=n * against,
    )


def pass_memory(source: RowSource) -> int:
    """Bytes that a task of a pass holds: the window over stored chunks, the block, its working copies."""
    block = min(source.block, source.shape[0])
    return WINDOW * block * source.row_bytes + 2 * min(source.grain, source.shape[0]) * source.row_bytes
