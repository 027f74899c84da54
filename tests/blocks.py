"""Limits of small data lowered, here and on the workers of a cluster, so that few rows go the way of many."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from importlib import import_module
from typing import Any

import pytest

from bigembed.blocks import rows
from tests.cases import Case

FEW = 9_000
"""More rows than are searched without compiled code."""
LIMITS = {
    **{
        f"bigembed.neighbors.{name}": "EXACT_ROWS"
        for name in ("search", "query", "rerank", "ground_truth", "nearest_embedded")
    },
    "bigembed.neighbors.symmetrize": "EXACT_ROWS",
    "bigembed.embedding.walk.spectral": "DENSE_ROWS",
    "bigembed.embedding.kernel.solve": "DENSE_ROWS",
    "bigembed.embedding.scaling.classical": "DENSE_ROWS",
}
"""Rows up to which a shorter way is taken."""


@contextmanager
def blocks_for(n: int) -> Iterator[None]:
    """Three blocks or more of so many rows; where there are more than one as it is, those."""
    with pytest.MonkeyPatch.context() as patch:
        if n <= rows.MAX_BLOCK_ROWS:
            patch.setattr(rows, "MAX_BLOCK_ROWS", max(1, (n - 1) // 3))
            patch.setattr(rows, "MIN_BLOCK_ROWS", 100)
        yield


@contextmanager
def as_if_many(n: int) -> Iterator[None]:
    """Three blocks or more of so many rows, and no shorter way for few."""
    with blocks_for(n), pytest.MonkeyPatch.context() as patch:
        for module, limit in LIMITS.items():
            patch.setattr(import_module(module), limit, 0)
        yield


def limits_for(case: Case, n: int) -> AbstractContextManager[None]:
    """Several blocks of so many rows; for the first case of each method also the ways of large data."""
    return as_if_many(n) if case.plain else blocks_for(n)


def on_workers(client: Any) -> None:
    """The limits of this process for those of the cluster, too."""
    limits = {module: (limit, getattr(import_module(module), limit)) for module, limit in LIMITS.items()}
    client.run(_set, rows.MAX_BLOCK_ROWS, rows.MIN_BLOCK_ROWS, limits)


def _set(most: int, least: int, limits: dict[str, tuple[str, int]]) -> None:
    rows.MAX_BLOCK_ROWS, rows.MIN_BLOCK_ROWS = most, least
    for module, (limit, value) in limits.items():
        setattr(import_module(module), limit, value)
