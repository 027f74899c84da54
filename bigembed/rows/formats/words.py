"""Words of a text file that stand for missing values (NA, null, NaN), and may be categories: NA is Namibia.

In columns of numbers they are missing values. In columns of categories they are text, as in Parquet, and an empty field
is missing; but a word that is not among the texts that a model knows is missing there, too: it may have been fitted to
files in which no such word was a category.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterable, Mapping
from typing import Any

from bigembed.errors import FeatureNamesWarning, needed
from bigembed.rows.categories import Categories


def missing_words() -> set[str]:
    """The words that stand for a missing number."""
    return {*_pyarrow("csv").ConvertOptions().null_values} - {""}


def with_missing(batch: Any, categories: Categories) -> Any:
    """A batch in whose columns of categories, read as text, fields are missing that are none of the texts."""
    compute, arrow = _pyarrow("compute"), _pyarrow()
    for number, name in enumerate(batch.schema.names):
        if name in categories:
            known, column = categories[name], batch.column(name)
            gone = ["", *(sorted(missing_words().difference(known)) if known else ())]
            for word in gone:  # (one by one: an array of them would load pandas)
                column = compute.if_else(compute.equal(column, word), arrow.scalar(None, column.type), column)
            batch = batch.set_column(number, name, column)
    return batch


def in_columns(batch: Any, names: Iterable[str]) -> dict[tuple[str, str], int]:
    """How many rows of a batch hold such a word as text, by column and word."""
    compute, words = _pyarrow("compute"), sorted(missing_words())
    counts = {
        (name, word): compute.sum(compute.equal(batch.column(name), word)).as_py() for name in names for word in words
    }
    return {place: count for place, count in counts.items() if count}


def say(path: Any, held: Mapping[tuple[str, str], int], known: Categories) -> None:
    """A FeatureNamesWarning for each word in a column of categories: what it is read as, and what to do."""
    for (name, word), count in sorted(held.items()):
        rows = f"{count:,} {'row holds' if count == 1 else 'rows hold'} {word!r}"
        if known[name] and word not in known[name]:
            said = (
                "a missing value, since no fitted row held it. If it is a category, fit again with such rows; if it is "
                "none, write an empty field"
            )
        else:
            said = (
                "a category, as in Parquet: in columns of text only an empty field is missing. If it stands for a "
                "missing value, write an empty field (in R na = '')"
            )
        warnings.warn(f"{path}: column {name}: {rows}, which is read as {said}", FeatureNamesWarning, stacklevel=2)


def _pyarrow(module: str = "") -> Any:
    return needed(f"pyarrow.{module}".rstrip("."), "csv", "reading CSV")
