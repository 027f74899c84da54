"""Rows that are made of other rows when a task reads them: what all such sources share."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from hashlib import sha256
from typing import Any

import numpy as np
from scipy.sparse import csr_array

from bigembed.blocks.rows import Array
from bigembed.store.rows.source import RowSource
from bigembed.store.rows.sparse import csr_block_rows, csr_row_bytes


@dataclass(frozen=True)
class DerivedRows(RowSource):
    """Rows made of those of another source whenever they are read; nothing of their size is written."""

    base: RowSource | None = None
    stamp: str = ""
    """What says how they are made: its part of the fingerprint."""
    entries: int | None = None
    """Of sparse rows, how many entries are stored at the most."""

    @property
    def source(self) -> RowSource:
        """The rows that these are made of."""
        assert self.base is not None
        return self.base

    @property
    def nothing(self) -> Any:
        """A block of no rows."""
        empty = np.empty((0, *self.shape[1:]), self.dtype)
        return empty if self.entries is None else csr_array(empty)

    def window(self, rows: tuple[int, int], columns: tuple[int, int]) -> Array:
        return np.asarray(self.read(*rows)[:, slice(*columns)])

    @property
    def sparse(self) -> bool:
        return self.entries is not None

    @property
    def row_bytes(self) -> int:
        return super().row_bytes if self.entries is None else csr_row_bytes(self.entries, self.shape[0])

    @property
    def block(self) -> int:
        return super().block if self.entries is None else csr_block_rows(self.row_bytes)

    @property
    def behind(self) -> int:
        """Bytes that a task holds of the rows that these are made of: first what these need, then two blocks of them to
        map one; and what was made of others."""
        block = min(self.source.block, self.source.shape[0]) * self.source.row_bytes
        return max(self.source.behind, 2 * block) + block

    @property
    def read_bytes(self) -> int:
        return self.source.read_bytes

    @property
    def categories(self) -> Mapping[str, Sequence[str]]:
        """Those of the columns that have kept their names."""
        return {name: texts for name, texts in self.source.categories.items() if name in self.features}

    def fingerprint(self) -> str:
        aligned = "".join(f" {name} {other.fingerprint()}" for name, other in sorted(self.aligned.items()))
        made = f"{self.shape} {self.dtype} {self.source.fingerprint()} {self.stamp}{aligned}"
        return sha256(made.encode()).hexdigest()
