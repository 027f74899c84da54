"""Passes over the rows, by canonical blocks, and the error that names rows which cannot be used."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from bigembed.errors import InputError
from bigembed.rows import RowBlock, RowSource, row_blocks
from bigembed.runtime import once
from bigembed.runtime.blocks import Array, bounds, is_sparse, map_blocks
from bigembed.store.arrays import create_rows, write_rows
from bigembed.store.exchange import Exchange
from bigembed.store.vector_space import tree_fold

# ------------------------------------------------------------------------------------------------------- offenders
# Rows that cannot be used: not finite, beyond the range of their squares, of the wrong shape; what is said of them.

NAMED = 10
"""Offending rows named in an error."""
LARGEST = 2.0**240
"""Of rows in float64: methods take fourth powers, which are in its range for such numbers and their inverses."""
KINDS = (
    ("NaN", "nan", "first", "Drop or impute them before the run (the step 'missing' does)"),
    ("infinity", "infinite", "first_infinite", "Infinity is not a missing value: look where it comes from"),
)
"""What is not finite: its name, keys of :func:`offenders`, and what to do about it."""
LEAST_32, MOST_32 = 2.0**-40, 2.0**60
"""Of the longest distance between rows whose squared distances are float32."""


def offenders(block: RowBlock, rows: bool = True) -> dict[str, Any]:
    """What is wrong with the ``rows`` or the weights of a block: NaN, infinity, a negative weight, beyond LARGEST.

    If nothing is: the ``size`` of the largest number, by which :func:`refuse` knows rows that are all too small.
    """
    found: dict[str, Any] = {}
    values = block.rows.data if is_sparse(block.rows) else block.rows.reshape(-1)
    with np.errstate(all="ignore"):
        looked_at = rows and not np.isfinite(np.dot(values, values))  # (the square may overflow: then look closely)
    if looked_at:
        found |= infinite(block.rows, block.start)
    size = size_of(values)
    if LARGEST < size < np.inf and not found:
        found |= {"large": size}
    weights = block.weights
    wrong = np.zeros(0, int) if weights is None else np.flatnonzero(~(np.isfinite(weights) & (weights >= 0)))
    if len(wrong):
        found |= {"weights": len(wrong), "first_weights": (wrong[:NAMED] + block.start).tolist()}
    return found or {"size": size if np.isfinite(size) else 1.0}


def usable(found: Mapping[str, Any]) -> bool:
    """Whether :func:`offenders` found nothing wrong."""
    return not found or "size" in found


def size_of(values: Array) -> float:
    """The largest absolute value of float64; 1 for float32, which may hold nothing that is out of range."""
    if values.dtype != np.float64 or not values.size:
        return 1.0
    return float(np.fmax(np.abs(values.min()), np.abs(values.max())))


def infinite(rows: Any, start: int) -> dict[str, Any]:
    """How many rows hold NaN, how many infinity, and the first of each; nothing if none does."""
    nan, beyond = (_rows_where(rows, wrong) for wrong in (np.isnan, np.isinf))
    if not len(nan) + len(beyond):
        return {}
    first = {"first": (nan[:NAMED] + start).tolist(), "first_infinite": (beyond[:NAMED] + start).tolist()}
    return {"nan": len(nan), "infinite": len(beyond), **first}


def _rows_where(rows: Any, wrong: Callable[[Any], Any]) -> Array:
    if not is_sparse(rows):
        return np.flatnonzero(wrong(rows).any(axis=1))
    return np.unique(np.searchsorted(rows.indptr, np.flatnonzero(wrong(rows.data)), side="right") - 1)


def refuse_block(block: RowBlock, nan: bool = True) -> None:
    """InputError where rows of one block hold infinity, or NaN unless ``nan`` is False."""
    wrong = offenders(block)
    if "large" in wrong:
        refuse_size(wrong["large"], LARGEST, 1 / LARGEST)
    if wrong.get("infinite") or (nan and wrong.get("nan")):
        what = not_finite([wrong], f"the rows {block.start}:{block.stop}")
        raise InputError(f"Input X contains {what}")


def not_finite(found: Sequence[Mapping[str, Any]], whole: str) -> str:
    """What rows hold that cannot be used, NaN and infinity each with how many rows, and the first of them."""
    said = []
    for what, count, first, advice in KINDS:
        if rows := sum(part.get(count, 0) for part in found):
            named = [row for part in found for row in part.get(first, [])][:NAMED]
            said.append(f"{what}: {rows} of {whole} do, the first are rows {named}. {advice}")
    return "; and ".join(said)


def refuse(found: Sequence[Mapping[str, Any]], source: RowSource) -> None:
    """InputError where blocks reported offenders: how many, and the first of them."""
    n = source.shape[0]
    if any("nan" in part for part in found):
        raise InputError(f"Input X contains {not_finite(found, f'{n} rows')}")
    if count := sum(part.get("weights", 0) for part in found):
        first = [row for part in found for row in part.get("first_weights", [])][:NAMED]
        raise InputError(f"weights must be finite and nonnegative: {count} of {n} are not, the first of rows {first}")
    large = [part for part in found if "large" in part]
    sizes = [part["size"] for part in found if "size" in part]
    if large or (sizes and 0 < max(sizes) < 1 / LARGEST):
        refuse_size(max([part["large"] for part in large] or sizes), LARGEST, 1 / LARGEST)


def refuse_size(size: float, most: float, least: float, of: str = "the squares of the rows") -> None:
    """InputError for rows whose squares, say, overflow or underflow: ``least`` to ``most`` are allowed."""
    what = "overflow" if size > 1 else "underflow"
    unit = -int(np.floor(np.log2(size))) if np.isfinite(size) else -1000
    raise InputError(
        f"{of} {what}: they reach to {size:.3g}, and {least:.3g} to {most:.3g} can be worked with here. Multiply "
        f"all rows by 2**{unit}, which rounds nothing" + (", or give them as float64" if most == MOST_32 else "")
    )


def checked_shape(source: RowSource, at_least: int = 1) -> tuple[int, int]:
    """(n, d) of a source: two dimensions, at least ``at_least`` rows, one column, and aligned vectors as long."""
    if len(source.shape) != 2:
        raise InputError(
            f"rows must form a 2-dimensional array (n, d); got {len(source.shape)} dimension(s), shape "
            f"{source.shape}. Reshape your data: one row a point"
        )
    n, d = map(int, source.shape)
    if n < at_least:
        raise InputError(
            f"Found array with {n} sample(s) (shape={source.shape}) while a minimum of {at_least} is required."
        )
    if d == 0:
        raise InputError(f"Found array with 0 feature(s) (shape={source.shape}) while a minimum of 1 is required.")
    for name, other in source.aligned.items():
        check_vector(name, other, n)
    return n, d


def check_vector(name: str, vector: RowSource, n: int) -> None:
    """InputError where a vector that belongs to n rows has not one number a row."""
    if tuple(vector.shape) != (n,):
        verb = "have" if name.endswith("s") else "has"
        raise InputError(f"{name} {verb} shape {vector.shape}; one number a row is needed, so shape ({n},)")


# ---------------------------------------------------------------------------------------------------------- passes
# Passes over the rows: a function of each canonical block, summed in a fixed tree or written in order.
#
# A task takes a run of consecutive canonical blocks and reads them through a sliding window, so that a stored chunk
# is decompressed once even where chunks and canonical blocks do not match. Sums are taken inside a task over fixed
# groups of blocks and left in the exchange, so neither the workers nor the coordinating process hold more than a few
# of them, and the bytes of the result do not depend on the chunks, the tasks or the workers.

Parts = dict[str, Array]
"""What a block contributes, by name; numbers are arrays without axes."""

MAX_GROUPS = 256
DATA_PER_SUM = 8
"""Bytes of rows behind a byte of partial sums, at least."""
CHUNKS_A_TASK = 8
TASKS = 16


def add_parts(left: Parts, right: Parts) -> Parts:
    """Sum by name."""
    return {name: left[name] + right[name] for name in left}


def reduce_rows(
    source: RowSource,
    function: Callable[..., Parts],
    exchange: Exchange,
    *,
    combine: Callable[[Parts, Parts], Parts] = add_parts,
    partial_bytes: int = 0,
    first: bool = False,
    propagates: bool = False,
    label: str = "",
    **fixed: Any,
) -> Parts:
    """Add up ``function(block, **fixed)`` over all canonical blocks, in one pass.

    Groups that a killed run left in the exchange are not computed again.

    Parameters
    ----------
    source : RowSource
        The rows.
    function : function
        The function of a block; it is module-level and pure.
    exchange : Exchange
        Where sums of groups are kept.
    combine : function
        What adds two results. It is module-level and pure, and need not be a sum, but must be associative up to
        rounding.
    partial_bytes : int
        The size of one result, where it is large (d² sums): more rows are then added inside a task.
    first : bool
        Whether this pass reads the rows first, so that it checks that they (and their weights) are finite; every
        offender is counted, the first are named.
    propagates : bool
        Whether NaN or infinity anywhere in the rows makes a result that is not finite, so that only then the rows are
        looked at.
    label : str
        The name of the pass, for progress.
    **fixed : dict
        Further arguments of the function.

    Returns
    -------
    dict of str to array
        The sum.

    Raises
    ------
    InputError
        If rows or weights cannot be used.
    """
    name = label or function.__name__.strip("_")
    groups = row_groups(source, partial_bytes)
    runs = task_runs(source, groups)
    whole, parts = whole_or_parts(source, groups, runs)
    tasks = [(part, low, groups[low:high]) for part, (low, high) in zip(parts, runs, strict=True)]
    found = map_blocks(
        sum_groups,
        tasks,
        label=name,
        whole=whole,
        compute=function,
        combine=combine,
        exchange=exchange,
        name=name,
        first=first,
        propagates=propagates,
        fixed=fixed,
    )
    refuse([part for parts in found for part in parts], source)
    total: Parts = once(lambda: tree_fold((exchange.get_all(name, group) for group in range(len(groups))), combine))
    exchange.drop(name)
    return total


def write_mapped(
    source: RowSource,
    function: Callable[..., Array],
    out: str,
    width: int,
    dtype: Any,
    *,
    first: bool = False,
    label: str = "",
    **fixed: Any,
) -> None:
    """Write ``function(block, **fixed)``, (m, width), for all rows into a new Zarr array (n, width), in one pass.

    Parameters
    ----------
    source : RowSource
        The rows.
    function : function
        The function of a block; it is module-level and pure.
    out : str
        The path of the new array.
    width : int
        The number of its columns.
    dtype : dtype
        The type of its entries.
    first : bool
        Whether this pass reads the rows first, so that it checks that they are finite.
    label : str
        The name of the pass, for progress.
    **fixed : dict
        Further arguments of the function.
    """
    create_rows(out, (source.shape[0], width), dtype, source.block, overwrite=True)
    groups = row_groups(source, 0)
    runs = task_runs(source, groups)
    whole, parts = whole_or_parts(source, groups, runs)
    tasks = [(part, groups[low:high]) for part, (low, high) in zip(parts, runs, strict=True)]
    fixed_parts = {"whole": whole, "compute": function, "out": out, "first": first, "fixed": fixed}
    found = map_blocks(write_groups, tasks, label=label or function.__name__.strip("_"), **fixed_parts)
    refuse([part for parts in found for part in parts], source)


def map_row_blocks(
    source: RowSource,
    function: Callable[..., Any],
    *,
    given: Mapping[int, Any] | None = None,
    label: str = "",
    **fixed: Any,
) -> list[Any]:
    """``function(block, **fixed)`` of all canonical blocks: one pass.

    ``given``: only blocks of these ascending numbers, each with what belongs to it, ``function(block, what, **fixed)``.
    """
    blocks = range(-(-source.shape[0] // source.block)) if given is None else given
    groups = [(number, number + 1) for number in blocks]
    runs = task_runs(source, groups) if groups else []
    extra = [() if given is None else (given[number],) for number in blocks]
    whole, parts = whole_or_parts(source, groups, runs)
    tasks = [(part, groups[low:high], extra[low:high]) for part, (low, high) in zip(parts, runs, strict=True)]
    name, given_to_all = label or function.__name__.strip("_"), {"whole": whole, "compute": function, "fixed": fixed}
    return [one for found in map_blocks(work_blocks, tasks, label=name, **given_to_all) for one in found]


def work_blocks(
    part: RowSource | None,
    groups: Sequence[tuple[int, int]],
    extra: Sequence[tuple[Any, ...]],
    *,
    whole: RowSource | None,
    compute: Callable[..., Any],
    fixed: Mapping[str, Any],
) -> list[Any]:
    """What a function makes of each of some canonical blocks."""
    blocks = row_blocks(_either(part, whole), [number for number, _ in groups])
    found = []
    for block, more in zip(blocks, extra, strict=True):
        found.append(compute(block, *more, **fixed))
    return found


def runs_of_rows(source: RowSource) -> list[tuple[int, int]]:
    """First and one past the last row of each task of a pass that writes as much as it reads."""
    groups, rows, n = row_groups(source, 0), source.block, source.shape[0]
    return [(groups[low][0] * rows, min(n, groups[high - 1][1] * rows)) for low, high in task_runs(source, groups)]


def whole_or_parts(
    source: RowSource, groups: Sequence[tuple[int, int]], runs: Sequence[tuple[int, int]]
) -> tuple[RowSource | None, list[RowSource | None]]:
    """The source, for all tasks together, and nothing for each; or nothing, and for each task its part of the source.

    A source says where all blocks of an ordered copy lie: sent with each task, that would be the square of the blocks.
    """
    spans = [(groups[low][0] * source.block, groups[high - 1][1] * source.block) for low, high in runs]
    parts = [source.part(start, min(source.shape[0], stop)) for start, stop in spans]
    if all(part is source for part in parts):
        return source, [None] * len(parts)
    return None, [*parts]


def _either(part: RowSource | None, whole: RowSource | None) -> RowSource:
    found = whole if part is None else part
    assert found is not None
    return found


def row_groups(source: RowSource, partial_bytes: int) -> list[tuple[int, int]]:
    """First and one past the last canonical block of each group that is summed inside a task."""
    blocks = -(-source.shape[0] // source.block)
    size = max(-(-blocks // MAX_GROUPS), -(-DATA_PER_SUM * partial_bytes // (source.block * source.row_bytes)), 1)
    return bounds(blocks, size)


def task_runs(source: RowSource, groups: Sequence[tuple[int, int]]) -> list[tuple[int, int]]:
    """Which groups one task takes: several where chunks straddle blocks, so that few are read by two tasks."""
    rows = (groups[0][1] - groups[0][0]) * source.block
    grain = source.grain
    if rows % grain == 0 and source.offset % grain == 0:
        return bounds(len(groups), 1)
    enough = -(-CHUNKS_A_TASK * grain // rows)
    parallel = max(-(-grain // rows), -(-len(groups) // TASKS))
    return bounds(len(groups), min(enough, parallel))


def sum_groups(
    part: RowSource | None,
    first_group: int,
    groups: Sequence[tuple[int, int]],
    *,
    whole: RowSource | None,
    compute: Callable[..., Parts],
    combine: Callable[[Parts, Parts], Parts],
    exchange: Exchange,
    name: str,
    first: bool,
    propagates: bool,
    fixed: Mapping[str, Any],
) -> list[dict[str, Any]]:
    """Leave the sum of each group in the exchange; return what is wrong with the rows."""
    todo = [group for group in range(len(groups)) if not exchange.has(name, first_group + group)]
    blocks = row_blocks(_either(part, whole), [number for group in todo for number in range(*groups[group])])
    bad: list[dict[str, Any]] = []
    sizes = [] if len(todo) == len(groups) else [1.0]  # (of groups that are there nothing is known)
    for group in todo:
        total: Parts | None = None
        for _ in range(*groups[group]):
            block = next(blocks)
            wrong = offenders(block, rows=not propagates) if first else {}
            sizes.append(wrong.get("size", 0.0))
            one = None if bad or not usable(wrong) else compute(block, **fixed)
            if first and propagates and one is not None and not _finite(one):
                wrong = offenders(block)
            if not usable(wrong):
                bad.append(wrong)
            elif one is not None:
                total = one if total is None else combine(total, one)
        if not bad and total is not None:
            exchange.put(name, first_group + group, {key: np.asarray(value) for key, value in total.items()})
    return [*bad, {"size": max(sizes)}]


def write_groups(
    part: RowSource | None,
    groups: Sequence[tuple[int, int]],
    *,
    whole: RowSource | None,
    compute: Callable[..., Array],
    out: str,
    first: bool,
    fixed: Mapping[str, Any],
) -> list[dict[str, Any]]:
    """Write the blocks of the groups, each a whole shard; return what is wrong with the rows."""
    bad: list[dict[str, Any]] = []
    for block in row_blocks(_either(part, whole), range(groups[0][0], groups[-1][1])):
        wrong = offenders(block) if first else {}
        if not usable(wrong):
            bad.append(wrong)
        else:
            write_rows(out, block.start, compute(block, **fixed))
    return bad


def _finite(parts: Parts) -> bool:
    return all(bool(np.isfinite(value).all()) for value in parts.values())
