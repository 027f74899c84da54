"""Some rows of a source: of a few canonical blocks, by the shape of the rows alone."""

from __future__ import annotations

from typing import Any

import numpy as np

from bigembed.quality import NEIGHBORS
from bigembed.rows import RowBlock, RowSource, as_worked
from bigembed.runtime.blocks import Array, map_blocks
from bigembed.store import parcels

ROWS = 1_000
"""Rows that are drawn of dense ones."""
BLOCKS, SHARE = 4, 0.05
"""Canonical blocks that rows are drawn from, at least, and the share of all blocks beyond that."""
SPREAD = 8_192
"""Rows of these blocks together, at least: rows of many columns come in small blocks, and those of a file may lie in
groups."""
BYTES = 64 << 20
"""Of the drawn rows, at the most."""
STREAM = 13
"""Of the random numbers of the sample."""


def sampled_rows(source: RowSource, numbers: Array) -> RowBlock:
    """Rows of ascending numbers, with what is aligned with them; the blocks are read that they are in."""
    block, first = np.unique(numbers // source.block, return_index=True)
    tasks = list(zip(block.tolist(), np.split(numbers, first[1:]), strict=True))
    parts = map_blocks(pick_block, tasks, label="sample", source=source)
    aligned = {name: np.concatenate([others[name] for _, others in parts]) for name in source.aligned}
    return RowBlock(0, 0, parcels.stacked([rows for rows, _ in parts]), aligned)


def pick_block(number: int, numbers: Array, *, source: RowSource) -> tuple[Any, dict[str, Array]]:
    """Some rows of a canonical block, and what is aligned with them; of rows in this process no others are copied."""
    start = number * source.block
    stop = min(start + source.block, source.shape[0])
    inside = numbers - start
    aligned = {name: other.read(start, stop)[inside] for name, other in source.aligned.items()}
    if source.array is not None:
        return as_worked(source.array[numbers], source.work), aligned
    return source.part(start, stop).matrix(start, stop)[inside], aligned


def drawn_numbers(source: RowSource) -> Array:
    """Ascending numbers of the drawn rows, by the shape of the rows alone: all of few rows."""
    n, size = source.shape[0], source.block
    rng = np.random.default_rng([0, STREAM])
    blocks = np.sort(rng.choice(-(-n // size), count_blocks(source), replace=False))
    starts = blocks * size
    counts = np.minimum(starts + size, n) - starts
    ends = np.cumsum(counts)
    chosen = np.sort(rng.choice(ends[-1], min(count_rows(source), int(ends[-1])), replace=False))
    place = np.searchsorted(ends, chosen, side="right")
    return np.asarray(chosen - (ends - counts)[place] + starts[place])


def count_blocks(source: RowSource) -> int:
    """How many canonical blocks rows are drawn from."""
    count = -(-source.shape[0] // source.block)
    return min(count, max(BLOCKS, int(SHARE * count), -(-SPREAD // source.block)))


def count_rows(source: RowSource) -> int:
    """How many rows are drawn: of sparse ones all of the chosen blocks."""
    if source.sparse:
        return source.shape[0]
    return min(source.shape[0], ROWS, max(2 * NEIGHBORS + 1, BYTES // dense_bytes(source)))


def dense_bytes(source: RowSource) -> int:
    """Of a dense row as it is compared."""
    return source.width * source.work.itemsize
