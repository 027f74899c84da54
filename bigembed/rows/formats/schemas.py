"""What the columns of Parquet files hold: the type of each in all files of a folder, lists in them, and the dtype of
the rows."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from bigembed.errors import InputError, needed
from bigembed.rows import arrow, reader
from bigembed.rows import categories as coded
from bigembed.store import AnyPath

LISTS = (
    ". The lists of a column need numbers, and as many in each row: write others as columns, or as an array by "
    "numpy.save(path, numpy.stack(frame[column].to_numpy()))"
)
"""What to do with a column of lists that are no rows."""
Schemas = Sequence[tuple[AnyPath, Any]]
"""The columns of files, as Arrow says them; of consecutive files with the same ones those of the first."""


def library(module: str) -> Any:
    """A module of pyarrow."""
    return needed(f"pyarrow.{module}".rstrip("."), "parquet", "Parquet")


def dtype_of(kind: Any) -> np.dtype[Any] | None:
    """The dtype of a column of numbers, of decimals float64; None for others."""
    types = library("types")
    if types.is_decimal(kind):
        return np.dtype(np.float64)
    numeric = types.is_integer(kind) or types.is_floating(kind) or types.is_boolean(kind)
    return np.dtype(kind.to_pandas_dtype()) if numeric else None


def vector_dtype(kind: str) -> np.dtype[Any]:
    """The dtype of an aligned column: its own where NumPy has that number, else text."""
    try:
        found = np.dtype({"halffloat": "f2", "float": "f4", "double": "f8"}.get(kind, kind))
    except (TypeError, ValueError):  # (of dictionary<values=string, …>: categories)
        return reader.TEXT
    return found if found.kind in "buif" else reader.TEXT


def merged(schemas: Schemas) -> tuple[dict[str, Any], dict[str, str]]:
    """The type of each column in all files; and what is wrong with columns that not all of them have, or whose types
    have none in common."""
    held = [(path, set(schema.names)) for path, schema in schemas]
    found: dict[str, dict[Any, AnyPath]] = {}
    for path, schema in schemas:
        for one in schema:
            found.setdefault(one.name, {}).setdefault(one.type, path)
    kinds, wrong = {}, {}
    for name, types in found.items():
        first = next((kind for kind in types if str(kind) != "null"), next(iter(types)))
        common = _common(types)
        if (lacking := next((path for path, names in held if name not in names), None)) is not None:
            wrong[name] = f"{lacking}: no column {name}"
        elif common is None:
            other = next(kind for kind in types if _common({first, kind}) is None)
            wrong[name] = f"{types[other]}: column {name} is {other}, and {first} in {types[first]}"
        kinds[name] = first if common is None else common
    return kinds, wrong


def _common(types: Iterable[Any]) -> Any:
    """The type that holds the numbers, or the text, of all of these; None if there is none."""
    first, *others = types
    if not others:
        return first
    present = [kind for kind in (first, *others) if str(kind) != "null"]  # (it is of a file in which all are missing)
    numbers = [dtype for kind in present if (dtype := dtype_of(kind)) is not None]
    if len(numbers) == len(present):
        return library("").from_numpy_dtype(np.result_type(*numbers))
    return library("").string() if all(map(is_text, present)) else None


def is_text(kind: Any) -> bool:
    """Whether a type of Arrow is of text, or of categories that are."""
    return str(getattr(kind, "value_type", kind)) in ("string", "large_string") and not arrow.is_list(kind)


def require_same_names(schemas: Schemas) -> None:
    """InputError that says how the names of the columns of a file differ from those of the first."""
    (_, one), *others = schemas
    for path, schema in others:
        missing, extra = set(one.names) - set(schema.names), set(schema.names) - set(one.names)
        if missing or extra:
            sides = {"missing": sorted(missing), "extra": sorted(extra)}
            said = "; ".join(f"{side}: {reader.listed(names)}" for side, names in sides.items() if names)
            raise InputError(
                f"{path}: other columns than in {schemas[0][0]} ({said}). Choose columns that all files have (columns)"
            )


def rows_dtype(
    schemas: Schemas, kinds: Mapping[str, Any], names: Sequence[str], categories: coded.Categories
) -> np.dtype[Any]:
    """The dtype of rows of these columns; InputError for columns that are not numbers, or stand there twice."""
    path = schemas[0][0]
    chosen, there = Counter(names), [Counter(schema.names) for _, schema in schemas]
    if twice := sorted(name for name in chosen if max(chosen[name], *(one[name] for one in there)) > 1):
        raise InputError(f"{path}: the columns {', '.join(twice)} stand there, or were chosen, more than once")
    inner = {name: kinds[name].value_type if arrow.is_list(kinds[name]) else kinds[name] for name in names}
    inner |= {name: library("").float64() for name, kind in inner.items() if str(kind) == "null"}  # (all are missing)
    found = {name: np.dtype(np.int32) if name in categories else dtype_of(kind) for name, kind in inner.items()}
    dtypes = [dtype for dtype in found.values() if dtype is not None]
    if len(dtypes) < len(found):
        wrong = [name for name, dtype in found.items() if dtype is None]
        advice = LISTS if any(arrow.is_list(kinds[name]) for name in wrong) else ""
        advice += f". {reader.TIMES}" if any(library("types").is_temporal(inner[name]) for name in wrong) else ""
        raise InputError(
            f"{path}: columns that are not numbers: {', '.join(f'{name} ({kinds[name]})' for name in wrong)}. Choose "
            "the numeric ones (columns); a column that names the rows is for ids; categories become columns of 0 and 1 "
            f"by the step 'one_hot' of a job{advice}"
        )
    return np.result_type(*dtypes) if dtypes else np.dtype(np.float64)


def expanded(columns: Sequence[str], lists: Mapping[str, int]) -> tuple[str, ...]:
    """The names of the columns of the rows.

    >>> expanded(["year", "vector"], {"vector": 2})
    ('year', 'vector_0', 'vector_1')
    """
    numbered = {name: [f"{name}_{place}" for place in range(width)] for name, width in lists.items()}
    return tuple(one for name in columns for one in numbered.get(name, [name]))


def list_widths(path: AnyPath, kinds: Mapping[str, Any], names: Iterable[str]) -> dict[str, int]:
    """How many numbers the lists of these columns have: as the type says, or the first that is there."""
    pq, found = library("parquet"), {}
    for name in names:
        if hasattr(kinds[name], "list_size"):
            found[name] = kinds[name].list_size
        elif arrow.is_list(kinds[name]):
            with pq.ParquetFile(reader.handle(str(path))) as file:
                first = (batch.column(0).drop_null() for batch in file.iter_batches(64, columns=[name]))
                found[name] = next((len(one[0]) for one in first if len(one)), 1)
    return {name: max(width, 1) for name, width in found.items()}


def of_lists(choice: reader.Choice, path: AnyPath, kinds: Mapping[str, Any]) -> reader.Choice:
    """A choice of columns that a model was fitted with, where the lists of a column are several of them."""
    if not choice.expected or set(choice.expected) <= set(kinds):
        return choice
    lists = list_widths(path, kinds, kinds)
    column_of = {one: name for name in kinds for one in expanded([name], lists)}
    named = tuple(dict.fromkeys(column_of.get(one, one) for one in choice.expected))
    return replace(choice, expected=named) if expanded(named, lists) == choice.expected else choice
