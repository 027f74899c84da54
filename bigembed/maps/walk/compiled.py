"""Compiled averages of a walk over the edges of new rows. Importing this imports numba."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numba import njit

from bigembed.maps.scales import EQUAL, ROUNDING
from bigembed.runtime.arithmetic import squared_distance
from bigembed.runtime.blocks import Array

FIXED, ADAPTIVE, SELF_TUNED, BINARY = range(4)
"""Kernels: of one scale, of the scales of both rows, and 1 for every edge."""
_BY_INSERTION = 64
"""Edges of a row that are sorted one by one, at the most."""


@njit(cache=True, nogil=True)
def averages(
    rows: Array, nearest: Array, indptr: Array, indices: Any, table: Array, scale: Array, mass: Array, factor: Array,
    label: Array, vectors: Array, kind: int, epsilon: float, cut: float, within: bool, k: int, wanted: float,
    least: int, dimension: float, floor: float, lowest: float, parts: int, drop: bool, total: Array, mean: Array,
    home: Array, reach: Array,
) -> None:  # fmt: skip
    """Sums of weights and of weighted vectors over the edges of each new row (m, d): those of its ``nearest`` row.

    Parameters
    ----------
    rows, nearest : array of shape (m, d), (m,)
        The new rows, and the row of the block that is near to each.
    indptr, indices, table : array
        Edges of the rows of the block, and the rows that they lead to (those of the block, then its halo).
    scale, mass, factor, label, vectors : array of shape (rows of the table,), of vectors (rows of the table, width)
        Their scales, their weights, by what the kernel of an edge to them is multiplied, their components, and what is
        averaged.
    kind, epsilon, cut, within : int, float, float, bool
        The kernel exp(−s/ε): of which kind, its ε, the s from which on it is 0, and whether edges that are longer than
        the scales of both rows weigh nothing.
    k : int
        The scale of a new row is its k-th shortest edge; one of length 0, which leads to the row itself, is left out.
    wanted, least, dimension : float, int, float
        Where ``wanted`` > 0 it is what has this mass, as :func:`~bigembed.maps.scales.reach_in_mass` says.
    floor, lowest : float, float
        Scales below ``floor`` are ``lowest``.
    parts, drop : int, bool
        Only rows of the first components are averaged over; whether one that equals the new row is left out.
    total, mean, home, reach : array of shape (m,), (m, width), (m,), (m,)
        What is written: Σ w, Σ w v, over the component of the heaviest edge; that component, −1 for one that does not
        count; and the scale.
    """
    longest = 1
    for m in range(rows.shape[0]):
        longest = max(longest, indptr[nearest[m] + 1] - indptr[nearest[m]])
    squared, weight = np.empty(longest, rows.dtype), np.empty(longest)
    near, order = np.empty(longest, rows.dtype), np.empty(longest, np.int64)
    width = vectors.shape[1]
    for m in range(rows.shape[0]):
        first, count = indptr[nearest[m]], indptr[nearest[m] + 1] - indptr[nearest[m]]
        twin = -1
        for e in range(count):
            squared[e] = squared_distance(rows, m, table, indices[first + e])
            if twin < 0 and squared[e] == 0:
                twin = e
        own = 0.0
        if within or drop or kind in (ADAPTIVE, SELF_TUNED):
            length = _ordered(squared, count, twin, near, order)
            farthest = near[min(k, length) - 1] if length else near.dtype.type(0)
            own = np.sqrt(np.float64(farthest))
            if wanted > 0:
                self_mass = mass[indices[first + twin]] if twin >= 0 else 1.0
                while length and np.float64(near[length - 1]) > own * own * (1 + EQUAL):
                    length -= 1
                own = _reach(near, order, length, mass, indices, first, self_mass, wanted, least, dimension)
            reach[m] = own
            own = lowest if own < floor else own
        chosen, best = -1, -1.0
        for e in range(count):
            j, s = indices[first + e], np.float64(squared[e])
            value = s
            if kind == ADAPTIVE:
                value = s / ((own * own + scale[j] * scale[j]) / 2)
            elif kind == SELF_TUNED:
                value = s / (own * scale[j])
            w = 1.0 if kind == BINARY else math.exp(value / -epsilon) if value < cut else 0.0
            if within:
                farther = max(own, scale[j])
                w = 0.0 if s > farther * farther * (1 + EQUAL) else w
            weight[e] = w * factor[j]
            if weight[e] > best:
                chosen, best = label[j], weight[e]
        home[m] = chosen if chosen < parts else -1
        total[m] = 0.0
        mean[m] = 0.0
        if home[m] < 0:
            continue
        for e in range(count):
            j = indices[first + e]
            if label[j] != chosen or weight[e] == 0.0 or (drop and e == twin):
                continue
            total[m] += weight[e]
            for f in range(width):
                mean[m, f] += weight[e] * vectors[j, f]


@njit(nogil=True)
def _ordered(squared: Array, count: int, twin: int, near: Array, order: Array) -> int:
    """Squared lengths without that to the ``twin``, ascending, and which edges they are of; how many."""
    n = 0
    if count <= _BY_INSERTION:
        for e in range(count):
            if e == twin:
                continue
            value, p = squared[e], n
            while p > 0 and near[p - 1] > value:
                near[p], order[p] = near[p - 1], order[p - 1]
                p -= 1
            near[p], order[p] = value, e
            n += 1
        return n
    for e in np.argsort(squared[:count], kind="mergesort"):
        if e != twin:
            near[n], order[n] = squared[e], e
            n += 1
    return n


@njit(nogil=True)
def _reach(
    near: Array, order: Array, count: int, mass: Array, indices: Any, first: int, own: float, wanted: float, least: int,
    dimension: float,
) -> float:  # fmt: skip
    """The distance within which edges that ascend have the mass ``wanted``, with that of the row itself."""
    if count == 0:
        return 0.0
    held, place = 0.0, -1
    for e in range(count):
        held += mass[indices[first + order[e]]]
        if own + held >= wanted * (1 - ROUNDING):
            place = e
            break
    found = np.float64(near[min(max(place if place >= 0 else count - 1, least - 1), count - 1)])
    if place < 0 and dimension > 0:
        found *= (wanted / (own + held)) ** (2.0 / dimension)
    return float(np.sqrt(found))
