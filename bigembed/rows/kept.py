"""Copies of the rows of this process that tasks of other processes read, found again while they are as they were."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import replace

import numpy as np

from bigembed.rows.source import RowSource
from bigembed.rows.sparse import SparseSource, is_stored, stored
from bigembed.runtime.blocks import BLOCK_BYTES, Array, bounds
from bigembed.store.arrays import write_npy
from bigembed.store.paths import AnyPath


def keep_npy(path: AnyPath, array: Array) -> None:
    """Write an array unless it is there: by a file that stays as it was a later fit knows the rows again."""
    if not is_kept(path, array):
        write_npy(path, array)


def is_kept(path: AnyPath, array: Array) -> bool:
    """Whether a file holds this array, to the last bit."""
    with suppress(OSError, ValueError, EOFError):
        there = np.load(str(path), mmap_mode="r")
        spans = bounds(len(array), max(1, BLOCK_BYTES // max(1, array.nbytes // max(1, len(array)))))
        return (there.shape, there.dtype) == (array.shape, array.dtype) and all(
            there[start:stop].tobytes() == array[start:stop].tobytes() for start, stop in spans
        )
    return False


def kept_rows(source: RowSource, scratch: AnyPath, name: str = "input") -> RowSource:
    """Rows of this process as a fit in other processes has left them in its scratch; else as they are.

    Nothing is written: a plan tells by them whether stages are those of an earlier fit.
    """
    aligned = {label: kept_rows(one, scratch, label) for label, one in source.aligned.items()}
    if any(aligned[label] is not one for label, one in source.aligned.items()):
        source = replace(source, aligned=aligned)
    if isinstance(source, SparseSource):
        path = scratch / f"{name}-csr"
        if source.held is None or not is_stored(source, path):
            return source
        return replace(stored(source, path), aligned=source.aligned, named=source.named)
    path = scratch / f"{name}.npy"
    if source.array is None or source.array.dtype == object or not is_kept(path, source.array):
        return source
    return replace(source, array=None, path=str(path))
