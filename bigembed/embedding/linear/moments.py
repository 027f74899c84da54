"""The stage that takes the mean and the scatter of all rows: one pass, in which the rows are checked."""

from __future__ import annotations

from typing import Any

import numpy as np

from bigembed.blocks.moments import merge_moments, moments_block
from bigembed.embedding.costs import summing_cost
from bigembed.errors import InputError
from bigembed.stages import Context, Stage
from bigembed.store.arrays.io import write_array
from bigembed.store.rows.offenders import checked_shape
from bigembed.store.rows.passes import Parts, reduce_rows
from bigembed.store.rows.row_blocks import RowBlock
from bigembed.store.rows.source import RowSource


def moments_stage(source: RowSource, diagonal: bool = False, before: dict[str, Any] | None = None) -> Stage:
    """``moments/mean`` (d,) and ``moments/scatter`` (d, d), or its diagonal (d,). Results: n, d, dtype, weight, count.

    ``weight`` is W = Σ w_i (n without weights), ``count`` the number of rows of positive weight. ``before``: moments of
    other rows, to which these are added.
    """
    n, d = checked_shape(source)
    size = 8 * d * (1 if diagonal else d)

    def run(context: Context) -> dict[str, Any]:
        found = reduce_rows(
            source,
            moments_of_block,
            context.exchange,
            combine=merge_moments,
            partial_bytes=size,
            first=True,
            propagates=True,
            label="moments",
            diagonal=diagonal,
        )
        known = 0
        if before is not None:
            known = before["n"]
            found = merge_moments({name: np.array(before[name]) for name in found}, found)
        if not found["count"]:
            raise InputError("weights must contain at least one that is not zero: all are zero")
        if not np.isfinite(found["scatter"]).all():
            raise InputError("the squares of the rows overflow float64: scale the columns down")
        write_array(context.path("mean"), found["mean"])
        write_array(context.path("scatter"), found["scatter"])
        return {
            "n": known + n,
            "d": d,
            "dtype": str(source.work),
            "weight": float(found["weight"]),
            "count": int(found["count"]),
        }

    cost = summing_cost(source, size, disk=size + 8 * d, flops=2 * n * size / 8)
    parameters = {"source": source.fingerprint(), "diagonal": diagonal}
    if before is not None:
        parameters["before"] = before["digest"]
    return Stage("moments", (), parameters, run, cost, resumes=True)


def moments_of_block(block: RowBlock, *, diagonal: bool) -> Parts:
    """Moments of one canonical block."""
    with np.errstate(invalid="ignore", over="ignore"):
        return moments_block(block.rows, block.weights, diagonal=diagonal)
