"""Columns of categories of a table, each text as its place among all texts of its column; texts that are not known."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np

from bigembed.errors import InputError
from bigembed.rows import arrow
from bigembed.rows.missing import FIRST
from bigembed.runtime.blocks import Array

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
                    "out; if it names the rows, it is for ids"
                )
    return {name: tuple(sorted(texts)) for name, texts in found.items()}


def codes_of(column: Any, texts: Sequence[str]) -> Array:
    """The place of each entry of an Arrow column among the texts; −1 for one that is not there, NaN for none."""
    place = {text: number for number, text in enumerate(texts)}
    encoded = column.cast("string").dictionary_encode()
    codes = np.array([*(place.get(text, -1) for text in encoded.dictionary.to_pylist()), np.nan])
    return np.asarray(codes[np.nan_to_num(arrow.values_of(encoded.indices), nan=-1).astype(np.intp)])


def refuse_unknown(batch: Any, categories: Categories, strict: Mapping[str, str], start: int, where: str) -> None:
    """InputError where columns of an Arrow batch hold texts that are not known. ``strict``: see ``Choice``."""
    for name in (name for name in categories if name in strict):
        column = batch.column(name)
        refuse_codes(name, column, codes_of(column, categories[name]), strict[name], start, where)


def refuse_codes(name: str, values: Any, codes: Array, instead: str, start: int = 0, where: str = "") -> None:
    """InputError where values of a column have no place among the texts that are known."""
    if len(bad := np.flatnonzero(codes == -1)):
        text = str(values[int(bad[0])])
        raise unknown_category(f"{where}column {name}", bad, start, len(codes), repr(text), instead)


def unknown_category(column: str, rows: Array, start: int, count: int, what: str, instead: str) -> InputError:
    """The error of new rows with a category that the fitted rows did not have: what it is, and what can be done.

    ``rows``: numbers among the ``count`` rows from ``start`` on. ``what``: that of the first of them.
    """
    return InputError(
        f"{column}: {len(rows)} of the rows {start}:{start + count} hold a category that the fitted rows did not have, "
        f"the first are rows {(rows[:FIRST] + start).tolist()}, with {what}. The model was fitted with "
        f"unknown='error': leave these rows out, or fit again, with such rows or with unknown={instead!r}"
    )


def wanted_categories(
    chosen: Sequence[tuple[str, Sequence[str]]], columns: Sequence[str], text: Sequence[str] = ()
) -> Categories:
    """The columns of categories that are read: of those chosen, with their texts as far as they are known, and of text.

    >>> wanted_categories([("kind", ("ash", "oak")), ("town", ())], ["kind", "age", "job"], ["job", "kind"])
    {'job': (), 'kind': ('ash', 'oak')}
    """
    return {name: texts for name, texts in {**dict.fromkeys(text, ()), **dict(chosen)}.items() if name in columns}
