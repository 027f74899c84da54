"""Stages that learn from the columns of all rows: moments, quantiles, and what is missing."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any

import numpy as np
from scipy.sparse import csr_array

from bigembed.errors import InputError
from bigembed.estimator.extension import complete
from bigembed.linalg import moments
from bigembed.rows import RowBlock, RowSource, row_maps
from bigembed.rows.passes import Parts, checked_shape, infinite, map_row_blocks, not_finite, reduce_rows, refuse
from bigembed.runtime.blocks import Array, is_sparse
from bigembed.stages import ArraySpec, Context, Cost, Stage, summing_cost
from bigembed.store.arrays import create_rows, read_array, write_array, write_rows
from bigembed.store.vector_space import tree_fold

# --------------------------------------------------------------------------------------------------------- moments
# The stage that takes the mean and the scatter of all rows: one pass, in which the rows are checked.


def moments_stage(source: RowSource, diagonal: bool = False, earlier: dict[str, Any] | None = None) -> Stage:
    """``moments/mean`` (d,) and ``moments/scatter`` (d, d), or its diagonal (d,). Results: n, d, dtype, weight, count.

    ``weight`` is W = Σ w_i (n without weights), ``count`` the number of rows of positive weight. ``earlier``: moments
    of other rows, to which these are added.
    """
    n, d = checked_shape(source)
    size = 8 * d * (1 if diagonal else d)

    writes = [ArraySpec("mean", d), ArraySpec("scatter", d, None if diagonal else d)]
    cost = summing_cost(source, size) + Cost.of(writes=writes, flops=2 * n * size / 8)
    parameters = {"source": source.fingerprint(), "diagonal": diagonal}
    if earlier is not None:
        parameters["before"] = earlier["digest"]
    run = partial(run_moments, source=source, diagonal=diagonal, earlier=earlier, size=size)
    return Stage("moments", (), parameters, run, cost)


def run_moments(
    context: Context, source: RowSource, diagonal: bool, earlier: dict[str, Any] | None, size: int
) -> dict[str, Any]:
    found = reduce_rows(
        source,
        moments_of_block,
        context.exchange,
        combine=moments.merge_moments,
        partial_bytes=size,
        first=True,
        propagates=True,
        label="moments",
        diagonal=diagonal,
    )
    n, d = source.shape
    if earlier is not None:
        n += earlier["n"]
        found = moments.merge_moments({name: np.array(earlier[name]) for name in found}, found)
    if not found["count"]:
        raise InputError("weights must contain at least one that is not zero: all are zero")
    if not np.isfinite(found["scatter"]).all():
        raise InputError("the squares of the rows overflow float64: scale the columns down")
    write_array(context.path("mean"), found["mean"])
    write_array(context.path("scatter"), found["scatter"])
    sums = {"weight": float(found["weight"]), "count": int(found["count"])}
    return {"n": n, "d": d, "dtype": str(source.work), **sums}


def moments_of_block(block: RowBlock, *, diagonal: bool) -> Parts:
    """Moments of one canonical block."""
    with np.errstate(invalid="ignore", over="ignore"):
        return moments.moments_block(block.rows, block.weights, diagonal=diagonal)


# ------------------------------------------------------------------------------------------------------- quantiles
# The stage that finds quantiles of the columns, exactly, in a few passes of counts.


def quantiles_stage(source: RowSource, shares: Sequence[float], missing: bool = False) -> Stage:
    """``quantiles/values`` (d, q) at these shares, and ``quantiles/counts`` (d,) of the numbers. Results: n, d, dtype.

    ``missing``: whether NaN is left out; it is refused otherwise.
    """
    n, d = checked_shape(source)
    wanted = np.array(shares, np.float64)
    levels = moments.levels_of(source.work, d, 2 * len(wanted))
    size = 8 * d * 2 * len(wanted) << max(levels)

    parameters = {"source": source.fingerprint(), "shares": wanted.tolist(), "missing": missing}
    writes = [ArraySpec("values", d, len(wanted)), ArraySpec("counts", d, dtype="i8")]
    cost = summing_cost(source, size, len(levels)) + Cost.of(writes=writes, scalar_ops=n * d * len(levels))
    run = partial(run_quantiles, source=source, missing=missing, levels=levels, size=size, wanted=wanted)
    return Stage("quantiles", (), parameters, run, cost)


def run_quantiles(
    context: Context, source: RowSource, missing: bool, levels: Sequence[int], size: int, wanted: Array
) -> dict[str, Any]:
    (n, d), kind = source.shape, np.dtype(f"u{source.work.itemsize}")
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
            refuse_empty(counts, source.features)
            ranks, weights = moments.ranks_of(counts, wanted)
            known, found = np.repeat(known, ranks.shape[1], axis=1), np.repeat(found, ranks.shape[1], axis=1)
        known, ranks = moments.next_bits(found, known, ranks, bits)
        done += bits
    write_array(context.path("values"), moments.between(moments.numbers_of(known, source.work), weights))
    write_array(context.path("counts"), counts)
    return {"n": n, "d": d, "dtype": str(source.work), "passes": len(levels)}


def counts_of_block(block: RowBlock, *, known: Array, done: int, bits: int) -> Parts:
    """Counts of one canonical block."""
    return {"counts": moments.count_block(block.rows, known, done, bits)}


def refuse_empty(counts: Array, names: Sequence[str]) -> None:
    """InputError where a column has no number at all."""
    if len(empty := np.flatnonzero(counts == 0)):
        first = ", ".join(_name(column, names) for column in empty[:FIRST].tolist()) + ", …" * (len(empty) > FIRST)
        raise InputError(
            f"{len(empty)} of {len(counts)} columns hold no number at all: {first}. Leave them out: the step "
            "'columns' before this one, with most_missing = 0.5 say; or columns of [input]"
        )


def _name(column: int, names: Sequence[str]) -> str:
    return names[column] if names else f"column {column} (counted from 0)"


# -------------------------------------------------------------------------------------------------- missing values
# The stage that finds missing values: which rows are complete, and what fills the others column by column.

STAGE = "rows"
FIRST = 10
"""Rows that are named."""


def missing_stage(source: RowSource, action: str, fill: Any, zeros: bool = False) -> Stage:
    """``rows/values`` (d,) what fills, ``rows/counts`` (d,) missing values by column; of "drop" also the mask of
    complete rows (n,) and how many are in each block. Results: n, d, dtype, rows with missing values, the first.

    ``zeros``: whether rows of zeros are left out, too. Columns of categories hold numbers of texts: none fills them.
    """
    n, d = checked_shape(source)

    texts = source.categories  # (read from a file, as the names are: once, not for each of many columns)
    named = [number for number, name in enumerate(source.features) if name in texts]
    codes = named if action == "fill" else []
    parameters = {"source": source.fingerprint(), "action": action, "fill": fill, **({"zeros": True} if zeros else {})}
    if codes:
        parameters["codes"] = codes
    writes = [ArraySpec("values", d), ArraySpec("counts", d, dtype="i8")]
    if action == "drop":
        writes += [ArraySpec("mask", n, dtype="u1"), ArraySpec("kept", -(-n // source.block), dtype="i8")]
    cost = summing_cost(source, 0) + Cost.of(writes=writes, coordinator=[ArraySpec("counts and means", d, 8)])
    run = partial(run_missing, source=source, action=action, fill=fill, zeros=zeros, codes=codes)
    return Stage(STAGE, (), parameters, run, cost)


def run_missing(
    context: Context, source: RowSource, action: str, fill: Any, zeros: bool, codes: Sequence[int]
) -> dict[str, Any]:
    (n, d), mask = source.shape, context.path("mask") if action == "drop" else ""
    if mask:
        create_rows(mask, (n,), np.uint8, source.block, overwrite=True)
    found = map_row_blocks(source, missing_of_block, label="missing", mask=mask, zeros=zeros)
    refuse([part["wrong"] for part in found], source)
    kept, first = np.array([part["kept"] for part in found]), [row for part in found for row in part["first"]]
    rows = n - int(kept.sum())
    counts, means = tree_fold([(part["counts"], part["mean"]) for part in found], merged)
    if action == "drop":
        refuse_none(rows, n, n - counts, source.features, zeros)
        values = np.full(d, np.nan)
        write_array(context.path("kept"), kept)
    else:
        refuse_codes(codes, n - counts, source.features)
        values = _values(context, fill, counts, means, source.features)
        values[codes] = np.nan
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
        "columns_missing": int(np.count_nonzero(n - counts)),
        "values": int((n - counts).sum()),
        **({"zeros": sum(part["zeros"] for part in found)} if zeros else {}),
    }
    context.note(sentence(done))
    return done


def missing_of_block(block: RowBlock, *, mask: str, zeros: bool) -> dict[str, Any]:
    """Of one canonical block: complete rows (written into the mask), values and mean by column, what is infinite."""
    there = complete(block.rows)
    empty = row_maps.empty(block.rows) if zeros else np.zeros(len(there), bool)
    there &= ~empty
    if mask:
        write_rows(mask, block.start, there.astype(np.uint8))
    wrong = infinite(block.rows, block.start)
    absent, sums = _columns_of(block.rows)
    counts = len(there) - absent
    return {
        "kept": int(there.sum()),
        "zeros": int(empty.sum()),
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


def _values(context: Context, fill: Any, counts: Array, means: Array, names: Sequence[str]) -> Array:
    """What fills each column."""
    if fill in ("mean", "median"):
        refuse_empty(counts, names)
    if fill == "median":
        return read_array(context.of("quantiles", "values"))[:, 0]
    return means if fill == "mean" else np.full(len(means), float(fill))


def refuse_codes(codes: Sequence[int], missing: Array, names: Sequence[str]) -> None:
    """InputError where values of a column of categories are missing: the number of a text is no number to fill."""
    if wrong := [column for column in codes if missing[column]]:
        first = ", ".join(f"{names[column]} ({int(missing[column]):,})" for column in wrong[:FIRST])
        raise InputError(
            f"the columns {first} hold categories, of which values are missing, and a mean, a median or a number says "
            "none of them. Put the step 'one_hot' before this one (a missing category becomes the fill of its columns, "
            "0 with 'with = 0'), take 'mixed', which knows missing categories, or leave such rows out (action = 'drop')"
        )


def refuse_none(rows: int, n: int, missing: Array, names: Sequence[str], zeros: bool = False) -> None:
    """InputError where no row is complete, or all others are of ``zeros`` that are left out."""
    if rows == n and zeros:
        raise InputError(f"no row is left: each of {n:,} rows misses a value or holds zeros only")
    if rows == n:
        worst = int(missing.argmax())
        raise InputError(
            f"no row is complete: of {n:,} rows each misses a value, {int(missing[worst]):,} that of "
            f"{_name(worst, names)}. Fill them (action = 'fill'), or leave out columns in which many are missing (the "
            "step 'columns' before this one, most_missing = 0.5 say)"
        )


def sentence(found: Mapping[str, Any]) -> str:
    """What became of rows with missing values, in words."""
    rows, n, zeros = found["rows"], found["n"], found.get("zeros")
    if not rows:
        return f"no value is missing in {n:,} rows" + ("" if zeros is None else ", and none holds zeros only")
    done = "were left out" if found["action"] == "drop" else f"were filled with the {found['fill']}"
    if isinstance(found["fill"], float):
        done = f"were filled with {found['fill']:g}"
    if found["action"] == "fill" and (values := found.get("values")):
        done += f" ({100 * values / (n * found['d']):.3g} % of all values)"
    columns = ", ".join(f"{name} ({count:,})" for name, count in found["columns"])
    if (missing := found.get("columns_missing", 0)) > len(found["columns"]):
        columns += f", … ({missing:,} columns in all)"
    first = ", ".join(map(str, found["first"])) + (", …" if rows > len(found["first"]) else "")
    what = "have missing values" if not zeros else f"have missing values or zeros only ({zeros:,})"
    by_column = f"; by column: {columns}" if columns else ""
    return f"{rows:,} of {n:,} rows {what} and {done}: rows {first} (counted from 0){by_column}"


def missing_in(rows: Any) -> Array:
    """How many values (NaN) are missing in each column of rows (m, d), dense or CSR.

    >>> missing_in(np.array([[np.nan, 1.0], [np.nan, np.nan]])).tolist()
    [2, 1]
    """
    return np.asarray(_columns_of(rows)[0])


def account_of(found: Mapping[str, Any], rows: Any, numbers: Array, names: Sequence[str]) -> dict[str, Any]:
    """What becomes of missing values in other rows (m, d) of these ``numbers``, as ``found`` has it of those fitted."""
    counts, gone = missing_in(rows), ~complete(rows)
    return {
        "n": rows.shape[0],
        "d": rows.shape[1],
        "action": found["action"],
        "fill": found["fill"],
        "rows": int(gone.sum()),
        "first": numbers[gone][:FIRST].tolist(),
        "columns": _by_column(counts, names),
        "columns_missing": int(np.count_nonzero(counts)),
        "values": int(counts.sum()),
    }


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


def without_zeros(rows: Any, model: Any, start: int = 0) -> Any:
    """Rows with NaN in those that hold zeros only; InputError where they are infinite."""
    given, empty = as_given(rows, None, start), row_maps.empty(rows)
    if not empty.any():
        return given
    if not is_sparse(rows):
        return np.where(empty[:, None], np.array(np.nan, given.dtype), given)
    place = np.flatnonzero(empty), np.zeros(int(empty.sum()), int)
    return given + csr_array((np.full(len(place[0]), np.nan, given.dtype), place), shape=given.shape)


def filled(rows: Any, model: Array, start: int = 0) -> Any:
    """Rows with NaN as the number of its column; InputError where they are infinite."""
    given, values = as_given(rows, None, start), model.astype(rows.dtype)
    if is_sparse(rows):
        return row_maps.with_entries(rows, np.where(np.isnan(rows.data), values[rows.indices], rows.data))
    return np.where(np.isnan(rows), values, given)
