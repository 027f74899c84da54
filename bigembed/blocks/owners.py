"""From global row numbers to blocks: which block holds a row, and which row of the block it is.

``starts`` are the first number of each block, and behind them the number of all rows. What else is numbered through
blocks, cells, goes the same way.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from bigembed.blocks.rows import Array

Starts = Sequence[int] | Array


def owner_of(starts: Starts, ids: Any) -> Any:
    """The block that holds each id.

    >>> owner_of([0, 2, 5], np.array([4, 0, 2])).tolist()
    [1, 0, 1]
    """
    return np.searchsorted(starts, ids, side="right") - 1


def by_owner(starts: Starts, ids: Array) -> Iterator[tuple[int, Array, Array]]:
    """Block by block: its number, which of the ``ids`` it holds, ascending, and their rows in the block.

    >>> [(block, at.tolist(), rows.tolist()) for block, at, rows in by_owner([0, 2, 5], np.array([4, 0, 2]))]
    [(0, [1], [0]), (1, [0, 2], [2, 0])]
    """
    owner = owner_of(starts, ids)
    order = np.argsort(owner.astype(np.min_scalar_type(len(starts))), kind="stable")  # narrow: a radix sort
    blocks, first = np.unique(owner[order], return_index=True)
    for block, at in zip(blocks.tolist(), np.split(order, first[1:]), strict=False):
        yield block, at, ids[at] - starts[block]
