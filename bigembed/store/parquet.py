"""Numeric columns of Parquet files as rows, by pyarrow, which an extra installs."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from bigembed.blocks.rows import Array, block_rows
from bigembed.errors import InputError


def parquet_files(path: Path) -> list[Path]:
    """The Parquet files that a path names: itself, or those in a folder."""
    if path.is_dir():
        return [] if (path / "zarr.json").exists() else sorted(path.rglob("*.parquet"))
    return [path] if path.suffix in (".parquet", ".pq") else []


@dataclass(frozen=True)
class ParquetReader:
    """Numeric columns of Parquet files, row group by row group. Rows in the order of the files' names."""

    paths: tuple[str, ...]
    columns: tuple[str, ...]
    groups: tuple[tuple[int, int, int], ...] = field(repr=False)
    """Of each row group: number of its file, its number there, its first row in all."""
    shape: tuple[int, int]
    dtype: np.dtype[Any]
    grain: int = 1

    def stream(self, start: int, stop: int) -> Iterator[Array]:
        pq = _pyarrow("parquet")
        ends = [first for _, _, first in self.groups[1:]] + [self.shape[0]]
        batch_rows = block_rows(self.shape[1], self.dtype.itemsize) // 4
        for (file, group, first), end in zip(self.groups, ends, strict=True):
            if end <= start or first >= stop:
                continue
            with pq.ParquetFile(self.paths[file], pre_buffer=False) as parquet:
                for batch in parquet.iter_batches(batch_rows, row_groups=[group], columns=list(self.columns)):
                    low, high = max(start - first, 0), min(stop - first, batch.num_rows)
                    if low < high:
                        yield self._rows(batch.slice(low, high - low), self.paths[file])
                    first += batch.num_rows

    def _rows(self, batch: Any, path: str) -> Array:
        nulls = [name for name in self.columns if batch.column(name).null_count]
        if nulls:
            raise InputError(
                f"{path}: values are missing (null) in the columns {', '.join(nulls)}. Fill them or leave "
                "those rows out; every row needs all its numbers"
            )
        out = np.empty((batch.num_rows, len(self.columns)), self.dtype)
        for position, name in enumerate(self.columns):
            out[:, position] = batch.column(name).to_numpy(zero_copy_only=False)
        return out


def open_parquet(paths: Sequence[Path], columns: Sequence[str] | None = None) -> ParquetReader:
    """The chosen (by default all) columns of Parquet files of one schema, which must be numeric."""
    pq = _pyarrow("parquet")
    schema, groups, total, largest = None, [], 0, 1
    for number, path in enumerate(paths):
        try:
            with pq.ParquetFile(path) as file:
                found, meta = file.schema_arrow.remove_metadata(), file.metadata
        except (ValueError, OSError) as error:
            raise InputError(f"{path}: not readable as Parquet ({error})") from error
        if schema is not None and not found.equals(schema):
            raise InputError(
                f"{path}: its columns are not those of {paths[0]}: {found.names} of {found.types}, "
                f"there {schema.names} of {schema.types}"
            )
        schema = found
        for group in range(meta.num_row_groups):
            groups.append((number, group, total))
            total += meta.row_group(group).num_rows
            largest = max(largest, meta.row_group(group).num_rows)
    names = list(columns or schema.names)  # type: ignore[union-attr]
    dtype = _parquet_dtype(paths[0], schema, names)
    shape = (total, len(names))
    return ParquetReader(tuple(map(str, paths)), tuple(names), tuple(groups), shape, dtype, 4 * largest)


def _parquet_dtype(path: Path, schema: Any, names: Sequence[str]) -> np.dtype[Any]:
    types = _pyarrow("types")
    unknown = [name for name in names if name not in schema.names]
    if unknown:
        raise InputError(f"{path}: no columns {', '.join(unknown)}; there are {', '.join(schema.names)}")
    kinds = {name: schema.field(name).type for name in names}
    wrong = [
        f"{name} ({kind})"
        for name, kind in kinds.items()
        if not (types.is_integer(kind) or types.is_floating(kind) or types.is_boolean(kind))
    ]
    if wrong:
        raise InputError(
            f"{path}: columns that are not numbers: {', '.join(wrong)}. Choose the numeric ones (--columns)"
        )
    found = [np.dtype(kind.to_pandas_dtype()) for kind in kinds.values()]
    return np.result_type(*found) if found else np.dtype(np.float64)


def _pyarrow(module: str) -> Any:
    from importlib import import_module

    try:
        return import_module(f"pyarrow.{module}")
    except ImportError as error:
        raise InputError(
            "reading Parquet needs pyarrow, which the extra 'parquet' installs: pip install \"bigembed[parquet]\""
        ) from error
