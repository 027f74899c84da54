"""Limits of small data lowered, here and on the workers of a cluster, so that few rows go the way of many."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from importlib import import_module
from pkgutil import walk_packages
from typing import Any

import pytest

import bigembed.maps
import bigembed.neighbors
from bigembed.neighbors.search import every_block as search
from bigembed.runtime import blocks as rows
from tests.cases import Case

FEW = 9_000
"""More rows than are searched without compiled code."""


def limits() -> dict[str, str]:
    """Modules, and in each the number of rows up to which a shorter way is taken."""
    named = {"EXACT_ROWS": bigembed.neighbors, "DENSE_ROWS": bigembed.maps}
    return {
        module.name: limit
        for limit, package in named.items()
        for module in walk_packages(package.__path__, f"{package.__name__}.")
        if hasattr(import_module(module.name), limit)
    }


@contextmanager
def blocks_of(most: int, least: int = 100) -> Iterator[None]:
    """Canonical blocks of at most so many rows."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(rows, "MAX_BLOCK_ROWS", most)
        patch.setattr(rows, "MIN_BLOCK_ROWS", least)
        yield


def blocks_for(n: int) -> AbstractContextManager[None]:
    """Three blocks or more of so many rows; where there are more than one as it is, those."""
    return blocks_of(max(1, (n - 1) // 3)) if n <= rows.MAX_BLOCK_ROWS else nullcontext()


@contextmanager
def graph_blocks() -> Iterator[None]:
    """Blocks of at most 400 rows, and no shortcut for small data in the search for neighbors."""
    with blocks_of(400), pytest.MonkeyPatch.context() as patch:
        patch.setattr(search, "EXACT_ROWS", 0)
        yield


@contextmanager
def as_if_many(n: int) -> Iterator[None]:
    """Three blocks or more of so many rows, and no shorter way for few."""
    with blocks_for(n), pytest.MonkeyPatch.context() as patch:
        for module, limit in limits().items():
            patch.setattr(import_module(module), limit, 0)
        yield


def limits_for(case: Case, n: int) -> AbstractContextManager[None]:
    """Several blocks of so many rows; for the first case of each method also the ways of large data."""
    return as_if_many(n) if case.plain else blocks_for(n)


def on_workers(client: Any) -> None:
    """The limits of this process for those of the cluster, too."""
    now = {module: (limit, getattr(import_module(module), limit)) for module, limit in limits().items()}
    client.run(_set, rows.MAX_BLOCK_ROWS, rows.MIN_BLOCK_ROWS, now)


def _set(most: int, least: int, given: dict[str, tuple[str, int]]) -> None:
    rows.MAX_BLOCK_ROWS, rows.MIN_BLOCK_ROWS = most, least
    for module, (limit, value) in given.items():
        setattr(import_module(module), limit, value)
