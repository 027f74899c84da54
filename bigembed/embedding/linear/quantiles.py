"""The stage that finds quantiles of the columns, exactly, in a few passes of counts."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from bigembed.blocks.quantiles import between, count_block, levels_of, next_bits, numbers_of, ranks_of
from bigembed.blocks.rows import Array
from bigembed.embedding.costs import summing_cost
from bigembed.errors import InputError
from bigembed.stages import Context, Stage
from bigembed.store.arrays.io import write_array
from bigembed.store.rows.offenders import checked_shape
from bigembed.store.rows.passes import Parts, reduce_rows
from bigembed.store.rows.row_blocks import RowBlock
from bigembed.store.rows.source import RowSource


def quantiles_stage(source: RowSource, shares: Sequence[float], missing: bool = False) -> Stage:
    """``quantiles/values`` (d, q) at these shares, and ``quantiles/counts`` (d,) of the numbers. Results: n, d, dtype.

    ``missing``: whether NaN is left out; it is refused otherwise.
    """
    n, d = checked_shape(source)
    wanted = np.array(shares, np.float64)
    levels = levels_of(source.work, d, 2 * len(wanted))
    size = 8 * d * 2 * len(wanted) << max(levels)

    def run(context: Context) -> dict[str, Any]:
        kind = np.dtype(f"u{source.work.itemsize}")
        known, ranks = np.zeros((d, 1), kind), np.zeros((d, 1), np.int64)
        counts, weights, done = np.zeros(d, np.int64), np.zeros(0), 0
        for level, bits in enumerate(levels):
            found = reduce_rows(
                source,
                counts_of_block,
                context.exchange,
                partial_bytes=size,
                first=not level and not missing,
                label=f"quantiles {level}",
                known=known,
                done=done,
                bits=bits,
            )["counts"]
            if not level:
                counts = found[:, 0].sum(axis=-1)
                refuse_empty(counts)
                ranks, weights = ranks_of(counts, wanted)
                known, found = np.repeat(known, ranks.shape[1], axis=1), np.repeat(found, ranks.shape[1], axis=1)
            known, ranks = next_bits(found, known, ranks, bits)
            done += bits
        write_array(context.path("values"), between(numbers_of(known, source.work), weights))
        write_array(context.path("counts"), counts)
        return {"n": n, "d": d, "dtype": str(source.work), "passes": len(levels)}

    parameters = {"source": source.fingerprint(), "shares": wanted.tolist(), "missing": missing}
    cost = summing_cost(
        source, size, passes=len(levels), disk=8 * d * (len(wanted) + 1), scalar_ops=n * d * len(levels)
    )
    return Stage("quantiles", (), parameters, run, cost)


def counts_of_block(block: RowBlock, *, known: Array, done: int, bits: int) -> Parts:
    """Counts of one canonical block."""
    return {"counts": count_block(block.rows, known, done, bits)}


def refuse_empty(counts: Array) -> None:
    """InputError where a column has no number at all."""
    if len(empty := np.flatnonzero(counts == 0)):
        raise InputError(
            f"{len(empty)} columns hold no number at all, the first are columns {empty[:10].tolist()} (counted from "
            "0). Leave them out (the step 'columns', or columns of [input])"
        )
