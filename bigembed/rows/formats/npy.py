"""Folders of .npy files, one after another."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

from bigembed.errors import InputError
from bigembed.rows import rows_at
from bigembed.runtime.blocks import Array
from bigembed.store import AnyPath, at, objects, stored


def npy_files(path: AnyPath) -> list[AnyPath]:
    """The .npy files in a folder, in the order of their names; none of anything else."""
    if not path.is_dir() or any((path / mark).is_file() for mark in objects.MARKS):
        return []
    return [path / file.name for file in stored(path) if file.name.endswith(".npy")]


@dataclass(frozen=True)
class NpyFiles:
    """Rows of .npy files, one file after another: the pieces of a trajectory, say."""

    paths: tuple[str, ...]
    ends: tuple[int, ...]
    """One past the last row of each file."""
    shape: tuple[int, ...]
    dtype: np.dtype[Any]
    grain: int = 1

    def stream(self, start: int, stop: int) -> Iterator[Array]:
        """Rows start to stop, of one file after another."""
        first = 0
        for path, end in zip(self.paths, self.ends, strict=True):
            low, high = max(start, first), min(stop, end)
            if low < high:
                for part in rows_at(at(path)).stream(low - first, high - first):
                    yield part.astype(self.dtype, copy=False)
            first = end


def open_npy_files(folder: AnyPath, files: list[AnyPath]) -> NpyFiles:
    """The rows of all files; InputError where they are of different shapes."""
    parts = [rows_at(file) for file in files]
    tail = parts[0].shape[1:]
    for file, part in zip(files, parts, strict=True):
        if part.shape[1:] != tail:
            raise InputError(
                f"{folder}: files of different rows: {files[0].name} has shape {parts[0].shape}, {file.name} "
                f"{part.shape}. All but the first number must be the same"
            )
    dtype = np.result_type(*(part.dtype for part in parts))
    ends = np.cumsum([part.shape[0] for part in parts])
    return NpyFiles(tuple(map(str, files)), tuple(ends.tolist()), (int(ends[-1]), *tail), dtype)
