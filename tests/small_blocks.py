"""The command line, and workers of a cluster, with blocks as small as the environment says.

``python -m tests.small_blocks run job.toml`` is ``bigembed run job.toml``, and ``dask worker --preload
tests.small_blocks`` a worker for it: few rows are then cut into as many blocks as many rows are.
"""

from __future__ import annotations

import os
from typing import Any

from bigembed.runtime import blocks

BLOCK = "BIGEMBED_TESTS_BLOCK"
"""Variable of the environment: the rows of a block."""


def lower() -> None:
    """Set the limit for this process."""
    if BLOCK in os.environ:
        blocks.MAX_BLOCK_ROWS = int(os.environ[BLOCK])
        blocks.MIN_BLOCK_ROWS = min(blocks.MIN_BLOCK_ROWS, blocks.MAX_BLOCK_ROWS)


def dask_setup(worker: Any) -> None:
    """Set the limit for a worker."""
    lower()


if __name__ == "__main__":
    from bigembed.cli import main

    lower()
    main()
