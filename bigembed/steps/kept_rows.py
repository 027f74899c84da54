"""The rows of the input that a step has left: as a source, by their numbers, as an array."""

from __future__ import annotations

import re
from dataclasses import replace
from typing import Any

import numpy as np

from bigembed.blocks.rows import Array
from bigembed.embedding.linear.missing_values import STAGE
from bigembed.runs import PartOfRun, Run
from bigembed.store.arrays.io import read_array
from bigembed.store.rows.kept import KeptRows, RowNumbers
from bigembed.store.rows.reader import entries_of
from bigembed.store.rows.source import RowSource
from bigembed.store.storage.documents import digest_of

PREFIX = re.compile(r"step\d+-missing-")


def kept_rows(source: RowSource, run: Run) -> KeptRows:
    """The complete rows of a source, by the mask of the stage."""
    found, manifest = run.results(STAGE), run.manifest(STAGE)
    shape = (found["kept"], *source.shape[1:])
    mask, counts = run.path(STAGE, "mask"), tuple(read_array(run.path(STAGE, "kept")).tolist())
    known = {"mask": mask, "counts": counts, "mask_block": found["block"], "stamp": digest_of(manifest.digest)}
    known["entries"] = entries_of(source)
    plain = replace(source, aligned={})
    kept = KeptRows(shape, source.dtype, base=plain, named=source.features, **known)
    return replace(kept, aligned={name: kept.of(other) for name, other in source.aligned.items()})


def kept_of(run: Run) -> KeptRows | None:
    """Which rows of the input a run is of, if a step has left some out."""
    for name in run.published():
        prefix, stage, _ = name.rpartition(STAGE)
        if PREFIX.fullmatch(prefix) and stage and run.results(name)["action"] == "drop":
            return kept_rows(RowNumbers((run.results(name)["n"],), np.dtype(np.int64)), PartOfRun(run, prefix))
    return None


def read_whole(source: RowSource, in_memory: bool) -> Any:
    """All of a source as NumPy, or as a lazy Dask array."""
    if in_memory:
        return source.read(0, source.shape[0])
    import dask.array as da

    return da.from_array(Rows(source), chunks=(source.block, *source.shape[1:]), name=False, asarray=False)


class Rows:
    """A source as an array that Dask can slice."""

    def __init__(self, source: RowSource) -> None:
        self.source, self.shape, self.dtype, self.ndim = source, source.shape, source.dtype, len(source.shape)

    def __getitem__(self, index: Any) -> Array:
        rows, *rest = index if isinstance(index, tuple) else (index,)
        start, stop, step = rows.indices(self.shape[0])
        return np.asarray(self.source.read(start, stop)[(slice(None, None, step), *rest)])
