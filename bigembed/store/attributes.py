"""Zarr attributes of stored rows: where they come from, the names of their columns, and their seal."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from bigembed.errors import DamagedError
from bigembed.runtime.blocks import Array, bounds, map_blocks
from bigembed.store.arrays import cached, reading, zarr_place
from bigembed.store.chunks import RowChunks, checksummed
from bigembed.store.files import digest_of, read_json, write_json
from bigembed.store.metadata import seal_of, sealed_checksums, with_seal
from bigembed.store.paths import AnyPath, PathLike
from bigembed.store.requests import asking

# ------------------------------------------------------------------------------------------------------ attributes
# Zarr attributes of stored rows: where they come from, and the names of their columns.

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


# --------------------------------------------------------------------------------------------------------- sealing
# Writing the seal of rows that are whole; what a seal is: :mod:`bigembed.store.metadata`.

CHUNKS_A_TASK = 1 << 10


ROWS = ("row", "column")
"""Names of the dimensions of rows; of a vector the first."""


def seal_rows(path: AnyPath, label: str = "seal", dimensions: Sequence[str] = ROWS) -> None:
    """Seal an array that is whole, and name its dimensions. One that is not in chunks of whole rows with a checksum
    each stays as it is.

    Four bytes of each chunk are read; of an object store, all.
    """
    chunks = _chunks(str(path))
    if chunks is not None:
        found = checksums(path, 0, -(-chunks.shape[0] // chunks.rows), label)
        metadata = path / "zarr.json"
        said = {**read_json(metadata), "dimension_names": list(dimensions[: len(chunks.shape)])}
        write_json(metadata, with_seal(said, chunks=found))


def seal_group(path: AnyPath, names: Sequence[str]) -> None:
    """Seal a group whose arrays of these names are sealed."""
    metadata = path / "zarr.json"
    parts = {name: digest_of(seal_of(read_json(path / name / "zarr.json"))) for name in names}
    write_json(metadata, with_seal(read_json(metadata), parts=parts))


def prove_group(path: AnyPath) -> None:
    """:class:`DamagedError` where a sealed group is not of the arrays that it was sealed with."""
    if not (path / "zarr.json").is_file():
        return
    said = read_json(path / "zarr.json")
    sealed_checksums(said, path)
    for name, digest in ((seal_of(said) or {}).get("parts") or {}).items():
        if digest_of(seal_of(read_json(path / name / "zarr.json"))) != digest:
            raise DamagedError(f"{path}: damaged: {name} is not the one that was written. Write the rows again")


def checksums(path: AnyPath, first: int, stop: int, label: str = "seal") -> Array:
    """What stands behind the chunks ``first:stop`` of an array that has such, by parallel tasks."""
    spans = [(first + low, first + high) for low, high in bounds(stop - first, CHUNKS_A_TASK)]
    return np.concatenate([np.empty(0, "<u4"), *map_blocks(checksums_block, spans, label=label, path=str(path))])


def checksums_block(first: int, stop: int, *, path: str) -> Array:
    """Of one task."""
    with reading(path, f"chunks {first}:{stop}"):
        chunks = _chunks(path)
        assert chunks is not None
        return chunks.checksums(first, stop)


def _chunks(path: str) -> RowChunks | None:
    with asking(path):
        return checksummed(cached(path), path)
