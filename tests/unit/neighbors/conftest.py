"""Small canonical blocks, so that small data cross block borders."""

from __future__ import annotations

import pytest

from bigembed.blocks import rows
from bigembed.neighbors import search


@pytest.fixture
def small_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    """Blocks of at most 400 rows, and no shortcut for small data."""
    small_blocks_of(monkeypatch)


def small_blocks_of(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(rows, "MAX_BLOCK_ROWS", 400)
    patch.setattr(rows, "MIN_BLOCK_ROWS", 100)
    patch.setattr(search, "EXACT_ROWS", 0)
