"""The rows of a graph in its order, and their coordinates, as sources of rows."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from bigembed.blocks.owners import owner_of
from bigembed.blocks.rows import BLOCK_BYTES, Array
from bigembed.neighbors.ordering.order import Ordered
from bigembed.neighbors.search.by_metric import ByMetric
from bigembed.store.arrays.io import read_rows
from bigembed.store.blockwise.sparse_parts import stacked
from bigembed.store.rows.source import RowSource


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
class OrderedSparse(OrderedRows):
    """Sparse rows, as they are compared, in the order of the graph."""

    def read(self, start: int, stop: int) -> Any:
        """Rows ``start:stop`` as a CSR array."""
        assert self.ordered is not None
        return stacked([self.ordered.compared(*span) for span in spans_of(self.ordered.starts, start, stop)])

    def matrix(self, start: int, stop: int) -> Any:
        """The same rows, which are in the work dtype."""
        return self.read(start, stop)

    @property
    def sparse(self) -> bool:
        return True

    @property
    def block(self) -> int:
        """Rows of a canonical block."""
        assert self.ordered is not None
        return max(self.ordered.rows_of)

    @property
    def row_bytes(self) -> int:
        """Bytes that a row is planned with."""
        return max(1, BLOCK_BYTES // self.block)


def compared_rows(ordered: Ordered, d: int) -> OrderedRows:
    """The rows of a graph, of d columns, in its order, as distances are taken of them."""
    n, dtype = ordered.starts[-1], ordered.rows(0, 0, 1).dtype
    if ordered.columns:
        return OrderedSparse((n, ordered.columns), dtype, ordered=ordered)
    return OrderedRows((n, d), dtype, ordered=ordered)


def comparison(by: ByMetric | None) -> dict[str, Any]:
    """How the rows of a graph are compared, for :func:`~bigembed.quality.neighborhoods.preserved`."""
    return {} if by is None else {"metric": by.metric, "mapped": True}


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
