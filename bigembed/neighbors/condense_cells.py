"""Cells of a partition: their centers, chosen from rows, and what is added up of the rows that fall into them.

Everything here is a function of rows in memory. A cell has a center that never moves. Rows go to the nearest center,
and a row that is farther than a cell is wide opens a cell of its own; sums are taken of differences to the center, in
the order of the rows.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from bigembed.distance.pairwise import paired_squared
from bigembed.neighbors.partition import FEW_ROWS, cell_centers, nearest_centers
from bigembed.runtime.blocks import Array

WIDE = 3.0
"""How far a row may be from the center of its cell where a number of cells is asked for: so many times the usual radius
of the partition."""
MORE = 2
"""How many times the cells that a partition is given it may have at the most, with those that rows open."""


@dataclass(frozen=True)
class Cells:
    """Cells of one partition, and the sums of the rows in them."""

    centers: Array
    """(c, d), in the dtype of the rows."""
    counts: Array
    """(c,), int64, or float64 the sums of the weights."""
    sums: Array
    """Σ w (x − center), (c, d) float64."""
    squares: Array
    """Σ w ‖x − center‖², (c,)."""
    far: Array
    """max ‖x − center‖², (c,)."""
    wide: float = 0.0
    """Squared distance to the nearest center beyond which a row opens a cell."""
    most: int = 0
    """Cells that there may be."""
    beyond: int = 0
    """Rows farther than that in a partition that may have no more cells."""

    @classmethod
    def empty(cls, d: int, dtype: Any, weighted: bool) -> Cells:
        """No cells yet."""
        counts = np.zeros(0, np.float64 if weighted else np.int64)
        return cls(np.zeros((0, d), dtype), counts, np.zeros((0, d)), np.zeros(0), np.zeros(0))

    def __len__(self) -> int:
        return len(self.centers)

    def opened(self, centers: Array) -> Cells:
        """These and empty cells with more centers."""
        more = len(centers)
        return replace(
            self,
            centers=np.concatenate([self.centers, centers]),
            counts=np.concatenate([self.counts, np.zeros(more, self.counts.dtype)]),
            sums=np.concatenate([self.sums, np.zeros((more, centers.shape[1]))]),
            squares=np.concatenate([self.squares, np.zeros(more)]),
            far=np.concatenate([self.far, np.zeros(more)]),
        )

    def filled(self) -> Cells:
        """Those of these that have rows: a center stays alone where rows near it have opened cells nearer to them."""
        if (there := self.counts > 0).all():
            return self
        names = ("centers", "counts", "sums", "squares", "far")
        return replace(self, **{name: getattr(self, name)[there] for name in names})

    @property
    def shift(self) -> Array:
        """From the centers to the means of the rows, (c, d) float64; 0 where there are none."""
        return np.asarray(self.sums / self._known[:, None])

    @property
    def _known(self) -> Array:
        return np.where(self.counts > 0, self.counts, 1)

    def means(self) -> Array:
        """Means of the rows of the cells, (c, d) float64."""
        return np.asarray(self.centers + self.shift)

    def radius(self) -> Array:
        """Root of the mean squared distance of the rows of each cell to their mean, (c,)."""
        return np.asarray(np.sqrt(np.maximum(self.squares / self._known - _squared(self.shift), 0.0)))

    def reach(self) -> Array:
        """No row of the cell is farther from its mean: distance to the center, and from it to the mean, (c,)."""
        return np.asarray(np.sqrt(self.far) + np.sqrt(_squared(self.shift)))

    def within(self) -> float:
        """Σ w ‖x − mean of its cell‖² over all rows."""
        return float((self.counts * self.radius() ** 2).sum())


def _squared(rows: Array) -> Array:
    return np.asarray((rows * rows).sum(axis=1))


def chosen_centers(rows: Array, wanted: int, seed: list[int]) -> tuple[Array, Array]:
    """About ``wanted`` centers for rows (m, d): the distinct rows where they are not many more, else by k-means.

    Every center is the nearest one of some row. Also the nearest center of each row, (m,).
    """
    if (distinct := distinct_rows(rows, MORE * wanted)) is not None:
        return distinct, nearest_of(rows, distinct)
    centers = cell_centers(rows, wanted, seed)
    label = nearest_of(rows, centers)
    used = np.bincount(label, minlength=len(centers)) > 0
    return centers[used], (np.cumsum(used) - 1)[label]


def distinct_rows(rows: Array, most: int) -> Array | None:
    """The distinct rows, in the order in which they first come; None where there are more than ``most``."""
    along = np.zeros(len(rows))
    factors = np.random.default_rng(0).uniform(0.5, 1.5, (rows.shape[1],))
    for column, factor in enumerate(factors.tolist()):
        along += factor * rows[:, column]  # equal rows have equal sums: there are at least as many rows as sums
    if len(rows) > most and len(np.unique(along)) > most:
        return None
    found, first = np.unique(rows, axis=0, return_index=True)
    return rows[np.sort(first)] if len(found) <= most else None


def nearest_of(rows: Array, centers: Array) -> Array:
    """The nearest center of each row, ties to the lowest number: int64 (n,), the same whatever rows stand beside it."""
    if len(rows) <= FEW_ROWS:
        return nearest_centers(rows, centers)
    from bigembed.neighbors.compiled import nearest  # imports numba: only here

    return nearest(rows, centers)


def squared_of(rows: Array, centers: Array, label: Array) -> Array:
    """Squared distance of each row (m, d) to the center ``label``, float64 (m,)."""
    if len(rows) <= FEW_ROWS:
        return paired_squared(rows, centers[label])
    from bigembed.neighbors.condense_compiled import paired  # imports numba: only here

    return paired(rows, centers, label)


def leading_rows(rows: Array, reach: float, most: int) -> Array:
    """Which rows (m, d), at most ``most``, lead: in their order, each that is within √``reach`` of no earlier one.

    >>> leading_rows(np.array([[0.0], [1.0], [2.5], [0.5]]), 1.0, 9).tolist()
    [0, 2]
    """
    if len(rows) > FEW_ROWS:
        from bigembed.neighbors.condense_compiled import leading  # imports numba: only here

        return leading(rows, reach, most)
    found: list[int] = []
    left = np.arange(len(rows))
    while len(left) and len(found) < most:
        first, rest = left[0], left[1:]
        found.append(int(first))
        left = rest[paired_squared(np.repeat(rows[first][None], len(rest), axis=0), rows[rest]) > reach]
    return np.array(found, np.int64)


def begin_cells(cells: Cells, rows: Array, wanted: int, radius: float | None, seed: list[int]) -> Cells:
    """Choose the cells of a partition from some of its rows (m, d): about ``wanted``, or as wide as ``radius``."""
    if radius is not None:
        return replace(cells, wide=radius**2, most=np.iinfo(np.int64).max)
    if not len(rows):
        return replace(cells, wide=0.0, most=MORE * wanted)
    centers, label = chosen_centers(rows, wanted, seed)
    squared = squared_of(rows, centers, label)
    counts = np.bincount(label, minlength=len(centers))
    usual = np.bincount(label, squared, minlength=len(centers))[counts > 1] / counts[counts > 1]
    wide = WIDE**2 * float(np.median(usual)) if len(usual) else 0.0
    return replace(cells.opened(centers), wide=wide, most=max(len(centers), MORE * wanted))


def add_rows(cells: Cells, rows: Array, weights: Array | None) -> tuple[Cells, Array]:
    """Add rows (m, d) to the cells, opening those that are needed; also the cell of each row (m,), −1 for none.

    Rows of weight 0 open none and are added to none; they are told the nearest cell all the same.
    """
    counted = np.ones(len(rows), bool) if weights is None else weights > 0
    label = np.full(len(rows), -1, np.int64)
    squared = np.full(len(rows), np.inf)
    if len(cells):
        label, squared = _nearest(rows, cells.centers)
    if len(far := np.flatnonzero(counted & (squared > cells.wide))):
        first, room = len(cells), cells.most - len(cells)
        leaders = leading_rows(rows[far], cells.wide, room) if room > 0 else far[:0]
        if len(leaders):
            cells = cells.opened(rows[far[leaders]])
            near, distance = _nearest(rows, cells.centers[first:])
            nearer = distance < squared
            label[nearer], squared[nearer] = near[nearer] + first, distance[nearer]
        cells = replace(cells, beyond=cells.beyond + int((squared[far] > cells.wide).sum()))
    if weights is not None and not counted.all():
        return _summed(cells, rows[counted], weights[counted], label[counted], squared[counted]), label
    return _summed(cells, rows, weights, label, squared), label


def _nearest(rows: Array, centers: Array) -> tuple[Array, Array]:
    label = nearest_of(rows, centers)
    return label, squared_of(rows, centers, label)


def _summed(cells: Cells, rows: Array, weights: Array | None, label: Array, squared: Array) -> Cells:
    """The cells with rows added, in their order."""
    if not len(rows):
        return cells
    counts, sums, squares, far = _sums_of(rows, weights, label, squared, cells.centers)
    return replace(
        cells,
        counts=cells.counts + counts.astype(cells.counts.dtype),
        sums=cells.sums + sums,
        squares=cells.squares + squares,
        far=np.maximum(cells.far, far),
    )


def _sums_of(
    rows: Array, weights: Array | None, label: Array, squared: Array, centers: Array
) -> tuple[Array, Array, Array, Array]:
    """Of rows in their order: counts, Σ w (x − center), Σ w ‖x − center‖² and its maximum, of each cell."""
    c, d = centers.shape
    sums, far = np.zeros((c, d)), np.zeros(c)
    if len(rows) > FEW_ROWS:
        from bigembed.neighbors.condense_compiled import add_up  # imports numba: only here

        counts, squares = np.zeros(c), np.zeros(c)
        weighted, given = weights is not None, np.zeros(0) if weights is None else weights
        add_up(rows, given, weighted, label, squared, centers, counts, sums, squares, far)
        return counts, sums, squares, far
    difference = rows.astype(np.float64) - centers[label]
    for f in range(d):
        sums[:, f] = np.bincount(label, difference[:, f] if weights is None else weights * difference[:, f], c)
    np.maximum.at(far, label, squared)
    weighed = squared if weights is None else weights * squared
    return np.bincount(label, weights, c), sums, np.bincount(label, weighed, c), far
