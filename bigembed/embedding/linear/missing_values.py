"""The stage that finds missing values: which rows are complete, and what fills the others column by column."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from bigembed.blocks.elementwise import with_entries
from bigembed.blocks.rows import Array, is_sparse
from bigembed.blocks.vector_space import tree_fold
from bigembed.embedding.costs import summing_cost
from bigembed.embedding.extension import complete
from bigembed.embedding.linear.quantiles import refuse_empty
from bigembed.errors import InputError
from bigembed.stages import Context, Stage
from bigembed.store.arrays.io import create_rows, read_array, write_array, write_rows
from bigembed.store.rows.offenders import checked_shape, infinite, not_finite, refuse
from bigembed.store.rows.passes import map_row_blocks
from bigembed.store.rows.row_blocks import RowBlock
from bigembed.store.rows.source import RowSource

STAGE = "rows"
FIRST = 10
"""Rows that are named."""


def missing_stage(source: RowSource, action: str, fill: Any) -> Stage:
    """``rows/values`` (d,) what fills, ``rows/counts`` (d,) missing values by column; of "drop" also the mask of
    complete rows (n,) and how many are in each block. Results: n, d, dtype, rows with missing values, the first."""
    n, d = checked_shape(source)

    def run(context: Context) -> dict[str, Any]:
        mask = context.path("mask") if action == "drop" else ""
        if mask:
            create_rows(mask, (n,), np.uint8, source.block, overwrite=True)
        found = map_row_blocks(source, missing_of_block, label="missing", mask=mask)
        refuse([part["wrong"] for part in found], source)
        kept, first = np.array([part["kept"] for part in found]), [row for part in found for row in part["first"]]
        rows = n - int(kept.sum())
        counts, means = tree_fold([(part["counts"], part["mean"]) for part in found], merged)
        if action == "drop":
            refuse_none(rows, n, n - counts)
            values = np.full(d, np.nan)
            write_array(context.path("kept"), kept)
        else:
            values = _values(context, fill, counts, means)
        write_array(context.path("values"), values)
        write_array(context.path("counts"), n - counts)
        done = {
            "n": n,
            "d": d,
            "dtype": str(source.work),
            "action": action,
            "fill": "" if action == "drop" else fill,
            "rows": rows,
            "first": first[:FIRST],
            "kept": n - rows if action == "drop" else n,
            "block": source.block,
            "columns": _by_column(n - counts, source.features),
        }
        context.note(sentence(done))
        return done

    parameters = {"source": source.fingerprint(), "action": action, "fill": fill}
    return Stage(STAGE, (), parameters, run, summing_cost(source, 0, disk=16 * d + n, coordinator=64 * d))


def missing_of_block(block: RowBlock, *, mask: str) -> dict[str, Any]:
    """Of one canonical block: complete rows (written into the mask), values and mean by column, what is infinite."""
    there = complete(block.rows)
    if mask:
        write_rows(mask, block.start, there.astype(np.uint8))
    wrong = infinite(block.rows, block.start)
    absent, sums = _columns_of(block.rows)
    counts = len(there) - absent
    return {
        "kept": int(there.sum()),
        "first": (np.flatnonzero(~there)[:FIRST] + block.start).tolist(),
        "wrong": {**wrong, "nan": 0} if wrong.get("infinite") else {},
        "counts": counts,
        "mean": sums / np.maximum(counts, 1),
    }


def _columns_of(rows: Any) -> tuple[Array, Array]:
    """How many values of each column are missing, and the sum of the others; what is not stored of CSR rows is 0."""
    if is_sparse(rows):
        absent, d = np.isnan(rows.data), rows.shape[1]
        return (
            np.bincount(rows.indices[absent], minlength=d),
            np.bincount(rows.indices[~absent], rows.data[~absent], minlength=d),
        )
    absent = np.isnan(rows)
    with np.errstate(invalid="ignore"):
        return absent.sum(axis=0), np.where(absent, 0, rows).sum(axis=0, dtype=np.float64)


def merged(left: tuple[Array, Array], right: tuple[Array, Array]) -> tuple[Array, Array]:
    """Counts and means of two sets together."""
    counts = left[0] + right[0]
    return counts, left[1] + right[0] / np.maximum(counts, 1) * (right[1] - left[1])


def _values(context: Context, fill: Any, counts: Array, means: Array) -> Array:
    """What fills each column."""
    if fill in ("mean", "median"):
        refuse_empty(counts)
    if fill == "median":
        return read_array(context.of("quantiles", "values"))[:, 0]
    return means if fill == "mean" else np.full(len(means), float(fill))


def refuse_none(rows: int, n: int, missing: Array) -> None:
    """InputError where no row is complete."""
    if rows == n:
        worst = int(missing.argmax())
        raise InputError(
            f"no row is complete: of {n} rows each misses a value, {int(missing[worst])} that of column {worst} "
            "(counted from 0). Fill them (action = 'fill'), or leave columns out"
        )


def sentence(found: Mapping[str, Any]) -> str:
    """What became of rows with missing values, in words."""
    rows, n = found["rows"], found["n"]
    if not rows:
        return f"no value is missing in {n:,} rows"
    done = "were left out" if found["action"] == "drop" else f"were filled with the {found['fill']}"
    if isinstance(found["fill"], float):
        done = f"were filled with {found['fill']:g}"
    columns = ", ".join(f"{name} ({count:,})" for name, count in found["columns"])
    first = ", ".join(map(str, found["first"])) + (", …" if rows > len(found["first"]) else "")
    return f"{rows:,} of {n:,} rows have missing values and {done}: rows {first} (counted from 0); by column: {columns}"


def _by_column(missing: Array, names: Sequence[str]) -> list[list[Any]]:
    """The columns with most missing values, and how many."""
    worst = [int(column) for column in np.argsort(-missing, kind="stable")[:FIRST] if missing[column]]
    return [[names[column] if names else str(column), int(missing[column])] for column in worst]


def as_given(rows: Any, model: Any, start: int = 0) -> Any:
    """Rows as they are; InputError where they are infinite."""
    if (wrong := infinite(rows, start)).get("infinite"):
        found = not_finite([{**wrong, "nan": 0}], f"the rows {start}:{start + rows.shape[0]}")
        raise InputError(f"Input X contains {found}")
    return rows


def filled(rows: Any, model: Array, start: int = 0) -> Any:
    """Rows with NaN as the number of its column; InputError where they are infinite."""
    given, values = as_given(rows, None, start), model.astype(rows.dtype)
    if is_sparse(rows):
        return with_entries(rows, np.where(np.isnan(rows.data), values[rows.indices], rows.data))
    return np.where(np.isnan(rows), values, given)
