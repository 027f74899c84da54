"""Two maps of the same rows: the best similarity transform of one onto the other, and how far each row then moves."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from bigembed.errors import InputError
from bigembed.rows.source import RowSource
from bigembed.runtime.blocks import Array, bounds, map_blocks
from bigembed.viewer.scene import BLOCK, Scene, encoded

MOVED = "moved"
"""The column that says how far."""
NAMED = 20
"""Rows that are named, those that move most."""


@dataclass(frozen=True)
class Moved(RowSource):
    """How far the points of two scenes lie apart, the second ones transformed; NaN where either is not finite."""

    scenes: tuple[Scene, ...] = ()
    turn: tuple[float, ...] = ()
    """The matrix that turns and scales, by rows, and then the shift."""

    def read(self, start: int, stop: int) -> Array:
        """Of rows ``start:stop``, in units of the first map."""
        here, there = _both(self.scenes, start, stop)
        matrix = np.array(self.turn[:4]).reshape(2, 2)
        apart = here - (there @ matrix.T + np.array(self.turn[4:]))
        far: Array = np.linalg.norm(apart, axis=1).astype(np.float32)
        return far

    def fingerprint(self) -> str:
        return " ".join([MOVED, *(scene.fingerprint() for scene in self.scenes)])


def compared(first: Scene, second: Scene) -> tuple[list[Scene], dict[str, Any]]:
    """Both scenes with a column of how far each row moves, and the rows that move most.

    The matrix s R and the shift minimize the squared distances of the first pair of coordinates, over rotations and
    reflections R (Schönemann & Carroll 1970). Two passes over the coordinates.
    """
    if first.rows != second.rows:
        raise InputError(
            f"{first.title} has {first.rows:,} rows, {second.title} {second.rows:,}: only maps of the same rows, in "
            "the same order, can be compared row by row"
        )
    bare = tuple(replace(one, graph=None, columns=()) for one in (first, second))
    spans = bounds(first.rows, BLOCK)
    sums = np.sum(map_blocks(sum_block, spans, "compare", scenes=bare), axis=0)
    moved = Moved((first.rows,), np.dtype(np.float32), scenes=bare, turn=best_turn(sums))
    most = [one for part in map_blocks(most_moved, spans, "compare", moved=moved) for one in part]
    most = sorted(most, key=lambda one: (-one["moved"], one["row"]))[:NAMED]
    scenes = [replace(one, columns=((MOVED, moved), *one.columns)) for one in (first, second)]
    text = (
        f"Distances in units of “{first.title}”, after “{second.title}” was turned, mirrored, scaled and shifted onto "
        "it as well as can be."
    )
    return scenes, {"moved": {"text": text, "rows": most}}


def _both(scenes: Sequence[Scene], start: int, stop: int) -> list[Array]:
    """The points of each scene."""
    return [scene.points(start, stop, scene.pairs[0]) for scene in scenes]


def sum_block(start: int, stop: int, *, scenes: Sequence[Scene]) -> Array:
    """How many rows are finite in both, the sums of their four numbers, and of the products of these."""
    names = [encoded(scene.ids.read(start, stop)) for scene in scenes if scene.ids is not None]
    if len(names) == len(scenes):
        wrong = np.flatnonzero(names[0] != names[1])
        if len(wrong):
            pair = [one[wrong[0]].decode() for one in names]
            raise InputError(
                f"row {start + wrong[0]} is {pair[0]!r} on the first map and {pair[1]!r} on the second: only maps of "
                "the same rows, in the same order, can be compared row by row"
            )
    both = np.concatenate(_both(scenes, start, stop), axis=1)
    both = both[np.isfinite(both).all(axis=1)]
    return np.concatenate([[len(both)], both.sum(axis=0), (both.T @ both).ravel()])


def best_turn(sums: Sequence[float]) -> tuple[float, ...]:
    """The matrix (by rows) and the shift that bring the second points onto the first, from their sums.

    >>> first = np.array([[0.0, 0.0], [2.0, 0.0], [0.0, 4.0]])
    >>> second = first @ np.array([[0.0, 1.0], [-1.0, 0.0]]) / 2 + 5
    >>> both = np.concatenate([first, second], axis=1)
    >>> turn = best_turn(np.concatenate([[3], both.sum(axis=0), (both.T @ both).ravel()]))
    >>> bool(np.allclose(second @ np.array(turn[:4]).reshape(2, 2).T + turn[4:], first))
    True
    """
    count = max(float(sums[0]), 1.0)
    mean = np.array(sums[1:5]) / count
    scatter = np.array(sums[5:]).reshape(4, 4) / count - np.outer(mean, mean)
    left, values, right = np.linalg.svd(scatter[:2, 2:])
    size = float(np.trace(scatter[2:, 2:]))
    matrix = (values.sum() / size if size > 0 else 0.0) * left @ right
    return (*map(float, matrix.ravel()), *map(float, mean[:2] - matrix @ mean[2:]))


def most_moved(start: int, stop: int, *, moved: Moved) -> list[dict[str, Any]]:
    """The rows of a block that move most, with their names."""
    far = np.nan_to_num(moved.read(start, stop), nan=-1.0)
    most = np.argsort(-far, kind="stable")[:NAMED]
    ids = moved.scenes[0].ids
    names = None if ids is None else encoded(ids.read(start, stop))[most]
    return [
        {
            "row": int(start + row),
            "name": f"row {start + row}" if names is None else names[number].decode(errors="replace"),
            "moved": float(far[row]),
        }
        for number, row in enumerate(most.tolist())
        if far[row] >= 0
    ]
