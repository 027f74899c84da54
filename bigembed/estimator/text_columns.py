"""Data frames in memory with columns of text that a step encodes: as numbers, with the texts that they stand for."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from bigembed.blocks.rows import Array
from bigembed.errors import InputError
from bigembed.store.formats.categories import MOST, Categories
from bigembed.store.rows.columns import absent, columns_of, is_frame, numbers_of
from bigembed.store.rows.reader import listed
from bigembed.store.rows.source import RowSource, as_worked


@dataclass(frozen=True)
class CodedRows(RowSource):
    """Rows with columns of categories whose texts something else than a table on disk says."""

    texts: Mapping[str, Sequence[str]] = field(default_factory=dict)

    @property
    def categories(self) -> Categories:
        return self.texts


def coded(X: Any, estimators: Sequence[Any], known: Categories | None = None) -> tuple[Any, Categories]:
    """The numbers of a data frame, and the texts of its columns of categories; anything else as it is, without texts.

    Columns of text must be among those that a one-hot step of ``estimators`` encodes. ``known``: the texts that were
    fitted; others get the number −1.
    """
    if not is_frame(X) or not any(hasattr(one, "texts") for one in estimators):
        return X, {}
    columns = dict(columns_of(X))
    text = [name for name, values in columns.items() if _is_text(values)]
    if not text or len(columns) < X.shape[1]:
        return X, {}
    if strange := [name for name in text if name not in _encoded(estimators, list(columns))]:
        raise InputError(
            f"the columns {listed(map(str, strange))} hold text, and numbers are needed. Encode them, too "
            "(OneHotEncoder, by their names), or leave them out"
        )
    texts = {str(name): (known or {}).get(str(name)) or _texts(name, columns[name]) for name in text}
    numbers = {name: _codes(values, texts[name]) if name in texts else values for name, values in columns.items()}
    if odd := [(name, values) for name, values in numbers.items() if values.dtype.kind not in "biuf"]:
        numbers |= zip(dict(odd), numbers_of(odd).T, strict=True)
    dtype = np.result_type(np.float32, *(values.dtype for values in numbers.values()))
    return np.column_stack([as_worked(values, dtype, what=f"column {name}") for name, values in numbers.items()]), texts


def with_texts(source: RowSource, texts: Categories) -> RowSource:
    """Rows that :func:`coded` made numbers of, with their texts."""
    if not texts:
        return source
    return CodedRows(source.shape, source.dtype, path=source.path, array=source.array, texts=texts)


def known_texts(estimators: Sequence[Any]) -> Categories:
    """The texts that fitted one-hot steps know, by the names of their columns."""
    return {name: one for step in estimators if hasattr(step, "texts") for name, one in step.texts().items()}


def _encoded(estimators: Sequence[Any], names: Sequence[Any]) -> set[Any]:
    """The columns that the one-hot steps encode; by their numbers where nothing goes before."""
    found: set[Any] = set()
    for number, step in enumerate(estimators):
        if hasattr(step, "texts"):
            asked = range(len(names)) if step.columns is None else step.columns
            found |= {names[one] if not isinstance(one, str) and not number else one for one in asked}
    return found


def _is_text(values: Array) -> bool:
    if values.dtype.kind in "UT":
        return True
    return values.dtype == object and any(isinstance(value, str) for value in values)


def _texts(name: Any, values: Array) -> tuple[str, ...]:
    """The different texts of a column, sorted."""
    found = sorted({str(value) for value in values[~absent(values)]})
    if len(found) > MOST:
        raise InputError(f"column {name} has more than {MOST:,} different texts, too many for categories. Leave it out")
    return tuple(found)


def _codes(values: Array, texts: Sequence[str]) -> Array:
    """The place of each entry among the texts; −1 for one that is not there, NaN for none."""
    place = {text: number for number, text in enumerate(texts)}
    missing = absent(values)
    found = (np.nan if gone else place.get(str(value), -1) for value, gone in zip(values, missing, strict=True))
    return np.fromiter(found, np.float32, len(values))
