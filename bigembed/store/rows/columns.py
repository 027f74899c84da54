"""Columns of objects as numbers: of data frames, and of arrays of objects."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np

from bigembed.blocks.rows import Array
from bigembed.errors import InputError, InputTypeError
from bigembed.store.rows.reader import listed
from bigembed.store.rows.source import EXACT

REMEDY = "Make categories columns of 0 and 1 (OneHotEncoder; in a job the step 'one_hot'), or leave these columns out"
NOTHING = ("NoneType", "NAType", "NaTType")
"""Types of what stands for a missing value."""


def is_frame(X: Any) -> bool:
    """Whether it is a data frame in memory (pandas, polars)."""
    return all(hasattr(X, name) for name in ("columns", "dtypes", "shape")) and not hasattr(X, "dask")


def columns_of(X: Any) -> list[tuple[Any, Array]]:
    """The names of the columns of a data frame, and what they hold; several may have one name."""
    each = X.items() if hasattr(X, "items") else ((column.name, column) for column in X.iter_columns())
    return [(name, np.asarray(column)) for name, column in each]


def lazy_numbers(X: Any) -> Any:
    """A Dask data frame whose columns are numbers that NumPy has, NaN where a value is missing; InputError, which
    names them, for other columns."""
    kinds = {name: getattr(dtype, "kind", "O") for name, dtype in X.dtypes.items()}
    if wrong := [f"{name} ({X.dtypes[name]})" for name, kind in kinds.items() if kind not in "biuf"]:
        raise InputError(f"rows hold columns that are not numbers: {listed(wrong)}. {REMEDY}")
    plain = all(isinstance(dtype, np.dtype) for dtype in X.dtypes) and len({kind == "b" for kind in kinds.values()}) < 2
    known = {name for name, dtype in X.dtypes.items() if isinstance(dtype, np.dtype) and dtype.kind != "b"}
    return X if plain else X.astype({name: "float64" for name in kinds if name not in known})


def numbers_of(columns: Iterable[tuple[Any, Array]], numbered: bool = False) -> Array:
    """Columns as rows of float64, NaN where a value is missing (None, NA); InputError that names those of no numbers.

    ``numbered``: whether their names are their numbers.

    >>> numbers_of([("a", np.array([1, None])), ("b", np.array([True, False]))]).tolist()
    [[1.0, 1.0], [nan, 0.0]]
    """
    found, wrong, error = [], [], None
    for name, values in columns:
        try:
            found.append(as_numbers(name, values))
        except (TypeError, ValueError, OverflowError) as caught:
            if isinstance(caught, InputError):
                raise
            wrong.append(f"{name} ({caught})")
            error = error if isinstance(error, TypeError) else caught
    if error is not None:
        what = "columns, counted from 0," if numbered else "columns"
        raise (InputTypeError if isinstance(error, TypeError) else InputError)(
            f"rows hold objects that are not numbers: argument must be a string or a number, in the {what} "
            f"{listed(wrong)}. {REMEDY}"
        ) from error
    return np.column_stack(found)


def as_numbers(name: Any, values: Array) -> Array:
    """A column as float64; TypeError or ValueError where it is not of numbers."""
    if values.dtype.kind in "biuf":
        return values.astype(np.float64)
    if values.dtype.kind == "c":
        raise InputError(f"Complex data not supported: rows must be real numbers, and column {name} is complex")
    if values.dtype.kind in "mM":
        raise ValueError("dates and times")
    values = values.astype(object)  # (text of any kind)
    gone = absent(values)
    found = np.full(len(values), np.nan)
    found[~gone] = values[~gone].astype(np.float64)
    for row in np.flatnonzero(np.abs(found) >= EXACT).tolist():
        if isinstance(values[row], int) and int(found[row]) != values[row]:
            raise InputError(f"row {row} holds the integer {values[row]}, beyond 2^53, which float64 would round")
    return found


def absent(values: Array) -> Array:
    """Which entries of objects stand for nothing: None, NaN, NA and NaT of pandas."""
    if values.dtype != object:
        return np.zeros(len(values), bool)
    return np.array([type(one).__name__ in NOTHING or _unequal(one) for one in values.tolist()], bool)


def _unequal(value: Any) -> bool:
    """Whether it is NaN, of any type of number."""
    return isinstance(value, float | np.floating) and bool(value != value)
