"""Block vectors in memory where there is room, else in the store; a solver in memory leaves checkpoints in the store.

There is room in a process that has all tasks, or takes those of a solve from workers on its own machine. Both are
spaces of the same sweeps (:class:`bigembed.blocks.vector_space.VectorSpace`), and give the same bytes.
"""

from __future__ import annotations

import ctypes
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, nullcontext, suppress
from contextvars import ContextVar
from dataclasses import dataclass, field

from bigembed.blocks.csr import BlockMatrix, CSRBlock, MemoryMatrix
from bigembed.blocks.rows import Executor, executor, here, map_blocks, threads_nearby
from bigembed.blocks.stripes import working
from bigembed.blocks.threads import Threads
from bigembed.blocks.vector_space import MemorySpace, VectorSpace, copy_vectors
from bigembed.store.blockwise.matrix import decoded
from bigembed.store.blockwise.stored_space import StoredSpace

SHARE = 4
"""Where nothing was planned, vectors may take one byte in this number of the bytes of memory that are free now."""
FREE = 2 / 3
"""Share of what is free that planned vectors may take; the rest is for the tasks."""
SECONDS, TIMES = 60.0, 30.0
"""Between two checkpoints at the least: seconds, and how often the time that the last one took."""


@dataclass(frozen=True)
class Offer:
    """What solvers of a context may take for their vectors."""

    limit: int | None = None
    """Bytes; 0 for files, None for a share of what is free."""
    run: Executor | None = None
    """What computes with them in this process, where tasks run elsewhere."""
    ready: Callable[[], None] | None = None
    """Called before that."""


@contextmanager
def holding(limit: int | None, run: Executor | None = None, ready: Callable[[], None] | None = None) -> Iterator[None]:
    """Let solvers in this context hold ``limit`` bytes of vectors in memory: 0 for files, None for a share of what is
    free.

    Where tasks run in other processes, none are held, unless ``run`` computes with them in this one; ``ready`` is
    called before that (for the others to give back memory that they do not need).
    """
    token = _offer.set(Offer(limit, run, ready))
    try:
        yield
    finally:
        _offer.reset(token)


_NOTHING = Offer()
_offer: ContextVar[Offer] = ContextVar("offer", default=_NOTHING)


@contextmanager
def held(need: int) -> Iterator[tuple[bool, str]]:
    """Whether vectors that take ``need`` bytes are held in this process, and why. Tasks in this context then run here.

    They are, where tasks run in this process, or all on this machine (in workers of a job, or of a Dask client of the
    user's), and what was planned for them or is free suffices. The workers are idle meanwhile: several processes would
    send each other the vectors through files.
    """
    offer, run = _offer.get(), None
    if not here():
        run = offer.run or (Threads(threads) if (threads := threads_nearby()) else None)
        if run is None:
            yield False, "in files, since tasks run in other processes"
            return
    limit = _limit(offer)
    if need > limit:
        yield False, f"in files, since they take {_gib(need)} and may take {_gib(limit)} of this process"
        return
    where = f"in memory, {_gib(need)}"
    if run is not None:
        where = f"in the memory of this process, {_gib(need)}, which solves with them while the workers idle"
        if offer.ready is not None:
            offer.ready()
    with nullcontext() if run is None else executor(run), working():
        yield True, where


def _limit(offer: Offer) -> int:
    """Bytes that vectors may take: as offered, and never more than is free now."""
    import psutil

    free = int(psutil.virtual_memory().available)
    return free // SHARE if offer.limit is None else min(offer.limit, int(FREE * free))


def _gib(count: float) -> str:
    return f"{count / 2**30:.2f} GiB"


def give_back() -> None:
    """Return freed memory to the system, where the C library keeps it for later."""
    with suppress(AttributeError, OSError):
        ctypes.CDLL(None).malloc_trim(0)


def in_memory(matrix: BlockMatrix) -> MemoryMatrix:
    """All blocks of a matrix, as products take them."""
    return MemoryMatrix(tuple(map_blocks(_block, [(b,) for b in range(len(matrix.rows))], "load", matrix=matrix)))


def _block(b: int, matrix: BlockMatrix) -> CSRBlock:
    return decoded(matrix.block(b))


@dataclass
class Checkpoints:
    """What a solver whose vectors are in ``space`` leaves in ``stored``, to go on from; nothing where they are there.

    Of the names of a state, those that ``stored`` has not got yet are copied; those of the checkpoint before are
    dropped once the next one is published. No result depends on when that is.
    """

    space: VectorSpace
    stored: StoredSpace
    _kept: list[str] = field(default_factory=list)
    _last: float = field(default_factory=time.monotonic)
    _took: float = 0.0

    @property
    def due(self) -> bool:
        """Whether it is time for the next one: always, where vectors are in the store anyway."""
        if not isinstance(self.space, MemorySpace):
            return True
        return time.monotonic() - self._last >= max(SECONDS, TIMES * self._took)

    def restore(self, names: Sequence[str]) -> None:
        """Take the vectors of the last checkpoint."""
        if isinstance(self.space, MemorySpace):
            self._kept = [name for name in names if self.stored.has(name)]
            copy_vectors(self.stored, self.space, self._kept, posts=self._kept)

    def save(self, names: Sequence[str]) -> None:
        """Leave vectors in the store; some of them may be there."""
        if isinstance(self.space, MemorySpace):
            self._last = time.monotonic()
            there = [name for name in names if name in self.space.names and not self.stored.has(name)]
            copy_vectors(self.space, self.stored, there, posts=[name for name in there if name in self.space.posted])

    def published(self, names: Sequence[str]) -> None:
        """The state of these vectors is on disk: those of the checkpoint before are not needed any more."""
        if isinstance(self.space, MemorySpace):
            self.stored.drop(*(name for name in self._kept if name not in names))
            self._kept = list(names)
            now = time.monotonic()
            self._last, self._took = now, now - self._last
