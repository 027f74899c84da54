"""k-means partitions, the cells inside them, and the row order they induce.

Everything here is a function of rows in memory. Nearest centers come from one matrix product; where
rounding could decide, the distances are computed again exactly, so that a row gets the same center in
every batch.
"""

from __future__ import annotations

import numpy as np

from bigembed.distance.pairwise import paired_squared
from bigembed.neighbors.exact import approximate_squared
from bigembed.runtime.blocks import Array

FEW_ROWS = 8_192
"""Up to here nearest centers are found without compiled code."""
TILE_ENTRIES = 1 << 20
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


def nearest_centers(rows: Array, centers: Array) -> Array:
    """Nearest center of each row, ties to the lowest number: int64 (n,), the same whatever rows stand beside it."""
    labels = np.empty(len(rows), dtype=np.int64)
    height = max(64, TILE_ENTRIES // len(centers))
    for start in range(0, len(rows), height):
        part = slice(start, start + height)
        approximate, slack = approximate_squared(rows[part], centers)
        best = approximate.argmin(axis=1)
        least = approximate[np.arange(len(best)), best].astype(np.float64)
        _resolve(best, approximate, least + 2 * slack, rows[part], centers)
        labels[part] = best
    return labels


def _resolve(best: Array, approximate: Array, limit: Array, rows: Array, centers: Array) -> None:
    """Correct ``best`` in place where more than one center is within ``limit``."""
    close = ~(approximate > limit[:, None])
    unclear = np.flatnonzero(np.count_nonzero(close, axis=1) > 1)
    for start in range(0, len(unclear), 256):
        which = unclear[start : start + 256]
        row, center = np.nonzero(close[which])
        squared = paired_squared(rows[which[row]], centers[center])
        order = np.lexsort((center, squared, row))
        first = np.searchsorted(row[order], np.arange(len(which)))
        best[which] = center[order][first]
