"""Block vectors by name, in files or in memory where there is room: the spaces of solvers and descents."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from bigembed.errors import DamagedError, InputError
from bigembed.runtime import Executor, client_executor, executors, runtime_now, using
from bigembed.runtime.blocks import Array, map_blocks, pinned
from bigembed.store import is_url
from bigembed.store.exchange import Exchange
from bigembed.store.matrix import BlockMatrix, CSRBlock, MappedMatrix, MemoryMatrix, StoredMatrix, decoded, take_halo
from bigembed.store.mixed_space import MixedSpace, SpillFile
from bigembed.store.vector_space import MemorySpace, Sweep, VectorSpace, copy_vectors
from bigembed.store.worker_space import WorkerSpace

# ---------------------------------------------------------------------------------------------------- stored space
# Named block vectors kept in the store: a vector space larger than the memory of all workers.
#
# Each sweep maps the blocks of some vectors into memory and writes the blocks of others, one file for each block of a
# vector, however many neighbors the block has. The rows of a posted vector that other blocks will need (their halos)
# lie in the file of a block as one piece per destination. So a product moves halo rows only, and the rows that one
# block needs lie together, also where workers share a network file system. (Picked from the rows themselves, those of a
# mixture in 64 dimensions would be on a third of all pages of six other blocks.)
#
# What sweeps cost in addition to those in memory, processor time of a solve's iteration at 3·10⁵ rows and 15 columns
# (swiss roll; .23 s in memory): .16 s, of which writing is .05, its checksums .02, touching what is mapped .04,
# deleting .01. (It was .32 s when every vector was copied from its file, all that was written and read had a CRC-32C,
# and the matrix was decoded in each pass. The matrix is decoded in each pass again, with values of 4 bytes: .02 s, for
# a third of the disk.)
# Tried and left out: one file for all that a task writes (a file more costs 30 µs); writing into mapped files (six
# times the time).


AHEAD = 2
"""Blocks between the one at work and that whose files the system reads meanwhile: two workers take them in turn."""


@dataclass(frozen=True)
class StoredSpace(VectorSpace):
    """The space of block vectors over the rows of a stored matrix, or (without one) over given blocks, no halos."""

    matrix: BlockMatrix | None
    exchange: Exchange
    sizes: tuple[int, ...] = ()

    @property
    def rows(self) -> tuple[int, ...]:
        """The number of rows of each block."""
        return tuple(self.matrix.rows) if self.matrix is not None else self.sizes

    def read(self, name: str, block: int) -> Array:
        """Return one block of a vector."""
        return self.exchange.piece(name, block, "own")

    def write(self, name: str, block: int, array: Array) -> None:
        """Write one block of a vector, without an outbox."""
        self.exchange.put(name, block, {"own": array})

    def has(self, name: str) -> bool:
        """Say whether all blocks of a vector were written."""
        return all(self.exchange.has(name, block) for block in range(len(self.rows)))

    def is_posted(self, name: str) -> bool:
        """Say whether the rows of a vector that other blocks need lie ready for them."""
        for block in range(len(self.rows)):
            if self.matrix is not None and (outbox := self.matrix.outbox(block)):
                return self.exchange.get(name, block, str(outbox[0][0])) is not None
        return False

    def drop(self, *names: str) -> None:
        """Forget vectors."""
        self.exchange.drop(*names)

    def expect(self, sweep: Sweep, block: int) -> None:
        """Let the system read the files of a block of a sweep ahead, while another is computed."""
        for name in sweep.reads:
            self.exchange.expect(name, block)
        if sweep.halos and isinstance(self.matrix, StoredMatrix):
            self.matrix.expect(block)

    def walk(self, sweep: Sweep) -> list[Any]:
        """Walk over all blocks once and return the results in block order.

        A task that spends vectors stores its result with the last vector it writes, and only then deletes the spent
        ones. If these are gone when it is run again, it returns the stored result: so an interrupted walk can be
        resumed with the same arguments.
        """
        turn = -1 if sweep.descending else 1
        blocks = [(block,) for block in range(len(self.rows))][::turn]
        return map_blocks(sweep_block, blocks, label=sweep.label, sweep=sweep, space=self)[::turn]


def sweep_block(block: int, *, sweep: Sweep, space: StoredSpace) -> Any:
    """Read, compute and write one block of a sweep."""
    matrix, exchange = space.matrix, space.exchange
    if matrix is None and sweep.halos:
        raise InputError("this space was made without a matrix, so it has no halos")
    space.expect(sweep, block + (-AHEAD if sweep.descending else AHEAD))
    try:
        own = [exchange.mapped(name, block, ["own"])[0] for name in sweep.reads]
    except DamagedError:
        if not sweep.spends or not exchange.has(sweep.writes[-1], block):
            raise
        return _result_left(exchange, sweep.writes[-1], block)
    far = [_halo(exchange, matrix, name, block) for name in sweep.halos if matrix is not None]
    written, result = sweep.function(block, *own, *far, *sweep.arguments)
    outbox = matrix.outbox(block) if sweep.posts and matrix is not None else []
    for name, array in zip(sweep.writes, written, strict=True):
        pieces = {"own": array}
        if name in sweep.posts:
            pieces |= {str(destination): array[rows] for destination, rows in outbox}
        if sweep.spends and name == sweep.writes[-1]:
            pieces |= {f"result{number}": part for number, part in enumerate(result or ())}
        exchange.put(name, block, pieces)
    for name in sweep.spends:
        exchange.drop_block(name, block)
    return result


def _result_left(exchange: Exchange, name: str, block: int) -> tuple[Array, ...] | None:
    """Return the result that a task has left with a vector."""
    pieces = exchange.get_all(name, block)
    return tuple(pieces[f"result{number}"] for number in range(sum(key.startswith("result") for key in pieces))) or None


def _halo(exchange: Exchange, matrix: BlockMatrix, name: str, block: int) -> Array:
    """Return the rows of other blocks that this block needs, in the order of its halo list, one file open at a time."""

    def rows_of(source: int, rows: Array) -> Array:
        piece = exchange.look(name, source, [str(block)])[0]
        return exchange.mapped(name, source, ["own"])[0][rows] if piece is None else piece

    return take_halo(matrix.block(block), exchange.piece(name, block, "own")[:0], rows_of)


# --------------------------------------------------------------------------------------------------- memory or files
# Block vectors in memory where there is room, else in files. Of those in memory, checkpoints are left in files.
#
# There may be room in a process that runs all tasks, or that takes the tasks of a solve or descent over from workers on
# its own machine; or in workers on other machines together. The spaces have the same sweeps
# (:class:`bigembed.store.vector_space.VectorSpace`), and give the same bytes.

SHARE = 4
"""Where nothing was planned, vectors may take 1 / SHARE of the memory that is free now, or of a worker's limit."""
PARTS = 16
"""Less than 1 / PARTS of the vectors in memory saves too little to leave the rest to this process alone."""
SPILL = "-spill"
"""What the name of the file of the others has after that of an exchange."""
UNEVEN = 1.25
"""How much more than the mean a worker may hold."""
FREE = 2 / 3
"""Share of what is free that planned vectors may take; the rest is for the tasks."""
SECONDS, TIMES = 1.0, 30.0
"""Least time between two checkpoints: in seconds, and as a multiple of the time that the last one took."""


