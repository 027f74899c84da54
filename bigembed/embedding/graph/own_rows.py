"""The rows of a graph that have coordinates of their own, without those that take another row's, as sources of rows."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from bigembed.blocks.rows import Array, bounds, map_blocks
from bigembed.embedding.graph.ordered_rows import InOrder
from bigembed.neighbors.order import Ordered
from bigembed.stages import Context
from bigembed.store.kept import KeptRows
from bigembed.store.source import RowSource


@dataclass(frozen=True)
class OwnRows(KeptRows):
    """Those rows of a source in the order of the graph that lie in one of the first ``parts`` components."""

    labels: RowSource | None = None
    """Of each row, in the order of the graph: its component, −1 for islands."""
    parts: int = 1

    def among(self, start: int, stop: int) -> Array:
        assert self.labels is not None
        label = self.labels.read(start, stop)
        return np.asarray((label >= 0) & (label < self.parts))

    @property
    def sparse(self) -> bool:
        return self.source.sparse

    @property
    def row_bytes(self) -> int:
        return self.source.row_bytes

    @property
    def block(self) -> int:
        return self.source.block


def own_rows(context: Context, ordered: Ordered, sources: Sequence[RowSource]) -> Sequence[RowSource]:
    """Of sources in the order of the graph, the rows that the stage ``coordinates`` did not place by their nearest row.

    Such rows lie at the place of another one, so they say nothing of how well a map shows neighborhoods.
    """
    found = context.results("coordinates")
    if not found.get("filled_rows"):
        return sources
    n = int(ordered.starts[-1])
    labels = InOrder((n,), np.dtype(np.int32), path=context.of("coordinates", "labels"), ordered=ordered)
    given: dict[str, Any] = {"labels": labels, "parts": found.get("parts", 1)}
    size = min(source.block for source in sources)
    every = OwnRows((n,), labels.dtype, base=labels, **given)
    counts = tuple(map_blocks(count_block, bounds(n, size), rows=every))
    given |= {"counts": counts, "mask_block": size}
    return [OwnRows((sum(counts), *source.shape[1:]), source.dtype, base=source, **given) for source in sources]


def count_block(start: int, stop: int, *, rows: OwnRows) -> int:
    """How many of the rows ``start:stop`` have coordinates of their own."""
    return int(np.count_nonzero(rows.among(start, stop)))
