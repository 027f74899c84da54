"""Sparse rows beside sketches of them: a fixed random projection to a few columns, by which they are ordered.

Column c of a row is added, with a random sign, to :data:`COPIES` of the columns of its sketch (Kane & Nelson 2014):
squared distances of sketches are those of the rows on average, within about √(2/:data:`SKETCH`) of themselves. Which
columns these are follows from c alone, so nothing as long as a row is ever held. Sketches say only near which cells a
row lies; distances are taken of the rows themselves.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy import sparse

from bigembed.blocks.rows import Array

SKETCH = 64
"""Columns of a sketch."""
COPIES = 4


@dataclass(frozen=True)
class Sketched:
    """Sparse rows with their sketches, sliced and counted like an array."""

    rows: Any
    """CSR, (n, d)."""
    sketch: Array
    """(n, SKETCH)."""

    def __len__(self) -> int:
        return len(self.sketch)

    def __getitem__(self, chosen: Any) -> Sketched:
        return Sketched(self.rows[chosen], self.sketch[chosen])

    @property
    def dtype(self) -> Any:
        """Of the rows and the sketches."""
        return self.sketch.dtype

    @property
    def shape(self) -> tuple[int, int]:
        """Of the rows."""
        n, d = self.rows.shape
        return int(n), int(d)


def sketched(rows: Any) -> Sketched:
    """CSR rows, as they are compared, with their sketches.

    >>> rows = sparse.csr_array(np.eye(3))
    >>> np.abs(sketched(rows).sketch).sum(axis=1).tolist()
    [2.0, 2.0, 2.0]
    """
    columns, place = np.unique(rows.indices, return_inverse=True)
    bits = _hashed(columns.astype(np.uint64))
    part = SKETCH // COPIES
    target = np.stack([(bits >> np.uint64(8 * c)) % np.uint64(part) + np.uint64(c * part) for c in range(COPIES)], 1)
    sign = np.stack([(bits >> np.uint64(40 + c)) & np.uint64(1) for c in range(COPIES)], axis=1) * 2.0 - 1.0
    size = COPIES * np.arange(len(columns) + 1)
    entries = sign.ravel() / np.sqrt(COPIES), target.ravel().astype(np.int32), size
    directions = sparse.csr_array(entries, shape=(len(columns), SKETCH))
    inside = sparse.csr_array((rows.data.astype(np.float64), place, rows.indptr), shape=(rows.shape[0], len(columns)))
    return Sketched(rows, np.asarray((inside @ directions).toarray(), rows.dtype))


def _hashed(numbers: Array) -> Array:
    """64 mixed bits of each number (splitmix64)."""
    with np.errstate(over="ignore"):
        z = numbers * np.uint64(0x9E3779B97F4A7C15) + np.uint64(0x9E3779B97F4A7C15)
        z = (z ^ (z >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
        z = (z ^ (z >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
        return np.asarray(z ^ (z >> np.uint64(31)))


def ordered_of(rows: Any) -> Array:
    """What rows are ordered by: their sketches, or dense rows themselves."""
    return rows.sketch if isinstance(rows, Sketched) else rows


def compared_of(rows: Any) -> Any:
    """What distances are taken of: the rows themselves, dense or CSR."""
    return rows.rows if isinstance(rows, Sketched) else rows
