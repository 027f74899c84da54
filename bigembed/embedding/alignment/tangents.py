"""Tangent coordinates around a row: the leading directions of its neighbors about their mean."""

from __future__ import annotations

import numpy as np

from bigembed.blocks.rows import Array

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
