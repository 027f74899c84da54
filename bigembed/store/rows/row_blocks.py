"""Canonical blocks as they are read: each stored chunk once along consecutive blocks, with what belongs to the rows."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from bigembed.blocks.rows import Array, is_sparse, settled
from bigembed.store.rows.source import RowSource, as_worked


@dataclass(frozen=True)
class RowBlock:
    """One canonical block, as a block function sees it."""

    number: int
    start: int
    rows: Any
    """(m, d) C-contiguous in the work dtype, or SciPy CSR rows."""
    aligned: Mapping[str, Array] = field(default_factory=dict)
    """The part of ``source.aligned`` that belongs to these rows."""

    @property
    def stop(self) -> int:
        """One past the last row."""
        return self.start + int(self.rows.shape[0])

    @property
    def weights(self) -> Array | None:
        """Weights of the rows, float64; None where all are one."""
        given = self.aligned.get("weights")
        return None if given is None else np.asarray(given, np.float64)


def row_blocks(source: RowSource, numbers: Sequence[int]) -> Iterator[RowBlock]:
    """The canonical blocks of these numbers, ascending, each stored chunk read once along consecutive ones."""
    n, rows = source.shape[0], source.block
    spans = [(number * rows, min((number + 1) * rows, n)) for number in numbers]
    columns = {name: windows(other, spans) for name, other in source.aligned.items()}
    for number, (start, _), part in zip(numbers, spans, windows(source, spans), strict=True):
        aligned = {name: next(parts) for name, parts in columns.items()}
        yield RowBlock(number, start, worked(part, source.work, start), aligned)


def row_block(source: RowSource, start: int, stop: int) -> RowBlock:
    """Any rows ``start:stop`` with their aligned vectors, as a block function sees them."""
    aligned = {name: other.read(start, stop) for name, other in source.aligned.items()}
    return RowBlock(start // source.block, start, source.matrix(start, stop), aligned)


def worked(rows: Any, dtype: np.dtype[Any], start: int = 0) -> Any:
    """Rows in the work dtype: C-contiguous, or CSR."""
    return as_worked(rows, dtype, start) if is_sparse(rows) else settled(as_worked(rows, dtype, start))


def windows(source: RowSource, spans: Sequence[tuple[int, int]]) -> Iterator[Any]:
    """Rows of ascending spans through a window over whole stored chunks."""
    grain = source.grain
    held: Any = None
    first = 0
    for start, stop in spans:
        if grain == 1:
            yield source.read(start, stop)
            continue
        end = first + len(held) if held is not None else -1
        if not first <= start <= end:
            first, held, end = start, None, start
        if end < stop:
            upto = source.boundary(stop)
            fresh = source.read(end, upto)
            held = fresh if held is None or start == end else np.concatenate([held[start - first :], fresh])
            first = start
        assert held is not None
        yield held[start - first : stop - first]
        held, first = held[stop - first :], stop
        if not len(held):
            held = None