MemoryOfRows = MemorySpace | WorkerSpace
"""Spaces that leave checkpoints in files."""


@dataclass(frozen=True)
class Room:
    """Where the vectors of a solver or descent may be."""

    where: str
    """In words, and why."""
    here: bool = False
    """Whether in the memory of this process."""
    workers: client_executor.ClientExecutor | None = None
    """Whose workers may hold them."""
    part: int | None = None
    """Bytes of them that may be in the memory of this process, where not all may: the rest is in a file of its own."""

    @property
    def in_memory(self) -> bool:
        """Whether they are in memory, here or in the workers, at least in part: other processes do not see them."""
        return self.here or self.workers is not None

    def open(self, matrix: StoredMatrix, exchange: Exchange) -> tuple[BlockMatrix, MemoryOfRows | StoredSpace]:
        """Return a stored matrix and a space of vectors over its rows, both in this process, in the workers, or in
        files (``exchange``; beside it lies what workers leave for each other)."""
        if self.here and self.part is None:
            loaded = load_matrix(matrix)
            return loaded, MemorySpace(loaded)
        if self.workers is not None:
            executor = pinned(self.workers, matrix.rows)
            held = WorkerSpace.open(matrix, Exchange(f"{exchange.root}-held"), executor)
            return held.matrix, held
        far = is_url(matrix.structure) and not is_url(exchange.root)
        mapped = MappedMatrix(matrix, exchange) if far else matrix
        if self.part is None:
            return mapped, StoredSpace(mapped, exchange)
        return mapped, MixedSpace(mapped, spill=SpillFile(exchange.root + SPILL), room=self.part)


IN_FILES = Room("in files")
"""Where there is none in memory."""


