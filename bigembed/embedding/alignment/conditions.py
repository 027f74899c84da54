"""Local linear conditions on coordinates, by blocks of rows: what locally linear embedding and its variants differ in.

Around each row i with neighbors j_1 … j_k a method states r conditions on the coordinates,

    A_i (y_i, y_{j_1}, …, y_{j_k}) ≈ 0,      A_i (r, 1 + k), rows that sum to 0,

and the map is the least-squares solution Y of all of them: the smallest eigenvectors of the alignment matrix AᵀA,
A of the A_i one under the other (Zhang & Zha 2004). For locally linear embedding r = 1 and A_i = (1, −w_i).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from scipy import sparse

from bigembed.blocks.rows import Array, bounds, map_blocks
from bigembed.neighbors.ordering.order import Ordered
from bigembed.neighbors.ordering.survey import Shape
from bigembed.stages import Context, Cost, Stage
from bigembed.store.arrays.io import read_array, write_array

TILE_BYTES = 16 << 20
"""Of the neighbors of a tile of rows, in float64."""


@dataclass(frozen=True)
class Conditions:
    """The conditions of a method. Small and picklable."""

    function: Callable[..., Array]
    """``function(rows (n, d), near (n, k, d), **parameters)``: A (n, r, 1 + k), in float64."""
    count: int
    """r."""
    parameters: Mapping[str, Any] = field(default_factory=dict)
    level: Callable[..., Array] | None = None
    """Where the conditions hang on the median over all rows of a figure of each: ``level(rows, near, **parameters)``,
    (n,); ``function`` then gets the median as ``level``, too."""

    def key(self) -> dict[str, Any]:
        """For the key of a stage."""
        return {"conditions": self.function.__name__, **self.parameters}

    def at(self, level: float) -> Conditions:
        """With a known level."""
        return replace(self, parameters={**self.parameters, "level": level}, level=None)

    def of_rows(self, rows: Array, ids: Array) -> Array:
        """A (n, r, 1 + k) of all rows, in this process, from the numbers of their neighbors (n, k)."""
        tiles = [slice(*span) for span in tile_bounds(ids, rows.shape[1])]
        points, known = np.asarray(rows, np.float64), self
        if self.level is not None:
            found = [self.level(points[tile], points[ids[tile]], **self.parameters) for tile in tiles]
            known = self.at(float(np.median(np.concatenate(found))))
        return np.concatenate([known.function(points[tile], points[ids[tile]], **known.parameters) for tile in tiles])


def tile_bounds(ids: Array, d: int) -> list[tuple[int, int]]:
    """Rows whose neighbors are held at a time."""
    return bounds(len(ids), max(1, TILE_BYTES // (8 * d * (1 + ids.shape[1]))))


def alignment_stage(conditions: Conditions, shape: Shape, k: int) -> Stage:
    """``rows/b`` (rows, r (1 + k)), the conditions around each row of a block, from the lists of its neighbors.

    The rows of neighbors in other blocks are read as they are needed; a task holds a tile of them.
    """

    def run(context: Context) -> dict[str, Any]:
        ordered, lists = Ordered.open(context.of("order")), context.of("search", "neighbors")
        blocks, known = [(b,) for b in range(len(ordered.blocks))], conditions
        fixed: dict[str, Any] = {"ordered": ordered, "lists": lists}
        if conditions.level is not None:
            map_blocks(levels_block, blocks, conditions=conditions, out=context.path(""), **fixed)
            levels = [read_array(context.path(f"levels/{b}")) for (b,) in blocks]
            known = conditions.at(float(np.median(np.concatenate(levels))))
        map_blocks(conditions_block, blocks, conditions=known, out=context.path(""), **fixed)
        return {"conditions": conditions.count, **known.parameters}

    entries = conditions.count * (1 + k)
    tile = 8 * TILE_BYTES + 24 * (TILE_BYTES // (8 * shape.d)) * conditions.count
    cost = Cost(
        passes=1,
        read=shape.n * (2 * shape.row_bytes + 8 * k),
        write=8 * shape.n * entries,
        disk=8 * shape.n * entries,
        memory=min(shape.block, shape.n) * (shape.row_bytes + 16 * k + 16 * entries) + tile,
        flops=shape.n * (2.0 * k * k * shape.d + k**3),
        coordinator=8 * shape.n,
    )
    return Stage("alignment", ("order", "search"), {**conditions.key(), "n_neighbors": k}, run, cost)


def levels_block(b: int, *, ordered: Ordered, lists: str, conditions: Conditions, out: str) -> None:
    """The figures of one block whose median is the level."""
    assert conditions.level is not None
    found = [conditions.level(rows, near, **conditions.parameters) for rows, near in _tiles(b, ordered, lists)]
    write_array(f"{out}levels/{b}", np.concatenate(found))


def conditions_block(b: int, *, ordered: Ordered, lists: str, conditions: Conditions, out: str) -> None:
    """The conditions of one block."""
    found = [conditions.function(rows, near, **conditions.parameters) for rows, near in _tiles(b, ordered, lists)]
    flat = np.concatenate(found)
    write_array(f"{out}rows/{b}", flat.reshape(len(flat), -1))


def _tiles(b: int, ordered: Ordered, lists: str) -> Iterator[tuple[Array, Array]]:
    """Some rows of a block (n, d) and their neighbors (n, k, d) in float64, tile after tile."""
    rows, ids = ordered.rows(b), read_array(f"{lists}/{b}")
    for start, stop in tile_bounds(ids, rows.shape[1]):
        wanted, place = np.unique(ids[start:stop], return_inverse=True)
        near = ordered.take(wanted).astype(np.float64)
        yield rows[start:stop].astype(np.float64), near[place.reshape(stop - start, -1)]


def assembled(conditions: Array, ids: Array, members: Array) -> Any:
    """A (N, c) sparse of the rows ``members`` (c,) ascending, all of whose neighbors are among them."""
    count, r = len(members), conditions.shape[1]
    columns = np.searchsorted(members, np.concatenate([members[:, None], ids[members]], axis=1))
    every = np.repeat(columns, r, axis=0)
    indptr = np.arange(0, every.size + 1, columns.shape[1])
    found = sparse.csr_array((conditions[members].ravel(), every.ravel(), indptr), shape=(count * r, count))
    found.eliminate_zeros()
    return found


RANK = 1e-7
"""Directions shorter than this share of the longest are rounding: rows that repeat, or span fewer dimensions."""


def neighborhoods(rows: Array, near: Array, own_row: bool) -> tuple[Array, slice]:
    """The points (n, q, d) around each row, with or without the row itself, and their columns in its conditions."""
    return (np.concatenate([rows[:, None], near], axis=1), slice(0, None)) if own_row else (near, slice(1, None))


def tangent_directions(points: Array, m: int) -> Array:
    """The m leading left singular vectors (n, q, m) of points (n, q, d) about their mean; 0 where they span less.

    >>> tangent_directions(np.array([[[0.0], [1.0], [2.0]]]), 1)[0, :, 0].round(3).tolist() in (
    ...     [-0.707, 0.0, 0.707], [0.707, 0.0, -0.707])
    True
    """
    left, sizes, _ = np.linalg.svd(points - points.mean(axis=1, keepdims=True), full_matrices=False)
    lost = negligible(sizes, sizes[:, :1])
    return np.asarray(np.where(lost[:, None], 0.0, left)[:, :, :m])


def negligible(sizes: Array, of: Array) -> Array:
    """Which sizes are rounding beside others."""
    return np.asarray(sizes <= RANK * of)
