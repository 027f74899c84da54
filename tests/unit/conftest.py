"""Small canonical blocks, so that small data cross block borders."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.blocks import graph_blocks


@pytest.fixture
def small_blocks() -> Iterator[None]:
    with graph_blocks():
        yield
