"""Maps of rows, number by number or row by row: each row the same whatever rows stand beside it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from bigembed.blocks.rows import Array
from bigembed.errors import InputError

NAMED = 5


def shift_and_scale(rows: Array, model: tuple[Array | None, Array | None]) -> Array:
    """(x − m)/s in float64; None for no shift, or no scale.

    >>> shift_and_scale(np.array([[1.0, 4.0]]), (np.array([1.0, 2.0]), np.array([1.0, 4.0]))).tolist()
    [[0.0, 0.5]]
    """
    shift, scale = model
    out = rows.astype(np.float64)
    if shift is not None:
        out -= shift
    if scale is not None:
        out /= scale
    return out


def clipped(rows: Array, model: tuple[float, float]) -> Array:
    """Numbers below and above the bounds as the bounds; NaN stays."""
    return np.clip(rows, *model)


def log1p_block(rows: Array, model: Any, start: int = 0) -> Array:
    """log(1 + x) in float64; InputError that names rows where x ≤ −1."""
    bad = np.flatnonzero((rows <= -1).any(axis=1))
    if len(bad):
        raise InputError(
            f"log1p is of numbers > −1; {len(bad)} of the rows {start}:{start + len(rows)} hold others, the first are "
            f"rows {(bad[:NAMED] + start).tolist()}, with {rows[bad[0]].min():g}. Clip them before, or leave the "
            "columns out"
        )
    return np.asarray(np.log1p(rows, dtype=np.float64))


def sizes_of(rows: Array, norm: str) -> Array:
    """What each row (m,) is divided by: its sum, its length, the sum or the largest of its absolute values.

    Sums are taken row by row, in an order that depends on the number of columns alone.

    >>> sizes_of(np.array([[3.0, -4.0]]), "l2").tolist(), sizes_of(np.array([[3.0, -4.0]]), "total").tolist()
    ([5.0], [-1.0])
    """
    given = np.ascontiguousarray(rows, np.float64)
    if norm == "total":
        return np.asarray(given.sum(axis=1))
    if norm == "max":
        return np.asarray(np.abs(given).max(axis=1))
    if norm == "l1":
        return np.asarray(np.abs(given).sum(axis=1))
    return np.asarray(np.sqrt((given * given).sum(axis=1)))


def normalized(rows: Array, model: tuple[str, float], start: int = 0) -> Array:
    """Rows over their size, times the target; rows of size 0 as they are. InputError where a total is negative."""
    norm, target = model
    sizes = sizes_of(rows, norm)
    if len(bad := np.flatnonzero(sizes < 0)):
        raise InputError(
            f"rows are divided by their totals, and {len(bad)} of the rows {start}:{start + len(rows)} have a negative "
            f"one, the first are rows {(bad[:NAMED] + start).tolist()}. Use norm='l1' or 'l2'"
        )
    return np.asarray(rows / np.where(sizes == 0, 1, sizes / target)[:, None])


def picked(rows: Array, model: Array) -> Array:
    """Columns of these numbers."""
    return rows[:, model]


def indicators(rows: Array, model: tuple[Sequence[Array | None], bool], start: int = 0) -> Array:
    """Each column that has categories as a column of 0 and 1 for each of them; NaN as NaN in all of them.

    ``model``: the categories of each column, None for one that stays; whether others are an InputError (rows named).

    >>> indicators(np.array([[5.0, 2.0], [5.0, 3.0]]), ([None, np.array([2.0, 3.0])], True)).tolist()
    [[5.0, 1.0, 0.0], [5.0, 0.0, 1.0]]
    """
    categories, strict = model
    parts = []
    for number, known in enumerate(categories):
        column = rows[:, number]
        if known is None:
            parts.append(column[:, None])
            continue
        found, missing = column[:, None] == known, np.isnan(column)
        bad = np.flatnonzero(~found.any(axis=1) & ~missing)
        if len(bad) and strict:
            raise InputError(
                f"column {number} (counted from 0): {len(bad)} of the rows {start}:{start + len(rows)} hold a category "
                f"that the fitted rows did not have, the first are rows {(bad[:NAMED] + start).tolist()}. Leave them "
                "out, fit with such rows, or take unknown='zeros'"
            )
        parts.append(np.where(missing[:, None], np.nan, found).astype(rows.dtype))
    return np.concatenate(parts, axis=1)
