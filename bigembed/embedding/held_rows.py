"""The points of all rows and the weights of all edges in one task: what iterations without the store work on.

Rows are divided among threads. A row is moved by itself, so that the division changes nothing.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import lru_cache
from typing import Any

import numpy as np

from bigembed.blocks.rows import Array, bounds, offsets
from bigembed.store.blockwise.exchange import Exchange
from bigembed.store.blockwise.matrix import StoredMatrix

ROWS = 4_096
"""Rows that a thread moves at a time."""


def held_bytes(n: int, edges: int, m: int) -> int:
    """Bytes of the weights and of the points: columns and values, and as they are read, of one block."""
    return 12 * edges + 8 * n * (6 * m + 2)


@lru_cache(maxsize=1)
def held_weights(weights: StoredMatrix) -> list[tuple[Array, Array, Array]]:
    """indptr, columns as numbers of rows, and weights of each block, its edges in the order in which they lie."""
    starts, found = offsets(weights.rows), []
    kind = np.int32 if starts[-1] < 1 << 31 else np.int64
    for b in range(len(weights.rows)):
        block = weights.block(b)
        found.append((block.indptr, block.ids(b, starts).astype(kind)[block.indices], block.data))
    return found


class HeldRows:
    """All points, and room for them as they are moved; ``parts``: block, first and last row in it."""

    def __init__(self, weights: StoredMatrix, exchange: Exchange, m: int, iteration: int) -> None:
        self.weights, self.exchange, self.m = weights, exchange, m
        self.edges, self.starts = held_weights(weights), offsets(weights.rows)
        blocks = range(len(weights.rows))
        self.points = np.concatenate([exchange.piece(f"points{iteration}", b, "own") for b in blocks])
        self.moved = np.empty_like(self.points)
        self.parts = [(b, *part) for b in blocks for part in bounds(weights.rows[b], ROWS)]
        self.threads = min(len(os.sched_getaffinity(0)), len(self.parts))

    def own(self, b: int) -> Array:
        """Where the moved points of a block go."""
        return self.moved[self.starts[b] : self.starts[b + 1]]

    def swap(self) -> None:
        """The moved points are the points."""
        self.points, self.moved = self.moved, self.points

    def leave(self, iteration: int) -> None:
        """Leave the points by blocks, with what other blocks read, so that a run by blocks can go on from here."""
        for b, part in enumerate(np.split(self.points, self.starts[1:-1])):
            pieces = {str(other): part[rows] for other, rows in self.weights.outbox(b)}
            self.exchange.put(f"points{iteration}", b, {"own": part} | pieces)

    def each(self, function: Callable[..., Any], parts: Any) -> list[Any]:
        """The function of each part, by threads."""
        if self.threads == 1:
            return [function(part) for part in parts]
        with ThreadPoolExecutor(self.threads) as pool:
            return list(pool.map(function, parts))
