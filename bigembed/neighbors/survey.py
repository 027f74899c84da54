"""The first pass over the rows: are they usable, what are they, and a sample of them."""

from __future__ import annotations

from dataclasses import dataclass
from hashlib import sha256
from typing import Any

import numpy as np

from bigembed.blocks.rows import Array, block_rows
from bigembed.errors import InputError
from bigembed.stages import Context, Cost, Stage
from bigembed.store.arrays import write_array
from bigembed.store.exchange import Exchange
from bigembed.store.offenders import LARGEST, LEAST_32, MOST_32, checked_shape, infinite, not_finite, refuse_size
from bigembed.store.passes import map_row_blocks
from bigembed.store.row_blocks import RowBlock
from bigembed.store.source import RowSource, work_dtype

METRICS = ("euclidean", "cosine")
SAMPLE_BYTES = 32 << 20
SAMPLE_PER_PARTITION = 256
MIN_SAMPLE = 20_000


@dataclass(frozen=True)
class Shape:
    """Rows, features and canonical blocks of a data set, and how its rows are read."""

    n: int
    d: int
    dtype: str
    metric: str
    most: int | None = None
    """Rows of a block, at most, where many neighbors of each make a block larger than its rows do."""

    @property
    def block(self) -> int:
        """Rows of a canonical block."""
        fitting = block_rows(self.d, np.dtype(self.dtype).itemsize)
        return fitting if self.most is None else min(fitting, self.most)

    @property
    def row_bytes(self) -> int:
        """Bytes of a row as it is worked on."""
        return self.d * np.dtype(self.dtype).itemsize

    @property
    def sample(self) -> int:
        """Rows to sample: enough for the k-means of the partitions, bounded in bytes."""
        wanted = max(MIN_SAMPLE, SAMPLE_PER_PARTITION * -(-self.n // self.block))
        return int(min(self.n, wanted, max(2_000, SAMPLE_BYTES // self.row_bytes)))


def shape_of(source: RowSource, metric: str) -> Shape:
    """Shape of a source, checked: two dimensions, numbers, at least one row and column."""
    n, d = checked_shape(source)
    return Shape(n, d, str(work_dtype(source.dtype)), checked_metric(metric))


def checked_metric(metric: str) -> str:
    """The metric; InputError unless neighbors are searched by it."""
    if metric not in METRICS:
        raise InputError(
            f"metric={metric!r}; allowed: {' or '.join(map(repr, METRICS))}. ClassicalMDS and LandmarkMDS take others"
        )
    return metric


def survey_stage(source: RowSource, shape: Shape, seed: int) -> Stage:
    """Check every row for NaN and infinity, digest the content, take a stratified sample. One pass."""
    parameters = {
        "source": source.fingerprint(),
        "shape": [shape.n, shape.d],
        "metric": shape.metric,
        "seed": seed,
    }

    def run(context: Context) -> dict[str, Any]:
        found = map_row_blocks(source, survey_block, shape=shape, seed=seed, exchange=context.exchange)
        _refuse(found, shape)
        sample = [context.exchange.get("sample", number, "rows") for number in range(len(found))]
        ids = [context.exchange.get("sample", number, "ids") for number in range(len(found))]
        write_array(context.path("sample"), np.concatenate([part for part in sample if part is not None]))
        write_array(context.path("sample_ids"), np.concatenate([part for part in ids if part is not None]))
        low = np.min([part["low"] for part in found], axis=0)
        high = np.max([part["high"] for part in found], axis=0)
        refuse_extent(low, high, shape)
        content = sha256("".join(part["digest"] for part in found).encode()).hexdigest()
        return {
            "n": shape.n,
            "d": shape.d,
            "dtype": shape.dtype,
            "metric": shape.metric,
            "content": content,
            "constant_columns": int(np.sum(low == high)),
            "low": float(low.min()),
            "high": float(high.max()),
        }

    block = shape.block * shape.row_bytes
    cost = Cost(
        passes=1,
        read=shape.n * shape.row_bytes,
        write=shape.sample * shape.row_bytes,
        memory=4 * block,
        disk=shape.sample * shape.row_bytes,
        coordinator=3 * shape.sample * shape.row_bytes,
    )
    return Stage("survey", (), parameters, run, cost)


def survey_block(block: RowBlock, *, shape: Shape, seed: int, exchange: Exchange) -> dict[str, Any]:
    """Check one block and leave its share of the sample in the exchange."""
    number, rows, start, stop = block.number, block.rows, block.start, block.stop
    zero = ~rows.any(axis=1) if shape.metric == "cosine" else np.zeros(0, bool)
    generator = np.random.default_rng([seed, 1, number])
    share = round(stop * shape.sample / shape.n) - round(start * shape.sample / shape.n)
    chosen = np.sort(generator.choice(stop - start, share, replace=False))
    exchange.put("sample", number, {"rows": prepare(rows[chosen], shape), "ids": chosen + start})
    return {
        "digest": sha256(rows.tobytes()).hexdigest(),
        "low": rows.min(axis=0),
        "high": rows.max(axis=0),
        **infinite(rows, start),
        "zero": (np.flatnonzero(zero)[:5] + start).tolist(),
        "zeros": int(zero.sum()),
    }


def prepare(rows: Array, shape: Shape) -> Array:
    """Rows as they are searched: in the work dtype; of length one for the cosine metric."""
    rows = np.ascontiguousarray(rows, dtype=shape.dtype)
    if shape.metric != "cosine":
        return rows
    length = np.sqrt(np.einsum("ij,ij->i", rows, rows, dtype=np.float64))
    return (rows / np.where(length > 0, length, 1)[:, None]).astype(shape.dtype)


def _refuse(found: list[dict[str, Any]], shape: Shape) -> None:
    if any("nan" in part for part in found):
        raise InputError(f"Input X contains {not_finite(found, f'{shape.n} rows')}")
    zeros = sum(part["zeros"] for part in found)
    if zeros:
        first = [row for part in found for row in part["zero"]][:10]
        raise InputError(
            f"metric='cosine' is not defined for rows of zeros: {zeros} of {shape.n}, the first are rows "
            f"{first}. Drop them, or use metric='euclidean'"
        )


def refuse_extent(low: Array, high: Array, shape: Shape) -> None:
    """InputError where squared distances between rows of these bounds leave the range of the dtype.

    Where the longest one is below 2⁻⁴⁰ in float32, the squares of those within the rounding of rows are not normal
    numbers.
    """
    least, most = (1 / LARGEST, LARGEST) if shape.dtype == "float64" else (LEAST_32, MOST_32)
    with np.errstate(over="ignore"):
        if shape.metric == "cosine":  # (rows are scaled in float64)
            size, least, most = float(np.maximum(np.abs(low), np.abs(high)).max()), 1 / LARGEST, LARGEST
        else:
            sides = high.astype(np.float64) - low
            longest = float(sides.max())
            size = longest * float(np.linalg.norm(sides / longest)) if 0 < longest < np.inf else longest
    if size and not least <= size <= most:
        of = "rows" if shape.metric == "cosine" else "distances between rows"
        refuse_size(size, most, least, f"the squares of the {of}")
