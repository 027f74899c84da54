"""Integers of 64 bits that float64, in which rows are worked on, would round."""

from __future__ import annotations

import numpy as np

from bigembed.errors import InputError
from bigembed.runtime.blocks import Array

EXACT = 1 << 53
"""Integers up to here are numbers of float64, all of them."""


def refuse_rounded(given: Array, indptr: Array | None, start: int, what: str) -> None:
    """InputError where integers of 64 bits are not exact in float64."""
    if given.dtype.kind not in "iu" or given.dtype.itemsize < 8 or not given.size:
        return
    if given.max() <= EXACT and (given.dtype.kind == "u" or given.min() >= -EXACT):
        return
    there = given.astype(np.float64)
    with np.errstate(invalid="ignore"):
        same = (there < 2.0 ** (64 - (given.dtype.kind == "i"))) & (there.astype(given.dtype) == given)
    wrong = np.argwhere(~same)
    if len(wrong):
        value, rows = given[tuple(wrong[0])], rows_of_entries(wrong, indptr)
        raise InputError(
            f"{what}: integers beyond 2^53, which float64 would round, at least {len(wrong):,}, the first ones in rows "
            f"{(np.unique(rows)[:10] + start).tolist()}, such as {value}. Take an offset off them, or leave the column "
            "out (an id names rows: ids)"
        )


def rows_of_entries(entries: Array, indptr: Array | None) -> Array:
    """The rows of entries (k, axes) of an array, or of those stored in CSR rows."""
    return entries[:, 0] if indptr is None else np.searchsorted(indptr, entries[:, 0], side="right") - 1
