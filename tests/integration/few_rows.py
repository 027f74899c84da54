"""What a worker does as it starts, so that few rows are several blocks there, too."""

from __future__ import annotations

from typing import Any

from bigembed.runtime import blocks


def dask_setup(worker: Any) -> None:
    """Take blocks of at most 300 rows, as :func:`tests.blocks.blocks_of` does in the process of a test."""
    blocks.MAX_BLOCK_ROWS, blocks.MIN_BLOCK_ROWS = 300, 100
