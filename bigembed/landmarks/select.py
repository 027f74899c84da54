"""The choice of landmarks: uniformly, or so that they are far from each other."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from bigembed.blocks.rows import Array
from bigembed.blocks.squared import rounding
from bigembed.errors import InputError

SELECTIONS = ("max-min", "uniform")
MAX_LANDMARKS = 8_192
SAMPLE = 30
"""Rows looked at for each landmark of a max-min choice."""
SAMPLE_BYTES = 64 << 20
WIDE = 16
"""Columns from which rows are compared by products first."""


@dataclass(frozen=True)
class LandmarkChoice:
    """How many landmarks are chosen among rows, by which rule, and from which random numbers."""

    count: int
    selection: str
    seed: tuple[int, ...]

    def sample_size(self, rows: int, row_bytes: int) -> int:
        """How many of ``rows`` rows are looked at: more than landmarks, unless these are chosen uniformly."""
        more = 0 if self.selection == "uniform" else min(SAMPLE * self.count, SAMPLE_BYTES // max(1, row_bytes))
        return min(rows, max(self.count, more))

    def sample(self, rows: int, row_bytes: int) -> Array:
        """Numbers of the rows to look at, ascending: int64."""
        return uniform(rows, self.sample_size(rows, row_bytes), list(self.seed))

    def among(self, sample: Array) -> Array:
        """Positions of the landmarks, all of them different rows, in a sample (s, d); ascending."""
        far = far_apart(self.selection)
        return np.sort(max_min(sample, self.count) if far else np.unique(sample, axis=0, return_index=True)[1])


def far_apart(selection: str) -> bool:
    """Whether landmarks are chosen far from each other; InputError for a rule that is neither of :data:`SELECTIONS`.

    >>> far_apart("max-min"), far_apart("uniform")
    (True, False)
    """
    if selection not in SELECTIONS:
        raise InputError(f"landmarks={selection!r}; allowed: {', '.join(SELECTIONS)}")
    return selection == "max-min"


def uniform(count: int, wanted: int, seed: int | list[int]) -> Array:
    """``wanted`` of the numbers 0 … count − 1, without repetition, ascending: int64.

    >>> uniform(5, 5, 0).tolist()
    [0, 1, 2, 3, 4]
    """
    return np.sort(np.random.default_rng(seed).choice(count, min(wanted, count), replace=False)).astype(np.int64)


def max_min(rows: Array, wanted: int) -> Array:
    """Positions of ``wanted`` rows (s, d), each the farthest from those before it: int64, in that order.

    The first is the row nearest to the mean; of equally far ones the first counts. Fewer are returned where the rows
    have fewer distinct ones. Every row is then nearer to one of them than any two of them are to each other
    (Gonzalez 1985). Cost: s·d·wanted, in memory: for a sample (de Silva & Tenenbaum 2004, §3.1).

    >>> max_min(np.array([[0.0], [1.0], [2.0], [10.0]]), 3).tolist()
    [2, 3, 0]
    """
    points = np.asarray(rows, np.float64)
    first = int(np.argmin(_squared(points, points.mean(axis=0))))
    near = _Nearer(points) if points.shape[1] >= WIDE else None
    return _farthest_first(near or (lambda i: _squared(points, points[i])), first, wanted)


class _Nearer:
    """Squared distances of wide rows to one of them, exact wherever they are below the least so far, else infinite.

    A product in float32 shows which rows are not nearer, beyond its rounding: after a few landmarks nearly all.
    """

    def __init__(self, points: Array) -> None:
        self.points = points
        center = points.mean(axis=0)
        reach = float(np.abs(points - center).max(initial=0.0)) or 1.0
        self.unit = reach * reach
        self.short = ((points - center) / reach).astype(np.float32)
        self.norms = np.einsum("ij,ij->i", self.short, self.short)
        self.lengths = np.sqrt(self.norms.astype(np.float64))
        self.rounding = rounding(points.shape[1], self.short.dtype)
        self.least = np.full(len(points), np.inf)

    def __call__(self, i: int) -> Array:
        product = self.short @ self.short[i]
        product *= -2
        product += self.norms
        bound = product.astype(np.float64) + self.norms[i] - self.rounding * (self.lengths + self.lengths[i]) ** 2
        out = np.full(len(self.points), np.inf)
        close = np.flatnonzero(~(bound * self.unit > self.least))
        out[close] = _squared(self.points[close], self.points[i])
        np.minimum(self.least, out, out=self.least)
        return out


def max_min_by(apart: Callable[[int], Array], wanted: int) -> Array:
    """Positions of ``wanted`` rows, each the farthest from those before it: ``apart(i)``, distances of all to row i.

    The first is the row that is farthest from row 0. Cost: ``wanted`` + 1 calls.

    >>> points = np.array([0.0, 1.0, 2.0, 10.0])
    >>> max_min_by(lambda i: abs(points - points[i]), 3).tolist()
    [3, 0, 2]
    """
    return _farthest_first(apart, int(np.argmax(apart(0))), wanted)


def _farthest_first(apart: Callable[[int], Array], first: int, wanted: int) -> Array:
    chosen, nearest = [first], np.array(apart(first), np.float64)
    while len(chosen) < min(wanted, len(nearest)):
        farthest = int(np.argmax(nearest))
        if not nearest[farthest] > 0:
            break
        chosen.append(farthest)
        np.minimum(nearest, apart(farthest), out=nearest)
    return np.array(chosen, np.int64)


def _squared(points: Array, point: Array) -> Array:
    difference = points - point
    return np.asarray(np.einsum("ij,ij->i", difference, difference))
