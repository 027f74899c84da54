"""Block vectors in memory where there is room, else in the store; a solver in memory leaves checkpoints in the store.

Both are spaces of the same sweeps (:class:`bigembed.blocks.vector_space.VectorSpace`), and give the same bytes.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field, replace

import numpy as np

from bigembed.blocks.csr import BlockMatrix, CSRBlock, MemoryMatrix
from bigembed.blocks.rows import here
from bigembed.blocks.vector_space import MemorySpace, VectorSpace, copy_vectors
from bigembed.store.stored_space import StoredSpace

SHARE = 4
"""Vectors may take one byte in this number of the bytes of memory that are free now."""


@contextmanager
def holding(limit: int | None) -> Iterator[None]:
    """Let solvers in this context hold ``limit`` bytes of vectors in memory: 0 for files, None for what is free."""
    token = _limit.set(limit)
    try:
        yield
    finally:
        _limit.reset(token)


_limit: ContextVar[int | None] = ContextVar("limit", default=None)


def room() -> int:
    """Bytes of vectors that this process may hold; 0 where tasks run elsewhere and would not see them."""
    if not here():
        return 0
    limit = _limit.get()
    if limit is not None:
        return limit
    import psutil

    return int(psutil.virtual_memory().available) // SHARE


def in_memory(matrix: BlockMatrix) -> MemoryMatrix:
    """All blocks of a matrix, as products take them: indices of 32 bits, values of 64."""
    return MemoryMatrix(tuple(_decoded(matrix.block(b)) for b in range(len(matrix.rows))))


def _decoded(block: CSRBlock) -> CSRBlock:
    pointer = block.indptr.astype(np.int32) if len(block.data) < 1 << 31 else block.indptr
    return replace(block, indptr=pointer, data=block.data.astype(np.float64))


@dataclass
class Checkpoints:
    """What a solver whose vectors are in ``space`` leaves in ``stored``, to go on from; nothing where they are there.

    Of the names of a state, those that ``stored`` has not got yet are copied; those of the checkpoint before are
    dropped once the next one is published.
    """

    space: VectorSpace
    stored: StoredSpace
    _kept: list[str] = field(default_factory=list)

    def restore(self, names: Sequence[str]) -> None:
        """Take the vectors of the last checkpoint."""
        if isinstance(self.space, MemorySpace):
            self._kept = [name for name in names if self.stored.has(name)]
            copy_vectors(self.stored, self.space, self._kept, posts=self._kept)

    def save(self, names: Sequence[str]) -> None:
        """Leave vectors in the store; some of them may be there."""
        if isinstance(self.space, MemorySpace):
            there = [name for name in names if name in self.space.names and not self.stored.has(name)]
            copy_vectors(self.space, self.stored, there, posts=[name for name in there if name in self.space.posted])

    def published(self, names: Sequence[str]) -> None:
        """The state of these vectors is on disk: those of the checkpoint before are not needed any more."""
        if isinstance(self.space, MemorySpace):
            self.stored.drop(*(name for name in self._kept if name not in names))
            self._kept = list(names)
