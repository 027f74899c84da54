"""Zarr attributes of stored rows: where they come from, and the names of their columns."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from bigembed.store.arrays.io import zarr_place
from bigembed.store.storage.paths import PathLike

ABOUT = "bigembed_source"
COLUMNS = "bigembed_columns"
CATEGORIES = "bigembed_categories"


def attributes_of(path: PathLike) -> dict[str, Any] | None:
    """Attributes of the Zarr array or group at a path; None for other paths."""
    import zarr

    try:
        return dict(zarr.open(zarr_place(path), mode="r").attrs)
    except Exception:  # whatever it is, it is not such
        return None


def source_of(path: PathLike) -> Any:
    """What the attribute :data:`ABOUT` of the rows at a path says of where they are from, or None."""
    return (attributes_of(path) or {}).get(ABOUT)


def named_columns(names: Sequence[str]) -> dict[str, Any]:
    """The attribute :data:`COLUMNS` of rows whose columns have these names."""
    return {COLUMNS: list(names)} if names else {}


def columns_of(path: PathLike) -> tuple[str, ...]:
    """The names of the columns of the rows at a path, where they were copied from something that has such names."""
    return tuple((attributes_of(path) or {}).get(COLUMNS, ()))


def categories_at(path: PathLike) -> dict[str, list[str]]:
    """The texts of the columns of categories of the rows at a path, by their names, where they were copied."""
    return dict((attributes_of(path) or {}).get(CATEGORIES, {}))


def describe(path: PathLike, attributes: Mapping[str, Any]) -> None:
    """Set attributes of an array."""
    import zarr

    zarr.open_array(zarr_place(path), mode="r+").attrs.update(dict(attributes))
