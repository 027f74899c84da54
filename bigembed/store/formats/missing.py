"""What is missing in a table: all of it, counted when the first of it is met."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from typing import Any

import numpy as np

from bigembed.errors import InputError
from bigembed.store.rows.reader import listed

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
