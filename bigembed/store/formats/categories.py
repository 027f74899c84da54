"""Columns of categories of a table, each text as its place among all texts of its column."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np

from bigembed.blocks.rows import Array
from bigembed.errors import InputError

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
