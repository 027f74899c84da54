"""k-means partitions, the cells inside them, the row order they induce, and cells that stand for their rows.

Everything here is a function of rows in memory. Nearest centers come from one matrix product; where
rounding could decide, the distances are computed again exactly, so that a row gets the same center in
every batch.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from bigembed.distance import paired_squared
from bigembed.neighbors import TILE_ENTRIES, nearest_centers
from bigembed.runtime.blocks import Array

FEW_ROWS = 8_192
"""Up to here nearest centers are found without compiled code."""
_CENTER_ROWS = 24
"""Sampled rows for each center of a cell k-means."""


def kmeans(sample: Array, n_centers: int, seed: int | list[int], iterations: int = 8) -> Array:
    """Centers (n_centers, d) of a sample (s, d) by Lloyd's iterations from a random start.

    A center that loses all its rows moves to the row that is farthest from its own center. With fewer
    distinct rows than centers some centers are identical.
    """
    generator = np.random.default_rng(seed)
    start = np.sort(generator.permutation(len(sample))[:n_centers])
    mean = sample.mean(axis=0, dtype=np.float64).astype(sample.dtype)
    rows = sample - mean  # products of centered rows lose less to rounding
    centers = rows[np.resize(start, n_centers)]
    for _ in range(iterations if n_centers > 1 else 1):
        centers = lloyd_means(rows, centers)
    return np.asarray(centers + mean)


def lloyd_means(rows: Array, centers: Array) -> Array:
    """One of Lloyd's iterations on rows (s, d): the mean of those nearest to each center.

    A center that loses all its rows moves to the row that is farthest from its own center.
    """
    n_centers, norms = len(centers), np.einsum("ij,ij->i", centers, centers)
    counts, sums = np.zeros(n_centers, dtype=np.int64), np.zeros(centers.shape)
    squared = np.empty(len(rows))
    height = max(64, TILE_ENTRIES // n_centers)
    for start in range(0, len(rows), height):
        tile = rows[start : start + height]
        score = tile @ (-2 * centers).T
        score += norms
        labels = score.argmin(axis=1)
        everyone = np.arange(len(tile))
        squared[start : start + height] = score[everyone, labels]
        counts += np.bincount(labels, minlength=n_centers)
        score[:] = 0
        score[everyone, labels] = 1
        sums += score.T @ tile
    filled = counts > 0
    moved = centers.copy()
    moved[filled] = sums[filled] / counts[filled, None]
    empty = np.flatnonzero(~filled)
    if len(empty):
        squared += np.einsum("ij,ij->i", rows, rows)
        farthest = np.lexsort((np.arange(len(rows)), -squared))[: len(empty)]
        moved[empty[: len(farthest)]] = rows[farthest]
    return moved


def balanced_centers(sample: Array, n_centers: int, largest_share: float, seed: int) -> Array:
    """At least ``n_centers`` centers, none nearest to more than ``largest_share`` of the sample.

    A center with too many rows is replaced by those of a k-means of its rows; where its rows are
    identical it is repeated, and :func:`assign_block` shares the rows among the copies. Centers
    that are near each other get near numbers.
    """
    allowed = max(1.0, largest_share * len(sample))
    numbers = np.arange(len(sample))
    centers = kmeans(sample, n_centers, [seed, 2])
    for turn in range(64):
        labels = assign_block(sample, numbers, centers)
        counts = np.bincount(labels, minlength=len(centers))
        large = np.flatnonzero(counts > allowed)
        if len(large) == 0:
            break
        parts = [centers[counts <= allowed]]
        for center in large:
            share = int(np.ceil(counts[center] / allowed))
            parts.append(_split(sample[labels == center], share, [seed, 3, turn, int(center)]))
        centers = np.concatenate(parts)
    return centers[line_order(centers)]


def assign_block(rows: Array, row_ids: Array, centers: Array, compiled: bool = False) -> Array:
    """The nearest center of each row (n, d) among centers (P, d): int32 (n,).

    Among identical centers the row id decides, round robin; among equally near ones, the lowest. A
    row's label does not depend on the other rows: what rounding could decide is computed exactly.
    Compiled or not, the labels are the same.
    """
    distinct, first, inverse, copies = np.unique(
        centers, axis=0, return_index=True, return_inverse=True, return_counts=True
    )
    by_number = np.argsort(first)  # distinct centers in the order of their lowest number
    nearest = nearest_centers
    if compiled:
        from bigembed.neighbors.compiled import nearest  # imports numba: only here
    chosen = by_number[nearest(rows, distinct[by_number])]
    members = np.argsort(inverse.ravel(), kind="stable")
    starts = np.concatenate([[0], np.cumsum(copies)])[:-1]
    return members[starts[chosen] + row_ids % copies[chosen]].astype(np.int32)


def cells_block(rows: Array, cell_size: int, seed: int) -> tuple[Array, Array, Array]:
    """Divide the rows (n, d) of one partition into cells of about ``cell_size`` rows.

    Returns ``order`` int64 (n,), the rows in cell order (as given inside a cell); ``offsets`` int64
    (C+1,), where each cell begins in it; ``centers`` (C, d), each row's nearest one being that of its
    cell. Cells near each other have near numbers; no cell is empty; cells of more than twice
    ``cell_size`` rows are split, and rows that are all identical share copies of one center.
    """
    centers = cell_centers(rows, max(1, round(len(rows) / cell_size)), [seed, 4])
    labels = _final_labels(rows, centers)
    for turn in range(6):
        counts = np.bincount(labels, minlength=len(centers))
        large = np.flatnonzero(counts > 2 * cell_size)
        if len(large) == 0:
            break
        parts = [centers[(counts <= 2 * cell_size) & (counts > 0)]]
        members = np.split(np.argsort(labels, kind="stable"), np.cumsum(counts)[:-1])
        for cell in large:
            share = round(counts[cell] / cell_size)
            parts.append(_split(rows[members[cell]], share, [seed, 5, turn, int(cell)]))
        centers = np.concatenate(parts)
        labels = _final_labels(rows, centers)
    return _in_line(labels, centers)


def _final_labels(rows: Array, centers: Array) -> Array:
    return assign_block(rows, np.arange(len(rows)), centers, compiled=len(rows) > FEW_ROWS)


def _in_line(labels: Array, centers: Array) -> tuple[Array, Array, Array]:
    used = np.flatnonzero(np.bincount(labels, minlength=len(centers)))
    along = used[line_order(centers[used])]
    number = np.zeros(len(centers), dtype=np.int64)
    number[along] = np.arange(len(along))
    labels = number[labels]
    order = np.argsort(labels, kind="stable")
    offsets = np.concatenate([[0], np.cumsum(np.bincount(labels, minlength=len(along)))]).astype(np.int64)
    return order, offsets, np.ascontiguousarray(centers[along])


def line_order(centers: Array) -> Array:
    """Order centers (C, d) along a line so that neighbors in it are near: int64 (C,).

    Halves, recursively, along the direction from one extreme center to the other; each half is turned
    so that its beginning lies at the end of the one before.
    """
    points = centers.astype(np.float64)
    line: list[int] = []
    stack = [np.arange(len(points))]
    while stack:
        members = stack.pop()
        if len(members) <= 2 or (points[members] == points[members[0]]).all():
            if line and len(members) == 2:
                gaps = ((points[members] - points[line[-1]]) ** 2).sum(axis=1)
                members = members[np.argsort(gaps, kind="stable")]
            line.extend(members.tolist())
            continue
        here = points[members]
        begin = points[line[-1]] if line else here[np.argmax(((here - here.mean(axis=0)) ** 2).sum(axis=1))]
        near = here[np.argmin(((here - begin) ** 2).sum(axis=1))]
        far = here[np.argmax(((here - near) ** 2).sum(axis=1))]
        along = np.argsort((here - near) @ (far - near), kind="stable")
        half = len(members) // 2
        stack += [members[along[half:]], members[along[:half]]]
    return np.array(line, dtype=np.int64)


def cell_centers(rows: Array, n_centers: int, seed: list[int]) -> Array:
    """Centers by k-means in two levels: a few groups, then cells inside each of them."""
    n_groups = round(n_centers**0.5)
    generator = np.random.default_rng(seed)
    wanted = min(len(rows), _CENTER_ROWS * n_centers)
    sample = rows[np.sort(generator.permutation(len(rows))[:wanted])]
    if n_groups < 4:
        return kmeans(sample, n_centers, [*seed, 0])
    groups = kmeans(sample[:: max(1, wanted // (64 * n_groups))], n_groups, [*seed, 0])
    labels = nearest_centers(sample, groups)
    counts = np.bincount(labels, minlength=n_groups)
    shares = np.maximum(counts > 0, np.round(counts * (n_centers / wanted))).astype(int)
    parts = [kmeans(sample[labels == g], int(s), [*seed, 1, g], 5) for g, s in enumerate(shares) if s]
    return np.concatenate(parts)


def _split(rows: Array, share: int, seed: list[int]) -> Array:
    """At least two centers for rows that are too many for one: of a k-means, or copies of the only one."""
    if (rows == rows[0]).all():
        return np.repeat(rows[:1], max(2, share), axis=0)
    return kmeans(rows, max(2, share), seed)


# ----------------------------------------------------------------------------------------- cells that stand for rows
# Cells of a partition: their centers, chosen from rows, and what is added up of the rows that fall into them.
#
# Everything here is a function of rows in memory. A cell has a center that never moves. Rows go to the nearest center,
# and a row that is farther than a cell is wide opens a cell of its own; sums are taken of differences to the center, in
# the order of the rows.

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
    from bigembed.neighbors.centers_compiled import paired  # imports numba: only here

    return paired(rows, centers, label)


def leading_rows(rows: Array, reach: float, most: int) -> Array:
    """Which rows (m, d), at most ``most``, lead: in their order, each that is within √``reach`` of no earlier one.

    >>> leading_rows(np.array([[0.0], [1.0], [2.5], [0.5]]), 1.0, 9).tolist()
    [0, 2]
    """
    if len(rows) > FEW_ROWS:
        from bigembed.neighbors.centers_compiled import leading  # imports numba: only here

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
        from bigembed.neighbors.centers_compiled import add_up  # imports numba: only here

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
