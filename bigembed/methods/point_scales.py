"""Coordinates of rows that each have a scale ε_i of their own: the map reads it beside the row."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Any

import numpy as np

from bigembed.blocks.rows import Array
from bigembed.errors import InputError
from bigembed.kernels.linearized_sums import EPSILONS
from bigembed.methods.extension import check_names, check_width, scratch_of
from bigembed.methods.linearized_solve import StoredMap, map_rows, stored_map
from bigembed.methods.rowwise import output_cost
from bigembed.stages import Context, Stage
from bigembed.store.arrays import RowSource, open_array
from bigembed.store.input import column_source, row_source
from bigembed.store.passes import RowBlock, write_mapped


def scaled_output_stage(estimator: Any, source: RowSource, after: str, width: int) -> Stage:
    """``coordinates/embedding`` (n, m) of the rows fitted, in one pass."""

    def run(context: Context) -> dict[str, Any]:
        stored = stored_map(context.home, estimator.outside)
        write_mapped(source, scaled_block, context.path("embedding"), width, source.work, stored=stored)
        return {"n_components": width}

    return Stage("coordinates", (after,), {"outside": estimator.outside}, run, output_cost(source, width, source.work))


def transform_scaled(estimator: Any, X: Any, epsilons: Any) -> Any:
    """Coordinates of new rows with their scales: NumPy for arrays in memory, a Dask array of what was written else."""
    check_names(estimator, X)
    scratch = scratch_of(estimator)
    source, in_memory = row_source(X, scratch, "query")
    check_width(source, estimator._extension(estimator._run), estimator)
    if np.ndim(epsilons) == 0 and not isinstance(epsilons, (str, Path)):
        epsilons = np.full(source.shape[0], epsilons)
    beside = column_source(epsilons, source.shape[0], scratch, EPSILONS)
    source = RowSource(source.shape, source.dtype, source.path, source.array, {EPSILONS: beside})
    out = Path(tempfile.mkdtemp(prefix="transform-", dir=estimator._run.root)) / "coordinates"
    stored = stored_map(estimator._run, estimator.outside)
    write_mapped(source, scaled_block, str(out), estimator.n_components_, source.work, first=True, stored=stored)
    return np.asarray(open_array(out)) if in_memory else open_array(out)


def scaled_block(block: RowBlock, *, stored: StoredMap) -> Array:
    """Coordinates of one block of rows and their scales."""
    epsilons = np.asarray(block.beside[EPSILONS], np.float64)
    if not (np.isfinite(epsilons).all() and (epsilons > 0).all()):
        raise InputError(f"epsilons must be positive and finite numbers; rows {block.start}:{block.stop} have others")
    return map_rows(block.rows, stored, epsilons)