@contextmanager
def claim_memory(need: int, by_workers: bool = False, vectors: int = 0) -> Iterator[Room]:
    """Say whether vectors of ``need`` bytes may be in memory, and where. If in this process, tasks in this context run
    here.

    They may be in this process if all tasks run in it, or on its machine (in workers of a job, or of a Dask client of
    the user's), and the memory that was planned for them or is free suffices. Workers are then idle, since several
    processes would send each other the vectors through files. ``by_workers``: whether workers on other machines may
    hold them together, each those of its blocks, if each of them has room for these. ``vectors``: bytes of the vectors
    alone, without the matrix, where some of them may be in this process and the others in files; 0 where not.
    """
    with executors.chosen_executor() as executor:
        limit, alone = _limit(), executor.in_this_process
        if not alone and executor.pool is None:
            yield _of_workers(executor, need) if by_workers else Room("in files, since tasks run in other processes")
        elif need > limit and not (vectors and limit >= vectors / PARTS):
            yield Room(f"in files, since they take {_gib(need)} and may take {_gib(limit)} of this process")
        else:
            part = None if need <= limit else limit
            where = _gib(need) if part is None else f"{_gib(part)} of {_gib(need)}, and the rest in a file"
            if alone:
                yield Room(f"in memory, {where}", here=True, part=part)
            else:
                executor.free_memory()
                with using(executor=executor.pool):
                    where = f"in the memory of this process, {where}"
                    yield Room(f"{where}; it works on them while the workers idle", here=True, part=part)


def _of_workers(executor: Executor, need: int) -> Room:
    """Return the room that the workers of other machines have together."""
    if not isinstance(executor, client_executor.ClientExecutor):
        return Room("in files, since tasks run in other processes")
    count, most = len(executor.running()), runtime_now().worker_memory
    if most is None:
        most = (executor.memory_of_workers() or 0) // SHARE
    each = int(UNEVEN * need / max(1, count))
    if each > most:
        share = f"each of {count} workers would hold {_gib(each)}, and may hold {_gib(most)}"
        return Room(f"in files, since tasks run in other processes: {share}")
    return Room(f"in the memory of the workers, {_gib(each)} each", workers=executor)


def _limit() -> int:
    """Return the bytes that vectors may take: as the runtime says, and never more than is free now."""
    import psutil

    free, limit = int(psutil.virtual_memory().available), runtime_now().vector_memory
    return free // SHARE if limit is None else min(limit, int(FREE * free))


def _gib(count: float) -> str:
    return f"{count / 2**30:.2f} GiB"


def load_matrix(matrix: BlockMatrix) -> MemoryMatrix:
    """Return all blocks of a matrix, as products take them."""
    with using(journal=None):  # (each start reads them again)
        return MemoryMatrix(tuple(map_blocks(_block, [(b,) for b in range(len(matrix.rows))], "load", matrix=matrix)))


def _block(b: int, matrix: BlockMatrix) -> CSRBlock:
    return decoded(matrix.block(b))


@dataclass
class Checkpoints:
    """Checkpoints of the vectors in ``space``, left in ``stored``; none are needed where ``space`` is in files itself.

    Those vectors of a state that ``stored`` does not have yet are copied; those of the previous checkpoint are
    dropped once the next one is published. No result depends on when checkpoints are made.
    """

    space: VectorSpace
    stored: StoredSpace
    _kept: list[str] = field(default_factory=list)
    _last: float = field(default_factory=time.monotonic)
    _took: float = 0.0

    @property
    def due(self) -> bool:
        """Whether it is time for the next one: always, where vectors are in the store anyway."""
        if isinstance(self.space, StoredSpace):
            return True
        return time.monotonic() - self._last >= max(SECONDS, TIMES * self._took)

    def restore(self, names: Sequence[str]) -> None:
        """Take the vectors of the last checkpoint."""
        if isinstance(self.space, MemoryOfRows):
            self._kept = [name for name in names if self.stored.has(name)]
            here = isinstance(self.space, MemorySpace)
            posts = [name for name in self._kept if self.stored.is_posted(name)] if here else []
            copy_vectors(self.stored, self.space, self._kept, posts=posts)

    def save(self, names: Sequence[str]) -> None:
        """Leave vectors in the store; some of them may be there."""
        if isinstance(self.space, MemoryOfRows):
            self._last = time.monotonic()
            there = [name for name in names if name in self.space.names and not self.stored.has(name)]
            self.space.copy_to(self.stored, there)

    def published(self, names: Sequence[str]) -> None:
        """The state of these vectors is on disk: those of the checkpoint before are not needed any more."""
        if not isinstance(self.space, StoredSpace):
            self.stored.drop(*(name for name in self._kept if name not in names))
            self._kept = list(names)
            now = time.monotonic()
            self._last, self._took = now, now - self._last
