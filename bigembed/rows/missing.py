"""Values that are missing in tables and data frames: all of them, counted when the first of them is met."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np

from bigembed.errors import InputError
from bigembed.rows.arrow import is_list
from bigembed.rows.reader import listed
from bigembed.runtime.blocks import Array

FIRST = 5
"""Rows that are named."""
ADVICE = (
    "Fill them or leave those rows out (a job does, by the step 'missing'; for it bigembed ingest and append let them "
    "in as NaN with --allow-missing); every row needs all its numbers"
)
"""What to do about values that are missing in rows."""
ADVICE_FRAME = (
    "Fill them, leave those rows out, or let them in as NaN (missing=True): the step 'missing' of a job is for it"
)
BESIDE = (
    "Ids, labels and weights cannot be missing, and no step of a job leaves out rows for them: fill them in the file, "
    "leave those rows out of it, or choose another column"
)
"""What to do about those of a column beside the rows."""


def any_missing(column: Any) -> bool:
    """Whether an entry of an Arrow column is missing, or a number in one of its lists."""
    return bool(column.null_count or (is_list(column.type) and column.flatten().null_count))


def _rows_without(column: Any) -> Array:
    """Which entries of an Arrow column are missing, or are lists in which a number is."""
    found = np.array(column.is_null().to_numpy(zero_copy_only=False))
    for row in np.flatnonzero(~found).tolist() if is_list(column.type) else ():
        found[row] = column[row].values.null_count > 0
    return found


def missing_values(batches: Iterable[tuple[str, int, Any]], beside: bool = False) -> InputError:
    """The error that counts the values that are missing in a table.

    ``batches``: all of the table's, each with the file it is from and the number of its first row. ``beside``: whether
    they are of a column beside the rows.
    """
    counts: Counter[str] = Counter()
    files: dict[str, None] = {}
    first: list[int] = []
    wrong = rows = 0
    for file, start, batch in batches:
        rows += batch.num_rows
        absent = np.zeros(batch.num_rows, bool)
        for name, column in zip(batch.schema.names, batch.columns, strict=True):
            if any_missing(column):
                without = _rows_without(column)
                counts[name] += int(without.sum())
                absent |= without
        if absent.any():
            files[file] = None
            wrong += int(absent.sum())
            first += [start + int(row) for row in np.flatnonzero(absent)[: FIRST - len(first)]]
    if beside:
        return _missing_in(f"{listed(files)}: ", counts, wrong, rows, first, BESIDE)
    return _missing_in(f"{listed(files)}: ", counts, wrong, rows, first, ADVICE)


def refuse_missing(rows: Array, columns: Sequence[Any]) -> None:
    """InputError that counts the values that are missing in rows of a data frame."""
    absent = np.isnan(rows) if rows.dtype.kind == "f" else np.zeros(rows.shape, bool)
    counts = {name: int(count) for name, count in zip(columns, absent.sum(axis=0), strict=True) if count}
    if counts:
        found = np.flatnonzero(absent.any(axis=1))
        raise _missing_in("", counts, len(found), len(rows), found[:FIRST].tolist(), ADVICE_FRAME)


def _missing_in(
    where: str, counts: Mapping[Any, int], wrong: int, rows: int, first: Sequence[int], advice: str
) -> InputError:
    """The error that says how many values are missing, and where."""
    columns = listed(f"{name} ({count})" for name, count in counts.items())
    named = ", ".join(map(str, first)) + (", …" if wrong > len(first) else "")
    return InputError(
        f"{where}values are missing in the columns {columns}: in {wrong} of {rows} rows, which are {named} "
        f"(counted from 0). {advice}"
    )
