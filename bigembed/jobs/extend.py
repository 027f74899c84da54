"""Coordinates of new rows by a saved model, into a new Zarr array."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

from bigembed.blocks.rows import executor
from bigembed.errors import ExistingOutputError, InputError
from bigembed.jobs.cluster import Progress, choose, cluster, no_progress
from bigembed.jobs.plan import nearest_folder
from bigembed.jobs.run import stoppable
from bigembed.jobs.spec import ClusterTable
from bigembed.store.formats import NpyReader, ZarrReader, open_reader


def extend(
    model: Path, new: Path, out: Path, table: ClusterTable | None = None, progress: Progress = no_progress
) -> dict[str, Any]:
    """Write the coordinates (n, m) of the rows at ``new`` to ``out``, block by block. Returns what was done.

    An interrupted one leaves nothing at ``out``; the same command starts it again.
    """
    from bigembed.methods.base import load

    table = table or ClusterTable()
    if out.exists():
        raise ExistingOutputError(f"{out}: exists. Nothing was changed; choose another path or move it away")
    rows = open_reader(new)
    if not isinstance(rows, (NpyReader, ZarrReader)):
        raise InputError(f"{new}: new rows are read from .npy or Zarr; bigembed ingest {new} new.zarr makes one")
    began = time.perf_counter()
    nbytes = rows.shape[0] * rows.shape[1] * rows.dtype.itemsize
    fitted = load(model)
    with stoppable(out), cluster(table, choose(table, rows.shape, nbytes), progress) as place:
        place.prove_access(nearest_folder(out.absolute().parent), str(new.absolute()))
        with executor(place.executor):
            fitted.transform_to(str(new.absolute()), str(out.absolute()))
    return {
        "model": str(model),
        "input": str(new),
        "output": str(out),
        "n": rows.shape[0],
        "n_components": int(fitted.n_components_),
        "seconds": round(time.perf_counter() - began, 3),
    }
