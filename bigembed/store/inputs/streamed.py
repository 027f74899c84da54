"""Rows that are computed when a task reads them: Dask arrays of any kind, and datasets of open HDF5 files."""

from __future__ import annotations

import os
from dataclasses import dataclass, replace
from hashlib import sha256
from itertools import accumulate
from typing import Any

import numpy as np

from bigembed.blocks.rows import Array, remote
from bigembed.store.formats.copying import write_dask
from bigembed.store.formats.hdf5 import opened
from bigembed.store.formats.hdf5_storage import require_held
from bigembed.store.rows.masked import unmasked
from bigembed.store.rows.reader import two_dimensional
from bigembed.store.rows.source import RowSource, work_dtype
from bigembed.store.storage.paths import AnyPath


@dataclass(frozen=True)
class StreamedRows(RowSource):
    """Rows of a Dask array: a task computes the chunks that it needs, and keeps none."""

    lazy: Any = None

    def read(self, start: int, stop: int) -> Array:
        return self.window((start, stop), (0, self.width))

    def window(self, rows: tuple[int, int], columns: tuple[int, int]) -> Array:
        first, last = rows[0] + self.offset, rows[1] + self.offset
        part = self.lazy[first:last] if columns == (0, self.width) else self.lazy[first:last, slice(*columns)]
        return np.asarray(unmasked(part.compute(scheduler="synchronous"), rows[0]))

    def part(self, start: int, stop: int) -> RowSource:
        """With the graph of these rows only, where it goes to another process."""
        if not remote():
            return self
        import dask

        (lazy,) = dask.optimize(self.lazy[start + self.offset : stop + self.offset])
        return replace(self, lazy=lazy, offset=-start)

    @property
    def grain(self) -> int:
        return int(max(self.lazy.chunks[0], default=1))

    @property
    def chunks(self) -> tuple[int, int]:
        return self.grain, int(max(self.lazy.chunks[1], default=1))

    def boundary(self, row: int) -> int:
        ends = list(accumulate(self.lazy.chunks[0], initial=-self.offset))
        return next((end for end in ends if end >= row), self.shape[0])

    def fingerprint(self) -> str:
        """Of the name that Dask gives the array: a digest of how it is computed."""
        aligned = "".join(f" {name} {other.fingerprint()}" for name, other in sorted(self.aligned.items()))
        return sha256(f"{self.shape} {self.dtype} {self.lazy.name}{aligned}".encode()).hexdigest()

    def settled(self, scratch: AnyPath) -> RowSource:
        """The rows written to a temporary array, for what reads them many times."""
        path = scratch / f"input-{self.lazy.name}.zarr"
        write_dask(self.lazy, path)
        return RowSource(self.shape, self.dtype, path=str(path), aligned=self.aligned)


@dataclass(frozen=True)
class HDF5Rows(RowSource):
    """Rows of a dataset of an HDF5 file: by the open file in this process, by its path in others."""

    dataset: str = ""
    stored: tuple[int, int] = (1, 1)
    """Rows and columns of a stored chunk."""
    held: Any = None

    def read(self, start: int, stop: int) -> Array:
        return self.window((start, stop), (0, self.width))

    def window(self, rows: tuple[int, int], columns: tuple[int, int]) -> Array:
        if self.held:  # (False where the file was closed since)
            return np.asarray(self.held[slice(*rows), slice(*columns)])
        with opened(str(self.path)) as file:
            return np.asarray(file[self.dataset][slice(*rows), slice(*columns)])

    @property
    def chunks(self) -> tuple[int, int]:
        return self.stored

    @property
    def grain(self) -> int:
        return self.stored[0]

    def fingerprint(self) -> str:
        return sha256(f"{super().fingerprint()} {self.dataset}".encode()).hexdigest()

    def __getstate__(self) -> dict[str, Any]:
        return self.__dict__ | {"held": None}


def hdf5_source(dataset: Any) -> RowSource:
    """The rows of an open h5py dataset."""
    two_dimensional(f"{dataset.file.filename}: {dataset.name}", dataset.shape)
    work_dtype(dataset.dtype)
    dataset.file.flush()
    require_held(dataset.file.filename, dataset.name, dataset)
    path, (rows, columns) = os.path.abspath(dataset.file.filename), dataset.chunks or (1, 1)
    shape, stored = tuple(map(int, dataset.shape)), (int(rows), int(columns))
    return HDF5Rows(shape, np.dtype(dataset.dtype), path=path, dataset=dataset.name, stored=stored, held=dataset)


def is_persisted(X: Any) -> bool:
    """Whether chunks of a Dask array lie on a cluster already."""
    values = (getattr(node, "value", node) for node in dict(X.__dask_graph__()).values())
    return any(type(value).__module__.startswith("distributed.") for value in values)
