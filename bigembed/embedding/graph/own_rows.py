"""The rows of a graph that have coordinates of their own, without those that take another row's, as sources of rows."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from bigembed.blocks.rows import bounds, map_blocks
from bigembed.embedding.graph.ordered_rows import InOrder
from bigembed.neighbors.ordering.order import Ordered
from bigembed.stages import Context
from bigembed.store.arrays.io import create_rows, write_rows
from bigembed.store.rows.kept import KeptRows
from bigembed.store.rows.source import RowSource


@dataclass(frozen=True)
class OwnRows(KeptRows):
    """Those rows of a source in the order of the graph, in blocks as large as its own."""

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

    Such rows lie at the place of another one, so they say nothing of how well a map shows neighborhoods. One pass over
    the labels leaves a mask, a byte a row, as long as the stage works.
    """
    found = context.results("coordinates")
    if not found.get("filled_rows"):
        return sources
    n, size, mask = int(ordered.starts[-1]), min(source.block for source in sources), f"{context.exchange.root}/own"
    labels = InOrder((n,), np.dtype(np.int32), path=context.of("coordinates", "labels"), ordered=ordered)
    create_rows(mask, (n,), np.uint8, size, overwrite=True)
    counts = map_blocks(mask_block, bounds(n, size), labels=labels, parts=found.get("parts", 1), out=mask)
    kept: dict[str, Any] = {"mask": mask, "counts": tuple(counts), "mask_block": size}
    return [OwnRows((sum(counts), *source.shape[1:]), source.dtype, base=source, **kept) for source in sources]


def mask_block(start: int, stop: int, *, labels: InOrder, parts: int, out: str) -> int:
    """Which of the rows ``start:stop`` have coordinates of their own, and how many do."""
    label = labels.read(start, stop)
    own = (label >= 0) & (label < parts)
    write_rows(out, start, own.astype(np.uint8))
    return int(np.count_nonzero(own))
