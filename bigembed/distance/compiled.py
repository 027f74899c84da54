"""Compiled distances of every pair of CSR rows, and by a function of the user's. Imports numba: only where needed.

A pair of CSR rows is walked through once, in ascending columns, so that its distance has the same bits whatever rows
stand near, and whichever of the two comes first.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache
from typing import Any

import numpy as np
from numba import njit

from bigembed.errors import InputError
from bigembed.runtime.blocks import Array, is_sparse

CODES = {
    name: code
    for code, name in enumerate(
        (
            "euclidean", "cosine", "hellinger", "correlation", "manhattan", "chebyshev", "canberra", "braycurtis",
            "hamming", "jaccard", "dice", "rogerstanimoto", "sokalsneath",
        )
    )
}  # fmt: skip
CODES["spearmanr"] = CODES["correlation"]  # (of ranks)


def sparse_pairs(rows: Any, others: Any, metric: str) -> Array:
    """Distances (m, N) of mapped CSR rows by a named metric; squared ones of those that are Euclidean."""
    out = np.empty((rows.shape[0], others.shape[0]))
    _every(*_parts(rows), *_parts(others), CODES[metric], float(rows.shape[1]), out)
    return out


def user_pairs(rows: Any, others: Any, function: Callable[..., float], name: str, swapped: Array | None) -> Array:
    """Distances (m, N) by a function of two rows; of CSR rows one of indices, values, indices, values."""
    from numba.core.errors import NumbaError

    out = np.empty((rows.shape[0], others.shape[0]))
    turned = np.zeros((1, 1), bool) if swapped is None else np.ascontiguousarray(swapped)
    try:
        if is_sparse(rows):
            _user_sparse(compiled(function), *_parts(rows), *_parts(others), turned, out)
        else:
            contiguous = np.ascontiguousarray(rows), np.ascontiguousarray(others)
            _user_dense(compiled(function), *contiguous, turned, out)
    except NumbaError as error:
        what = "(indices, values, indices, values) of two sparse rows" if is_sparse(rows) else "(x, y) of two rows"
        raise InputError(
            f"metric={name}: numba cannot compile it as a function of {what} that returns a number: "
            f"{str(error).strip().splitlines()[0]}"
        ) from error
    return out


@lru_cache(maxsize=8)
def compiled(function: Callable[..., float]) -> Any:
    """The function compiled, unless it is already."""
    return function if hasattr(function, "py_func") else njit(function)


def _parts(rows: Any) -> tuple[Array, Array, Array]:
    return rows.indptr.astype(np.int64), rows.indices.astype(np.int64), np.ascontiguousarray(rows.data)


@njit(cache=True, nogil=True)
def _every(
    starts: Array, columns: Array, values: Array, starts2: Array, columns2: Array, values2: Array,
    code: int, width: float, out: Array,
) -> None:  # fmt: skip
    for i in range(out.shape[0]):
        for j in range(out.shape[1]):
            out[i, j] = pair(
                columns, values, starts[i], starts[i + 1], columns2, values2, starts2[j], starts2[j + 1], code, width
            )


@njit(cache=True, nogil=True)
def pair(
    columns: Array, values: Array, at: int, end: int, columns2: Array, values2: Array, at2: int, end2: int,
    code: int, width: float,
) -> float:  # fmt: skip
    """One distance: x and y run over the columns in which either row has an entry.

    What the columns of one row alone add, and of the other, is summed apart from those of both: rows that share
    nothing have the sum of what each adds alone.
    """
    one, two, total, below, both, either = 0.0, 0.0, 0.0, 0.0, 0, 0
    while at < end or at2 < end2:
        x, y = 0.0, 0.0
        column = columns[at] if at < end else columns2[at2]
        if at2 < end2 and columns2[at2] < column:
            column = columns2[at2]
        if at < end and columns[at] == column:
            x = float(values[at])
            at += 1
        if at2 < end2 and columns2[at2] == column:
            y = float(values2[at2])
            at2 += 1
        either += 1
        if code >= 9:
            both += x != 0.0 and y != 0.0
            continue
        term = abs(x - y)
        if code <= 3:
            term *= term if code < 3 or column < width - 1 else -term
        elif code == 5:
            total = max(total, term)
            continue
        elif code == 6:
            term /= abs(x) + abs(y)
        elif code == 8:
            term = 1.0 if term != 0.0 else 0.0
        if y == 0.0:
            one += term
        elif x == 0.0:
            two += term
        else:
            total += term
            below += abs(x + y)
    total += one + two
    if code == 3:
        return max(total, 0.0)
    if code < 7:
        return total
    if code == 7:
        return total / (below + (one + two)) if total > 0.0 else 0.0
    return of_counts(code, total if code == 8 else float(either), float(both), width)


@njit(cache=True, nogil=True)
def of_counts(code: int, total: float, both: float, width: float) -> float:
    """A distance that counts columns: ``total`` those that differ (hamming), else those of either row."""
    if code == 8:
        return total / width
    differ = total - both
    if differ <= 0.0:
        return 0.0
    if code == 9:
        return differ / total
    if code == 10:
        return differ / (2.0 * both + differ)
    return 2.0 * differ / (width + differ) if code == 11 else 2.0 * differ / (both + 2.0 * differ)


@njit(nogil=True)
def _user_dense(function: Any, rows: Array, others: Array, swapped: Array, out: Array) -> None:
    turns = swapped.shape == out.shape
    for i in range(out.shape[0]):
        for j in range(out.shape[1]):
            other_first = turns and swapped[i, j]
            out[i, j] = function(others[j], rows[i]) if other_first else function(rows[i], others[j])


@njit(nogil=True)
def _user_sparse(
    function: Any, starts: Array, columns: Array, values: Array, starts2: Array, columns2: Array, values2: Array,
    swapped: Array, out: Array,
) -> None:  # fmt: skip
    turns = swapped.shape == out.shape
    for i in range(out.shape[0]):
        own, held = columns[starts[i] : starts[i + 1]], values[starts[i] : starts[i + 1]]
        for j in range(out.shape[1]):
            theirs, others = columns2[starts2[j] : starts2[j + 1]], values2[starts2[j] : starts2[j + 1]]
            other_first = turns and swapped[i, j]
            out[i, j] = function(theirs, others, own, held) if other_first else function(own, held, theirs, others)
