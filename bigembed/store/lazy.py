"""Rows computed from rows when they are asked for: what a lazy result is made of."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np

from bigembed.blocks.rows import Array, bounds, one_blas_thread
from bigembed.store.passes import RowBlock, row_block
from bigembed.store.source import RowSource

if TYPE_CHECKING:
    import dask.array as da


class MappedRows:
    """An array (n, width) that is ``function(block)`` of the rows of a source, block by block, on indexing.

    ``keep`` stays alive as long as this object does (a temporary directory that holds what is read).
    """

    ndim = 2

    def __init__(
        self, source: RowSource, function: Callable[[RowBlock], Array], width: int, dtype: Any, keep: Any = None
    ) -> None:
        self.source, self.function, self._keep = source, function, keep
        self.shape = (source.shape[0], width)
        self.dtype = np.dtype(dtype)

    def __getitem__(self, index: Any) -> Array:
        rows, columns = index if isinstance(index, tuple) else (index, slice(None))
        chosen = np.arange(self.shape[0])[rows]
        if not chosen.size:
            return np.zeros((*chosen.shape, self.shape[1]), self.dtype)[..., columns]
        first, last = int(chosen.min()), int(chosen.max()) + 1
        with one_blas_thread():
            parts = [
                self.function(row_block(self.source, first + start, first + stop))
                for start, stop in bounds(last - first, self.source.block)
            ]
        return np.concatenate(parts).astype(self.dtype, copy=False)[chosen - first][..., columns]

    def __getstate__(self) -> dict[str, Any]:
        return self.__dict__ | {"_keep": None}

    def lazy(self) -> da.Array:
        """The same as a Dask array in canonical blocks."""
        import dask.array as da

        chunks = (self.source.block, self.shape[1])
        lazy: da.Array = da.from_array(self, chunks=chunks, name=False, asarray=False, fancy=False)
        return lazy
