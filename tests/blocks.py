"""Canonical blocks of few rows, here and on the workers of a cluster, so that small data cross their borders."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from bigembed.blocks import rows

FEW = 9_000
"""More rows than are searched without compiled code."""


@contextmanager
def blocks_for(n: int) -> Iterator[None]:
    """Three blocks or more of so many rows; where there are more than one as it is, those."""
    with pytest.MonkeyPatch.context() as patch:
        if n <= rows.MAX_BLOCK_ROWS:
            patch.setattr(rows, "MAX_BLOCK_ROWS", max(1, (n - 1) // 3))
            patch.setattr(rows, "MIN_BLOCK_ROWS", 100)
        yield


def on_workers(client: Any) -> None:
    """The blocks of this process for those of the cluster, too."""
    client.run(_set, rows.MAX_BLOCK_ROWS, rows.MIN_BLOCK_ROWS)


def _set(most: int, least: int) -> None:
    rows.MAX_BLOCK_ROWS, rows.MIN_BLOCK_ROWS = most, least
