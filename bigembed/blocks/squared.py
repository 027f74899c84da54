"""Squared Euclidean distances of pairs of rows, with one fixed order of the sum, and how far a product is from them."""

from __future__ import annotations

from typing import Any

import numpy as np

from bigembed.blocks.rows import Array

LANES = 8
_TILE = 16, 512
"""Rows and columns of a tile of all pairs, whose lanes stay in a cache."""


def paired_squared(a: Array, b: Array) -> Array:
    """Squared distances ‖a_i − b_i‖² of paired rows (m, d), (m, d): float64 (m,).

    Direct differences summed in eight lanes: feature j goes to lane j mod 8 in increasing j, and
    the lanes are added as a fixed tree. The same bits in every batch, symmetric in a and b.
    """
    m, d = a.shape
    steps = -(-d // LANES)
    squares = np.zeros((m, steps * LANES))
    np.subtract(a, b, out=squares[:, :d], dtype=np.float64)
    squares *= squares
    lanes = squares.reshape(m, steps, LANES).sum(axis=1)
    half = lanes[:, :4] + lanes[:, 4:]
    quarter = half[:, :2] + half[:, 2:]
    return np.asarray(quarter[:, 0] + quarter[:, 1])


def every_squared(a: Array, b: Array) -> Array:
    """Squared distances ‖a_i − b_j‖² of all pairs of rows (m, d), (N, d): float64 (m, N).

    Equal to :func:`paired_squared` to the bit, many times faster: each feature in its lane, the lanes as one tree.
    """
    left, right = a.astype(np.float64), np.ascontiguousarray(b.T, np.float64)
    out = np.empty((len(a), len(b)))
    height, width = _TILE
    for top in range(0, len(a), height):
        for start in range(0, len(b), width):
            part = out[top : top + height, start : start + width]
            part[:] = _tile(left[top : top + height], right[:, start : start + width])
    return out


def all_squared(rows: Array) -> Array:
    """:func:`every_squared` of rows (n, d) with themselves: half of the tiles, and their mirror images."""
    out = np.empty((len(rows), len(rows)))
    left, right = rows.astype(np.float64), np.ascontiguousarray(rows.T, np.float64)
    height, width = _TILE
    for top in range(0, len(rows), height):
        for start in range(top - top % width, len(rows), width):
            part = _tile(left[top : top + height], right[:, start : start + width])
            out[top : top + height, start : start + width] = part
            out[start : start + width, top : top + height] = part.T
    return out


def _tile(rows: Array, columns: Array) -> Array:
    lanes = np.zeros((LANES, len(rows), columns.shape[1]))
    difference = np.empty(lanes.shape[1:])
    for feature, column in enumerate(columns):
        np.subtract(rows[:, feature, None], column, out=difference)
        difference *= difference
        lanes[feature % LANES] += difference
    half = lanes[:4] + lanes[4:]
    quarter = half[:2] + half[2:]
    return np.asarray(quarter[0] + quarter[1])


def rounding(n_features: int, dtype: np.dtype[Any]) -> float:
    """Factor g of a bound |approximate − exact| ≤ g (‖x‖ + ‖y‖)² on ‖x‖² + ‖y‖² − 2 x·y.

    It holds for any order of summation, for x and y rounded after a common shift, and for distances
    that are stored rounded to ``dtype`` (Higham, Accuracy and Stability, §3.1: γ_d = d u / (1 − d u)).
    """
    unit = float(np.finfo(dtype).eps) / 2
    terms = (n_features + 16) * unit
    return 1.1 * terms / (1 - terms) if terms < 0.5 else np.inf
