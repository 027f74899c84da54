"""Edges of new rows: every row that the symmetric graph would join to each, of what was found in both directions."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from bigembed.blocks.rows import Array
from bigembed.blocks.squared import every_squared
from bigembed.neighbors.descent.walk import NOBODY, Edges
from bigembed.neighbors.search.by_metric import ByMetric


@dataclass(frozen=True)
class Joined:
    """Edges of new rows, CSR: internal ids of the rows joined to each, squared distances, and ρ of each new row."""

    indptr: Array
    ids: Array
    squared: Array
    rho: Array
    block: Array
    """Block and cell (inside the block) that each new row belongs to."""
    cell: Array


@dataclass(frozen=True)
class Found:
    """Candidates of the edges of n new rows."""

    ids: Array
    """Nearest fitted rows (n, k + 1), by (squared distance, id): one more than wanted: the row itself may be one."""
    squared: Array
    reverse: Edges
    """Pairs: new row, fitted row within whose reach it lies, squared distance, and the largest id that the new row
    may have to be joined (the id decides between equal distances)."""
    twin: Array
    """Lowest id of an equal fitted row (n,)."""


def together(parts: Sequence[tuple[Array, Joined]], dtype: np.dtype[Any]) -> Joined:
    """The edges of all rows, in their order, of parts: numbers of some rows, and their edges."""
    members = np.concatenate([np.zeros(0, np.int64), *(part for part, _ in parts)])
    place = np.argsort(members)
    counts = np.concatenate([np.zeros(0, np.int64), *(np.diff(joined.indptr) for _, joined in parts)])
    starts = np.concatenate([[0], np.cumsum(counts)])
    counts = counts[place]
    indptr = np.concatenate([[0], np.cumsum(counts)]).astype(np.int64)
    edges = np.repeat(starts[place] - indptr[:-1], counts) + np.arange(indptr[-1])
    kinds: dict[str, Any] = {"ids": np.int64, "squared": dtype, "rho": float, "block": np.int64, "cell": np.int64}
    ids, squared, rho, block, cell = (
        np.concatenate([np.zeros(0, kind), *(getattr(joined, name) for _, joined in parts)])
        for name, kind in kinds.items()
    )
    return Joined(indptr, ids[edges], squared[edges], rho[place], block[place], cell[place])


def join_all(rows: Any, fitted: Any, block: Array, cell: Array, by: ByMetric | None = None) -> Joined:
    """Every fitted row joined to each new row; ρ is the distance to the k-th that is not the row itself."""
    n, k = fitted.shape[0], fitted.shape[0] - 1
    with np.errstate(over="ignore"):
        squared = by.squared(rows, fitted) if by else every_squared(rows, fitted).astype(rows.dtype)
    two = np.sort(np.partition(squared, k - 1, axis=1)[:, k - 1 :], axis=1)
    rho = np.sqrt(np.where((squared == 0).any(axis=1), two[:, 1], two[:, 0]).astype(np.float64))
    ids = np.tile(np.arange(n, dtype=np.int64), len(squared))
    return Joined(n * np.arange(len(squared) + 1, dtype=np.int64), ids, squared.ravel(), rho, block, cell)


def joined_of(found: Found, k: int, block: Array, cell: Array) -> Joined:
    """The union of both directions, and the row itself where it was fitted: by row and id."""
    n, twin = len(found.ids), found.twin
    near = (found.ids >= 0) & (found.ids != twin[:, None])
    near &= np.cumsum(near, axis=1) <= k
    rho = np.sqrt(np.max(np.where(near, found.squared, 0), axis=1).astype(np.float64))
    new, ids, squared, largest = found.reverse
    mine = (twin[new] <= largest) & (ids != twin[new])
    known = np.flatnonzero(twin != NOBODY)
    row = np.concatenate([np.nonzero(near)[0], new[mine], known])
    ids = np.concatenate([found.ids[near], ids[mine], twin[known]])
    squared = np.concatenate([found.squared[near], squared[mine], np.zeros(len(known), squared.dtype)])
    order = np.lexsort((ids, row))
    row, ids, squared = row[order], ids[order], squared[order]
    fresh = np.ones(len(row), bool)
    fresh[1:] = (row[1:] != row[:-1]) | (ids[1:] != ids[:-1])
    indptr = np.concatenate([[0], np.cumsum(np.bincount(row[fresh], minlength=n))]).astype(np.int64)
    return Joined(indptr, ids[fresh], squared[fresh], rho, block, cell)
