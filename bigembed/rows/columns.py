"""Columns of text and of objects as numbers: categories, and what is missing in them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np

from bigembed.errors import InputError, InputTypeError
from bigembed.rows.reader import listed
from bigembed.rows.source import EXACT
from bigembed.runtime.blocks import Array

# --------------------------------------------------------------------------------------------------------- columns
# Columns of objects as numbers: of data frames, and of arrays of objects.

REMEDY = "Make categories columns of 0 and 1 (OneHotEncoder; in a job the step 'one_hot'), or leave these columns out"
NOTHING = ("NoneType", "NAType", "NaTType")
"""Types of what stands for a missing value."""


def is_frame(X: Any) -> bool:
    """Whether it is a data frame in memory (pandas, polars)."""
    held = hasattr(X, "items") or hasattr(X, "iter_columns")  # (not so of a query of DuckDB)
    return held and all(hasattr(X, name) for name in ("columns", "dtypes", "shape")) and not hasattr(X, "dask")


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


# ------------------------------------------------------------------------------------------------------ categories
# Columns of categories of a table, each text as its place among all texts of its column.

MOST = 10_000
"""Texts of a column of categories."""
Categories = Mapping[str, Sequence[str]]
"""The texts of each such column, sorted."""


def texts_of(path: Any, batches: Iterable[Any], names: Sequence[str]) -> dict[str, tuple[str, ...]]:
    """The different texts of these columns in Arrow batches, sorted; InputError where there are too many."""
    found: dict[str, set[str]] = {name: set() for name in names}
    for batch in batches:
        for name, texts in found.items():
            texts.update(batch.column(name).cast("string").unique().drop_null().to_pylist())
            if len(texts) > MOST:
                raise InputError(
                    f"{path}: column {name} has more than {MOST:,} different texts, too many for categories. Leave it "
                    "out, or say that it names the rows (ids)"
                )
    return {name: tuple(sorted(texts)) for name, texts in found.items()}


def codes_of(column: Any, texts: Sequence[str]) -> Array:
    """The place of each entry of an Arrow column among the texts; −1 for one that is not there, NaN for none."""
    place = {text: number for number, text in enumerate(texts)}
    encoded = column.cast("string").dictionary_encode()
    codes = np.array([*(place.get(text, -1) for text in encoded.dictionary.to_pylist()), np.nan])
    return np.asarray(codes[encoded.indices.fill_null(-1).to_numpy(zero_copy_only=False)])


def wanted_categories(chosen: Sequence[tuple[str, Sequence[str]]], columns: Sequence[str]) -> Categories:
    """Of the columns of categories that were chosen those that are read, with their texts as far as they are known."""
    return {name: texts for name, texts in chosen if name in columns}


# --------------------------------------------------------------------------------------------------------- missing
# What is missing in a table: all of it, counted when the first of it is met.

FIRST = 5
"""Rows that are named."""


def missing_values(batches: Iterable[tuple[str, int, Any]]) -> InputError:
    """The error that counts the values that are missing in a table.

    ``batches``: all of the table's, each with the file it is from and the number of its first row.
    """
    counts: Counter[str] = Counter()
    files: dict[str, None] = {}
    first: list[int] = []
    wrong = rows = 0
    for file, start, batch in batches:
        rows += batch.num_rows
        absent = np.zeros(batch.num_rows, bool)
        for name, column in zip(batch.schema.names, batch.columns, strict=True):
            if column.null_count:
                counts[name] += column.null_count
                absent |= column.is_null().to_numpy(zero_copy_only=False)
        if absent.any():
            files[file] = None
            wrong += int(absent.sum())
            first += [start + int(row) for row in np.flatnonzero(absent)[: FIRST - len(first)]]
    columns = listed(f"{name} ({count})" for name, count in counts.items())
    named = ", ".join(map(str, first)) + (", …" if wrong > len(first) else "")
    return InputError(
        f"{listed(files)}: values are missing in the columns {columns}: in {wrong} of {rows} rows, which are {named} "
        "(counted from 0). Fill them or leave those rows out (a job does, by the step 'missing'); every row needs all "
        "its numbers"
    )
