"""Maps of rows, number by number or row by row: each row the same whatever rows stand beside it.

CSR rows come out as CSR rows: of what leaves 0 as it is, only the stored entries are computed.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from scipy import sparse

from bigembed.blocks.mapped_rows import any_in_row, row_sums
from bigembed.blocks.rows import Array, is_sparse
from bigembed.errors import InputError

NAMED = 5


def as_typed(rows: Any, dtype: Any) -> Any:
    """Dense or CSR rows in a dtype."""
    return rows.astype(dtype, copy=False) if is_sparse(rows) else np.asarray(rows, dtype)


def on_entries(function: Callable[[Array], Array], rows: Any) -> Any:
    """``function`` of all numbers of a dense block, or of the stored entries of CSR rows."""
    return with_entries(rows, function(rows.data)) if is_sparse(rows) else function(rows)


def with_entries(rows: Any, values: Array) -> Any:
    """CSR rows with these values where the rows have their entries."""
    return sparse.csr_array((values, rows.indices, rows.indptr), shape=rows.shape)


def shift_and_scale(rows: Any, model: tuple[Array | None, Array | None]) -> Any:
    """(x − m)/s in float64; None for no shift, as CSR rows need it, or no scale.

    >>> shift_and_scale(np.array([[1.0, 4.0]]), (np.array([1.0, 2.0]), np.array([1.0, 4.0]))).tolist()
    [[0.0, 0.5]]
    """
    shift, scale = model
    if is_sparse(rows):
        assert shift is None
        return with_entries(rows, rows.data / (1.0 if scale is None else scale[rows.indices]))
    out = rows.astype(np.float64)
    if shift is not None:
        out -= shift
    if scale is not None:
        out /= scale
    return out


def clipped(rows: Any, model: tuple[float, float]) -> Any:
    """Numbers below and above the bounds as the bounds; NaN stays. For CSR rows 0 must lie between them."""
    return on_entries(lambda values: np.clip(values, *model), rows)


def log1p_block(rows: Any, model: Any, start: int = 0) -> Any:
    """log(1 + x) in float64; InputError that names rows where x ≤ −1."""
    bad = np.flatnonzero(any_in_row(rows, (rows.data if is_sparse(rows) else rows) <= -1))
    if len(bad):
        raise InputError(
            f"log1p is of numbers > −1; {len(bad)} of the rows {start}:{start + rows.shape[0]} hold others, the first "
            f"are rows {(bad[:NAMED] + start).tolist()}, with {rows[bad[:1]].min():g}. Clip them before, or leave the "
            "columns out"
        )
    return on_entries(lambda values: np.asarray(np.log1p(values, dtype=np.float64)), rows)


def sizes_of(rows: Any, norm: str) -> Array:
    """What each row (m,) is divided by: its sum, its length, the sum or the largest of its absolute values.

    Sums are taken row by row, in an order that depends on the number of columns alone.

    >>> sizes_of(np.array([[3.0, -4.0]]), "l2").tolist(), sizes_of(np.array([[3.0, -4.0]]), "total").tolist()
    ([5.0], [-1.0])
    """
    if is_sparse(rows):
        return _sizes_of_csr(rows, norm)
    given = np.ascontiguousarray(rows, np.float64)
    if norm == "total":
        return np.asarray(given.sum(axis=1))
    if norm == "max":
        return np.asarray(np.abs(given).max(axis=1))
    if norm == "l1":
        return np.asarray(np.abs(given).sum(axis=1))
    return np.asarray(np.sqrt((given * given).sum(axis=1)))


def _sizes_of_csr(rows: Any, norm: str) -> Array:
    wide = rows.data.astype(np.float64)
    if norm == "total":
        return row_sums(wide, rows.indptr)
    if norm == "max":
        largest, some = np.zeros(rows.shape[0]), np.diff(rows.indptr) > 0
        largest[some] = np.maximum.reduceat(np.abs(wide), rows.indptr[:-1][some]) if some.any() else 0
        return largest
    return row_sums(np.abs(wide), rows.indptr) if norm == "l1" else np.sqrt(row_sums(wide * wide, rows.indptr))


def normalized(rows: Any, model: tuple[str, float], start: int = 0) -> Any:
    """Rows over their size, times the target; rows of size 0 as they are. InputError where a total is negative."""
    norm, target = model
    sizes = sizes_of(rows, norm)
    if len(bad := np.flatnonzero(sizes < 0)):
        raise InputError(
            f"rows are divided by their totals, and {len(bad)} of the rows {start}:{start + rows.shape[0]} have a "
            f"negative one, the first are rows {(bad[:NAMED] + start).tolist()}. Use norm='l1' or 'l2'"
        )
    shares = np.where(sizes == 0, 1, sizes / target)
    if is_sparse(rows):
        return with_entries(rows, rows.data / np.repeat(shares, np.diff(rows.indptr)))
    return np.asarray(rows / shares[:, None])


def picked(rows: Any, model: Array) -> Any:
    """Columns of these numbers."""
    found = rows[:, model]
    if is_sparse(found):
        found.sort_indices()
    return found


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
