"""Rows that cannot be used: not finite, beyond the range of their squares, of the wrong shape; what is said of them."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from bigembed.blocks.rows import Array, is_sparse
from bigembed.errors import InputError
from bigembed.store.rows.row_blocks import RowBlock
from bigembed.store.rows.source import RowSource

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
        if len(other.shape) != 1 or other.shape[0] != n:
            raise InputError(f"{name} have shape {other.shape}; one number a row is needed, so shape ({n},)")
    return n, d
