"""Rows computed from rows when they are asked for: what a lazy result is made of."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from time import monotonic
from typing import TYPE_CHECKING, Any

import numpy as np
from scipy.sparse import csr_array

from bigembed.blocks.rows import bounds, one_blas_thread
from bigembed.errors import ChangedInputError
from bigembed.store.blockwise.sparse_parts import stacked
from bigembed.store.published.superseded import Mark
from bigembed.store.rows.row_blocks import RowBlock, row_block
from bigembed.store.rows.source import RowSource

if TYPE_CHECKING:
    import dask.array as da


class MappedRows:
    """An array (n, width) that is ``function(block)`` of the rows of a source, block by block, on indexing.

    ``keep`` stays alive as long as this object does (a temporary directory that holds what is read). ``stamp``: the
    fingerprint that the source must still have; empty if any rows will do. ``marks``: of the stages that the function
    reads, which must still be what is published. ``sparse``: whether these are CSR rows.
    """

    ndim = 2

    def __init__(
        self,
        source: RowSource,
        function: Callable[[RowBlock], Any],
        width: int,
        dtype: Any,
        keep: Any = None,
        stamp: str = "",
        marks: Sequence[Mark] = (),
        sparse: bool = False,
    ) -> None:
        self.source, self.function, self._keep, self.stamp, self.marks = source, function, keep, stamp, marks
        self._look_at, self.sparse = 0.0, sparse
        self.shape = (source.shape[0], width)
        self.dtype = np.dtype(dtype)

    def __getitem__(self, index: Any) -> Any:
        rows, columns = index if isinstance(index, tuple) else (index, slice(None))
        chosen = np.arange(self.shape[0])[rows]
        if not chosen.size:
            nothing = np.zeros((*chosen.shape, self.shape[1]), self.dtype)[..., columns]
            return csr_array(nothing) if self.sparse else nothing
        self._look()
        first, last = int(chosen.min()), int(chosen.max()) + 1
        with one_blas_thread():
            parts = [
                self.function(row_block(self.source, first + start, first + stop))
                for start, stop in bounds(last - first, self.source.block)
            ]
        for mark in self.marks:
            mark.check()
        found = stacked(parts).astype(self.dtype, copy=False)[chosen - first]
        return found[:, columns] if self.sparse else found[..., columns]

    def _look(self) -> None:
        """Refuse rows that were changed; looking takes a tenth of the time at most, however many files there are."""
        began = monotonic()
        if self.stamp and began >= self._look_at:
            refuse_changed(self.source, self.stamp)
            self._look_at = monotonic() + 10 * (monotonic() - began)

    def __getstate__(self) -> dict[str, Any]:
        return self.__dict__ | {"_keep": None, "_look_at": 0.0}

    def lazy(self) -> da.Array:
        """A Dask array in canonical blocks, computed when it is read."""
        import dask.array as da

        chunks = (self.source.block, self.shape[1])
        meta = csr_array((0, 0), dtype=self.dtype) if self.sparse else None
        lazy: da.Array = da.from_array(self, chunks=chunks, name=False, asarray=False, fancy=False, meta=meta)
        return lazy


def refuse_changed(source: RowSource, stamp: str) -> None:
    """ChangedInputError unless the rows still have this fingerprint."""
    if source.fingerprint() != stamp:
        raise ChangedInputError(
            f"{source.path or 'the array'}: its bytes are not those that were fitted any more, so the coordinates of "
            "the rows fitted cannot be had from it. Give rows to transform; or use fit_transform, or ask for "
            "embedding_ (and compute it, if it is lazy) before the rows change"
        )
