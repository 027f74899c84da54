"""The rows of a graph in its order, and their coordinates, as sources of rows."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from bigembed.blocks.owners import owner_of
from bigembed.blocks.rows import Array
from bigembed.neighbors.order import Ordered
from bigembed.store.arrays import read_rows
from bigembed.store.source import RowSource


@dataclass(frozen=True)
class OrderedRows(RowSource):
    """The rows in the order of the graph."""

    ordered: Ordered | None = None

    def read(self, start: int, stop: int) -> Array:
        """Rows ``start:stop``."""
        assert self.ordered is not None
        parts = [self.ordered.rows(b, low, high) for b, low, high in spans_of(self.ordered.starts, start, stop)]
        return parts[0] if len(parts) == 1 else np.concatenate(parts)

    @property
    def grain(self) -> int:
        return 1

    def fingerprint(self) -> str:
        return ""  # (the stage that they are read in depends on their order)


@dataclass(frozen=True)
class InOrder(RowSource):
    """Coordinates that lie at a path in the order of the input, in the order of the graph."""

    ordered: Ordered | None = None

    def read(self, start: int, stop: int) -> Array:
        """Coordinates of rows ``start:stop`` of the graph."""
        assert self.ordered is not None
        assert self.path is not None
        spans = spans_of(self.ordered.starts, start, stop)
        ids = np.concatenate([self.ordered.ids(b)[low:high] for b, low, high in spans])
        return read_rows(self.path, ids)

    @property
    def grain(self) -> int:
        return 1


def spans_of(starts: Sequence[int], start: int, stop: int) -> list[tuple[int, int, int]]:
    """The blocks that hold the rows ``start:stop``: number, and first and last row in it."""
    first = int(owner_of(starts, start))
    spans = []
    for b in range(first, len(starts) - 1):
        if starts[b] >= stop:
            break
        low, high = max(start, starts[b]), min(stop, starts[b + 1])
        spans.append((b, low - starts[b], high - starts[b]))
    return spans
