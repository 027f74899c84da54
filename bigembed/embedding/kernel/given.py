"""Kernel PCA of a kernel matrix that is given: tiles are read where they lie, and rows are known by their numbers."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from bigembed.blocks.rows import Array, block_rows, bounds
from bigembed.errors import InputError
from bigembed.stages import Context, Cost, Stage
from bigembed.store.arrays.io import create_rows, write_rows
from bigembed.store.rows.source import RowSource


@dataclass(frozen=True)
class GivenKernel:
    """K of a stored (n, n) matrix, as a function of two blocks of row numbers, each ascending by one."""

    source: RowSource
    own: ClassVar[bool] = True  # (so its symmetry is checked)
    text: ClassVar[str] = "precomputed"

    def __call__(self, rows: Any, others: Any) -> Array:
        """Entries of K for all pairs, float64: a copy, for operators work in place."""
        spans = [(int(numbers[0, 0]), int(numbers[-1, 0]) + 1) for numbers in (rows, others)]
        return np.array(self.source.window(spans[0], spans[1]), np.float64)

    def key(self) -> dict[str, Any]:
        """What the values depend on in addition to the rows."""
        return {"kernel": self.text}


def numbers_of(source: RowSource) -> RowSource:
    """The shape of the numbers of the rows, (n, 1)."""
    return RowSource((source.shape[0], 1), np.dtype(np.float64))


def numbers_stage(source: RowSource) -> Stage:
    """``landmarks/rows`` (n, 1): the numbers of the rows of a kernel matrix (n, n)."""
    n, d = source.shape
    if n != d:
        raise InputError(f"kernel='precomputed': a kernel matrix is square (n, n); got shape {source.shape}")

    def run(context: Context) -> dict[str, Any]:
        step = block_rows(1, 8)
        create_rows(context.path("rows"), (n, 1), np.float64, step)
        for start, stop in bounds(n, step):
            write_rows(context.path("rows"), start, np.arange(start, stop, dtype=np.float64)[:, None])
        return {"n": n, "d": n, "dtype": str(source.work), "landmarks": n, "wanted": n}

    parameters = {"source": source.fingerprint(), "selection": "precomputed"}
    return Stage("landmarks", (), parameters, run, Cost(disk=8 * n, write=8 * n))
